//! The one record of user messages for a running model, from their arrival until a checkpoint
//! includes them.
//!
//! A message is injected into the run. If the run rejects it, the run is cancelled and the message is
//! sent in a new one. A message is never lost, and never taken for delivered because a cancelled run
//! reports so.

mod phase;

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use self::phase::{MessageEvent, MessagePhase, TRANSITIONS};
use crate::phases::next;
use crate::run::{Injection, UserMessage};
use cursor_proto::agent::v1::{ContextInjectionStateUpdate, context_injection_state};

/// How long the server has to report on an injected message; the official client waits this long
/// too.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// The user messages of a session, or of a run while there is one.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    messages: Vec<InboxMessage>,
    /// Separately sent messages that a checkpoint includes, until the prompt is answered: if that
    /// checkpoint is abandoned, nothing else contains them.
    saved: Vec<UserMessage>,
    /// Whether the run is cancelled because it did not accept a message.
    is_released: bool,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The host's history, as the last of this many messages: a run that is sent these messages
    /// already has it.
    History(usize),
    /// The host sent it separately while a turn was running.
    Separate,
}

/// A message that no checkpoint includes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnsavedMessage {
    pub(crate) message: UserMessage,
    pub(crate) source: Source,
}

impl UnsavedMessage {
    /// Returns whether a run that is sent the history after its first `sent` messages does not get
    /// the message from it.
    fn is_left(&self, sent: usize) -> bool {
        match self.source {
            Source::Separate => true,
            Source::History(place) => place <= sent,
        }
    }
}

#[derive(Debug)]
struct InboxMessage {
    unsaved: UnsavedMessage,
    phase: MessagePhase,
    /// Its injection into the run; `None` if it was not injected.
    injection: Option<Uuid>,
    /// When to stop waiting for the server's report; `None` once it has reported.
    deadline: Option<Instant>,
}

/// What to do after a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectionStep {
    /// Nothing: the run continues.
    Continue,
    /// The run does not accept the message: cancel it and start one that does.
    Release,
}

impl InboxMessage {
    fn new(unsaved: UnsavedMessage) -> Self {
        Self {
            unsaved,
            phase: MessagePhase::Waiting,
            injection: None,
            deadline: None,
        }
    }

    fn apply(&mut self, event: MessageEvent) {
        self.phase = next(TRANSITIONS, self.phase, event);
    }

    /// Returns whether the model does not have it, as far as is known.
    fn is_pending(&self) -> bool {
        self.phase < MessagePhase::Delivered
    }
}

impl Inbox {
    /// Records messages that the host sent separately and no run has.
    pub(crate) fn add(&mut self, messages: impl IntoIterator<Item = UserMessage>) {
        let waiting = messages.into_iter().map(|message| {
            let source = Source::Separate;
            InboxMessage::new(UnsavedMessage { message, source })
        });
        self.messages.extend(waiting);
    }

    /// Like [`Self::add`], before the messages that are there.
    pub(crate) fn add_first(&mut self, messages: impl IntoIterator<Item = UserMessage>) {
        let later = std::mem::take(&mut self.messages);
        self.add(messages);
        self.messages.extend(later);
    }

    /// Records the messages a run starts with.
    pub(crate) fn start_with(&mut self, messages: Vec<UnsavedMessage>) {
        for unsaved in messages {
            let mut message = InboxMessage::new(unsaved);
            message.apply(MessageEvent::Delivery);
            self.messages.push(message);
        }
    }

    /// Records a message and returns its injection.
    pub(crate) fn inject(
        &mut self,
        message: UserMessage,
        source: Source,
        now: Instant,
    ) -> Injection {
        let id = Uuid::new_v4();
        let mut added = InboxMessage::new(UnsavedMessage {
            message: message.clone(),
            source,
        });
        added.apply(MessageEvent::Injection);
        (added.injection, added.deadline) = (Some(id), Some(now + REPORT_TIMEOUT));
        self.messages.push(added);
        Injection { id, message }
    }

    /// Records a checkpoint that names these messages by the ids they were sent with. It includes
    /// them, and what was delivered before the checkpoint before it; it may be older than a later
    /// delivery.
    pub(crate) fn checkpoint(&mut self, named: &[String]) {
        for message in &mut self.messages {
            let id = message.injection.map(|id| id.to_string());
            let is_named = id.is_some_and(|id| named.contains(&id));
            message.apply(if is_named {
                MessageEvent::CheckpointWith
            } else {
                MessageEvent::Checkpoint
            });
        }
        let is_saved = |message: &mut InboxMessage| message.phase == MessagePhase::InCheckpoint;
        let saved = self.messages.extract_if(.., is_saved);
        let separate = saved.filter(|message| message.unsaved.source == Source::Separate);
        self.saved
            .extend(separate.map(|message| message.unsaved.message));
    }

    /// Records that the run has finished: its answer covers every delivered message.
    pub(crate) fn finish(&mut self) {
        self.messages.retain(InboxMessage::is_pending);
        self.saved.clear();
    }

