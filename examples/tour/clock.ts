/** An extension of pi with one tool, which the tour of `make demo` calls. */
// biome-ignore lint/suspicious/noExplicitAny: pi passes its API; its types are not installed here.
export default function clock(pi: any): void {
  pi.registerTool({
    name: "tour_clock",
    label: "Clock",
    description: "Returns the time of this computer.",
    parameters: { type: "object", properties: {} },
    async execute() {
      const time = new Date().toLocaleTimeString();
      return { content: [{ type: "text", text: `It is ${time}.` }], details: {} };
    },
  });
}
