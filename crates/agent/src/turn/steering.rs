//! User messages for a running model: injected into the run and tracked until they are delivered.
//!
//! If the run rejects an injected message, we cancel the run and send the message in a new one. A
//! message is never lost, and never reported as delivered to a cancelled run.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::recover::images;
use crate::conversation::image::DecodedImage;
use crate::run::{Injection, UserMessage};
use cursor_proto::agent::v1::{ContextInjectionStateUpdate, context_injection_state};

/// How long the server has to report on an injected message; the official client waits this long
/// too.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns a user message to inject, with its images.
pub fn words(text: String, pictures: Vec<DecodedImage>) -> UserMessage {
    UserMessage {
        text,
        images: images(pictures),
        mode: None,
    }
}

/// The injected messages of one run.
#[derive(Debug)]
pub(super) struct Steering {
    pending: Vec<PendingInjection>,
    /// Delivered messages that no checkpoint includes yet, with their injection id if they were
    /// injected. They must be sent again if the stream breaks.
    delivered: Vec<(Option<Uuid>, Undelivered)>,
    run: Run,
}

/// Whether the run still accepts messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Accepting,
    Released,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The host's history, as the last of this many messages: a run that is sent these messages
    /// already has it.
    History(usize),
    /// The host sent it separately while a turn was running.
    Separate,
}

/// A message that was not delivered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Undelivered {
    pub(super) message: UserMessage,
    pub(super) source: Source,
}

#[derive(Debug)]
struct PendingInjection {
    id: Uuid,
    words: Undelivered,
    /// When to stop waiting for the server's report; `None` once it has reported.
    deadline: Option<Instant>,
}

/// What to do after a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectionStep {
    /// Nothing: the run continues.
    Continue,
    /// The run does not accept the message: cancel it and start one that does.
    Release,
}

impl Steering {
    pub(super) fn new() -> Self {
        Self {
            pending: Vec::new(),
            delivered: Vec::new(),
            run: Run::Accepting,
        }
    }

    /// Records the messages a run starts with.
    pub(super) fn start_with(&mut self, words: Vec<Undelivered>) {
        self.delivered
            .extend(words.into_iter().map(|words| (None, words)));
    }

    /// Records a checkpoint: it includes every delivered message.
    pub(super) fn checkpoint(&mut self) {
        self.delivered.clear();
    }

    /// Returns the injections to send on a new stream, which continues from the newest checkpoint:
    /// every injected message that the checkpoint does not include.
    pub(super) fn reinject(&mut self, now: Instant) -> Vec<Injection> {
        let (injected, initial): (Vec<_>, Vec<_>) =
            self.delivered.drain(..).partition(|(id, _)| id.is_some());
        self.delivered = initial;
        let delivered = injected
            .into_iter()
            .filter_map(|(id, words)| Some((id?, words)));
        let delivered = delivered.map(|(id, words)| PendingInjection {
            id,
            words,
            deadline: None,
        });
        self.pending.splice(..0, delivered);
        for words in &mut self.pending {
            words.deadline = Some(now + REPORT_TIMEOUT);
        }
        let injection = |pending: &PendingInjection| Injection {
            id: pending.id,
            message: pending.words.message.clone(),
        };
        self.pending.iter().map(injection).collect()
    }

    /// Records a message and returns its injection.
    pub(super) fn inject(
        &mut self,
        message: UserMessage,
        source: Source,
        now: Instant,
    ) -> Injection {
        let id = Uuid::new_v4();
        self.pending.push(PendingInjection {
            id,
            words: Undelivered {
                message: message.clone(),
                source,
            },
            deadline: Some(now + REPORT_TIMEOUT),
        });
        Injection { id, message }
    }

    /// Restarts the deadline of every message that has no report yet.
    pub(super) fn rearm(&mut self, now: Instant) {
        for words in &mut self.pending {
            words.deadline = words.deadline.map(|_| now + REPORT_TIMEOUT);
        }
    }

