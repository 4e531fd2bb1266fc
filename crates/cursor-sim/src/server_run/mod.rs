//! The server side of a live run: sends messages, tracks requests, matches the client's answers
//! and detects when the client disconnects.
//!
//! Scripts and the built-in responder drive it and decide what is sent; the run itself enforces
//! that the client follows the protocol.

mod pending_requests;
mod receive;
mod send;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::conversation_state::InjectedMessage;
use super::exchange::{ResponseSender, SendWindow};
use super::inbox::{ClientInput, ReceivedFrames};
use super::recording::{FrameContent, RecordingHandle, Side};
use super::scenario::{Compression, InjectionPolicy};
use super::schema::MessageJson;

use pending_requests::PendingRequest;
pub(super) use pending_requests::{Exec, MessageId, timed_out};
pub(super) use send::envelope_prefix;

/// Idle time after which a heartbeat is sent.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why a run stops before its script ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunStop {
    /// The client ended its side or disconnected.
    ClientLeft,
    /// An expectation was not met, or the client violated the protocol.
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponsePhase {
    /// No headers were sent.
    BeforeHeaders,
    /// Envelopes may be sent.
    Open,
    /// Bytes that are not an envelope were sent, so no envelope can follow.
    Corrupted,
    /// Nothing more can be sent.
    Ended,
}

/// One live run.
#[derive(Debug)]
pub(super) struct ServerRun {
    number: u64,
    request_id: Arc<str>,
    recording: RecordingHandle,
    inbox: ReceivedFrames,
    sender: ResponseSender,
    window: SendWindow,
    phase: ResponsePhase,
    compression: Compression,
    heartbeats: bool,
    last_sent: Instant,
    injections: InjectionPolicy,
    /// Injected messages by the id of the injection, until they are reported as delivered.
    received_injections: HashMap<String, InjectedMessage>,
    /// Injected messages that were reported as delivered.
    delivered_injections: Vec<InjectedMessage>,
    /// Envelopes to be sent in one piece; `None` while not buffering.
    send_buffer: Option<BytesMut>,
    execs: HashMap<u32, Exec>,
    next_exec: u32,
    blobs: HashMap<u32, PendingRequest>,
    next_blob: u32,
    stored_blobs: HashSet<Bytes>,
    queries: HashMap<u32, PendingRequest>,
    next_query: u32,
    unclaimed: VecDeque<MessageJson>,
    sent_text: String,
    turn_ended: bool,
    checkpoint: Option<Bytes>,
}

/// What a run needs from its connection.
#[derive(Debug)]
pub(super) struct RunConnection {
    /// Ordinal of the run.
    pub(super) number: u64,
    pub(super) request_id: String,
    pub(super) recording: RecordingHandle,
    /// The client's messages.
    pub(super) inbox: ReceivedFrames,
    /// The response.
    pub(super) sender: ResponseSender,
    /// The client's flow-control window.
    pub(super) window: SendWindow,
}

impl ServerRun {
    /// Creates a run on which nothing was sent yet.
    pub(super) fn new(connection: RunConnection) -> Self {
        Self {
            number: connection.number,
            request_id: connection.request_id.into(),
            recording: connection.recording,
            inbox: connection.inbox,
            sender: connection.sender,
            window: connection.window,
            phase: ResponsePhase::BeforeHeaders,
            compression: Compression::Identity,
            heartbeats: true,
            last_sent: Instant::now(),
            injections: InjectionPolicy::default(),
            received_injections: HashMap::new(),
            delivered_injections: Vec::new(),
            send_buffer: None,
            execs: HashMap::new(),
            next_exec: 1,
            blobs: HashMap::new(),
            next_blob: 1,
            stored_blobs: HashSet::new(),
            queries: HashMap::new(),
            next_query: 1,
            unclaimed: VecDeque::new(),
            sent_text: String::new(),
            turn_ended: false,
            checkpoint: None,
        }
    }

    /// Returns the request headers as recorded.
    pub(super) fn headers(&mut self) -> Value {
        Value::Object(self.sender.recorder().headers().clone())
    }

    /// Returns the ordinal of the run.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Returns all text sent so far.
    pub(super) fn sent_text(&self) -> &str {
        &self.sent_text
    }

    /// Returns whether `turnEnded` was sent.
    pub(super) fn turn_ended(&self) -> bool {
        self.turn_ended
    }

