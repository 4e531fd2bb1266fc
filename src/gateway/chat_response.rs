//! A turn in OpenAI's form: as a stream of chunks, or as one answer.
//!
//! A turn that fails before any output has an error status. One that fails later ends with an
//! `error` event. Either way there is exactly one end; a stream's is `[DONE]`.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json as JsonBody;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::api_error::ApiError;
use super::chat_completions::{TurnUpdate, response_id};
use super::chat_request::ChatRequest;
use agent::turn::usage::Tokens;
use agent::turn::{Stop, TurnEvent, TurnResult};

/// How often a waiting client is sent a comment to keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What all parts of a response have in common.
pub(super) struct ResponseEnvelope {
    pub(super) id: String,
    created: u64,
    model: String,
    include_usage: bool,
    /// Delays shutdown until the response is sent.
    _tracked: TaskTrackerToken,
}

impl ResponseEnvelope {
    pub(super) fn new(chat: &ChatRequest, turns: &TaskTracker) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: response_id(),
            created: since.map_or(0, |since| since.as_secs()),
            model: chat.model.clone(),
            include_usage: chat.include_usage,
            _tracked: turns.token(),
        }
    }

    fn object(&self, object: &str, choices: Json) -> Json {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model,
               "choices": choices})
    }

    fn chunk(&self, delta: Json, finish: Option<&str>) -> Event {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        event(&self.object("chat.completion.chunk", choices))
    }
}

fn event(json: &Json) -> Event {
    Event::default().data(json.to_string())
}

fn done() -> Event {
    Event::default().data("[DONE]")
}

fn usage(tokens: &Tokens) -> Json {
    let prompt = tokens.input + tokens.cache_read + tokens.cache_write;
    json!({"prompt_tokens": prompt, "completion_tokens": tokens.output,
           "total_tokens": prompt + tokens.output,
           "prompt_tokens_details": {"cached_tokens": tokens.cache_read}})
}

fn finish_reason(stop: &Stop) -> &'static str {
    match stop {
        Stop::ToolUse => "tool_calls",
        _ => "stop",
    }
}

fn function(id: &str, name: &str, arguments: &Json) -> Json {
    json!({"id": id, "type": "function",
           "function": {"name": name, "arguments": arguments.to_string()}})
}

/// Returns the next update. A turn that ends without a result has failed.
fn checked(update: Option<TurnUpdate>) -> Result<TurnUpdate, ApiError> {
    match update {
        Some(TurnUpdate::End(result)) => match ApiError::from_result(&result) {
            Some(error) => Err(error),
            None => Ok(TurnUpdate::End(result)),
        },
        Some(event) => Ok(event),
        None => Err(ApiError::internal()),
    }
}

/// Returns the response as one object.
pub(super) async fn buffer(
    envelope: ResponseEnvelope,
    mut updates: mpsc::Receiver<TurnUpdate>,
) -> Result<Response, ApiError> {
    let (mut text_so_far, mut thoughts, mut calls) =
        (String::new(), Thoughts::default(), Vec::new());
    let mut thinking = String::new();
    let result = loop {
        match checked(updates.recv().await)? {
            TurnUpdate::End(result) => break result,
            TurnUpdate::Event(event) => match event {
                TurnEvent::Text(text) => text_so_far.push_str(&text),
                TurnEvent::ToolCall {
                    id,
                    name,
                    arguments,
                } => calls.push(function(&id, &name, &arguments)),
                other => thinking.extend(thoughts.text(other)),
            },
        }
    };
    let mut message = json!({"role": "assistant", "content": text_so_far});
    if !thinking.is_empty() {
        message["reasoning_content"] = thinking.into();
    }
    if !calls.is_empty() {
        if text_so_far.is_empty() {
            message["content"] = Json::Null;
        }
        message["tool_calls"] = calls.into();
    }
    let choices = json!([{"index": 0, "message": message, "logprobs": null,
                          "finish_reason": finish_reason(&result.stop)}]);
    let mut body = envelope.object("chat.completion", choices);
    body["usage"] = usage(&result.tokens);
    Ok(JsonBody(body).into_response())
}

