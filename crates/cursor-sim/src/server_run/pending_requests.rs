//! The requests the server has sent and their answers.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{RunStop, ServerRun};
use crate::conversation_state;
use crate::schema::{self, MessageJson};

/// The id of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageId {
    /// The next unused id.
    Next,
    /// This id.
    Fixed(u32),
}

impl From<Option<u32>> for MessageId {
    fn from(id: Option<u32>) -> Self {
        id.map_or(Self::Next, Self::Fixed)
    }
}

/// What receives an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipient {
    /// The step that sent the request.
    Step,
    /// A later `expect_client` step, if there is one.
    ExpectClient,
}

/// An exec request and its replies.
#[derive(Debug, Clone)]
pub(crate) struct Exec {
    /// The case of the request, such as `readArgs`; empty if unknown.
    pub(crate) request_case: String,
    /// The replies, in order.
    pub(crate) replies: Vec<MessageJson>,
    /// What the client threw.
    pub(crate) thrown: Option<Value>,
    /// Whether the client sent `streamClose`.
    pub(crate) closed: bool,
    pub(super) recipient: Recipient,
}

impl Exec {
    pub(super) fn new(request_case: &str, recipient: Recipient) -> Self {
        Self {
            request_case: request_case.to_owned(),
            replies: Vec::new(),
            thrown: None,
            closed: false,
            recipient,
        }
    }

    /// Returns whether the client has closed it or thrown.
    pub(crate) fn is_finished(&self) -> bool {
        self.closed || self.thrown.is_some()
    }

    /// Returns whether its result has arrived. Does not need `streamClose`, because the real
    /// service accepts clients that do not send it after a plain result.
    pub(crate) fn is_answered(&self) -> bool {
        const LAST_EVENTS: [&str; 5] = [
            "exit",
            "rejected",
            "permissionDenied",
            "backgrounded",
            "sandboxUnsupported",
        ];
        let last = self
            .replies
            .last()
            .map(|reply| &reply.present["shellStream"]);
        self.is_finished()
            || match last {
                Some(event) if self.is_stream() => {
                    LAST_EVENTS.iter().any(|name| event.get(name).is_some())
                }
                other => other.is_some(),
            }
    }

    /// Returns whether the replies are a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        self.request_case == "shellStreamArgs"
    }

    /// Returns the case a reply must have.
    pub(crate) fn answer_case(&self) -> String {
        match self.request_case.as_str() {
            "shellStreamArgs" => "shellStream".into(),
            "gitDiffRequest" => "gitDiffResponse".into(),
            other => match other.strip_suffix("Args") {
                Some(stem) => format!("{stem}Result"),
                None => other.into(),
            },
        }
    }

    /// Returns the reply as one value: the output of a stream is joined, its other events are
    /// members by name.
    pub(crate) fn summary(&self) -> MessageJson {
        if self.is_stream() {
            return MessageJson {
                present: join_stream(self.replies.iter().map(|reply| &reply.present)),
                with_defaults: join_stream(self.replies.iter().map(|reply| &reply.with_defaults)),
            };
        }
        self.replies.first().cloned().unwrap_or(MessageJson {
            present: Value::Null,
            with_defaults: Value::Null,
        })
    }
}

fn join_stream<'v>(replies: impl Iterator<Item = &'v Value>) -> Value {
    let mut joined = json!({ "stdout": "", "stderr": "" });
    for reply in replies {
        let Some((event, value)) = schema::case(&reply["shellStream"]) else {
            continue;
        };
        match event {
            "stdout" | "stderr" => {
                let before = joined[event].as_str().unwrap_or_default();
                let data = value["data"].as_str().unwrap_or_default();
                joined[event] = Value::String(format!("{before}{data}"));
            }
            _ => joined[event] = value.clone(),
        }
    }
    json!({ "shellStream": joined })
}

/// A KV request or a query and its answer.
#[derive(Debug, Clone)]
pub(super) struct PendingRequest {
    /// The case the answer must have.
    pub(super) answer_case: String,
    pub(super) answer: Option<MessageJson>,
    pub(super) recipient: Recipient,
}

impl PendingRequest {
    pub(super) fn new(answer_case: &str, recipient: Recipient) -> Self {
        Self {
            answer_case: answer_case.to_owned(),
            answer: None,
            recipient,
        }
    }
}

/// Returns the case that answers a KV request.
pub(super) fn kv_answer(request_case: &str) -> &'static str {
    match request_case {
        "getBlobArgs" => "getBlobResult",
        _ => "setBlobResult",
    }
}

/// Returns the case that answers a query: the one with the same field number.
pub(super) fn query_answer(request_case: &str) -> String {
    let field = |message: &str| schema::message(message).ok();
    field("agent.v1.InteractionQuery")
        .and_then(|query| query.get_field_by_json_name(request_case))
        .and_then(|case| field("agent.v1.InteractionResponse")?.get_field(case.number()))
        .map_or_else(String::new, |field| field.json_name().to_owned())
}

impl ServerRun {
    /// Sends an exec request: one case of `ExecServerMessage`. Returns its id.
    pub(crate) async fn start_exec(&mut self, args: &Value, id: MessageId) -> Result<u32, RunStop> {
        let id = match id {
            MessageId::Fixed(id) => id,
            MessageId::Next => {
                self.next_exec += 1;
                self.next_exec - 1
            }
        };
        let mut message = args.clone();
        message["id"] = json!(id);
        message["execId"] = json!(format!("exec-{id}"));
        self.send_request(&json!({ "execServerMessage": message }))
            .await?;
        Ok(id)
    }

