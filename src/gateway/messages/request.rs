//! Parses and validates a request for a message.
//!
//! `cache_control`, sampling and context management are accepted and not used: Cursor decides about
//! its cache and its context.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value as Json;

use super::super::answer_format::AnswerFormat;
use super::super::answer_limits::AnswerLimits;
use super::super::api_error::ApiError;
use super::super::body;
use super::super::client_turn::{ClientTurn, client_name, thinking_level};
use super::super::remote_images::ImageFetcher;
use super::super::session_key::{SessionHints, session_of_user};
use super::super::tool_choice::ToolChoice;
use super::super::transcript_builder::{
    TranscriptBuilder, content, schema, system_text, text_part,
};
use super::super::workspace_hint;
use agent::catalog::ThinkingLevel;
use agent::conversation::transcript::{Tool, Transcript};
use agent::message::{AnswerPart, Content, ToolCall};

/// A parsed request.
#[derive(Debug)]
pub(super) struct MessagesRequest {
    pub(super) turn: ClientTurn,
    /// Whether the answer is sent as a stream of events instead of one JSON object.
    pub(super) stream: bool,
    /// Whether the client asked for thinking.
    pub(super) shows_thinking: bool,
}

#[derive(Deserialize)]
struct MessagesBody {
    model: String,
    #[serde(deserialize_with = "body::bounded")]
    messages: Vec<InputMessage>,
    #[serde(default)]
    system: Json,
    tools: Option<Vec<MessagesTool>>,
    tool_choice: Option<Json>,
    stream: Option<bool>,
    max_tokens: Option<u64>,
    stop_sequences: Option<Vec<String>>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    metadata: Option<RequestMetadata>,
}

#[derive(Deserialize)]
struct InputMessage {
    role: String,
    #[serde(default)]
    content: Json,
}

#[derive(Deserialize)]
struct MessagesTool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: String,
    description: Option<String>,
    input_schema: Option<Json>,
}

#[derive(Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<u64>,
    display: Option<String>,
}

#[derive(Deserialize)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<Json>,
}

#[derive(Deserialize)]
struct RequestMetadata {
    user_id: Option<String>,
}

/// Blocks of the system prompt that change with every request of Claude Code, and say nothing to
/// a model.
const BILLING: &str = "x-anthropic-billing-header:";

impl MessagesRequest {
    /// Parses a body, and fetches the images in it.
    pub(super) async fn parse(
        body: &[u8],
        headers: &HeaderMap,
        images: &ImageFetcher,
    ) -> Result<Self, ApiError> {
        let mut raw: MessagesBody = body::parse(body)?;
        let contents = raw.messages.iter_mut().map(|message| &mut message.content);
        images.inline(contents).await?;
        Self::convert(raw, headers)
    }

    fn convert(raw: MessagesBody, headers: &HeaderMap) -> Result<Self, ApiError> {
        let choice = ToolChoice::parse(raw.tool_choice.as_ref(), |choice| {
            choice["name"].as_str().map(str::to_owned)
        })?;
        let is_one_call = raw.tool_choice.as_ref();
        let is_one_call = is_one_call.is_some_and(|c| c["disable_parallel_tool_use"] == true);
        let tools = choice.narrow(tools(raw.tools.unwrap_or_default())?)?;
        let transcript = transcript(&raw.system, &raw.messages, tools)?;
        let output = raw.output_config.as_ref();
        let effort = output.and_then(|output| output.effort.as_deref());
        let format = output.and_then(|output| output.format.as_ref());
        let thinking = raw.thinking.as_ref();
        let level = match effort {
            Some(effort) => Some(thinking_level(effort, "output_config.effort")?),
            None => thinking.and_then(Thinking::level),
        };
        let user = raw.metadata.and_then(|metadata| metadata.user_id);
        let named = user.as_deref().and_then(session_of_user);
        let turn = ClientTurn {
            model: raw.model,
            level,
            client: client_name(headers),
            workspace: workspace_hint::find(headers, &transcript)?,
            transcript,
            session: SessionHints::from_headers(headers)?.or_name(named.as_deref()),
            limits: AnswerLimits {
                stop: raw.stop_sequences.unwrap_or_default(),
                max_tokens: raw.max_tokens,
            },
            format: AnswerFormat::parse(format, "output_config.format")?,
            is_one_call,
        };
        Ok(Self {
            turn,
            stream: raw.stream.unwrap_or_default(),
            shows_thinking: thinking.is_some_and(Thinking::is_shown),
        })
    }
}

impl Thinking {
    fn is_shown(&self) -> bool {
        self.kind != "disabled" && self.display.as_deref() != Some("omitted")
    }

