// The official OpenAI library: chat completions.
import OpenAI from "openai";
import { definitions, execute, local } from "./tools.mjs";

local(process.env.OPENAI_BASE_URL);
const client = new OpenAI({ maxRetries: 0 });
const tools = definitions.map(({ name, description, schema }) => ({
  type: "function", function: { name, description, parameters: schema },
}));
const messages = [{ role: "developer", content: "Be brief." }, { role: "user", content: "go" }];
const report = { text: "", thinking: "", calls: [], finish: [] };
for (;;) {
  const stream = client.chat.completions.stream({
    model: "composer-2", messages, tools, stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    report.thinking += chunk.choices[0]?.delta.reasoning_content ?? "";
  }
  const answer = await stream.finalChatCompletion();
  const { message, finish_reason } = answer.choices[0];
  report.text += message.content ?? "";
  report.finish.push(finish_reason);
  report.output = answer.usage.completion_tokens;
  messages.push(message);
  if (finish_reason !== "tool_calls") break;
  for (const call of message.tool_calls) {
    report.calls.push(call.function.name);
    const content = execute(call.function.name, JSON.parse(call.function.arguments));
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
report.model = (await client.models.retrieve("composer-2")).id;
console.log(JSON.stringify(report));
