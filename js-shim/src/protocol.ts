// Generated from src/rpc/protocol by `make schema`. Do not edit.

export const PROTOCOL_VERSION = 1;

/** Requests of a host, and their results. */
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
  "login/cancel": { params: LoginCancelParams; result: LoginCancelResult };
  "login/refresh": { params: LoginRefreshParams; result: HostLogin };
  "account/status": { params: AccountStatusParams; result: AccountStatus };
  "diagnostics/report": { params: ReportParams; result: Report };
  "shutdown": { params: ShutdownParams; result: null };
}

/** Notifications of the sidecar. */
export interface Notifications {
  "turn/event": TurnEventParams;
  "log/message": LogMessageParams;
}

/**
 * A plan and its usage. What Cursor does not report is absent.
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
 * Cents included in the plan.
 */
limitCents?: number | null, 
/**
 * The used share, in percent.
 */
percentUsed?: number | null, 
/**
 * The used share of models that Cursor chooses, in percent.
 */
autoPercentUsed?: number | null, 
/**
 * The used share of models that the user chooses, in percent.
 */
namedPercentUsed?: number | null, 
/**
 * Cents spent beyond the plan.
 */
onDemandCents?: number | null, 
/**
 * Cents that may be spent beyond the plan.
 */
onDemandLimitCents?: number | null, 
/**
 * When the period ends, in milliseconds since 1970.
 */
periodEndsAt?: number, 
/**
 * Cursor's own message about the usage.
 */
message?: string | null, };
/**
 * The answer to `account/status`.
 */
export type AccountStatus = { 
/**
 * Where the key comes from; absent without a key.
 */
keySource?: KeyOrigin | null, 
/**
 * The user's email address.
 */
email?: string | null, 
/**
 * The user's name.
 */
name?: string | null, 
/**
 * The user's plan.
 */
plan?: AccountPlan | null, 
/**
 * Why the information is incomplete, as text for the user.
 */
problem?: string | null, };
/**
 * `account/status`: the user's Cursor account, requested from Cursor now.
 */
export type AccountStatusParams = { 
/**
 * The Cursor API key, if the host has one; else `CURSOR_API_KEY`, else the login's.
 */
apiKey?: string | null, };
/**
 * A block of an answer.
 */
export type AssistantBlock = { "type": "text", 
/**
 * The text.
 */
text: string, } | { "type": "refusal", 
/**
 * The text.
 */
refusal: string, } | { "type": "thinking", 
/**
 * The text.
 */
thinking: string, } | { "type": "redacted_thinking" } | { "type": "toolCall", 
/**
 * Its id.
 */
id: string, 
/**
 * The host's name of the tool.
 */
name: string, 
/**
 * Its arguments.
 */
arguments: Record<string, unknown>, } | { "type": "tool_use", 
/**
 * Its id.
 */
id: string, 
/**
 * The host's name of the tool.
 */
name: string, 
/**
 * Its arguments.
 */
input: Record<string, unknown>, } | { "type": "image" };
/**
 * Text, or blocks of text, thinking and tool calls.
 */
export type AssistantContent = string | Array<AssistantBlock>;
/**
 * An MCP server (Streamable HTTP) on this machine, available while the run exists.
 */
export type BridgeEndpoint = { 
/**
 * Its URL. Requests also need the token.
 */
url: string, 
/**
 * The token for `Authorization: Bearer …`.
 */
token: string, 
/**
 * The tools it offers.
 */
tools: Array<BridgeTool>, };
/**
 * `bridge/endpoint`: where another agent can call the tools of a session's live run.
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
 * A tool of the endpoint.
 */
export type BridgeTool = { 
/**
 * Its name in the endpoint.
 */
name: string, 
/**
 * The host's name for it.
 */
hostName: string, };
/**
 * The function of a tool call.
 */
export type CalledFunction = { 
/**
 * The host's name of the tool.
 */
name: string, 
/**
 * Its arguments as JSON text.
 */
arguments: string, };
/**
 * A possible argument of a command, for completion.
 */
export type CommandArgument = { 
/**
 * The argument.
 */
value: string, 
/**
 * Its label.
 */
label: string, 
/**
 * What it does.
 */
description: string, };
/**
 * One setting with its effective value.
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
 * What else was set, and why it is not used.
 */
