// Generated from src/doors/rpc/protocol by `make schema`. Do not edit.

export const PROTOCOL_VERSION = 1;

/** What a host may ask, and what it is answered. */
export interface Methods {
  "initialize": { params: InitializeParams; result: InitializeResult };
  "turn/start": { params: TurnStartParams; result: TurnStartResult };
  "turn/cancel": { params: TurnCancelParams; result: TurnCancelResult };
  "session/invalidate": { params: SessionParams; result: null };
  "session/close": { params: SessionParams; result: null };
  "diagnostics/report": { params: ReportParams; result: Report };
  "shutdown": { params: ShutdownParams; result: null };
}

/** What the sidecar tells without being asked. */
export interface Notifications {
  "turn/event": TurnEventParams;
  "log/message": LogMessageParams;
}

/**
 * One setting as it is in force.
 */
export type EffectiveSetting = { 
/**
 * Its name.
 */
name: string, 
/**
 * Its value.
 */
value: string, 
/**
 * Where the value comes from.
 */
source: SettingSource, };
/**
 * Facts about a host.
 */
export type Host = { 
/**
 * Its name, such as `pi`.
 */
name: string, 
/**
 * Its version.
 */
version?: string | null, 
/**
 * How it runs.
 */
mode: HostMode, 
/**
 * The thinking levels it knows, lowest first.
 */
thinkingLevels: Array<string>, 
/**
 * Its working directory; ours if absent.
 */
cwd?: string | null, 
/**
 * Its process: the sidecar ends when that does.
 */
processId?: number | null, };
/**
 * One thing that happened.
 */
export type HostEvent = { "type": "text", 
/**
 * The piece.
 */
text: string, } | { "type": "thinking", 
/**
 * The piece.
 */
text: string, } | { "type": "thinkingDone" } | { "type": "toolCall", 
/**
 * The call: its result carries this id.
 */
id: string, 
/**
 * The host's name of the tool.
 */
name: string, 
/**
 * Its arguments.
 */
arguments: Record<string, unknown>, } | { "type": "retrying", 
/**
 * Why.
 */
reason: string, };
/**
 * How a host runs.
 */
export type HostMode = "interactive" | "print" | "json" | "rpc";
/**
 * A tool of the host.
 */
export type HostTool = { 
/**
 * The host's name for it.
 */
name: string, 
/**
 * What it is for.
 */
description: string, 
/**
 * JSON Schema of its arguments.
 */
parameters: unknown, };
/**
 * `initialize`: required first, once.
 */
export type InitializeParams = { 
/**
 * The version the host speaks.
 */
protocolVersion: number, 
/**
 * Who the host is.
 */
host: Host, };
/**
 * The answer to `initialize`.
 */
export type InitializeResult = { 
/**
 * `cursor-sidecar`.
 */
name: string, 
/**
 * Our version.
 */
version: string, 
/**
 * The version we speak.
 */
protocolVersion: number, 
/**
 * The methods there are.
 */
methods: Array<string>, };
/**
 * How much a line matters.
 */
export type LogLevel = "info" | "warning" | "error";
/**
 * `log/message`, from us: a line for a person.
 */
export type LogMessageParams = { 
/**
 * How much it matters.
 */
level: LogLevel, 
/**
 * The line.
 */
message: string, };
/**
 * A model as the host chose it.
 */
export type ModelChoice = { 
/**
 * The id of a row of `models/list`, or of Cursor's catalogue.
 */
id: string, 
/**
 * The host's thinking level; absent is off.
 */
thinking?: string | null, 
/**
 * Fast or not; the saved or the model's default if absent.
 */
fast?: boolean | null, 
/**
 * Parameter values by parameter id, for hosts that choose them themselves.
 */
parameters: { [key in string]: string }, 
/**
 * Tokens its context holds; the catalogue's number if absent.
 */
contextWindow?: number | null, 
/**
 * Tokens it may write; the catalogue's number if absent.
 */
maxTokens?: number | null, };
/**
 * The answer to `diagnostics/report`.
 */
export type Report = { 
/**
 * Our version.
 */
version: string, 
/**
 * Every setting as it is in force. Keys are only said to be set.
 */
settings: Array<EffectiveSetting>, 
/**
 * Settings that were not understood.
 */
warnings: Array<string>, 
/**
 * Where runs go, or why they cannot.
 */
endpoint: string, 
/**
 * What Cursor sent that we do not know, counted.
 */
wireDrift: { [key in string]: number }, };
/**
 * `diagnostics/report`: nothing to say.
 */
export type ReportParams = Record<symbol, never>;
/**
 * `session/invalidate` and `session/close`.
 */
export type SessionParams = { 
/**
 * The session.
 */
sessionId: string, };
/**
 * Where a setting's value comes from.
 */
export type SettingSource = "default" | "environment";
/**
 * `shutdown`: nothing to say.
 */
export type ShutdownParams = Record<symbol, never>;
/**
 * How a turn ended.
 */
export type StopReason = "stop" | "toolUse" | "aborted" | "error";
/**
 * `turn/cancel`: ends a turn at once.
 */
export type TurnCancelParams = { 
/**
 * The turn.
 */
turnId: string, };
/**
 * The answer to `turn/cancel`.
 */
export type TurnCancelResult = { 
/**
 * Whether there was such a turn.
 */
found: boolean, };
/**
 * `turn/event`, from us: what happened in a turn, in order, possibly several at once.
 */
export type TurnEventParams = { 
/**
 * The turn.
 */
turnId: string, 
/**
 * What happened.
 */
events: Array<HostEvent>, };
/**
 * Whether a turn belongs to its session.
 */
export type TurnKind = "main" | "side";
/**
 * How the agent works.
 */
export type TurnMode = "agent" | "plan";
/**
 * `turn/start`: one turn. The answer is how it ended; before it come `turn/event`s.
 */
export type TurnStartParams = { 
/**
 * The host's name for this turn.
 */
turnId: string, 
/**
 * The host's session: turns of one session are one conversation.
 */
sessionId: string, 
/**
 * The folder the agent works in; the host's by default.
 */
workspace?: string | null, 
/**
 * Whether the turn belongs to the session or only borrows the model.
 */
kind: TurnKind, 
/**
 * The host's system prompt. Hosts that put system messages among the messages need
 * not give it: those are read in order, as pi means them.
 */
systemPrompt?: string | null, 
/**
 * The host's messages, oldest first, in its own form.
 */
messages: unknown[], 
/**
 * The tools the model may call, unless system messages tell them.
 */
tools?: Array<HostTool> | null, 
/**
 * The model.
 */
model: ModelChoice, 
/**
 * Agent or plan.
 */
mode?: TurnMode | null, 
/**
 * The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
 */
apiKey?: string | null, };
/**
 * The answer to `turn/start`.
 */
export type TurnStartResult = { 
/**
 * How the turn ended.
 */
stopReason: StopReason, 
/**
 * What went wrong, worded for the host.
 */
errorMessage?: string | null, 
/**
 * Its tokens.
 */
usage: TurnUsage, };
/**
 * The tokens of a turn.
 */
export type TurnUsage = { input: number, output: number, cacheRead: number, cacheWrite: number, totalTokens: number, 
/**
 * Whether Cursor reported these numbers or we estimated them.
 */
estimated: boolean, };
