//! Converts a client's messages to the engine's types.
//!
//! The same text gives the same result, whether a client sends a string or parts, because later
//! requests are matched to earlier ones by it.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::api_error::ApiError;
use super::chat_request::{RawCall, RawMessage};
use crate::image_url;
use agent::conversation::transcript::{Tool, Transcript};
use agent::message::{Answer, AnswerPart, Content, Message, MessageKind, ToolCall, ToolResult};

/// Converts messages. System and developer messages become the system prompt.
pub(super) fn transcript(raw: Vec<RawMessage>, tools: Vec<Tool>) -> Result<Transcript, ApiError> {
    if raw.is_empty() {
        return Err(ApiError::field("messages", "there is none"));
    }
    let mut names: HashMap<String, String> = HashMap::new();
    let mut system = Vec::new();
    let mut messages = Vec::with_capacity(raw.len());
    for (index, message) in raw.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        let content = parts(&message.content, &format!("{at}.content"))?;
        messages.push(Message::new(match message.role.as_str() {
            "system" | "developer" => {
                system.push(system_text(content, &at)?);
                continue;
            }
            "user" => MessageKind::User(content),
            "assistant" => {
                let calls = message.tool_calls.unwrap_or_default();
                for call in &calls {
                    names.insert(call.id.clone(), call.function.name.clone());
                }
                // An answer that waits for tools does not end its turn.
                let is_complete = calls.is_empty();
                let calls = calls.into_iter().map(|raw| AnswerPart::Call(call(raw)));
                let parts = content.into_iter().map(|part| match part {
                    Content::Text(text) => AnswerPart::Text(text),
                    Content::Image { .. } => AnswerPart::Image,
                });
                let parts = parts.chain(calls);
                MessageKind::Assistant(Answer {
                    parts: parts.collect(),
                    is_complete,
                })
            }
            "tool" => {
                let Some(call_id) = message.tool_call_id else {
                    let at = format!("{at}.tool_call_id");
                    return Err(ApiError::field(&at, "it is missing"));
                };
                MessageKind::ToolResult(ToolResult {
                    tool: names.get(&call_id).cloned().unwrap_or_default(),
                    call_id,
                    content,
                    is_error: false,
                    details: Json::Null,
                    structured: None,
                })
            }
            other => {
                let problem =
                    format!("{other:?} is none of system, developer, user, assistant, tool");
                return Err(ApiError::field(&format!("{at}.role"), &problem));
            }
        }));
    }
    system.retain(|text| !text.trim().is_empty());
    Ok(Transcript {
        system: system.join("\n\n"),
        tools,
        messages,
    })
}

fn system_text(content: Vec<Content>, at: &str) -> Result<String, ApiError> {
    let texts = content
        .into_iter()
        .enumerate()
        .map(|(index, part)| match part {
            Content::Text(text) => Ok(text),
            Content::Image { .. } => {
                let at = format!("{at}.content[{index}].type");
                Err(ApiError::field(&at, "a system prompt has no images"))
            }
        });
    Ok(texts.collect::<Result<Vec<String>, ApiError>>()?.join("\n"))
}

/// Converts a tool call of the model. Arguments that are not JSON stay text.
fn call(call: RawCall) -> ToolCall {
    let text = call.function.arguments;
    ToolCall {
        id: call.id,
        name: call.function.name,
        arguments: serde_json::from_str(&text).unwrap_or(Json::String(text)),
    }
}

/// Returns the content of a message, without empty text.
fn parts(content: &Json, at: &str) -> Result<Vec<Content>, ApiError> {
    match content {
        Json::Null => Ok(Vec::new()),
        Json::String(value) if value.is_empty() => Ok(Vec::new()),
        Json::String(value) => Ok(vec![Content::Text(value.clone())]),
        Json::Array(parts) => {
            let parts = parts.iter().enumerate();
            let parts = parts.map(|(index, part)| {
                let at = format!("{at}[{index}]");
                match part["type"].as_str() {
                    Some(kind @ ("text" | "refusal")) => match part[kind].as_str() {
                        Some(value) => Ok(Content::Text(value.into())),
                        None => Err(ApiError::field(
                            &format!("{at}.{kind}"),
                            "expected a string",
                        )),
                    },
                    Some("image_url") => image(&part["image_url"], &format!("{at}.image_url")),
                    _ => {
                        let problem = "only parts of type text and image_url can be read";
                        Err(ApiError::field(&format!("{at}.type"), problem))
                    }
                }
            });
            parts.collect()
        }
        _ => Err(ApiError::field(at, "expected a string or a list of parts")),
    }
}

fn image(image: &Json, at: &str) -> Result<Content, ApiError> {
    let url = image["url"].as_str().or(image.as_str());
    match url.and_then(image_url::parse) {
        Some((mime_type, data)) => Ok(Content::Image { data, mime_type }),
        None => Err(ApiError::field(&format!("{at}.url"), image_url::EXPECTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(raw: Json) -> Result<Transcript, ApiError> {
        transcript(serde_json::from_value(raw).unwrap(), Vec::new())
    }

    #[test]
    fn a_conversation_with_tools_and_pictures() {
        let url = "data:image/png;base64,AAAA";
        let raw = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "system", "content": " "},
            {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": url}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "see", "arguments": "{\"q\":1}"}},
                {"id": "d", "type": "function", "function": {"name": "see", "arguments": "oops"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ]);
        let call = |id: &str, arguments: Json| {
            AnswerPart::Call(ToolCall {
                id: id.into(),
                name: "see".into(),
                arguments,
            })
        };
        let image = Content::Image {
            data: "AAAA".into(),
            mime_type: "image/png".into(),
        };
        let wanted = [
            Message::new(MessageKind::User(vec![Content::Text("look".into()), image])),
            Message::new(MessageKind::Assistant(Answer {
                parts: vec![call("c", json!({"q": 1})), call("d", json!("oops"))],
                is_complete: false,
            })),
            Message::tool_result("c", "see", "42"),
        ];
        let read = read(raw).unwrap();
        assert_eq!(read.messages, wanted);
        assert_eq!(read.system, "Be brief.\n\nBe\nkind.");
    }

    #[test]
    fn a_string_and_parts_give_the_same_content() {
        let parts = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
        let string = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(read(parts).unwrap(), read(string).unwrap());
    }

    #[test]
    fn an_invalid_field_is_named() {
        let image = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
        let cases = [
            (json!([]), "messages"),
            (
                json!([{"role": "robot", "content": "hi"}]),
                "messages[0].role",
            ),
            (
                json!([{"role": "user", "content": 7}]),
                "messages[0].content",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
                "messages[0].content[0].type",
            ),
            (
                json!([{"role": "user", "content": [image]}]),
                "messages[0].content[0].image_url.url",
            ),
            (
                json!([{"role": "system", "content": [{"type": "image_url",
                    "image_url": {"url": "data:image/png;base64,AAAA"}}]}]),
                "messages[0].content[0].type",
            ),
            (
                json!([{"role": "tool", "content": "x"}]),
                "messages[0].tool_call_id",
            ),
        ];
        for (raw, param) in cases {
            let fault = read(raw.clone()).unwrap_err();
            assert_eq!(fault.body()["error"]["param"], param, "{raw}");
        }
    }
}
