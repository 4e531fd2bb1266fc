//! What the server sends.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::asks::{Asker, kv_answer, query_answer};
use super::{Ask, Exec, Phase, Session, Stop};
use crate::sim::connect::ConnectError;
use crate::sim::exchange::{Answer, BodyPlan, Reply, ReplyHead};
use crate::sim::recording::{Content, Side};
use crate::sim::request::field;
use crate::sim::scenario::{Compression, Injections};
use crate::sim::schema::{self, Shown};
use crate::wire::envelope::{self, Kind, PREFIX};

/// How long a client may leave its side unread before the run gives up.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// `conversation_checkpoint_update` in `AgentServerMessage`.
const CHECKPOINT_FIELD: u64 = 3;

impl Session {
    /// Sends the headers of a good reply; nothing happens if they are out.
    pub(in crate::sim) async fn open(&mut self, compression: Compression) -> Result<(), Stop> {
        if self.phase != Phase::Waiting {
            return Ok(());
        }
        self.compression = compression;
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/connect+proto"),
        );
        headers.insert("connect-accept-encoding", HeaderValue::from_static("gzip"));
        if compression == Compression::Gzip {
            headers.insert("connect-content-encoding", HeaderValue::from_static("gzip"));
        }
        self.phase = Phase::Open;
        self.last_sent = Instant::now();
        self.reply
            .head(ReplyHead {
                status: 200,
                headers,
                body: BodyPlan::Follows,
            })
            .await
            .map_err(|_| Stop::ClientLeft)
    }

    /// Answers with a status in place of a stream.
    pub(in crate::sim) async fn refuse(&mut self, answer: Answer) -> Result<(), Stop> {
        self.phase = Phase::Over;
        self.recording.ending(self.run);
        self.reply
            .answer(answer)
            .await
            .map_err(|_| Stop::ClientLeft)
    }

    /// Sends an `AgentServerMessage`; answers to it are left for `expect_client`.
    pub(in crate::sim) async fn send(&mut self, message: &Value) -> Result<(), Stop> {
        self.note(message, Asker::Raw);
        let payload = encode(message)?;
        self.send_payload(payload).await
    }

    /// Sends a message whose answer a step waits for.
    pub(super) async fn ask(&mut self, message: &Value) -> Result<(), Stop> {
        self.note(message, Asker::Step);
        let payload = encode(message)?;
        self.send_payload(payload).await
    }

    /// Sends a payload as it is.
    pub(in crate::sim) async fn send_bytes(&mut self, payload: Bytes) -> Result<(), Stop> {
        let message =
            schema::bytes_to_json(schema::SERVER_MESSAGE, &payload, schema::Detail::Present);
        self.note(&message, Asker::Raw);
        self.send_payload(payload).await
    }

    /// Sends the same message many times.
    pub(in crate::sim) async fn repeat(&mut self, message: &Value, count: u64) -> Result<(), Stop> {
        let payload = encode(message)?;
        for sent in 0..count {
            self.note(message, Asker::Raw);
            self.send_payload(payload.clone()).await?;
            // A client that leaves or answers in between is noticed without slowing down.
            if sent % 64 == 63 {
                self.catch_up().await?;
            }
        }
        Ok(())
    }

    async fn send_payload(&mut self, payload: Bytes) -> Result<(), Stop> {
        let wire = match self.compression {
            Compression::Identity => envelope::encode(Kind::Message, &payload),
            Compression::Gzip => envelope::encode_gzip(Kind::Message, &payload),
        };
        let flags = wire.first().copied().unwrap_or_default();
        if let Some(state) = field(&payload, CHECKPOINT_FIELD) {
            self.checkpoint = Some(payload.slice_ref(state));
        }
        self.record(Side::Server, flags, Content::Message(payload));
        self.put(Reply::Data(wire)).await
    }

    /// Tells what becomes of words that were said into the run, if it is to be told.
    pub(super) async fn report(&mut self) -> Result<(), Stop> {
        let states = match self.injections {
            Injections::Unclaimed => return Ok(()),
            Injections::Delivered => vec![
                json!({ "queued": {} }),
                json!({ "delivered": { "step": 1 } }),
            ],
            Injections::PutOff => vec![json!({ "queuedForNextTurn": {} })],
            Injections::Rejected => vec![json!({ "rejected": { "reason": "not now" } })],
        };
        let injected = |message: &Shown| {
            let action = &message.present["conversationAction"];
            action.get("injectContextAction").is_some()
        };
        while let Some(message) = self.claim(injected) {
            let injection = &message.present["conversationAction"]["injectContextAction"];
            for state in &states {
                let change = json!({ "injectionId": injection["injectionId"], "state": state });
                let update = json!({ "interactionUpdate": { "contextInjectionState": change } });
                self.send(&update).await?;
            }
            if self.injections == Injections::Delivered {
                let text = injection["userContext"]["userMessage"]["text"].as_str();
                self.taken_up.extend(text.map(str::to_owned));
            }
        }
        Ok(())
    }

    /// Ends the stream well.
    pub(in crate::sim) async fn end(&mut self) -> Result<(), Stop> {
        self.end_with(json!({})).await
    }

    /// Ends the stream with an error.
    pub(in crate::sim) async fn end_with_error(
        &mut self,
        error: &ConnectError,
    ) -> Result<(), Stop> {
        self.end_with(error.end_of_stream()).await
    }

    async fn end_with(&mut self, payload: Value) -> Result<(), Stop> {
        self.open(Compression::Identity).await?;
        if self.phase == Phase::Spoiled {
            return self.half_close().await;
        }
        if self.phase == Phase::Over {
            return Ok(());
        }
        let payload = Bytes::from(payload.to_string());
        let wire = match self.compression {
            Compression::Identity => envelope::encode(Kind::EndStream, &payload),
            Compression::Gzip => envelope::encode_gzip(Kind::EndStream, &payload),
        };
        let flags = wire.first().copied().unwrap_or_default();
        self.record(Side::Server, flags, Content::EndStream(payload));
        self.recording.ending(self.run);
        self.put(Reply::Data(wire)).await?;
        self.put(Reply::Finish).await?;
        self.phase = Phase::Over;
        Ok(())
    }

    /// Ends the body without an end-of-stream envelope.
    pub(in crate::sim) async fn half_close(&mut self) -> Result<(), Stop> {
        self.fault("halfClose", json!({}), Reply::Finish).await
    }

    /// Does something no good server does; nothing follows.
    pub(in crate::sim) async fn fault(
        &mut self,
        name: &'static str,
        facts: Value,
        reply: Reply,
    ) -> Result<(), Stop> {
        self.record(Side::Server, 0, Content::Fault(name, facts, Bytes::new()));
        self.recording.ending(self.run);
        self.put(reply).await?;
        self.phase = Phase::Over;
        Ok(())
    }

    /// Sends bytes that are no envelope of their own.
    pub(in crate::sim) async fn send_raw(
        &mut self,
        name: &'static str,
        bytes: Bytes,
    ) -> Result<(), Stop> {
        let facts = json!({ "bytes": bytes.len() });
        self.record(Side::Server, 0, Content::Fault(name, facts, bytes.clone()));
        self.phase = Phase::Spoiled;
        self.put(Reply::Data(bytes)).await
    }

    /// Sends one envelope in pieces with pauses between them.
    pub(in crate::sim) async fn drip(
        &mut self,
        message: &Value,
        bytes: usize,
        every: Duration,
    ) -> Result<(), Stop> {
        self.note(message, Asker::Raw);
        let payload = encode(message)?;
        let mut wire = envelope::encode(Kind::Message, &payload);
        self.record(Side::Server, 0, Content::Message(payload));
        // A heartbeat in the middle of an envelope would spoil it.
        let pulse = std::mem::replace(&mut self.pulse, super::Pulse::Still);
        while !wire.is_empty() {
            let piece = wire.split_to(bytes.min(wire.len()));
            self.put(Reply::Data(piece)).await?;
            self.rest(every).await?;
        }
        self.pulse = pulse;
        Ok(())
    }

    /// Sends what was kept back, in one piece.
    pub(super) async fn let_go(&mut self) -> Result<(), Stop> {
        match self.held.take() {
            Some(held) if !held.is_empty() => self.transmit(Reply::Data(held.freeze())).await,
            _ => Ok(()),
        }
    }

    async fn put(&mut self, reply: Reply) -> Result<(), Stop> {
        match (&mut self.held, reply) {
            (Some(held), Reply::Data(bytes)) => {
                held.extend_from_slice(&bytes);
                Ok(())
            }
            (_, reply) => {
                self.let_go().await?;
                self.transmit(reply).await
            }
        }
    }

    async fn transmit(&mut self, reply: Reply) -> Result<(), Stop> {
        self.last_sent = Instant::now();
        match tokio::time::timeout(SEND_LIMIT, self.reply.send(reply)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Stop::ClientLeft),
            Err(_) => Err(Stop::Failed(format!(
                "the client has not read for {} ms",
                SEND_LIMIT.as_millis()
            ))),
        }
    }

    /// Keeps track of what a message asks and says.
    fn note(&mut self, message: &Value, asker: Asker) {
        for (outer, inner) in message.as_object().into_iter().flatten() {
            self.note_part(outer, inner, asker);
        }
    }

    fn note_part(&mut self, outer: &str, inner: &Value, asker: Asker) {
        let id = inner["id"].as_u64().unwrap_or_default() as u32;
        let asked = inner
            .as_object()
            .and_then(|members| {
                members
                    .keys()
                    .find(|name| !matches!(name.as_str(), "id" | "execId" | "unknownFields"))
            })
            .map_or("", String::as_str);
        match outer {
            "execServerMessage" => {
                self.execs.insert(id, Exec::new(asked, asker));
            }
            "kvServerMessage" => {
                self.blobs.insert(id, Ask::new(kv_answer(asked), asker));
            }
            "interactionQuery" => {
                self.queries
                    .insert(id, Ask::new(&query_answer(asked), asker));
            }
            "interactionUpdate" => match asked {
                "textDelta" => {
                    let text = inner["textDelta"]["text"].as_str().unwrap_or_default();
                    self.spoken.push_str(text);
                }
                "turnEnded" => self.turn_ended = true,
                _ => {}
            },
            _ => {}
        }
    }
}

fn encode(message: &Value) -> Result<Bytes, Stop> {
    schema::encode(schema::SERVER_MESSAGE, message).map_err(|error| Stop::Failed(error.to_string()))
}

/// An envelope prefix that announces `size` bytes.
pub(in crate::sim) fn prefix(size: u32) -> Bytes {
    let mut prefix = BytesMut::with_capacity(PREFIX);
    prefix.put_u8(0);
    prefix.put_u32(size);
    prefix.freeze()
}
