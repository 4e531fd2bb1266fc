// Runs one conversation, given as JSON on stdin, through the official SDK and reports its answer.
// The spec and the report are described in README.md.

import { SpecError, atMost, checkKeys, describeError, finish, megabytes, pick, readSpec, round } from "./spec.mjs";
import { customTools } from "./custom-tools.mjs";

const SPEC_KEYS = ["models", "useHttp1", "agent", "sends", "deadlineMs"];
const AGENT_KEYS = ["model", "mcpServers", "systemPrompt", "mode", "tools", "disallowedTools", "agents", "name"];
const LOCAL_KEYS = ["cwd", "dirs", "settingSources", "enableAgentRetries", "autoReview", "sandboxOptions"];
const SEND_KEYS = ["model", "mode", "mcpServers"];
const TRIGGER_KEYS = ["text", "delta", "afterMs"];
const DEFAULT_DEADLINE_MS = 120_000;
// After the run is over its message stream and the agent's own clean-up get this long.
const GRACE_MS = 3_000;

const report = {};

function finishReport(extra = {}, code = 0) {
  const rssMb = megabytes(process.memoryUsage().rss);
  finish({ ...report, ...extra, rssMb, scriptMs: round(performance.now()) }, code);
}

// The SDK works in the background too; a stray failure there is an observation, not a crash.
for (const event of ["uncaughtException", "unhandledRejection"]) {
  process.on(event, (error) => {
    console.error(event, error);
    (report.uncaught ??= []).push(describeError(error));
  });
}

function checkSpec(spec) {
  if (spec.agent) {
    checkKeys("agent", spec.agent, [...AGENT_KEYS, ...LOCAL_KEYS, "customTools", "resume"]);
    customTools(spec.agent.customTools ?? []);
  }
  if (spec.sends !== undefined && !Array.isArray(spec.sends)) throw new SpecError("sends must be an array");
  for (const send of spec.sends ?? []) {
    checkKeys("send", send, [...SEND_KEYS, "text", "images", "cancelOn", "steerOn", "force"]);
    if (typeof send.text !== "string") throw new SpecError("send.text must be a string");
    if (send.cancelOn) checkKeys("cancelOn", send.cancelOn, TRIGGER_KEYS);
    if (send.steerOn) {
      checkKeys("steerOn", send.steerOn, [...TRIGGER_KEYS, "message"]);
      if (typeof send.steerOn.message !== "string") throw new SpecError("steerOn.message must be a string");
    }
  }
  return spec;
}

async function main(spec) {
  const deadline = setTimeout(() => finishReport({ timedOut: true }), spec.deadlineMs ?? DEFAULT_DEADLINE_MS);

  // Imported here because the SDK reads its environment at import, and so that the deadline covers it.
  const { Agent, Cursor } = await import("@cursor/sdk");
  report.importMs = round(performance.now());
  if (spec.useHttp1) Cursor.configure({ local: { useHttp1ForAgent: true } });

  if (spec.models) {
    try {
      report.models = await Cursor.models.list();
    } catch (error) {
      report.modelsError = describeError(error);
    }
  }
  if (spec.agent || spec.sends) await converse(Agent, spec.agent ?? {}, spec.sends ?? []);

  clearTimeout(deadline);
  finishReport();
}

async function converse(Agent, wanted, sends) {
  const options = {
    model: { id: "composer-2" },
    ...pick(wanted, AGENT_KEYS),
    local: { cwd: process.cwd(), ...pick(wanted, LOCAL_KEYS), customTools: customTools(wanted.customTools ?? []) },
  };
  let agent;
  const started = performance.now();
  try {
    agent = await (wanted.resume ? Agent.resume(wanted.resume, options) : Agent.create(options));
  } catch (error) {
    report.createError = describeError(error);
    return;
  }
  report.agentId = agent.agentId;
  report.createMs = round(performance.now() - started);

  report.sends = [];
  for (const send of sends) {
    // Pushed before it runs: at the deadline the report shows how far it came.
    const entry = newEntry();
    report.sends.push(entry);
    await converseOnce(agent, send, entry);
  }
  // Lets the store and the analytics settle, so that a later process can resume this agent.
  await atMost(GRACE_MS, agent[Symbol.asyncDispose]()).catch((error) => {
    report.disposeError = describeError(error);
  });
}

