//! The text that identifies a message: what its hash is made of.

use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::{AnswerPart, Content, MessageKind};
use crate::hex::hex;

/// Returns the text that identifies a content. Stored hashes are made of it, so it must not change.
pub(super) fn identity(kind: &MessageKind) -> Vec<String> {
    match kind {
        MessageKind::User(content) => vec![content_identity(content)],
        MessageKind::Custom(content) => vec!["null".into(), content_identity(content)],
        MessageKind::Assistant(answer) => {
            let parts = answer.parts.iter().filter_map(|part| match part {
                AnswerPart::Text(text) => Some(json!({"type": "text", "text": text})),
                AnswerPart::Call(call) => Some(json!({"type": "toolCall", "id": call.id,
                    "name": call.name, "arguments": call.arguments})),
                AnswerPart::Image => Some(json!({"type": "image"})),
                AnswerPart::Thinking(_) => None,
            });
            vec![Json::Array(parts.collect()).to_string()]
        }
        MessageKind::ToolResult(result) => vec![
            content_identity(&result.content),
            json!(result.call_id).to_string(),
            json!(result.tool).to_string(),
            result.is_error.to_string(),
        ],
        MessageKind::Command { command, output } => vec![
            json!(command).to_string(),
            json!(output).to_string(),
            "null".into(),
            "false".into(),
        ],
        MessageKind::Summary { text, .. } => vec![json!(text).to_string(), "null".into()],
    }
}

fn content_identity(content: &[Content]) -> String {
    let parts = content.iter().map(|part| match part {
        Content::Text(text) => json!({"type": "text", "text": text}),
        Content::Image { data, mime_type } => {
            json!({"type": "image", "data": short_hash(data), "mimeType": mime_type})
        }
    });
    Json::Array(parts.collect()).to_string()
}

/// Returns a short hash. Identities contain it instead of an image's data.
pub fn short_hash(data: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(data)[..8])
}
