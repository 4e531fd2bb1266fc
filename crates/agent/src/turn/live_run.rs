//! A run that can span several host turns: it waits while the host executes tools, and resumes with
//! their results.

mod answer_rounds;
mod host_calls;
mod injection;
mod repeated_request;
mod resume;
mod wait_display;

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

pub(super) use self::answer_rounds::AnswerRounds;
use self::host_calls::PendingBatch;
pub(super) use self::injection::user_texts;
use self::repeated_request::ParkedAnswer;
use self::wait_display::{WaitDisplay, send_wait};
use super::activity_display::{ActivityDisplay, ends_cards};
use super::channels::OpenTurn;
use super::conversation_slot::Conversation;
use super::request::TurnEvent;
use super::turn_progress::{TurnProgress, send_event};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::store::StoreError;
use crate::conversation::tool_results::pending_results;
use crate::effect_log::{EffectDigest, EffectLog};
use crate::inbox::{Inbox, InjectionStep, Source};
use crate::message::{Message, ToolCall};
use crate::run::queue::QueueBounds;
use crate::run::{
    Checkpoint, Command, Ended, Handle, Outcome, PendingEvents, RetriesUsed, RunEvent,
};
use agent_tools::bridge::external_calls::ExternalCallReceiver;
use agent_tools::bridge::{Bridge, HostCall};
use agent_tools::permission::TurnTools;
use cursor_client::failure::Retry;
use cursor_client::suspend_aware_timer;
use cursor_proto::state::{ContextUsage, occupancy};

/// How many events, and how many bytes of them, may queue while the host works; then the run stops
/// reading.
const WAITING: QueueBounds = QueueBounds {
    items: 4096,
    bytes: 4 * 1024 * 1024,
};

/// A run and its open calls, events and messages.
pub(super) struct LiveRun {
    handle: Handle,
    bridge: Arc<Bridge>,
    pub(super) conversation: Conversation,
    /// The prefix of the session's key; empty before the first pause.
    key: String,
    /// The checkpoint the run started with.
    initial_state: Option<bytes::Bytes>,
    /// Whether the conversation on disk is current.
    is_saved: bool,
    /// Effects the checkpoint includes that are not yet marked in the file of the effect log.
    saved: Vec<EffectDigest>,
    /// The history the run was sent, and the answer to it and to earlier ones, shown or not.
    answer: AnswerRounds,
    /// That history without the latest user message, if nothing else came with it.
    before_message: Option<Fingerprint>,
    /// Calls of host tools that do not come from Cursor.
    call_receiver: ExternalCallReceiver,
    /// Calls that were offered to the host and have no result, oldest first. They stay here while
    /// the run is being cancelled: dropping one is an answer, which would be recorded as its result.
    open: Vec<HostCall>,
    /// Those of them that were not sent to the host yet, or cards.
    offering: Vec<ToolCall>,
    /// What the host was sent before the run was parked.
    parked: ParkedAnswer,
    /// Events that arrived while the host was away.
    waiting: PendingEvents,
    /// User messages for the run.
    pub(super) inbox: Inbox,
    /// How full the context is, from the newest checkpoint.
    occupancy: Option<ContextUsage>,
    /// Tool settings of the current turn; the run's executors read them.
    tools: watch::Sender<Arc<TurnTools>>,
    /// Display of native tool calls.
    show: ActivityDisplay,
    /// Events that arrived between calls; they are sent first in the next turn.
    later: Vec<TurnEvent>,
    /// Whether the run will emit the end of a batch that it has begun. Calls of other agents, and
    /// those that are offered again, do not come from it.
    is_in_batch: bool,
    /// What the turn waits for.
    wait_display: WaitDisplay,
}

/// Why [`LiveRun::drive`] returned.
pub(super) enum Pause {
    /// The host has calls to execute.
    ToolUse,
    /// The run is over.
    Over(Box<Ended>),
}

impl LiveRun {
    pub(super) fn new(
        handle: Handle,
        bridge: Arc<Bridge>,
        conversation: Conversation,
        answer: AnswerRounds,
        show: ActivityDisplay,
        call_receiver: ExternalCallReceiver,
        tools: watch::Sender<Arc<TurnTools>>,
    ) -> Self {
        Self {
            tools,
            handle,
            bridge,
            key: String::new(),
            initial_state: conversation.state.clone(),
            conversation,
            is_saved: true,
            saved: Vec::new(),
            answer,
            before_message: None,
            wait_display: WaitDisplay::default(),
            call_receiver,
            open: Vec::new(),
            offering: Vec::new(),
            parked: ParkedAnswer::default(),
            waiting: PendingEvents::new(WAITING),
            inbox: Inbox::default(),
            occupancy: None,
            show,
            later: Vec::new(),
            is_in_batch: false,
        }
    }

