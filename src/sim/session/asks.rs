//! What the server asked and what came back.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Session, Stop};
use crate::sim::memory;
use crate::sim::schema::{self, Shown};

/// Which id a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Id {
    /// The next one.
    Next,
    /// This one.
    Fixed(u32),
}

impl From<Option<u32>> for Id {
    fn from(id: Option<u32>) -> Self {
        id.map_or(Self::Next, Self::Fixed)
    }
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The step that asked.
    Step,
    /// Nobody in particular: answers are left for `expect_client`.
    Raw,
}

/// An exec and its answers.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Exec {
    /// The case of the request, such as `readArgs`; empty for one we do not know.
    pub(in crate::sim) asked: String,
    /// The replies, in order.
    pub(in crate::sim) replies: Vec<Shown>,
    /// What the client threw.
    pub(in crate::sim) thrown: Option<Value>,
    /// Whether the client closed it.
    pub(in crate::sim) closed: bool,
    pub(super) asker: Asker,
}

impl Exec {
    pub(super) fn new(asked: &str, asker: Asker) -> Self {
        Self {
            asked: asked.to_owned(),
            replies: Vec::new(),
            thrown: None,
            closed: false,
            asker,
        }
    }

    /// Whether nothing more has to come.
    pub(in crate::sim) fn is_over(&self) -> bool {
        self.closed || self.thrown.is_some()
    }

    /// Whether its result is there. The real service understands clients that never say
    /// `streamClose` after a plain result.
    pub(in crate::sim) fn is_answered(&self) -> bool {
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
        self.is_over()
            || match last {
                Some(event) if self.streams() => {
                    LAST_EVENTS.iter().any(|name| event.get(name).is_some())
                }
                other => other.is_some(),
            }
    }

    /// Whether it answers with a stream of events.
    pub(super) fn streams(&self) -> bool {
        self.asked == "shellStreamArgs"
    }

    /// The case a reply must have.
    pub(in crate::sim) fn answer_case(&self) -> String {
        match self.asked.as_str() {
            "shellStreamArgs" => "shellStream".into(),
            "gitDiffRequest" => "gitDiffResponse".into(),
            other => match other.strip_suffix("Args") {
                Some(stem) => format!("{stem}Result"),
                None => other.into(),
            },
        }
    }

    /// The reply as one value: a stream's output is joined, its other events kept by name.
    pub(in crate::sim) fn summary(&self) -> Shown {
        if self.streams() {
            return Shown {
                present: join(self.replies.iter().map(|reply| &reply.present)),
                full: join(self.replies.iter().map(|reply| &reply.full)),
            };
        }
        self.replies.first().cloned().unwrap_or(Shown {
            present: Value::Null,
            full: Value::Null,
        })
    }
}

fn join<'v>(replies: impl Iterator<Item = &'v Value>) -> Value {
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
pub(super) struct Ask {
    /// The case the answer must have.
    pub(super) answer_case: String,
    /// The answer.
    pub(super) answer: Option<Shown>,
    pub(super) asker: Asker,
}

impl Ask {
    pub(super) fn new(answer_case: &str, asker: Asker) -> Self {
        Self {
            answer_case: answer_case.to_owned(),
            answer: None,
            asker,
        }
    }
}

/// The case that answers a KV request.
pub(super) fn kv_answer(asked: &str) -> &'static str {
    match asked {
        "getBlobArgs" => "getBlobResult",
        _ => "setBlobResult",
    }
}

/// The case that answers a query: it has the same field number.
pub(super) fn query_answer(asked: &str) -> String {
    let field = |message: &str| schema::message(message).ok();
    field("agent.v1.InteractionQuery")
        .and_then(|query| query.get_field_by_json_name(asked))
        .and_then(|case| field("agent.v1.InteractionResponse")?.get_field(case.number()))
        .map_or_else(String::new, |field| field.json_name().to_owned())
}

impl Session {
    /// Sends an exec: one case of `ExecServerMessage`.
    pub(in crate::sim) async fn start_exec(&mut self, args: &Value, id: Id) -> Result<u32, Stop> {
        let id = match id {
            Id::Fixed(id) => id,
            Id::Next => {
                self.next_exec += 1;
                self.next_exec - 1
            }
        };
        let mut message = args.clone();
        message["id"] = json!(id);
        message["execId"] = json!(format!("exec-{id}"));
        self.ask(&json!({ "execServerMessage": message })).await?;
        Ok(id)
    }

    /// Aborts an exec.
    pub(in crate::sim) async fn abort_exec(&mut self, id: u32) -> Result<(), Stop> {
        self.send(&json!({ "execServerControlMessage": { "abort": { "id": id } } }))
            .await
    }

