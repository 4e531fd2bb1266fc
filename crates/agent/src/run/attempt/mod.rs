//! One attempt of a run: one stream, from its first message to its end.

mod call_batch;
mod cancel;
mod checkpoint;
mod emit;
mod exec;
mod outgoing;
mod timers;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};
use uuid::Uuid;

use self::call_batch::CallBatch;
use super::blobs::Blobs;
use super::checkpoint_contents::CheckpointReader;
use super::event::{RunEvent, Usage};
use super::limits::{LimitError, MAX_ANSWER};
use super::open_execs::{self, OpenExecs};
use super::pending_events::PendingEvents;
use super::query_replies;
use super::queue::{self, QueueBounds};
use super::retry::{Progress, Timing, VisibleProgress};
use super::run_task::{Command, Injection};
use super::stream_stats::StreamStats;
use super::watchdog::{IdleTimeout, ServerActivity, Watchdog, classify};
use crate::answer_log::AnswerLog;
use crate::effect_log::{EffectLog, RequestKey};
use agent_tools::Executor;
use cursor_client::error::{TransportError, WireError};
use cursor_client::stream::{Outgoing, Received, RunStream};
use cursor_proto::agent::v1::*;
use cursor_proto::drift::Drift;

/// How long a command waits for the results that the host returned before it. They are at hand, but
/// a hook of the user may look at them first.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of outgoing frames that may be queued before no new requests are accepted.
const MAX_OUTBOX: usize = 8 * 1024 * 1024;

/// Events that may wait for the consumer before the stream is no longer read, and their bytes.
const PENDING: QueueBounds = QueueBounds {
    items: 1024,
    bytes: 1024 * 1024,
};

/// The parts of a run that outlive a single stream.
pub(super) struct AttemptContext<'a> {
    pub(super) events: &'a queue::Sender<RunEvent>,
    pub(super) commands: &'a mut mpsc::Receiver<Command>,
    pub(super) executor: &'a Arc<dyn Executor>,
    pub(super) blobs: &'a dyn Blobs,
    pub(super) drift: &'a Drift,
    pub(super) timing: &'a Timing,
    pub(super) run_id: Uuid,
    /// User messages that arrived while no stream was accepted.
    pub(super) held: &'a mut Vec<Injection>,
    /// Bytes of text and thinking received so far, over all attempts.
    pub(super) answer_bytes: &'a mut usize,
    /// Token counts of all streams.
    pub(super) usage: &'a mut Option<Usage>,
    /// The text of all streams.
    pub(super) answer: &'a mut AnswerLog,
    /// The tool calls of all streams.
    pub(super) effects: &'a mut EffectLog,
    /// Called when the server accepts the stream.
    pub(super) on_accepted: &'a (dyn Fn() + Sync),
}

/// Why a stream ended.
pub(super) enum CloseReason {
    /// The turn is complete.
    Finished,
    /// The owner cancelled the run or dropped its handle.
    Cancelled,
    /// The stream failed.
    Failed(WireError),
    /// The stream made no progress within the limit, with or without heartbeats.
    Idle(IdleTimeout),
    /// The server exceeded a size limit.
    Limit(LimitError),
}

impl CloseReason {
    /// Returns whether the stream went idle, so that the connection itself may be dead.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Idle(..))
    }
}

/// The outcome of a stream.
pub(super) struct AttemptOutcome {
    pub(super) reason: CloseReason,
    pub(super) progress: Progress,
    /// Whether the server accepted the stream at all.
    pub(super) accepted: bool,
    /// User messages that it was sent.
    pub(super) injected: Vec<Injection>,
}

/// Everything the event loop of an attempt can wake up for.
enum AttemptEvent {
    Received(Result<Received, WireError>),
    Sent(Result<usize, ChannelClosed>),
    Delivered(Result<(), ChannelClosed>),
    Exec(open_execs::ExecEvent),
    Answered(u32, AskQuestionResult),
    Command(Option<Command>),
    /// The timer fired that was due at this time.
    Tick(Instant),
}

/// The other end of a channel was dropped.
struct ChannelClosed;

/// Sends the first queued frame once there is capacity, and returns its length.
async fn flush(outgoing: &Outgoing, outbox: &mut VecDeque<Bytes>) -> Result<usize, ChannelClosed> {
    let permit = outgoing.ready().await.map_err(|_| ChannelClosed)?;
    let frame = outbox.pop_front().unwrap_or_default();
    let length = frame.len();
    permit.send(frame);
    Ok(length)
}

/// Delivers the first queued event once the consumer has capacity for its bytes.
async fn deliver(
    events: &queue::Sender<RunEvent>,
    pending: &mut PendingEvents,
) -> Result<(), ChannelClosed> {
    let room = events
        .reserve(pending.first_bytes())
        .await
        .ok_or(ChannelClosed)?;
    if let Some(event) = pending.pop() {
        room.put(event);
    }
    Ok(())
}

