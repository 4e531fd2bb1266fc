/** Where the sidecar's program is. */
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const NAME = process.platform === "win32" ? "cursor-sidecar.exe" : "cursor-sidecar";

/** The user's choice, the package for this platform, or the newest build of this repository. */
export function findBinary(): string {
  const chosen = process.env.PI_CURSOR_SIDECAR;
  if (chosen) return chosen;
  const platform = `${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`cursor-sidecar-${platform}/${NAME}`);
  } catch {
    // Not installed from npm.
  }
  const builds = ["release", "debug"]
    .map((profile) => fileURLToPath(new URL(`../../target/${profile}/${NAME}`, import.meta.url)))
    .map((path) => ({ path, built: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 }))
    .filter(({ built }) => built > 0)
    .sort((a, b) => b.built - a.built);
  if (builds[0]) return builds[0].path;
  const remedy = "reinstall the package or set PI_CURSOR_SIDECAR to its path";
  throw new Error(`there is no cursor-sidecar program for ${platform}; ${remedy}`);
}
