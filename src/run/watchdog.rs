//! How long a stream may live without bringing anything of use.
//!
//! Two clocks watch a stream. Silence of any kind is a lost stream (the official client's
//! rule, in [`super::Timing::stall`]). This one asks for *work*: a server that only says that
//! it lives, or says nothing in many words, is not working. Both cost the same restarts, and
//! who switches this one off has neither. While tools are at work here, or a person is asked,
//! the server has nothing to do and is not watched.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::proto::agent::v1::{agent_server_message::Message, interaction_update};

/// The restarts a silent stream may have, by default.
pub const RETRIES: u32 = 3;

/// How long a stream may go without work after an exec request that this version cannot answer.
/// The server was sent an error for it; one that still waits will not continue.
const AFTER_UNKNOWN_EXEC: Duration = Duration::from_secs(45);

/// How long a stream may go without work; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// At first.
    pub first: Option<Duration>,
    /// Once the host's tools have answered.
    pub resumed: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Some(Duration::from_secs(120)),
            resumed: Some(Duration::from_secs(240)),
        }
    }
}

/// What a message is a sign of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulse {
    /// The server does something for us.
    Work,
    /// The server lives.
    Liveness,
    /// Not even that: a message without content.
    Nothing,
}

/// What a message is a sign of. Tokens count: a model may think for long without a word.
pub(super) fn pulse(message: Option<&Message>) -> Pulse {
    use interaction_update::Message as Update;
    let Some(message) = message else {
        return Pulse::Liveness;
    };
    let Message::InteractionUpdate(update) = message else {
        return Pulse::Work;
    };
    let worded = |text: &str| match text.is_empty() {
        true => Pulse::Nothing,
        false => Pulse::Work,
    };
    match &update.message {
        Some(Update::Heartbeat(_)) | None => Pulse::Liveness,
        Some(Update::TextDelta(delta)) => worded(&delta.text),
        Some(Update::ThinkingDelta(delta)) => worded(&delta.text),
        Some(Update::TokenDelta(delta)) if delta.tokens == 0 => Pulse::Nothing,
        Some(_) => Pulse::Work,
    }
}

/// Where in its life a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The host's tools have not answered.
    First,
    /// They have, and the server should go on.
    Resumed,
}

/// A stream that was given up on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bark {
    /// How long it did nothing.
    pub(super) after: Duration,
    pub(super) phase: Phase,
    pub(super) told: Told,
    /// The exec request of an unknown kind that came last, if no work followed it.
    pub(super) unknown_exec: Option<u32>,
}

impl Bark {
    /// A stream that was never opened.
    pub(super) fn unopened(after: Duration) -> Self {
        Self {
            after,
            phase: Phase::First,
            told: Told::Nothing,
            unknown_exec: None,
        }
    }
}

/// Watches one stream.
#[derive(Debug)]
pub(super) struct Watchdog {
    patience: Patience,
    phase: Phase,
    /// Whether there were words since the host answered last.
    told: Told,
    last_work: Instant,
    unknown_exec: Option<u32>,
}

impl Watchdog {
    pub(super) fn new(patience: Patience, now: Instant) -> Self {
        Self {
            patience,
            phase: Phase::First,
            told: Told::Nothing,
            last_work: now,
            unknown_exec: None,
        }
    }

    /// A message came.
    pub(super) fn hear(&mut self, message: Option<&Message>, now: Instant) {
        if pulse(message) != Pulse::Work {
            return;
        }
        self.worked(now);
        if let Some(Message::InteractionUpdate(update)) = message
            && let Some(interaction_update::Message::TextDelta(_)) = &update.message
        {
            self.told = Told::Something;
        }
    }

    /// What there is to say of a stream that did nothing for so long.
    pub(super) fn bark(&self, after: Duration) -> Bark {
        Bark {
            after,
            phase: self.phase,
            told: self.told,
            unknown_exec: self.unknown_exec,
        }
    }

    /// Restarts the wait, because the server did something.
    pub(super) fn worked(&mut self, now: Instant) {
        self.last_work = now;
        self.unknown_exec = None;
    }

    /// Shortens the wait until the server works again: it was sent an error for an exec request
    /// of a kind this version does not know.
    pub(super) fn refused_unknown_exec(&mut self, id: u32) {
        self.unknown_exec = Some(id);
    }

