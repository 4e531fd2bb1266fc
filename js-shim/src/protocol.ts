// Generated from src/doors/rpc/protocol by `make schema`. Do not edit.

export const PROTOCOL_VERSION = 1;

/** What a host may ask, and what it is answered. */
export interface Methods {
  "initialize": { params: InitializeParams; result: InitializeResult };
  "models/list": { params: ModelsListParams; result: ModelsListResult };
  "prefs/get": { params: PrefsGetParams; result: PrefsResult };
  "prefs/set": { params: PrefsSetParams; result: PrefsResult };
  "turn/start": { params: TurnStartParams; result: TurnStartResult };
  "turn/cancel": { params: TurnCancelParams; result: TurnCancelResult };
  "turn/inject": { params: TurnInjectParams; result: TurnInjectResult };
  "replay/result": { params: ReplayResultParams; result: ReplayResult };
  "session/invalidate": { params: SessionParams; result: null };
  "session/close": { params: SessionParams; result: null };
  "session/command": { params: SessionCommandParams; result: SessionCommandResult };
  "question/next": { params: QuestionNextParams; result: QuestionNextResult };
  "bridge/endpoint": { params: BridgeEndpointParams; result: BridgeEndpointResult };
  "login/start": { params: LoginStartParams; result: LoginStartResult };
  "login/wait": { params: LoginWaitParams; result: LoginWaitResult };
  "account/status": { params: AccountStatusParams; result: AccountStatus };
  "diagnostics/report": { params: ReportParams; result: Report };
  "shutdown": { params: ShutdownParams; result: null };
}

/** What the sidecar tells without being asked. */
export interface Notifications {
  "turn/event": TurnEventParams;
  "log/message": LogMessageParams;
}

/**
 * A plan and what of it is used. What Cursor does not tell is absent.
 */
export type AccountPlan = { 
/**
 * Its name.
 */
name?: string | null, 
/**
 * Cents used in this period.
 */
usedCents?: number | null, 
/**
 * Cents that are included.
 */
limitCents?: number | null, 
/**
 * The share that is used, of a hundred.
 */
percentUsed?: number | null, 
/**
 * When the period ends, in milliseconds since 1970.
 */
periodEndsAt?: number, 
/**
 * Cursor's own words about it.
 */
message?: string | null, };
/**
 * The answer to `account/status`.
 */
export type AccountStatus = { 
/**
 * Where the key comes from; absent without one.
 */
keySource?: KeyOrigin | null, 
/**
 * The person's address.
 */
email?: string | null, 
/**
 * Their name.
 */
name?: string | null, 
/**
 * What they pay for.
 */
plan?: AccountPlan | null, 
/**
 * Why this is not all that could be told, worded for a person.
 */
problem?: string | null, };
/**
 * `account/status`: who the person is to Cursor, asked now.
 */
export type AccountStatusParams = { 
/**
 * The Cursor API key, if the host has one; else `CURSOR_API_KEY`, else the login's.
 */
apiKey?: string | null, };
/**
 * An MCP server (Streamable HTTP) on this machine, for as long as the run lives.
 */
export type BridgeEndpoint = { 
/**
 * Its URL. Whoever knows it still needs the token.
 */
url: string, 
/**
 * What to send as `Authorization: Bearer …`.
 */
token: string, 
/**
 * What it offers.
 */
tools: Array<BridgeTool>, };
/**
 * `bridge/endpoint`: where another agent finds the tools of a session's live run.
 */
export type BridgeEndpointParams = { 
/**
 * The session.
 */
sessionId: string, };
/**
 * The answer to `bridge/endpoint`.
 */
export type BridgeEndpointResult = { 
/**
 * `null` if the session has no live run, or the run offers no tools.
 */
endpoint: BridgeEndpoint | null, };
/**
 * A tool as it is offered.
 */
export type BridgeTool = { 
/**
 * The name it is called by.
 */
name: string, 
/**
 * The host's name of it.
 */
hostName: string, };
/**
 * A command for a person to give.
 */
export type CommandOffer = { 
/**
 * Its name, without a slash.
 */
name: string, 
/**
 * What it does.
 */
description: string, 
/**
 * Words it may be given, if those are known.
 */
arguments: Array<CommandWord>, };
/**
 * A word a command may be given, for completion.
 */
export type CommandWord = { 
/**
 * The word.
 */
value: string, 
/**
 * How it is shown.
 */
label: string, 
/**
 * What it does.
 */
description: string, };
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
source: SettingSource, 
/**
 * What was given besides, and why it does not count.
 */
