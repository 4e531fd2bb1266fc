/** What the sidecar is told about this pi. */
import { readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import type { Host, HostMode } from "./protocol.ts";

const LEVELS = ["off", "minimal", "low", "medium", "high", "xhigh"];
const MAX_SINCE = "0.80.6";

/** pi says how it runs only with its first session, and since 0.78 at all. */
export function describeHost(mode: string = guessMode()): Host {
  const version = piVersion();
  const order = version?.localeCompare(MAX_SINCE, "en", { numeric: true }) ?? 0;
  return {
    name: "pi",
    version,
    mode: mode === "tui" ? "interactive" : (mode as HostMode),
    thinkingLevels: order < 0 ? LEVELS : [...LEVELS, "max"],
    cwd: process.cwd(),
    processId: process.pid,
  };
}

function guessMode(): HostMode {
  const { argv, stdin, stdout } = process;
  const mode = argv.includes("--mode") ? argv[argv.indexOf("--mode") + 1] : undefined;
  if (mode === "rpc" || mode === "json") return mode;
  const printing = argv.includes("-p") || argv.includes("--print");
  return printing || !stdin.isTTY || !stdout.isTTY ? "print" : "interactive";
}

/** Importing pi for its version would tie us to one; the folder of its program says it too. */
function piVersion(): string | undefined {
  for (const up of ["..", "../..", "../../.."]) {
    try {
      const file = join(realpathSync(process.argv[1] ?? ""), up, "package.json");
      const { name, version } = JSON.parse(readFileSync(file, "utf8"));
      if (String(name).endsWith("/pi-coding-agent")) return version;
    } catch {
      // No package here, or pi as a single program.
    }
  }
  return undefined;
}