    /// The host has answered.
    pub(super) fn resumed(&mut self, now: Instant) {
        self.phase = Phase::Resumed;
        self.told = Told::Nothing;
        self.worked(now);
    }

    pub(super) fn last_work(&self) -> Instant {
        self.last_work
    }

    /// The patience in force.
    pub(super) fn limit(&self) -> Option<Duration> {
        let limit = match self.phase {
            Phase::First => self.patience.first,
            Phase::Resumed => self.patience.resumed,
        };
        if self.unknown_exec.is_some() {
            return limit.map(|limit| limit.min(AFTER_UNKNOWN_EXEC));
        }
        limit
    }

    /// When it runs out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // Longer than the clock can count is for ever.
        self.limit()
            .and_then(|limit| self.last_work.checked_add(limit))
    }
}

/// The error of a stream that was open and did no work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// How long it was waited for.
    pub after: Duration,
    /// Streams it took.
    pub attempts: u32,
    /// Restarts it could have had.
    pub retries: u32,
    /// Whether anything of the answer was told.
    pub told: Told,
    /// The exec request that the server waits for and this version does not know.
    pub unknown_exec: Option<String>,
}

/// Whether the person has seen anything of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Told {
    Nothing,
    Something,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u32| if n == 1 { "" } else { "s" };
        let Self {
            after,
            attempts,
            retries,
            told,
            unknown_exec,
        } = self;
        if let Some(exec) = unknown_exec {
            return write!(
                f,
                "Cursor waits for an exec request that this version does not know ({exec}). The request was answered with an error, and the run did no work for {}ms. Update cursor-sidecar; /cursor-doctor and `cursor-sidecar doctor` list what it does not know.",
                after.as_millis(),
            );
        }
        write!(
            f,
            "Cursor stream idle timeout after {}ms without upstream progress over {attempts} attempt{} ({retries} {}).",
            after.as_millis(),
            plural(*attempts),
            if *retries == 1 { "retry" } else { "retries" },
        )?;
        if *told == Told::Something {
            f.write_str(" Partial assistant output was already streamed; automatic retry requires a checkpoint and was unavailable or exhausted.")?;
        }
        f.write_str(" Tune PI_CURSOR_STREAM_IDLE_TIMEOUT_MS / PI_CURSOR_RESUME_IDLE_TIMEOUT_MS if long reasoning turns are expected.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::agent::v1::*;

    fn update(message: interaction_update::Message) -> Option<Message> {
        Some(Message::InteractionUpdate(InteractionUpdate {
            message: Some(message),
            message_started_at_ms: None,
        }))
    }

    #[test]
    fn s36_heartbeats_are_no_work_and_tokens_are() {
        use interaction_update::Message as Update;
        let text = |text: &str| TextDeltaUpdate {
            text: text.into(),
            ..TextDeltaUpdate::default()
        };
        let cases = [
            (
                update(Update::Heartbeat(HeartbeatUpdate {})),
                Pulse::Liveness,
            ),
            (
                update(Update::TokenDelta(TokenDeltaUpdate { tokens: 1 })),
                Pulse::Work,
            ),
            (
                update(Update::TokenDelta(TokenDeltaUpdate { tokens: 0 })),
                Pulse::Nothing,
            ),
            (update(Update::TextDelta(text("a"))), Pulse::Work),
            (update(Update::TextDelta(text(""))), Pulse::Nothing),
            (
                Some(Message::KvServerMessage(KvServerMessage::default())),
                Pulse::Work,
            ),
            (
                Some(Message::ConversationCheckpointUpdate(Default::default())),
                Pulse::Work,
            ),
            (None, Pulse::Liveness),
        ];
        for (message, wanted) in cases {
            assert_eq!(pulse(message.as_ref()), wanted, "{message:?}");
        }
    }

    #[test]
    fn s41_a_watchdog_that_is_off_never_barks() {
        let now = Instant::now();
        let patience = Patience {
            first: None,
            ..Patience::default()
        };
        let mut dog = Watchdog::new(patience, now);
        assert_eq!(dog.deadline(), None);
        dog.resumed(now);
        assert_eq!(dog.deadline(), Some(now + Duration::from_secs(240)));
    }
}
