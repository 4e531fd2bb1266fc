//! Parses and validates a request for a chat completion.
//!
//! Fields that are not used (sampling, penalties, seeds) are accepted, because clients always send
//! them. A used field of the wrong type is an error that names it.

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
use super::super::transcript_builder::schema;
use super::super::workspace_hint;
use super::messages;
use agent::conversation::transcript::Tool;

/// A parsed request.
#[derive(Debug)]
pub(super) struct ChatRequest {
    pub(super) turn: ClientTurn,
    /// Whether the answer is sent as a stream of events instead of one JSON object.
    pub(super) stream: bool,
    /// Whether a stream ends with its usage.
    pub(super) include_usage: bool,
}

#[derive(Deserialize)]
struct ChatBody {
    model: String,
    #[serde(deserialize_with = "body::bounded")]
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    tools: Option<Vec<ChatTool>>,
    tool_choice: Option<Json>,
    parallel_tool_calls: Option<bool>,
    reasoning_effort: Option<String>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    stop: Option<StopTexts>,
    response_format: Option<Json>,
    prompt_cache_key: Option<String>,
    n: Option<u64>,
    functions: Option<Json>,
    function_call: Option<Json>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// One text or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum StopTexts {
    One(String),
    Many(Vec<String>),
}

/// A message of any role.
#[derive(Deserialize)]
pub(super) struct ChatMessage {
    pub(super) role: String,
    #[serde(default)]
    pub(super) content: Json,
    pub(super) tool_calls: Option<Vec<RawCall>>,
    pub(super) tool_call_id: Option<String>,
    /// The call of a legacy function.
    pub(super) function_call: Option<Json>,
}

/// A tool call of the model.
#[derive(Deserialize)]
pub(super) struct RawCall {
    pub(super) id: String,
    pub(super) function: RawFunction,
}

#[derive(Deserialize)]
pub(super) struct RawFunction {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: String,
}

#[derive(Deserialize)]
struct ChatTool {
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<RawDefinition>,
}

#[derive(Deserialize)]
struct RawDefinition {
    name: String,
    description: Option<String>,
    parameters: Option<Json>,
}

impl ChatRequest {
    /// Parses a body, and fetches the images in it.
    pub(super) async fn parse(
        body: &[u8],
        headers: &HeaderMap,
        images: &ImageFetcher,
    ) -> Result<Self, ApiError> {
        let mut raw: ChatBody = body::parse(body)?;
        let contents = raw.messages.iter_mut().map(|message| &mut message.content);
        images.inline(contents).await?;
        Self::convert(raw, headers)
    }

    fn convert(raw: ChatBody, headers: &HeaderMap) -> Result<Self, ApiError> {
        if raw.n.is_some_and(|n| n != 1) {
            let problem = "only one answer can be given at a time";
            return Err(ApiError::field("n", problem));
        }
        let legacy = [
            ("functions", &raw.functions),
            ("function_call", &raw.function_call),
        ];
        for (name, given) in legacy {
            if given.as_ref().is_some_and(|given| !given.is_null()) {
                let problem = "no longer supported; send tools and tool_choice instead";
                return Err(ApiError::field(name, problem));
            }
        }
        let level = raw.reasoning_effort.as_deref();
        let level = level.map(|level| thinking_level(level, "reasoning_effort"));
        let choice = ToolChoice::parse(raw.tool_choice.as_ref(), |choice| {
            choice["function"]["name"].as_str().map(str::to_owned)
        })?;
        let tools = choice.narrow(tools(raw.tools.unwrap_or_default())?)?;
        let transcript = messages::transcript(raw.messages, tools)?;
        let hints = SessionHints::from_headers(headers)?;
        let include_usage = raw.stream_options.and_then(|options| options.include_usage);
        let turn = ClientTurn {
            model: raw.model,
            level: level.transpose()?,
            client: client_name(headers),
            workspace: workspace_hint::find(headers, &transcript)?,
            transcript,
            session: hints.or_name(raw.prompt_cache_key.as_deref()),
            limits: AnswerLimits {
                stop: match raw.stop {
                    None => Vec::new(),
                    Some(StopTexts::One(text)) => vec![text],
                    Some(StopTexts::Many(texts)) => texts,
                },
                max_tokens: raw.max_completion_tokens.or(raw.max_tokens),
            },
            format: AnswerFormat::parse(raw.response_format.as_ref(), "response_format")?,
            is_one_call: raw.parallel_tool_calls == Some(false),
        };
        Ok(Self {
            turn,
            stream: raw.stream.unwrap_or_default(),
            include_usage: include_usage.unwrap_or_default(),
        })
    }
}

