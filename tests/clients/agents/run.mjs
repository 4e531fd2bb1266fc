// Coding agents, unmodified, against the gateway and the simulated backend: `make clients`.
//
// Each agent gets two prompts of one conversation. In the first, the simulator calls the agent's own
// tools, which read a file, run a command and edit the file for real; in the second it makes Cursor's own
// requests (shell, read, write, grep, ls, delete), which the agent's tools execute, and checks every
// typed result. Each prompt must take one run. opencode, Codex and Claude Code also run in two windows at
// once, whose runs are parked at the same time. Prints a table; fails if an agent that is installed fails.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { agents } from "./agents.mjs";
import { fileText, nativeRequests, scenario } from "./conversation.mjs";
import { libraries, sidecar } from "./libraries.mjs";
import { endLeftovers, runClient, start } from "./processes.mjs";

/** Node and ripgrep, which opencode would load from elsewhere. */
const PROGRAMS = join(dirname(fileURLToPath(import.meta.url)), "../../official/node_modules/.bin");
const COUNT = "wc -l a.txt > lines.txt";
/** The same, and then waits until the other window's command runs too. */
const COUNT_TOGETHER = `${COUNT} && until test -e ../go; do sleep 0.1; done`;

/** A client with its own home and folder. */
class Window {
  constructor(place, name) {
    this.place = join(place, name);
    this.home = join(this.place, "home");
    this.work = join(this.place, "work");
    for (const folder of [this.home, this.work]) mkdirSync(folder, { recursive: true });
    writeFileSync(join(this.work, "a.txt"), fileText(this.work));
  }

  text = () => readFileSync(join(this.work, "a.txt"), "utf8");
  hasCounted = () => existsSync(join(this.work, "lines.txt"));
}

/** Lets the commands of all windows end once all of them have begun. */
function meet(windows) {
  const check = () => {
    if (windows.every((window) => window.hasCounted())) {
      for (const { place } of windows) writeFileSync(join(place, "go"), "");
    }
  };
  const watchers = windows.map(({ work }) => watch(work, check));
  return () => watchers.forEach((watcher) => watcher.close());
}

/** Gives a client its prompts, one after the other. */
async function converse(command, prompts, window, env) {
  let output = "";
  for (const args of prompts) {
    const ended = await runClient(command, args, {
      cwd: window.work,
      env: { PATH: `${PROGRAMS}:${process.env.PATH}`, HOME: window.home, TERM: "dumb", ...env },
    });
    output += ended.output;
    if (ended.status !== 0) return { output, problem: `exit ${ended.status}` };
  }
  return { output };
}

/** What the backend saw of the runs with tools; clients ask for titles and the like without any. */
function runsWithTools({ frames, verdicts }, works) {
  const runs = new Map();
  for (const { run, json } of frames) {
    const request = json?.runRequest;
    if (request?.mcpTools?.mcpTools?.length) {
      runs.set(run, { conversation: request.conversationId, results: [], windows: new Set() });
    }
  }
  for (const { run, json } of frames) {
    const reply = json?.execClientMessage;
    if (!reply || !runs.has(run)) continue;
    const text = JSON.stringify(reply);
    for (const work of works) if (text.includes(work)) runs.get(run).windows.add(work);
    if (reply.mcpResult?.success) runs.get(run).results.push(reply.mcpResult);
  }
  for (const { run, outcome, failures } of verdicts) {
    if (runs.has(run)) Object.assign(runs.get(run), { outcome, failures });
  }
  return [...runs.values()];
}

/** Returns what is wrong with the conversations of an agent. */
function problemsOf(runs, windows, tools, prompts) {
  const problems = [];
  const add = (problem, isSo) => isSo && problems.push(problem);
  add(`${runs.length} runs`, runs.length !== windows.length * prompts);
  add("another conversation", new Set(runs.map(({ conversation }) => conversation)).size !== windows.length);
  add("another folder", runs.some((run) => run.windows.size === 0));
  add("cross-talk", runs.some((run) => run.windows.size > 1));
  for (const { outcome, failures } of runs) add(`${outcome}: ${failures?.join("; ")}`, outcome !== "completed");
  const results = runs.reduce((sum, run) => sum + run.results.length, 0);
  add(`${results} results`, results !== windows.length * tools);
  for (const window of windows) {
    add("no command", !window.hasCounted());
    add("no edit", window.text() !== `alpha\nDELTA\n${window.work}\n`);
  }
  return problems;
}