    /// Returns whether envelopes can be sent on this stream.
    pub(super) fn can_send_envelopes(&self) -> bool {
        self.phase == ResponsePhase::Open
    }

    /// Takes the last checkpoint sent since the previous call.
    pub(super) fn take_checkpoint(&mut self) -> Option<Bytes> {
        self.checkpoint.take()
    }

    /// Stops granting the client flow-control capacity.
    pub(super) fn hold_window(&self) {
        self.window.hold();
    }

    /// Sets how injected messages are handled.
    pub(super) fn set_injections(&mut self, injections: InjectionPolicy) {
        self.injections = injections;
    }

    /// Returns the injected messages that were reported as delivered.
    pub(super) fn delivered_injections(&self) -> &[InjectedMessage] {
        &self.delivered_injections
    }

    /// Buffers what is sent from here on, until the run waits for input or the stream ends.
    pub(super) fn start_buffering(&mut self) {
        self.send_buffer.get_or_insert_default();
    }

    /// Sets whether heartbeats are sent while the run is idle.
    pub(super) fn set_heartbeats(&mut self, heartbeats: bool) {
        self.heartbeats = heartbeats;
    }

    /// Waits for the first message; returns its payload.
    pub(super) async fn first_message(&mut self, limit: Duration) -> Result<Bytes, RunStop> {
        let input = tokio::select! {
            biased;
            input = self.inbox.next() => input,
            () = self.sender.closed() => return Err(RunStop::ClientLeft),
            () = tokio::time::sleep(limit) => {
                return Err(RunStop::Failed(format!(
                    "expected a runRequest within {} ms, got nothing",
                    limit.as_millis()
                )));
            }
        };
        match input {
            ClientInput::Message { flags, payload } => {
                self.record(Side::Client, flags, FrameContent::Message(payload.clone()));
                Ok(payload)
            }
            ClientInput::Ended | ClientInput::Disconnected => Err(RunStop::ClientLeft),
            ClientInput::Malformed(reason) => Err(RunStop::Failed(reason)),
        }
    }

