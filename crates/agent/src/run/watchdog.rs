//! Detects streams that are open but make no progress.
//!
//! Two timers watch a stream. Silence of any kind means a lost stream (the official client's rule,
//! in [`super::Timing::stall`]). This one requires *work*: a server that only sends heartbeats or
//! empty messages is not working. Both use the same retry budget, and switching this one off
//! switches off both. While tools are executing here or the user has an open question, the server
//! has nothing to do and is not watched.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use cursor_proto::agent::v1::{agent_server_message::Message, interaction_update};

/// Restarts of an idle stream, by default.
pub const RETRIES: u32 = 3;

/// How long a stream may go without work after an exec request that this version cannot answer.
/// The server was sent an error for it; one that still waits will not continue.
const AFTER_UNKNOWN_EXEC: Duration = Duration::from_secs(45);

/// How long a stream may stay open without work; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleLimits {
    /// Before any host tool has returned a result.
    pub first: Option<Duration>,
    /// After a host tool has returned a result.
    pub resumed: Option<Duration>,
}

impl Default for IdleLimits {
    fn default() -> Self {
        Self {
            first: Some(Duration::from_secs(120)),
            resumed: Some(Duration::from_secs(240)),
        }
    }
}

/// What a message says about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerActivity {
    /// The server is working.
    Work,
    /// The server is alive.
    Liveness,
    /// A message without content, which shows neither.
    Nothing,
}

/// Classifies a message. Token counts are work, because a model may think for long without text.
pub(super) fn classify(message: Option<&Message>) -> ServerActivity {
    use interaction_update::Message as Update;
    let Some(message) = message else {
        return ServerActivity::Liveness;
    };
    let Message::InteractionUpdate(update) = message else {
        return ServerActivity::Work;
    };
    let text_activity = |text: &str| {
        if text.is_empty() {
            ServerActivity::Nothing
        } else {
            ServerActivity::Work
        }
    };
    match &update.message {
        Some(Update::Heartbeat(_)) | None => ServerActivity::Liveness,
        Some(Update::TextDelta(delta)) => text_activity(&delta.text),
        Some(Update::ThinkingDelta(delta)) => text_activity(&delta.text),
        Some(Update::TokenDelta(delta)) if delta.tokens == 0 => ServerActivity::Nothing,
        Some(_) => ServerActivity::Work,
    }
}

/// The phase of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamPhase {
    /// No host tool has returned a result.
    First,
    /// A host tool has returned a result, and the server should continue.
    Resumed,
}

/// An idle timeout of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdleTimeout {
    /// How long it made no progress.
    pub(super) after: Duration,
    pub(super) phase: StreamPhase,
    /// Whether there was text since the last host result.
    pub(super) has_text: bool,
    /// Whether nothing at all arrived, not even a sign of life.
    pub(super) is_silent: bool,
    /// The exec request of an unknown kind that came last, if no work followed it.
    pub(super) unknown_exec: Option<u32>,
}

impl IdleTimeout {
    /// Returns the timeout of a stream that could not be opened in time.
    pub(super) fn unopened(after: Duration) -> Self {
        Self {
            after,
            phase: StreamPhase::First,
            has_text: false,
            is_silent: true,
            unknown_exec: None,
        }
    }
}

/// Watches one stream.
#[derive(Debug)]
pub(super) struct Watchdog {
    patience: IdleLimits,
    phase: StreamPhase,
    /// Whether there was text since the last host result.
    has_text: bool,
    last_work: Instant,
    unknown_exec: Option<u32>,
}

impl Watchdog {
    pub(super) fn new(patience: IdleLimits, now: Instant) -> Self {
        Self {
            patience,
            phase: StreamPhase::First,
            has_text: false,
            last_work: now,
            unknown_exec: None,
        }
    }

    /// Records a message from the server.
    pub(super) fn record_message(&mut self, message: Option<&Message>, now: Instant) {
        if classify(message) != ServerActivity::Work {
            return;
        }
        self.worked(now);
        if let Some(Message::InteractionUpdate(update)) = message
            && let Some(interaction_update::Message::TextDelta(_)) = &update.message
        {
            self.has_text = true;
        }
    }