struct Attempt<'a> {
    context: AttemptContext<'a>,
    stream: RunStream,
    execs: OpenExecs,
    pending: PendingEvents,
    outbox: VecDeque<Bytes>,
    outbox_bytes: usize,
    /// The newest checkpoint of this stream.
    checkpoint: Option<Bytes>,
    /// Whether it arrived after the turn's end.
    is_confirmed: bool,
    reader: CheckpointReader,
    /// Whether text was received since that checkpoint.
    has_text: bool,
    stats: StreamStats,
    accepted: bool,
    last_inbound: Instant,
    next_heartbeat: Instant,
    /// No timeout is acted on before this time: the process was suspended, or queued input is read
    /// once more.
    no_timeout_before: Instant,
    /// When the turn ended, or when the last message after its end arrived.
    turn_ended: Option<Instant>,
    /// Until when messages that are not shown count as such a message: until the last checkpoint
    /// has arrived.
    liveness_counts_until: Option<Instant>,
    /// Latest end of the stream after the turn's end, unless more text arrives.
    latest_end: Option<Instant>,
    /// When to stop waiting for a cancelled run.
    cancel_deadline: Option<Instant>,
    /// By when the server should have received the cancellation.
    cancel_received_by: Option<Instant>,
    /// Frames that are still queued ahead of, and including, the cancellation.
    unsent_until_cancel: usize,
    /// Whether there is capacity to read. While reading is paused, silence means nothing.
    is_reading: bool,
    /// User messages sent on this stream.
    injected: Vec<Injection>,
    /// The calls and completed tools that are offered together.
    batch: CallBatch,
    /// Host calls whose results are sent before the next command is read, and how long that waits.
    results_first: Option<(Vec<String>, Instant)>,
    watchdog: Watchdog,
    /// Questions that the user has not answered yet. While there are any, silence is not a stall.
    questions: JoinSet<(u32, AskQuestionResult)>,
}

/// Drives a stream to its end.
pub(super) async fn drive(stream: RunStream, context: AttemptContext<'_>) -> AttemptOutcome {
    let now = Instant::now();
    let watchdog = Watchdog::new(context.timing.patience, now);
    let mut attempt = Attempt {
        execs: OpenExecs::new(Arc::clone(context.executor), context.timing.exec_heartbeat),
        next_heartbeat: now + context.timing.heartbeat,
        no_timeout_before: now,
        context,
        stream,
        pending: PendingEvents::new(PENDING),
        outbox: VecDeque::new(),
        outbox_bytes: 0,
        checkpoint: None,
        is_confirmed: false,
        reader: CheckpointReader::default(),
        has_text: false,
        stats: StreamStats::new(now),
        accepted: false,
        last_inbound: now,
        turn_ended: None,
        liveness_counts_until: None,
        latest_end: None,
        cancel_deadline: None,
        cancel_received_by: None,
        unsent_until_cancel: 0,
        is_reading: true,
        injected: Vec::new(),
        batch: CallBatch::default(),
        results_first: None,
        watchdog,
        questions: JoinSet::new(),
    };
    let mut reason = attempt.run().await;
    attempt.stats.close(&reason);
    attempt.close_batch(&reason);
    if let CloseReason::Finished = reason {
        attempt.release_all();
        attempt.confirm_checkpoint();
    }
    while let Some(event) = attempt.pending.pop() {
        if attempt.context.events.send(event).await.is_err() {
            reason = CloseReason::Cancelled;
            break;
        }
    }
    let progress = attempt.progress();
    AttemptOutcome {
        reason,
        progress,
        accepted: attempt.accepted,
        injected: attempt.injected,
    }
}

