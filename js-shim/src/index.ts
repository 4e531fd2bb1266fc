/** Registers Cursor as a provider of pi. Everything else is done by the sidecar. */
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { registerCards } from "./cards.ts";
import { registerCommands } from "./commands.ts";
import { describeHost } from "./host.ts";
import { fallback, KEYLESS, realKey, toRows } from "./models.ts";
import type { LogMessageParams, ModelsListResult } from "./protocol.ts";
import { registerQuestion } from "./question.ts";
import { Sidecar } from "./sidecar.ts";
import { type Sessions, streamTurn } from "./stream.ts";

/** Changes with the shape of `Handle`, so that `/reload` after an update starts afresh. */
const HANDLE_VERSION = "1";
const HANDLE = Symbol.for("cursor-sidecar");

/** Outlives `/reload`, which evaluates this module anew. */
type Handle = { version: string; sidecar: Sidecar; sessions: Sessions };

function attach(): Handle {
  const world = globalThis as { [HANDLE]?: Handle };
  const known = world[HANDLE];
  if (known?.version === HANDLE_VERSION) return known;
  known?.sidecar.stop();
  const sidecar = new Sidecar(describeHost());
  world[HANDLE] = { version: HANDLE_VERSION, sidecar, sessions: new Map() };
  return world[HANDLE];
}

export default async function cursor(pi: ExtensionAPI): Promise<void> {
  const { sidecar, sessions } = attach();
  let catalogue: ModelsListResult;
  let piRefreshes = false;

  const register = () =>
    pi.registerProvider("cursor", {
      name: "Cursor",
      baseUrl: "stdio:cursor-sidecar",
      api: "cursor-sidecar",
      apiKey: KEYLESS,
      models: toRows(catalogue),
      streamSimple: (model, context, options) =>
        streamTurn(sidecar, sessions, cards, model, context, options),
      async refreshModels({ allowNetwork, credential }) {
        piRefreshes = true;
        const apiKey = credential?.type === "api_key" ? credential.key : undefined;
        // A failure leaves the rows there are.
        if (allowNetwork) await fetchModels(apiKey).catch(() => {});
        return toRows(catalogue);
      },
    });
  const fetchModels = async (apiKey: string | undefined) => {
    catalogue = await sidecar.call("models/list", { refresh: true, apiKey: realKey(apiKey) });
    return catalogue;
  };
  const refresh = async (apiKey: string | undefined) => {
    const rows = await fetchModels(apiKey);
    register();
    return rows;
  };

  const listed = sidecar.call("models/list", { refresh: false });
  catalogue = await listed.catch((error: Error) => fallback(error.message));
  register();
  registerCommands(pi, sidecar, refresh);
  const bridge = process.env.PI_CURSOR_PI_TOOL_BRIDGE?.trim() ?? "";
  if (!/^(0|false|off|no|none|disabled)$/i.test(bridge)) registerQuestion(pi);

  const invalidate = async (_: unknown, ctx: ExtensionContext) => {
    const sessionId = ctx.sessionManager.getSessionId();
    await sidecar.call("session/invalidate", { sessionId }).catch(() => {});
  };
  pi.on("session_tree", invalidate);
  pi.on("session_compact", invalidate);

  pi.on("session_start", (_, ctx) => {
    const id = ctx.sessionManager.getSessionId();
    // pi may say twice that a session starts.
    if (sessions.get(id)?.cwd !== ctx.cwd) sessions.set(id, { id, cwd: ctx.cwd });
    sidecar.introduce(describeHost(ctx.mode));
    const { ui } = ctx;
    // The session may be gone, and its screen with it.
    const notify = async (line: LogMessageParams) => ui.notify(line.message, line.level);
    sidecar.onLog = (line) => void notify(line).catch(() => {});
    // pi before 0.80.8 never asks for news of the models.
    if (piRefreshes || !ctx.hasUI || process.env.PI_OFFLINE || catalogue.source === "live") return;
    const key = ctx.modelRegistry.getApiKeyForProvider("cursor");
    void key.then(refresh).catch(() => {});
  });
  const cards = registerCards(pi, sidecar);
  pi.on("agent_end", (_, ctx) => sessions.get(ctx.sessionManager.getSessionId())?.release?.());
  pi.on("session_shutdown", async ({ reason }, ctx) => {
    const sessionId = ctx.sessionManager.getSessionId();
    // A sidecar that lives goes on; one that was given up gets another chance.
    if (reason === "reload") return sidecar.running ? undefined : sidecar.stop();
    sessions.delete(sessionId);
    if (reason === "quit") sidecar.stop();
    else if (sidecar.running) await sidecar.call("session/close", { sessionId }).catch(() => {});
  });
}
