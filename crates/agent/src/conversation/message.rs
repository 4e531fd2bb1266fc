//! A host's messages as plain text for Cursor.

use serde_json::Value as Json;

use crate::prompts::{IMAGE_ATTACHED, IMAGE_OMITTED};

/// Whether the images of a message are sent with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pictures {
    /// The images are sent.
    Attached,
    /// The images are not sent.
    Omitted,
}

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The user, or a tool that returned a result.
    User,
    /// The model.
    Assistant,
}

/// One message as plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Its role.
    pub speaker: Speaker,
    /// Its text.
    pub text: String,
}

/// Reads a host's message; `None` if it contains nothing for the model.
pub fn read(message: &Json) -> Option<Spoken> {
    read_with(message, Pictures::Omitted)
}

/// Like [`read`], for a message whose images may be sent with it.
pub fn read_with(message: &Json, pictures: Pictures) -> Option<Spoken> {
    if message["excludeFromContext"] == Json::Bool(true) {
        return None;
    }
    let plain =
        |speaker, text: String| (!text.trim().is_empty()).then_some(Spoken { speaker, text });
    let text = |content: &Json| text(content, pictures);
    let call = |message: &Json| {
        let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
        (text("toolName"), text("toolCallId"))
    };
    match message["role"].as_str()? {
        "user" | "custom" => plain(Speaker::User, text(&message["content"])),
        "assistant" => plain(Speaker::Assistant, assistant(message)),
        "toolResult" => {
            let (name, id) = call(message);
            let label = match message["isError"] {
                Json::Bool(true) => "Tool error",
                _ => "Tool result",
            };
            let output = text(&message["content"]);
            plain(
                Speaker::User,
                format!("{label} ({name}, call {id}): {output}"),
            )
        }
        "compactionSummary" | "branchSummary" => plain(
            Speaker::User,
            message["summary"].as_str().unwrap_or_default().to_owned(),
        ),
        "bashExecution" => {
            let part = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
            plain(
                Speaker::User,
                format!("Ran `{}`\n{}", part("command"), part("output")),
            )
        }
        _ => None,
    }
}

/// Returns the text of a content field, with placeholders for images.
pub fn text(content: &Json, pictures: Pictures) -> String {
    match content {
        Json::String(text) => text.clone(),
        Json::Array(blocks) => {
            let parts: Vec<&str> = blocks
                .iter()
                .filter_map(|block| match block["type"].as_str() {
                    Some("text") => block["text"].as_str(),
                    Some("image") => Some(match pictures {
                        Pictures::Attached => IMAGE_ATTACHED,
                        Pictures::Omitted => IMAGE_OMITTED,
                    }),
                    _ => None,
                })
                .collect();
            parts.join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the text and tool calls of an assistant message, without thinking.
fn assistant(message: &Json) -> String {
    let Json::Array(blocks) = &message["content"] else {
        return text(&message["content"], Pictures::Omitted);
    };
    let parts: Vec<String> = blocks
        .iter()
        .filter_map(|block| match block["type"].as_str() {
            Some("text") => block["text"].as_str().map(str::to_owned),
            Some("toolCall") => {
                let part = |key: &str| block[key].as_str().unwrap_or_default();
                let arguments = &block["arguments"];
                Some(format!(
                    "Tool call ({}, call {}): {arguments}",
                    part("name"),
                    part("id")
                ))
            }
            _ => None,
        })
        .filter(|part| !part.trim().is_empty())
        .collect();
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role_and_text(message: Json) -> Option<(Speaker, String)> {
        read(&message).map(|plain| (plain.speaker, plain.text))
    }

    #[test]
    fn every_role_is_converted_to_text() {
        let user = json!({"role": "user", "content": [
            {"type": "text", "text": "look"}, {"type": "image", "data": "AA", "mimeType": "image/png"}]});
        assert_eq!(
            role_and_text(user),
            Some((Speaker::User, format!("look\n{IMAGE_OMITTED}")))
        );
        let assistant = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I read."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}]});
        assert_eq!(
            role_and_text(assistant),
            Some((
                Speaker::Assistant,
                "I read.\nTool call (read, call c1): {\"path\":\"a\"}".into()
            ))
        );
        let result = json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read",
            "content": [{"type": "text", "text": "gone"}], "isError": true});
        assert_eq!(
            role_and_text(result),
            Some((Speaker::User, "Tool error (read, call c1): gone".into()))
        );
        let shell = json!({"role": "bashExecution", "command": "ls", "output": "a\n"});
        assert_eq!(
            role_and_text(shell),
            Some((Speaker::User, "Ran `ls`\na\n".into()))
        );
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        assert_eq!(read(&json!({"role": "user", "content": "  "})), None);
        let thought =
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]});
        assert_eq!(read(&thought), None);
        let hidden = json!({"role": "bashExecution", "command": "ls", "output": "a", "excludeFromContext": true});
        assert_eq!(read(&hidden), None);
        assert_eq!(read(&json!({"role": "system", "content": "x"})), None);
        // The error of a turn is not part of the answer.
        let failed =
            json!({"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "x"});
        assert_eq!(read(&failed), None);
        assert_eq!(read(&json!(7)), None);
    }
}