    /// Returns the level for a budget; the model's default without one.
    fn level(&self) -> Option<ThinkingLevel> {
        match (self.kind.as_str(), self.budget_tokens) {
            ("disabled", _) => Some(ThinkingLevel::Off),
            (_, None) => None,
            (_, Some(0..=4096)) => Some(ThinkingLevel::Low),
            (_, Some(4097..=16384)) => Some(ThinkingLevel::Medium),
            (_, Some(_)) => Some(ThinkingLevel::High),
        }
    }
}

/// Returns the client's own tools. Those that Anthropic executes cannot be offered.
fn tools(raw: Vec<MessagesTool>) -> Result<Vec<Tool>, ApiError> {
    let mut tools = Vec::new();
    for (index, tool) in raw.into_iter().enumerate() {
        match tool.kind.as_deref() {
            None | Some("custom") => tools.push(Tool {
                name: tool.name,
                description: tool.description.unwrap_or_default(),
                parameters: schema(tool.input_schema),
            }),
            // Executed by the client, but its schema is known to Anthropic's models only.
            Some(kind) if tool.input_schema.is_none() => {
                tracing::debug!(kind, "gateway.tool_not_offered");
            }
            Some(kind) => {
                let problem = format!("tools of type {kind:?} cannot be offered");
                return Err(ApiError::field(&format!("tools[{index}].type"), &problem));
            }
        }
    }
    Ok(tools)
}

fn transcript(
    system: &Json,
    messages: &[InputMessage],
    tools: Vec<Tool>,
) -> Result<Transcript, ApiError> {
    let mut builder = TranscriptBuilder::default();
    let prompt = content(system, "system", |part, at| {
        let text = text_part(part, "text", at)?;
        let is_billing = matches!(&text, Content::Text(text) if text.starts_with(BILLING));
        Ok((!is_billing).then_some(text))
    })?;
    builder.system(system_text(prompt, "system")?);
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        let content_at = format!("{at}.content");
        match message.role.as_str() {
            "user" => user(&mut builder, &message.content, &content_at)?,
            "assistant" => answer(&mut builder, &message.content, &content_at)?,
            "system" => {
                let text = content(&message.content, &content_at, input_part)?;
                builder.system(system_text(text, &at)?);
            }
            other => {
                let problem = format!("{other:?} is none of user, assistant, system");
                return Err(ApiError::field(&format!("{at}.role"), &problem));
            }
        }
    }
    builder.finish(tools, "messages")
}

/// Adds the results of tools, then what the user says.
fn user(builder: &mut TranscriptBuilder, given: &Json, at: &str) -> Result<(), ApiError> {
    let mut results = 0;
    let said = content(given, at, |part, at| {
        if part["type"] != "tool_result" {
            return input_part(part, at);
        }
        let Some(id) = part["tool_use_id"].as_str() else {
            return Err(ApiError::field(
                &format!("{at}.tool_use_id"),
                "it is missing",
            ));
        };
        let given = content(&part["content"], &format!("{at}.content"), input_part)?;
        builder.result(id.to_owned(), given, part["is_error"] == true);
        results += 1;
        Ok(None)
    })?;
    if !said.is_empty() || results == 0 {
        builder.user(said);
    }
    Ok(())
}

fn answer(builder: &mut TranscriptBuilder, given: &Json, at: &str) -> Result<(), ApiError> {
    let mut parts = Vec::new();
    let text = content(given, at, |part, at| {
        let field = |name: &str| match part[name].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(ApiError::field(
                &format!("{at}.{name}"),
                "expected a string",
            )),
        };
        match part["type"].as_str() {
            Some("text") => parts.push(AnswerPart::Text(field("text")?)),
            Some("thinking" | "redacted_thinking") => {}
            Some("tool_use") => parts.push(AnswerPart::Call(ToolCall {
                id: field("id")?,
                name: field("name")?,
                arguments: part["input"].clone(),
            })),
            _ => {
                let problem = "only text, thinking and tool_use can be read in an answer";
                return Err(ApiError::field(&format!("{at}.type"), problem));
            }
        }
        Ok(None)
    })?;
    let text = text.into_iter().filter_map(|part| match part {
        Content::Text(text) => Some(AnswerPart::Text(text)),
        Content::Image { .. } => None,
    });
    parts.extend(text);
    builder.answer(parts);
    Ok(())
}

