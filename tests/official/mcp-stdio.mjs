// MCP over stdio.

import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";

import { exitWithStdin, oracleServer } from "./mcp-oracle.mjs";

await oracleServer().connect(new StdioServerTransport());
exitWithStdin();
