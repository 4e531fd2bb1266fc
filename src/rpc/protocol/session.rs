//! `session/*` and `question/*`: what a user controls from the host. The host registers what
//! `initialize` lists and passes input on; the sidecar interprets it.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use super::{LogLevel, ModelRow};

/// `session/invalidate` and `session/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionParams {
    /// The session.
    pub session_id: String,
}

/// A command for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct SlashCommand {
    /// Its name, without a slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Possible arguments, if they are known.
    pub arguments: Vec<CommandArgument>,
}

/// A possible argument of a command, for completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct CommandArgument {
    /// The argument.
    pub value: String,
    /// Its label.
    pub label: String,
    /// What it does.
    pub description: String,
}

/// A command-line flag of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct FlagSpec {
    /// Its name, without dashes.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What value it takes.
    #[serde(rename = "type")]
    pub kind: FlagKind,
}

/// What value a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum FlagKind {
    /// None.
    Boolean,
    /// A string.
    String,
}

/// State the host keeps for the sidecar and sends each time, so that it survives the sidecar's
/// process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SavedChoices {
    /// The flags the host was started with, by name.
    #[serde(default)]
    #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
    pub flags: BTreeMap<String, serde_json::Value>,
    /// The session's latest entry from `session/command`.
    #[serde(default)]
    #[cfg_attr(test, ts(type = "unknown", optional))]
    pub entry: serde_json::Value,
}

/// `session/command`: a command of the user; without one, it only returns the current state.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionCommandParams {
    /// The command, without a slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub arguments: String,
    /// The id of the selected model; absent if it is not from `models/list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub model: Option<String>,
    /// The names of the host's active tools.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub tools: Vec<String>,
    /// The session's working directory; the host's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub workspace: Option<String>,
    /// The session's id, as in `turn/start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub session_id: Option<String>,
    /// State the host keeps for the sidecar.
    #[serde(default)]
    pub kept: SavedChoices,
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct SessionCommandResult {
    /// A message for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub message: Option<String>,
    /// Its severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub level: Option<LogLevel>,
    /// The status line; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub status: Option<String>,
    /// The entry to keep with the session, in place of the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(type = "unknown", optional))]
    pub entry: Option<serde_json::Value>,
    /// The models to register from now on, if they have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub models: Option<Vec<ModelRow>>,
}

/// A tool for the host to register, with which the model asks the user. The host passes its calls
/// to `question/next`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct QuestionTool {
    /// Its name.
    pub name: String,
    /// Its display name.
    pub label: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
    pub parameters: serde_json::Value,
}

/// `question/next`: returns what to ask the user next.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuestionNextParams {
    /// The arguments of the call.
    #[cfg_attr(test, ts(type = "unknown"))]
    pub arguments: serde_json::Value,
    /// The user's answers so far, in order; null where the user dismissed the question.
    pub answers: Vec<Option<String>>,
    /// Whether the host can ask the user.
    pub has_ui: bool,
}

/// The answer to `question/next`: the next question, or the result.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct QuestionNextResult {
    /// What to ask the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub put: Option<QuestionPrompt>,
    /// The result of the call, for the model.
    #[serde(default)]
    pub text: String,
    /// The result by question, for display.
    #[serde(default)]
    #[cfg_attr(test, ts(type = "unknown"))]
    pub details: serde_json::Value,
}

/// A question to display.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct QuestionPrompt {
    /// The question.
    pub title: String,
    /// The options; absent if the user enters text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub options: Option<Vec<String>>,
}
