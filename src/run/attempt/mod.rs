//! One stream of a run, from its first answer to its end.

mod checkpoint;
mod clock;
mod exec;
mod leaving;
mod pending;
mod speak;
mod tell;

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};
use uuid::Uuid;

use self::exec::Sent;
use self::pending::Pending;
use super::answer;
use super::blobs::Blobs;
use super::driver::{Command, Injection};
use super::event::{RunEvent, Usage};
use super::execs::{self, Execs};
use super::limits::{LimitError, MAX_ANSWER};
use super::memo::Memo;
use super::overlap::Overlap;
use super::owed::{Ask, Effect, Owed};
use super::queue;
use super::retry::{Progress, Shown, Timing};
use super::tally::Tally;
use super::watchdog::{Bark, Pulse, Watchdog, pulse};
use crate::tools::Executor;
use crate::wire::drift::Drift;
use crate::wire::error::{TransportError, WireError};
use crate::wire::proto::agent::v1::*;
use crate::wire::stream::{Outgoing, Received, RunStream};

/// Bytes that may wait for the network before we stop taking new requests.
const MAX_OUTBOX: usize = 8 * 1024 * 1024;

/// What outlives a single stream.
pub(super) struct Surroundings<'a> {
    pub(super) events: &'a queue::Sender<RunEvent>,
    pub(super) commands: &'a mut mpsc::Receiver<Command>,
    pub(super) executor: &'a Arc<dyn Executor>,
    pub(super) blobs: &'a dyn Blobs,
    pub(super) drift: &'a Drift,
    pub(super) timing: &'a Timing,
    pub(super) run_id: Uuid,
    /// Messages for the model that came while there was no stream.
    pub(super) held: &'a mut Vec<Injection>,
    /// Bytes of text and thinking that came so far.
    pub(super) answer_bytes: &'a mut usize,
    /// What an earlier stream has said already.
    pub(super) overlap: &'a mut Overlap,
    /// What tools did for an earlier stream already.
    pub(super) memo: &'a mut Memo,
    /// What the host does for the server, until a state knows of it.
    pub(super) owed: &'a mut Owed,
    /// Called when the server takes the stream.
    pub(super) on_accepted: &'a (dyn Fn() + Sync),
}

/// How a stream ended.
pub(super) enum Closing {
    /// The turn is complete.
    Finished,
    /// The owner wants no more.
    Cancelled,
    /// The stream failed.
    Failed(WireError),
    /// The stream did nothing for so long, whether it lived or not.
    Idle(Bark),
    /// The server sent more than we take.
    Limit(LimitError),
}

impl Closing {
    /// Whether nothing came any more, so that the connection itself may be dead.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Idle(..))
    }
}

/// A stream that has ended, and what it brought.
pub(super) struct Closed {
    pub(super) closing: Closing,
    pub(super) progress: Progress,
    pub(super) usage: Option<Usage>,
    /// Whether the server took the stream at all.
    pub(super) accepted: bool,
}

/// Everything a stream's loop can wake up for.
enum Happened {
    Received(Result<Received, WireError>),
    Sent(Result<usize, Gone>),
    Told(Result<(), Gone>),
    Exec(execs::Progress),
    Answered(u32, AskQuestionResult),
    Command(Option<Command>),
    /// The timer that was due then.
    Tick(Instant),
}

/// The other side of a queue is not there any more.
struct Gone;

/// Sends the first waiting frame when there is room; says how many bytes went.
async fn flush(outgoing: &Outgoing, outbox: &mut VecDeque<Bytes>) -> Result<usize, Gone> {
    let permit = outgoing.ready().await.map_err(|_| Gone)?;
    let frame = outbox.pop_front().unwrap_or_default();
    let length = frame.len();
    permit.send(frame);
    Ok(length)
}

/// Hands the first waiting event to the consumer when it has room for its bytes.
async fn deliver(events: &queue::Sender<RunEvent>, pending: &mut Pending) -> Result<(), Gone> {
    let room = events.reserve(pending.first_bytes()).await.ok_or(Gone)?;
    if let Some(event) = pending.pop() {
        room.put(event);
    }
    Ok(())
}

