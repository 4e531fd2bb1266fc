// The MCP server of mcp-stdio.mjs and mcp-http.mjs. The low-level API is used so that
// the advertised schemas are exactly those below.

import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import {
  CallToolRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  ReadResourceRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { PIXEL_PNG } from "./custom-tools.mjs";

const text = (value) => ({ type: "text", text: value });
const NO_INPUT = { type: "object", properties: {} };

const TOOLS = {
  echo: {
    description: "Echo text",
    inputSchema: {
      type: "object",
      properties: { text: { type: "string" }, n: { type: "number" } },
      required: ["text"],
    },
    call: (args) => ({ content: [text(`echo:${JSON.stringify(args)}`)] }),
  },
  fail: {
    description: "Always fails",
    inputSchema: NO_INPUT,
    call: () => ({ content: [text("deliberate failure")], isError: true }),
  },
  image: {
    description: "Returns an image",
    inputSchema: NO_INPUT,
    call: () => ({ content: [text("an image"), { type: "image", data: PIXEL_PNG, mimeType: "image/png" }] }),
  },
};

const RESOURCE = { uri: "oracle://one", name: "one", mimeType: "text/plain" };

export function oracleServer() {
  const server = new Server(
    { name: "oracle", version: "1.0.0" },
    { capabilities: { tools: {}, resources: {} }, instructions: "oracle mcp instructions" },
  );
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: Object.entries(TOOLS).map(([name, { description, inputSchema }]) => ({ name, description, inputSchema })),
  }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
    const tool = TOOLS[params.name];
    return tool ? tool.call(params.arguments ?? {}) : { content: [text(`no tool ${params.name}`)], isError: true };
  });
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [RESOURCE] }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => {
    if (params.uri !== RESOURCE.uri) throw new Error(`no resource ${params.uri}`);
    return { contents: [{ uri: RESOURCE.uri, mimeType: RESOURCE.mimeType, text: "resource one" }] };
  });
  return server;
}

/** Both servers exit when their stdin is closed. */
export function exitWithStdin() {
  process.stdin.on("end", () => process.exit(0)).on("close", () => process.exit(0));
  process.stdin.resume();
}