    /// Takes over what another inbox knows about messages that a checkpoint includes.
    pub(crate) fn keep_saved(&mut self, run: &mut Self) {
        self.saved.append(&mut run.saved);
    }

    /// Records that the checkpoint is abandoned: the next run is sent the messages that it included.
    pub(crate) fn checkpoint_lost(&mut self) {
        let lost = std::mem::take(&mut self.saved);
        self.add_first(lost);
    }

    /// Returns the injections to send on a new stream, which continues from the newest checkpoint:
    /// every injected message that the checkpoint does not include.
    pub(crate) fn reinject(&mut self, now: Instant) -> Vec<Injection> {
        let mut injections = Vec::new();
        for message in &mut self.messages {
            if let Some(id) = message.injection {
                message.apply(MessageEvent::StreamLoss);
                message.deadline = Some(now + REPORT_TIMEOUT);
                let message = message.unsaved.message.clone();
                injections.push(Injection { id, message });
            }
        }
        injections
    }

    /// Restarts the deadline of every message that has no report yet.
    pub(crate) fn rearm(&mut self, now: Instant) {
        for message in &mut self.messages {
            message.deadline = message.deadline.map(|_| now + REPORT_TIMEOUT);
        }
    }

    /// Drops separately sent messages that the model does not have and the host's history now
    /// contains.
    pub(crate) fn drop_resent(&mut self, texts: &[String]) {
        self.messages.retain(|message| {
            let UnsavedMessage {
                message: sent,
                source,
            } = &message.unsaved;
            let is_resent = *source == Source::Separate && texts.contains(&sent.text);
            !message.is_pending() || !is_resent
        });
    }

    /// Returns when to cancel the run if the server does not report on a message.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = self.messages.iter().filter_map(|message| message.deadline);
        deadlines.min().filter(|_| !self.is_released)
    }

    /// Applies a report of the server.
    pub(crate) fn report(&mut self, report: &ContextInjectionStateUpdate) -> InjectionStep {
        use context_injection_state::State;
        let is_meant = |message: &&mut InboxMessage| {
            let id = message.injection.map(|id| id.to_string());
            message.is_pending() && id.as_deref() == Some(&report.injection_id)
        };
        // The last checkpoint of a cancelled run may not include what was delivered to it.
        let Some(message) = self.messages.iter_mut().find(is_meant) else {
            return InjectionStep::Continue;
        };
        match report.state.as_ref().and_then(|state| state.state.as_ref()) {
            _ if self.is_released => InjectionStep::Continue,
            Some(State::Delivered(_)) => {
                message.apply(MessageEvent::Delivery);
                message.deadline = None;
                InjectionStep::Continue
            }
            Some(State::Queued(_)) | None => {
                message.apply(MessageEvent::QueueReport);
                message.deadline = None;
                InjectionStep::Continue
            }
            Some(State::QueuedForNextTurn(_) | State::Cancelled(_) | State::Rejected(_)) => {
                InjectionStep::Release
            }
        }
    }

    /// Records that the run is cancelled because it did not accept a message.
    pub(crate) fn release(&mut self) {
        self.is_released = true;
    }

    /// Returns whether the run is cancelled: its later requests have no receiver.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Returns whether every message was delivered.
    pub(crate) fn is_delivered(&self) -> bool {
        !self.messages.iter().any(InboxMessage::is_pending)
    }

    /// Returns the messages that another process would not get from the history, of which the
    /// checkpoint covers this many messages: the one that it covers may not include them yet.
    pub(crate) fn unsaved(&self, covered: usize) -> Vec<UserMessage> {
        let unsaved = self.messages.iter().map(|message| &message.unsaved);
        let left = unsaved.filter(|unsaved| unsaved.is_left(covered));
        left.map(|unsaved| unsaved.message.clone()).collect()
    }

    /// Returns the separately sent messages, which no history contains.
    pub(crate) fn separate(&self) -> Vec<UserMessage> {
        let unsaved = self.messages.iter().map(|message| &message.unsaved);
        let separate = unsaved.filter(|unsaved| unsaved.source == Source::Separate);
        separate.map(|unsaved| unsaved.message.clone()).collect()
    }

    /// Returns all messages, because the run is over.
    pub(crate) fn take(&mut self) -> Vec<UnsavedMessage> {
        let mut messages = std::mem::take(&mut self.messages);
        for message in &mut messages {
            message.apply(MessageEvent::RunLoss);
        }
        let unsaved = messages.into_iter().map(|message| message.unsaved);
        unsaved.collect()
    }

    /// Returns all messages, without those that a run which is sent this many messages of the
    /// history gets from it.
    pub(crate) fn take_except(&mut self, sent: usize) -> Vec<UserMessage> {
        let messages = self.take().into_iter();
        let left = messages.filter(|unsaved| unsaved.is_left(sent));
        left.map(|unsaved| unsaved.message).collect()
    }
}

/// Joins several messages into one.
pub(crate) fn joined(messages: impl IntoIterator<Item = UserMessage>) -> Option<UserMessage> {
    messages.into_iter().reduce(|mut all, next| {
        all.text = format!("{}\n\n{}", all.text, next.text);
        all.images.extend(next.images);
        all
    })
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