struct Attempt<'a> {
    around: Surroundings<'a>,
    stream: RunStream,
    execs: Execs,
    pending: Pending,
    outbox: VecDeque<Bytes>,
    outbox_bytes: usize,
    progress: Progress,
    usage: Option<Usage>,
    tally: Tally,
    accepted: bool,
    last_inbound: Instant,
    next_heartbeat: Instant,
    /// Until then nothing is given up on: we were stopped, or look a last time.
    listens_until: Instant,
    /// When the turn ended, or the last thing that came after its end.
    turn_ended: Option<Instant>,
    /// How long what nobody is shown counts as such a thing: until the last checkpoint has come.
    beats_until: Option<Instant>,
    /// When it is over, whatever else comes but words.
    ends_by: Option<Instant>,
    /// When to let go of a run that was given up.
    leaving: Option<Instant>,
    /// When the server should have heard of that.
    heeds_by: Option<Instant>,
    /// Frames to be sent before the server knows that.
    untold: usize,
    /// Whether there is room to read; what we do not read cannot be silent.
    reading: Reading,
    /// Requests the host works on.
    hosted: BTreeSet<u32>,
    /// Words this stream was told.
    injected: BTreeSet<Uuid>,
    /// Requests that came, each under its names.
    asked: BTreeSet<Sent>,
    watchdog: Watchdog,
    /// Questions a person has not answered yet; while there are any, silence is no stall.
    questions: JoinSet<(u32, AskQuestionResult)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Reading {
    On,
    Paused,
}

/// Drives a stream to its end.
pub(super) async fn drive(stream: RunStream, around: Surroundings<'_>) -> Closed {
    let now = Instant::now();
    let watchdog = Watchdog::new(around.timing.patience, now);
    let mut attempt = Attempt {
        execs: Execs::new(Arc::clone(around.executor), around.timing.exec_heartbeat),
        next_heartbeat: now + around.timing.heartbeat,
        listens_until: now,
        around,
        stream,
        pending: Pending::default(),
        outbox: VecDeque::new(),
        outbox_bytes: 0,
        progress: Progress::default(),
        usage: None,
        tally: Tally::new(now),
        accepted: false,
        last_inbound: now,
        turn_ended: None,
        beats_until: None,
        ends_by: None,
        leaving: None,
        heeds_by: None,
        untold: 0,
        reading: Reading::On,
        hosted: BTreeSet::new(),
        injected: BTreeSet::new(),
        asked: BTreeSet::new(),
        watchdog,
        questions: JoinSet::new(),
    };
    let mut closing = attempt.run().await;
    attempt.tally.close(&closing);
    if let Closing::Finished = closing {
        attempt.release_all();
    }
    while let Some(event) = attempt.pending.pop() {
        if attempt.around.events.send(event).await.is_err() {
            closing = Closing::Cancelled;
            break;
        }
    }
    let mut progress = attempt.progress;
    progress.shown = progress.shown.max(attempt.around.memo.shown());
    Closed {
        closing,
        progress,
        usage: attempt.usage,
        accepted: attempt.accepted,
    }
}