    /// Waits until `find` returns a value; returns `None` at the limit.
    pub(super) async fn wait_for<T>(
        &mut self,
        limit: Duration,
        mut find: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, RunStop> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = find(self) {
                return Ok(Some(found));
            }
            if !self.receive_before(deadline).await? {
                return Ok(None);
            }
        }
    }

    /// Waits for this time, processing the client's messages.
    pub(super) async fn wait(&mut self, time: Duration) -> Result<(), RunStop> {
        self.wait_for(time, |_| None::<()>).await.map(drop)
    }

    /// Processes the messages that have arrived, without waiting.
    pub(super) async fn receive_available(&mut self) -> Result<(), RunStop> {
        loop {
            let input = tokio::select! {
                biased;
                input = self.inbox.next() => input,
                () = std::future::ready(()) => return Ok(()),
            };
            self.receive(input)?;
            self.report_injections().await?;
        }
    }

    /// Waits until the client ends its side or disconnects; returns `false` at the limit.
    pub(super) async fn wait_for_disconnect(&mut self, limit: Duration) -> Result<bool, RunStop> {
        match self.wait_for(limit, |_| None::<()>).await {
            Err(RunStop::ClientLeft) => Ok(true),
            Err(other) => Err(other),
            Ok(_) => Ok(false),
        }
    }

    /// Processes the client's next message; returns `false` if none arrives before the deadline.
    async fn receive_before(&mut self, deadline: Instant) -> Result<bool, RunStop> {
        self.flush_buffer().await?;
        loop {
            let next_heartbeat = if self.heartbeats && self.phase == ResponsePhase::Open {
                self.last_sent + HEARTBEAT
            } else {
                deadline
            };
            let input = tokio::select! {
                biased;
                input = self.inbox.next() => input,
                () = self.sender.closed() => return Err(RunStop::ClientLeft),
                () = tokio::time::sleep_until(next_heartbeat.min(deadline)) => {
                    if Instant::now() >= deadline {
                        return Ok(false);
                    }
                    self.send(&json!({ "interactionUpdate": { "heartbeat": {} } })).await?;
                    continue;
                }
            };
            self.receive(input)?;
            self.report_injections().await?;
            return Ok(true);
        }
    }

    fn record(&self, from: Side, flags: u8, content: FrameContent) {
        self.recording
            .record_frame((self.number, &self.request_id), from, flags, content);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::exchange::{
        self, BodyChunk, ClientConnection, ConnectionSide, RequestHead, ResponsePart,
    };
    use crate::recording::RequestRecorder;
    use cursor_proto::envelope::{self, Encoding, Kind};

    /// Returns a run on channels, with its headers sent.
    async fn open_run() -> (ServerRun, ConnectionSide) {
        let request = http::Request::builder().uri("/run").body(()).unwrap();
        let client = ClientConnection {
            number: 1,
            tls: false,
        };
        let head = RequestHead::new(&request, http::Version::HTTP_2, client);
        let recorder = RequestRecorder::unrecorded(&head);
        let (incoming, connection) = exchange::open(head);
        let mut run = ServerRun::new(RunConnection {
            number: 1,
            request_id: "r".into(),
            recording: RecordingHandle::start(None).unwrap(),
            inbox: ReceivedFrames::stream(incoming.body, Encoding::Identity),
            sender: ResponseSender::new(incoming.response, recorder),
            window: incoming.window,
        });
        run.open(Compression::Identity).await.unwrap();
        (run, connection)
    }

    /// Counts the data parts sent since the previous call.
    fn sent(connection: &mut ConnectionSide) -> usize {
        let parts = std::iter::from_fn(|| connection.response.try_recv().ok());
        parts
            .filter(|part| matches!(part, ResponsePart::Data(_)))
            .count()
    }

    /// Regression: the run was recorded as cancelled by a client that had read its end.
    #[tokio::test]
    async fn a_client_may_leave_once_the_end_was_sent() {
        let (mut run, connection) = open_run().await;
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        while connection.response.len() + 1 < connection.response.max_capacity() {
            run.send(&update).await.unwrap();
        }
        // The envelope takes the last place, and the end of the body waits for another.
        let leave = async { drop(connection) };
        assert_eq!(tokio::join!(run.end(), leave).0, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_is_sent_after_five_idle_seconds() {
        let (mut run, mut connection) = open_run().await;
        run.wait(Duration::from_millis(4_999)).await.unwrap();
        assert_eq!(sent(&mut connection), 0);
        run.wait(Duration::from_secs(6)).await.unwrap();
        assert_eq!(sent(&mut connection), 2);
        // Any message restarts the idle time.
        run.wait(Duration::from_secs(3)).await.unwrap();
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        run.send(&update).await.unwrap();
        run.wait(Duration::from_secs(4)).await.unwrap();
        assert_eq!(sent(&mut connection), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn buffered_messages_are_sent_in_one_piece() {
        let (mut run, mut connection) = open_run().await;
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        run.start_buffering();
        run.send(&update).await.unwrap();
        run.send(&update).await.unwrap();
        assert_eq!(sent(&mut connection), 0);
        run.wait(Duration::from_millis(1)).await.unwrap();
        assert_eq!(sent(&mut connection), 1);
        // Buffering has stopped.
        run.send(&update).await.unwrap();
        run.send(&update).await.unwrap();
        assert_eq!(sent(&mut connection), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_heartbeat_is_sent_when_heartbeats_are_off() {
        let (mut run, mut connection) = open_run().await;
        run.set_heartbeats(false);
        run.wait(Duration::from_secs(60)).await.unwrap();
        assert_eq!(sent(&mut connection), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_sent_before_a_disconnect_are_processed_first() {
        let (mut run, connection) = open_run().await;
        let heartbeat = envelope::encode(Kind::Message, &[0x3a, 0x00]);
        connection
            .body
            .send(BodyChunk::Data(heartbeat))
            .await
            .unwrap();
        connection.body.send(BodyChunk::End).await.unwrap();
        let disconnected = run.wait_for_disconnect(Duration::from_secs(1)).await;
        assert_eq!(disconnected, Ok(true));
        let heartbeat = run.claim(|message| message.present.get("clientHeartbeat").is_some());
        assert!(heartbeat.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_fails_the_run() {
        let (mut run, _connection) = open_run().await;
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        let stop = run.repeat(&update, 1_000).await.unwrap_err();
        assert_eq!(
            stop,
            RunStop::Failed("the client has not read for 30000 ms".into())
        );
    }
}
