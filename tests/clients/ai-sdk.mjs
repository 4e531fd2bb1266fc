// Vercel's AI SDK with its OpenAI-compatible provider.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";
import { definitions, execute, local } from "./tools.mjs";

const provider = createOpenAICompatible({
  name: "cursor", baseURL: local(process.env.OPENAI_BASE_URL), apiKey: process.env.OPENAI_API_KEY, includeUsage: true,
});
const report = { text: "", thinking: "", calls: [], finish: [] };
const tools = Object.fromEntries(definitions.map(({ name, description, schema }) => [name, tool({
  description,
  inputSchema: jsonSchema(schema),
  execute: async (args) => {
    report.calls.push(name);
    return execute(name, args);
  },
})]));
const result = streamText({
  model: provider("composer-2"), tools, prompt: "go", stopWhen: stepCountIs(10), maxRetries: 0,
  onError: ({ error }) => { throw error; },
});
for (const step of await result.steps) {
  report.text += step.text;
  report.thinking += step.reasoningText ?? "";
  report.finish.push(step.finishReason);
  report.output = step.usage.outputTokens;
}
console.log(JSON.stringify(report));
