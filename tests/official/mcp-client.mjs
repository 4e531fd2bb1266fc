// The official MCP client against a Streamable HTTP server, as the JSON on stdin says:
// {url, token, calls: [{name, arguments}]}. Calls go out together; one JSON line comes back.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { finish, readSpec } from "./spec.mjs";

async function connected({ url, token }) {
  const client = new Client({ name: "test", version: "1" });
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}

try {
  const spec = await readSpec(["url", "token", "calls"]);
  // The first goes without a word: the second must get a session of its own.
  await connected(spec);
  const client = await connected(spec);
  const { tools } = await client.listTools();
  const results = await Promise.all(
    spec.calls.map((call) => client.callTool(call).catch((error) => ({ code: error.code, message: error.message }))),
  );
  await client.close();
  finish({ server: client.getServerVersion(), tools, results });
} catch (error) {
  finish({ error: String(error) }, 1);
}
