//! A turn in OpenAI's form: as a stream of chunks, or as one answer.
//!
//! A turn that fails before any output has an error status. One that fails later ends with an
//! `error` event. Either way there is exactly one end; a stream's is `[DONE]`.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame as BodyFrame;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::ask::{Accounts, Asked, Form};
use super::chat::{Piece, answer_id};
use super::fault::{Fault, json_answer};
use agent::turn::usage::Tokens;
use agent::turn::{Stop, TurnEvent, TurnResult};
use agent_tools::loopback::Answered;

/// How often a waiting client is sent a comment to keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const COMMENT: &[u8] = b": keep-alive\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// What all parts of an answer have in common.
pub(super) struct Frame {
    pub(super) id: String,
    created: u64,
    model: String,
    form: Form,
    /// Delays shutdown until the answer is sent.
    _told: TaskTrackerToken,
}

impl Frame {
    pub(super) fn new(asked: &Asked, turns: &TaskTracker) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: answer_id(),
            created: since.map_or(0, |since| since.as_secs()),
            model: asked.model.clone(),
            form: asked.form,
            _told: turns.token(),
        }
    }

    fn object(&self, object: &str, choices: Json) -> Json {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model,
               "choices": choices})
    }

    fn chunk(&self, delta: Json, finish: Option<&str>) -> String {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        data(&self.object("chat.completion.chunk", choices))
    }
}

fn data(json: &Json) -> String {
    format!("data: {json}\n\n")
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

/// Returns the next part. A turn that ends without a result has failed.
fn piece(came: Option<Piece>) -> Result<Piece, Fault> {
    match came {
        Some(Piece::End(result)) => match Fault::of(&result) {
            Some(fault) => Err(fault),
            None => Ok(Piece::End(result)),
        },
        Some(event) => Ok(event),
        None => Err(Fault::inside()),
    }
}

/// Returns the answer as one response.
pub(super) async fn whole(
    frame: Frame,
    mut inbox: mpsc::Receiver<Piece>,
) -> Result<Answered, Fault> {
    let (mut text_so_far, mut thoughts, mut calls) =
        (String::new(), Thoughts::default(), Vec::new());
    let mut thinking = String::new();
    let result = loop {
        match piece(inbox.recv().await)? {
            Piece::End(result) => break result,
            Piece::Event(event) => match event {
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
    let mut body = frame.object("chat.completion", choices);
    body["usage"] = usage(&result.tokens);
    Ok(json_answer(&body))
}

/// Returns the answer as a stream. Its status waits for the first event or failure, but no longer
/// than the keep-alive interval.
pub(super) async fn stream(
    frame: Frame,
    mut inbox: mpsc::Receiver<Piece>,
) -> Result<Answered, Fault> {
    let first = match tokio::time::timeout(KEEP_ALIVE, inbox.recv()).await {
        Ok(came) => Some(piece(came)?),
        Err(_) => None,
    };
    let sse = Sse {
        frame,
        inbox,
        first,
        stage: Stage::Opening,
        calls: 0,
        thoughts: Thoughts::default(),
    };
    let pieces = stream::unfold(sse, |mut sse| async move {
        let bytes = sse.next().await?;
        Some((Ok::<_, Infallible>(BodyFrame::data(bytes)), sse))
    });
    let mut answer = Response::new(StreamBody::new(pieces).boxed());
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(answer)
}

/// A stream of server-sent events.
struct Sse {
    frame: Frame,
    inbox: mpsc::Receiver<Piece>,
    first: Option<Piece>,
    stage: Stage,
    /// How many calls were sent.
    calls: usize,
    thoughts: Thoughts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    Over,
}

impl Sse {
    /// Returns what to send next; `None` after the end.
    async fn next(&mut self) -> Option<Bytes> {
        match self.stage {
            Stage::Over => return None,
            Stage::Opening => {
                self.stage = Stage::Open;
                let delta = json!({"role": "assistant", "content": ""});
                return Some(self.frame.chunk(delta, None).into());
            }
            Stage::Open => {}
        }
        let until = Instant::now() + KEEP_ALIVE;
        loop {
            let came = match self.first.take() {
                Some(first) => Ok(first),
                None => match tokio::time::timeout_at(until, self.inbox.recv()).await {
                    Ok(came) => piece(came),
                    Err(_) => return Some(Bytes::from_static(COMMENT)),
                },
            };
            match came {
                Ok(Piece::Event(event)) => {
                    if let Some(chunk) = self.event(event) {
                        return Some(chunk.into());
                    }
                }
                Ok(Piece::End(result)) => {
                    self.stage = Stage::Over;
                    return Some(self.end(&result).into());
                }
                Err(fault) => {
                    self.stage = Stage::Over;
                    tracing::debug!(code = %fault.body()["error"]["code"], "gateway.broke_off");
                    let event = format!("event: error\n{}{DONE}", data(fault.body()));
                    return Some(event.into());
                }
            }
        }
    }

    fn event(&mut self, event: TurnEvent) -> Option<String> {
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
        Some(self.frame.chunk(delta, None))
    }

    fn end(&self, result: &TurnResult) -> String {
        let finish = finish_reason(&result.stop);
        let mut text = self.frame.chunk(json!({}), Some(finish));
        if self.frame.form == Form::Stream(Accounts::Included) {
            let mut last = self.frame.object("chat.completion.chunk", json!([]));
            last["usage"] = usage(&result.tokens);
            text.push_str(&data(&last));
        }
        text.push_str(DONE);
        text
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