    /// Waits for an exec to be over; `None` when the time is up.
    pub(in crate::sim) async fn finish_exec(
        &mut self,
        id: u32,
        limit: Duration,
    ) -> Result<Option<Exec>, Stop> {
        self.wait_for(limit, |session| {
            session
                .execs
                .get(&id)
                .filter(|exec| exec.is_over())
                .cloned()
        })
        .await
    }

    /// An exec as far as it has come.
    pub(in crate::sim) fn exec(&self, id: u32) -> Option<&Exec> {
        self.execs.get(&id)
    }

    /// Stores a blob under its hash, unless this run has done so already.
    pub(in crate::sim) async fn keep_blob(
        &mut self,
        data: &Bytes,
        limit: Duration,
    ) -> Result<(), Stop> {
        let blob_id = memory::blob_id(data);
        if self.kept.contains(&blob_id) {
            return Ok(());
        }
        self.set_blob(&blob_id, data, Id::Next, limit).await?;
        self.kept.insert(blob_id);
        Ok(())
    }

    /// Stores a blob on the client.
    pub(in crate::sim) async fn set_blob(
        &mut self,
        blob_id: &[u8],
        data: &[u8],
        id: Id,
        limit: Duration,
    ) -> Result<(), Stop> {
        let request = json!({ "setBlobArgs": {
            "blobId": schema::base64(blob_id),
            "blobData": schema::base64(data),
        }});
        let answer = self.ask_kv(request, id, limit).await?;
        match &answer["setBlobResult"]["error"] {
            Value::Null => Ok(()),
            error => Err(Stop::Failed(format!(
                "expected setBlobResult without an error, got {error}"
            ))),
        }
    }

    /// Reads a blob back; `None` if the client does not have it.
    pub(in crate::sim) async fn get_blob(
        &mut self,
        blob_id: &[u8],
        id: Id,
        limit: Duration,
    ) -> Result<Option<Bytes>, Stop> {
        let request = json!({ "getBlobArgs": { "blobId": schema::base64(blob_id) } });
        let answer = self.ask_kv(request, id, limit).await?;
        match &answer["getBlobResult"]["error"] {
            Value::Null => Ok(answer["getBlobResult"]["blobData"]
                .as_str()
                .and_then(schema::from_base64)
                .map(Bytes::from)),
            error => Err(Stop::Failed(format!(
                "expected getBlobResult without an error, got {error}"
            ))),
        }
    }

    async fn ask_kv(&mut self, mut request: Value, id: Id, limit: Duration) -> Result<Value, Stop> {
        let id = match id {
            Id::Fixed(id) => id,
            Id::Next => {
                self.next_blob += 1;
                self.next_blob - 1
            }
        };
        request["id"] = json!(id);
        self.ask(&json!({ "kvServerMessage": request })).await?;
        self.wait_for(limit, |session| session.blobs.get(&id)?.answer.clone())
            .await?
            .map(|shown| shown.present)
            .ok_or_else(|| late(&format!("an answer to kv request {id}"), limit))
    }

    /// Asks the person: one case of `InteractionQuery`.
    pub(in crate::sim) async fn query(
        &mut self,
        query: &Value,
        id: Id,
        limit: Duration,
    ) -> Result<Shown, Stop> {
        let id = match id {
            Id::Fixed(id) => id,
            Id::Next => {
                self.next_query += 1;
                self.next_query - 1
            }
        };
        let mut message = query.clone();
        message["id"] = json!(id);
        self.ask(&json!({ "interactionQuery": message })).await?;
        self.wait_for(limit, |session| session.queries.get(&id)?.answer.clone())
            .await?
            .ok_or_else(|| late(&format!("a response to query {id}"), limit))
    }

    /// Whether a message nobody waited for `fits`.
    pub(in crate::sim) fn has_unclaimed(&self, fits: impl Fn(&Shown) -> bool) -> bool {
        self.unclaimed.iter().any(fits)
    }

    /// Takes a message nobody waited for that `fits`.
    pub(in crate::sim) fn claim(&mut self, mut fits: impl FnMut(&Shown) -> bool) -> Option<Shown> {
        let index = self.unclaimed.iter().position(&mut fits)?;
        self.unclaimed.remove(index)
    }
}

/// The failure of a wait that took too long.
pub(in crate::sim) fn late(what: &str, limit: Duration) -> Stop {
    Stop::Failed(format!(
        "expected {what} within {} ms, got nothing",
        limit.as_millis()
    ))
}
