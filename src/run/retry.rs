//! When to try again, and from where. Pure: no clock, no network.

use std::time::Duration;

use bytes::Bytes;

use super::watchdog::Patience;
use crate::wire::failure::{Failure, Retry};

/// How many attempts a run may take; the official client's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries after errors the server reported.
    pub server: u32,
    /// Retries after broken connections.
    pub transport: u32,
    /// The same while the server has not taken up a single stream of the run: it may not be
    /// there at all, and the person should learn that soon.
    pub unreached: u32,
    /// Retries after streams that lived and did nothing.
    pub idle: u32,
    /// Who starts over when a stream falls silent that was given results.
    pub after_results: Restarts,
    /// Attempts in a row that resumed, streamed, and brought no new checkpoint.
    pub barren_resumes: u32,
    /// The first delay is twice this.
    pub base_delay: Duration,
    /// No delay is longer.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            server: 3,
            transport: 10,
            unreached: 3,
            idle: super::watchdog::RETRIES,
            after_results: Restarts::Here,
            barren_resumes: 2,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// The policy as it is for a run that has got so far.
    pub fn having(self, reached: Reached) -> Self {
        let transport = match reached {
            Reached::Never => self.transport.min(self.unreached),
            Reached::Once => self.transport,
        };
        Self { transport, ..self }
    }
}

/// Whether the server has ever taken up a stream of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reached {
    #[default]
    Never,
    Once,
}

/// Who starts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restarts {
    /// The run itself, from its last checkpoint.
    Here,
    /// Its owner, who knows the results.
    Above,
}

/// The clocks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two client heartbeats.
    pub heartbeat: Duration,
    /// Between two heartbeats of an open exec.
    pub exec_heartbeat: Duration,
    /// Silence after which a stream counts as lost, if anybody watches it.
    pub stall: Duration,
    /// How long a stream may live without work.
    pub patience: Patience,
    /// How long after the turn's end the stream may stay open.
    pub after_turn: Duration,
    /// How long a cancelled run waits for its last checkpoint.
    pub linger: Duration,
    /// How long a server may go on working after that; then nothing of it is waited for.
    pub heed: Duration,
    /// How long it waits behind a checkpoint for a later one, or for the end.
    pub farewell: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            exec_heartbeat: Duration::from_secs(3),
            stall: Duration::from_secs(30),
            patience: Patience::default(),
            after_turn: Duration::from_secs(5),
            linger: Duration::from_secs(6),
            heed: Duration::from_secs(1),
            farewell: Duration::from_millis(500),
        }
    }
}

/// What an attempt achieved before it failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// The newest checkpoint the attempt brought.
    pub checkpoint: Option<Bytes>,
    /// Whether the person has seen output since that checkpoint (or since the start).
    pub shown: Shown,
}

/// Output that a repeated attempt would repeat, the least grave first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Shown {
    #[default]
    Nothing,
    /// A tool has run here, and what came of it can be told again.
    Remembered,
    /// Words.
    Something,
    /// A tool of the host was called; the host knows what became of it.
    Called,
    /// A tool that changes something has run here.
    Executed,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The same request again.
    Repeat(Duration),
    /// On from the checkpoint.
    Resume(Duration, Bytes),
    /// The failure is final.
    GiveUp,
}

/// Retries that were spent, of each budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Spent {
    pub server: u32,
    pub transport: u32,
    pub idle: u32,
}

/// The budgets of one run.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    spent: Spent,
    barren: u32,
    checkpoint: Option<Bytes>,
}

impl Ledger {
    /// The books of a run that takes the place of another: what that one spent is spent.
    pub fn after(spent: Spent) -> Self {
        Self {
            spent,
            ..Self::default()
        }
    }

    /// What retries have cost so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Books a failed attempt and says how to go on. `jitter` is between 0 and 1.
    pub fn next(
        &mut self,
        policy: &RetryPolicy,
        failure: &Failure,
        progress: Progress,
        jitter: f64,
    ) -> Next {
        let resumed = self.checkpoint.is_some();
        let fresh = progress.checkpoint.is_some();
        if fresh {
            self.checkpoint = progress.checkpoint;
            self.barren = 0;
        } else if resumed && progress.shown != Shown::Nothing {
            self.barren += 1;
        }
        let (used, budget) = match failure.retry() {
            Retry::Never => return Next::GiveUp,
            Retry::Server => (&mut self.spent.server, policy.server),
            Retry::Transport => (&mut self.spent.transport, policy.transport),
            Retry::Idle => (&mut self.spent.idle, policy.idle),
        };
        if *used >= budget || self.barren >= policy.barren_resumes {
            return Next::GiveUp;
        }
        *used += 1;
        let delay = delay(policy, *used, jitter);
        match (&self.checkpoint, progress.shown) {
            // From before the tool, the server would ask for it a second time.
            (_, Shown::Called | Shown::Executed) => Next::GiveUp,
            (Some(checkpoint), _) => Next::Resume(delay, checkpoint.clone()),
            (None, Shown::Nothing | Shown::Remembered) => Next::Repeat(delay),
            // Sent again, the request would show the same words twice.
            (None, Shown::Something) => Next::GiveUp,
        }
    }
}