    /// Returns the idle timeout of this stream, after a wait of `after`.
    pub(super) fn idle_timeout(&self, after: Duration) -> IdleTimeout {
        IdleTimeout {
            after,
            phase: self.phase,
            has_text: self.has_text,
            is_silent: false,
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

    /// Records that the host returned a result, or the user an answer.
    pub(super) fn resumed(&mut self, now: Instant) {
        self.phase = StreamPhase::Resumed;
        self.has_text = false;
        self.worked(now);
    }

    pub(super) fn last_work(&self) -> Instant {
        self.last_work
    }

    /// Returns the limit that applies now.
    pub(super) fn limit(&self) -> Option<Duration> {
        let limit = match self.phase {
            StreamPhase::First => self.patience.first,
            StreamPhase::Resumed => self.patience.resumed,
        };
        if self.unknown_exec.is_some() {
            return limit.map(|limit| limit.min(AFTER_UNKNOWN_EXEC));
        }
        limit
    }

    /// Returns when the limit is reached.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // A limit beyond the range of the clock is unlimited.
        self.limit()
            .and_then(|limit| self.last_work.checked_add(limit))
    }
}

/// The error of a stream that was open and did no work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// How long it made no progress.
    pub after: Duration,
    /// How many streams were used.
    pub attempts: u32,
    /// How many restarts were allowed.
    pub retries: u32,
    /// Whether any text of the answer was shown.
    pub has_text: bool,
    /// Whether nothing at all arrived, not even a sign of life.
    pub is_silent: bool,
    /// The exec request that the server waits for and this version does not know.
    pub unknown_exec: Option<String>,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            after,
            attempts,
            retries,
            has_text,
            is_silent,
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
            "Cursor stream idle timeout after {}ms without upstream progress",
            after.as_millis(),
        )?;
        match (*attempts, retries.saturating_add(1)) {
            (_, 1) => f.write_str(".")?,
            (attempts, allowed) if attempts > allowed => write!(f, " in {attempts} attempts.")?,
            (attempts, allowed) => write!(f, " in {attempts} of {allowed} attempts.")?,
        }
        if *has_text {
            f.write_str(" Part of the answer is displayed already, and Cursor saved no state to continue it from.")?;
        }
        if *is_silent {
            // A longer limit would not help: a server that works sends heartbeats.
            return f.write_str(" Nothing arrived at all, so the connection is probably lost: check the network, VPN or proxy and send the message again. PI_CURSOR_STREAM_IDLE_TIMEOUT_MS=0 switches the limit off.");
        }
        f.write_str(" Cursor is connected but does not work: send the message again, or raise PI_CURSOR_STREAM_IDLE_TIMEOUT_MS (PI_CURSOR_RESUME_IDLE_TIMEOUT_MS after a tool's result) if the model needs longer.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_proto::agent::v1::*;

    fn update(message: interaction_update::Message) -> Option<Message> {
        Some(Message::InteractionUpdate(InteractionUpdate {
            message: Some(message),
            message_started_at_ms: None,
        }))
    }

    #[test]
    fn heartbeats_are_not_work_and_tokens_are() {
        use interaction_update::Message as Update;
        let text = |text: &str| TextDeltaUpdate {
            text: text.into(),
            ..TextDeltaUpdate::default()
        };
        let cases = [
            (
                update(Update::Heartbeat(HeartbeatUpdate {})),
                ServerActivity::Liveness,
            ),
            (
                update(Update::TokenDelta(TokenDeltaUpdate { tokens: 1 })),
                ServerActivity::Work,
            ),
            (
                update(Update::TokenDelta(TokenDeltaUpdate { tokens: 0 })),
                ServerActivity::Nothing,
            ),
            (update(Update::TextDelta(text("a"))), ServerActivity::Work),
            (update(Update::TextDelta(text(""))), ServerActivity::Nothing),
            (
                Some(Message::KvServerMessage(KvServerMessage::default())),
                ServerActivity::Work,
            ),
            (
                Some(Message::ConversationCheckpointUpdate(Default::default())),
                ServerActivity::Work,
            ),
            (None, ServerActivity::Liveness),
        ];
        for (message, wanted) in cases {
            assert_eq!(classify(message.as_ref()), wanted, "{message:?}");
        }
    }

    #[test]
    fn an_idle_timeout_counts_attempts_of_those_allowed() {
        let idle = |attempts, retries| {
            let idle = Idle {
                after: Duration::from_secs(30),
                attempts,
                retries,
                has_text: false,
                is_silent: true,
                unknown_exec: None,
            };
            let text = idle.to_string();
            text.split_inclusive('.').next().unwrap().to_owned()
        };
        insta::assert_snapshot!([idle(1, 0), idle(1, 3), idle(4, 3), idle(5, 3)].join("\n"), @r"
        Cursor stream idle timeout after 30000ms without upstream progress.
        Cursor stream idle timeout after 30000ms without upstream progress in 1 of 4 attempts.
        Cursor stream idle timeout after 30000ms without upstream progress in 4 of 4 attempts.
        Cursor stream idle timeout after 30000ms without upstream progress in 5 attempts.
        ");
    }

    #[test]
    fn a_watchdog_that_is_off_has_no_deadline() {
        let now = Instant::now();
        let patience = IdleLimits {
            first: None,
            ..IdleLimits::default()
        };
        let mut watchdog = Watchdog::new(patience, now);
        assert_eq!(watchdog.deadline(), None);
        watchdog.resumed(now);
        assert_eq!(watchdog.deadline(), Some(now + Duration::from_secs(240)));
    }
}
