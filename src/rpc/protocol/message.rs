//! The messages of a transcript, as documentation for hosts: `host_messages` parses them.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;
#[cfg(test)]
use ts_rs::TS;

use super::HostTool;

/// The JSON text of a message: most messages of a turn are those of the turn before, which are not
/// parsed again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawMessage(Box<RawValue>);

impl RawMessage {
    /// Returns the text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Returns the text.
    pub fn into_text(self) -> Box<str> {
        self.0.into()
    }
}

impl From<&Json> for RawMessage {
    fn from(message: &Json) -> Self {
        let text = RawValue::from_string(message.to_string());
        Self(text.unwrap_or_default())
    }
}

impl PartialEq for RawMessage {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

/// One message of a transcript. Further fields are ignored, except that a changed content makes
/// it another message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum HostMessage {
    /// Adds to the system prompt and changes the tools.
    #[serde(rename_all = "camelCase")]
    System {
        /// Text to append.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        content: Option<TextContent>,
        /// Named parts of the prompt to set; `null` removes one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        sections: Option<BTreeMap<String, Option<String>>>,
        /// Tools that the model may call from now on.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        tools_added: Option<Vec<HostTool>>,
        /// Tools that it may no longer call.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        tools_removed: Option<Vec<ToolName>>,
    },
    /// The same as `system`.
    Developer {
        /// Text to append.
        content: TextContent,
    },
    /// Written by the user.
    User {
        /// Its text and images.
        content: UserContent,
        /// When it was written. Identifies the message, so it must not change.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        timestamp: Option<f64>,
    },
    /// An answer of the model.
    #[serde(rename_all = "camelCase")]
    Assistant {
        /// Its text, thinking and tool calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        content: Option<AssistantContent>,
        /// Tool calls as in OpenAI's chat completions.
        #[serde(rename = "tool_calls", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        tool_calls: Option<Vec<FunctionCall>>,
        /// How it ended. After `toolUse`, `error` and `aborted` the turn continues.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        stop_reason: Option<String>,
        /// When it was written.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        timestamp: Option<f64>,
    },
    /// The result of a tool call.
    #[serde(rename_all = "camelCase")]
    ToolResult {
        /// The id of the call.
        tool_call_id: String,
        /// The host's name of the tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        tool_name: Option<String>,
        /// What the tool returned. The model receives a block of another type as JSON.
        content: UserContent,
        /// Whether the tool failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        is_error: Option<bool>,
        /// When it was written.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        timestamp: Option<f64>,
    },
    /// The result of a tool call, as in OpenAI's chat completions.
    Tool {
        /// The id of the call.
        tool_call_id: String,
        /// What the tool returned.
        content: UserContent,
    },
    /// A command that the user executed in the host.
    #[serde(rename_all = "camelCase")]
    BashExecution {
        /// The command line.
        command: String,
        /// What it printed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        output: Option<String>,
        /// Whether the model must not see it.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        exclude_from_context: Option<bool>,
    },
    /// Added by another program. The model reads it as a message of the user.
    Custom {
        /// Its text and images.
        content: UserContent,
    },
    /// Replaces a branch of the conversation that was left.
    BranchSummary {
        /// The text.
        summary: String,
    },
    /// Replaces the beginning of the conversation.
    CompactionSummary {
        /// The text.
        summary: String,
    },
}

/// Text, whole or in blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum TextContent {
    Text(String),
    Blocks(Vec<TextBlock>),
}

/// A block of text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum TextBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

/// Text, or blocks of text and images.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum UserContent {
    Text(String),
    Blocks(Vec<UserBlock>),
}

/// A block of a user's message or a tool result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image: `data` and `mimeType` as in pi and MCP, or `source` as in Anthropic's API.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Its bytes in base64.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        data: Option<String>,
        /// Its declared type; the bytes decide.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        mime_type: Option<String>,
        /// The image, if `data` is absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        source: Option<ImageSource>,
    },
    /// An image as in OpenAI's API.
    ImageUrl {
        /// The image.
        image_url: ImageUrl,
    },
    /// The result of a tool call as in Anthropic's API; only in a user's message.
    ToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// What the tool returned.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        content: Option<UserContent>,
        /// Whether the tool failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional))]
        is_error: Option<bool>,
    },
}

/// An image as in Anthropic's API.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ImageSource {
    /// An image in the message.
    Base64 {
        /// Its declared type; the bytes decide.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
}

/// An image as in OpenAI's API.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ImageUrl {
    /// `data:image/…;base64,…`. Other addresses are not fetched.
    pub url: String,
}

/// Text, or blocks of text, thinking and tool calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum AssistantContent {
    Text(String),
    Blocks(Vec<AssistantBlock>),
}

/// A block of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AssistantBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A refusal as in OpenAI's API.
    Refusal {
        /// The text.
        refusal: String,
    },
    /// The model's thinking, which is not sent again.
    Thinking {
        /// The text.
        thinking: String,
    },
    /// Encrypted thinking as in Anthropic's API.
    RedactedThinking,
    /// A tool call.
    #[serde(rename = "toolCall")]
    ToolCall {
        /// Its id.
        id: String,
        /// The host's name of the tool.
        name: String,
        /// Its arguments.
        #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
        arguments: serde_json::Value,
    },
    /// A tool call as in Anthropic's API.
    ToolUse {
        /// Its id.
        id: String,
        /// The host's name of the tool.
        name: String,
        /// Its arguments.
        #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
        input: serde_json::Value,
    },
    /// An image, which is not sent again.
    Image,
}

/// A tool call as in OpenAI's chat completions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct FunctionCall {
    /// Its id.
    pub id: String,
    /// What is called.
    pub function: CalledFunction,
}

/// The function of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct CalledFunction {
    /// The host's name of the tool.
    pub name: String,
    /// Its arguments as JSON text.
    pub arguments: String,
}

/// The name of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ToolName {
    /// The name.
    pub name: String,
}
