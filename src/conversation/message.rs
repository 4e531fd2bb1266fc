//! A host's messages, as far as a conversation with Cursor needs them.

use serde_json::Value as Json;

use crate::prompts::{IMAGE_ATTACHED, IMAGE_OMITTED};

/// Whether the pictures of a message are sent with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pictures {
    /// They are.
    Attached,
    /// They are not.
    Omitted,
}

/// Who a line of the conversation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The person, or a tool that answered the model.
    User,
    /// The model.
    Assistant,
}

/// One message in plain words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Whose words.
    pub speaker: Speaker,
    /// The words.
    pub text: String,
}

/// Reads a message of a host; `None` where it says nothing to the model.
pub fn read(message: &Json) -> Option<Spoken> {
    read_with(message, Pictures::Omitted)
}

/// The same, for a message whose pictures may go with it.
pub fn read_with(message: &Json, pictures: Pictures) -> Option<Spoken> {
    if message["excludeFromContext"] == Json::Bool(true) {
        return None;
    }
    let spoken =
        |speaker, text: String| (!text.trim().is_empty()).then_some(Spoken { speaker, text });
    let text = |content: &Json| text(content, pictures);
    let call = |message: &Json| {
        let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
        (text("toolName"), text("toolCallId"))
    };
    match message["role"].as_str()? {
        "user" | "custom" => spoken(Speaker::User, text(&message["content"])),
        "assistant" => spoken(Speaker::Assistant, assistant(message)),
        "toolResult" => {
            let (name, id) = call(message);
            let label = match message["isError"] {
                Json::Bool(true) => "Tool error",
                _ => "Tool result",
            };
            let said = text(&message["content"]);
            spoken(
                Speaker::User,
                format!("{label} ({name}, call {id}): {said}"),
            )
        }
        "compactionSummary" | "branchSummary" => spoken(
            Speaker::User,
            message["summary"].as_str().unwrap_or_default().to_owned(),
        ),
        "bashExecution" => {
            let part = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
            spoken(
                Speaker::User,
                format!("Ran `{}`\n{}", part("command"), part("output")),
            )
        }
        _ => None,
    }
}

/// The text of a content field, pictures by their placeholder.
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

/// Text and tool calls of the model, thoughts left out.
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

    fn words(message: Json) -> Option<(Speaker, String)> {
        read(&message).map(|spoken| (spoken.speaker, spoken.text))
    }

    #[test]
    fn every_role_in_plain_words() {
        let user = json!({"role": "user", "content": [
            {"type": "text", "text": "look"}, {"type": "image", "data": "AA", "mimeType": "image/png"}]});
        assert_eq!(
            words(user),
            Some((Speaker::User, format!("look\n{IMAGE_OMITTED}")))
        );
        let assistant = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I read."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}]});
        assert_eq!(
            words(assistant),
            Some((
                Speaker::Assistant,
                "I read.\nTool call (read, call c1): {\"path\":\"a\"}".into()
            ))
        );
        let result = json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read",
            "content": [{"type": "text", "text": "gone"}], "isError": true});
        assert_eq!(
            words(result),
            Some((Speaker::User, "Tool error (read, call c1): gone".into()))
        );
        let shell = json!({"role": "bashExecution", "command": "ls", "output": "a\n"});
        assert_eq!(words(shell), Some((Speaker::User, "Ran `ls`\na\n".into())));
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
        // How a turn failed is not what the model said.
        let failed =
            json!({"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "x"});
        assert_eq!(read(&failed), None);
        assert_eq!(read(&json!(7)), None);
    }
}
