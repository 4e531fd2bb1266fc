//! A turn in the form of OpenAI's responses: as a stream of events, or as one object.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json as JsonBody;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::super::answer::{
    AnswerBlock, AnswerUsage, CallUpdate, CollectedAnswer, Finish, TurnEnd, TurnUpdate,
};
use super::super::api_error::ApiError;
use super::super::event_stream::{EventEncoder, typed};
use super::super::transcript_builder::answer_message;
use super::super::turn_driver::StartedTurn;
use super::store::{ResponseStore, StoredResponse};
use super::tool_names::{ToolNames, custom_input};
use agent::message::Message;

/// What a response repeats of its request, and needs to be stored.
#[derive(Debug)]
pub(super) struct ResponseShape {
    pub(super) model: String,
    pub(super) instructions: Option<String>,
    /// The messages of the request.
    pub(super) new_messages: Vec<Message>,
    /// The response that it continues.
    pub(super) previous: Option<String>,
    pub(super) names: ToolNames,
    /// The form of the answer, as the client wrote it.
    pub(super) format: Option<Json>,
    pub(super) is_stored: bool,
    pub(super) is_parallel: bool,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) metadata: Json,
}

/// Encodes one response.
pub(super) struct ResponseEncoder {
    id: String,
    created: u64,
    shape: ResponseShape,
    session: String,
    store: Arc<ResponseStore>,
    /// The number of the next event.
    sequence: u64,
    /// Items that are complete.
    output: Vec<Json>,
    open: Option<OpenItem>,
    /// The answer so far, to be stored.
    blocks: Vec<AnswerBlock>,
}

/// The item that is not complete.
struct OpenItem {
    id: String,
    kind: OpenKind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenKind {
    Reasoning,
    Message,
}

impl ResponseEncoder {
    pub(super) fn new(shape: ResponseShape, turn: &StartedTurn, store: Arc<ResponseStore>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: new_id("resp"),
            created: since.map_or(0, |since| since.as_secs()),
            shape,
            session: turn.session.clone(),
            store,
            sequence: 0,
            output: Vec::new(),
            open: None,
            blocks: Vec::new(),
        }
    }

    /// Returns the response object.
    fn object(&self, status: &str, end: Option<&TurnEnd>) -> Json {
        let shape = &self.shape;
        let is_cut = end.is_some_and(|end| end.finish == Finish::Length);
        let text = json!({"type": "text"});
        let format = shape.format.as_ref().unwrap_or(&text);
        let incomplete = is_cut.then(|| json!({"reason": "max_output_tokens"}));
        let mut object = json!({"id": self.id, "object": "response", "created_at": self.created,
            "status": status, "error": null, "incomplete_details": incomplete,
            "access_programs": null,
            "instructions": shape.instructions, "model": shape.model, "output": self.output,
            "parallel_tool_calls": shape.is_parallel, "temperature": null, "top_p": null,
            "tool_choice": "auto", "tools": [], "background": false,
            "max_output_tokens": shape.max_output_tokens,
            "previous_response_id": shape.previous, "store": shape.is_stored,
            "text": {"format": format}, "truncation": "disabled",
            "metadata": shape.metadata});
        // The official type has no null.
        if let Some(end) = end {
            object["usage"] = usage(&end.usage);
        }
        object
    }

    /// Returns the response as one object.
    pub(super) async fn whole(mut self, mut turn: StartedTurn) -> Result<Response, ApiError> {
        let answer = CollectedAnswer::collect(&mut turn.updates).await?;
        for block in answer.blocks {
            let item = match &block {
                AnswerBlock::Thinking(text) => reasoning_item(&new_id("rs"), text),
                AnswerBlock::Text(text) => message_item(&new_id("msg"), text, "completed"),
                AnswerBlock::Call(call) => self.call_item(call).0,
            };
            self.output.push(item);
            self.blocks.push(block);
        }
        let body = self.object(status(&answer.end.finish), Some(&answer.end));
        self.remember();
        Ok((turn.headers(), JsonBody(body)).into_response())
    }

