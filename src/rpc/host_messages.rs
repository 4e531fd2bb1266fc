//! Parses the messages of a host into the engine's types.
//!
//! pi's spelling is accepted in all its versions. Editors send what they have from other APIs, so
//! tool calls, tool results and images are also accepted as OpenAI (`tool_calls`, `role: "tool"`,
//! `image_url`) and Anthropic (`tool_use`, `tool_result`, `source`) spell them. Anything else is an
//! error that names its path: a message that was dropped instead would look to the model as if it
//! had never been written, and a dropped tool result would make it wait forever.

mod node;
mod outline_cache;
mod system;

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::protocol::RawMessage;
use crate::image_url;
use agent::conversation::transcript::{Tool, Transcript};
use agent::message::{
    Answer, AnswerPart, Content, HistoryHash, Message, MessageKind, MessageOutline, Summarized,
    ToolCall, ToolResult, short_hash,
};
use agent_tools::bridge::HostResult;
use node::MessageNode;
use outline_cache::{OutlineCache, TextKey};
use system::SystemPrompt;

/// A message that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct MessageError {
    /// Where the problem is, such as `messages[3].content[0].type`.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
}

/// Reads the transcripts of a host. A message that was read before is parsed only if its content
/// is needed.
#[derive(Default)]
pub struct TranscriptReader {
    outlines: OutlineCache,
}

impl TranscriptReader {
    /// Reads a transcript. Prompt and tools are those that the host sends separately; system
    /// messages are applied to them in order.
    pub fn read(
        &self,
        system: Option<String>,
        tools: Option<Vec<Tool>>,
        messages: Vec<RawMessage>,
    ) -> Result<Transcript, MessageError> {
        let mut prompt = SystemPrompt::new(system, tools);
        let mut parser = Parser {
            messages: Vec::with_capacity(messages.len()),
            ..Parser::default()
        };
        let keys: Vec<TextKey> = messages
            .iter()
            .map(|message| self.outlines.key(message.text()))
            .collect();
        let mut new = Vec::new();
        let mut history = HistoryHash::default();
        let known = self.outlines.get(&keys);
        for (index, ((text, key), known)) in messages.into_iter().zip(keys).zip(known).enumerate() {
            if let Some(outline) = known {
                let place = parser.messages.len();
                let is_in_place = outline.follows(history);
                let outline = if is_in_place {
                    outline
                } else {
                    outline.elsewhere()
                };
                let message = Message::unparsed(outline, text.into_text(), parse_alone);
                history = message.end_history(history, place);
                if !is_in_place && let Some(outline) = MessageOutline::of(&message, place) {
                    new.push((key, outline));
                }
                parser.messages.push(message);
                continue;
            }
            let message = json(index, text.text())?;
            let message = MessageNode::message(index, &message);
            let before = parser.messages.len();
            match message.get("role").text()? {
                "system" | "developer" => prompt.apply(&message)?,
                role => {
                    parser.push(&message, role)?;
                    for (place, message) in parser.messages.iter().enumerate().skip(before) {
                        history = message.end_history(history, place);
                    }
                    if is_self_contained(message.value, role)
                        && let [message] = &parser.messages[before..]
                        && let Some(outline) = MessageOutline::of(message, before)
                    {
                        new.push((key, outline));
                    }
                }
            }
        }
        self.outlines.keep(new);
        let (system, tools) = prompt.finish();
        Ok(Transcript {
            system,
            tools,
            messages: parser.messages,
        })
    }
}

/// Parses the JSON of a message.
fn json(index: usize, text: &str) -> Result<Json, MessageError> {
    serde_json::from_str(text).map_err(|error| MessageError {
        path: format!("messages[{index}]"),
        problem: error.to_string(),
    })
}

/// Parses a message that needs no other one.
fn parse_alone(text: &str) -> Option<Message> {
    let message = json(0, text).ok()?;
    let message = MessageNode::message(0, &message);
    let mut parser = Parser::default();
    parser
        .push(&message, message.get("role").text().ok()?)
        .ok()?;
    parser.messages.pop()
}

