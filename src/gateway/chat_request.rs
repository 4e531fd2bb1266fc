//! `POST /v1/chat/completions`: parses and validates a request.
//!
//! Fields that are not used (sampling, penalties, seeds, limits) are accepted, because clients
//! always send them. A used field of the wrong type is an error that names it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value as Json;

use super::api_error::ApiError;
use super::convert_messages;
use agent::catalog::ThinkingLevel;
use agent::conversation::transcript::{Tool, Transcript};

/// A parsed request.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// The model id from the client.
    pub(super) model: String,
    pub(super) level: Option<ThinkingLevel>,
    pub(super) transcript: Transcript,
    /// Whether the answer is sent as a stream of events instead of one JSON object.
    pub(super) stream: bool,
    /// Whether a stream ends with its usage.
    pub(super) include_usage: bool,
    /// The session id from the client.
    pub(super) session: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    model: String,
    #[serde(deserialize_with = "bounded_messages")]
    messages: Vec<RawMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    tools: Option<Vec<RawTool>>,
    tool_choice: Option<Json>,
    reasoning_effort: Option<String>,
    n: Option<u64>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A message of any role.
#[derive(Deserialize)]
pub(super) struct RawMessage {
    pub(super) role: String,
    #[serde(default)]
    pub(super) content: Json,
    pub(super) tool_calls: Option<Vec<RawCall>>,
    pub(super) tool_call_id: Option<String>,
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
struct RawTool {
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

/// How many messages a request may have: each takes many times its bytes in the body.
const MAX_MESSAGES: usize = 20_000;

/// Parses messages, and stops at the first one over the limit before the rest takes memory.
fn bounded_messages<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<RawMessage>, D::Error> {
    struct BoundedMessages;

    impl<'de> Visitor<'de> for BoundedMessages {
        type Value = Vec<RawMessage>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of messages")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut messages = Vec::new();
            while let Some(message) = items.next_element()? {
                if messages.len() == MAX_MESSAGES {
                    let problem = format!("a request may have {MAX_MESSAGES} messages at most");
                    return Err(A::Error::custom(problem));
                }
                messages.push(message);
            }
            Ok(messages)
        }
    }

    source.deserialize_seq(BoundedMessages)
}

impl ChatRequest {
    /// Parses a body.
    pub(super) fn parse(body: &[u8], session: Option<String>) -> Result<Self, ApiError> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let raw: Raw = serde_path_to_error::deserialize(&mut json).map_err(field_error)?;
        json.end().map_err(|error| {
            ApiError::field(
                "",
                &format!("the body is more than one JSON value: {error}"),
            )
        })?;
        if raw.n.is_some_and(|n| n != 1) {
            return Err(ApiError::field(
                "n",
                "only one answer can be given at a time",
            ));
        }
        let level = raw.reasoning_effort.as_deref().map(level).transpose()?;
        let tools = chosen(tools(raw.tools.unwrap_or_default())?, raw.tool_choice)?;
        let transcript = convert_messages::transcript(raw.messages, tools)?;
        let include_usage = raw.stream_options.and_then(|options| options.include_usage);
        Ok(Self {
            model: raw.model,
            level,
            transcript,
            stream: raw.stream.unwrap_or_default(),
            include_usage: include_usage.unwrap_or_default(),
            session,
        })
    }
}

/// Returns which field is wrong, and how. A missing field is named only in the error's text.
fn field_error(error: serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let path = error.path().to_string();
    let inner = error.into_inner();
    if !inner.is_data() {
        return ApiError::field("", &format!("the body is not JSON: {inner}"));
    }
    let text = inner.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let missing = text
        .strip_prefix("missing field `")
        .and_then(|rest| rest.strip_suffix('`'));
    match (missing, path.as_str()) {
        (Some(field), ".") => ApiError::field(field, "it is missing"),
        (Some(field), path) => ApiError::field(&format!("{path}.{field}"), "it is missing"),
        (None, ".") => ApiError::field("", text),
        (None, path) => ApiError::field(path, text),
    }
}