async function run(name, client, names) {
  const row = { name, windows: names.length };
  if (!existsSync(client.command) || client.isReady?.() === false) return { ...row, result: "not installed" };
  const place = mkdtempSync(join(tmpdir(), "clients-"));
  const windows = names.map((window) => new Window(place, window));
  const state = join(place, "state");
  const count = names.length > 1 ? COUNT_TOGETHER : COUNT;
  const calls = client.calls?.({ file: "$WS/a.txt", count });
  const second = nativeRequests(client.native);
  const prompts = client.hasOnePrompt ? [[...(calls ?? []), ...second]] : [calls, second];
  const runs = calls ? prompts.map((steps) => [...steps, { text: "Done." }]) : [client.steps()];
  const file = join(place, "scenario.toml");
  writeFileSync(file, scenario(runs));
  const sim = await start(sidecar, ["sim", "--exit-with-stdin", "--http2", "force", "--scenario", file], {}, place);
  const settings = { PI_CURSOR_STATE_DIR: state, CURSOR_BACKEND_URL: sim.ready.url, CURSOR_API_KEY: "crsr_test" };
  const gateway = await start(sidecar, ["gateway"], { HOME: place, ...settings }, place);
  const stop = meet(windows);
  try {
    const token = readFileSync(gateway.ready.tokenFile, "utf8").trim();
    const url = gateway.ready.url;
    const root = url.replace(/\/v1$/, "");
    const started = Date.now();
    const ended = await Promise.all(windows.map((window) => {
      const { home } = window;
      const { args, next, env } = client.prepare({ home, state, backend: sim.ready.url, url, token, root });
      return converse(client.command, calls && next ? [args, next] : [args], window, env);
    }));
    const seconds = ((Date.now() - started) / 1000).toFixed(1);
    const recording = await (await fetch(`${sim.ready.url}/__sim/recording`)).json();
    const problems = ended.flatMap(({ problem }) => problem ?? []);
    let found = runsWithTools(recording, windows.map(({ work }) => work));
    if (calls) {
      problems.push(...problemsOf(found, windows, calls.length, prompts.length));
    } else {
      const all = recording.frames.filter(({ json }) => json?.runRequest);
      if (!found.length) found = all;
      if (client.runs && found.length !== client.runs) problems.push(`${found.length} runs`);
      const models = all.map(({ json }) => json.runRequest.requestedModel?.modelId);
      if (client.model && models.some((model) => model !== client.model)) problems.push(`models ${models}`);
      if (!client.isTextOnly && !windows[0].text().includes("delta")) problems.push("no edit");
    }
    if (problems.length) {
      const texts = ended.map(({ output }) => output.slice(-3000)).join("\n");
      console.error(`--- ${name}: ${problems.join(", ")}\n${texts}`);
      if (process.env.KEEP) console.error(place, JSON.stringify(recording));
    }
    const native = calls ? second.length : 0;
    return { ...row, tools: calls?.length ?? 0, native, runs: found.length, seconds, result: problems.join(", ").slice(0, 80) || "ok" };
  } finally {
    stop();
    gateway.child.kill();
    sim.child.kill();
    endLeftovers(place);
    if (!process.env.KEEP) rmSync(place, { recursive: true, force: true });
  }
}

const only = process.argv.slice(2);
const rows = [];
for (const [name, client] of Object.entries({ ...agents, ...libraries })) {
  if (only.length && !only.includes(name)) continue;
  rows.push(await run(name, client, ["a"]));
  if (client.hasWindows) rows.push(await run(name, client, ["a", "b"]));
}
console.table(rows);
process.exit(rows.some(({ result }) => !["ok", "not installed"].includes(result)) ? 1 : 0);