impl Attempt<'_> {
    async fn run(&mut self) -> Closing {
        // One timer, moved only when it fires or something earlier turns up: deadlines move
        // with every message, and re-arming for each would cost more than the message.
        let mut armed = self.next_deadline();
        let mut timer: Pin<Box<Sleep>> = Box::pin(sleep_until(armed));
        loop {
            let deadline = self.next_deadline();
            if deadline < armed {
                armed = deadline;
                timer.as_mut().reset(armed);
            }
            let room = self.outbox_bytes < MAX_OUTBOX;
            self.pace(if room && !self.pending.is_full() {
                Reading::On
            } else {
                Reading::Paused
            });
            let reading = self.reading == Reading::On;
            let happened = tokio::select! {
                received = self.stream.incoming.next(), if reading => Happened::Received(received),
                sent = flush(&self.stream.outgoing, &mut self.outbox), if !self.outbox.is_empty() => {
                    Happened::Sent(sent)
                }
                told = deliver(self.around.events, &mut self.pending), if !self.pending.is_empty() => {
                    Happened::Told(told)
                }
                progress = self.execs.next(), if room => Happened::Exec(progress),
                Some(Ok((id, result))) = self.questions.join_next() => Happened::Answered(id, result),
                command = self.around.commands.recv() => Happened::Command(command),
                () = self.around.events.closed() => Happened::Told(Err(Gone)),
                () = timer.as_mut() => Happened::Tick(armed),
            };
            let ticked = matches!(happened, Happened::Tick(_));
            if let Some(closing) = self.handle(happened) {
                return closing;
            }
            if ticked {
                armed = self.next_deadline();
                timer.as_mut().reset(armed);
            }
        }
    }

    fn handle(&mut self, happened: Happened) -> Option<Closing> {
        match happened {
            // However a stream ends that was given up: it was given up.
            Happened::Received(Ok(Received::End(_)) | Err(_)) if self.leaving.is_some() => {
                Some(Closing::Cancelled)
            }
            // What breaks after the turn broke nothing.
            Happened::Received(Ok(Received::End(_)) | Err(_)) if self.turn_ended.is_some() => {
                Some(Closing::Finished)
            }
            // A good end that ends no turn is a connection that somebody closed for us.
            Happened::Received(Ok(Received::End(_))) => {
                Some(Closing::Failed(TransportError::TurnUnfinished.into()))
            }
            Happened::Received(Ok(received)) => self.receive(received),
            Happened::Received(Err(error)) => Some(Closing::Failed(error)),
            Happened::Sent(Ok(bytes)) => {
                self.outbox_bytes -= bytes;
                self.untold = self.untold.saturating_sub(1);
                None
            }
            // The stream's other half says why it takes no more.
            Happened::Sent(Err(Gone)) => {
                self.outbox.clear();
                self.outbox_bytes = 0;
                self.untold = 0;
                None
            }
            Happened::Told(Ok(())) => None,
            Happened::Told(Err(Gone)) => Some(Closing::Cancelled),
            Happened::Exec(execs::Progress::Call(id, call)) => {
                self.around
                    .owed
                    .ask(Ask::Exec(id), Effect::None, "", &call.id);
                self.hosted.insert(id);
                self.tell(RunEvent::HostCall(Box::new(call)));
                None
            }
            Happened::Exec(progress) => {
                let now = Instant::now();
                match &progress {
                    execs::Progress::Reply(id, reply) => self.around.memo.reply(*id, reply),
                    execs::Progress::Done(id, end) => self.around.memo.end(*id, end),
                    execs::Progress::Call(..) => {}
                }
                if let execs::Progress::Done(id, _) = &progress {
                    self.around.owed.answered(Ask::Exec(*id));
                    // The server's turn again.
                    match self.hosted.remove(id) {
                        true => self.watchdog.resumed(now),
                        false => self.watchdog.worked(now),
                    }
                }
                for frame in self.execs.frames(progress, now) {
                    self.post(&frame);
                }
                None
            }
            Happened::Answered(id, result) => {
                self.answered(id, result);
                None
            }
            Happened::Command(Some(Command::Inject(injection))) => {
                self.inject(&injection);
                None
            }
            Happened::Command(Some(Command::Settle)) => self.settle(),
            // A stream the server has not taken yet has nothing to bring.
            Happened::Command(Some(Command::Cancel)) if self.accepted => {
                self.leave();
                None
            }
            Happened::Command(Some(Command::Cancel) | None) => Some(Closing::Cancelled),
            Happened::Command(Some(Command::Hurry)) => {
                self.hurry();
                None
            }
            Happened::Tick(due) => self.tick(due, Instant::now()),
        }
    }

    /// Takes what has already arrived, waiting for nothing, and says when that is told.
    fn settle(&mut self) -> Option<Closing> {
        while !self.pending.is_full() && self.outbox_bytes < MAX_OUTBOX {
            let Some(received) = self.stream.incoming.next().now_or_never() else {
                break;
            };
            let closing = self.handle(Happened::Received(received));
            match closing {
                // Over: nobody waits for more.
                Some(Closing::Finished | Closing::Cancelled) => return closing,
                // There may be another stream, on which nobody would answer this.
                Some(_) => {
                    self.tell(RunEvent::Settled);
                    return closing;
                }
                None => {}
            }
        }
        self.tell(RunEvent::Settled);
        None
    }

    fn receive(&mut self, received: Received) -> Option<Closing> {
        self.last_inbound = Instant::now();
        if !self.accepted {
            self.accepted = true;
            (self.around.on_accepted)();
            for injection in std::mem::take(self.around.held) {
                self.inject(&injection);
            }
        }
        let Received::Message(message) = received else {
            return None;
        };
        self.tally.message();
        self.watchdog
            .hear(message.message.as_ref(), self.last_inbound);
        if pulse(message.message.as_ref()) == Pulse::Liveness {
            self.lives_on();
        }
        use agent_server_message::Message;
        match message.message {
            Some(Message::InteractionUpdate(update)) => return self.update(update),
            Some(Message::ExecServerMessage(exec)) => self.exec(exec),
            Some(Message::ConversationCheckpointUpdate(state)) => self.checkpoint(&state),
            Some(Message::KvServerMessage(request)) => {
                self.count_written(&request);
                let (reply, limit) = answer::kv(self.around.blobs, request, self.around.drift);
                self.count_read(&reply);
                self.post(&AgentClientMessage {
                    message: Some(agent_client_message::Message::KvClientMessage(reply)),
                });
                return limit.map(Closing::Limit);
            }
            Some(Message::ExecServerControlMessage(control)) => {
                if let Some(exec_server_control_message::Message::Abort(abort)) = control.message {
                    tracing::debug!(exec = abort.id, "exec.aborted");
                    self.execs.abort(abort.id);
                }
            }
            Some(Message::InteractionQuery(query)) => self.query(query),
            // Unknown kinds were counted when the message was decoded; they ask for nothing.
            None => {}
        }
        None
    }

    fn update(&mut self, update: InteractionUpdate) -> Option<Closing> {
        let event = RunEvent::from_update(update)?;
        // Before it is looked at, because that copies it.
        if let RunEvent::Text(text) | RunEvent::Thinking(text) = &event {
            *self.around.answer_bytes += text.len();
            if *self.around.answer_bytes > MAX_ANSWER {
                return Some(Closing::Limit(LimitError::Answer { limit: MAX_ANSWER }));
            }
        }
        self.behind_the_end(&event);
        self.heard(&event);
        match &event {
            RunEvent::Text(text) => self.tally.text(text.len(), self.last_inbound),
            RunEvent::Thinking(text) => self.tally.thinking(text.len(), self.last_inbound),
            _ => {}
        }
        if let RunEvent::Text(_) | RunEvent::Thinking(_) = &event {
            self.works_on();
        }
        match &event {
            RunEvent::Text(text) if !text.is_empty() && self.progress.shown == Shown::Nothing => {
                self.progress.shown = Shown::Something;
            }
            RunEvent::TurnEnded(usage) => {
                if self.turn_ended.is_none() {
                    self.ended();
                }
                if *usage != Usage::default() {
                    self.usage = Some(self.usage.unwrap_or_default().plus(*usage));
                }
            }
            _ => {}
        }
        let overlap = &mut *self.around.overlap;
        let event = match event {
            RunEvent::Text(text) => RunEvent::Text(overlap.text.take(&text)),
            RunEvent::Thinking(text) => RunEvent::Thinking(overlap.thinking.take(&text)),
            event => event,
        };
        match &event {
            RunEvent::Text(said) | RunEvent::Thinking(said) if said.is_empty() => {}
            _ => self.tell(event),
        }
        None
    }

    fn count_written(&mut self, request: &KvServerMessage) {
        if let Some(kv_server_message::Message::SetBlobArgs(args)) = &request.message {
            self.tally
                .blob_written(args.blob_data.len(), self.last_inbound);
        }
    }

    fn count_read(&mut self, reply: &KvClientMessage) {
        if let Some(kv_client_message::Message::GetBlobResult(result)) = &reply.message {
            let bytes = result.blob_data.as_ref().map_or(0, Bytes::len);
            self.tally.blob_read(bytes, self.last_inbound);
        }
    }

    fn post(&mut self, message: &AgentClientMessage) {
        let frame = self.stream.outgoing.frame(message);
        self.outbox_bytes += frame.len();
        self.outbox.push_back(frame);
    }
}

#[cfg(test)]
mod tests;