    /// Drops separately sent messages that the host's history now contains.
    pub(super) fn drop_resent(&mut self, texts: &[String]) {
        self.pending.retain(|PendingInjection { words, .. }| {
            matches!(words.source, Source::History(_)) || !texts.contains(&words.message.text)
        });
    }

    /// Returns when to cancel the run if the server does not report on a message.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.run {
            Run::Accepting => self.pending.iter().filter_map(|words| words.deadline).min(),
            Run::Released => None,
        }
    }

    /// Applies a report of the server.
    pub(super) fn report(&mut self, report: &ContextInjectionStateUpdate) -> InjectionStep {
        use context_injection_state::State;
        let matches = |words: &PendingInjection| words.id.to_string() == report.injection_id;
        let Some(at) = self.pending.iter().position(matches) else {
            return InjectionStep::Continue;
        };
        match report.state.as_ref().and_then(|state| state.state.as_ref()) {
            // The last checkpoint of a cancelled run may not include what was delivered to it.
            _ if self.is_released() => InjectionStep::Continue,
            Some(State::Delivered(_)) => {
                let PendingInjection { id, words, .. } = self.pending.remove(at);
                self.delivered.push((Some(id), words));
                InjectionStep::Continue
            }
            Some(State::Queued(_)) | None => {
                self.pending[at].deadline = None;
                InjectionStep::Continue
            }
            Some(State::QueuedForNextTurn(_) | State::Cancelled(_) | State::Rejected(_)) => {
                InjectionStep::Release
            }
        }
    }

    /// Records that the run is cancelled because it did not accept a message.
    pub(super) fn release(&mut self) {
        self.run = Run::Released;
    }

    /// Returns whether the run is cancelled: its later requests have no receiver.
    pub(super) fn is_released(&self) -> bool {
        self.run == Run::Released
    }

    /// Returns whether every message was delivered.
    pub(super) fn is_delivered(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the separately sent messages that no checkpoint includes.
    pub(super) fn separate(&self) -> Vec<UserMessage> {
        let delivered = self.delivered.iter().map(|(_, words)| words);
        let pending = self.pending.iter().map(|pending| &pending.words);
        let separate = delivered.chain(pending);
        let separate = separate.filter(|words| words.source == Source::Separate);
        separate.map(|words| words.message.clone()).collect()
    }

    /// Returns, one by one, the messages that were not delivered or that no checkpoint includes.
    pub(super) fn take(&mut self) -> Vec<Undelivered> {
        let delivered = self.delivered.drain(..).map(|(_, words)| words);
        let pending = self.pending.drain(..).map(|pending| pending.words);
        delivered.chain(pending).collect()
    }
}

