// The official Anthropic library: messages.
import Anthropic from "@anthropic-ai/sdk";
import { definitions, execute, local } from "./tools.mjs";

local(process.env.ANTHROPIC_BASE_URL);
const client = new Anthropic({ maxRetries: 0 });
const tools = definitions.map(({ name, description, schema }) => ({ name, description, input_schema: schema }));
const messages = [{ role: "user", content: "go" }];
const report = { text: "", thinking: "", calls: [], finish: [] };
const request = { model: "composer-2", system: "Be brief.", messages, tools };
report.counted = (await client.messages.countTokens(request)).input_tokens;
for (;;) {
  const stream = client.messages.stream({
    ...request, max_tokens: 20000, thinking: { type: "enabled", budget_tokens: 2000 },
  });
  const message = await stream.finalMessage();
  report.finish.push(message.stop_reason);
  report.output = message.usage.output_tokens;
  messages.push({ role: "assistant", content: message.content });
  const results = [];
  for (const block of message.content) {
    if (block.type === "text") report.text += block.text;
    if (block.type === "thinking") report.thinking += block.thinking;
    if (block.type !== "tool_use") continue;
    report.calls.push(block.name);
    results.push({ type: "tool_result", tool_use_id: block.id, content: execute(block.name, block.input) });
  }
  if (message.stop_reason !== "tool_use") break;
  messages.push({ role: "user", content: results });
}
try {
  await client.messages.create({ model: "composer-3", max_tokens: 9, messages });
} catch (error) {
  report.unknown = { status: error.status, type: error.error?.error?.type };
}
console.log(JSON.stringify(report));
