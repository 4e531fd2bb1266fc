/** Converts a turn of the sidecar into the event stream that pi reads. */
import { randomUUID } from "node:crypto";
import * as ai from "@earendil-works/pi-ai";
import type { Cards } from "./cards.ts";
import type { HostEvent, SavedChoices, TurnStartParams, TurnStartResult } from "./protocol.ts";
import type { Sidecar } from "./sidecar.ts";

/** Since pi 0.86 the prompt and the tools are messages; before, they were separate fields. */
type Context = Pick<TurnStartParams, "messages" | "tools"> & { systemPrompt?: string };
/** An open session of pi. `release` stops listening for an abort while pi executes tools; `failure`
 * is the error of the last turn. */
export type Session = { params: SessionParams; kept: () => SavedChoices } & Effects;
type Effects = { showWait: (text?: string) => void; release?: () => void; failure?: string };
type SessionParams = Pick<TurnStartParams, "sessionId" | "workspace" | "keep" | "projectTrusted">;
export type Sessions = Map<string, Session>;
export const ZERO = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
type Ending = Pick<TurnStartResult, "stopReason" | "errorMessage"> & Partial<TurnStartResult>;
const ABORTED: Ending = { stopReason: "aborted", errorMessage: "Request was aborted" };
type Block = { type: "text" | "thinking"; text: string; thinking: string };

/** Writes an answer into pi's stream of events. The last event is `done` or `error`. */
class Answer {
  readonly stream = ai.createAssistantMessageEventStream();
  private readonly message: ai.AssistantMessage;
  private open: Block | undefined;
  private ended = false;
  constructor({ api, provider, id }: ai.Model<ai.Api>) {
    const usage = { ...ZERO, totalTokens: 0, cost: { ...ZERO, total: 0 } };
    const from = { role: "assistant" as const, api, provider, model: id };
    this.message = { ...from, content: [], usage, stopReason: "pending", timestamp: Date.now() };
    this.push({ type: "start" });
  }
  take(event: HostEvent, cards: Cards): void {
    if (event.type === "text" || event.type === "thinking") this.write(event.type, event.text);
    else if (event.type === "thinkingDone" && this.open?.type === "thinking") this.close();
    else if (event.type === "toolCall") this.call(event.id, cards.display(event.id, event));
  }
  end({ stopReason, errorMessage, usage }: Ending): void {
    if (this.ended) return;
    this.close();
    const why = errorMessage && { errorMessage };
    Object.assign(this.message, { stopReason }, usage && { usage }, why);
    const failed = stopReason === "error" || stopReason === "aborted";
    const whole = failed ? { error: this.message } : { message: this.message };
    this.push({ type: failed ? "error" : "done", reason: stopReason, ...whole });
    this.ended = true;
  }
  private write(type: Block["type"], delta: string): void {
    if (this.open?.type !== type) {
      this.close();
      this.open = { type, [type]: "" } as Block;
      this.message.content.push(this.open as ai.TextContent | ai.ThinkingContent);
      this.push({ type: `${type}_start` });
    }
    this.open[type] += delta;
    this.push({ type: `${type}_delta`, delta });
  }
  private close(): void {
    const { open } = this;
    this.open = undefined;
    if (open) this.push({ type: `${open.type}_end`, content: open[open.type] });
  }

  private call(id: string, { name, arguments: args }: ReturnType<Cards["display"]>): void {
    this.close();
    const toolCall = { type: "toolCall", id, name, arguments: args } as ai.ToolCall;
    this.message.content.push(toolCall);
    this.push({ type: "toolcall_start" });
    this.push({ type: "toolcall_delta", delta: JSON.stringify(args) });
    this.push({ type: "toolcall_end", toolCall });
  }

  private push(event: { type: ai.AssistantMessageEvent["type"]; [field: string]: unknown }): void {
    if (this.ended) return;
    const place = { contentIndex: this.message.content.length - 1, partial: this.message };
    this.stream.push({ ...place, ...event } as ai.AssistantMessageEvent);
  }
}

/** Implements `streamSimple` of a pi provider. */
export function streamTurn(
  sidecar: Sidecar,
  sessions: Sessions,
  cards: Cards,
  model: ai.Model<ai.Api>,
  context: Context,
  options: ai.SimpleStreamOptions = {},
): ai.AssistantMessageEventStream {
  const answer = new Answer(model);
  let { signal, apiKey, onResponse } = options;
  const [turnId, session] = [randomUUID(), sessions.get(options.sessionId ?? "")];
  session?.release?.();
  // The stream ends at once, because pi waits for it; the sidecar is notified meanwhile.
  const abort = () => {
    answer.end(ABORTED);
    void sidecar.call("turn/cancel", { turnId }).catch(() => {});
  };
  const release = () => signal?.removeEventListener("abort", abort);
  const { id, contextWindow, maxTokens, cost } = model;
  const run = async () => {
    const payload: TurnStartParams = {
      turnId,
      surface: "cards",
      cardTools: session ? cards.names() : [],
      ...(session?.params ?? { sessionId: randomUUID() }),
      kind: session ? "main" : "side",
      systemPrompt: context.systemPrompt,
      messages: context.messages,
      tools: context.tools,
      model: { id, thinking: options.reasoning, parameters: {}, contextWindow, maxTokens, cost },
      // A request outside the session still has the flags of this pi.
      kept: (session ?? [...sessions.values()].at(-1))?.kept(),
    };
    const replaced = (await options.onPayload?.(payload, model)) as TurnStartParams | undefined;
    if (signal?.aborted) return answer.end(ABORTED);
    signal?.addEventListener("abort", abort, { once: true });
    sidecar.turns.set(turnId, (events) => {
      if (events[0]?.type === "waiting") return session?.showWait(events[0].text || undefined);
      // Other extensions only observe this, so their errors must not fail the turn.
      void (async () => onResponse?.({ status: 200, headers: {} }, model))().catch(() => {});
      onResponse = undefined;
      for (const event of events) answer.take(event, cards);
    });
    const result = await sidecar.call("turn/start", { ...(replaced ?? payload), turnId, apiKey });
    answer.end(result);
    if (session) session.failure = result.errorMessage ?? undefined;
    // pi executes the tools now; only this signal reports that the user aborts them.
    if (result.stopReason === "toolUse" && session) session.release = release;
    else release();
  };
  void run()
    .catch(({ message }: Error) => answer.end({ stopReason: "error", errorMessage: message }))
    .finally(() => sidecar.turns.delete(turnId));
  return answer.stream;
}