remark?: string | null, };
/**
 * What value a flag takes.
 */
export type FlagKind = "boolean" | "string";
/**
 * A command-line flag of the host.
 */
export type FlagSpec = { 
/**
 * Its name, without dashes.
 */
name: string, 
/**
 * What it does.
 */
description: string, 
/**
 * What value it takes.
 */
type: FlagKind, };
/**
 * A tool call as in OpenAI's chat completions.
 */
export type FunctionCall = { 
/**
 * Its id.
 */
id: string, 
/**
 * What is called.
 */
function: CalledFunction, };
/**
 * What a host supports.
 */
export type HostCapabilities = { 
/**
 * When the host executes its tools.
 */
tools: HostToolTiming, 
/**
 * Whether the host displays what a turn waits for.
 */
waiting?: boolean, };
/**
 * One event.
 */
export type HostEvent = { "type": "text", 
/**
 * The text.
 */
text: string, } | { "type": "thinking", 
/**
 * The text.
 */
text: string, } | { "type": "thinkingDone" } | { "type": "toolCall", 
/**
 * The id of the call, which its result must carry.
 */
id: string, 
/**
 * The host's name for the tool.
 */
name: string, 
/**
 * Its arguments.
 */
arguments: Record<string, unknown>, } | { "type": "waiting", 
/**
 * One line; empty at the end of the turn.
 */
text: string, } | { "type": "retrying", 
/**
 * The reason.
 */
reason: string, };
/**
 * Facts about a host.
 */
export type HostInfo = { 
/**
 * Its name, such as `pi`.
 */
name: string, 
/**
 * Its version.
 */
version?: string | null, 
/**
 * The file of its program. If `version` is absent, the version of the package that contains
 * this file is used.
 */
program?: string | null, 
/**
 * How it runs.
 */
mode?: HostMode, 
/**
 * The thinking levels it supports, lowest first; pi's follow from its version.
 */
thinkingLevels?: Array<string>, 
/**
 * Its working directory; the sidecar's if absent.
 */
cwd?: string | null, 
/**
 * Its process id: the sidecar ends when that process does.
 */
processId?: number | null, };
/**
 * The tokens of a login, for a host that stores them.
 */
export type HostLogin = { 
/**
 * What the host sends as `apiKey`. It contains both tokens, so that a run can outlive the first.
 */
access: string, 
/**
 * The refresh token; empty if the login cannot be renewed.
 */
refresh: string, 
/**
 * When the host should renew them with `login/refresh`, in milliseconds since 1970.
 */
expires: number, };
/**
 * One message of a transcript. Further fields are ignored, except that a changed content makes
 * it another message.
 */
export type HostMessage = { "role": "system", 
/**
 * Text to append.
 */
content?: TextContent, 
/**
 * Named parts of the prompt to set; `null` removes one.
 */
sections?: { [key in string]: string | null }, 
/**
 * Tools that the model may call from now on.
 */
toolsAdded?: Array<HostTool>, 
/**
 * Tools that it may no longer call.
 */
toolsRemoved?: Array<ToolName>, } | { "role": "developer", 
/**
 * Text to append.
 */
content: TextContent, } | { "role": "user", 
/**
 * Its text and images.
 */
content: UserContent, 
/**
 * When it was written. Identifies the message, so it must not change.
 */
timestamp?: number, } | { "role": "assistant", 
/**
 * Its text, thinking and tool calls.
 */
content?: AssistantContent, 
/**
 * Tool calls as in OpenAI's chat completions.
 */
tool_calls?: Array<FunctionCall>, 
/**
 * How it ended. After `toolUse`, `error` and `aborted` the turn continues.
 */
stopReason?: string, 
/**
 * When it was written.
 */
timestamp?: number, } | { "role": "toolResult", 
/**
 * The id of the call.
 */
toolCallId: string, 
/**
 * The host's name of the tool.
 */
toolName?: string, 
/**
 * What the tool returned. The model receives a block of another type as JSON.
 */
content: UserContent, 
/**
 * Whether the tool failed.
 */
isError?: boolean, 
/**
 * When it was written.
 */
timestamp?: number, } | { "role": "tool", 
/**
 * The id of the call.
 */
tool_call_id: string, 
/**
 * What the tool returned.
 */
content: UserContent, } | { "role": "bashExecution", 
/**
 * The command line.
 */
command: string, 
/**
 * What it printed.
 */
output?: string, 
/**
 * Whether the model must not see it.
 */
excludeFromContext?: boolean, } | { "role": "custom", 
/**
 * Its text and images.
 */
content: UserContent, } | { "role": "branchSummary", 
/**
 * The text.
 */
summary: string, } | { "role": "compactionSummary", 
/**
 * The text.
 */
summary: string, };
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
export type HostToolTiming = "between" | "inline";
/**
 * An image.
 */
