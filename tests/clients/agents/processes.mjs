// Programs that `make clients` starts.
import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";

/** Starts a server and returns it with its ready line. */
export async function start(program, args, env, cwd) {
  const child = spawn(program, args, { env: { PATH: process.env.PATH, ...env }, cwd, stdio: ["pipe", "pipe", "ignore"] });
  const line = await new Promise((done, fail) => {
    createInterface({ input: child.stdout }).once("line", done);
    child.once("exit", () => fail(new Error(`${args[0]} did not start`)));
  });
  return { child, ready: JSON.parse(line) };
}

/** Runs a client to its end, in a process group of its own, and returns what it printed. */
export function runClient(program, args, options) {
  const child = spawn(program, args, { ...options, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  const limit = setTimeout(() => process.kill(-child.pid, "SIGKILL"), 180000);
  return new Promise((done) => {
    child.once("error", (error) => done({ status: error.message, output }));
    child.once("close", (code, signal) => {
      clearTimeout(limit);
      done({ status: code ?? signal, output });
    });
  });
}

/** Ends what a client left in the background, such as Cline's hub: all processes that name its folder. */
export function endLeftovers(place) {
  const { stdout } = spawnSync("ps", ["-eo", "pid=,args="], { encoding: "utf8" });
  for (const line of stdout.split("\n")) {
    const [, pid, args] = /^\s*(\d+) (.*)$/.exec(line) ?? [];
    if (!args?.includes(place)) continue;
    try {
      process.kill(Number(pid), "SIGKILL");
    } catch {
      // It has ended meanwhile.
    }
  }
}
