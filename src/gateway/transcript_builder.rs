//! Builds the engine's transcript from the messages of a client, the same for every API.
//!
//! The same text gives the same result, however a client splits it, because later requests are
//! matched to earlier ones by it.

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::api_error::ApiError;
use crate::image_url;
use agent::conversation::transcript::{Tool, Transcript};
use agent::message::{Answer, AnswerPart, Content, Message, MessageKind, ToolCall, ToolResult};

/// Collects messages in the order the client sends them.
#[derive(Debug, Default)]
pub(super) struct TranscriptBuilder {
    system: Vec<String>,
    messages: Vec<Message>,
    /// The names of tools by the ids of their calls.
    tools: HashMap<String, String>,
    /// An answer that the next message may continue.
    answer: Vec<AnswerPart>,
    has_answer: bool,
}

impl TranscriptBuilder {
    /// Returns a builder that continues an earlier history.
    pub(super) fn after(messages: Vec<Message>) -> Self {
        let mut tools = HashMap::new();
        for part in messages
            .iter()
            .filter_map(Message::as_answer)
            .flat_map(|a| &a.parts)
        {
            if let AnswerPart::Call(call) = part {
                tools.insert(call.id.clone(), call.name.clone());
            }
        }
        Self {
            messages,
            tools,
            ..Self::default()
        }
    }

    /// Adds text to the system prompt.
    pub(super) fn instructions(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.system.push(text);
        }
    }

    /// Adds a system message. At the beginning it is part of the prompt; later it is a message,
    /// because a changed prompt would start a new conversation.
    pub(super) fn system(&mut self, text: String) {
        if self.messages.is_empty() && !self.has_answer {
            self.instructions(text);
        } else if !text.trim().is_empty() {
            self.push(MessageKind::Custom(vec![Content::Text(text)]));
        }
    }

    pub(super) fn user(&mut self, content: Vec<Content>) {
        self.push(MessageKind::User(content));
    }

    /// Adds parts of an answer. Successive ones are one answer.
    pub(super) fn answer(&mut self, parts: impl IntoIterator<Item = AnswerPart>) {
        self.has_answer = true;
        for part in parts {
            if let AnswerPart::Call(call) = &part {
                self.tools.insert(call.id.clone(), call.name.clone());
            }
            self.answer.push(part);
        }
    }

    pub(super) fn result(&mut self, call_id: String, content: Vec<Content>, is_error: bool) {
        self.push(MessageKind::ToolResult(ToolResult {
            tool: self.tools.get(&call_id).cloned().unwrap_or_default(),
            call_id,
            content,
            is_error,
            details: Json::Null,
            structured: None,
        }));
    }

    fn push(&mut self, kind: MessageKind) {
        self.end_answer();
        self.messages.push(Message::new(kind));
    }

    fn end_answer(&mut self) {
        if std::mem::take(&mut self.has_answer) {
            let parts = std::mem::take(&mut self.answer);
            self.messages.push(answer_message(parts));
        }
    }

    /// Returns the transcript; `at` names the list of messages, which must not be empty.
    pub(super) fn finish(mut self, tools: Vec<Tool>, at: &str) -> Result<Transcript, ApiError> {
        self.end_answer();
        if self.messages.is_empty() {
            return Err(ApiError::field(at, "there is none"));
        }
        Ok(Transcript {
            system: self.system.join("\n\n"),
            tools,
            messages: self.messages,
        })
    }
}

/// Returns an answer as a message. Texts beside each other are joined, because an answer is sent in
/// pieces. One that waits for tools does not end its turn.
pub(super) fn answer_message(parts: impl IntoIterator<Item = AnswerPart>) -> Message {
    let mut joined: Vec<AnswerPart> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(AnswerPart::Text(text)), AnswerPart::Text(more)) => text.push_str(&more),
            // Thinking is neither sent to Cursor again nor part of what identifies an answer.
            (_, AnswerPart::Thinking(_)) => {}
            (_, part) => joined.push(part),
        }
    }
    let is_complete = !joined
        .iter()
        .any(|part| matches!(part, AnswerPart::Call(_)));
    Message::new(MessageKind::Assistant(Answer {
        parts: joined,
        is_complete,
    }))
}