function newEntry() {
  return {
    status: "running",
    result: null,
    text: "",
    thinking: "",
    error: null,
    usage: null,
    deltaTypes: {},
    messageTypes: {},
    toolCalls: [],
    firstDeltaMs: null,
    totalMs: null,
  };
}

async function converseOnce(agent, send, entry) {
  const started = performance.now();
  const elapsed = () => round(performance.now() - started);
  const triggers = [
    send.cancelOn && new Trigger(send.cancelOn, async (run) => {
      entry.cancelMs = elapsed();
      await run.cancel().catch((error) => (entry.cancelError = describeError(error)));
    }),
    send.steerOn && new Trigger(send.steerOn, async (run) => {
      entry.steerMs = elapsed();
      await run.steer(send.steerOn.message).then(
        (outcome) => (entry.steer = outcome),
        (error) => (entry.steerError = describeError(error)),
      );
    }),
  ].filter(Boolean);

  const onDelta = ({ update }) => {
    entry.firstDeltaMs ??= elapsed();
    count(entry.deltaTypes, update.type);
    if (update.type === "text-delta") entry.text += update.text;
    if (update.type === "thinking-delta") entry.thinking += update.text;
    if (update.toolCall) {
      noteToolCall(entry, update.callId, pick(update.toolCall, ["type", "args", "result"]));
    }
    for (const trigger of triggers) trigger.see(entry, update);
  };

  const message = { text: send.text };
  if (send.images) message.images = send.images.map((data) => ({ data, mimeType: "image/png" }));
  const options = { ...pick(send, SEND_KEYS), onDelta };
  if (send.force) options.local = { force: true };

  let run;
  try {
    run = await agent.send(message, options);
  } catch (error) {
    entry.status = "error";
    entry.error = { ...describeError(error), thrownBy: "send" };
    entry.totalMs = elapsed();
    return;
  }
  entry.runId = run.id;
  entry.requestId = run.requestId;
  // Deltas may come before send() has returned the run: only now can a trigger act.
  for (const trigger of triggers) trigger.arm(run);
  const stream = readMessages(run, entry);

  try {
    const outcome = await run.wait();
    entry.status = outcome.status;
    entry.result = outcome.result ?? null;
    entry.error = outcome.error ?? null;
    entry.usage = outcome.usage ?? null;
    entry.model = outcome.model;
  } catch (error) {
    entry.status = "error";
    entry.error = { ...describeError(error), thrownBy: "wait" };
  }
  entry.totalMs = elapsed();
  await atMost(GRACE_MS, Promise.all([stream, ...triggers.map((trigger) => trigger.done())]));
}

/** The run's second channel: coarser than the deltas, but it names tool calls and their outcome. */
async function readMessages(run, entry) {
  try {
    for await (const message of run.stream()) {
      count(entry.messageTypes, message.type);
      if (message.type === "tool_call") {
        noteToolCall(entry, message.call_id, pick(message, ["name", "status", "args", "result", "truncated"]));
      }
    }
  } catch (error) {
    entry.streamError = describeError(error);
  }
}

/** One record per call id, in order of appearance; later facts overwrite earlier ones. */
function noteToolCall(entry, callId, facts) {
  let call = entry.toolCalls.find((known) => known.callId === callId);
  if (!call) entry.toolCalls.push((call = { callId }));
  Object.assign(call, facts);
}

function count(counts, key) {
  counts[key] = (counts[key] ?? 0) + 1;
}

/** Acts once on the run when the streamed text, a type of delta or the clock says so. */
class Trigger {
  constructor({ text, delta, afterMs }, action) {
    Object.assign(this, { text, delta, afterMs, action });
  }

  see(entry, update) {
    if (this.fired) return;
    if ((this.text !== undefined && entry.text.includes(this.text)) || update.type === this.delta) this.fire();
  }

  arm(run) {
    this.run = run;
    if (this.fired) this.fire();
    if (this.afterMs !== undefined) this.timer = setTimeout(() => this.fire(), this.afterMs);
  }

  fire() {
    this.fired = true;
    if (this.run) this.outcome ??= this.action(this.run);
  }

  done() {
    clearTimeout(this.timer);
    return this.outcome;
  }
}

// Last, because the class above is not defined before this point.
try {
  await main(checkSpec(await readSpec(SPEC_KEYS)));
} catch (error) {
  if (error instanceof SpecError) {
    finish({ specError: error.message }, 2);
  } else {
    console.error(error);
    finishReport({ driverError: describeError(error) }, 1);
  }
}
