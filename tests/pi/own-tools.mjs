// A model that calls pi's own tools, for cards to be compared with. It lists those it was given.
import { readFileSync, writeFileSync } from "node:fs";

const usage = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };

const asked = ({ content }) => (typeof content === "string" ? content : content[0].text);

function answer(model, { messages }) {
  const last = messages.at(-1);
  const given = new Set();
  for (const { toolsAdded = [], toolsRemoved = [] } of messages) {
    for (const { name } of toolsRemoved) given.delete(name);
    for (const { name } of toolsAdded) given.add(name);
  }
  writeFileSync(`${process.env.HOME}/tools.json`, JSON.stringify([...given]));
  const done = !JSON.stringify(last.content).includes("Show me.");
  const calls = JSON.parse(readFileSync(`${process.env.HOME}/calls.json`, "utf8"));
  const content = done
    ? [{ type: "text", text: last.role === "user" ? `Heard: ${asked(last)}` : "Done." }]
    : calls.map(([name, args, id], at) => ({ type: "toolCall", id: id ?? `call-${at}`, name, arguments: args }));
  const message = { role: "assistant", content, api: model.api, provider: model.provider, model: model.id, usage, stopReason: done ? "stop" : "toolUse", timestamp: Date.now() };
  async function* events() {
    yield { type: "start", partial: message };
    for (const [at, block] of content.entries()) {
      const place = { contentIndex: at, partial: message };
      const kind = block.type === "text" ? "text" : "toolcall";
      yield { type: `${kind}_start`, ...place };
      yield { type: `${kind}_end`, ...place, content: block.text, toolCall: block };
    }
    yield { type: "done", reason: message.stopReason, message };
  }
  return { [Symbol.asyncIterator]: events, result: async () => message };
}

export default (pi) => {
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const model = { id: "own", name: "Own", reasoning: false, input: ["text"], cost, contextWindow: 100000, maxTokens: 1000 };
  pi.registerProvider("own", { name: "Own", baseUrl: "stdio:own", api: "own", apiKey: "none", models: [model], streamSimple: answer });
};