impl Attempt<'_> {
    async fn run(&mut self) -> CloseReason {
        // One timer, moved only when it fires or an earlier deadline appears: deadlines move with
        // every message, and re-arming for each would cost more than the message.
        let mut armed = self.next_deadline();
        let mut timer: Pin<Box<Sleep>> = Box::pin(sleep_until(armed));
        loop {
            let deadline = self.next_deadline();
            if deadline < armed {
                armed = deadline;
                timer.as_mut().reset(armed);
            }
            let room = self.outbox_bytes < MAX_OUTBOX;
            self.set_reading(room && !self.pending.is_full());
            let is_reading = self.is_reading;
            if !self.holds_commands() {
                self.results_first = None;
            }
            let event = tokio::select! {
                received = self.stream.incoming.next(), if is_reading => AttemptEvent::Received(received),
                sent = flush(&self.stream.outgoing, &mut self.outbox), if !self.outbox.is_empty() => {
                    AttemptEvent::Sent(sent)
                }
                delivered = deliver(self.context.events, &mut self.pending), if !self.pending.is_empty() => {
                    AttemptEvent::Delivered(delivered)
                }
                progress = self.execs.next(), if room => AttemptEvent::Exec(progress),
                Some(Ok((id, result))) = self.questions.join_next() => AttemptEvent::Answered(id, result),
                command = self.context.commands.recv(), if self.results_first.is_none() => AttemptEvent::Command(command),
                () = self.context.events.closed() => AttemptEvent::Delivered(Err(ChannelClosed)),
                () = timer.as_mut() => AttemptEvent::Tick(armed),
            };
            let ticked = matches!(event, AttemptEvent::Tick(_));
            if let Some(reason) = self.handle(event) {
                return reason;
            }
            if self.batch.is_open()
                && let Some(reason) = self.end_batch().await
            {
                return reason;
            }
            if ticked {
                armed = self.next_deadline();
                timer.as_mut().reset(armed);
            }
        }
    }

    fn handle(&mut self, event: AttemptEvent) -> Option<CloseReason> {
        match event {
            // A cancelled stream counts as cancelled however it ends.
            AttemptEvent::Received(Ok(Received::End(_)) | Err(_))
                if self.cancel_deadline.is_some() =>
            {
                Some(CloseReason::Cancelled)
            }
            // The turn is complete, so a failure after it is ignored.
            AttemptEvent::Received(Ok(Received::End(_)) | Err(_)) if self.turn_ended.is_some() => {
                Some(CloseReason::Finished)
            }
            // A clean end without the end of a turn means that a proxy or the server closed the
            // connection.
            AttemptEvent::Received(Ok(Received::End(_))) => {
                Some(CloseReason::Failed(TransportError::TurnUnfinished.into()))
            }
            AttemptEvent::Received(Ok(received)) => self.receive(received),
            AttemptEvent::Received(Err(error)) => Some(CloseReason::Failed(error)),
            AttemptEvent::Sent(Ok(bytes)) => {
                self.outbox_bytes -= bytes;
                self.unsent_until_cancel = self.unsent_until_cancel.saturating_sub(1);
                None
            }
            // The receiving half reports why the stream accepts no more.
            AttemptEvent::Sent(Err(ChannelClosed)) => {
                self.outbox.clear();
                self.outbox_bytes = 0;
                self.unsent_until_cancel = 0;
                None
            }
            AttemptEvent::Delivered(Ok(())) => None,
            AttemptEvent::Delivered(Err(ChannelClosed)) => Some(CloseReason::Cancelled),
            AttemptEvent::Exec(open_execs::ExecEvent::Call(id, call)) => {
                self.context.effects.add_part(id, &call.id);
                self.batch.delegated(id);
                self.emit(RunEvent::HostCall(Box::new(call)));
                None
            }
            AttemptEvent::Exec(progress) => {
                let now = Instant::now();
                match &progress {
                    open_execs::ExecEvent::Reply(id, reply) => {
                        self.context.effects.reply(*id, reply);
                    }
                    // The server continues now, so the idle timer restarts.
                    open_execs::ExecEvent::Done(id, end) => {
                        if self.context.effects.end(RequestKey::Exec(*id), end) {
                            self.watchdog.resumed(now);
                        } else {
                            self.watchdog.worked(now);
                        }
                    }
                    open_execs::ExecEvent::Call(..) => {}
                }
                for frame in self.execs.frames(progress, now) {
                    self.post(&frame);
                }
                None
            }
            AttemptEvent::Answered(id, result) => {
                self.answered(id, result);
                None
            }
            AttemptEvent::Command(Some(Command::Inject(injection))) => {
                self.inject(injection);
                None
            }
            AttemptEvent::Command(Some(Command::AfterResults(calls))) => {
                self.results_first = Some((calls, Instant::now() + RESULTS_TIMEOUT));
                None
            }
            // A stream the server has not accepted yet has no last checkpoint to wait for.
            AttemptEvent::Command(Some(command @ (Command::Cancel | Command::Leave)))
                if self.accepted =>
            {
                if command == Command::Cancel {
                    self.context.effects.discard_open();
                } else {
                    self.context.effects.interrupt_open();
                }
                self.begin_cancel();
                None
            }
            AttemptEvent::Command(Some(Command::Cancel | Command::Leave) | None) => {
                Some(CloseReason::Cancelled)
            }
            AttemptEvent::Command(Some(Command::ShortenCancel)) => {
                self.shorten_cancel();
                None
            }
            AttemptEvent::Tick(due) => self.tick(due, Instant::now()),
        }
    }

    /// Returns whether commands wait for results that the host returned before them.
    fn holds_commands(&self) -> bool {
        let Some((calls, until)) = &self.results_first else {
            return false;
        };
        Instant::now() < *until && self.context.effects.awaits(calls)
    }

    fn receive(&mut self, received: Received) -> Option<CloseReason> {
        self.last_inbound = Instant::now();
        if !self.accepted {
            self.accepted = true;
            (self.context.on_accepted)();
            for injection in std::mem::take(self.context.held) {
                self.inject(injection);
            }
        }
        let Received::Message(message) = received else {
            return None;
        };
        self.stats.message();
        self.watchdog
            .record_message(message.message.as_ref(), self.last_inbound);
        if classify(message.message.as_ref()) == ServerActivity::Liveness {
            self.note_liveness();
        }
        use agent_server_message::Message;
        match message.message {
            Some(Message::InteractionUpdate(update)) => return self.update(update),
            Some(Message::ExecServerMessage(exec)) => self.exec(exec),
            Some(Message::ConversationCheckpointUpdate(state)) => self.checkpoint(&state),
            Some(Message::KvServerMessage(request)) => {
                self.count_written(&request);
                let (reply, limit) =
                    query_replies::kv(self.context.blobs, request, self.context.drift);
                self.count_read(&reply);
                self.post(&AgentClientMessage {
                    message: Some(agent_client_message::Message::KvClientMessage(reply)),
                });
                return limit.map(CloseReason::Limit);
            }
            Some(Message::ExecServerControlMessage(control)) => {
                if let Some(exec_server_control_message::Message::Abort(abort)) = control.message {
                    tracing::debug!(exec = abort.id, "exec.aborted");
                    self.execs.abort(abort.id);
                }
            }
            Some(Message::InteractionQuery(query)) => self.query(query),
            // Unknown kinds were counted when the message was decoded; they need no answer.
            None => {}
        }
        None
    }

    fn update(&mut self, update: InteractionUpdate) -> Option<CloseReason> {
        let event = RunEvent::from_update(update)?;
        // Check before processing, because processing copies the text.
        if let RunEvent::Text(text) | RunEvent::Thinking(text) = &event {
            *self.context.answer_bytes += text.len();
            if *self.context.answer_bytes > MAX_ANSWER {
                return Some(CloseReason::Limit(LimitError::Answer { limit: MAX_ANSWER }));
            }
        }
        self.after_turn_end(&event);
        self.note_received(&event);
        match &event {
            RunEvent::Text(text) => self.stats.text(text.len(), self.last_inbound),
            RunEvent::Thinking(text) => self.stats.thinking(text.len(), self.last_inbound),
            _ => {}
        }
        if let RunEvent::Text(_) | RunEvent::Thinking(_) = &event {
            self.note_still_working();
        }
        match &event {
            RunEvent::Text(text) => self.has_text |= !text.is_empty(),
            RunEvent::TurnEnded(usage) => {
                if self.turn_ended.is_none() {
                    self.note_turn_end();
                }
                if *usage != Usage::default() {
                    let total = self.context.usage.unwrap_or_default();
                    *self.context.usage = Some(total.plus(*usage));
                }
            }
            _ => {}
        }
        let answer = &mut *self.context.answer;
        let event = match event {
            RunEvent::Text(text) => RunEvent::Text(answer.text.take(&text)),
            RunEvent::Thinking(text) => RunEvent::Thinking(answer.thinking.take(&text)),
            event => event,
        };
        match &event {
            RunEvent::Text(text) | RunEvent::Thinking(text) if text.is_empty() => {}
            _ => self.emit(event),
        }
        None
    }

    /// Returns what this stream has achieved since its newest checkpoint.
    fn progress(&self) -> Progress {
        let text = if self.has_text {
            VisibleProgress::Something
        } else {
            VisibleProgress::Nothing
        };
        Progress {
            checkpoint: self.checkpoint.clone(),
            shown: self.context.effects.visible_progress().max(text),
        }
    }

    fn count_written(&mut self, request: &KvServerMessage) {
        if let Some(kv_server_message::Message::SetBlobArgs(args)) = &request.message {
            self.stats
                .blob_written(args.blob_data.len(), self.last_inbound);
        }
    }

    fn count_read(&mut self, reply: &KvClientMessage) {
        if let Some(kv_client_message::Message::GetBlobResult(result)) = &reply.message {
            let bytes = result.blob_data.as_ref().map_or(0, Bytes::len);
            self.stats.blob_read(bytes, self.last_inbound);
        }
    }

    fn post(&mut self, message: &AgentClientMessage) {
        let frame = self.stream.outgoing.frame(message);
        self.outbox_bytes += frame.len();
        self.outbox.push_back(frame);
    }
}
