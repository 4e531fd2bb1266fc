// MCP over streamable HTTP on a loopback port, a free one unless it is named; prints {"url": ...} once it listens.

import http from "node:http";

import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

import { exitWithStdin, oracleServer } from "./mcp-oracle.mjs";

const listener = http.createServer(async (request, response) => {
  if (request.method !== "POST") return void response.writeHead(405, { allow: "POST" }).end();
  // Without sessions every request gets its own server: nothing to keep, nothing to leak.
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  const server = oracleServer();
  response.on("close", () => server.close());
  try {
    await server.connect(transport);
    await transport.handleRequest(request, response);
  } catch (error) {
    console.error(error);
    if (!response.headersSent) response.writeHead(500).end();
  }
});

listener.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${listener.address().port}/mcp` }));
});
exitWithStdin();
