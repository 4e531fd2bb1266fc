// What drive.mjs and bench.mjs share: the spec comes in on stdin, one JSON line goes out on stdout.

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

const writeStdout = process.stdout.write.bind(process.stdout);
let finished = false;

/** Prints the report and ends the process; SDK sockets and timers would otherwise keep it alive. */
export function finish(report, code = 0) {
  if (finished) return;
  finished = true;
  writeStdout(JSON.stringify(report) + "\n", () => process.exit(code));
}

export class SpecError extends Error {}

/** Reads and checks the spec: an unknown key is a typo in a test and must not pass silently. */
export async function readSpec(knownKeys) {
  // From here on stdout belongs to the report, whatever the SDK or a library below it prints.
  process.stdout.write = process.stderr.write.bind(process.stderr);
  let raw = "";
  process.stdin.setEncoding("utf8");
  for await (const chunk of process.stdin) raw += chunk;
  let spec;
  try {
    spec = JSON.parse(raw);
  } catch (error) {
    throw new SpecError(`stdin is not JSON: ${error.message}`);
  }
  checkKeys("spec", spec, knownKeys);
  // Without this variable the SDK would use the real service.
  const backend = process.env.CURSOR_BACKEND_URL;
  if (!URL.canParse(backend) || !LOOPBACK.has(new URL(backend).hostname)) {
    throw new SpecError("CURSOR_BACKEND_URL must be a loopback URL");
  }
  return spec;
}

export function checkKeys(where, value, known) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new SpecError(`${where} must be an object`);
  }
  const unknown = Object.keys(value).filter((key) => !known.includes(key));
  if (unknown.length > 0) throw new SpecError(`${where}: unknown key ${unknown.join(", ")}`);
}

/** The keys of `source` that are listed and set. */
export function pick(source, keys) {
  return Object.fromEntries(keys.filter((key) => source[key] !== undefined).map((key) => [key, source[key]]));
}

/** An error as plain data; only the fields that are there. */
export function describeError(error) {
  if (error === null || typeof error !== "object") return { message: String(error) };
  return {
    name: error.name,
    message: error.message,
    ...pick(error, ["code", "status", "isRetryable", "operation"]),
  };
}

/** The promise, or `undefined` after `ms`: for clean-up that must not hold up the report. */
export function atMost(ms, promise) {
  let timer;
  const timeout = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

export const megabytes = (bytes) => Math.round((bytes / 1e6) * 10) / 10;

export const round = (ms) => Math.round(ms * 10) / 10;
