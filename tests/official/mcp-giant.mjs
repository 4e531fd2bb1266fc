// MCP over stdio without a library: a server whose answers can be too long to be read, and that
// reports very often that its tools changed.

import { createInterface } from "node:readline";

const write = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
let listings = 0;

function call({ name }, id) {
  const answer = (text) => write({ id, result: { content: [{ type: "text", text }] } });
  if (name === "giant") return answer("x".repeat(20 * 1024 * 1024));
  if (name === "few") return answer(listings < 1000 ? "few" : `${listings} listings`);
  const change = `${JSON.stringify({ jsonrpc: "2.0", method: "notifications/tools/list_changed" })}\n`;
  process.stdout.write(change.repeat(50_000), () => answer("flooded"));
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    const capabilities = { tools: { listChanged: true } };
    write({ id, result: { protocolVersion: params.protocolVersion, capabilities, serverInfo: { name: "giant", version: "1" } } });
  } else if (method === "tools/list") {
    listings += 1;
    const tools = ["giant", "flood", "few"].map((name) => ({ name, inputSchema: { type: "object" } }));
    write({ id, result: { tools } });
  } else if (method === "tools/call") {
    call(params, id);
  }
});