remark?: string | null, };
/**
 * What a flag takes.
 */
export type FlagKind = "boolean" | "string";
/**
 * A flag to start a host with.
 */
export type FlagOffer = { 
/**
 * Its name, without dashes.
 */
name: string, 
/**
 * What it does.
 */
description: string, 
/**
 * What it takes.
 */
type: FlagKind, };
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
 * The file of its program: the package that is in tells the version of a host that
 * does not know it.
 */
program?: string | null, 
/**
 * How it runs.
 */
mode?: HostMode, 
/**
 * The thinking levels it knows, lowest first; pi's follow from its version.
 */
thinkingLevels?: Array<string>, 
/**
 * Its working directory; ours if absent.
 */
cwd?: string | null, 
/**
 * Its process: the sidecar ends when that does.
 */
processId?: number | null, };
/**
 * What a host can do.
 */
export type HostCapabilities = { 
/**
 * When it executes its tools.
 */
tools: HostTools, };
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
 * When a host executes its tools.
 */
export type HostTools = "between" | "inline";
/**
 * A picture.
 */
export type Image = { 
/**
 * Its bytes, in base64.
 */
data: string, 
/**
 * What it is said to be; its bytes decide.
 */
mimeType?: string, };
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
host: Host, 
/**
 * What it can do.
 */
capabilities: HostCapabilities, 
/**
 * Who executes Cursor's native tools, unless a turn states otherwise. A host that states
 * nothing has nothing executed by the sidecar: its own tools execute what they can, and
 * the rest is refused.
 */
nativeTools?: NativeTools, };
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
methods: Array<string>, 
/**
 * Whether a host that can show cards should: see `surface` of `turn/start`.
 */
cards: boolean, 
/**
 * Commands to register, for `session/command`.
 */
commands: Array<CommandOffer>, 
/**
 * Flags to register; their values come back in `kept`.
 */
flags: Array<FlagOffer>, 
/**
 * The tool to register for questions to a person, unless it is turned off.
 */
question?: QuestionTool, };
export type JsonValue = number | string | boolean | Array<JsonValue> | { [key in string]: JsonValue } | null;
/**
 * What the host keeps for us. It brings it along each time, so nothing is lost with a
 * process of ours.
 */
export type Kept = { 
/**
 * The flags it was started with, by name.
 */
flags: Record<string, unknown>, 
/**
 * The last entry of the session, as `session/command` gave it.
 */
entry?: unknown, };
/**
 * Where a key comes from.
 */
export type KeyOrigin = "host" | "environment" | "login";
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
 * `login/start`: nothing to say.
 */
export type LoginStartParams = Record<symbol, never>;
/**
 * A login that has begun.
 */
export type LoginStartResult = { 
/**
 * What `login/wait` takes.
 */
loginId: string, 
/**
 * The page the person signs in on.
 */
url: string, };
/**
 * `login/wait`: answered when the person has signed in.
 */
export type LoginWaitParams = { 
/**
 * The login, by `login/start`.
 */
loginId: string, };
/**
 * A login that is done. Its key stays with the sidecar.
 */
export type LoginWaitResult = { 
/**
 * Who signed in.
 */
email?: string | null, 
/**
 * Until when the login is good, in milliseconds since 1970.
 */
expiresAt: number, };
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
maxTokens?: number | null, 
/**
 * What the host says it costs; nothing if absent.
 */
cost?: Rates, };
/**
 * Prices per million tokens.
 */
export type ModelCost = { input: number, output: number, cacheRead: number, cacheWrite: number, };
/**
 * What a model reads.
 */
export type ModelInput = "text" | "image";
/**
 * One row.
 */
export type ModelRow = { 
/**
 * Its id: `base`, or `base@context`.
 */
id: string, 
/**
 * Its name for people.
 */
name: string, 
/**
 * Whether the host's thinking levels mean anything to it.
 */
reasoning: boolean, 
/**
 * What they mean.
 */
thinkingLevelMap?: ThinkingLevelMap, 
/**
 * What it reads.
 */
input: Array<ModelInput>, 
/**
 * What it costs: Cursor does not say, so nothing.
 */
cost: ModelCost, 
/**
 * Tokens its context holds.
 */
contextWindow: number, 
/**
 * Tokens it may write.
 */
maxTokens: number, 
/**
 * Cursor's id of the model, which `prefs/set` takes.
 */
base: string, 
/**
 * Whether it can be fast.
 */
supportsFast: boolean, 
/**
 * Whether it is fast unasked.
 */
defaultFast?: boolean | null, };
/**
 * `models/list`: the rows to register. A fresh cache answers without a call to Cursor.
 */