    pub(crate) async fn abort_exec(&mut self, id: u32) -> Result<(), RunStop> {
        self.send(&json!({ "execServerControlMessage": { "abort": { "id": id } } }))
            .await
    }

    /// Waits until an exec is finished; returns `None` at the limit.
    pub(crate) async fn finish_exec(
        &mut self,
        id: u32,
        limit: Duration,
    ) -> Result<Option<Exec>, RunStop> {
        self.wait_for(limit, |run| {
            run.execs
                .get(&id)
                .filter(|exec| exec.is_finished())
                .cloned()
        })
        .await
    }

    /// Returns an exec with the replies so far.
    pub(crate) fn exec(&self, id: u32) -> Option<&Exec> {
        self.execs.get(&id)
    }

    /// Stores a blob on the client under its hash, unless this run has done so already.
    pub(crate) async fn store_blob_once(
        &mut self,
        data: &Bytes,
        limit: Duration,
    ) -> Result<(), RunStop> {
        let blob_id = conversation_state::blob_id(data);
        if self.stored_blobs.contains(&blob_id) {
            return Ok(());
        }
        self.set_blob(&blob_id, data, MessageId::Next, limit)
            .await?;
        self.stored_blobs.insert(blob_id);
        Ok(())
    }

    /// Stores a blob on the client.
    pub(crate) async fn set_blob(
        &mut self,
        blob_id: &[u8],
        data: &[u8],
        id: MessageId,
        limit: Duration,
    ) -> Result<(), RunStop> {
        let request = json!({ "setBlobArgs": {
            "blobId": schema::base64(blob_id),
            "blobData": schema::base64(data),
        }});
        let id = self.start_kv_request(request, id).await?;
        let answer = self.finish_kv_request(id, limit).await?;
        match &answer["setBlobResult"]["error"] {
            Value::Null => Ok(()),
            error => Err(RunStop::Failed(format!(
                "expected setBlobResult without an error, got {error}"
            ))),
        }
    }

    /// Reads a blob from the client; returns `None` if the client does not have it.
    pub(crate) async fn get_blob(
        &mut self,
        blob_id: &[u8],
        id: MessageId,
        limit: Duration,
    ) -> Result<Option<Bytes>, RunStop> {
        let id = self.start_get_blob(blob_id, id).await?;
        self.finish_get_blob(id, limit).await
    }

    /// Requests a blob from the client. Returns the id of the request. As the real service does,
    /// several requests may be open at the same time.
    pub(crate) async fn start_get_blob(
        &mut self,
        blob_id: &[u8],
        id: MessageId,
    ) -> Result<u32, RunStop> {
        let request = json!({ "getBlobArgs": { "blobId": schema::base64(blob_id) } });
        self.start_kv_request(request, id).await
    }

    /// Waits for a requested blob; returns `None` if the client does not have it.
    pub(crate) async fn finish_get_blob(
        &mut self,
        id: u32,
        limit: Duration,
    ) -> Result<Option<Bytes>, RunStop> {
        let answer = self.finish_kv_request(id, limit).await?;
        match &answer["getBlobResult"]["error"] {
            Value::Null => Ok(answer["getBlobResult"]["blobData"]
                .as_str()
                .and_then(schema::from_base64)
                .map(Bytes::from)),
            error => Err(RunStop::Failed(format!(
                "expected getBlobResult without an error, got {error}"
            ))),
        }
    }

    async fn start_kv_request(
        &mut self,
        mut request: Value,
        id: MessageId,
    ) -> Result<u32, RunStop> {
        let id = match id {
            MessageId::Fixed(id) => id,
            MessageId::Next => {
                self.next_blob += 1;
                self.next_blob - 1
            }
        };
        request["id"] = json!(id);
        self.send_request(&json!({ "kvServerMessage": request }))
            .await?;
        Ok(id)
    }

    async fn finish_kv_request(&mut self, id: u32, limit: Duration) -> Result<Value, RunStop> {
        self.wait_for(limit, |run| run.blobs.get(&id)?.answer.clone())
            .await?
            .map(|message| message.present)
            .ok_or_else(|| timed_out(&format!("an answer to kv request {id}"), limit))
    }

    /// Sends a query, one case of `InteractionQuery`, and waits for the response.
    pub(crate) async fn query(
        &mut self,
        query: &Value,
        id: MessageId,
        limit: Duration,
    ) -> Result<MessageJson, RunStop> {
        let id = match id {
            MessageId::Fixed(id) => id,
            MessageId::Next => {
                self.next_query += 1;
                self.next_query - 1
            }
        };
        let mut message = query.clone();
        message["id"] = json!(id);
        self.send_request(&json!({ "interactionQuery": message }))
            .await?;
        self.wait_for(limit, |run| run.queries.get(&id)?.answer.clone())
            .await?
            .ok_or_else(|| timed_out(&format!("a response to query {id}"), limit))
    }

    /// Returns whether an unclaimed message satisfies `filter`.
    pub(crate) fn has_unclaimed(&self, filter: impl Fn(&MessageJson) -> bool) -> bool {
        self.unclaimed.iter().any(filter)
    }

    /// Removes and returns the first unclaimed message that satisfies `filter`.
    pub(crate) fn claim(
        &mut self,
        mut filter: impl FnMut(&MessageJson) -> bool,
    ) -> Option<MessageJson> {
        let index = self.unclaimed.iter().position(&mut filter)?;
        self.unclaimed.remove(index)
    }
}

/// Returns the failure of a wait that reached its limit.
pub(crate) fn timed_out(what: &str, limit: Duration) -> RunStop {
    RunStop::Failed(format!(
        "expected {what} within {} ms, got nothing",
        limit.as_millis()
    ))
}
