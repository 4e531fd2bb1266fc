//! `session/*` and `question/*`: what a person controls from the host. The host registers what
//! `initialize` lists and passes words on; what they mean is decided here.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{LogLevel, ModelRow};

/// `session/invalidate` and `session/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionParams {
    /// The session.
    pub session_id: String,
}

/// A command for a person to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct CommandOffer {
    /// Its name, without a slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Words it may be given, if those are known.
    pub arguments: Vec<CommandWord>,
}

/// A word a command may be given, for completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct CommandWord {
    /// The word.
    pub value: String,
    /// How it is shown.
    pub label: String,
    /// What it does.
    pub description: String,
}

/// A flag to start a host with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct FlagOffer {
    /// Its name, without dashes.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it takes.
    #[serde(rename = "type")]
    pub kind: FlagKind,
}

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "lowercase")]
pub enum FlagKind {
    /// Nothing.
    Boolean,
    /// A word.
    String,
}

/// What the host keeps for us. It brings it along each time, so nothing is lost with a
/// process of ours.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kept {
    /// The flags it was started with, by name.
    #[serde(default)]
    #[ts(type = "Record<string, unknown>")]
    pub flags: BTreeMap<String, serde_json::Value>,
    /// The last entry of the session, as `session/command` gave it.
    #[serde(default)]
    #[ts(type = "unknown", optional)]
    pub entry: serde_json::Value,
}

/// `session/command`: a person's command; without one, only the state of things is asked for.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionCommandParams {
    /// The command, without a slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub command: Option<String>,
    /// What follows it.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub arguments: String,
    /// The chosen model, by the id of its row; absent if it is not one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub model: Option<String>,
    /// The host's tools that are active, by name.
    #[serde(default)]
    #[ts(as = "Option<_>", optional)]
    pub tools: Vec<String>,
    /// Where the session works; else where the host does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub workspace: Option<String>,
    /// What the host keeps for us.
    #[serde(default)]
    pub kept: Kept,
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub api_key: Option<String>,
}

impl std::fmt::Debug for SessionCommandParams {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionCommandParams")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// The answer to `session/command`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct SessionCommandResult {
    /// What to tell the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub message: Option<String>,
    /// How much that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub level: Option<LogLevel>,
    /// The status line; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub status: Option<String>,
    /// To be kept with the session, in place of the entry before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(type = "unknown", optional)]
    pub entry: Option<serde_json::Value>,
    /// The rows to register from now on, if they are others than the host has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub models: Option<Vec<ModelRow>>,
}

/// A tool for the host to register, which lets the model ask a person. Its calls are taken
/// to `question/next`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct QuestionTool {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    #[ts(type = "Record<string, unknown>")]
    pub parameters: serde_json::Value,
}

/// `question/next`: what to put to the person next.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuestionNextParams {
    /// The arguments of the call.
    #[ts(type = "unknown")]
    pub arguments: serde_json::Value,
    /// What the person said so far, in order; null where they gave up.
    pub answers: Vec<Option<String>>,
    /// Whether there is a person to ask.
    pub has_ui: bool,
}

/// The answer to `question/next`: something to put, or the result.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct QuestionNextResult {
    /// What to put to the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub put: Option<Put>,
    /// The result of the call, for the model.
    #[serde(default)]
    pub text: String,
    /// The same, answer by answer.
    #[serde(default)]
    #[ts(type = "unknown")]
    pub details: serde_json::Value,
}

/// A question on a screen.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct Put {
    /// The question.
    pub title: String,
    /// What to choose from; absent if the person writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub options: Option<Vec<String>>,
}