    /// Stores the response, if the client may continue it.
    fn remember(&self) {
        if !self.shape.is_stored {
            return;
        }
        let answer = answer_message(self.blocks.iter().map(AnswerBlock::to_part));
        let messages = self.shape.new_messages.iter().cloned().chain([answer]);
        let response = StoredResponse {
            previous: self.shape.previous.clone(),
            messages: messages.collect(),
            session: self.session.clone(),
        };
        self.store.insert(&self.id, response);
    }

    /// Returns an event with its number.
    fn event(&mut self, kind: &str, fields: Json) -> Event {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Some(event), Json::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        typed(&event)
    }

    /// Returns an event about the item that is open, or the next one.
    fn item_event(&mut self, kind: &str, id: &str, fields: Json) -> Event {
        let mut all = json!({"item_id": id, "output_index": self.output.len()});
        if let (Some(all), Json::Object(fields)) = (all.as_object_mut(), fields) {
            all.extend(fields);
        }
        self.event(kind, all)
    }

    fn added(&mut self, item: &Json) -> Event {
        let fields = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.added", fields)
    }

    /// Returns the event of a complete item, and adds it to the output.
    fn done(&mut self, item: Json) -> Event {
        let fields = json!({"output_index": self.output.len(), "item": item});
        let event = self.event("response.output_item.done", fields);
        self.output.push(item);
        event
    }

    /// Adds text to an item of this kind, and begins one if another is open.
    fn extend(&mut self, kind: OpenKind, text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            events.extend(self.close());
            events.extend(self.begin(kind));
        }
        let Some(open) = &mut self.open else {
            return events;
        };
        open.text.push_str(text);
        let id = open.id.clone();
        events.push(match kind {
            OpenKind::Reasoning => {
                let fields = json!({"summary_index": 0, "delta": text});
                self.item_event("response.reasoning_summary_text.delta", &id, fields)
            }
            OpenKind::Message => {
                let fields = json!({"content_index": 0, "delta": text, "logprobs": []});
                self.item_event("response.output_text.delta", &id, fields)
            }
        });
        events
    }

    fn begin(&mut self, kind: OpenKind) -> Vec<Event> {
        let id = match kind {
            OpenKind::Reasoning => new_id("rs"),
            OpenKind::Message => new_id("msg"),
        };
        let events = match kind {
            OpenKind::Reasoning => {
                let item = json!({"id": id, "type": "reasoning", "summary": []});
                let part = json!({"summary_index": 0, "part": summary("")});
                let name = "response.reasoning_summary_part.added";
                vec![self.added(&item), self.item_event(name, &id, part)]
            }
            OpenKind::Message => {
                let mut item = message_item(&id, "", "in_progress");
                item["content"] = json!([]);
                let part = json!({"content_index": 0, "part": output_text("")});
                let name = "response.content_part.added";
                vec![self.added(&item), self.item_event(name, &id, part)]
            }
        };
        self.open = Some(OpenItem {
            id,
            kind,
            text: String::new(),
        });
        events
    }

    /// Returns the events that complete the open item.
    fn close(&mut self) -> Vec<Event> {
        let Some(OpenItem { id, kind, text }) = self.open.take() else {
            return Vec::new();
        };
        match kind {
            OpenKind::Reasoning => {
                let done = json!({"summary_index": 0, "text": text});
                let part = json!({"summary_index": 0, "part": summary(&text)});
                let item = reasoning_item(&id, &text);
                self.blocks.push(AnswerBlock::Thinking(text));
                vec![
                    self.item_event("response.reasoning_summary_text.done", &id, done),
                    self.item_event("response.reasoning_summary_part.done", &id, part),
                    self.done(item),
                ]
            }
            OpenKind::Message => {
                let done = json!({"content_index": 0, "text": text, "logprobs": []});
                let part = json!({"content_index": 0, "part": output_text(&text)});
                let item = message_item(&id, &text, "completed");
                self.blocks.push(AnswerBlock::Text(text));
                vec![
                    self.item_event("response.output_text.done", &id, done),
                    self.item_event("response.content_part.done", &id, part),
                    self.done(item),
                ]
            }
        }
    }

    /// Returns the item of a call, the field with its input, and that input.
    fn call_item(&self, call: &CallUpdate) -> (Json, &'static str, String) {
        let origin = self.shape.names.origin(&call.name);
        let (mut item, field, input) = if origin.is_custom {
            let item = json!({"id": new_id("ctc"), "type": "custom_tool_call"});
            (item, "input", custom_input(&call.arguments))
        } else {
            let item = json!({"id": new_id("fc"), "type": "function_call", "status": "completed"});
            (item, "arguments", call.arguments.to_string())
        };
        item["call_id"] = call.id.as_str().into();
        item["name"] = origin.name.into();
        item[field] = input.as_str().into();
        if let Some(namespace) = origin.namespace {
            item["namespace"] = namespace.into();
        }
        (item, field, input)
    }

    fn call(&mut self, call: CallUpdate) -> Vec<Event> {
        let mut events = self.close();
        let (item, field, input) = self.call_item(&call);
        let mut begun = item.clone();
        if begun.get("status").is_some() {
            begun["status"] = "in_progress".into();
        }
        begun[field] = "".into();
        events.push(self.added(&begun));
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let (delta, done) = if field == "input" {
            (
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
            )
        } else {
            (
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
            )
        };
        events.push(self.item_event(delta, &id, json!({"delta": input})));
        let mut fields = json!({ field: input });
        if field == "arguments" {
            // Earlier versions of the official libraries require it.
            fields["name"] = item["name"].clone();
        }
        events.push(self.item_event(done, &id, fields));
        events.push(self.done(item));
        self.blocks.push(AnswerBlock::Call(call));
        events
    }
}