/// Returns whether a message means the same beside other messages. A tool result that does not
/// name its tool gets the name from the call.
fn is_self_contained(message: &Json, role: &str) -> bool {
    let names_tool = || !message["toolName"].as_str().unwrap_or_default().is_empty();
    is_pi_spelling(message, role) && (role != "toolResult" || names_tool())
}

const ROLES: &str = "system, developer, user, assistant, toolResult, tool, bashExecution, \
custom, branchSummary, compactionSummary";

#[derive(Default)]
struct Parser {
    messages: Vec<Message>,
    /// The tool of each call in the first messages, for results that do not name it.
    tools: HashMap<String, String>,
    /// How many messages these are.
    named: usize,
}

impl Parser {
    fn push(&mut self, message: &MessageNode<'_>, role: &str) -> Result<(), MessageError> {
        let kind = match role {
            "user" => match self.user(message)? {
                Some(content) => MessageKind::User(content),
                None => return Ok(()),
            },
            "assistant" => MessageKind::Assistant(answer(message)?),
            "toolResult" => MessageKind::ToolResult(self.pi_result(message)?),
            "tool" => {
                let id = message.get("tool_call_id");
                let result = result(&id, &message.get("content"), false)?;
                MessageKind::ToolResult(self.with_tool(result))
            }
            "bashExecution" => MessageKind::Command {
                command: message.get("command").text()?.to_owned(),
                output: message.get("output").text_or_empty()?.to_owned(),
            },
            "custom" => MessageKind::Custom(content(&message.get("content"))?),
            "compactionSummary" => summary(message, Summarized::Beginning)?,
            "branchSummary" => summary(message, Summarized::Branch)?,
            other => {
                let problem = format!("{other:?} is none of {ROLES}");
                return Err(message.get("role").wrong(problem));
            }
        };
        let identity = is_pi_spelling(message.value, role).then(|| identity(message.value, role));
        self.add(message, kind, identity)
    }

    /// Returns a result with the tool that its call names.
    fn with_tool(&mut self, result: ToolResult) -> ToolResult {
        for message in &self.messages[self.named..] {
            let parts = message.as_answer().map_or(&[][..], |answer| &answer.parts);
            for part in parts {
                if let AnswerPart::Call(call) = part {
                    self.tools.insert(call.id.clone(), call.name.clone());
                }
            }
        }
        self.named = self.messages.len();
        let tool = self.tools.get(&result.call_id).cloned();
        ToolResult {
            tool: tool.unwrap_or_default(),
            ..result
        }
    }

    fn add(
        &mut self,
        source: &MessageNode<'_>,
        kind: MessageKind,
        identity: Option<Vec<String>>,
    ) -> Result<(), MessageError> {
        let mut message = match identity {
            Some(identity) => Message::identified_by(identity, kind),
            None => Message::new(kind),
        };
        if !source.value["timestamp"].is_null() {
            message = message.at(&source.value["timestamp"]);
        }
        if source.get("excludeFromContext").flag()? {
            message = message.excluded();
        }
        self.messages.push(message);
        Ok(())
    }

    /// Parses a user's message. Tool results in it, as Anthropic sends them, become messages of
    /// their own before it. Returns `None` if it has nothing else.
    fn user(&mut self, message: &MessageNode<'_>) -> Result<Option<Vec<Content>>, MessageError> {
        let source = message.get("content");
        let Json::Array(_) = source.value else {
            return content(&source).map(Some);
        };
        let (mut parts, mut has_results) = (Vec::new(), false);
        for block in source.items()? {
            if block.value["type"] != "tool_result" {
                parts.push(part(&block, "text, image, image_url, tool_result")?);
                continue;
            }
            has_results = true;
            let is_error = block.get("is_error").flag()?;
            let id = block.get("tool_use_id");
            let result = result(&id, &block.get("content"), is_error)?;
            let result = self.with_tool(result);
            self.add(message, MessageKind::ToolResult(result), None)?;
        }
        Ok((!has_results || !parts.is_empty()).then_some(parts))
    }

