// The official OpenAI library: responses. CONTINUE says how: by the whole "history", or by "id".
import OpenAI from "openai";
import { definitions, execute, local } from "./tools.mjs";

local(process.env.OPENAI_BASE_URL);
const client = new OpenAI({ maxRetries: 0 });
const tools = definitions.map(({ name, description, schema }) => ({
  type: "function", name, description, parameters: schema, strict: false,
}));
const byId = process.env.CONTINUE === "id";
let input = [{ role: "user", content: "go" }];
const report = { text: "", thinking: "", calls: [], finish: [] };
for (let previous = null; ; ) {
  const stream = client.responses.stream({
    model: "composer-2", instructions: "Be brief.", input, tools, store: byId,
    ...(byId && previous ? { previous_response_id: previous } : {}),
  });
  let last = -1;
  for await (const event of stream) {
    if (event.sequence_number !== last + 1) throw new Error(`event ${event.sequence_number} after ${last}`);
    last = event.sequence_number;
    if (event.type === "response.reasoning_summary_text.delta") report.thinking += event.delta;
  }
  const response = await stream.finalResponse();
  previous = response.id;
  report.text += response.output_text;
  report.output = response.usage.output_tokens;
  const calls = response.output.filter((item) => item.type === "function_call");
  report.finish.push(calls.length ? "tool_calls" : response.status);
  if (!calls.length) break;
  const results = calls.map((call) => {
    report.calls.push(call.name);
    const output = execute(call.name, JSON.parse(call.arguments));
    return { type: "function_call_output", call_id: call.call_id, output };
  });
  input = byId ? results : [...input, ...response.output, ...results];
}
console.log(JSON.stringify(report));
