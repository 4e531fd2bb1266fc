/** Cards: what Cursor's own tools did, drawn as pi draws its own. Results are recorded; nothing runs. */
import { readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Sidecar } from "./sidecar.ts";

type Tool = Parameters<ExtensionAPI["registerTool"]>[0];
type Row = Parameters<NonNullable<Tool["renderResult"]>>[3];
type Call = { name: string; arguments: Record<string, unknown> };
/** `names` returns the tools that have cards now; `display` returns the call to show for a card. */
export type Cards = { names(): string[]; display(id: string, call: Call): Call };

/** Ids of calls that Cursor made and pi only displays. */
const RECORDED = "cursor-replay-";
const NEUTRAL = "cursor";
/** Names of cards in sessions of an older extension. They are drawn and never executed. */
const LEGACY = /"name":"(cursor_\w+)"/g;
/** pi leaves these off by default; Cursor's agent searches with their counterparts. */
const SEARCH = ["grep", "find", "ls"];
/** What changes something has neutral cards only: a permission gate would take the name for a call. */
const WRAPPED = ["read", ...SEARCH];

export function registerCards(pi: ExtensionAPI, sidecar: Sidecar): Cards {
  const failed = new Set<string>();
  /** Our wrappers by name, with the object that identifies them in pi's registry. */
  const wrappers = new Map<string, Tool["parameters"]>();
  let wrapping: Promise<void> | undefined;
  /** Tools that are active only with a Cursor model; what the user switches off stays off. */
  const shown = new Set([sidecar.about?.question?.name ?? ""]);
  const hidden = new Set([...SEARCH, NEUTRAL]);
  const recorded = async (callId: string, ctx: ExtensionContext) => {
    const sessionId = ctx.sessionManager.getSessionId();
    const result = await sidecar.call("replay/result", { sessionId, callId });
    if (result.isError) failed.add(callId);
    return result as unknown as ReturnType<Tool["execute"]>;
  };
  /** Returns the older names that a branch contains, and whether it has cards of ours. */
  const cardsIn = (ctx: ExtensionContext) => {
    const legacy = new Set<string>();
    let recorded = false;
    for (const entry of ctx.sessionManager.getBranch()) {
      const text = JSON.stringify(entry);
      recorded ||= text.includes(RECORDED);
      for (const [, name] of text.matchAll(LEGACY)) if (name) legacy.add(name);
    }
    legacy.delete(sidecar.about?.question?.name ?? "");
    return { legacy, recorded };
  };
  const drawLegacy = async (ctx: ExtensionContext, names: Set<string>) => {
    for (const { name } of pi.getAllTools()) names.delete(name);
    if (!names.size) return;
    const active = pi.getActiveTools();
    const drawn = await neutral(await piTools(ctx));
    for (const name of names) pi.registerTool({ ...drawn, name });
    pi.setActiveTools(active);
  };
  const wrap = async (ctx: ExtensionContext) => {
    if (!sidecar.about?.cards) return;
    const owners = new Map(pi.getAllTools().map((tool) => [tool.name, tool.sourceInfo.source]));
    const own = await piTools(ctx);
    for (const tool of [...own.filter(({ name }) => WRAPPED.includes(name)), await neutral(own)]) {
      // Another extension's tool is not ours to wrap.
      if (owners.get(tool.name) !== (tool.name === NEUTRAL ? undefined : "builtin")) continue;
      const parameters = { ...tool.parameters };
      const execute: Tool["execute"] = (id, ...call) =>
        id.startsWith(RECORDED) ? recorded(id, call[3]) : tool.execute(id, ...call);
      pi.registerTool({ ...tool, parameters, execute });
      wrappers.set(tool.name, parameters);
    }
  };
  const sync = async (ctx: ExtensionContext, cursor: boolean) => {
    const active = new Set(pi.getActiveTools());
    if (cursor) wrapping ??= wrap(ctx);
    await wrapping?.catch(() => {});
    const [from, to] = cursor ? [hidden, shown] : [shown, hidden];
    for (const name of from) {
      // A user who switched `read` off wants no searches either.
      const unwanted = cursor && SEARCH.includes(name) && !active.has("read");
      if (unwanted || active.has(name) === cursor) continue;
      active[cursor ? "add" : "delete"](name);
      from.delete(name);
      to.add(name);
    }
    pi.setActiveTools([...active]);
  };
  // Throwing would lose what the card has besides its text.
  pi.on("tool_result", ({ toolCallId }) => (failed.delete(toolCallId) ? { isError: true } : {}));
  pi.on("session_start", async (_, ctx) => {
    const cursor = ctx.model?.provider === "cursor";
    const { legacy, recorded } = cardsIn(ctx);
    await drawLegacy(ctx, legacy).catch(() => {});
    // Old cards are drawn whichever model answers now.
    if (cursor || recorded) await sync(ctx, true);
    await sync(ctx, cursor);
  });
  pi.on("model_select", ({ model }, ctx) => sync(ctx, model.provider === "cursor"));
  /** Another extension may have registered the name since; its tool would execute the card. */
  const isOurs = (wanted: string) =>
    pi.getAllTools().some(({ name, parameters: p }) => name === wanted && p === wrappers.get(name));
  return {
    names: () => pi.getActiveTools().filter(isOurs),
    display(id, call) {
      if (!id.startsWith(RECORDED) || isOurs(call.name)) return call;
      const [hostTool, activityTitle] = [call.name, `Cursor ${call.name}`];
      // A name that no tool has is an error in pi; nothing is executed.
      const name = isOurs(NEUTRAL) ? NEUTRAL : "cursor_card_without_tool";
      return { name, arguments: { activityTitle, hostTool, hostArguments: call.arguments } };
    },
  };
}