impl EventEncoder for ResponseEncoder {
    fn open(&mut self) -> Vec<Event> {
        let response = json!({"response": self.object("in_progress", None)});
        vec![
            self.event("response.created", response.clone()),
            self.event("response.in_progress", response),
        ]
    }

    fn update(&mut self, update: TurnUpdate) -> Vec<Event> {
        match update {
            TurnUpdate::Text(text) => self.extend(OpenKind::Message, &text),
            TurnUpdate::Thinking(text) => self.extend(OpenKind::Reasoning, &text),
            TurnUpdate::ThinkingDone => match &self.open {
                Some(open) if open.kind == OpenKind::Reasoning => self.close(),
                _ => Vec::new(),
            },
            TurnUpdate::Call(call) => self.call(call),
            TurnUpdate::End(_) => Vec::new(),
        }
    }

    fn end(&mut self, end: &TurnEnd) -> Vec<Event> {
        let mut events = self.close();
        self.remember();
        let status = status(&end.finish);
        let response = json!({"response": self.object(status, Some(end))});
        events.push(self.event(&format!("response.{status}"), response));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let mut response = self.object("failed", None);
        response["error"] = error.response_error();
        vec![self.event("response.failed", json!({ "response": response }))]
    }
}

fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}

fn status(finish: &Finish) -> &'static str {
    match finish {
        Finish::Length => "incomplete",
        _ => "completed",
    }
}

fn summary(text: &str) -> Json {
    json!({"type": "summary_text", "text": text})
}

fn output_text(text: &str) -> Json {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn reasoning_item(id: &str, text: &str) -> Json {
    json!({"id": id, "type": "reasoning", "summary": [summary(text)]})
}

fn message_item(id: &str, text: &str, status: &str) -> Json {
    json!({"id": id, "type": "message", "status": status, "role": "assistant",
           "content": [output_text(text)]})
}

fn usage(usage: &AnswerUsage) -> Json {
    let (input, output) = (usage.tokens.prompt(), usage.tokens.output);
    json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output,
           "input_tokens_details": {"cached_tokens": usage.tokens.cache_read,
                                    "cache_write_tokens": usage.tokens.cache_write},
           "output_tokens_details": {"reasoning_tokens": usage.reasoning}})
}