/// Returns the response as a stream. Its status waits for the first update, but no longer than the
/// keep-alive interval.
pub(super) async fn stream(
    envelope: ResponseEnvelope,
    mut updates: mpsc::Receiver<TurnUpdate>,
) -> Result<Response, ApiError> {
    let first = match tokio::time::timeout(KEEP_ALIVE, updates.recv()).await {
        Ok(update) => Some(checked(update)?),
        Err(_) => None,
    };
    let opening = envelope.chunk(json!({"role": "assistant", "content": ""}), None);
    let chunks = Chunks {
        envelope,
        updates,
        first,
        is_over: false,
        calls: 0,
        thoughts: Thoughts::default(),
    };
    let rest = stream::unfold(chunks, |mut chunks| async move {
        let events = chunks.next().await?;
        Some((stream::iter(events), chunks))
    });
    let events = stream::iter([opening])
        .chain(rest.flatten())
        .map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let kind = "text/event-stream; charset=utf-8";
    let sse = Sse::new(events).keep_alive(keep_alive);
    Ok(([(CONTENT_TYPE, kind)], sse).into_response())
}

/// The chunks of a streamed response.
struct Chunks {
    envelope: ResponseEnvelope,
    updates: mpsc::Receiver<TurnUpdate>,
    first: Option<TurnUpdate>,
    is_over: bool,
    /// How many calls were sent.
    calls: usize,
    thoughts: Thoughts,
}

impl Chunks {
    /// Returns the next events; `None` after the end.
    async fn next(&mut self) -> Option<Vec<Event>> {
        while !self.is_over {
            let update = match self.first.take() {
                Some(first) => Ok(first),
                None => checked(self.updates.recv().await),
            };
            match update {
                Ok(TurnUpdate::Event(event)) => {
                    if let Some(chunk) = self.chunk(event) {
                        return Some(vec![chunk]);
                    }
                }
                Ok(TurnUpdate::End(result)) => {
                    self.is_over = true;
                    return Some(self.end(&result));
                }
                Err(error) => {
                    self.is_over = true;
                    tracing::debug!(code = %error.body()["error"]["code"], "gateway.broke_off");
                    return Some(vec![
                        Event::default()
                            .event("error")
                            .data(error.body().to_string()),
                        done(),
                    ]);
                }
            }
        }
        None
    }

    fn chunk(&mut self, event: TurnEvent) -> Option<Event> {
        let delta = match event {
            TurnEvent::Text(text) => json!({ "content": text }),
            TurnEvent::ToolCall {
                id,
                name,
                arguments,
            } => {
                let mut call = function(&id, &name, &arguments);
                call["index"] = self.calls.into();
                self.calls += 1;
                json!({ "tool_calls": [call] })
            }
            other => json!({ "reasoning_content": self.thoughts.text(other)? }),
        };
        Some(self.envelope.chunk(delta, None))
    }

    fn end(&self, result: &TurnResult) -> Vec<Event> {
        let finish = finish_reason(&result.stop);
        let mut events = vec![self.envelope.chunk(json!({}), Some(finish))];
        if self.envelope.include_usage {
            let mut last = self.envelope.object("chat.completion.chunk", json!([]));
            last["usage"] = usage(&result.tokens);
            events.push(event(&last));
        }
        events.push(done());
        events
    }
}

/// Thinking text, with a blank line between thoughts.
#[derive(Default)]
struct Thoughts {
    between: &'static str,
}

impl Thoughts {
    /// Returns the text of a thought. Other events are for users and are logged elsewhere.
    fn text(&mut self, event: TurnEvent) -> Option<String> {
        match event {
            TurnEvent::Thinking(text) => {
                Some(format!("{}{text}", std::mem::take(&mut self.between)))
            }
            TurnEvent::ThinkingDone => {
                self.between = "\n\n";
                None
            }
            _ => None,
        }
    }
}
