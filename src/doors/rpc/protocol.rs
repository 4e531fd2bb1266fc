//! The messages of our JSON-RPC. `cursor-sidecar schema` prints their JSON Schema, and
//! `schema/rpc` holds it checked in.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Raised when an old host would misunderstand a new sidecar, or the other way round.
pub const PROTOCOL_VERSION: u32 = 1;

/// `initialize`: required first, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitializeParams {
    /// The version the host speaks.
    pub protocol_version: u32,
    /// Who the host is.
    pub host: Host,
}

/// Facts about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Host {
    /// Its name, such as `pi`.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How it runs.
    #[serde(default)]
    pub mode: HostMode,
    /// The thinking levels it knows, lowest first.
    #[serde(default)]
    pub thinking_levels: Vec<String>,
    /// Its working directory; ours if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its process: the sidecar ends when that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
}

/// How a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostMode {
    /// A person looks at it.
    #[default]
    Interactive,
    /// One answer is printed.
    Print,
    /// A program reads it.
    Json,
    /// A program drives it.
    Rpc,
}

/// The answer to `initialize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// `cursor-sidecar`.
    pub name: String,
    /// Our version.
    pub version: String,
    /// The version we speak.
    pub protocol_version: u32,
    /// The methods there are.
    pub methods: Vec<String>,
}

/// `diagnostics/report`: nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportParams {}

/// The answer to `diagnostics/report`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Our version.
    pub version: String,
    /// Every setting as it is in force. Keys are only said to be set.
    pub settings: Vec<EffectiveSetting>,
    /// Settings that were not understood.
    pub warnings: Vec<String>,
    /// Where runs go, or why they cannot.
    pub endpoint: String,
    /// What Cursor sent that we do not know, counted.
    pub wire_drift: BTreeMap<String, u64>,
}

/// One setting as it is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveSetting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where the value comes from.
    pub source: SettingSource,
}

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SettingSource {
    /// Nothing was set.
    Default,
    /// The environment.
    Environment,
}

/// `shutdown`: nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShutdownParams {}

/// `turn/start`: one turn. The answer is how it ended; before it come `turn/event`s.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnStartParams {
    /// The host's name for this turn.
    pub turn_id: String,
    /// The host's session: turns of one session are one conversation.
    pub session_id: String,
    /// The folder the agent works in; the host's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The host's system prompt.
    #[serde(default)]
    pub system_prompt: String,
    /// The host's messages, oldest first, in its own form.
    pub messages: Vec<serde_json::Value>,
    /// The model.
    pub model: ModelChoice,
    /// Agent or plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TurnMode>,
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
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

/// A model with the values of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelChoice {
    /// The catalogue's id.
    pub id: String,
    /// Parameter values by parameter id.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Tokens its context holds.
    pub context_window: u32,
    /// Tokens it may write.
    pub max_tokens: u32,
}

/// How the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TurnMode {
    Agent,
    Plan,
}

/// `turn/event`, from us: what happened in a turn, in order, possibly several at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnEventParams {
    /// The turn.
    pub turn_id: String,
    /// What happened.
    pub events: Vec<HostEvent>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The connection failed and is tried again.
    Retrying {
        /// Why.
        reason: String,
    },
}

/// The answer to `turn/start`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The answer is complete.
    Stop,
    /// The host gave it up.
    Aborted,
    /// It failed.
    Error,
}

/// The tokens of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
}

/// `turn/cancel`: ends a turn at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnCancelParams {
    /// The turn.
    pub turn_id: String,
}

/// The answer to `turn/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnCancelResult {
    /// Whether there was such a turn.
    pub found: bool,
}

/// `session/invalidate` and `session/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionParams {
    /// The session.
    pub session_id: String,
}
