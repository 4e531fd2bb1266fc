// MCP over stdio without a library: a server that can die in the middle of a call and get a
// new tool while it runs. It counts its lives in the file it is given.

import { appendFileSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const file = process.argv[2];
appendFileSync(file, "life\n");
const lives = readFileSync(file, "utf8").split("\n").length - 1;

const tools = ["lives", "die", "grow"];
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
let grown;

function call({ name }, id) {
  const answer = (text) => say({ id, result: { content: [{ type: "text", text }] } });
  if (name === "die") process.exit(1);
  if (name !== "grow") return answer(name === "lives" ? `life ${lives}` : name);
  tools.push("grown");
  say({ method: "notifications/tools/list_changed" });
  // The caller gets its answer after the new list.
  grown = () => answer("grown");
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    const capabilities = { tools: { listChanged: true } };
    say({ id, result: { protocolVersion: params.protocolVersion, capabilities, serverInfo: { name: "mortal", version: "1" } } });
  } else if (method === "tools/list") {
    say({ id, result: { tools: tools.map((name) => ({ name, inputSchema: { type: "object" } })) } });
    grown?.();
    grown = undefined;
  } else if (method === "tools/call") {
    call(params, id);
  }
});