export type Image = { 
/**
 * Its bytes in base64.
 */
data: string, 
/**
 * Its declared type; the bytes decide.
 */
mimeType?: string, };
/**
 * An image as in Anthropic's API.
 */
export type ImageSource = { "type": "base64", 
/**
 * Its declared type; the bytes decide.
 */
media_type: string, 
/**
 * Its bytes in base64.
 */
data: string, };
/**
 * An image as in OpenAI's API.
 */
export type ImageUrl = { 
/**
 * `data:image/…;base64,…`. Other addresses are not fetched.
 */
url: string, };
/**
 * `initialize`: required first, and only once.
 */
export type InitializeParams = { 
/**
 * The protocol version of the host.
 */
protocolVersion: number, 
/**
 * Facts about the host.
 */
host: HostInfo, 
/**
 * What the host supports.
 */
capabilities: HostCapabilities, 
/**
 * Who executes Cursor's native tools, unless a turn states otherwise. By default the sidecar
 * executes none: the host's own tools execute what they can, and the rest is refused.
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
 * The version of the sidecar.
 */
version: string, 
/**
 * The protocol version of the sidecar.
 */
protocolVersion: number, 
/**
 * The methods of the sidecar.
 */
methods: Array<string>, 
/**
 * Whether a host that can show cards should do so; see `surface` of `turn/start`.
 */
cards: boolean, 
/**
 * Commands to register, for `session/command`.
 */
commands: Array<SlashCommand>, 
/**
 * Flags to register; their values are returned in `kept`.
 */
flags: Array<FlagSpec>, 
/**
 * The tool to register for questions to the user, unless it is turned off.
 */
question?: QuestionTool, };
export type JsonValue = number | string | boolean | Array<JsonValue> | { [key in string]: JsonValue } | null;
/**
 * Where a key comes from.
 */
export type KeyOrigin = "host" | "environment" | "accessToken" | "login" | "cursorCli";
/**
 * The severity of a line.
 */
export type LogLevel = "info" | "warning" | "error";
/**
 * `log/message`, from the sidecar: a line for the user.
 */
export type LogMessageParams = { 
/**
 * Its severity.
 */
level: LogLevel, 
/**
 * The text.
 */
message: string, };
/**
 * `login/cancel`: ends a login; an open `login/wait` fails.
 */
export type LoginCancelParams = { 
/**
 * The id from `login/start`.
 */
loginId: string, };
/**
 * The answer to `login/cancel`.
 */
export type LoginCancelResult = { 
/**
 * Whether there was such a login.
 */
found: boolean, };
/**
 * `login/refresh`: renews a login that the host stores.
 */
export type LoginRefreshParams = { 
/**
 * The stored text that the host sends as `apiKey`.
 */
access: string, 
/**
 * The refresh token.
 */
refresh: string, };
/**
 * `login/start`: no parameters.
 */
export type LoginStartParams = Record<symbol, never>;
/**
 * A login that was started.
 */
export type LoginStartResult = { 
/**
 * The id for `login/wait`.
 */
loginId: string, 
/**
 * The page where the user signs in.
 */
url: string, 
/**
 * What the user has to do, for the host to display.
 */
instructions: string, };
/**
 * `login/wait`: answered when the user has signed in.
 */
export type LoginWaitParams = { 
/**
 * The id from `login/start`.
 */
loginId: string, 
/**
 * Whether the host stores the login. Otherwise the sidecar stores it, and the result contains
 * no tokens.
 */
returnTokens: boolean, };
/**
 * A completed login.
 */
