/** Commands, flags and the status line: the sidecar names them and does what they ask for. */
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Kept, ModelRow, SessionCommandResult } from "./protocol.ts";
import type { Sidecar } from "./sidecar.ts";

/** The name of our entries in pi's sessions. */
const ENTRY = "cursor-sidecar";
type Use = (rows: ModelRow[]) => void;

/** What pi keeps for the sidecar: flags for the run, an entry for the branch of the session. */
export function kept(pi: ExtensionAPI, sidecar: Sidecar, ctx: ExtensionContext): Kept {
  const flags = sidecar.about?.flags.map(({ name }) => [name, pi.getFlag(name)]) ?? [];
  const ours = ctx.sessionManager
    .getBranch()
    .filter((entry) => entry.type === "custom" && entry.customType === ENTRY);
  return { flags: Object.fromEntries(flags), entry: (ours.at(-1) as { data?: unknown })?.data };
}

/** Registers what the sidecar offers, and shows how things are whenever that may change. */
export function registerControls(pi: ExtensionAPI, sidecar: Sidecar, useModels: Use): void {
  const run = async (ctx: ExtensionContext, command?: string, args?: string) => {
    const chosen = () => (ctx.model?.provider === "cursor" ? ctx.model.id : undefined);
    const model = chosen();
    let told: SessionCommandResult = {};
    if (command || model) {
      const apiKey = await ctx.modelRegistry.getApiKeyForProvider("cursor");
      const tools = pi.getActiveTools();
      const seat = { model, apiKey, tools, workspace: ctx.cwd, kept: kept(pi, sidecar, ctx) };
      told = await sidecar
        .call("session/command", { command, arguments: args, ...seat })
        .catch(({ message }: Error) => ({ message, level: "error" as const }));
    }
    if (told.models) useModels(told.models);
    if (told.entry) pi.appendEntry(ENTRY, told.entry);
    // Another model may have been chosen meanwhile; what is asked for that one shows it.
    if (chosen() === model) ctx.ui.setStatus("cursor", told.status);
    if (told.message && ctx.hasUI) ctx.ui.notify(told.message, told.level);
    else if (told.message && command) console.error(told.message);
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
    // The session may be gone before the answer is there, and its screen with it.
    if (ctx.hasUI && sidecar.ready) void run(ctx).catch(() => {});
  };
  pi.on("session_start", show);
  pi.on("model_select", show);
  pi.on("session_tree", show);
  pi.on("agent_end", show);
}
