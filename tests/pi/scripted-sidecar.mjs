#!/usr/bin/env node
// Stands in for the sidecar where a test is about the extension alone. Does what the last
// user message names, and writes down every request.
import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";

const VERSION = createRequire(import.meta.url)("../../js-shim/package.json").version;

const send = (message) => {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  process.stdout.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
};
const emit = (turnId, ...events) => send({ method: "turn/event", params: { turnId, events } });
const cost = { input: 0.002, output: 0, cacheRead: 0, cacheWrite: 0, total: 0.002 };
const usage = { input: 1000, output: 10, cacheRead: 5, cacheWrite: 0, totalTokens: 1015, estimated: false, cost };
const row = (id, reasoning) => ({
  id,
  name: id,
  reasoning,
  ...(reasoning ? { thinkingLevelMap: { off: "none", minimal: null, high: "high", xhigh: "max" } } : {}),
  input: ["text", "image"],
  cost: { input: 2, output: 0, cacheRead: 0, cacheWrite: 0 },
  contextWindow: 200000,
  maxTokens: 64000,
  base: id,
  supportsFast: false,
});

function words(message) {
  return typeof message.content === "string"
    ? message.content
    : message.content.map((part) => part.text ?? `[${part.type}]`).join("");
}

const turns = {
  tool({ turnId }) {
    emit(turnId, { type: "text", text: "Looking. " });
    emit(
      turnId,
      { type: "toolCall", id: "call-1", name: "bash", arguments: { command: "echo first" } },
      { type: "toolCall", id: "call-2", name: "bash", arguments: { command: "echo second" } },
    );
    return "toolUse";
  },
  slow({ turnId }) {
    const args = { command: "sleep 600" };
    emit(turnId, { type: "toolCall", id: "call-1", name: "bash", arguments: args });
    return "toolUse";
  },
  large({ turnId }) {
    const text = "ü".repeat(1 << 20);
    for (let part = 0; part < 4; part += 1) emit(turnId, { type: "text", text });
    return "stop";
  },
  garble() {
    send({ id: null, error: { code: -32700, message: "not JSON" } });
    return undefined; // and nothing else
  },
  warn({ turnId }) {
    send({ method: "log/message", params: { level: "warning", message: "the moon is full" } });
    emit(turnId, { type: "text", text: "Said so." });
    return "stop";
  },
};

const methods = {
  initialize: () => ({
    ...{ name: "scripted", version: VERSION, protocolVersion: 1, methods: [] },
    commands: [{ name: "cursor-nod", description: "Nods", arguments: [] }],
    flags: [{ name: "cursor-size", description: "How large", type: "string" }],
  }),
  "session/command": ({ command, arguments: words }) =>
    command ? { message: `nods ${words}`, level: "info", entry: { nodded: words } } : {},
  "models/list": () => ({ source: "cache", warnings: [], models: [row("plain", false), row("thinker", true)] }),
  "turn/start"(params) {
    const last = params.messages.at(-1);
    let stopReason = "stop";
    if (last.role === "user") stopReason = turns[words(last).split(" ")[0]](params);
    else {
      const results = params.messages.filter((message) => message.role === "toolResult");
      const text = `Got ${results.map((result) => words(result).trim()).join(" and ")}.`;
      emit(params.turnId, { type: "text", text });
    }
    return stopReason && { stopReason, usage };
  },
  "turn/cancel": () => ({ found: true }),
};

let input = Buffer.alloc(0);
process.stdin.on("data", (piece) => {
  input = Buffer.concat([input, piece]);
  for (;;) {
    const head = input.indexOf("\r\n\r\n");
    if (head < 0) return;
    const length = Number(/(\d+)/.exec(input.toString("latin1", 0, head))[1]);
    if (input.length < head + 4 + length) return;
    const { id, method, params } = JSON.parse(input.toString("utf8", head + 4, head + 4 + length));
    input = input.subarray(head + 4 + length);
    appendFileSync(`${process.env.HOME}/requests.jsonl`, `${JSON.stringify({ method, params })}\n`);
    const result = (methods[method] ?? (() => null))(params);
    if (result !== undefined) send({ id, result });
  }
});
process.stdin.on("end", () => process.exit(0));