/// Reads a block of a user, of a result or of a document.
fn input_part(part: &Json, at: &str) -> Result<Option<Content>, ApiError> {
    match part["type"].as_str() {
        Some("text") => text_part(part, "text", at).map(Some),
        Some("image") => match part["source"]["type"].as_str() {
            Some("base64") => {
                let field = |name: &str| match part["source"][name].as_str() {
                    Some(text) => Ok(text.to_owned()),
                    None => {
                        let at = format!("{at}.source.{name}");
                        Err(ApiError::field(&at, "expected a string"))
                    }
                };
                Ok(Some(Content::Image {
                    data: field("data")?,
                    mime_type: field("media_type")?,
                }))
            }
            _ => {
                let problem = "expected base64 or url";
                Err(ApiError::field(&format!("{at}.source.type"), problem))
            }
        },
        Some("document") if part["source"]["type"] == "text" => {
            text_part(&part["source"], "data", &format!("{at}.source")).map(Some)
        }
        // The names of tools that a search found; they are offered as tools too.
        Some("tool_reference") => {
            let name = part["tool_name"].as_str().unwrap_or_default();
            Ok(Some(Content::Text(name.to_owned())))
        }
        _ => {
            let problem = "only text, images and text documents can be read";
            Err(ApiError::field(&format!("{at}.type"), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::message::Message;
    use serde_json::json;

    fn read(more: Json) -> Result<MessagesRequest, ApiError> {
        let mut body = json!({"model": "m", "max_tokens": 9,
            "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let raw = body::parse(body.to_string().as_bytes())?;
        MessagesRequest::convert(raw, &HeaderMap::new())
    }

    #[test]
    fn a_conversation_with_tools_and_images() {
        let cache = json!({"type": "ephemeral"});
        let asked = read(json!({
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                       {"type": "text", "text": "Be brief.", "cache_control": cache}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": cache},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Let me "}, {"type": "text", "text": "see."},
                    {"type": "tool_use", "id": "c", "name": "see", "input": {"q": 1}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "is_error": true,
                     "content": [{"type": "text", "text": "42"}]},
                    {"type": "text", "text": "and then"}]},
            ],
            "tools": [{"name": "see", "input_schema": {"type": "object"}},
                      {"type": "web_search_20250305", "name": "web_search"}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "stop_sequences": ["END"],
            "metadata": {"user_id": "user_1_account__session_s1"},
        }))
        .unwrap();
        let turn = asked.turn;
        assert_eq!(turn.transcript.system, "Be brief.");
        let [first, second, third, fourth] = &turn.transcript.messages[..] else {
            panic!("{:?}", turn.transcript.messages);
        };
        assert!(first.has_images());
        let answer = second.as_answer().unwrap();
        assert_eq!((answer.parts.len(), answer.is_complete), (2, false));
        assert_eq!(answer.texts().collect::<Vec<_>>(), ["Let me see."]);
        let result = third.as_tool_result().unwrap();
        assert_eq!((result.tool.as_str(), result.is_error), ("see", true));
        assert_eq!(*fourth, Message::user("and then"));
        let names: Vec<&str> = turn
            .transcript
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!((names, turn.is_one_call), (vec!["see"], true));
        assert_eq!(turn.limits.stop, ["END"]);
        assert_eq!(turn.session.name.as_deref(), Some("s1"));
    }

    #[test]
    fn thinking_is_shown_if_it_is_requested() {
        let read = |more| read(more).unwrap();
        let none = read(json!({}));
        assert_eq!((none.shows_thinking, none.turn.level), (false, None));
        let budget = read(json!({"thinking": {"type": "enabled", "budget_tokens": 10000}}));
        let level = Some(ThinkingLevel::Medium);
        assert_eq!((budget.shows_thinking, budget.turn.level), (true, level));
        let effort =
            read(json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}));
        let level = Some(ThinkingLevel::High);
        assert_eq!((effort.shows_thinking, effort.turn.level), (true, level));
        let off = read(json!({"thinking": {"type": "disabled"}}));
        assert_eq!(
            (off.shows_thinking, off.turn.level),
            (false, Some(ThinkingLevel::Off))
        );
    }

    #[test]
    fn a_wrong_field_is_named() {
        let block = |block: Json| json!({"messages": [{"role": "user", "content": [block]}]});
        let cases = [
            (json!({"messages": []}), "messages"),
            (
                json!({"messages": [{"role": "tool", "content": "x"}]}),
                "messages[0].role",
            ),
            (json!({"system": 7}), "system"),
            (json!({"max_tokens": "many"}), "max_tokens"),
            (
                json!({"tool_choice": {"type": "tool", "name": "x"}}),
                "tool_choice",
            ),
            (
                json!({"output_config": {"effort": "much"}}),
                "output_config.effort",
            ),
            (
                block(json!({"type": "tool_result"})),
                "messages[0].content[0].tool_use_id",
            ),
            (
                block(json!({"type": "video"})),
                "messages[0].content[0].type",
            ),
            (
                block(json!({"type": "image", "source": {"type": "file", "file_id": "f"}})),
                "messages[0].content[0].source.type",
            ),
        ];
        for (more, param) in cases {
            let error = read(more.clone()).unwrap_err();
            assert_eq!(error.param(), Some(param), "{more}");
        }
    }
}