    /// Parses a result as pi spells it.
    fn pi_result(&mut self, message: &MessageNode<'_>) -> Result<ToolResult, MessageError> {
        let is_error = message.get("isError").flag()?;
        let id = message.get("toolCallId");
        let mut result = result(&id, &message.get("content"), is_error)?;
        match message.get("toolName").text_or_empty()? {
            "" => result = self.with_tool(result),
            tool => result.tool = tool.to_owned(),
        }
        let HostResult {
            details,
            structured,
            ..
        } = HostResult::read(message.value);
        Ok(ToolResult {
            details,
            structured,
            ..result
        })
    }
}

fn answer(message: &MessageNode<'_>) -> Result<Answer, MessageError> {
    let mut parts = Vec::new();
    let content = message.get("content");
    match content.value {
        Json::Null => {}
        Json::String(text) => parts.push(AnswerPart::Text(text.clone())),
        _ => {
            for block in content.items()? {
                parts.push(answer_part(&block)?);
            }
        }
    }
    let calls = message.get("tool_calls");
    for call in calls.items_or_none()? {
        parts.push(AnswerPart::Call(openai_call(&call)?));
    }
    let has_calls = parts.iter().any(|part| matches!(part, AnswerPart::Call(_)));
    let stop = message.get("stopReason");
    let is_complete = match stop.value {
        // Only pi says how an answer ended.
        Json::Null => !has_calls || is_pi_spelling(message.value, "assistant"),
        _ => !matches!(stop.text()?, "toolUse" | "error" | "aborted"),
    };
    Ok(Answer { parts, is_complete })
}

/// Parses a result without its tool. What a tool returns is not limited: a block of unknown type
/// is sent to the model as JSON.
fn result(
    id: &MessageNode<'_>,
    content: &MessageNode<'_>,
    is_error: bool,
) -> Result<ToolResult, MessageError> {
    let content = match content.value {
        Json::Null => Vec::new(),
        Json::Array(_) => content
            .items()?
            .map(|block| {
                if is_foreign_image(block.value) {
                    image(&block)
                } else {
                    Ok(Content::read_block(block.value))
                }
            })
            .collect::<Result<_, _>>()?,
        other => Content::read(other),
    };
    Ok(ToolResult {
        tool: String::new(),
        call_id: id.text()?.to_owned(),
        content,
        is_error,
        details: Json::Null,
        structured: None,
    })
}

fn summary(message: &MessageNode<'_>, of: Summarized) -> Result<MessageKind, MessageError> {
    let text = message.get("summary").text()?.to_owned();
    Ok(MessageKind::Summary { text, of })
}

/// Parses a string or a list of text and images.
fn content(source: &MessageNode<'_>) -> Result<Vec<Content>, MessageError> {
    match source.value {
        Json::String(text) => Ok(vec![Content::Text(text.clone())]),
        Json::Array(_) => {
            let blocks = source.items()?;
            blocks
                .map(|block| part(&block, "text, image, image_url"))
                .collect()
        }
        _ => Err(source.wrong("expected a string or a list of blocks")),
    }
}

fn part(block: &MessageNode<'_>, accepted: &str) -> Result<Content, MessageError> {
    let kind = block.get("type");
    match kind.text()? {
        "text" => Ok(Content::Text(block.get("text").text()?.to_owned())),
        "image" | "image_url" => image(block),
        other => Err(kind.wrong(format!("{other:?} is none of {accepted}"))),
    }
}

/// Parses an image: pi's and MCP's `data`, Anthropic's `source`, or OpenAI's `image_url`.
fn image(block: &MessageNode<'_>) -> Result<Content, MessageError> {
    if block.value["type"] == "image_url" {
        let url = block.get("image_url");
        let url = match url.value {
            Json::String(_) => url,
            _ => url.get("url"),
        };
        let (mime_type, data) =
            image_url::parse(url.text()?).ok_or_else(|| url.wrong(image_url::EXPECTED))?;
        return Ok(Content::Image { data, mime_type });
    }
    let source = block.get("source");
    let (data, mime_type) = if source.value.is_null() {
        (block.get("data"), block.get("mimeType"))
    } else {
        let kind = source.get("type");
        if kind.text()? != "base64" {
            return Err(kind.wrong("only base64 is accepted; images are not fetched"));
        }
        (source.get("data"), source.get("media_type"))
    };
    Ok(Content::Image {
        data: data.text()?.to_owned(),
        mime_type: mime_type.text_or_empty()?.to_owned(),
    })
}

