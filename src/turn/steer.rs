//! Words for a model at work: said into the run, and watched until the model has heard them.
//!
//! A run that does not take them is given up, and the words get a run of their own: they are
//! never lost, and never reported as heard by a run that was given up.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::recover::images;
use crate::conversation::picture::Picture;
use crate::run::{Injection, UserMessage};
use crate::wire::proto::agent::v1::{ContextInjectionStateUpdate, context_injection_state};

/// The official client waits this long for the first word on an injected message.
const UNHEARD: Duration = Duration::from_secs(15);

/// Words for a model at work, with the pictures that go with them.
pub fn words(text: String, pictures: Vec<Picture>) -> UserMessage {
    UserMessage {
        text,
        images: images(pictures),
        mode: None,
    }
}

/// The words of one run.
#[derive(Debug)]
pub(super) struct Steering {
    unheard: Vec<Unheard>,
    /// Words the model has heard and no state knows yet, under their names if they were
    /// injected: a stream that breaks may take them along.
    heard: Vec<(Option<Uuid>, Unsaid)>,
    run: Run,
}

/// Whether the run can still hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Listening,
    Released,
}

/// Where words come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The host's history, as the last of so many messages: a run that is told these is told
    /// them.
    History(usize),
    /// The host said them by themselves while a turn went on.
    Beside,
}

/// Words nobody heard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unsaid {
    pub(super) message: UserMessage,
    pub(super) source: Source,
}

#[derive(Debug)]
struct Unheard {
    id: Uuid,
    words: Unsaid,
    /// When to stop hoping that the server takes it; `None` once it has said that it did.
    give_up: Option<Instant>,
}

/// What a report asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: the run goes on.
    GoOn,
    /// The run does not take the words: it is to be given up for one that does.
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

    /// The run begins with these words.
    pub(super) fn begin(&mut self, words: Vec<Unsaid>) {
        self.heard
            .extend(words.into_iter().map(|words| (None, words)));
    }

    /// A state came: it knows what the model has heard.
    pub(super) fn known(&mut self) {
        self.heard.clear();
    }

    /// Another stream begins, where the newest state stands: what was injected and is not in
    /// it has to be said again.
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

    /// Words to be injected.
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

    /// Counts the time anew for words of which nothing was heard.
    pub(super) fn rearm(&mut self, now: Instant) {
        for words in &mut self.unheard {
            words.give_up = words.give_up.map(|_| now + UNHEARD);
        }
    }

    /// Forgets words that the host has said by themselves and now tells in its history.
    pub(super) fn retold(&mut self, said: &[String]) {
        self.unheard.retain(|Unheard { words, .. }| {
            matches!(words.source, Source::History(_)) || !said.contains(&words.message.text)
        });
    }

    /// When the run is to be given up if nothing is heard of the words.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.run {
            Run::Listening => self.unheard.iter().filter_map(|words| words.give_up).min(),
            Run::Released => None,
        }
    }

    /// Takes the server's report.
    pub(super) fn report(&mut self, report: &ContextInjectionStateUpdate) -> Then {
        use context_injection_state::State;
        let known = |words: &Unheard| words.id.to_string() == report.injection_id;
        let Some(at) = self.unheard.iter().position(known) else {
            return Then::GoOn;
        };
        match report.state.as_ref().and_then(|state| state.state.as_ref()) {
            // What a run heard that was given up, its last checkpoint may not know.
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

    /// The run is given up for the words it did not take.
    pub(super) fn release(&mut self) {
        self.run = Run::Released;
    }

    /// Whether the run is given up: what it asks for from now on is for nobody.
    pub(super) fn is_released(&self) -> bool {
        self.run == Run::Released
    }

    /// Whether all words have been heard.
    pub(super) fn is_settled(&self) -> bool {
        self.unheard.is_empty()
    }

    /// The words nobody heard or no state knows, one by one.
    pub(super) fn take(&mut self) -> Vec<Unsaid> {
        let heard = self.heard.drain(..).map(|(_, words)| words);
        let unheard = self.unheard.drain(..).map(|unheard| unheard.words);
        heard.chain(unheard).collect()
    }
}

/// Several messages as one.
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
        // What the run begins with, it begins with again.
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