/// Twice as long each time, plus up to a fifth.
pub(super) fn delay(policy: &RetryPolicy, attempt: u32, jitter: f64) -> Duration {
    let doubled = policy
        .base_delay
        .saturating_mul(2_u32.saturating_pow(attempt))
        .min(policy.max_delay);
    doubled + doubled.mul_f64(jitter.clamp(0.0, 1.0) * 0.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Failure {
        Failure::Server("internal".into())
    }

    fn transport() -> Failure {
        Failure::Transport("reset".into())
    }

    fn with(checkpoint: Option<&'static [u8]>, shown: Shown) -> Progress {
        Progress {
            checkpoint: checkpoint.map(Bytes::from_static),
            shown,
        }
    }

    fn nothing() -> Progress {
        Progress::default()
    }

    #[test]
    fn three_server_retries_then_the_end() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        let delays: Vec<Next> = (0..4)
            .map(|_| ledger.next(&policy, &server(), nothing(), 0.0))
            .collect();
        let seconds = |s| Next::Repeat(Duration::from_secs(s));
        assert_eq!(delays, [seconds(2), seconds(4), seconds(8), Next::GiveUp]);
    }

    #[test]
    fn ten_transport_retries_capped_at_a_minute() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        let mut last = Next::GiveUp;
        for _ in 0..10 {
            last = ledger.next(&policy, &transport(), nothing(), 1.0);
        }
        assert_eq!(last, Next::Repeat(Duration::from_secs(72)));
        assert_eq!(
            ledger.next(&policy, &transport(), nothing(), 0.0),
            Next::GiveUp
        );
    }

    #[test]
    fn a_server_that_was_never_reached_is_given_up_soon() {
        let policy = RetryPolicy::default().having(Reached::Never);
        let mut ledger = Ledger::default();
        let mut next = || ledger.next(&policy, &transport(), nothing(), 0.0);
        let delays = [next(), next(), next(), next()];
        let seconds = |s| Next::Repeat(Duration::from_secs(s));
        assert_eq!(delays, [seconds(2), seconds(4), seconds(8), Next::GiveUp]);
        let policy = RetryPolicy::default().having(Reached::Once);
        assert_eq!(policy, RetryPolicy::default());
    }

    #[test]
    fn a_checkpoint_is_resumed_even_if_it_came_attempts_ago() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        let first = ledger.next(&policy, &transport(), with(Some(b"a"), Shown::Nothing), 0.0);
        assert_eq!(
            first,
            Next::Resume(Duration::from_secs(2), Bytes::from_static(b"a"))
        );
        let second = ledger.next(&policy, &transport(), nothing(), 0.0);
        assert_eq!(
            second,
            Next::Resume(Duration::from_secs(4), Bytes::from_static(b"a"))
        );
    }

    #[test]
    fn words_already_shown_are_never_asked_for_again() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        let next = ledger.next(&policy, &transport(), with(None, Shown::Something), 0.0);
        assert_eq!(next, Next::GiveUp);
    }

    #[test]
    fn what_was_executed_is_never_asked_for_again() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        let next = ledger.next(
            &policy,
            &transport(),
            with(Some(b"a"), Shown::Executed),
            0.0,
        );
        assert_eq!(next, Next::GiveUp);
    }

    #[test]
    fn resumes_that_lead_nowhere_stop() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        ledger.next(
            &policy,
            &transport(),
            with(Some(b"a"), Shown::Something),
            0.0,
        );
        let barren = || with(None, Shown::Something);
        assert!(matches!(
            ledger.next(&policy, &transport(), barren(), 0.0),
            Next::Resume(..)
        ));
        assert_eq!(
            ledger.next(&policy, &transport(), barren(), 0.0),
            Next::GiveUp
        );
    }

    #[test]
    fn s39_idle_streams_have_a_budget_of_their_own() {
        let idle = Failure::Idle("idle".into());
        let policy = RetryPolicy {
            idle: 2,
            ..RetryPolicy::default()
        };
        let mut ledger = Ledger::default();
        let mut next = || ledger.next(&policy, &idle, nothing(), 0.0);
        assert!(matches!(next(), Next::Repeat(_)));
        assert!(matches!(next(), Next::Repeat(_)));
        assert_eq!(next(), Next::GiveUp);
        assert_eq!(ledger.spent().idle, 2);
        let none = RetryPolicy { idle: 0, ..policy };
        let next = Ledger::default().next(&none, &idle, nothing(), 0.0);
        assert_eq!(next, Next::GiveUp);
    }

    #[test]
    fn s39_what_an_earlier_run_spent_is_spent() {
        let policy = RetryPolicy::default();
        let mut first = Ledger::default();
        for _ in 0..2 {
            first.next(&policy, &server(), nothing(), 0.0);
        }
        let mut second = Ledger::after(first.spent());
        let mut next = |failure: &Failure| second.next(&policy, failure, nothing(), 0.0);
        assert_eq!(next(&server()), Next::Repeat(Duration::from_secs(8)));
        assert_eq!(next(&server()), Next::GiveUp);
        assert!(matches!(next(&transport()), Next::Repeat(_)), "its own");
    }

    #[test]
    fn s40_after_words_only_a_checkpoint_is_gone_on_with() {
        let idle = Failure::Idle("idle".into());
        let policy = RetryPolicy::default();
        let shown = with(None, Shown::Something);
        let next = Ledger::default().next(&policy, &idle, shown, 0.0);
        assert_eq!(next, Next::GiveUp);
        let saved = with(Some(b"a"), Shown::Something);
        let next = Ledger::default().next(&policy, &idle, saved, 0.0);
        assert!(
            matches!(next, Next::Resume(..)),
            "from the first restart on"
        );
    }

    #[test]
    fn final_failures_are_final() {
        let (policy, mut ledger) = (RetryPolicy::default(), Ledger::default());
        let login = Failure::Login("who?".into());
        let next = ledger.next(&policy, &login, with(Some(b"a"), Shown::Nothing), 0.0);
        assert_eq!(next, Next::GiveUp);
    }
}
