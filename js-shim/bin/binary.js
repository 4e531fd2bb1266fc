/** Where the sidecar's program is. JavaScript, because Node runs no TypeScript of a package. */
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const NAME = process.platform === "win32" ? "cursor-sidecar.exe" : "cursor-sidecar";
const require = createRequire(import.meta.url);
/** @type {string} The version of this package, which is also that of its program. */
export const VERSION = require("../package.json").version;

/** The user's choice, the package for this platform, the newest build here, or one on the PATH. */
export function findBinary() {
  if (process.env.PI_CURSOR_SIDECAR) return process.env.PI_CURSOR_SIDECAR;
  const platform = `${process.platform}-${process.arch}`;
  try {
    return require.resolve(`cursor-sidecar-${platform}/${NAME}`);
  } catch {} // no package for this platform
  const built = ["release", "debug"]
    .map((profile) => fileURLToPath(new URL(`../../target/${profile}/${NAME}`, import.meta.url)))
    .filter((path) => existsSync(path))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  const onPath = (process.env.PATH ?? "").split(delimiter).map((folder) => join(folder, NAME));
  const found = [...built, ...onPath].find((path) => existsSync(path));
  if (found) return found;
  throw new Error(`no cursor-sidecar ${VERSION} for ${platform}: install the npm package again \
without --omit=optional, or build the program (cargo build --release) and put it on the PATH or \
set PI_CURSOR_SIDECAR to its path`);
}
