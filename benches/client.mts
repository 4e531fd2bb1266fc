// Runs the extension's own client on one long answer. Prints one JSON line.
import type { HostEvent, TurnStartParams, TurnStartResult } from "../js-shim/src/protocol.ts";
import { Sidecar } from "../js-shim/src/sidecar.ts";

const sidecar = new Sidecar();
const messages: TurnStartParams["messages"] = [];

async function turn(turnId: string, text: string) {
  messages.push({ role: "user", content: text, timestamp: messages.length });
  const came: number[] = [];
  let deltas = 0;
  sidecar.turns.set(turnId, (events: HostEvent[]) => {
    came.push(performance.now());
    deltas += events.filter(({ type }) => type === "text").length;
  });
  const model = { id: "composer-2", parameters: {} };
  const params: TurnStartParams = { turnId, sessionId: "bench", kind: "main", messages, model };
  const sent = performance.now();
  const { stopReason, errorMessage }: TurnStartResult = await sidecar.call("turn/start", params);
  const [first, last] = [came.at(0), came.at(-1)];
  if (stopReason !== "stop" || first === undefined || last === undefined) {
    throw new Error(errorMessage ?? "the answer is empty");
  }
  messages.push({ role: "assistant", content: [{ type: "text", text: "…" }], timestamp: messages.length });
  return { deltas, wallMs: last - first, sendToFirstDeltaMs: first - sent };
}

await turn("warm", "go");
console.log(JSON.stringify(await turn("measured", "go on")));
sidecar.stop();
