/** Commands, flags, questions and the status line: the sidecar names them and decides what they do. */
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { ModelRow, SavedChoices, SessionCommandResult } from "./protocol.ts";
import type { Sidecar } from "./sidecar.ts";

const SESSION_ENTRY = "cursor-sidecar";
/** Entries of an older extension with the speed of a session. */
const OLDER_ENTRY = "cursor-fast-state";
type Use = (rows: ModelRow[]) => void;

/** Returns what pi stores for the sidecar: its flags, and our latest entry in this branch. */
export function saved(pi: ExtensionAPI, sidecar: Sidecar, ctx: ExtensionContext): SavedChoices {
  const flags = sidecar.about?.flags.map(({ name }) => [name, pi.getFlag(name)]) ?? [];
  const latest = (type: string) => {
    const entries = ctx.sessionManager.getBranch();
    const found = entries.filter((it) => it.type === "custom" && it.customType === type).at(-1);
    return (found as { data?: unknown })?.data;
  };
  const older = latest(OLDER_ENTRY);
  const entry = latest(SESSION_ENTRY) ?? (older === undefined ? undefined : { older });
  return { flags: Object.fromEntries(flags), entry };
}

/** Registers the commands and flags of the sidecar, and updates the status line. */
export function registerControls(pi: ExtensionAPI, sidecar: Sidecar, useModels: Use): void {
  const run = async (ctx: ExtensionContext, command?: string, args?: string) => {
    const chosen = () => (ctx.model?.provider === "cursor" ? ctx.model.id : undefined);
    const model = chosen();
    let result: SessionCommandResult = {};
    if (command || model) {
      const apiKey = await ctx.modelRegistry.getApiKeyForProvider("cursor");
      const tools = pi.getActiveTools();
      const session = { sessionId: ctx.sessionManager.getSessionId(), workspace: ctx.cwd };
      const state = { model, apiKey, tools, ...session, kept: saved(pi, sidecar, ctx) };
      result = await sidecar
        .call("session/command", { command, arguments: args, ...state })
        .catch(({ message }: Error) => ({ message, level: "error" as const }));
    }
    if (result.models) useModels(result.models);
    if (result.entry) pi.appendEntry(SESSION_ENTRY, result.entry);
    // If another model was selected meanwhile, its own request updates the status.
    if (chosen() === model) ctx.ui.setStatus("cursor", result.status);
    if (result.message && ctx.hasUI) ctx.ui.notify(result.message, result.level);
    else if (result.message && command) console.error(result.message);
  };
  for (const { name, ...flag } of sidecar.about?.flags ?? []) pi.registerFlag(name, flag);
  for (const { name, description, arguments: words } of sidecar.about?.commands ?? []) {
    pi.registerCommand(name, {
      description,
      getArgumentCompletions: (prefix) =>
        words.filter(({ value }) => value.startsWith(prefix) && value !== prefix),
      handler: (args, ctx) => run(ctx, name, args),
    });
  }
  const show = (_: unknown, ctx: ExtensionContext) => {
    // The session may end before the answer arrives.
    if (ctx.hasUI && sidecar.ready) void run(ctx).catch(() => {});
  };
  for (const event of ["session_start", "model_select", "session_tree", "agent_end"] as const)
    pi.on(event as "agent_end", show);
}

/** Lets Cursor's agent ask the user of this pi; the sidecar decides what to ask next. */
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
