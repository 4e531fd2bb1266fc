//! `turn/*`: one turn of a host, its events and its result.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

#[cfg(test)]
use super::HostMessage;
use super::{NativeTools, RawMessage, SavedChoices};

/// `turn/start`: runs one turn. The answer is the result; `turn/event`s precede it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct TurnStartParams {
    /// The host's id for this turn.
    pub turn_id: String,
    /// The host's session id: turns of one session are one conversation.
    pub session_id: String,
    /// The folder the agent works in; the host's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether the host's user trusts the workspace: the MCP servers and hooks that its own
    /// Cursor settings name are then started as they are now. Content that changes later is
    /// not, until the user accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub project_trusted: Option<bool>,
    /// Whether the turn belongs to the session or only uses the model.
    #[serde(default)]
    pub kind: TurnKind,
    /// The host's system prompt. May be absent if the messages contain system messages, which are
    /// then read in order as in pi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The messages, oldest first. One that is none of these is an error that names its path.
    #[cfg_attr(test, schemars(with = "Vec<HostMessage>"))]
    #[cfg_attr(test, ts(as = "Vec<HostMessage>"))]
    pub messages: Vec<RawMessage>,
    /// The tools the model may call, unless system messages list them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<HostTool>>,
    /// The model.
    pub model: ModelChoice,
    /// Agent or plan mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TurnMode>,
    /// Who executes Cursor's native tools in this turn, where it differs from `initialize`.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub native_tools: NativeTools,
    /// How the host shows native tool calls.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub surface: TurnSurface,
    /// With `surface: "cards"`: the tools the host registered to show recorded results, under its
    /// own names or `cursor`. Activity without such a tool is shown as text.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub card_tools: Vec<String>,
    /// State the host keeps for the sidecar: it sets speed and mode unless the turn does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub kept: Option<SavedChoices>,
    /// Where the conversation is stored.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub keep: TurnKeep,
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Unknown fields, which other extensions may add: not used.
    #[serde(flatten, skip_serializing)]
    #[cfg_attr(test, schemars(skip))]
    #[cfg_attr(test, ts(skip))]
    pub unknown: BTreeMap<String, serde::de::IgnoredAny>,
}

impl std::fmt::Debug for TurnStartParams {
    /// Hides the key and the messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnStartParams")
            .field("turn_id", &self.turn_id)
            .field("session_id", &self.session_id)
            .finish_non_exhaustive()
    }
}

/// Whether a turn belongs to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum TurnKind {
    /// The session's next turn.
    #[default]
    Main,
    /// A separate request, such as a summary, that does not change the session.
    Side,
}

/// Where a conversation is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum TurnKeep {
    /// On disk, so that it continues after a restart.
    #[default]
    Disk,
    /// In memory only, for a session that the host does not store either.
    Memory,
}

/// A tool of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct HostTool {
    /// The host's name for it.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    #[cfg_attr(test, ts(type = "unknown"))]
    pub parameters: serde_json::Value,
}

/// The model a host selected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelChoice {
    /// An id from `models/list`, or from Cursor's catalogue.
    pub id: String,
    /// The host's thinking level; off if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Whether to use fast mode; the stored preference or the model's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<bool>,
    /// Parameter values by parameter id, for hosts that choose them themselves.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// The size of its context in tokens; the catalogue's number if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// The most tokens it may write; the catalogue's number if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Its prices at the host; 0 if absent.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub cost: Rates,
}

/// Prices per million tokens, in the host's currency.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Rates {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

/// How the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TurnMode {
    Agent,
    Plan,
}

/// How native tool calls are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum TurnSurface {
    /// As bounded text, in thinking.
    #[default]
    Text,
    /// As tool calls whose id starts with `cursor-replay-`. The turn ends as tool use; the host
    /// does not execute them but shows the answer of `replay/result`, and starts the next turn.
    Cards,
}

/// `replay/result`: the recorded result of a card. Nothing is executed; a card whose run is gone
/// has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayResultParams {
    /// The session the card belongs to.
    pub session_id: String,
    /// The id of the card's tool call.
    pub call_id: String,
}