fn tools(raw: Vec<ChatTool>) -> Result<Vec<Tool>, ApiError> {
    let tools = raw.into_iter().enumerate().map(|(index, tool)| {
        let kind = tool.kind.as_deref().unwrap_or("function");
        let Some(function) = tool.function.filter(|_| kind == "function") else {
            let problem = "only tools of type \"function\", with a function, can be offered";
            return Err(ApiError::field(&format!("tools[{index}]"), problem));
        };
        Ok(Tool {
            name: function.name,
            description: function.description.unwrap_or_default(),
            parameters: schema(function.parameters),
        })
    });
    tools.collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::body::MAX_MESSAGES;
    use super::*;
    use agent::catalog::ThinkingLevel;
    use serde_json::json;

    fn read(body: &Json) -> Result<ChatRequest, ApiError> {
        ChatRequest::convert(body::parse(body.to_string().as_bytes())?, &HeaderMap::new())
    }

    fn asked(more: Json) -> Json {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    #[test]
    fn unused_fields_are_accepted() {
        let body = asked(json!({"temperature": 0.5, "seed": null, "user": "u",
            "stream": null, "metadata": {}, "unheard_of": [1], "n": 1}));
        let asked = read(&body).unwrap();
        assert_eq!((asked.stream, asked.turn.level), (false, None));
        assert_eq!(asked.turn.limits, AnswerLimits::default());
        let body = json!({"stream": true, "stream_options": {"include_usage": true},
                          "reasoning_effort": "none"});
        let asked = read(&super::tests::asked(body)).unwrap();
        assert!(asked.stream && asked.include_usage);
        assert_eq!(asked.turn.level, Some(ThinkingLevel::Off));
    }

    #[test]
    fn a_request_of_too_many_messages_is_refused() {
        let messages = |count: usize| {
            let message = json!({"role": "user", "content": "a"});
            asked(json!({"messages": vec![message; count]}))
        };
        let read = |count: usize| read(&messages(count));
        assert_eq!(
            read(MAX_MESSAGES).unwrap().turn.transcript.messages.len(),
            MAX_MESSAGES
        );
        let body = read(MAX_MESSAGES + 1).unwrap_err().body();
        let error = &body["error"];
        let (param, message) = (&error["param"], &error["message"]);
        assert!(param.as_str().unwrap().starts_with("messages"), "{body}");
        assert!(
            message.as_str().unwrap().contains("20000 messages at most"),
            "{body}"
        );
    }

    #[test]
    fn a_wrong_field_is_named() {
        let call = json!([{"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}]);
        let cases = [
            (json!({"stream": "yes"}), "stream"),
            (json!({"messages": "hi"}), "messages"),
            (json!({"messages": [{"content": "hi"}]}), "messages[0].role"),
            (
                json!({ "messages": call }),
                "messages[0].tool_calls[0].function.name",
            ),
            (json!({"model": 7}), "model"),
            (json!({"n": 2}), "n"),
            (json!({"max_tokens": "x"}), "max_tokens"),
            (json!({"stop": 7}), "stop"),
            (
                json!({"response_format": {"type": "xml"}}),
                "response_format.type",
            ),
            (json!({"functions": [{"name": "f"}]}), "functions"),
            (json!({"function_call": "auto"}), "function_call"),
            (json!({"reasoning_effort": "much"}), "reasoning_effort"),
            (json!({"tools": [{"type": "web_search"}]}), "tools[0]"),
            (json!({"tool_choice": "some"}), "tool_choice"),
            (
                json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}),
                "tool_choice",
            ),
        ];
        for (more, param) in cases {
            let error = read(&asked(more.clone())).unwrap_err();
            assert_eq!(error.body()["error"]["param"], param, "{more}");
            assert_eq!(error.body()["error"]["type"], "invalid_request_error");
        }
        let error = read(&json!({"messages": []})).unwrap_err();
        assert_eq!(error.body()["error"]["param"], "model");
    }

    #[test]
    fn limits_of_an_answer_are_read() {
        let body = json!({"stop": "END", "max_tokens": 7, "parallel_tool_calls": false,
                          "response_format": {"type": "json_object"}, "prompt_cache_key": "k"});
        let turn = read(&asked(body)).unwrap().turn;
        let limits = AnswerLimits {
            stop: vec!["END".into()],
            max_tokens: Some(7),
        };
        assert_eq!((turn.limits, turn.is_one_call), (limits, true));
        assert!(matches!(turn.format, AnswerFormat::JsonObject));
        assert_eq!(turn.session.name.as_deref(), Some("k"));
        let body = json!({"stop": ["a", "b"], "max_tokens": 7, "max_completion_tokens": 8});
        let limits = read(&asked(body)).unwrap().turn.limits;
        assert_eq!((limits.stop.len(), limits.max_tokens), (2, Some(8)));
    }

    #[test]
    fn a_choice_narrows_what_is_offered() {
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        let names = |choice: Json| {
            let body = asked(json!({"tools": [tool("a"), tool("b")], "tool_choice": choice}));
            let tools = read(&body).unwrap().turn.transcript.tools;
            tools.into_iter().map(|tool| tool.name).collect::<String>()
        };
        assert_eq!(names(json!(null)), "ab");
        assert_eq!(names(json!("required")), "ab");
        assert_eq!(names(json!("none")), "");
        assert_eq!(names(tool("b")), "b");
    }
}
