/** Lets Cursor's agent ask the person at this pi; the sidecar says what to ask. */
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import type { Sidecar } from "./sidecar.ts";

export function registerQuestion(pi: ExtensionAPI, sidecar: Sidecar): void {
  const tool = sidecar.about?.question;
  if (!tool) return;
  pi.registerTool({
    ...tool,
    async execute(_, params, signal, __, { hasUI, ui }) {
      const answers: (string | null)[] = [];
      for (;;) {
        const asked = { arguments: params, answers, hasUi: hasUI };
        const { put, text, details } = await sidecar.call("question/next", asked);
        if (!put) return { content: [{ type: "text", text }], details };
        const answer = put.options
          ? await ui.select(put.title, put.options, { signal })
          : await ui.input(put.title, undefined, { signal });
        answers.push(answer ?? null);
      }
    },
  });
}
