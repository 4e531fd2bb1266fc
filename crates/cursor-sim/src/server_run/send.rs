//! Sends messages, faults and the end of the stream.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pending_requests::{Recipient, kv_answer, query_answer};
use super::{Exec, PendingRequest, ResponsePhase, RunStop, ServerRun};
use crate::connect::ConnectError;
use crate::exchange::{FullResponse, ResponseHead, ResponsePart};
use crate::recording::{FrameContent, Side};
use crate::request::bytes_field;
use crate::scenario::{Compression, InjectionPolicy};
use crate::schema::{self, MessageJson};
use cursor_proto::envelope::{self, Kind, PREFIX};

/// How long a client may read nothing before the run fails.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// `conversation_checkpoint_update` in `AgentServerMessage`.
const CHECKPOINT_FIELD: u64 = 3;

impl ServerRun {
    /// Sends the headers of a successful response, unless they were sent.
    pub(crate) async fn open(&mut self, compression: Compression) -> Result<(), RunStop> {
        if self.phase != ResponsePhase::BeforeHeaders {
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
        self.phase = ResponsePhase::Open;
        self.last_sent = Instant::now();
        self.sender
            .send_head(ResponseHead {
                status: 200,
                headers,
                has_body: true,
            })
            .await
            .map_err(|_| RunStop::ClientLeft)
    }

    /// Sends an HTTP response in place of a stream.
    pub(crate) async fn respond_without_stream(
        &mut self,
        response: FullResponse,
    ) -> Result<(), RunStop> {
        self.phase = ResponsePhase::Ended;
        self.recording.mark_ending(self.number);
        self.sender
            .send_full(response)
            .await
            .map_err(|_| RunStop::ClientLeft)
    }

    /// Sends an `AgentServerMessage`; an answer to it is left for `expect_client`.
    pub(crate) async fn send(&mut self, message: &Value) -> Result<(), RunStop> {
        self.track(message, Recipient::ExpectClient);
        let report = &message["interactionUpdate"]["contextInjectionState"];
        if let (Some(id), true) = (
            report["injectionId"].as_str(),
            report["state"].get("delivered").is_some(),
        ) {
            let delivered = self.received_injections.remove(id);
            self.delivered_injections.extend(delivered);
        }
        let payload = encode(message)?;
        self.send_payload(payload).await
    }

    /// Sends a request; the current step waits for the answer.
    pub(super) async fn send_request(&mut self, message: &Value) -> Result<(), RunStop> {
        self.track(message, Recipient::Step);
        let payload = encode(message)?;
        self.send_payload(payload).await
    }

    /// Sends an encoded payload unchanged.
    pub(crate) async fn send_bytes(&mut self, payload: Bytes) -> Result<(), RunStop> {
        let message =
            schema::bytes_to_json(schema::SERVER_MESSAGE, &payload, schema::Detail::Present);
        self.track(&message, Recipient::ExpectClient);
        self.send_payload(payload).await
    }

    /// Sends the same message many times.
    pub(crate) async fn repeat(&mut self, message: &Value, count: u64) -> Result<(), RunStop> {
        let payload = encode(message)?;
        for sent in 0..count {
            self.track(message, Recipient::ExpectClient);
            self.send_payload(payload.clone()).await?;
            // Process the client's messages from time to time, but not after each message, which
            // would be slow.
            if sent % 64 == 63 {
                self.receive_available().await?;
            }
        }
        Ok(())
    }

    async fn send_payload(&mut self, payload: Bytes) -> Result<(), RunStop> {
        let wire = match self.compression {
            Compression::Identity => envelope::encode(Kind::Message, &payload),
            Compression::Gzip => envelope::encode_gzip(Kind::Message, &payload),
        };
        let flags = wire.first().copied().unwrap_or_default();
        if let Some(state) = bytes_field(&payload, CHECKPOINT_FIELD) {
            self.checkpoint = Some(payload.slice_ref(state));
        }
        self.record(Side::Server, flags, FrameContent::Message(payload));
        self.send_or_buffer(ResponsePart::Data(wire)).await
    }

    /// Reports the state of injected messages according to the policy.
    pub(super) async fn report_injections(&mut self) -> Result<(), RunStop> {
        let states = match self.injections {
            InjectionPolicy::Unclaimed => return Ok(()),
            InjectionPolicy::Delivered => vec![
                json!({ "queued": {} }),
                json!({ "delivered": { "step": 1 } }),
            ],
            InjectionPolicy::Deferred => vec![json!({ "queuedForNextTurn": {} })],
            InjectionPolicy::Rejected => vec![json!({ "rejected": { "reason": "not now" } })],
        };
        let is_injection = |message: &MessageJson| {
            let action = &message.present["conversationAction"];
            action.get("injectContextAction").is_some()
        };
        while let Some(message) = self.claim(is_injection) {
            let injection = &message.present["conversationAction"]["injectContextAction"];
            for state in &states {
                let change = json!({ "injectionId": injection["injectionId"], "state": state });
                let update = json!({ "interactionUpdate": { "contextInjectionState": change } });
                self.send(&update).await?;
            }
        }
        Ok(())
    }

    /// Ends the stream without an error.
    pub(crate) async fn end(&mut self) -> Result<(), RunStop> {
        self.end_with(json!({})).await
    }

    /// Ends the stream with an error.
    pub(crate) async fn end_with_error(&mut self, error: &ConnectError) -> Result<(), RunStop> {
        self.end_with(error.end_of_stream()).await
    }

    async fn end_with(&mut self, payload: Value) -> Result<(), RunStop> {
        self.open(Compression::Identity).await?;
        if self.phase == ResponsePhase::Corrupted {
            return self.half_close().await;
        }
        if self.phase == ResponsePhase::Ended {
            return Ok(());
        }
        let payload = Bytes::from(payload.to_string());
        let wire = match self.compression {
            Compression::Identity => envelope::encode(Kind::EndStream, &payload),
            Compression::Gzip => envelope::encode_gzip(Kind::EndStream, &payload),
        };
        let flags = wire.first().copied().unwrap_or_default();
        self.record(Side::Server, flags, FrameContent::EndStream(payload));
        self.recording.mark_ending(self.number);
        self.send_or_buffer(ResponsePart::Data(wire)).await?;
        self.flush_buffer().await?;
        self.phase = ResponsePhase::Ended;
        match self.transmit(ResponsePart::Finish).await {
            // A client that has read the envelope may leave before the body ends.
            Err(RunStop::ClientLeft) => Ok(()),
            finished => finished,
        }
    }

    /// Ends the body without an end-of-stream envelope.
    pub(crate) async fn half_close(&mut self) -> Result<(), RunStop> {
        self.fault("halfClose", json!({}), ResponsePart::Finish)
            .await
    }

    /// Causes a fault; nothing can be sent after it.
    pub(crate) async fn fault(
        &mut self,
        name: &'static str,
        details: Value,
        part: ResponsePart,
    ) -> Result<(), RunStop> {
        self.record(
            Side::Server,
            0,
            FrameContent::Fault(name, details, Bytes::new()),
        );
        self.recording.mark_ending(self.number);
        self.send_or_buffer(part).await?;
        self.phase = ResponsePhase::Ended;
        Ok(())
    }

    /// Sends bytes that are not a complete envelope.
    pub(crate) async fn send_raw(
        &mut self,
        name: &'static str,
        bytes: Bytes,
    ) -> Result<(), RunStop> {
        let details = json!({ "bytes": bytes.len() });
        self.record(
            Side::Server,
            0,
            FrameContent::Fault(name, details, bytes.clone()),
        );
        self.phase = ResponsePhase::Corrupted;
        self.send_or_buffer(ResponsePart::Data(bytes)).await
    }

    /// Sends one envelope in pieces with pauses between them.
    pub(crate) async fn drip(
        &mut self,
        message: &Value,
        bytes: usize,
        every: Duration,
    ) -> Result<(), RunStop> {
        self.track(message, Recipient::ExpectClient);
        let payload = encode(message)?;
        let mut wire = envelope::encode(Kind::Message, &payload);
        self.record(Side::Server, 0, FrameContent::Message(payload));
        // No heartbeats, because one in the middle of an envelope would corrupt it.
        let heartbeats = std::mem::replace(&mut self.heartbeats, false);
        while !wire.is_empty() {
            let chunk = wire.split_to(bytes.min(wire.len()));
            self.send_or_buffer(ResponsePart::Data(chunk)).await?;
            self.wait(every).await?;
        }
        self.heartbeats = heartbeats;
        Ok(())
    }

    /// Sends the buffered envelopes in one piece and stops buffering.
    pub(super) async fn flush_buffer(&mut self) -> Result<(), RunStop> {
        match self.send_buffer.take() {
            Some(buffer) if !buffer.is_empty() => {
                self.transmit(ResponsePart::Data(buffer.freeze())).await
            }
            _ => Ok(()),
        }
    }

    async fn send_or_buffer(&mut self, part: ResponsePart) -> Result<(), RunStop> {
        match (&mut self.send_buffer, part) {
            (Some(buffer), ResponsePart::Data(bytes)) => {
                buffer.extend_from_slice(&bytes);
                Ok(())
            }
            (_, part) => {
                self.flush_buffer().await?;
                self.transmit(part).await
            }
        }
    }

    async fn transmit(&mut self, part: ResponsePart) -> Result<(), RunStop> {
        self.last_sent = Instant::now();
        match tokio::time::timeout(SEND_LIMIT, self.sender.send(part)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(RunStop::ClientLeft),
            Err(_) => Err(RunStop::Failed(format!(
                "the client has not read for {} ms",
                SEND_LIMIT.as_millis()
            ))),
        }
    }

    /// Tracks the requests and the text in a message.
    fn track(&mut self, message: &Value, recipient: Recipient) {
        for (outer, inner) in message.as_object().into_iter().flatten() {
            self.track_part(outer, inner, recipient);
        }
    }

    fn track_part(&mut self, outer: &str, inner: &Value, recipient: Recipient) {
        let id = inner["id"].as_u64().unwrap_or_default() as u32;
        let case = inner
            .as_object()
            .and_then(|members| {
                members
                    .keys()
                    .find(|name| !matches!(name.as_str(), "id" | "execId" | "unknownFields"))
            })
            .map_or("", String::as_str);
        match outer {
            "execServerMessage" => {
                self.execs.insert(id, Exec::new(case, recipient));
            }
            "kvServerMessage" => {
                self.blobs
                    .insert(id, PendingRequest::new(kv_answer(case), recipient));
            }
            "interactionQuery" => {
                self.queries
                    .insert(id, PendingRequest::new(&query_answer(case), recipient));
            }
            "interactionUpdate" => match case {
                "textDelta" => {
                    let text = inner["textDelta"]["text"].as_str().unwrap_or_default();
                    self.sent_text.push_str(text);
                }
                "turnEnded" => self.turn_ended = true,
                _ => {}
            },
            _ => {}
        }
    }
}

fn encode(message: &Value) -> Result<Bytes, RunStop> {
    schema::encode(schema::SERVER_MESSAGE, message)
        .map_err(|error| RunStop::Failed(error.to_string()))
}

/// Returns the prefix of an envelope with `size` bytes.
pub(crate) fn envelope_prefix(size: u32) -> Bytes {
    let mut prefix = BytesMut::with_capacity(PREFIX);
    prefix.put_u8(0);
    prefix.put_u32(size);
    prefix.freeze()
}