export type LoginWaitResult = { 
/**
 * The email address of the user.
 */
email?: string | null, 
/**
 * When the access token should be renewed, in milliseconds since 1970. The side that stores the
 * login does it.
 */
expiresAt: number, 
/**
 * The tokens, if the host stores the login.
 */
tokens?: HostLogin | null, };
/**
 * The model a host selected.
 */
export type ModelChoice = { 
/**
 * An id from `models/list`, or from Cursor's catalogue.
 */
id: string, 
/**
 * The host's thinking level; off if absent.
 */
thinking?: string | null, 
/**
 * Whether to use fast mode; the stored preference or the model's default if absent.
 */
fast?: boolean | null, 
/**
 * Parameter values by parameter id, for hosts that choose them themselves.
 */
parameters: { [key in string]: string }, 
/**
 * The size of its context in tokens; the catalogue's number if absent.
 */
contextWindow?: number | null, 
/**
 * The most tokens it may write; the catalogue's number if absent.
 */
maxTokens?: number | null, 
/**
 * Its prices at the host; 0 if absent.
 */
cost?: Rates, };
/**
 * Prices per million tokens.
 */
export type ModelCost = { input: number, output: number, cacheRead: number, cacheWrite: number, };
/**
 * A kind of input.
 */
export type ModelInput = "text" | "image";
/**
 * One model.
 */
export type ModelRow = { 
/**
 * Its id: `base`, or `base@context`.
 */
id: string, 
/**
 * Its display name.
 */
name: string, 
/**
 * Whether the host's thinking levels apply to it.
 */
reasoning: boolean, 
/**
 * Cursor's values for the thinking levels.
 */
thinkingLevelMap?: ThinkingLevelMap, 
/**
 * The kinds of input it accepts.
 */
input: Array<ModelInput>, 
/**
 * Its cost: always 0, because Cursor does not report it.
 */
cost: ModelCost, 
/**
 * The size of its context in tokens.
 */
contextWindow: number, 
/**
 * The most tokens it may write.
 */
maxTokens: number, 
/**
 * Cursor's id of the model, for `prefs/set`.
 */
base: string, 
/**
 * Whether it has a fast mode.
 */
supportsFast: boolean, 
/**
 * Whether it is fast by default.
 */
defaultFast?: boolean | null, };
/**
 * `models/list`: the models to register. A fresh cache answers without a request to Cursor.
 */
export type ModelsListParams = { 
/**
 * Ask Cursor even if the cache is fresh.
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
 * Where the models come from.
 */
source: ModelsSource, 
/**
 * Why they are not the newest.
 */
reason?: ModelsReason | null, 
/**
 * Warnings for the user.
 */
warnings: Array<string>, 
/**
 * The models, in display order.
 */
models: Array<ModelRow>, };
/**
 * Why models are not the newest.
 */
export type ModelsReason = "missing-api-key" | "discovery-failed" | "empty-model-list" | "cached-after-error";
/**
 * Where models come from.
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
 * Fetching web pages.
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
 * `prefs/get`: no parameters.
 */
export type PrefsGetParams = Record<symbol, never>;
/**
 * All stored preferences: the answer to `prefs/get` and `prefs/set`.
 */
export type PrefsResult = { 
/**
 * Whether models are fast, by `base`.
 */
fast: { [key in string]: boolean }, };
/**
 * `prefs/set`: stores a preference for all future sessions.
 */
export type PrefsSetParams = { 
/**
 * The `base` of the model.
 */
base: string, 
/**
 * Whether it is fast from now on; null or absent removes the preference.
 */
fast: boolean | null, };
/**
 * `question/next`: returns what to ask the user next.
 */
export type QuestionNextParams = { 
/**
 * The arguments of the call.
 */
arguments: unknown, 
/**
 * The user's answers so far, in order; null where the user dismissed the question.
 */
answers: Array<string | null>, 
/**
 * Whether the host can ask the user.
 */
hasUi: boolean, };
/**
 * The answer to `question/next`: the next question, or the result.
 */
export type QuestionNextResult = { 
/**
 * What to ask the user.
 */
put?: QuestionPrompt, 
/**
 * The result of the call, for the model.
 */
text: string, 
/**
 * The result by question, for display.
 */
details: unknown, };
/**
 * A question to display.
 */
