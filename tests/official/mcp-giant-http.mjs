// MCP over HTTP without a library: a server whose answers are too long, as a JSON body and as an
// event, announced and without end. Prints {"url": ...} once it listens.

import http from "node:http";

const PIECE = "x".repeat(1024 * 1024);
const TOOLS = ["body", "endless_body", "event", "endless_event", "error_body", "fine"];

/** Writes text until the reader goes away. */
function writeForever(response) {
  const more = () => {
    while (!response.destroyed && response.write(PIECE));
  };
  response.on("drain", more);
  more();
}

function call(name, id, response) {
  const json = { "content-type": "application/json" };
  const events = { "content-type": "text/event-stream" };
  const answer = (text) => JSON.stringify({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } });
  const long = () => answer(PIECE.repeat(20));
  const start = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[{"type":"text","text":"`;
  switch (name) {
    case "body": {
      const body = long();
      return response.writeHead(200, { ...json, "content-length": body.length }).end(body);
    }
    case "event":
      return response.writeHead(200, events).end(`event: message\ndata: ${long()}\n\n`);
    case "endless_body":
      response.writeHead(200, json).write(start);
      return writeForever(response);
    case "endless_event":
      response.writeHead(200, events).write(`: a comment\n\nevent: message\ndata: ${start}`);
      return writeForever(response);
    case "error_body":
      response.writeHead(500, json).write(start);
      return writeForever(response);
    default:
      return response.writeHead(200, json).end(answer("fine"));
  }
}

const listener = http.createServer(async (request, response) => {
  if (request.method !== "POST") return void response.writeHead(405, { allow: "POST" }).end();
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { id, method, params } = JSON.parse(Buffer.concat(chunks).toString());
  if (id === undefined) return void response.writeHead(202).end();
  if (method === "tools/call") return void call(params.name, id, response);
  const tools = TOOLS.map((name) => ({ name, inputSchema: { type: "object" } }));
  const serverInfo = { name: "giant", version: "1" };
  const initialized = { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo };
  const result = method === "initialize" ? initialized : { tools };
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", id, result }));
});

listener.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${listener.address().port}/mcp` }));
});
process.stdin.resume().on("end", () => process.exit());