/** A row of pi's own tool that neither previews an edit nor measures time: the call is over. */
function frozen(row: Row, details?: unknown): Row {
  const { hostArguments: value } = Object(row.args);
  const { executionTime: endedAt } = Object(details);
  const timed = endedAt >= 0 && (row.executionStarted || "durationMs" in row);
  if (timed) Object.assign(Object(row.state), { startedAt: 0, endedAt });
  const no = { value: false };
  const over = { args: { value }, argsComplete: no, executionStarted: no, durationMs: {} };
  return Object.create(row, over);
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

/** Activity no tool of pi stands for, and changes that Cursor made, drawn as by pi's own tools. */
async function neutral(own: Tool[]): Promise<Tool> {
  const drawer = (args: unknown) => own.find(({ name }) => name === Object(args).hostTool);
  const { keyHint, renderDiff } = await import("@earendil-works/pi-coding-agent");
  const { Container, Image, Text } = await import("@earendil-works/pi-tui");
  return {
    name: NEUTRAL,
    label: "Cursor activity",
    description: "Shows what Cursor's own tools did. It does nothing when called.",
    parameters: { type: "object", properties: {} } as Tool["parameters"],
    execute: () => Promise.reject(new Error("There is no recorded Cursor result to show.")),
    renderCall(args, theme, row) {
      const tool = drawer(args);
      if (tool?.renderCall) return tool.renderCall(Object(args).hostArguments, theme, frozen(row));
      const { activityTitle = "Cursor activity", path = "", activitySummary = path } = Object(args);
      const title = theme.fg("toolTitle", theme.bold(activityTitle));
      return new Text(`${title} ${theme.fg("accent", activitySummary)}`, 0, 0);
    },
    renderResult(result, options, theme, row) {
      const tool = drawer(row.args);
      if (tool?.renderResult)
        return tool.renderResult(result, options, theme, frozen(row, result.details));
      const { diff, glance, glanceMore, imagePath, imageMimeType } = Object(result.details);
      const [block] = result.content;
      const text = block?.type === "text" ? block.text.replace(/^.*\n\n/, "") : "";
      const lines: string[] = (options.expanded ? undefined : glance) ?? (diff ?? text).split("\n");
      const plain = (text: string) => theme.fg("toolOutput", text);
      const body = diff ? renderDiff(lines.join("\n")) : lines.map(plain).join("\n");
      const [more, end] = [`... (${glanceMore} more lines,`, ")"].map((s) => theme.fg("muted", s));
      const hint = `${more} ${keyHint("app.tools.expand", "to expand")}${end}`;
      const shown = [body, glanceMore && !options.expanded && hint].filter(Boolean).join("\n");
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