/// Returns a call of the model. Arguments that are not JSON stay text.
pub(super) fn call_part(id: String, name: String, arguments: String) -> AnswerPart {
    AnswerPart::Call(ToolCall {
        id,
        name,
        arguments: serde_json::from_str(&arguments).unwrap_or(Json::String(arguments)),
    })
}

/// Returns the text of a string, or the parts of a list as `part` reads them. There is no empty
/// text.
pub(super) fn content(
    given: &Json,
    at: &str,
    mut part: impl FnMut(&Json, &str) -> Result<Option<Content>, ApiError>,
) -> Result<Vec<Content>, ApiError> {
    match given {
        Json::Null => Ok(Vec::new()),
        Json::String(text) if text.is_empty() => Ok(Vec::new()),
        Json::String(text) => Ok(vec![Content::Text(text.clone())]),
        Json::Array(parts) => {
            let parts = parts.iter().enumerate();
            let parts = parts
                .filter_map(|(index, given)| part(given, &format!("{at}[{index}]")).transpose());
            parts.collect()
        }
        _ => Err(ApiError::field(at, "expected a string or a list of parts")),
    }
}

/// Returns a field of a part that must be text.
pub(super) fn text_part(part: &Json, field: &str, at: &str) -> Result<Content, ApiError> {
    match part[field].as_str() {
        Some(text) => Ok(Content::Text(text.to_owned())),
        None => Err(ApiError::field(
            &format!("{at}.{field}"),
            "expected a string",
        )),
    }
}

/// Returns the image in a `data:` URL. Others were fetched before.
pub(super) fn image_part(url: Option<&str>, at: &str) -> Result<Content, ApiError> {
    match url.and_then(image_url::parse) {
        Some((mime_type, data)) => Ok(Content::Image { data, mime_type }),
        None => {
            let problem = "expected an image as data:image/…;base64,… or an http(s) URL";
            Err(ApiError::field(at, problem))
        }
    }
}

/// Returns the text of a system message, which has no images.
pub(super) fn system_text(content: Vec<Content>, at: &str) -> Result<String, ApiError> {
    let texts = content.into_iter().enumerate();
    let texts = texts.map(|(index, part)| match part {
        Content::Text(text) => Ok(text),
        Content::Image { .. } => {
            let at = format!("{at}.content[{index}].type");
            Err(ApiError::field(&at, "a system prompt has no images"))
        }
    });
    Ok(texts.collect::<Result<Vec<String>, ApiError>>()?.join("\n"))
}

/// Returns the content of an answer as its parts.
pub(super) fn answer_parts(content: Vec<Content>) -> impl Iterator<Item = AnswerPart> {
    content.into_iter().map(|part| match part {
        Content::Text(text) => AnswerPart::Text(text),
        Content::Image { .. } => AnswerPart::Image,
    })
}

/// Returns a schema for a tool without one.
pub(super) fn schema(given: Option<Json>) -> Json {
    let given = given.filter(|schema| !schema.is_null());
    given.unwrap_or_else(|| json!({"type": "object", "properties": {}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_an_answer_are_one_message() {
        let text = |text: &str| AnswerPart::Text(text.into());
        let call = || call_part("c".into(), "look".into(), r#"{"q":1}"#.into());
        let mut builder = TranscriptBuilder::default();
        builder.system("Be brief.".into());
        builder.user(vec![Content::Text("go".into())]);
        builder.answer([
            text("One "),
            AnswerPart::Thinking("hm".into()),
            text("two."),
        ]);
        builder.answer([call()]);
        builder.result("c".into(), vec![Content::Text("42".into())], false);
        builder.system("Now be kind.".into());
        let built = builder.finish(Vec::new(), "messages").unwrap();
        let wanted = [
            Message::user("go"),
            Message::new(MessageKind::Assistant(Answer {
                parts: vec![text("One two."), call()],
                is_complete: false,
            })),
            Message::tool_result("c", "look", "42"),
            Message::new(MessageKind::Custom(vec![Content::Text(
                "Now be kind.".into(),
            )])),
        ];
        assert_eq!(built.messages, wanted);
        assert_eq!(built.system, "Be brief.");
    }
}
