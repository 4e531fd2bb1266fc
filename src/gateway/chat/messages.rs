//! Converts the messages of a chat completion to the engine's types.

use serde_json::Value as Json;

use super::super::api_error::ApiError;
use super::super::transcript_builder::{
    TranscriptBuilder, answer_parts, call_part, content, image_part, system_text, text_part,
};
use super::request::ChatMessage;
use agent::conversation::transcript::{Tool, Transcript};
use agent::message::Content;

/// Converts messages. System and developer messages at the beginning become the system prompt.
pub(super) fn transcript(raw: Vec<ChatMessage>, tools: Vec<Tool>) -> Result<Transcript, ApiError> {
    let mut builder = TranscriptBuilder::default();
    for (index, message) in raw.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        let content = content(&message.content, &format!("{at}.content"), part)?;
        if message.function_call.is_some() {
            let problem = "functions are no longer supported; send tool_calls instead";
            return Err(ApiError::field(&format!("{at}.function_call"), problem));
        }
        match message.role.as_str() {
            "system" | "developer" => builder.system(system_text(content, &at)?),
            "user" => builder.user(content),
            "assistant" => {
                let calls = message.tool_calls.unwrap_or_default().into_iter();
                let calls = calls
                    .map(|call| call_part(call.id, call.function.name, call.function.arguments));
                builder.answer(answer_parts(content).chain(calls));
            }
            "tool" => {
                let Some(call_id) = message.tool_call_id else {
                    let at = format!("{at}.tool_call_id");
                    return Err(ApiError::field(&at, "it is missing"));
                };
                builder.result(call_id, content, false);
            }
            other => {
                let problem =
                    format!("{other:?} is none of system, developer, user, assistant, tool");
                return Err(ApiError::field(&format!("{at}.role"), &problem));
            }
        }
    }
    builder.finish(tools, "messages")
}

fn part(part: &Json, at: &str) -> Result<Option<Content>, ApiError> {
    match part["type"].as_str() {
        Some(kind @ ("text" | "refusal")) => text_part(part, kind, at).map(Some),
        Some("image_url") => {
            let url = part["image_url"]["url"].as_str();
            let url = url.or(part["image_url"].as_str());
            image_part(url, &format!("{at}.image_url.url")).map(Some)
        }
        _ => {
            let problem = "only parts of type text and image_url can be read";
            Err(ApiError::field(&format!("{at}.type"), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::message::{Answer, AnswerPart, Message, MessageKind, ToolCall};
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
            (
                json!([{"role": "user", "content": "go"},
                    {"role": "assistant", "content": null,
                     "function_call": {"name": "see", "arguments": "{}"}}]),
                "messages[1].function_call",
            ),
        ];
        for (raw, param) in cases {
            let fault = read(raw.clone()).unwrap_err();
            assert_eq!(fault.body()["error"]["param"], param, "{raw}");
        }
    }
}
