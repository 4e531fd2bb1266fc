/** `/cursor-refresh-models` and `/cursor-doctor`. */
import type { ExtensionAPI, ExtensionCommandContext } from "@earendil-works/pi-coding-agent";
import type { ModelsListResult, Report } from "./protocol.ts";
import type { Sidecar } from "./sidecar.ts";

type Level = "info" | "warning" | "error";

export function registerCommands(
  pi: ExtensionAPI,
  sidecar: Sidecar,
  refresh: (apiKey: string | undefined) => Promise<ModelsListResult>,
): void {
  pi.registerCommand("cursor-refresh-models", {
    description: "Ask Cursor which models there are now",
    handler: (_, ctx) =>
      telling(ctx, async () => {
        const apiKey = await ctx.modelRegistry.getApiKeyForProvider("cursor");
        const { models, source, reason, warnings } = await refresh(apiKey);
        const count = `${models.length} Cursor model${models.length === 1 ? "" : "s"}`;
        const lines = [`${count} (${source}${reason ? `: ${reason}` : ""})`, ...warnings];
        return [lines.join("\n"), source === "live" ? "info" : "warning"];
      }),
  });
  pi.registerCommand("cursor-doctor", {
    description: "Show how the Cursor sidecar is set up and what it met",
    handler: (_, ctx) =>
      telling(ctx, async () => [describe(await sidecar.call("diagnostics/report", {})), "info"]),
  });
}

/** Shows what the work says, or why it failed. */
async function telling(ctx: ExtensionCommandContext, work: () => Promise<[string, Level]>) {
  const failed = ({ message }: Error): [string, Level] => [message, "error"];
  const [text, level] = await work().catch(failed);
  if (ctx.hasUI) ctx.ui.notify(text, level);
  else console.error(text);
}

function describe(report: Report): string {
  const set = report.settings.filter(({ source }) => source !== "default");
  const drift = Object.entries(report.wireDrift);
  return [
    `cursor-sidecar ${report.version}`,
    `endpoint: ${report.endpoint}`,
    ...set.map(({ name, value, source }) => `${name} = ${value} (${source})`),
    ...report.warnings.map((warning) => `warning: ${warning}`),
    ...drift.map(([what, count]) => `unknown to us: ${what} (${count} times)`),
  ].join("\n");
}
