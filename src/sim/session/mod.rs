//! One live run as the server sees it: sends messages, keeps track of what it asked, takes
//! in what the client answers and notices when the client leaves.
//!
//! Scripts and the built-in responder both drive this. It decides nothing about what is
//! said; it does insist that the client keeps the protocol.

mod absorb;
mod asks;
mod send;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::exchange::{ReplyTo, Window};
use super::inbox::{Inbound, Inbox};
use super::recording::{Content, Recording, Side};
use super::scenario::{Compression, Injections};
use super::schema::Shown;

use asks::Ask;
pub(super) use asks::{Exec, Id, late};
pub(super) use send::prefix;

/// Silence after which a heartbeat goes out.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why a run stops before its script does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The client left.
    ClientLeft,
    /// Something was not as expected.
    Failed(String),
}

/// Whether heartbeats go out in silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulse {
    /// They do.
    Beating,
    /// They do not.
    Still,
}

/// How far the reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No headers yet.
    Waiting,
    /// Envelopes may be sent.
    Open,
    /// Bytes that are no envelope were sent: an end-of-stream envelope makes no sense.
    Spoiled,
    /// Nothing more can be sent.
    Over,
}

/// One live run.
#[derive(Debug)]
pub(super) struct Session {
    run: u64,
    request_id: Arc<str>,
    recording: Recording,
    inbox: Inbox,
    reply: ReplyTo,
    window: Window,
    phase: Phase,
    compression: Compression,
    pulse: Pulse,
    last_sent: Instant,
    injections: Injections,
    /// Words that were said into the run and taken up.
    taken_up: Vec<String>,
    /// Envelopes that are to go out in one piece.
    held: Option<BytesMut>,
    execs: HashMap<u32, Exec>,
    next_exec: u32,
    blobs: HashMap<u32, Ask>,
    next_blob: u32,
    kept: HashSet<Bytes>,
    queries: HashMap<u32, Ask>,
    next_query: u32,
    unclaimed: VecDeque<Shown>,
    spoken: String,
    turn_ended: bool,
    checkpoint: Option<Bytes>,
}

/// What a session is made of.
#[derive(Debug)]
pub(super) struct Line {
    /// Ordinal of the run.
    pub(super) run: u64,
    /// The request id.
    pub(super) request_id: String,
    /// Where it is recorded.
    pub(super) recording: Recording,
    /// What the client says.
    pub(super) inbox: Inbox,
    /// The way back.
    pub(super) reply: ReplyTo,
    /// The client's room to send.
    pub(super) window: Window,
}

impl Session {
    /// A session nobody has spoken on.
    pub(super) fn new(line: Line) -> Self {
        Self {
            run: line.run,
            request_id: line.request_id.into(),
            recording: line.recording,
            inbox: line.inbox,
            reply: line.reply,
            window: line.window,
            phase: Phase::Waiting,
            compression: Compression::Identity,
            pulse: Pulse::Beating,
            last_sent: Instant::now(),
            injections: Injections::default(),
            taken_up: Vec::new(),
            held: None,
            execs: HashMap::new(),
            next_exec: 1,
            blobs: HashMap::new(),
            next_blob: 1,
            kept: HashSet::new(),
            queries: HashMap::new(),
            next_query: 1,
            unclaimed: VecDeque::new(),
            spoken: String::new(),
            turn_ended: false,
            checkpoint: None,
        }
    }

    /// The request headers as recorded.
    pub(super) fn headers(&mut self) -> Value {
        Value::Object(self.reply.ticket().headers().clone())
    }

    /// Ordinal of the run.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// The request id.
    pub(super) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// All text sent so far.
    pub(super) fn spoken(&self) -> &str {
        &self.spoken
    }

    /// Whether the turn was said to have ended.
    pub(super) fn turn_ended(&self) -> bool {
        self.turn_ended
    }

    /// Whether envelopes still make sense on this stream.
    pub(super) fn is_sound(&self) -> bool {
        self.phase == Phase::Open
    }

    /// The last checkpoint sent since this was asked last.
    pub(super) fn take_checkpoint(&mut self) -> Option<Bytes> {
        self.checkpoint.take()
    }

    /// Grants the client no more room to send.
    pub(super) fn hold_window(&self) {
        self.window.hold();
    }

    /// Says what becomes of words said into the run.
    pub(super) fn set_injections(&mut self, injections: Injections) {
        self.injections = injections;
    }

    /// Words that were said into the run and taken up.
    pub(super) fn taken_up(&self) -> &[String] {
        &self.taken_up
    }

    /// Keeps back what is said from here, until somebody waits or the stream ends.
    pub(super) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Switches heartbeats.
    pub(super) fn set_pulse(&mut self, pulse: Pulse) {
        self.pulse = pulse;
    }

    /// The first message, undecoded.
    pub(super) async fn first_message(&mut self, limit: Duration) -> Result<Bytes, Stop> {
        let inbound = tokio::select! {
            biased;
            inbound = self.inbox.next() => inbound,
            () = self.reply.closed() => return Err(Stop::ClientLeft),
            () = tokio::time::sleep(limit) => {
                return Err(Stop::Failed(format!(
                    "expected a runRequest within {} ms, got nothing",
                    limit.as_millis()
                )));
            }
        };
        match inbound {
            Inbound::Message { flags, payload } => {
                self.record(Side::Client, flags, Content::Message(payload.clone()));
                Ok(payload)
            }
            Inbound::Ended | Inbound::Gone => Err(Stop::ClientLeft),
            Inbound::Malformed(reason) => Err(Stop::Failed(reason)),
        }
    }

