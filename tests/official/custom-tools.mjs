// In-process tools that a spec can ask for by name.

import { SpecError } from "./spec.mjs";

export const PIXEL_PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const TOOLS = {
  add: {
    description: "Add two numbers",
    inputSchema: {
      type: "object",
      properties: { a: { type: "number" }, b: { type: "number" } },
      required: ["a", "b"],
    },
    execute: ({ a, b }) => `sum=${a + b}`,
  },
  fail: {
    description: "Always fails",
    execute: () => {
      throw new Error("deliberate failure");
    },
  },
  image: {
    description: "Returns an image",
    execute: () => ({
      content: [
        { type: "text", text: "an image" },
        { type: "image", data: PIXEL_PNG, mimeType: "image/png" },
      ],
    }),
  },
};

/** The SDK's option for these names; `undefined` for none, so that the option stays unset. */
export function customTools(names) {
  if (!Array.isArray(names)) throw new SpecError("customTools must be an array of names");
  const unknown = names.filter((name) => !Object.hasOwn(TOOLS, name));
  if (unknown.length > 0) throw new SpecError(`unknown custom tool ${unknown.join(", ")}`);
  if (names.length === 0) return undefined;
  return Object.fromEntries(names.map((name) => [name, TOOLS[name]]));
}
