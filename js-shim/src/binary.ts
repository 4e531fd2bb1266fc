/** Where the sidecar's program is. */
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const NAME = process.platform === "win32" ? "cursor-sidecar.exe" : "cursor-sidecar";

/** The user's choice, the package for this platform, or the newest build of this repository. */
export function findBinary(): string {
  if (process.env.PI_CURSOR_SIDECAR) return process.env.PI_CURSOR_SIDECAR;
  const platform = `${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`cursor-sidecar-${platform}/${NAME}`);
  } catch {
    // Not installed from npm.
  }
  const [newest] = ["release", "debug"]
    .map((profile) => fileURLToPath(new URL(`../../target/${profile}/${NAME}`, import.meta.url)))
    .filter((path) => existsSync(path))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  if (newest) return newest;
  throw new Error(`no cursor-sidecar program for ${platform}: reinstall, or set PI_CURSOR_SIDECAR`);
}
