//! User messages for a running model: injected into the run and tracked until they are delivered.
//!
//! If the run rejects an injected message, we cancel the run and send the message in a new one. A
//! message is never lost, and never reported as delivered to a cancelled run.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::recover::images;
use crate::conversation::picture::Picture;
use crate::run::{Injection, UserMessage};
use crate::wire::proto::agent::v1::{ContextInjectionStateUpdate, context_injection_state};

/// How long the server has to report on an injected message; the official client waits this long
/// too.
const UNHEARD: Duration = Duration::from_secs(15);

/// Returns a user message to inject, with its images.
pub fn words(text: String, pictures: Vec<Picture>) -> UserMessage {
    UserMessage {
        text,
        images: images(pictures),
        mode: None,
    }
}

/// The injected messages of one run.
#[derive(Debug)]
pub(super) struct Steering {
    unheard: Vec<Unheard>,
    /// Delivered messages that no checkpoint includes yet, with their injection id if they were
    /// injected. They must be sent again if the stream breaks.
    heard: Vec<(Option<Uuid>, Unsaid)>,
    run: Run,
}

/// Whether the run still accepts messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Listening,
    Released,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The host's history, as the last of this many messages: a run that is sent these messages
    /// already has it.
    History(usize),
    /// The host sent it separately while a turn was running.
    Beside,
}

/// A message that was not delivered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unsaid {
    pub(super) message: UserMessage,
    pub(super) source: Source,
}

#[derive(Debug)]
struct Unheard {
    id: Uuid,
    words: Unsaid,
    /// When to stop waiting for the server's report; `None` once it has reported.
    give_up: Option<Instant>,
}

/// What to do after a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: the run continues.
    GoOn,
    /// The run does not accept the message: cancel it and start one that does.
    Release,
}

impl Steering {
    pub(super) fn new() -> Self {
        Self {
            unheard: Vec::new(),
            heard: Vec::new(),
            run: Run::Listening,
        }
    }

    /// Records the messages a run starts with.
    pub(super) fn begin(&mut self, words: Vec<Unsaid>) {
        self.heard
            .extend(words.into_iter().map(|words| (None, words)));
    }

    /// Records a checkpoint: it includes every delivered message.
    pub(super) fn known(&mut self) {
        self.heard.clear();
    }

    /// Returns the injections to send on a new stream, which continues from the newest checkpoint:
    /// every injected message that the checkpoint does not include.
    pub(super) fn again(&mut self, now: Instant) -> Vec<Injection> {
        let (injected, begun): (Vec<_>, Vec<_>) =
            self.heard.drain(..).partition(|(id, _)| id.is_some());
        self.heard = begun;
        let heard = injected
            .into_iter()
            .filter_map(|(id, words)| Some((id?, words)));
        let heard = heard.map(|(id, words)| Unheard {
            id,
            words,
            give_up: None,
        });
        self.unheard.splice(..0, heard);
        for words in &mut self.unheard {
            words.give_up = Some(now + UNHEARD);
        }
        let injection = |unheard: &Unheard| Injection {
            id: unheard.id,
            message: unheard.words.message.clone(),
        };
        self.unheard.iter().map(injection).collect()
    }

    /// Records a message and returns its injection.
    pub(super) fn say(&mut self, message: UserMessage, source: Source, now: Instant) -> Injection {
        let id = Uuid::new_v4();
        self.unheard.push(Unheard {
            id,
            words: Unsaid {
                message: message.clone(),
                source,
            },
            give_up: Some(now + UNHEARD),
        });
        Injection { id, message }
    }

    /// Restarts the deadline of every message that has no report yet.
    pub(super) fn rearm(&mut self, now: Instant) {
        for words in &mut self.unheard {
            words.give_up = words.give_up.map(|_| now + UNHEARD);
        }
    }

    /// Drops separately sent messages that the host's history now contains.
    pub(super) fn retold(&mut self, said: &[String]) {
        self.unheard.retain(|Unheard { words, .. }| {
            matches!(words.source, Source::History(_)) || !said.contains(&words.message.text)
        });
    }

