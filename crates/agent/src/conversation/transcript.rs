//! What a host sends with a turn: system prompt, tools and messages.

use serde_json::Value as Json;

use crate::message::Message;

/// A host's transcript. System messages are part of the prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    /// The effective system prompt.
    pub system: String,
    /// The effective tools, in the order they were added.
    pub tools: Vec<Tool>,
    /// All other messages, oldest first.
    pub messages: Vec<Message>,
}

/// A tool of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The host's name for it.
    pub name: String,
    /// Its description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
}