export type QuestionPrompt = { 
/**
 * The question.
 */
title: string, 
/**
 * The options; absent if the user enters text.
 */
options?: Array<string>, };
/**
 * A tool for the host to register, with which the model asks the user. The host passes its calls
 * to `question/next`.
 */
export type QuestionTool = { 
/**
 * Its name.
 */
name: string, 
/**
 * Its display name.
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
 * Prices per million tokens, in the host's currency.
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
 * Data for the card's renderer.
 */
details?: JsonValue, 
/**
 * Whether Cursor reported a failure.
 */
isError: boolean, 
/**
 * Whether nothing follows: the host need not start another turn.
 */
terminate: boolean, };
/**
 * `replay/result`: the recorded result of a card. Nothing is executed; a card whose run is gone
 * has no result.
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
 * The version of the sidecar.
 */
version: string, 
/**
 * Every setting with its effective value. For keys only whether they are set.
 */
settings: Array<EffectiveSetting>, 
/**
 * Warnings about invalid settings.
 */
warnings: Array<string>, 
/**
 * The endpoint for runs, or why there is none.
 */
endpoint: string, 
/**
 * Unknown fields and messages from Cursor, with counts.
 */
wireDrift: { [key in string]: number }, 
/**
 * Recovered and lost turns and other events, counted by name and labels.
 */
counters: { [key in string]: number }, 
/**
 * Tasks that exist now; a number that only grows is a leak.
 */
tasks: number, };
/**
 * `diagnostics/report`: no parameters.
 */
export type ReportParams = Record<symbol, never>;
/**
 * State the host keeps for the sidecar and sends each time, so that it survives the sidecar's
 * process.
 */
export type SavedChoices = { 
/**
 * The flags the host was started with, by name.
 */
flags: Record<string, unknown>, 
/**
 * The session's latest entry from `session/command`.
 */
entry?: unknown, };
/**
 * `session/command`: a command of the user; without one, it only returns the current state.
 */
export type SessionCommandParams = { 
/**
 * The command, without a slash.
 */
command?: string, 
/**
 * Its arguments.
 */
arguments?: string, 
/**
 * The id of the selected model; absent if it is not from `models/list`.
 */
model?: string, 
/**
 * The names of the host's active tools.
 */
tools?: Array<string>, 
/**
 * The session's working directory; the host's if absent.
 */
workspace?: string, 
/**
 * The session's id, as in `turn/start`.
 */
sessionId?: string, 
/**
 * State the host keeps for the sidecar.
 */
kept: SavedChoices, 
/**
 * The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
 */
apiKey?: string, };
/**
 * The answer to `session/command`.
 */
