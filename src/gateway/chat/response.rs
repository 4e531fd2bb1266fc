//! A turn in the form of chat completions: as a stream of chunks, or as one answer.
//!
//! A turn that fails before any output has an error status. One that fails later ends with an
//! `error` event. Either way there is exactly one end; a stream's is `[DONE]`.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json as JsonBody;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::super::answer::{AnswerUsage, CallUpdate, CollectedAnswer, Finish, TurnEnd, TurnUpdate};
use super::super::api_error::ApiError;
use super::super::event_stream::{EventEncoder, data, named, serialized};
use super::super::turn_driver::StartedTurn;
use super::request::ChatRequest;

/// Encodes one response.
pub(super) struct ChatEncoder {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    /// How many calls were sent.
    calls: usize,
    /// What separates the next thought from the last one.
    between: &'static str,
}

impl ChatEncoder {
    pub(super) fn new(chat: &ChatRequest) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: format!("chatcmpl-{}", Uuid::new_v4().simple()),
            created: since.map_or(0, |since| since.as_secs()),
            model: chat.turn.model.clone(),
            include_usage: chat.include_usage,
            calls: 0,
            between: "",
        }
    }

    fn object(&self, object: &str, choices: Json) -> Json {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model,
               "choices": choices})
    }

    fn chunk(&self, delta: Delta, finish_reason: Option<&'static str>) -> Event {
        let choice = ChunkChoice {
            index: 0,
            delta,
            finish_reason,
        };
        serialized(&Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices: [choice],
        })
    }

    /// Returns the response as one object.
    pub(super) async fn whole(self, mut turn: StartedTurn) -> Result<Response, ApiError> {
        let answer = CollectedAnswer::collect(&mut turn.updates).await?;
        let (text, thinking) = (answer.text(), answer.thinking());
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if !thinking.is_empty() {
            message["reasoning_content"] = thinking.into();
        }
        let calls: Vec<Json> = answer.calls().map(tool_call).collect();
        if !calls.is_empty() {
            if text.is_empty() {
                message["content"] = Json::Null;
            }
            message["tool_calls"] = calls.into();
        }
        let finish = finish_reason(&answer.end.finish);
        let choices = json!([{"index": 0, "message": message, "logprobs": null,
                              "finish_reason": finish}]);
        let mut body = self.object("chat.completion", choices);
        body["usage"] = usage(&answer.end.usage);
        Ok((turn.headers(), JsonBody(body)).into_response())
    }
}

/// One event of a stream.
#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [ChunkChoice; 1],
}

#[derive(Serialize)]
struct ChunkChoice {
    index: u32,
    delta: Delta,
    finish_reason: Option<&'static str>,
}

/// What an event adds to the message.
#[derive(Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Json; 1]>,
}

impl EventEncoder for ChatEncoder {
    fn open(&mut self) -> Vec<Event> {
        let delta = Delta {
            role: Some("assistant"),
            content: Some(String::new()),
            ..Delta::default()
        };
        vec![self.chunk(delta, None)]
    }

    fn update(&mut self, update: TurnUpdate) -> Vec<Event> {
        let delta = match update {
            TurnUpdate::Text(text) => Delta {
                content: Some(text),
                ..Delta::default()
            },
            TurnUpdate::Thinking(text) => Delta {
                reasoning_content: Some(match std::mem::take(&mut self.between) {
                    "" => text,
                    between => format!("{between}{text}"),
                }),
                ..Delta::default()
            },
            TurnUpdate::Call(call) => {
                let mut call = tool_call(&call);
                call["index"] = self.calls.into();
                self.calls += 1;
                Delta {
                    tool_calls: Some([call]),
                    ..Delta::default()
                }
            }
            TurnUpdate::ThinkingDone => {
                self.between = "\n\n";
                return Vec::new();
            }
            TurnUpdate::End(_) => return Vec::new(),
        };
        vec![self.chunk(delta, None)]
    }

    fn end(&mut self, end: &TurnEnd) -> Vec<Event> {
        let finish = finish_reason(&end.finish);
        let mut events = vec![self.chunk(Delta::default(), Some(finish))];
        if self.include_usage {
            let mut last = self.object("chat.completion.chunk", json!([]));
            last["usage"] = usage(&end.usage);
            events.push(data(&last));
        }
        events.push(done());
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![named("error", &error.body()), done()]
    }
}

fn done() -> Event {
    Event::default().data("[DONE]")
}

fn usage(usage: &AnswerUsage) -> Json {
    let (prompt, output) = (usage.tokens.prompt(), usage.tokens.output);
    json!({"prompt_tokens": prompt, "completion_tokens": output,
           "total_tokens": prompt + output,
           "prompt_tokens_details": {"cached_tokens": usage.tokens.cache_read},
           "completion_tokens_details": {"reasoning_tokens": usage.reasoning}})
}

fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::Complete | Finish::StopSequence(_) => "stop",
    }
}

fn tool_call(call: &CallUpdate) -> Json {
    json!({"id": call.id, "type": "function",
           "function": {"name": call.name, "arguments": call.arguments.to_string()}})
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use test_support::instruction_counts::{CountedFunction, assert_not_grown};

    use super::*;

    fn encoder() -> ChatEncoder {
        ChatEncoder {
            id: "chatcmpl-1".into(),
            created: 7,
            model: "composer-2".into(),
            include_usage: false,
            calls: 0,
            between: "",
        }
    }

    #[inline(never)]
    fn write_chunks(encoder: &mut ChatEncoder, texts: Vec<String>) -> usize {
        let updates = texts.into_iter().map(TurnUpdate::Text);
        updates.map(|update| encoder.update(update).len()).sum()
    }

    #[test]
    #[ignore = "chunks_take_no_more_instructions runs it"]
    fn write_each_chunk_once() {
        let texts = (0..200).map(|at| format!("word {at} \n")).collect();
        assert_eq!(write_chunks(&mut encoder(), texts), 200);
    }

    #[test]
    fn chunks_take_no_more_instructions() {
        let test = "gateway::chat::response::tests::write_each_chunk_once";
        let counted = CountedFunction {
            name: "chunks of a chat completion",
            path: &["chat", "response", "tests", "write_chunks"],
        };
        assert_not_grown("gateway", test, &[counted]);
    }
}