    /// Applies the tool settings of the turn that takes over the run.
    pub(super) fn use_tools(&mut self, tools: Arc<TurnTools>) {
        self.show.decisions = tools.decisions.clone();
        self.tools.send_replace(tools);
    }

    fn waits(&self, id: &str) -> bool {
        self.open.iter().any(|call| call.id == id) || self.show.waits(id)
    }

    /// Returns whether a history continues this run: by its tool results, else by its fingerprint.
    pub(super) fn continues(&self, system: &str, messages: &[Message]) -> bool {
        if !pending_results(messages, |id| self.waits(id)).is_empty() {
            return true;
        }
        let now = Fingerprint::of(system, messages);
        let continuity = now.continuity(Some(self.answer.history()), messages);
        continuity.is_ok()
    }

    /// Returns the end of the run, if it ended while the host was away.
    fn ended(&self) -> Option<&Ended> {
        self.waiting.iter().rev().find_map(|event| match event {
            RunEvent::Ended(ended) => Some(ended),
            _ => None,
        })
    }

    /// Returns how the run ended while the host was away, if it failed.
    pub(super) fn lost(&self) -> Option<&Outcome> {
        let outcome = &self.ended()?.outcome;
        Some(outcome).filter(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Returns the effects of a run that ended while the host was away.
    pub(super) fn effects(&self) -> EffectLog {
        let ended = self.ended();
        ended.map_or_else(EffectLog::default, |ended| ended.effects.clone())
    }

    /// Handles a run that broke while the host was away. Its checkpoint stays valid unless the
    /// server itself refused to continue.
    pub(super) fn lose(&mut self) {
        let refused = matches!(self.lost(), Some(Outcome::Failed(failure)) if failure.retry() == Retry::Never && failure.doubts_state());
        if refused {
            self.conversation.sent = None;
        }
    }

    /// Cancels the run because the user stopped it; its last checkpoint may still arrive.
    pub(super) async fn cancel(&mut self) {
        self.bridge.cancelled(self.waiting_calls());
        let _ = self.handle.commands.send(Command::Cancel).await;
        self.call_receiver.close();
    }

    /// Cancels the run because another one replaces it, or may: what it was executing is recorded
    /// as interrupted.
    pub(super) async fn leave(&mut self) {
        self.send_leave().await;
        self.call_receiver.close();
    }

    async fn send_leave(&mut self) {
        self.bridge.cancelled(self.waiting_calls());
        let _ = self.handle.commands.send(Command::Leave).await;
    }

    /// Returns the rest of the answer if the run has finished while the host displayed cards.
    pub(super) fn unread(&mut self) -> Option<String> {
        let is_finished = (self.ended()).is_some_and(|ended| ended.outcome == Outcome::Finished);
        if !is_finished || !self.open.is_empty() || self.waiting_calls() > 0 {
            return None;
        }
        let rest = self.waiting_text();
        self.show.record_answer(&rest);
        let plan = self.show.unshown_plan().unwrap_or_default();
        if let Some(answer) = &mut self.conversation.answer {
            answer.push_str(&plan);
        }
        Some(rest + &plan)
    }

    /// Returns how many queued events are calls of the host.
    fn waiting_calls(&self) -> usize {
        let is_call = |event: &&RunEvent| matches!(event, RunEvent::HostCall(_));
        self.waiting.iter().filter(is_call).count()
    }

    /// Returns the text that arrived while the host was away.
    fn waiting_text(&self) -> String {
        let texts = self.waiting.iter().filter_map(|event| match event {
            RunEvent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns the history the run was sent.
    pub(super) fn history(&self) -> Fingerprint {
        self.answer.history().clone()
    }

    /// Returns the conversation and the cards of a run that has ended.
    pub(super) fn into_parts(self) -> (Conversation, ActivityDisplay) {
        (self.conversation, self.show)
    }

    /// Drains a cancelled run and returns its end, after the last checkpoint or when the run stops
    /// waiting for it. A checkpoint that includes text the host was not shown is ignored, because
    /// the next turn would continue after that text. Once `wanted` resolves,
    /// the time for that is cut short.
    pub(super) async fn drain(&mut self, wanted: impl Future<Output = ()>) -> Ended {
        let mut is_shown = true;
        let mut wanted = std::pin::pin!(wanted.fuse());
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = &mut wanted => {
                    let _ = self.handle.commands.send(Command::ShortenCancel).await;
                    continue;
                }
            };
            match event {
                RunEvent::Text(_) => is_shown = false,
                RunEvent::Checkpoint(saved) if is_shown => self.checkpoint(saved),
                RunEvent::HostCall(call) => self.open.push(*call),
                RunEvent::Ended(ended) => return ended,
                _ => {}
            }
        }
    }

    async fn next(&mut self) -> RunEvent {
        if let Some(event) = self.waiting.pop() {
            return event;
        }
        tokio::select! {
            event = self.handle.events.recv() => {
                let event = event.unwrap_or_else(|| RunEvent::Ended(Ended::lost(RetriesUsed::default())));
                self.record(&event);
                event
            }
            call = self.call_receiver.next() => RunEvent::HostCall(Box::new(call)),
        }
    }

    /// Records an event of the run.
    fn record(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Text(text) => self.answer.push(text),
            RunEvent::HostCall(_) | RunEvent::ToolCompleted(_) => self.is_in_batch = true,
            RunEvent::BatchEnd => self.is_in_batch = false,
            _ => {}
        }
    }

    /// Reads one event while the host is away and returns whether the conversation changed; pends
    /// while the queue is full.
    pub(super) async fn idle(&mut self) -> bool {
        if self.waiting.is_full() {
            return std::future::pending().await;
        }
        let event = tokio::select! {
            Some(event) = self.handle.events.recv() => {
                self.record(&event);
                event
            }
            call = self.call_receiver.next() => {
                // Cancelled calls must not fill the queue of the run's events.
                self.waiting.retain(|event| !is_void(event));
                RunEvent::HostCall(Box::new(call))
            }
        };
        match event {
            RunEvent::Checkpoint(saved) => {
                self.checkpoint(saved);
                true
            }
            RunEvent::BatchEnd => false,
            event => {
                if let RunEvent::Ended(Ended {
                    outcome: Outcome::Failed(failure),
                    ..
                }) = &event
                {
                    let event = if self.conversation.sent.as_ref() == Some(self.answer.history()) {
                        "bridge.died_mid_pause_checkpoint_saved"
                    } else {
                        "bridge.died_mid_pause_no_checkpoint"
                    };
                    let key = self.key.as_str();
                    tracing::debug!(event, bridgeKeyPrefix = key, class = failure.class());
                }
                self.waiting.push(event);
                false
            }
        }
    }

    /// Writes the conversation to disk if it has changed, so that a host that calls tools in a row
    /// does not wait for the disk each time.
    pub(super) async fn save(&mut self) -> Result<(), StoreError> {
        if !self.is_saved {
            let covered = self.conversation.sent.as_ref().map_or(0, Fingerprint::len);
            let messages = self.inbox.unsaved(covered);
            self.conversation.save(&messages).await?;
            self.is_saved = true;
        }
        Ok(())
    }

    /// Returns and clears the effects that the checkpoint includes.
    pub(super) fn take_saved(&mut self) -> Vec<EffectDigest> {
        std::mem::take(&mut self.saved)
    }

    /// Sends the run's events to the host until the host must execute something or the run ends.
    /// Cancel safe.
    pub(super) async fn drive(
        &mut self,
        request: &mut OpenTurn,
        progress: &mut TurnProgress,
    ) -> Pause {
        if let Some(text) = self.parked.repeated.take() {
            if !text.is_empty() {
                send_event(TurnEvent::Text(text), request, progress).await;
            }
            return Pause::ToolUse;
        }
        while self.batch() == PendingBatch::Nothing && !self.later.is_empty() {
            send_event(self.later.remove(0), request, progress).await;
        }
        let line = self.wait_display.begin();
        send_wait(line, request);
        loop {
            let deadline = self.inbox.deadline();
            let event = tokio::select! {
                // Read what the server has sent before the deadline counts.
                biased;
                Some(message) = request.next_message() => {
                    self.inject(message, Source::Separate).await;
                    continue;
                }
                event = self.next() => event,
                () = std::future::ready(()), if self.batch() != PendingBatch::Nothing && !self.is_in_batch => {
                    return Pause::ToolUse;
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let now = Instant::now();
                    if deadline.is_some_and(|due| suspend_aware_timer::is_late(due, now)) {
                        // The process was suspended: read what the server sent meanwhile first.
                        self.inbox.rearm(now);
                    } else {
                        self.release().await;
                    }
                    continue;
                }
            };
            if self.batch() == PendingBatch::Cards && ends_cards(&event) {
                let over = |event: &RunEvent| matches!(event, RunEvent::Ended(end) if end.outcome == Outcome::Finished);
                if over(&event) && self.later.is_empty() && self.inbox.is_delivered() {
                    self.show.close_cards();
                }
                self.waiting.push_front(event);
                return Pause::ToolUse;
            }
            // Text that follows a call is shown after the call.
            if self.batch() == PendingBatch::Calls && is_speech(&event) {
                self.waiting.push_front(event);
                return Pause::ToolUse;
            }
            if let Some(line) = self.wait_display.update(&event) {
                send_wait(line, request);
            }
            let shown = match event {
                RunEvent::Text(text) => {
                    self.show.record_answer(&text);
                    TurnEvent::Text(text)
                }
                RunEvent::Thinking(text) => TurnEvent::Thinking(text),
                RunEvent::ThinkingDone => TurnEvent::ThinkingDone,
                RunEvent::Retrying(attempt) => {
                    self.reinject().await;
                    TurnEvent::retrying(&attempt.failure)
                }
                RunEvent::Checkpoint(saved) => {
                    progress.since_checkpoint.clone_from(&saved.unacknowledged);
                    self.checkpoint(saved);
                    self.count(progress);
                    continue;
                }
                RunEvent::HostCall(call) => {
                    self.offer(*call, request).await;
                    continue;
                }
                // More of the batch may have arrived since.
                RunEvent::BatchEnd => continue,
                RunEvent::Injection(report) => {
                    if self.inbox.report(&report) == InjectionStep::Release {
                        self.release().await;
                    }
                    continue;
                }
                // Calls of another agent outlive Cursor's answer: the host executes them first.
                RunEvent::Ended(ended) if self.leaves_calls(&ended) => {
                    self.waiting.push_front(RunEvent::Ended(ended));
                    return Pause::ToolUse;
                }
                RunEvent::Ended(ended) => {
                    progress.was_sent |= ended.was_accepted;
                    let is_finished = ended.outcome == Outcome::Finished;
                    let Some(rest) = is_finished.then(|| self.show.unshown_plan()).flatten() else {
                        return Pause::Over(Box::new(ended));
                    };
                    // The checkpoint includes the plan, but not as text.
                    if let Some(answer) = &mut self.conversation.answer {
                        answer.push_str(&rest);
                    }
                    self.waiting.push_front(RunEvent::Ended(ended));
                    TurnEvent::Text(rest)
                }
                event => match self.activity(event, request, progress).await {
                    Some(pause) => return pause,
                    None => continue,
                },
            };
            send_event(shown, request, progress).await;
        }
    }

    /// Stores a checkpoint. What it lacks is sent again if the run is lost.
    fn checkpoint(&mut self, saved: Checkpoint) {
        self.is_saved = false;
        self.inbox.checkpoint(&saved.messages);
        if let Ok(Some(occupancy)) = occupancy(&saved.state) {
            self.occupancy = Some(occupancy);
        }
        self.saved.extend(saved.saved);
        self.conversation.state = Some(saved.state);
        let coverage = self.answer.checkpoint(&saved.lacks, &saved.unacknowledged);
        self.conversation.sent = Some(coverage.history);
        self.conversation.answer = Some(coverage.answer);
    }

    /// Reports the context size of the newest checkpoint, which may have arrived while the host was
    /// away.
    fn count(&self, progress: &mut TurnProgress) {
        if let Some(occupancy) = &self.occupancy {
            progress.seen.occupied = Some(occupancy.used.into());
            progress.window = Some(occupancy.limit).filter(|limit| *limit > 0);
        }
    }

    /// Keeps the checkpoint only if it is valid for everything that was sent; otherwise the next
    /// turn sends the history again.
    pub(super) fn check_checkpoint(&mut self, outcome: &Outcome) {
        let current = self.conversation.sent.as_ref() == Some(self.answer.history());
        // Undelivered messages are sent to the checkpoint that precedes them.
        let undelivered = self.before_message.is_some()
            && self.conversation.sent == self.before_message
            && !self.inbox.is_delivered();
        let sound = match outcome {
            Outcome::Finished => {
                current
                    || undelivered
                    || self.answer.lacks_only_text(self.conversation.sent.as_ref())
            }
            // An older checkpoint is sent everything since.
            Outcome::Cancelled => true,
            Outcome::Failed(failure) => match failure.retry() {
                Retry::Transport => true,
                // The checkpoint the run started with may be what makes the server fail.
                Retry::Server | Retry::Idle => self.conversation.state != self.initial_state,
                Retry::Never => !failure.doubts_state(),
            },
        };
        if !sound {
            self.conversation.sent = None;
        }
        if *outcome == Outcome::Finished {
            self.conversation.pause = None;
            if self.inbox.is_delivered() {
                self.inbox.finish();
            }
        }
    }
}

/// Returns whether an event is a call whose caller no longer waits.
fn is_void(event: &RunEvent) -> bool {
    matches!(event, RunEvent::HostCall(call) if call.is_void())
}

/// Returns whether an event is text or thinking of the model.
fn is_speech(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Text(_) | RunEvent::Thinking(_))
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
