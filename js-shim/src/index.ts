/** Registers Cursor as a provider of pi. Everything else is done by the sidecar. */
import { existsSync } from "node:fs";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { registerCards } from "./cards.ts";
import { registerControls, registerQuestion, saved } from "./controls.ts";
import type { HostLogin, ModelRow } from "./protocol.ts";
import { Sidecar } from "./sidecar.ts";
import { type Sessions, streamTurn, ZERO } from "./stream.ts";

/** Named after the shape of `Handle`, so that `/reload` after an update starts afresh. */
const HANDLE = Symbol.for("cursor-sidecar/3");
/** A placeholder, because pi hides models and `/login` of a provider without a key. */
const KEYLESS = "cursor-key-not-given-to-pi";
const KEY_OR_BROWSER = "Cursor API key (leave it empty to sign in with a browser):";
/** The only model while the sidecar cannot be started: its first turn reports the reason. */
const FALLBACK: ModelRow = {
  ...{ id: "auto", base: "auto", name: "Cursor Auto", supportsFast: false, reasoning: false },
  ...{ input: ["text"], cost: ZERO, contextWindow: 200_000, maxTokens: 16_384 },
};

/** Outlives `/reload`, which evaluates this module again. */
type Handle = { sidecar: Sidecar; sessions: Sessions };

/** Returns where an older pi stores keys. A newer one has no `AuthStorage`: it passes the key to
 * `refreshModels`. */
async function keyStore() {
  type Storage = { getApiKey(id: string, options: object): Promise<string | undefined> };
  const pi: object = await import("@earendil-works/pi-coding-agent");
  return (pi as { AuthStorage?: { create(): Storage } }).AuthStorage?.create();
}

export default async function cursor(pi: ExtensionAPI): Promise<void> {
  const world = globalThis as { [HANDLE]?: Handle };
  world[HANDLE] ??= { sidecar: new Sidecar(), sessions: new Map() };
  const { sidecar, sessions } = world[HANDLE];
  let models = [FALLBACK];
  // A newer pi displays the variable that a key comes from; without a key, one that says so.
  let variable = "NO_CURSOR_KEY";
  const list = async (refresh: boolean, apiKey?: string) => {
    const { models, reason } = await sidecar.call("models/list", { refresh, apiKey });
    if (process.env.CURSOR_API_KEY) variable = "CURSOR_API_KEY";
    else if (reason !== "missing-api-key") variable = "CURSOR_SIDECAR_ACCOUNT";
    return models;
  };
  const older = await keyStore().catch(() => undefined);
  let stored: { apiKey?: string } | undefined; // as pi had it last; unknown before pi 0.80.8
  const verify = async (apiKey?: string) => {
    const { problem } = await sidecar.call("account/status", { apiKey });
    if (problem) throw new Error(problem);
  };
  const register = (rows: ModelRow[]) => {
    models = rows;
    if (variable !== "CURSOR_API_KEY") process.env[variable] = KEYLESS;
    pi.registerProvider("cursor", {
      name: "Cursor",
      baseUrl: "stdio:cursor-sidecar",
      api: "cursor-sidecar",
      apiKey: older ? KEYLESS : `$${variable}`,
      oauth: {
        name: "Cursor",
        isSubscription: true,
        async login({ onAuth, onPrompt, signal }) {
          // An older pi asks for no key of a provider with accounts.
          const key = stored ? "" : (await onPrompt({ message: KEY_OR_BROWSER })).trim();
          if (key) await verify(key);
          if (key) return { access: key, refresh: "", expires: Number.MAX_SAFE_INTEGER };
          const { loginId, ...page } = await sidecar.call("login/start", {});
          const cancel = () => void sidecar.call("login/cancel", { loginId }).catch(() => {});
          signal?.addEventListener("abort", cancel, { once: true });
          onAuth(page);
          const done = await sidecar.call("login/wait", { loginId, returnTokens: true });
          return done.tokens as HostLogin;
        },
        refreshToken: ({ access, refresh }) => sidecar.call("login/refresh", { access, refresh }),
        getApiKey: ({ access }) => access,
      },
      models,
      streamSimple: (model, context, options) =>
        streamTurn(sidecar, sessions, cards, model, context, options),
      async refreshModels({ allowNetwork, force, credential }) {
        const apiKey = credential?.type === "oauth" ? credential.access : credential?.key;
        if (stored && credential?.type === "api_key" && apiKey !== stored.apiKey)
          // pi has stored it unseen.
          verify(apiKey).catch(({ message }) => sidecar.onLog({ message, level: "error" }));
        stored = { apiKey };
        // A failure leaves the rows there are.
        models = await list(allowNetwork && force === true, apiKey).catch(() => models);
        return models;
      },
    });
  };
  const given = process.argv[process.argv.indexOf("--api-key") + 1 || -1]; // undefined at -1
  const key = older?.getApiKey("cursor", { includeFallback: false });
  const apiKey = given ?? (await key?.catch(() => undefined));
  register(await list(false, apiKey).catch(() => models));
  registerControls(pi, sidecar, register);
  registerQuestion(pi, sidecar);
  const idOf = (ctx: ExtensionContext) => ctx.sessionManager.getSessionId();
  const invalidate = async (_: unknown, ctx: ExtensionContext) =>
    void (await sidecar.call("session/invalidate", { sessionId: idOf(ctx) }).catch(() => {}));
  pi.on("session_tree", invalidate);
  pi.on("session_compact", invalidate);
  pi.on("session_start", (_, ctx) => {
    const sessionId = idOf(ctx);
    const keep = ctx.sessionManager.getSessionFile() ? "disk" : "memory";
    // pi trusts folders without resources of its own; only where it has some was its user asked.
    const asked = ["settings.json", "extensions"].some((it) => existsSync(`${ctx.cwd}/.pi/${it}`));
    const projectTrusted = asked && ctx.isProjectTrusted?.(); // since pi 0.79
    const params = { sessionId, workspace: ctx.cwd, keep, projectTrusted } as const;
    const showWait = (text?: string) => ctx.hasUI && ctx.ui.setWorkingMessage(text);
    const session = { params, showWait, kept: () => saved(pi, sidecar, ctx) };
    sessions.set(sessionId, { ...sessions.get(sessionId), ...session }); // pi may start one twice
    sidecar.onLog = ({ message, level }) => {
      if (ctx.hasUI) ctx.ui.notify(message, level);
      else if (level !== "info") console.error(message);
    };
    // Without a screen, the error of the turn says it.
    if (!sidecar.ready && ctx.hasUI) sidecar.onLog({ message: sidecar.lastEnd, level: "error" });
  });
  const cards = registerCards(pi, sidecar);
  pi.on("agent_end", (_, ctx) => sessions.get(idOf(ctx))?.release?.());
  pi.on("session_shutdown", async ({ reason }, ctx) => {
    const sessionId = idOf(ctx);
    const failure = sessions.get(sessionId)?.failure;
    // pi drops an overflow in order to compact, and `pi -p` prints nothing if it could not.
    if (!ctx.hasUI && failure?.startsWith("context_length_exceeded")) {
      console.error(failure);
      process.exitCode = 1;
    }
    sidecar.onLog = () => {}; // the screen goes with the session
    // A running sidecar is kept; one that failed too often may be started again.
    if (reason === "reload") return sidecar.ready ? undefined : sidecar.stop();
    sessions.delete(sessionId);
    if (reason === "quit") sidecar.stop();
    else if (sidecar.ready) await sidecar.call("session/close", { sessionId }).catch(() => {});
  });
}