fn level(text: &str) -> Result<ThinkingLevel, ApiError> {
    let name = match text {
        "none" => ThinkingLevel::Off.name(),
        other => other,
    };
    ThinkingLevel::parse(name).ok_or_else(|| {
        let problem = format!("{text:?} is none of none, minimal, low, medium, high, xhigh, max");
        ApiError::field("reasoning_effort", &problem)
    })
}

fn tools(raw: Vec<RawTool>) -> Result<Vec<Tool>, ApiError> {
    let tools = raw.into_iter().enumerate().map(|(index, tool)| {
        let kind = tool.kind.as_deref().unwrap_or("function");
        let Some(function) = tool.function.filter(|_| kind == "function") else {
            let problem = "only tools of type \"function\", with a function, can be offered";
            return Err(ApiError::field(&format!("tools[{index}]"), problem));
        };
        Ok(Tool {
            name: function.name,
            description: function.description.unwrap_or_default(),
            parameters: function
                .parameters
                .filter(|schema| !schema.is_null())
                .unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}})),
        })
    });
    tools.collect()
}

/// Returns the tools that may be called. A choice only narrows what is offered; that a tool must be
/// called cannot be enforced.
fn chosen(tools: Vec<Tool>, choice: Option<Json>) -> Result<Vec<Tool>, ApiError> {
    let wrong = |problem: &str| Err(ApiError::field("tool_choice", problem));
    let choice = choice.unwrap_or(Json::Null);
    let word = choice.as_str().or(choice["type"].as_str());
    match word {
        Some("none") => Ok(Vec::new()),
        Some("auto" | "required") => Ok(tools),
        Some("function") => {
            let name = choice["function"]["name"].as_str();
            let only: Vec<Tool> = tools
                .into_iter()
                .filter(|tool| Some(tool.name.as_str()) == name)
                .collect();
            if only.is_empty() {
                wrong("it names none of the tools")
            } else {
                Ok(only)
            }
        }
        None if choice.is_null() => Ok(tools),
        _ => wrong("expected none, auto, required or a function"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Json) -> Result<ChatRequest, ApiError> {
        ChatRequest::parse(body.to_string().as_bytes(), None)
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
        let body = asked(
            json!({"temperature": 0.5, "max_tokens": "x", "seed": null, "user": "u",
            "stream": null, "metadata": {}, "unheard_of": [1], "n": 1}),
        );
        let asked = read(&body).unwrap();
        assert_eq!((asked.stream, asked.level), (false, None));
        let body = json!({"stream": true, "stream_options": {"include_usage": true},
                          "reasoning_effort": "none"});
        let asked = read(&super::tests::asked(body)).unwrap();
        assert!(asked.stream && asked.include_usage);
        assert_eq!(asked.level, Some(ThinkingLevel::Off));
    }

    #[test]
    fn a_request_of_too_many_messages_is_refused() {
        let messages = |count: usize| {
            let message = json!({"role": "user", "content": "a"});
            asked(json!({"messages": vec![message; count]}))
        };
        let read = |count: usize| read(&messages(count));
        assert_eq!(
            read(MAX_MESSAGES).unwrap().transcript.messages.len(),
            MAX_MESSAGES
        );
        let error = read(MAX_MESSAGES + 1).unwrap_err();
        let body = error.body();
        let (param, message) = (&body["error"]["param"], &body["error"]["message"]);
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
        for text in ["{", "[]", "", "{} {}"] {
            let error = ChatRequest::parse(text.as_bytes(), None).unwrap_err();
            let message = error.body()["error"]["message"].as_str().unwrap();
            assert!(!message.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn a_choice_narrows_what_is_offered() {
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        let names = |choice: Json| {
            let body = asked(json!({"tools": [tool("a"), tool("b")], "tool_choice": choice}));
            let tools = read(&body).unwrap().transcript.tools;
            tools.into_iter().map(|tool| tool.name).collect::<String>()
        };
        assert_eq!(names(json!(null)), "ab");
        assert_eq!(names(json!("required")), "ab");
        assert_eq!(names(json!("none")), "");
        assert_eq!(names(tool("b")), "b");
    }
}
