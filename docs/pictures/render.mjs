// A terminal's screen as a picture: node render.mjs screen.ansi picture.png
//
// The screen comes from a test: KEEP_SCREENS=<folder> cargo nextest run --test pi each_card
// Needs @resvg/resvg-js where node finds it, and DejaVu Sans Mono.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [from, to] = process.argv.slice(2);
const { Resvg } = createRequire(join(process.cwd(), "x.js"))("@resvg/resvg-js");
const [WIDTH, HEIGHT, SIZE, PAD] = [8.43, 18, 14, 12];
const [PAPER, INK] = ["#18181e", "#d4d4d4"];

const plain = () => ({ ink: INK, paper: PAPER, bold: false, inverse: false });
let style = plain();
function select(codes) {
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) style = plain();
    else if (code === 1) style.bold = true;
    else if (code === 7) style.inverse = true;
    else if (code === 39) style.ink = INK;
    else if (code === 49) style.paper = PAPER;
    else if (code === 38 || code === 48) {
      if (codes[at + 1] !== 2) throw new Error("only true colours are drawn");
      const colour = `rgb(${codes.slice(at + 2, at + 5)})`;
      style[code === 38 ? "ink" : "paper"] = colour;
      at += 4;
    }
  }
}

const escape = (text) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt()};`);
const lines = readFileSync(from, "utf8").trimEnd().split("\n");
const drawn = [];
let columns = 0;
lines.forEach((line, row) => {
  let column = 0;
  for (const [, codes, text] of line.matchAll(/\x1b\[([\d;]*)m|([^\x1b]+)/g)) {
    if (codes !== undefined) select(codes.split(";").map(Number));
    if (!text) continue;
    const [ink, paper] = style.inverse ? [style.paper, style.ink] : [style.ink, style.paper];
    const [x, y] = [PAD + column * WIDTH, PAD + row * HEIGHT];
    const width = [...text].length * WIDTH;
    if (paper !== PAPER) drawn.push(`<rect x="${x}" y="${y}" width="${width + 0.3}" height="${HEIGHT + 0.3}" fill="${paper}"/>`);
    const weight = style.bold ? ' font-weight="bold"' : "";
    if (text.trim()) drawn.push(`<text x="${x}" y="${y + 13.5}" fill="${ink}"${weight} xml:space="preserve">${escape(text)}</text>`);
    column += [...text].length;
  }
  columns = Math.max(columns, column);
});
const [width, height] = [columns * WIDTH + 2 * PAD, lines.length * HEIGHT + 2 * PAD];
const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="DejaVu Sans Mono" font-size="${SIZE}"><rect width="100%" height="100%" fill="${PAPER}"/>${drawn.join("")}</svg>`;
writeFileSync(to, new Resvg(svg, { font: { loadSystemFonts: true } }).render().asPng());
