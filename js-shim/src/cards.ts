/** Cards: what Cursor's own tools did, as pi shows its own. Results are recorded, nothing runs. */
import { readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Sidecar } from "./sidecar.ts";

type Tool = Parameters<ExtensionAPI["registerTool"]>[0];
type Row = Parameters<NonNullable<Tool["renderResult"]>>[3];

/** Ids of calls that Cursor made and pi only shows. */
const RECORDED = "cursor-replay-";
const NEUTRAL = "cursor";
/** Those pi does not turn on by itself. */
const EXTRA = ["grep", "find", "ls", NEUTRAL];

/** Gives the names of the tools there are cards for at the moment. */
export function registerCards(pi: ExtensionAPI, sidecar: Sidecar): () => string[] {
  const failed = new Set<string>();
  const wrapped: string[] = [];
  let wrapping: Promise<void> | undefined;
  let added: string[] | undefined;

  const recorded = async (callId: string, ctx: ExtensionContext) => {
    const sessionId = ctx.sessionManager.getSessionId();
    const result = await sidecar.call("replay/result", { sessionId, callId });
    if (result.isError) failed.add(callId);
    return result as unknown as ReturnType<Tool["execute"]>;
  };
  const wrap = async (ctx: ExtensionContext) => {
    if (!sidecar.about?.cards) return;
    const owners = new Map(pi.getAllTools().map((tool) => [tool.name, tool.sourceInfo.source]));
    for (const own of [...(await piTools(ctx)), await neutral()]) {
      // Another extension's tool is not ours to wrap.
      if (owners.get(own.name) !== (own.name === NEUTRAL ? undefined : "builtin")) continue;
      pi.registerTool({
        ...own,
        execute: (id, ...call) =>
          id.startsWith(RECORDED) ? recorded(id, call[3]) : own.execute(id, ...call),
        renderCall: (args, theme, row) => own.renderCall?.(args, theme, still(row)) as never,
        renderResult: (result, options, theme, row) =>
          own.renderResult?.(result, options, theme, still(row, result.details)) as never,
      });
      wrapped.push(own.name);
    }
  };
  const sync = async (ctx: ExtensionContext, cursor: boolean) => {
    const active = pi.getActiveTools();
    if (cursor) wrapping ??= wrap(ctx);
    await wrapping?.catch(() => {});
    // Where pi has no tools at all, none is wanted.
    if (active.length === 0 || cursor === (added !== undefined)) return;
    const ours = added ?? EXTRA.filter((name) => wrapped.includes(name) && !active.includes(name));
    const others = active.filter((name) => !ours.includes(name));
    pi.setActiveTools(cursor ? [...others, ...ours] : others);
    added = cursor ? ours : undefined;
  };
  // Throwing would lose what the card has besides its text.
  pi.on("tool_result", ({ toolCallId }) => (failed.delete(toolCallId) ? { isError: true } : {}));
  pi.on("session_start", async (_, ctx) => {
    const cursor = ctx.model?.provider === "cursor";
    const seen = (entry: object) => JSON.stringify(entry).includes(RECORDED);
    // Cards of old are drawn whoever answers now.
    if (cursor || ctx.sessionManager.getBranch().some(seen)) await sync(ctx, true);
    await sync(ctx, cursor);
  });
  pi.on("model_select", ({ model }, ctx) => sync(ctx, model.provider === "cursor"));
  return () => pi.getActiveTools().filter((name) => wrapped.includes(name));
}

/** pi would look at files to foresee what is done already, and time what it does not execute. */
function still(row: Row, details?: unknown): Row {
  if (!row.toolCallId.startsWith(RECORDED)) return row;
  const { executionTime: endedAt } = Object(details);
  const timed = endedAt >= 0 && (row.executionStarted || "durationMs" in row);
  if (timed) Object.assign(Object(row.state), { startedAt: 0, endedAt });
  const no = { value: false };
  return Object.create(row, { argsComplete: no, executionStarted: no, durationMs: {} });
}

/** pi's own tools, made as it makes them itself. */
async function piTools(ctx: ExtensionContext): Promise<Tool[]> {
  const own = await import("@earendil-works/pi-coding-agent");
  const make = own as unknown as Record<string, (cwd: string, options: object) => Tool>;
  const projectTrusted = ctx.isProjectTrusted?.() ?? true;
  const settings = own.SettingsManager.create(ctx.cwd, undefined, { projectTrusted });
  const [commandPrefix, shellPath] = [settings.getShellCommandPrefix(), settings.getShellPath()];
  const options = { autoResizeImages: settings.getImageAutoResize(), commandPrefix, shellPath };
  const kinds = ["Read", "Bash", "Edit", "Write", "Grep", "Find", "Ls"];
  return kinds.flatMap((kind) => make[`create${kind}ToolDefinition`]?.(ctx.cwd, options) ?? []);
}

/** Activity no tool of pi stands for. */
async function neutral(): Promise<Tool> {
  const { keyHint, renderDiff } = await import("@earendil-works/pi-coding-agent");
  const { Container, Image, Text } = await import("@earendil-works/pi-tui");
  return {
    name: NEUTRAL,
    label: "Cursor activity",
    description: "Shows what Cursor's own tools did. It does nothing when called.",
    parameters: { type: "object", properties: {} } as Tool["parameters"],
    execute: () => Promise.reject(new Error("There is no recorded Cursor result to show.")),
    renderCall(args, theme) {
      const { activityTitle = "Cursor activity", activitySummary = "" } = Object(args);
      const title = theme.fg("toolTitle", theme.bold(activityTitle));
      return new Text(`${title} ${theme.fg("accent", activitySummary)}`, 0, 0);
    },
    renderResult({ content: [block], details }, { expanded }, theme, row) {
      const { diff, glance, glanceMore, imagePath, imageMimeType } = Object(details);
      const told = block?.type === "text" ? block.text.replace(/^.*\n\n/, "") : "";
      const lines: string[] = (expanded ? undefined : glance) ?? (diff ?? told).split("\n");
      const plain = (text: string) => theme.fg("toolOutput", text);
      const body = diff ? renderDiff(lines.join("\n")) : lines.map(plain).join("\n");
      const [more, end] = [`... (${glanceMore} more lines,`, ")"].map((s) => theme.fg("muted", s));
      const hint = `${more} ${keyHint("app.tools.expand", "to expand")}${end}`;
      const shown = [body, glanceMore && !expanded && hint].filter(Boolean).join("\n");
      const card = new Container();
      if (shown) card.addChild(new Text(`\n${shown}`, 0, 0));
      if (!imagePath || !imageMimeType || !row.showImages) return card;
      try {
        const path = resolve(row.cwd, imagePath);
        const file = statSync(path);
        if (!file.isFile() || file.size > 25 << 20) return card;
        const data = readFileSync(path, "base64");
        const size = { maxWidthCells: 40, maxHeightCells: 16 };
        card.addChild(new Image(data, imageMimeType, { fallbackColor: plain }, size));
      } catch {
        // The picture is gone, or not ours to read.
      }
      return card;
    },
  };
}
