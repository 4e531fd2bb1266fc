//! `turn/*`: one turn of a host, what happens in it and how it ends.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Kept, NativeTools};

/// `turn/start`: one turn. The answer is how it ended; before it come `turn/event`s.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct TurnStartParams {
    /// The host's name for this turn.
    pub turn_id: String,
    /// The host's session: turns of one session are one conversation.
    pub session_id: String,
    /// The folder the agent works in; the host's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether the host's user trusts the workspace: the MCP servers and hooks that its own
    /// Cursor settings name are then started as they are now. Content that changes later is
    /// not, until the user accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub project_trusted: Option<bool>,
    /// Whether the turn belongs to the session or only borrows the model.
    #[serde(default)]
    pub kind: TurnKind,
    /// The host's system prompt. Hosts that put system messages among the messages need
    /// not give it: those are read in order, as pi means them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The host's messages, oldest first, in its own form.
    #[ts(type = "unknown[]")]
    pub messages: Vec<serde_json::Value>,
    /// The tools the model may call, unless system messages tell them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<HostTool>>,
    /// The model.
    pub model: ModelChoice,
    /// Agent or plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TurnMode>,
    /// Who executes Cursor's native tools in this turn, where it differs from `initialize`.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub native_tools: NativeTools,
    /// How the host shows what Cursor's own tools did.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub surface: TurnSurface,
    /// With `surface: "cards"`: the tools the host registered to show recorded results, under
    /// its own names or `cursor`. Activity for which there is none is told in lines.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub card_tools: Vec<String>,
    /// What the host keeps for us: speed and mode follow from it unless the turn says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub kept: Option<Kept>,
    /// Where what Cursor knows of the session is kept.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub keep: TurnKeep,
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// What others put into a host's requests: not read.
    #[serde(flatten, skip_serializing)]
    #[schemars(skip)]
    #[ts(skip)]
    pub unknown: BTreeMap<String, serde::de::IgnoredAny>,
}

impl std::fmt::Debug for TurnStartParams {
    /// Shows neither key nor messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnStartParams")
            .field("turn_id", &self.turn_id)
            .field("session_id", &self.session_id)
            .finish_non_exhaustive()
    }
}

/// Whether a turn belongs to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "lowercase")]
pub enum TurnKind {
    /// The session's next turn.
    #[default]
    Main,
    /// A request beside the session, such as a summary: it leaves no trace.
    Side,
}

/// Where what Cursor knows of a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "lowercase")]
pub enum TurnKeep {
    /// On disk, to go on after a restart.
    #[default]
    Disk,
    /// In memory: the host keeps no file of the session, so neither do we.
    Memory,
}

/// A tool of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct HostTool {
    /// The host's name for it.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    #[ts(type = "unknown")]
    pub parameters: serde_json::Value,
}

/// A model as the host chose it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelChoice {
    /// The id of a row of `models/list`, or of Cursor's catalogue.
    pub id: String,
    /// The host's thinking level; absent is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Fast or not; the saved or the model's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<bool>,
    /// Parameter values by parameter id, for hosts that choose them themselves.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Tokens its context holds; the catalogue's number if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Tokens it may write; the catalogue's number if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What the host says it costs; nothing if absent.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub cost: Rates,
}

/// Prices per million tokens, in whatever money the host counts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Rates {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

/// How the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TurnMode {
    Agent,
    Plan,
}

/// How the activity of Cursor's own tools is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "lowercase")]
pub enum TurnSurface {
    /// As bounded text, in thinking.
    #[default]
    Text,
    /// As tool calls whose id starts with `cursor-replay-`. The turn ends as tool use; the host
    /// does not execute them, it shows what `replay/result` says, and comes back.
    Cards,
}

/// `replay/result`: the recorded result behind a card. Nothing is ever executed; a card whose
/// run is gone has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayResultParams {
    /// The session the card belongs to.
    pub session_id: String,
    /// The id of the card's tool call.
    pub call_id: String,
}

/// The answer to `replay/result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct ReplayResult {
    /// Text blocks.
    pub content: serde_json::Value,
    /// What the card's renderer needs besides.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
    /// Whether Cursor reported a failure.
    pub is_error: bool,
    /// Whether the run has nothing more to say: the host need not ask for another turn.
    pub terminate: bool,
}

/// `turn/event`, from us: what happened in a turn, in order, possibly several at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct TurnEventParams {
    /// The turn.
    pub turn_id: String,
    /// What happened.
    pub events: Vec<HostEvent>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum HostEvent {
    /// A piece of the answer.
    Text {
        /// The piece.
        text: String,
    },
    /// A piece of thinking.
    Thinking {
        /// The piece.
        text: String,
    },
    /// A thought is complete.
    ThinkingDone,
    /// The model calls a tool of the host. The turn ends as tool use; the next turn of the
    /// session brings the results.
    #[serde(rename_all = "camelCase")]
    ToolCall {
        /// The call: its result carries this id.
        id: String,
        /// The host's name of the tool.
        name: String,
        /// Its arguments.
        #[ts(type = "Record<string, unknown>")]
        arguments: serde_json::Value,
    },
    /// The connection failed and is tried again.
    Retrying {
        /// Why.
        reason: String,
    },
}

/// The answer to `turn/start`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct TurnStartResult {
    /// How the turn ended.
    pub stop_reason: StopReason,
    /// What went wrong, worded for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Its tokens.
    pub usage: TurnUsage,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The answer is complete.
    Stop,
    /// Tools of the host were called.
    ToolUse,
    /// The host gave it up.
    Aborted,
    /// It failed.
    Error,
}

/// The tokens of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct TurnUsage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub total_tokens: u64,
    /// Whether Cursor reported these numbers or we estimated them.
    pub estimated: bool,
    /// What they cost at the host's rates.
    pub cost: TurnCost,
}

/// What a turn cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct TurnCost {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
    pub total: f64,
}

/// `turn/cancel`: ends a turn at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnCancelParams {
    /// The turn.
    pub turn_id: String,
}

/// The answer to `turn/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct TurnCancelResult {
    /// Whether there was such a turn.
    pub found: bool,
}

/// `turn/inject`: words for the model while it works.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnInjectParams {
    /// The turn.
    pub turn_id: String,
    /// The words.
    pub text: String,
    /// Pictures with them.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub images: Vec<Image>,
}

/// A picture.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Its bytes, in base64.
    pub data: String,
    /// What it is said to be; its bytes decide.
    #[ts(optional)]
    pub mime_type: Option<String>,
}

/// The answer to `turn/inject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct TurnInjectResult {
    /// Whether a turn took the words. If not, send them with the next one.
    pub taken: bool,
}

/// `tool/call`, from us, to a host that executes its tools at once.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallParams {
    /// The turn.
    pub turn_id: String,
    /// The call.
    pub id: String,
    /// The host's name of the tool.
    pub name: String,
    /// Its arguments.
    pub arguments: serde_json::Value,
}

/// The answer to `tool/call`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallResult {
    /// Text and picture blocks.
    pub content: serde_json::Value,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// What the host says about it besides.
    #[serde(default)]
    pub details: serde_json::Value,
    /// The result for programs, an object, as MCP means it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional, type = "Record<string, unknown>")]
    pub structured_content: Option<serde_json::Map<String, serde_json::Value>>,
}
