//! A host's messages as plain text for Cursor.

use crate::message::{Answer, AnswerPart, Content, Message, MessageKind};
use crate::prompts::{IMAGE_ATTACHED, IMAGE_OMITTED};
use agent_tools::bridge::question;

/// Whether the images of a message are sent with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageHandling {
    /// The images are sent.
    Attached,
    /// The images are not sent.
    Omitted,
}

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user, or a tool that returned a result.
    User,
    /// The model.
    Assistant,
}

/// One message as plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatMessage {
    /// Its role.
    pub role: Role,
    /// Its text.
    pub text: String,
}

/// Reads a host's message; `None` if it contains nothing for the model.
pub fn flatten(message: &Message) -> Option<FlatMessage> {
    flatten_with(message, ImageHandling::Omitted)
}

/// Like [`flatten`], for a message whose images may be sent with it.
pub fn flatten_with(message: &Message, images: ImageHandling) -> Option<FlatMessage> {
    if message.is_excluded() {
        return None;
    }
    let (role, text) = match message.kind() {
        MessageKind::User(content) | MessageKind::Custom(content) => {
            (Role::User, text(content, images))
        }
        MessageKind::Assistant(answer) => (Role::Assistant, answer_with_calls(answer)),
        MessageKind::ToolResult(result) => {
            let label = if result.is_error {
                "Tool error"
            } else {
                "Tool result"
            };
            let (tool, id) = (displayed_name(&result.tool), &result.call_id);
            let output = text(&result.content, images);
            (Role::User, format!("{label} ({tool}, call {id}): {output}"))
        }
        MessageKind::Summary { text, .. } => (Role::User, text.clone()),
        MessageKind::Command { command, output } => {
            (Role::User, format!("Ran `{command}`\n{output}"))
        }
    };
    (!text.trim().is_empty()).then_some(FlatMessage { role, text })
}

/// Returns the name of a tool as the model may read it. Cards of Cursor's own tools, ours and those
/// of older extensions (`cursor_edit`), get a neutral label, because such names cannot be called.
fn displayed_name(tool: &str) -> &str {
    let is_card = tool == "cursor" || (tool.starts_with("cursor_") && tool != question::TOOL);
    if is_card { "Cursor activity" } else { tool }
}

/// Returns the text of a content, with placeholders for images.
pub fn text(content: &[Content], images: ImageHandling) -> String {
    let parts: Vec<&str> = content
        .iter()
        .map(|part| match (part, images) {
            (Content::Text(text), _) => text.as_str(),
            (Content::Image { .. }, ImageHandling::Attached) => IMAGE_ATTACHED,
            (Content::Image { .. }, ImageHandling::Omitted) => IMAGE_OMITTED,
        })
        .collect();
    parts.join("\n")
}

/// Returns the text and tool calls of an answer, without thinking.
fn answer_with_calls(answer: &Answer) -> String {
    let parts: Vec<String> = answer
        .parts
        .iter()
        .filter_map(|part| match part {
            AnswerPart::Text(text) => Some(text.clone()),
            AnswerPart::Call(call) => Some(format!(
                "Tool call ({}, call {}): {}",
                displayed_name(&call.name),
                call.id,
                call.arguments
            )),
            AnswerPart::Thinking(_) | AnswerPart::Image => None,
        })
        .filter(|part| !part.trim().is_empty())
        .collect();
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolCall, ToolResult};
    use serde_json::json;

    fn role_and_text(message: &Message) -> Option<(Role, String)> {
        flatten(message).map(|plain| (plain.role, plain.text))
    }

    #[test]
    fn every_kind_is_converted_to_text() {
        let image = Content::Image {
            data: "AA".into(),
            mime_type: "image/png".into(),
        };
        let user = Message::new(MessageKind::User(vec![Content::Text("look".into()), image]));
        assert_eq!(
            role_and_text(&user),
            Some((Role::User, format!("look\n{IMAGE_OMITTED}")))
        );
        let assistant = Message::answer(vec![
            AnswerPart::Thinking("hm".into()),
            AnswerPart::Text("I read.".into()),
            AnswerPart::Call(ToolCall {
                id: "c1".into(),
                name: "read".into(),
                arguments: json!({"path": "a"}),
            }),
        ]);
        assert_eq!(
            role_and_text(&assistant),
            Some((
                Role::Assistant,
                "I read.\nTool call (read, call c1): {\"path\":\"a\"}".into()
            ))
        );
        let result = Message::tool_result("c1", "read", "gone");
        let failed = Message::new(MessageKind::ToolResult(ToolResult {
            is_error: true,
            ..result.as_tool_result().unwrap().clone()
        }));
        assert_eq!(
            role_and_text(&failed),
            Some((Role::User, "Tool error (read, call c1): gone".into()))
        );
        assert_eq!(
            role_and_text(&command()),
            Some((Role::User, "Ran `ls`\na\n".into()))
        );
    }

    #[test]
    fn cards_have_a_neutral_label() {
        for (tool, label) in [
            ("cursor", "Cursor activity"),
            ("cursor_edit", "Cursor activity"),
            ("cursor_ask_question", "cursor_ask_question"),
            ("bash", "bash"),
        ] {
            let result = Message::tool_result("c1", tool, "ok");
            let text = format!("Tool result ({label}, call c1): ok");
            assert_eq!(role_and_text(&result), Some((Role::User, text)));
        }
    }

    fn command() -> Message {
        Message::new(MessageKind::Command {
            command: "ls".into(),
            output: "a\n".into(),
        })
    }

    #[test]
    fn messages_without_text_are_left_out() {
        assert_eq!(flatten(&Message::user("  ")), None);
        let thought = Message::answer(vec![AnswerPart::Thinking("x".into())]);
        assert_eq!(flatten(&thought), None);
        assert_eq!(flatten(&command().excluded()), None);
        assert_eq!(flatten(&Message::answer(Vec::new())), None);
    }
}
