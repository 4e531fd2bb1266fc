/** Where the sidecar's program is. */
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const NAME = process.platform === "win32" ? "cursor-sidecar.exe" : "cursor-sidecar";

/** The user's choice, the package for this platform, the newest build here, or one on the PATH. */
export function findBinary(): string {
  if (process.env.PI_CURSOR_SIDECAR) return process.env.PI_CURSOR_SIDECAR;
  const platform = `${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`cursor-sidecar-${platform}/${NAME}`);
  } catch {} // not installed from npm
  const built = ["release", "debug"]
    .map((profile) => fileURLToPath(new URL(`../../target/${profile}/${NAME}`, import.meta.url)))
    .filter((path) => existsSync(path))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  const onPath = (process.env.PATH ?? "").split(delimiter).map((folder) => join(folder, NAME));
  const found = [...built, ...onPath].find((path) => existsSync(path));
  if (found) return found;
  const advice = "build it (cargo build --release), put it on the PATH or set PI_CURSOR_SIDECAR";
  throw new Error(`no cursor-sidecar for ${platform}: ${advice}`);
}
