//! A turn in the form of Anthropic's messages: as a stream of events, or as one message.

use axum::Json as JsonBody;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::super::answer::{
    AnswerBlock, AnswerUsage, CallUpdate, CollectedAnswer, Finish, TurnEnd, TurnUpdate,
};
use super::super::api_error::{ApiError, ErrorForm};
use super::super::event_stream::{EventEncoder, typed};
use super::super::turn_driver::StartedTurn;

/// The signature of thinking, which clients must send back. Cursor has none.
const SIGNATURE: &str = "cursor-sidecar";

/// Encodes one response.
pub(super) struct MessageEncoder {
    id: String,
    model: String,
    shows_thinking: bool,
    estimated_input: u64,
    /// How many content blocks were begun.
    blocks: usize,
    open: Option<OpenBlock>,
}

/// The content block that is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Thinking,
    Text,
}

impl MessageEncoder {
    pub(super) fn new(model: String, shows_thinking: bool, estimated_input: u64) -> Self {
        Self {
            id: format!("msg_{}", Uuid::new_v4().simple()),
            model,
            shows_thinking,
            estimated_input,
            blocks: 0,
            open: None,
        }
    }

    fn message(&self, content: Json, stop: (Json, Json), usage: Json) -> Json {
        let (stop_reason, stop_sequence) = stop;
        json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model,
               "content": content, "stop_reason": stop_reason, "stop_sequence": stop_sequence,
               "stop_details": null, "container": null, "diagnostics": null, "usage": usage})
    }

    /// Returns the response as one message.
    pub(super) async fn whole(self, mut turn: StartedTurn) -> Result<Response, ApiError> {
        let answer = CollectedAnswer::collect(&mut turn.updates).await?;
        let content = answer.blocks.iter().filter_map(|block| match block {
            AnswerBlock::Thinking(_) if !self.shows_thinking => None,
            AnswerBlock::Thinking(text) => {
                Some(json!({"type": "thinking", "thinking": text, "signature": SIGNATURE}))
            }
            AnswerBlock::Text(text) => Some(text_block(text)),
            AnswerBlock::Call(call) => Some(tool_use(call, call.arguments.clone())),
        });
        let content = content.collect();
        let usage = whole_usage(usage(&answer.end.usage));
        let body = self.message(content, stop(&answer.end.finish), usage);
        Ok((turn.headers(), JsonBody(body)).into_response())
    }

    /// Returns the events that begin a block, unless it is open.
    fn begin(&mut self, kind: OpenBlock) -> Vec<Event> {
        if self.open == Some(kind) {
            return Vec::new();
        }
        let mut events = self.close();
        self.open = Some(kind);
        let block = match kind {
            OpenBlock::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            OpenBlock::Text => text_block(""),
        };
        events.push(self.start(&block));
        events
    }

    fn start(&mut self, block: &Json) -> Event {
        let index = self.blocks;
        self.blocks += 1;
        typed(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    }

    fn delta(&self, delta: &Json) -> Event {
        let index = self.blocks.saturating_sub(1);
        typed(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
    }

    fn stop_block(&self) -> Event {
        let index = self.blocks.saturating_sub(1);
        typed(&json!({"type": "content_block_stop", "index": index}))
    }

    /// Returns the events that end the open block.
    fn close(&mut self) -> Vec<Event> {
        match self.open.take() {
            None => Vec::new(),
            Some(OpenBlock::Text) => vec![self.stop_block()],
            Some(OpenBlock::Thinking) => {
                let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
                vec![self.delta(&signature), self.stop_block()]
            }
        }
    }
}

impl EventEncoder for MessageEncoder {
    fn open(&mut self) -> Vec<Event> {
        let usage = whole_usage(
            json!({"input_tokens": self.estimated_input, "output_tokens": 1,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens_details": null, "server_tool_use": null}),
        );
        let message = self.message(json!([]), (Json::Null, Json::Null), usage);
        vec![
            typed(&json!({"type": "message_start", "message": message})),
            self.keep_alive(),
        ]
    }

    fn update(&mut self, update: TurnUpdate) -> Vec<Event> {
        match update {
            TurnUpdate::Text(text) => {
                let mut events = self.begin(OpenBlock::Text);
                events.push(self.delta(&json!({"type": "text_delta", "text": text})));
                events
            }
            TurnUpdate::Thinking(text) if self.shows_thinking => {
                let mut events = self.begin(OpenBlock::Thinking);
                events.push(self.delta(&json!({"type": "thinking_delta", "thinking": text})));
                events
            }
            TurnUpdate::ThinkingDone if self.open == Some(OpenBlock::Thinking) => self.close(),
            TurnUpdate::Call(call) => {
                let mut events = self.close();
                events.push(self.start(&tool_use(&call, json!({}))));
                let input = call.arguments.to_string();
                let delta = json!({"type": "input_json_delta", "partial_json": input});
                events.push(self.delta(&delta));
                events.push(self.stop_block());
                events
            }
            TurnUpdate::Thinking(_) | TurnUpdate::ThinkingDone | TurnUpdate::End(_) => Vec::new(),
        }
    }

    fn end(&mut self, end: &TurnEnd) -> Vec<Event> {
        let mut events = self.close();
        let (reason, sequence) = stop(&end.finish);
        events.push(typed(&json!({"type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence,
                      "stop_details": null, "container": null},
            "usage": usage(&end.usage)})));
        events.push(typed(&json!({"type": "message_stop"})));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let error = error.clone().in_form(ErrorForm::Anthropic);
        vec![typed(&error.body())]
    }

    fn keep_alive(&self) -> Event {
        typed(&json!({"type": "ping"}))
    }
}

fn text_block(text: &str) -> Json {
    json!({"type": "text", "text": text, "citations": null})
}

fn tool_use(call: &CallUpdate, input: Json) -> Json {
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input,
           "caller": {"type": "direct"}})
}

/// Returns the reason and the sequence at which an answer stopped.
fn stop(finish: &Finish) -> (Json, Json) {
    match finish {
        Finish::Complete => ("end_turn".into(), Json::Null),
        Finish::ToolCalls => ("tool_use".into(), Json::Null),
        Finish::Length => ("max_tokens".into(), Json::Null),
        Finish::StopSequence(text) => ("stop_sequence".into(), text.as_str().into()),
    }
}

/// Returns the usage at the end of a stream.
fn usage(usage: &AnswerUsage) -> Json {
    let tokens = &usage.tokens;
    json!({"input_tokens": tokens.input, "output_tokens": tokens.output,
           "cache_creation_input_tokens": tokens.cache_write,
           "cache_read_input_tokens": tokens.cache_read,
           "output_tokens_details": {"thinking_tokens": usage.reasoning},
           "server_tool_use": null})
}

/// Adds what the usage of a whole message has, and Cursor does not report.
fn whole_usage(mut usage: Json) -> Json {
    for field in ["cache_creation", "inference_geo", "service_tier", "speed"] {
        usage[field] = Json::Null;
    }
    usage
}
