// The official OpenAI client against a gateway: OPENAI_BASE_URL and OPENAI_API_KEY say where.
import OpenAI from "openai";

const { hostname } = new URL(process.env.OPENAI_BASE_URL);
if (hostname !== "127.0.0.1") throw new Error(`not on this machine: ${hostname}`);
const client = new OpenAI({ maxRetries: 0 });
const models = [];
for await (const model of client.models.list()) models.push(model.id);

const tools = [{
  type: "function",
  function: {
    name: "look",
    description: "Looks.",
    parameters: { type: "object", properties: { q: { type: "string" } } },
  },
}];
const messages = [{ role: "developer", content: "Be brief." }, { role: "user", content: "go" }];
const chat = { text: "", thinking: "", calls: [], finish: [], completion_tokens: 0 };
for (;;) {
  const stream = client.chat.completions.stream({
    model: "composer-2", messages, tools, stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    chat.thinking += chunk.choices[0]?.delta.reasoning_content ?? "";
  }
  const answer = await stream.finalChatCompletion();
  const { message, finish_reason } = answer.choices[0];
  chat.text += message.content ?? "";
  chat.finish.push(finish_reason);
  chat.completion_tokens = answer.usage.completion_tokens;
  messages.push(message);
  if (finish_reason !== "tool_calls") break;
  for (const call of message.tool_calls) {
    chat.calls.push({ name: call.function.name, arguments: JSON.parse(call.function.arguments) });
    messages.push({ role: "tool", tool_call_id: call.id, content: "42" });
  }
}

let unknown = null;
try {
  await client.chat.completions.create({ model: "composer-3", messages });
} catch (error) {
  unknown = { status: error.status, code: error.code };
}
console.log(JSON.stringify({ models, chat, unknown }));
