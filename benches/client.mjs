// The extension's own client on one long answer. Prints one JSON line.
import { Sidecar } from "../js-shim/src/sidecar.ts";

const sidecar = new Sidecar({ name: "bench", mode: "print", thinkingLevels: [], processId: process.pid });
const messages = [];

async function turn(turnId, text) {
  messages.push({ role: "user", content: text, timestamp: messages.length });
  let deltas = 0;
  let first;
  let last;
  const sent = performance.now();
  const model = { id: "composer-2", parameters: {} };
  const params = { turnId, sessionId: "bench", kind: "main", messages, model };
  const { stopReason, errorMessage } = await sidecar.turn(params, (events) => {
    last = performance.now();
    first ??= last;
    deltas += events.filter(({ type }) => type === "text").length;
  });
  if (stopReason !== "stop") throw new Error(errorMessage);
  messages.push({ role: "assistant", content: [{ type: "text", text: "…" }], timestamp: messages.length });
  return { deltas, wallMs: last - first, sendToFirstDeltaMs: first - sent };
}

await turn("warm", "go");
const measured = await turn("measured", "go on");
console.log(JSON.stringify(measured));
sidecar.stop();