export type SessionCommandResult = { 
/**
 * A message for the user.
 */
message?: string, 
/**
 * Its severity.
 */
level?: LogLevel, 
/**
 * The status line; none if absent.
 */
status?: string, 
/**
 * The entry to keep with the session, in place of the previous one.
 */
entry?: unknown, 
/**
 * The models to register from now on, if they have changed.
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
export type SettingSource = "default" | "environment" | "file";
/**
 * `shutdown`: no parameters.
 */
export type ShutdownParams = Record<symbol, never>;
/**
 * A command for the user.
 */
export type SlashCommand = { 
/**
 * Its name, without a slash.
 */
name: string, 
/**
 * What it does.
 */
description: string, 
/**
 * Possible arguments, if they are known.
 */
arguments: Array<CommandArgument>, };
/**
 * How a turn ended.
 */
export type StopReason = "stop" | "toolUse" | "aborted" | "error";
/**
 * A block of text.
 */
export type TextBlock = { "type": "text", 
/**
 * The text.
 */
text: string, };
/**
 * Text, whole or in blocks.
 */
export type TextContent = string | Array<TextBlock>;
/**
 * Cursor's value for each thinking level; null for a level the model does not have.
 */
export type ThinkingLevelMap = { off: string | null, minimal: string | null, low: string | null, medium: string | null, high: string | null, xhigh: string | null, 
/**
 * Only for hosts that support the level.
 */
max?: string | null, };
/**
 * The name of a tool.
 */
export type ToolName = { 
/**
 * The name.
 */
name: string, };
/**
 * `turn/cancel`: cancels a turn at once.
 */
export type TurnCancelParams = { 
/**
 * The turn's id.
 */
turnId: string, };
/**
 * The answer to `turn/cancel`.
 */
export type TurnCancelResult = { 
/**
 * Whether the turn existed.
 */
found: boolean, };
/**
 * The cost of a turn.
 */
export type TurnCost = { input: number, output: number, cacheRead: number, cacheWrite: number, total: number, };
/**
 * `turn/event`, from the sidecar: events of a turn in order, possibly several at once.
 */
export type TurnEventParams = { 
/**
 * The turn's id.
 */
turnId: string, 
/**
 * The events.
 */
events: Array<HostEvent>, };
/**
 * `turn/inject`: a user message for the running model.
 */
export type TurnInjectParams = { 
/**
 * The turn's id.
 */
turnId: string, 
/**
 * The message.
 */
text: string, 
/**
 * Its images.
 */
images?: Array<Image>, };
/**
 * The answer to `turn/inject`.
 */
export type TurnInjectResult = { 
/**
 * Whether a turn accepted the message. If not, send it with the next turn.
 */
taken: boolean, };
/**
 * Where a conversation is stored.
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
 * `turn/start`: runs one turn. The answer is the result; `turn/event`s precede it.
 */
export type TurnStartParams = { 
/**
 * The host's id for this turn.
 */
turnId: string, 
/**
 * The host's session id: turns of one session are one conversation.
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
 * Whether the turn belongs to the session or only uses the model.
 */
kind: TurnKind, 
/**
 * The host's system prompt. May be absent if the messages contain system messages, which are
 * then read in order as in pi.
 */
systemPrompt?: string | null, 
/**
 * The messages, oldest first. One that is none of these is an error that names its path.
 */
messages: Array<HostMessage>, 
/**
 * The tools the model may call, unless system messages list them.
 */
tools?: Array<HostTool> | null, 
/**
 * The model.
 */
model: ModelChoice, 
/**
 * Agent or plan mode.
 */
mode?: TurnMode | null, 
/**
 * Who executes Cursor's native tools in this turn, where it differs from `initialize`.
 */
nativeTools?: NativeTools, 
/**
 * How the host shows native tool calls.
 */
surface?: TurnSurface, 
/**
 * With `surface: "cards"`: the tools the host registered to show recorded results, under its
 * own names or `cursor`. Activity without such a tool is shown as text.
 */
cardTools?: Array<string>, 
/**
 * State the host keeps for the sidecar: it sets speed and mode unless the turn does.
 */
kept?: SavedChoices, 
/**
 * Where the conversation is stored.
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
 * What failed, as text for the host.
 */
errorMessage?: string | null, 
/**
 * Its token usage.
 */
usage: TurnUsage, };
/**
 * How native tool calls are shown.
 */
export type TurnSurface = "text" | "cards";
/**
 * The activity of a turn in tokens. Cursor's own counters are cumulative over a run and are not
 * part of it.
 */
export type TurnUsage = { 
/**
 * Estimate of what this turn newly sent: the prompt once per run, then the tool results.
 */
input: number, 
/**
 * Estimate of what the model wrote in this turn: text, thinking and tool calls.
 */
output: number, 
/**
 * Always 0.
 */
cacheRead: number, 
/**
 * Always 0.
 */
cacheWrite: number, 
/**
 * The size of the context, for display and compaction.
 */
totalTokens: number, 
/**
 * Whether `totalTokens` is an estimate, not Cursor's own count.
 */
estimated: boolean, 
/**
 * Their cost at the host's rates.
 */
cost: TurnCost, };
/**
 * A block of a user's message or a tool result.
 */
export type UserBlock = { "type": "text", 
/**
 * The text.
 */
text: string, } | { "type": "image", 
/**
 * Its bytes in base64.
 */
data?: string, 
/**
 * Its declared type; the bytes decide.
 */
mimeType?: string, 
/**
 * The image, if `data` is absent.
 */
source?: ImageSource, } | { "type": "image_url", 
/**
 * The image.
 */
image_url: ImageUrl, } | { "type": "tool_result", 
/**
 * The id of the call.
 */
tool_use_id: string, 
/**
 * What the tool returned.
 */
content?: UserContent, 
/**
 * Whether the tool failed.
 */
is_error?: boolean, };
/**
 * Text, or blocks of text and images.
 */
export type UserContent = string | Array<UserBlock>;
