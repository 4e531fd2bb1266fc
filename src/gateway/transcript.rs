//! Converts a client's messages to the form the modules below use.
//!
//! The same text gives the same result, whether a client sends a string or parts, because later
//! requests are matched to earlier ones by it.

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::api_error::ApiError as Fault;
use super::chat_request::{RawCall, RawMessage};

/// Converts messages; system messages are still among them.
pub(super) fn messages(raw: Vec<RawMessage>) -> Result<Vec<Json>, Fault> {
    if raw.is_empty() {
        return Err(Fault::field("messages", "there is none"));
    }
    let mut names: HashMap<String, String> = HashMap::new();
    let mut messages = Vec::with_capacity(raw.len());
    for (index, message) in raw.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        let content = blocks(&message.content, &format!("{at}.content"))?;
        messages.push(match message.role.as_str() {
            role @ ("system" | "developer" | "user") => json!({"role": role, "content": content}),
            "assistant" => {
                let calls = message.tool_calls.unwrap_or_default();
                for call in &calls {
                    names.insert(call.id.clone(), call.function.name.clone());
                }
                let calls = calls.into_iter().map(call);
                let content: Vec<Json> = content.into_iter().chain(calls).collect();
                json!({"role": "assistant", "content": content})
            }
            "tool" => {
                let Some(id) = message.tool_call_id else {
                    let at = format!("{at}.tool_call_id");
                    return Err(Fault::field(&at, "it is missing"));
                };
                let name = names.get(&id).cloned().unwrap_or_default();
                json!({"role": "toolResult", "toolCallId": id, "toolName": name,
                       "content": content, "isError": false})
            }
            other => {
                let problem =
                    format!("{other:?} is none of system, developer, user, assistant, tool");
                return Err(Fault::field(&format!("{at}.role"), &problem));
            }
        });
    }
    Ok(messages)
}

/// Converts a tool call of the model. Arguments that are not JSON stay text.
fn call(call: RawCall) -> Json {
    let text = call.function.arguments;
    let arguments = serde_json::from_str(&text).unwrap_or(Json::String(text));
    json!({"type": "toolCall", "id": call.id, "name": call.function.name, "arguments": arguments})
}

/// Returns the content of a message as blocks, without empty ones.
fn blocks(content: &Json, at: &str) -> Result<Vec<Json>, Fault> {
    let text = |text: &str| json!({"type": "text", "text": text});
    match content {
        Json::Null => Ok(Vec::new()),
        Json::String(value) if value.is_empty() => Ok(Vec::new()),
        Json::String(value) => Ok(vec![text(value)]),
        Json::Array(parts) => {
            let parts = parts.iter().enumerate();
            let blocks = parts.map(|(index, part)| {
                let at = format!("{at}[{index}]");
                match part["type"].as_str() {
                    Some(kind @ ("text" | "refusal")) => match part[kind].as_str() {
                        Some(value) => Ok(text(value)),
                        None => Err(Fault::field(&format!("{at}.{kind}"), "expected a string")),
                    },
                    Some("image_url") => picture(&part["image_url"], &format!("{at}.image_url")),
                    _ => {
                        let problem = "only parts of type text and image_url can be read";
                        Err(Fault::field(&format!("{at}.type"), problem))
                    }
                }
            });
            blocks.collect()
        }
        _ => Err(Fault::field(at, "expected a string or a list of parts")),
    }
}

/// Returns an image that is embedded in the request. Others are not fetched, because the gateway
/// connects to Cursor only.
fn picture(image: &Json, at: &str) -> Result<Json, Fault> {
    let url = image["url"].as_str().or(image.as_str());
    let data = url
        .and_then(|url| url.strip_prefix("data:"))
        .and_then(|rest| rest.split_once(','))
        .and_then(|(kind, data)| Some((kind.strip_suffix(";base64")?, data)));
    match data {
        Some((kind, data)) => Ok(json!({"type": "image", "data": data, "mimeType": kind})),
        None => Err(Fault::field(
            &format!("{at}.url"),
            "expected a picture as data:image/…;base64,…; others are not fetched",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: Json) -> Result<Vec<Json>, Fault> {
        messages(serde_json::from_value(raw).unwrap())
    }

    #[test]
    fn a_conversation_with_tools_and_pictures() {
        let url = "data:image/png;base64,AAAA";
        let raw = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": url}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "see", "arguments": "{\"q\":1}"}},
                {"id": "d", "type": "function", "function": {"name": "see", "arguments": "oops"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ]);
        let wanted = [
            json!({"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}),
            json!({"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
            json!({"role": "assistant", "content": [
                {"type": "toolCall", "id": "c", "name": "see", "arguments": {"q": 1}},
                {"type": "toolCall", "id": "d", "name": "see", "arguments": "oops"}]}),
            json!({"role": "toolResult", "toolCallId": "c", "toolName": "see",
                "content": [{"type": "text", "text": "42"}], "isError": false}),
        ];
        assert_eq!(read(raw).unwrap(), wanted);
    }

    #[test]
    fn a_string_and_parts_give_the_same_blocks() {
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