    /// Waits until `look` finds something; `None` when the time is up.
    pub(super) async fn wait_for<T>(
        &mut self,
        limit: Duration,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Stop> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = look(self) {
                return Ok(Some(found));
            }
            if self.take_in(deadline).await? == Progress::TimeIsUp {
                return Ok(None);
            }
        }
    }

    /// Lets time pass while taking in what comes.
    pub(super) async fn rest(&mut self, time: Duration) -> Result<(), Stop> {
        self.wait_for(time, |_| None::<()>).await.map(drop)
    }

    /// Takes in what has come already, without waiting.
    pub(super) async fn catch_up(&mut self) -> Result<(), Stop> {
        loop {
            let inbound = tokio::select! {
                biased;
                inbound = self.inbox.next() => inbound,
                () = std::future::ready(()) => return Ok(()),
            };
            self.absorb(inbound)?;
            self.report().await?;
        }
    }

    /// Waits until the client has left.
    pub(super) async fn until_left(&mut self, limit: Duration) -> Result<bool, Stop> {
        match self.wait_for(limit, |_| None::<()>).await {
            Err(Stop::ClientLeft) => Ok(true),
            Err(other) => Err(other),
            Ok(_) => Ok(false),
        }
    }

    async fn take_in(&mut self, deadline: Instant) -> Result<Progress, Stop> {
        self.let_go().await?;
        loop {
            let beat = match self.pulse {
                Pulse::Beating if self.phase == Phase::Open => self.last_sent + HEARTBEAT,
                _ => deadline,
            };
            let inbound = tokio::select! {
                biased;
                inbound = self.inbox.next() => inbound,
                () = self.reply.closed() => return Err(Stop::ClientLeft),
                () = tokio::time::sleep_until(beat.min(deadline)) => {
                    if Instant::now() >= deadline {
                        return Ok(Progress::TimeIsUp);
                    }
                    self.send(&json!({ "interactionUpdate": { "heartbeat": {} } })).await?;
                    continue;
                }
            };
            self.absorb(inbound)?;
            self.report().await?;
            return Ok(Progress::Something);
        }
    }

    fn record(&self, from: Side, flags: u8, content: Content) {
        self.recording
            .frame((self.run, &self.request_id), from, flags, content);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Something,
    TimeIsUp,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sim::exchange::{self, FarEnd, Peer, Piece, Reply, RequestHead, Security, Version};
    use crate::sim::recording::Ticket;
    use crate::wire::envelope::{self, Encoding, Kind};

    /// A session on channels, its headers sent.
    async fn session() -> (Session, FarEnd) {
        let request = http::Request::builder().uri("/run").body(()).unwrap();
        let peer = Peer {
            connection: 1,
            security: Security::Plain,
        };
        let head = RequestHead::new(&request, Version::Http2, peer);
        let ticket = Ticket::unrecorded(&head);
        let (exchange, far) = exchange::open(head);
        let mut session = Session::new(Line {
            run: 1,
            request_id: "r".into(),
            recording: Recording::start(None).unwrap(),
            inbox: Inbox::stream(exchange.body, Encoding::Identity),
            reply: ReplyTo::new(exchange.reply, ticket),
            window: exchange.window,
        });
        session.open(Compression::Identity).await.unwrap();
        (session, far)
    }

    fn sent(far: &mut FarEnd) -> usize {
        let replies = std::iter::from_fn(|| far.reply.try_recv().ok());
        replies
            .filter(|reply| matches!(reply, Reply::Data(_)))
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_goes_out_after_five_seconds_of_silence() {
        let (mut session, mut far) = session().await;
        session.rest(Duration::from_millis(4_999)).await.unwrap();
        assert_eq!(sent(&mut far), 0);
        session.rest(Duration::from_secs(6)).await.unwrap();
        assert_eq!(sent(&mut far), 2);
        // Anything that is said starts the silence anew.
        session.rest(Duration::from_secs(3)).await.unwrap();
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        session.send(&update).await.unwrap();
        session.rest(Duration::from_secs(4)).await.unwrap();
        assert_eq!(sent(&mut far), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_goes_out_in_one_piece() {
        let (mut session, mut far) = session().await;
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        session.hold();
        session.send(&update).await.unwrap();
        session.send(&update).await.unwrap();
        assert_eq!(sent(&mut far), 0);
        session.rest(Duration::from_millis(1)).await.unwrap();
        assert_eq!(sent(&mut far), 1);
        // Only once.
        session.send(&update).await.unwrap();
        session.send(&update).await.unwrap();
        assert_eq!(sent(&mut far), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_heartbeat_goes_out_when_it_is_to_be_still() {
        let (mut session, mut far) = session().await;
        session.set_pulse(Pulse::Still);
        session.rest(Duration::from_secs(60)).await.unwrap();
        assert_eq!(sent(&mut far), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_client_said_before_it_left_is_taken_in_first() {
        let (mut session, far) = session().await;
        let heartbeat = envelope::encode(Kind::Message, &[0x3a, 0x00]);
        far.body.send(Piece::Data(heartbeat)).await.unwrap();
        far.body.send(Piece::End).await.unwrap();
        let left = session.until_left(Duration::from_secs(1)).await;
        assert_eq!(left, Ok(true));
        let heard = session.claim(|message| message.present.get("clientHeartbeat").is_some());
        assert!(heard.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (mut session, _far) = session().await;
        let update = json!({ "interactionUpdate": { "textDelta": { "text": "x" } } });
        let stop = session.repeat(&update, 1_000).await.unwrap_err();
        assert_eq!(
            stop,
            Stop::Failed("the client has not read for 30000 ms".into())
        );
    }
}
