//! Converts the input items of a response to the engine's types.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::{Value as Json, json};

use super::super::api_error::ApiError;
use super::super::body::BoundedList;
use super::super::transcript_builder::{
    TranscriptBuilder, answer_parts, call_part, content, image_part, system_text, text_part,
};
use super::tool_names::flat_name;
use agent::message::{AnswerPart, Content, ToolCall};

/// The input: one text, or items.
#[derive(Debug)]
pub(super) enum Input {
    Text(String),
    Items(Vec<Json>),
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct InputVisitor;

        impl<'de> Visitor<'de> for InputVisitor {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of items")
            }

            fn visit_str<E>(self, text: &str) -> Result<Input, E> {
                Ok(Input::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Input, A::Error> {
                BoundedList(PhantomData).visit_seq(items).map(Input::Items)
            }
        }

        source.deserialize_any(InputVisitor)
    }
}

impl Input {
    /// Returns the contents that may have images.
    pub(super) fn contents(&mut self) -> impl Iterator<Item = &mut Json> {
        let items = match self {
            Self::Text(_) => &mut [][..],
            Self::Items(items) => items,
        };
        items.iter_mut().filter_map(|item| {
            let field = match item["type"].as_str() {
                Some("function_call_output" | "custom_tool_call_output") => "output",
                _ => "content",
            };
            item.get_mut(field)
        })
    }

    /// Adds the items to a transcript.
    pub(super) fn add_to(self, builder: &mut TranscriptBuilder) -> Result<(), ApiError> {
        match self {
            Self::Text(text) => builder.user(content(&text.into(), "input", part)?),
            Self::Items(items) => {
                for (index, item) in items.iter().enumerate() {
                    add(builder, item, &format!("input[{index}]"))?;
                }
            }
        }
        Ok(())
    }
}

fn add(builder: &mut TranscriptBuilder, item: &Json, at: &str) -> Result<(), ApiError> {
    let field = |name: &str| match item[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(ApiError::field(
            &format!("{at}.{name}"),
            "expected a string",
        )),
    };
    let kind = item["type"].as_str();
    match kind {
        None | Some("message") => {
            let said = content(&item["content"], &format!("{at}.content"), part)?;
            match item["role"].as_str() {
                Some("user") => builder.user(said),
                Some("assistant") => builder.answer(answer_parts(said)),
                Some("system" | "developer") => builder.system(system_text(said, at)?),
                _ => {
                    let problem = "expected user, assistant, system or developer";
                    return Err(ApiError::field(&format!("{at}.role"), problem));
                }
            }
        }
        Some("function_call") => {
            let name = flat_name(item["namespace"].as_str(), &field("name")?);
            builder.answer([call_part(field("call_id")?, name, field("arguments")?)]);
        }
        Some("custom_tool_call") => builder.answer([AnswerPart::Call(ToolCall {
            id: field("call_id")?,
            name: flat_name(item["namespace"].as_str(), &field("name")?),
            arguments: json!({"input": field("input")?}),
        })]),
        Some("function_call_output" | "custom_tool_call_output") => {
            let output = content(&item["output"], &format!("{at}.output"), part)?;
            builder.result(field("call_id")?, output, false);
        }
        // Cursor keeps the model's reasoning itself.
        Some("reasoning") => {}
        Some("item_reference") => {
            let problem = "items are not stored; send the item itself";
            return Err(ApiError::field(at, problem));
        }
        Some(kind) => {
            let problem = format!("items of type {kind:?} cannot be read");
            return Err(ApiError::field(&format!("{at}.type"), &problem));
        }
    }
    Ok(())
}

fn part(part: &Json, at: &str) -> Result<Option<Content>, ApiError> {
    match part["type"].as_str() {
        Some("input_text" | "output_text" | "text") => text_part(part, "text", at).map(Some),
        Some("refusal") => text_part(part, "refusal", at).map(Some),
        Some("input_image") => {
            let url = part["image_url"].as_str();
            image_part(url, &format!("{at}.image_url")).map(Some)
        }
        _ => {
            let problem = "only input_text, output_text and input_image can be read";
            Err(ApiError::field(&format!("{at}.type"), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::conversation::transcript::Transcript;
    use agent::message::Message;

    fn read(input: Json) -> Result<Transcript, ApiError> {
        let input: Input = serde_json::from_value(input).unwrap();
        let mut builder = TranscriptBuilder::default();
        input.add_to(&mut builder)?;
        builder.finish(Vec::new(), "input")
    }

    #[test]
    fn items_become_messages() {
        let read = read(json!([
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"role": "user", "content": "look"},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "message", "role": "assistant", "id": "m", "status": "completed",
             "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
            {"type": "function_call", "call_id": "c", "name": "find", "namespace": "mcp__docs", "arguments": "{\"q\":1}"},
            {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "*** Begin"},
            {"type": "function_call_output", "call_id": "c", "output": "42"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "Done"}]},
        ]))
        .unwrap();
        assert_eq!(read.system, "Be brief.");
        let [first, answer, third, fourth] = &read.messages[..] else {
            panic!("{:?}", read.messages);
        };
        assert_eq!(*first, Message::user("look"));
        let ids: Vec<&str> = answer.call_ids().collect();
        assert_eq!(ids, ["c", "d"]);
        assert_eq!(*third, Message::tool_result("c", "mcp__docs__find", "42"));
        assert_eq!(*fourth, Message::tool_result("d", "apply_patch", "Done"));
    }

    #[test]
    fn a_wrong_item_is_named() {
        let cases = [
            (json!([]), "input"),
            (json!([{"role": "robot", "content": "x"}]), "input[0].role"),
            (json!([{"type": "item_reference", "id": "x"}]), "input[0]"),
            (json!([{"type": "computer_call"}]), "input[0].type"),
            (
                json!([{"type": "function_call", "name": "x", "arguments": ""}]),
                "input[0].call_id",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
                "input[0].content[0].type",
            ),
        ];
        for (input, param) in cases {
            assert_eq!(
                read(input.clone()).unwrap_err().param(),
                Some(param),
                "{input}"
            );
        }
    }
}
