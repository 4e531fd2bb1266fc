// Measures one long answer: {"text", "warmText", "model", "cwd", "useHttp1", "deadlineMs"} on stdin.

import { SpecError, atMost, describeError, finish, megabytes, readSpec, round } from "./spec.mjs";

const DEFAULT_DEADLINE_MS = 120_000;

try {
  await main(await readSpec(["text", "warmText", "model", "cwd", "useHttp1", "deadlineMs"]));
} catch (error) {
  if (error instanceof SpecError) finish({ specError: error.message }, 2);
  else finish({ error: describeError(error) }, 1);
}

async function main(spec) {
  if (typeof spec.text !== "string") throw new SpecError("text must be a string");
  const deadline = setTimeout(() => finish({ timedOut: true }, 1), spec.deadlineMs ?? DEFAULT_DEADLINE_MS);

  const { Agent, Cursor } = await import("@cursor/sdk");
  // performance.now() counts from the start of the process.
  const spawnToImportMs = round(performance.now());
  if (spec.useHttp1) Cursor.configure({ local: { useHttp1ForAgent: true } });
  const agent = await Agent.create({
    model: spec.model ?? { id: "composer-2" },
    local: { cwd: spec.cwd ?? process.cwd() },
  });

  // The first send of a process does one-time work (token, server config, workspace scan).
  if (spec.warmText !== undefined) await measure(agent, spec.warmText);
  const measured = await measure(agent, spec.text);
  const report = { ...measured, rssMb: megabytes(process.memoryUsage().rss), spawnToImportMs };

  await atMost(3_000, agent[Symbol.asyncDispose]());
  clearTimeout(deadline);
  finish(report);
}

async function measure(agent, text) {
  let deltas = 0;
  let first;
  let last;
  let cpuAtFirst;
  const sent = performance.now();
  const run = await agent.send(text, {
    onDelta({ update }) {
      if (update.type !== "text-delta") return;
      deltas += 1;
      last = performance.now();
      if (first === undefined) {
        first = last;
        cpuAtFirst = process.cpuUsage();
      }
    },
  });
  const outcome = await run.wait();
  const totalMs = round(performance.now() - sent);
  if (outcome.status !== "finished") throw new Error(`run ended as ${outcome.status}: ${outcome.error?.message}`);
  if (deltas === 0) throw new Error("no text delta arrived");
  // CPU is read only now: asking at every delta would cost as much as some of the deltas.
  const { user, system } = process.cpuUsage(cpuAtFirst);
  return {
    deltas,
    wallMs: round(last - first),
    cpuMs: round((user + system) / 1000),
    sendToFirstDeltaMs: round(first - sent),
    totalMs,
  };
}