/// The answer to `replay/result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct ReplayResult {
    /// Text blocks.
    pub content: serde_json::Value,
    /// Data for the card's renderer.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
    /// Whether Cursor reported a failure.
    pub is_error: bool,
    /// Whether nothing follows: the host need not start another turn.
    pub terminate: bool,
}

/// `turn/event`, from the sidecar: events of a turn in order, possibly several at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct TurnEventParams {
    /// The turn's id.
    pub turn_id: String,
    /// The events.
    pub events: Vec<HostEvent>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum HostEvent {
    /// Part of the answer.
    Text {
        /// The text.
        text: String,
    },
    /// Part of the model's thinking.
    Thinking {
        /// The text.
        text: String,
    },
    /// The current thinking block is complete.
    ThinkingDone,
    /// The model calls a tool of the host. The turn ends as tool use; the next turn of the session
    /// contains the results.
    #[serde(rename_all = "camelCase")]
    ToolCall {
        /// The id of the call, which its result must carry.
        id: String,
        /// The host's name for the tool.
        name: String,
        /// Its arguments.
        #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
        arguments: serde_json::Value,
    },
    /// What the turn waits for, with the seconds it takes so far. It replaces the last such text.
    /// Sent only to hosts whose capabilities include `waiting`.
    Waiting {
        /// One line; empty at the end of the turn.
        text: String,
    },
    /// The connection failed and is retried.
    Retrying {
        /// The reason.
        reason: String,
    },
}

/// The answer to `turn/start`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct TurnStartResult {
    /// How the turn ended.
    pub stop_reason: StopReason,
    /// What failed, as text for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Its token usage.
    pub usage: TurnUsage,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The answer is complete.
    Stop,
    /// Tools of the host were called.
    ToolUse,
    /// The host cancelled it.
    Aborted,
    /// It failed.
    Error,
}

/// The activity of a turn in tokens. Cursor's own counters are cumulative over a run and are not
/// part of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct TurnUsage {
    /// Estimate of what this turn newly sent: the prompt once per run, then the tool results.
    pub input: u64,
    /// Estimate of what the model wrote in this turn: text, thinking and tool calls.
    pub output: u64,
    /// Always 0.
    pub cache_read: u64,
    /// Always 0.
    pub cache_write: u64,
    /// The size of the context, for display and compaction.
    pub total_tokens: u64,
    /// Whether `totalTokens` is an estimate, not Cursor's own count.
    pub estimated: bool,
    /// Their cost at the host's rates.
    pub cost: TurnCost,
}

/// The cost of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct TurnCost {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
    pub total: f64,
}

/// `turn/cancel`: cancels a turn at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnCancelParams {
    /// The turn's id.
    pub turn_id: String,
}

/// The answer to `turn/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct TurnCancelResult {
    /// Whether the turn existed.
    pub found: bool,
}

/// `turn/inject`: a user message for the running model.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnInjectParams {
    /// The turn's id.
    pub turn_id: String,
    /// The message.
    pub text: String,
    /// Its images.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub images: Vec<Image>,
}

/// An image.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Its bytes in base64.
    pub data: String,
    /// Its declared type; the bytes decide.
    #[cfg_attr(test, ts(optional))]
    pub mime_type: Option<String>,
}

/// The answer to `turn/inject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct TurnInjectResult {
    /// Whether a turn accepted the message. If not, send it with the next turn.
    pub taken: bool,
}

/// `tool/call`, from the sidecar, to a host that executes its tools during the turn.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct ToolCallParams {
    /// The turn's id.
    pub turn_id: String,
    /// The id of the call.
    pub id: String,
    /// The host's name for the tool.
    pub name: String,
    /// Its arguments.
    pub arguments: serde_json::Value,
}

/// The answer to `tool/call`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct ToolCallResult {
    /// Text and image blocks.
    pub content: serde_json::Value,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// Additional data from the host.
    #[serde(default)]
    pub details: serde_json::Value,
    /// The structured result, an object as in MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional, type = "Record<string, unknown>"))]
    pub structured_content: Option<serde_json::Map<String, serde_json::Value>>,
}