export type ModelsListParams = { 
/**
 * Ask Cursor even if there is a fresh cache.
 */
refresh: boolean, 
/**
 * The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
 */
apiKey?: string | null, };
/**
 * The answer to `models/list`.
 */
export type ModelsListResult = { 
/**
 * Where the rows come from.
 */
source: ModelsSource, 
/**
 * Why they are not as new as they could be.
 */
reason?: ModelsReason | null, 
/**
 * What a person should know, worded for them.
 */
warnings: Array<string>, 
/**
 * The rows, in the order to show them.
 */
models: Array<ModelRow>, };
/**
 * Why rows are not as new as they could be.
 */
export type ModelsReason = "missing-api-key" | "discovery-failed" | "empty-model-list" | "cached-after-error";
/**
 * Where rows come from.
 */
export type ModelsSource = "live" | "cache" | "bundled";
/**
 * Who executes a native tool.
 */
export type NativeMode = "local" | "host" | "ask" | "off";
/**
 * Who executes Cursor's native tools, by kind. The user's settings may name another executor,
 * but what is `off` here stays off.
 */
export type NativeTools = { 
/**
 * For kinds that are not stated.
 */
default?: NativeMode, 
/**
 * Reading files.
 */
read?: NativeMode, 
/**
 * Listing folders and finding files by name.
 */
ls?: NativeMode, 
/**
 * Searching in files.
 */
grep?: NativeMode, 
/**
 * Writing and editing files.
 */
write?: NativeMode, 
/**
 * Deleting files.
 */
delete?: NativeMode, 
/**
 * Running commands.
 */
shell?: NativeMode, 
/**
 * Fetching a page.
 */
fetch?: NativeMode, 
/**
 * Reading changes from git.
 */
gitDiff?: NativeMode, 
/**
 * Reading diagnostics of a file.
 */
diagnostics?: NativeMode, 
/**
 * Whether a kind is executed only while the host offers a tool for the same work: `bash`
 * for shell, `write` or `edit` for write and delete, `read`, `grep`, `find` or `ls`.
 */
requireHostTool?: boolean, };
/**
 * `prefs/get`: nothing to say.
 */
export type PrefsGetParams = Record<symbol, never>;
/**
 * The preferences there are: the answer to both.
 */
export type PrefsResult = { 
/**
 * Which models are fast or not, by `base`.
 */
fast: { [key in string]: boolean }, };
/**
 * `prefs/set`: keeps a preference for every session to come.
 */
export type PrefsSetParams = { 
/**
 * The model, by `base` of its rows.
 */
base: string, 
/**
 * Whether it is fast from now on; null or absent forgets the preference.
 */
fast: boolean | null, };
/**
 * A question on a screen.
 */
export type Put = { 
/**
 * The question.
 */
title: string, 
/**
 * What to choose from; absent if the person writes.
 */
options?: Array<string>, };
/**
 * `question/next`: what to put to the person next.
 */
export type QuestionNextParams = { 
/**
 * The arguments of the call.
 */
arguments: unknown, 
/**
 * What the person said so far, in order; null where they gave up.
 */
answers: Array<string | null>, 
/**
 * Whether there is a person to ask.
 */
hasUi: boolean, };
/**
 * The answer to `question/next`: something to put, or the result.
 */
export type QuestionNextResult = { 
/**
 * What to put to the person.
 */
put?: Put, 
/**
 * The result of the call, for the model.
 */
text: string, 
/**
 * The same, answer by answer.
 */
details: unknown, };
/**
 * A tool for the host to register, which lets the model ask a person. Its calls are taken
 * to `question/next`.
 */
export type QuestionTool = { 
/**
 * Its name.
 */
name: string, 
/**
 * Its name for people.
 */
label: string, 
/**
 * What it is for.
 */
description: string, 
/**
 * JSON Schema of its arguments.
 */
parameters: Record<string, unknown>, };
/**
 * Prices per million tokens, in whatever money the host counts.
 */
export type Rates = { input: number, output: number, cacheRead: number, cacheWrite: number, };
/**
 * The answer to `replay/result`.
 */