    /// Returns when to cancel the run if the server does not report on a message.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.run {
            Run::Listening => self.unheard.iter().filter_map(|words| words.give_up).min(),
            Run::Released => None,
        }
    }

    /// Applies a report of the server.
    pub(super) fn report(&mut self, report: &ContextInjectionStateUpdate) -> Then {
        use context_injection_state::State;
        let known = |words: &Unheard| words.id.to_string() == report.injection_id;
        let Some(at) = self.unheard.iter().position(known) else {
            return Then::GoOn;
        };
        match report.state.as_ref().and_then(|state| state.state.as_ref()) {
            // The last checkpoint of a cancelled run may not include what was delivered to it.
            _ if self.is_released() => Then::GoOn,
            Some(State::Delivered(_)) => {
                let Unheard { id, words, .. } = self.unheard.remove(at);
                self.heard.push((Some(id), words));
                Then::GoOn
            }
            Some(State::Queued(_)) | None => {
                self.unheard[at].give_up = None;
                Then::GoOn
            }
            Some(State::QueuedForNextTurn(_) | State::Cancelled(_) | State::Rejected(_)) => {
                Then::Release
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
    pub(super) fn is_settled(&self) -> bool {
        self.unheard.is_empty()
    }

    /// Returns, one by one, the messages that were not delivered or that no checkpoint includes.
    pub(super) fn take(&mut self) -> Vec<Unsaid> {
        let heard = self.heard.drain(..).map(|(_, words)| words);
        let unheard = self.unheard.drain(..).map(|unheard| unheard.words);
        heard.chain(unheard).collect()
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
    use crate::wire::proto::agent::v1::{
        ContextInjectionDelivered, ContextInjectionQueued, ContextInjectionRejected,
        ContextInjectionState,
    };
    use context_injection_state::State;

    fn said(text: &str) -> UserMessage {
        words(text.into(), Vec::new())
    }

    fn report(id: Uuid, state: State) -> ContextInjectionStateUpdate {
        ContextInjectionStateUpdate {
            injection_id: id.to_string(),
            state: Some(ContextInjectionState { state: Some(state) }),
        }
    }

    #[test]
    fn words_are_watched_until_they_are_heard() {
        let now = Instant::now();
        let mut steering = Steering::new();
        let injected = steering.say(said("hurry"), Source::Beside, now);
        assert_eq!(steering.deadline(), Some(now + UNHEARD));
        let queued = report(injected.id, State::Queued(ContextInjectionQueued {}));
        assert_eq!(steering.report(&queued), Then::GoOn);
        assert_eq!((steering.deadline(), steering.is_settled()), (None, false));
        let delivered = report(
            injected.id,
            State::Delivered(ContextInjectionDelivered::default()),
        );
        assert_eq!(steering.report(&delivered), Then::GoOn);
        assert!(steering.is_settled());
        steering.known();
        assert_eq!(steering.take(), []);
    }

    #[test]
    fn words_no_state_knows_are_said_to_the_next_stream() {
        let now = Instant::now();
        let mut steering = Steering::new();
        let begun = Unsaid {
            message: said("go"),
            source: Source::History(3),
        };
        steering.begin(vec![begun]);
        let injected = steering.say(said("hurry"), Source::Beside, now);
        let delivered = State::Delivered(ContextInjectionDelivered::default());
        steering.report(&report(injected.id, delivered));
        assert!(steering.is_settled());
        // Messages the run started with are not injected.
        assert_eq!(steering.again(now), [injected]);
        assert!(!steering.is_settled());
        let left = steering.take().into_iter().map(|words| words.message.text);
        assert_eq!(left.collect::<Vec<_>>(), ["go", "hurry"]);
    }

    #[test]
    fn words_a_run_refuses_are_left_whatever_it_says_afterwards() {
        let mut steering = Steering::new();
        let injected = steering.say(said("hurry"), Source::History(1), Instant::now());
        let refused = report(
            injected.id,
            State::Rejected(ContextInjectionRejected::default()),
        );
        assert_eq!(steering.report(&refused), Then::Release);
        steering.release();
        let late = report(
            injected.id,
            State::Delivered(ContextInjectionDelivered::default()),
        );
        assert_eq!(steering.report(&late), Then::GoOn);
        assert_eq!(steering.deadline(), None);
        let picture = Image {
            mime_type: None,
            data: "dots".into(),
        };
        let shown = UserMessage {
            images: vec![picture.clone()],
            ..said("like this")
        };
        steering.say(shown, Source::Beside, Instant::now());
        let left = steering.take().into_iter().map(|words| words.message);
        let left = joined(left).unwrap();
        assert_eq!(
            (left.text.as_str(), left.images),
            ("hurry\n\nlike this", vec![picture])
        );
    }

    #[test]
    fn the_time_counts_anew_only_for_words_of_which_nothing_was_heard() {
        let now = Instant::now();
        let mut steering = Steering::new();
        let queued = steering.say(said("one"), Source::Beside, now);
        steering.report(&report(queued.id, State::Queued(ContextInjectionQueued {})));
        let later = now + UNHEARD;
        steering.rearm(later);
        assert_eq!(steering.deadline(), None);
        steering.say(said("two"), Source::Beside, now);
        steering.rearm(later);
        assert_eq!(steering.deadline(), Some(later + UNHEARD));
    }

    #[test]
    fn words_are_retold_by_a_whole_message_only() {
        let mut steering = Steering::new();
        for (text, source) in [("go", Source::Beside), ("hurry", Source::History(1))] {
            steering.say(said(text), source, Instant::now());
        }
        let left = |steering: &Steering| steering.unheard.len();
        steering.retold(&["please go".into(), "hurry".into()]);
        assert_eq!(left(&steering), 2);
        steering.retold(&["go".into()]);
        assert_eq!(left(&steering), 1);
    }

    #[test]
    fn reports_on_other_words_do_nothing() {
        let mut steering = Steering::new();
        steering.say(said("hurry"), Source::History(1), Instant::now());
        let other = report(
            Uuid::new_v4(),
            State::Rejected(ContextInjectionRejected::default()),
        );
        assert_eq!(steering.report(&other), Then::GoOn);
        assert!(!steering.is_settled());
    }
}