/// Joins several messages into one.
pub(super) fn joined(messages: impl IntoIterator<Item = UserMessage>) -> Option<UserMessage> {
    messages.into_iter().reduce(|mut all, next| {
        all.text = format!("{}\n\n{}", all.text, next.text);
        all.images.extend(next.images);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Image;
    use context_injection_state::State;
    use cursor_proto::agent::v1::{
        ContextInjectionDelivered, ContextInjectionQueued, ContextInjectionRejected,
        ContextInjectionState,
    };

    fn message(text: &str) -> UserMessage {
        words(text.into(), Vec::new())
    }

    fn report(id: Uuid, state: State) -> ContextInjectionStateUpdate {
        ContextInjectionStateUpdate {
            injection_id: id.to_string(),
            state: Some(ContextInjectionState { state: Some(state) }),
        }
    }

    #[test]
    fn a_message_has_a_deadline_until_the_server_reports_on_it() {
        let now = Instant::now();
        let mut steering = Steering::new();
        let injected = steering.inject(message("hurry"), Source::Separate, now);
        assert_eq!(steering.deadline(), Some(now + REPORT_TIMEOUT));
        let queued = report(injected.id, State::Queued(ContextInjectionQueued {}));
        assert_eq!(steering.report(&queued), InjectionStep::Continue);
        assert_eq!(
            (steering.deadline(), steering.is_delivered()),
            (None, false)
        );
        let delivered = report(
            injected.id,
            State::Delivered(ContextInjectionDelivered::default()),
        );
        assert_eq!(steering.report(&delivered), InjectionStep::Continue);
        assert!(steering.is_delivered());
        steering.checkpoint();
        assert_eq!(steering.take(), []);
    }

    #[test]
    fn messages_without_a_checkpoint_are_injected_into_the_next_stream() {
        let now = Instant::now();
        let mut steering = Steering::new();
        let initial = Undelivered {
            message: message("go"),
            source: Source::History(3),
        };
        steering.start_with(vec![initial]);
        let injected = steering.inject(message("hurry"), Source::Separate, now);
        let delivered = State::Delivered(ContextInjectionDelivered::default());
        steering.report(&report(injected.id, delivered));
        assert!(steering.is_delivered());
        // Messages the run started with are not injected.
        assert_eq!(steering.reinject(now), [injected]);
        assert!(!steering.is_delivered());
        let left = steering.take().into_iter().map(|words| words.message.text);
        assert_eq!(left.collect::<Vec<_>>(), ["go", "hurry"]);
    }

    #[test]
    fn a_rejected_message_stays_undelivered_whatever_is_reported_later() {
        let mut steering = Steering::new();
        let injected = steering.inject(message("hurry"), Source::History(1), Instant::now());
        let refused = report(
            injected.id,
            State::Rejected(ContextInjectionRejected::default()),
        );
        assert_eq!(steering.report(&refused), InjectionStep::Release);
        steering.release();
        let late = report(
            injected.id,
            State::Delivered(ContextInjectionDelivered::default()),
        );
        assert_eq!(steering.report(&late), InjectionStep::Continue);
        assert_eq!(steering.deadline(), None);
        let picture = Image {
            mime_type: None,
            data: "dots".into(),
        };
        let shown = UserMessage {
            images: vec![picture.clone()],
            ..message("like this")
        };
        steering.inject(shown, Source::Separate, Instant::now());
        let left = steering.take().into_iter().map(|words| words.message);
        let left = joined(left).unwrap();
        assert_eq!(
            (left.text.as_str(), left.images),
            ("hurry\n\nlike this", vec![picture])
        );
    }

    #[test]
    fn only_messages_without_a_report_get_a_new_deadline() {
        let now = Instant::now();
        let mut steering = Steering::new();
        let queued = steering.inject(message("one"), Source::Separate, now);
        steering.report(&report(queued.id, State::Queued(ContextInjectionQueued {})));
        let later = now + REPORT_TIMEOUT;
        steering.rearm(later);
        assert_eq!(steering.deadline(), None);
        steering.inject(message("two"), Source::Separate, now);
        steering.rearm(later);
        assert_eq!(steering.deadline(), Some(later + REPORT_TIMEOUT));
    }

    #[test]
    fn a_message_is_dropped_only_if_the_history_has_the_same_text() {
        let mut steering = Steering::new();
        for (text, source) in [("go", Source::Separate), ("hurry", Source::History(1))] {
            steering.inject(message(text), source, Instant::now());
        }
        let left = |steering: &Steering| steering.pending.len();
        steering.drop_resent(&["please go".into(), "hurry".into()]);
        assert_eq!(left(&steering), 2);
        steering.drop_resent(&["go".into()]);
        assert_eq!(left(&steering), 1);
    }

    #[test]
    fn reports_on_unknown_injections_are_ignored() {
        let mut steering = Steering::new();
        steering.inject(message("hurry"), Source::History(1), Instant::now());
        let other = report(
            Uuid::new_v4(),
            State::Rejected(ContextInjectionRejected::default()),
        );
        assert_eq!(steering.report(&other), InjectionStep::Continue);
        assert!(!steering.is_delivered());
    }
}