export type ReplayResult = { 
/**
 * Text blocks.
 */
content: JsonValue, 
/**
 * What the card's renderer needs besides.
 */
details?: JsonValue, 
/**
 * Whether Cursor reported a failure.
 */
isError: boolean, 
/**
 * Whether the run has nothing more to say: the host need not ask for another turn.
 */
terminate: boolean, };
/**
 * `replay/result`: the recorded result behind a card. Nothing is ever executed; a card whose
 * run is gone has no result.
 */
export type ReplayResultParams = { 
/**
 * The session the card belongs to.
 */
sessionId: string, 
/**
 * The id of the card's tool call.
 */
callId: string, };
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
wireDrift: { [key in string]: number }, 
/**
 * Turns that were brought back or could not be, and other events, counted by name and
 * labels.
 */
counters: { [key in string]: number }, 
/**
 * Tasks at work or waiting now; a number that only grows is a leak.
 */
tasks: number, };
/**
 * `diagnostics/report`: nothing to say.
 */
export type ReportParams = Record<symbol, never>;
/**
 * `session/command`: a person's command; without one, only the state of things is asked for.
 */
export type SessionCommandParams = { 
/**
 * The command, without a slash.
 */
command?: string, 
/**
 * What follows it.
 */
arguments?: string, 
/**
 * The chosen model, by the id of its row; absent if it is not one of ours.
 */
model?: string, 
/**
 * The host's tools that are active, by name.
 */
tools?: Array<string>, 
/**
 * Where the session works; else where the host does.
 */
workspace?: string, 
/**
 * What the host keeps for us.
 */
kept: Kept, 
/**
 * The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
 */
apiKey?: string, };
/**
 * The answer to `session/command`.
 */
export type SessionCommandResult = { 
/**
 * What to tell the person.
 */
message?: string, 
/**
 * How much that matters.
 */
level?: LogLevel, 
/**
 * The status line; none if absent.
 */
status?: string, 
/**
 * To be kept with the session, in place of the entry before.
 */
entry?: unknown, 
/**
 * The rows to register from now on, if they are others than the host has.
 */
models?: Array<ModelRow>, };
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
 * Cursor's value for each thinking level; null for a level the model does not have.
 */
export type ThinkingLevelMap = { off: string | null, minimal: string | null, low: string | null, medium: string | null, high: string | null, xhigh: string | null, 
/**
 * Only for hosts that know the level.
 */
max?: string | null, };
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
 * What a turn cost.
 */
export type TurnCost = { input: number, output: number, cacheRead: number, cacheWrite: number, total: number, };
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
 * `turn/inject`: words for the model while it works.
 */
export type TurnInjectParams = { 
/**
 * The turn.
 */
turnId: string, 
/**
 * The words.
 */
text: string, 
/**
 * Pictures with them.
 */
images?: Array<Image>, };
/**
 * The answer to `turn/inject`.
 */
export type TurnInjectResult = { 
/**
 * Whether a turn took the words. If not, send them with the next one.
 */
taken: boolean, };
/**
 * Where what Cursor knows of a session is kept.
 */
export type TurnKeep = "disk" | "memory";
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
 * Whether the host's user trusts the workspace: the MCP servers and hooks that its own
 * Cursor settings name are then started as they are now. Content that changes later is
 * not, until the user accepts it.
 */
projectTrusted?: boolean, 
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
 * Who executes Cursor's native tools in this turn, where it differs from `initialize`.
 */
nativeTools?: NativeTools, 
/**
 * How the host shows what Cursor's own tools did.
 */
surface?: TurnSurface, 
/**
 * With `surface: "cards"`: the tools the host registered to show recorded results, under
 * its own names or `cursor`. Activity for which there is none is told in lines.
 */
cardTools?: Array<string>, 
/**
 * What the host keeps for us: speed and mode follow from it unless the turn says them.
 */
kept?: Kept, 
/**
 * Where what Cursor knows of the session is kept.
 */
keep?: TurnKeep, 
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
 * How the activity of Cursor's own tools is shown.
 */
export type TurnSurface = "text" | "cards";
/**
 * The tokens of a turn.
 */
export type TurnUsage = { input: number, output: number, cacheRead: number, cacheWrite: number, totalTokens: number, 
/**
 * Whether Cursor reported these numbers or we estimated them.
 */
estimated: boolean, 
/**
 * What they cost at the host's rates.
 */
cost: TurnCost, };