fn answer_part(block: &MessageNode<'_>) -> Result<AnswerPart, MessageError> {
    let text = |name: &str| block.get(name).text().map(str::to_owned);
    let call = |arguments: &str| {
        Ok(AnswerPart::Call(ToolCall {
            id: text("id")?,
            name: text("name")?,
            arguments: block.value[arguments].clone(),
        }))
    };
    let kind = block.get("type");
    match kind.text()? {
        "text" => text("text").map(AnswerPart::Text),
        "refusal" => text("refusal").map(AnswerPart::Text),
        "thinking" => Ok(AnswerPart::Thinking(
            block.get("thinking").text_or_empty()?.to_owned(),
        )),
        "redacted_thinking" => Ok(AnswerPart::Thinking(String::new())),
        "toolCall" => call("arguments"),
        "tool_use" => call("input"),
        "image" => Ok(AnswerPart::Image),
        other => {
            let accepted = "text, refusal, thinking, redacted_thinking, toolCall, tool_use, image";
            Err(kind.wrong(format!("{other:?} is none of {accepted}")))
        }
    }
}

fn openai_call(call: &MessageNode<'_>) -> Result<ToolCall, MessageError> {
    let function = call.get("function");
    let arguments = match function.value["arguments"].clone() {
        Json::Null => json!({}),
        // Arguments that are not JSON stay text.
        Json::String(text) => serde_json::from_str(&text).unwrap_or(Json::String(text)),
        other => other,
    };
    Ok(ToolCall {
        id: call.get("id").text()?.to_owned(),
        name: function.get("name").text()?.to_owned(),
        arguments,
    })
}

fn is_foreign_image(block: &Json) -> bool {
    block["type"] == "image_url" || (block["type"] == "image" && block["source"].is_object())
}

/// Returns whether a message is spelled as in pi, and so is identified by its JSON.
fn is_pi_spelling(message: &Json, role: &str) -> bool {
    let blocks = message["content"].as_array();
    let mut blocks = blocks.map_or(&[][..], Vec::as_slice).iter();
    match role {
        "tool" => false,
        "assistant" if !message["tool_calls"].is_null() => false,
        _ => !blocks.any(|block| {
            let foreign = ["refusal", "redacted_thinking", "tool_use", "tool_result"];
            let kind = block["type"].as_str().unwrap_or_default();
            is_foreign_image(block) || foreign.contains(&kind)
        }),
    }
}

/// Returns what identifies a message of pi: the JSON of its content, so that every change in it
/// counts. Stored hashes are made of it, so it must not change.
fn identity(message: &Json, role: &str) -> Vec<String> {
    let value = |name: &str| message[name].to_string();
    // An absent flag is the same as `false`.
    let flag = |name: &str| (message[name] == Json::Bool(true)).to_string();
    let content = || content_identity(&message["content"]);
    match role {
        "toolResult" => vec![
            content(),
            value("toolCallId"),
            value("toolName"),
            flag("isError"),
        ],
        "bashExecution" => vec![
            value("command"),
            value("output"),
            value("exitCode"),
            flag("cancelled"),
        ],
        "compactionSummary" => vec![value("summary"), value("tokensBefore")],
        "branchSummary" => vec![value("summary"), value("fromId")],
        "custom" => vec![value("customType"), content()],
        _ => vec![content()],
    }
}

/// Returns the JSON of a content, without thinking and with images replaced by their hash.
fn content_identity(content: &Json) -> String {
    let Json::Array(blocks) = content else {
        return content.to_string();
    };
    let blocks = blocks.iter().filter(|block| block["type"] != "thinking");
    let blocks = blocks.map(|block| match block["data"].as_str() {
        Some(data) if block["type"] == "image" => {
            let mut block = block.clone();
            block["data"] = short_hash(data).into();
            block.to_string()
        }
        _ => block.to_string(),
    });
    format!("[{}]", Vec::from_iter(blocks).join(","))
}

#[cfg(test)]
mod tests;
