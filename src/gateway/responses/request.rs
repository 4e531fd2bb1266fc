//! Parses and validates a request for a response.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value as Json;

use super::super::answer_format::AnswerFormat;
use super::super::answer_limits::AnswerLimits;
use super::super::api_error::ApiError;
use super::super::body;
use super::super::client_turn::{ClientTurn, client_name, thinking_level};
use super::super::remote_images::ImageFetcher;
use super::super::session_key::SessionHints;
use super::super::tool_choice::ToolChoice;
use super::super::transcript_builder::TranscriptBuilder;
use super::super::workspace_hint;
use super::items::Input;
use super::response::ResponseShape;
use super::store::ResponseStore;
use super::tool_names::{ResponsesTool, ToolNames, flat_name};

/// A parsed request.
#[derive(Debug)]
pub(super) struct ResponsesRequest {
    pub(super) turn: ClientTurn,
    pub(super) shape: ResponseShape,
    /// Whether the answer is sent as a stream of events instead of one JSON object.
    pub(super) stream: bool,
}

#[derive(Deserialize)]
struct ResponsesBody {
    model: String,
    input: Input,
    instructions: Option<String>,
    tools: Option<Vec<ResponsesTool>>,
    tool_choice: Option<Json>,
    parallel_tool_calls: Option<bool>,
    reasoning: Option<Reasoning>,
    text: Option<TextOptions>,
    max_output_tokens: Option<u64>,
    stream: Option<bool>,
    store: Option<bool>,
    background: Option<bool>,
    previous_response_id: Option<String>,
    conversation: Option<Json>,
    prompt_cache_key: Option<String>,
    metadata: Option<serde_json::Map<String, Json>>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

#[derive(Deserialize)]
struct TextOptions {
    format: Option<Json>,
}

impl ResponsesRequest {
    /// Parses a body, and fetches the images in it.
    pub(super) async fn parse(
        body: &[u8],
        headers: &HeaderMap,
        images: &ImageFetcher,
        responses: &ResponseStore,
    ) -> Result<Self, ApiError> {
        let mut raw: ResponsesBody = body::parse(body)?;
        images.inline(raw.input.contents()).await?;
        Self::convert(raw, headers, responses)
    }

    fn convert(
        raw: ResponsesBody,
        headers: &HeaderMap,
        responses: &ResponseStore,
    ) -> Result<Self, ApiError> {
        if raw.background == Some(true) {
            let problem = "responses are not created in the background; leave it out";
            return Err(ApiError::field("background", problem));
        }
        if raw
            .conversation
            .as_ref()
            .is_some_and(|given| !given.is_null())
        {
            let problem = "conversations are not stored; send the input of the conversation";
            return Err(ApiError::field("conversation", problem));
        }
        let mut hints = SessionHints::from_headers(headers)?;
        hints = hints.or_name(raw.prompt_cache_key.as_deref());
        let previous = raw.previous_response_id.filter(|id| !id.is_empty());
        let history = match &previous {
            None => Vec::new(),
            Some(id) => {
                let found = responses.history(id);
                let (messages, session) = found.ok_or_else(|| ApiError::unknown_response(id))?;
                hints.continued = Some(session);
                messages
            }
        };
        let mut names = ToolNames::parse(raw.tools.unwrap_or_default())?;
        let choice = ToolChoice::parse(raw.tool_choice.as_ref(), |choice| {
            let name = choice["name"].as_str()?;
            Some(flat_name(choice["namespace"].as_str(), name))
        })?;
        let tools = choice.narrow(std::mem::take(&mut names.tools))?;
        let known = history.len();
        let mut builder = TranscriptBuilder::after(history);
        let instructions = raw.instructions.unwrap_or_default();
        builder.instructions(instructions.clone());
        raw.input.add_to(&mut builder)?;
        let transcript = builder.finish(tools, "input")?;
        let effort = raw.reasoning.and_then(|reasoning| reasoning.effort);
        let level = effort.map(|effort| thinking_level(&effort, "reasoning.effort"));
        let format = raw.text.and_then(|text| text.format);
        let shape = ResponseShape {
            model: raw.model.clone(),
            instructions: Some(instructions).filter(|text| !text.is_empty()),
            new_messages: transcript.messages.get(known..).unwrap_or_default().into(),
            previous,
            names,
            format: format.clone(),
            is_stored: raw.store != Some(false),
            is_parallel: raw.parallel_tool_calls != Some(false),
            max_output_tokens: raw.max_output_tokens,
            metadata: raw.metadata.map_or(Json::Null, Json::Object),
        };
        let turn = ClientTurn {
            model: raw.model,
            level: level.transpose()?,
            client: client_name(headers),
            workspace: workspace_hint::find(headers, &transcript)?,
            transcript,
            session: hints,
            limits: AnswerLimits {
                stop: Vec::new(),
                max_tokens: raw.max_output_tokens,
            },
            format: AnswerFormat::parse(format.as_ref(), "text.format")?,
            is_one_call: !shape.is_parallel,
        };
        Ok(Self {
            turn,
            shape,
            stream: raw.stream.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::StoredResponse;
    use super::*;
    use agent::message::Message;
    use serde_json::json;

    fn read(more: Json, responses: &ResponseStore) -> Result<ResponsesRequest, ApiError> {
        let mut body = json!({"model": "m", "input": "hi"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let raw = body::parse(body.to_string().as_bytes())?;
        ResponsesRequest::convert(raw, &HeaderMap::new(), responses)
    }

    #[test]
    fn a_response_continues_an_earlier_one() {
        let store = ResponseStore::default();
        let earlier = StoredResponse {
            previous: None,
            messages: [Message::user("one"), Message::assistant("ok")].into(),
            session: "unnamed/0123456789abcdef".into(),
        };
        store.insert("resp_1", earlier);
        let more = json!({"previous_response_id": "resp_1", "instructions": "Be brief.",
                          "prompt_cache_key": "k"});
        let asked = read(more, &store).unwrap();
        let messages = &asked.turn.transcript.messages;
        assert_eq!((messages.len(), &messages[2]), (3, &Message::user("hi")));
        assert_eq!(asked.turn.transcript.system, "Be brief.");
        assert_eq!(asked.shape.new_messages.len(), 1);
        let session = asked.turn.session.continued.as_deref();
        assert_eq!(session, Some("unnamed/0123456789abcdef"));
        let error = read(json!({"previous_response_id": "resp_2"}), &store).unwrap_err();
        assert_eq!(error.code(), Some("previous_response_not_found"));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let store = ResponseStore::default();
        let cases = [
            (json!({"background": true}), "background"),
            (json!({"conversation": "conv_1"}), "conversation"),
            (json!({"input": 7}), "input"),
            (json!({"reasoning": {"effort": "much"}}), "reasoning.effort"),
            (
                json!({"text": {"format": {"type": "xml"}}}),
                "text.format.type",
            ),
            (
                json!({"tool_choice": {"type": "function", "name": "x"}}),
                "tool_choice",
            ),
            (
                json!({"tool_choice": {"type": "web_search"}}),
                "tool_choice",
            ),
        ];
        for (more, param) in cases {
            let error = read(more.clone(), &store).unwrap_err();
            assert_eq!(error.param(), Some(param), "{more}");
        }
    }
}
