//! Decides whether to retry, and from where. Pure: no clock, no network.

use std::time::Duration;

use bytes::Bytes;

use super::watchdog::IdleLimits;
use cursor_client::failure::{Failure, Retry};

/// How often a run may be retried; the official client's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries after errors the server reported.
    pub server: u32,
    /// Retries after lost connections.
    pub transport: u32,
    /// Like `transport`, while the server has not accepted any stream of the run: it may be
    /// unreachable, and the user should learn that soon.
    pub unreached: u32,
    /// How long lost connections are retried without progress.
    pub transport_time: Duration,
    /// Retries after idle streams.
    pub idle: u32,
    /// Whether the run restarts a stream that goes idle after it was sent tool results. Otherwise
    /// it ends, and its owner, which has the results, starts another one.
    pub restarts_after_results: bool,
    /// Consecutive resumed attempts that may produce output without a new checkpoint.
    pub barren_resumes: u32,
    /// Half of the first delay.
    pub base_delay: Duration,
    /// Upper limit of a delay, before jitter.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            server: 3,
            transport: 10,
            unreached: 3,
            transport_time: Duration::from_secs(120),
            idle: super::watchdog::RETRIES,
            restarts_after_results: true,
            barren_resumes: 2,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Returns the policy for a run of which the server has accepted no stream.
    pub fn unreached(self) -> Self {
        Self {
            transport: self.transport.min(self.unreached),
            ..self
        }
    }
}

/// Intervals and timeouts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two client heartbeats.
    pub heartbeat: Duration,
    /// Between two heartbeats of an open exec request.
    pub exec_heartbeat: Duration,
    /// Silence after which a stream counts as lost, if the watchdog is on.
    pub stall: Duration,
    /// How long a stream may stay open without progress.
    pub patience: IdleLimits,
    /// How long after the turn's end the stream may stay open.
    pub after_turn: Duration,
    /// How long a cancelled run waits for its last checkpoint.
    pub cancel_timeout: Duration,
    /// How long the server may continue to work after a cancellation. If it works longer, the wait
    /// for its last checkpoint is shortened to `final_checkpoint_grace`.
    pub cancel_ack_timeout: Duration,
    /// How long a cancelled run waits after a checkpoint for a later one, or for the end.
    pub final_checkpoint_grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            exec_heartbeat: Duration::from_secs(3),
            stall: Duration::from_secs(30),
            patience: IdleLimits::default(),
            after_turn: Duration::from_secs(5),
            cancel_timeout: Duration::from_secs(6),
            cancel_ack_timeout: Duration::from_secs(1),
            final_checkpoint_grace: Duration::from_millis(500),
        }
    }
}

/// What an attempt achieved before it failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// The newest checkpoint that the attempt received.
    pub checkpoint: Option<Bytes>,
    /// What the user has seen since that checkpoint, or since the start.
    pub shown: VisibleProgress,
}

/// Output or effects that a repeated attempt would repeat, the least serious first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum VisibleProgress {
    #[default]
    Nothing,
    /// A tool was executed here, and its result can be replayed.
    Remembered,
    /// Text was shown.
    Something,
    /// A host tool was called; the host knows its result.
    Called,
    /// A tool that changes something was executed here, and its result cannot be replayed.
    Executed,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum RetryDecision {
    /// Send the same request again.
    Repeat(Duration),
    /// Resume from the checkpoint.
    Resume(Duration, Bytes),
    /// The failure is final.
    GiveUp,
}

/// Retries used, by budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RetriesUsed {
    pub server: u32,
    pub transport: u32,
    pub idle: u32,
}

/// The retry budgets of one run.
#[derive(Debug, Clone, Default)]
pub struct RetryBudget {
    spent: RetriesUsed,
    barren: u32,
    checkpoint: Option<Bytes>,
    /// How long attempts have failed without progress.
    without_progress: Duration,
    /// Whether a retry was refused because it would come too late.
    out_of_time: bool,
}

impl RetryBudget {
    /// Returns the budget of a run that replaces another one, which has used these retries.
    pub fn after(spent: RetriesUsed) -> Self {
        Self {
            spent,
            ..Self::default()
        }
    }

    /// Returns the retries used so far.
    pub fn spent(&self) -> RetriesUsed {
        self.spent
    }

    /// Returns how many more failures of this kind the policy allows to retry.
    pub fn left(&self, policy: &RetryPolicy, failure: &Failure) -> u32 {
        let (used, budget) = match failure.retry() {
            Retry::Never => return 0,
            Retry::Server => (self.spent.server, policy.server),
            Retry::Transport => (self.spent.transport, policy.transport),
            Retry::Idle => (self.spent.idle, policy.idle),
        };
        budget.saturating_sub(used)
    }

    /// Records how long attempts have failed without a new checkpoint, text or effect.
    pub fn set_without_progress(&mut self, time: Duration) {
        self.without_progress = time;
    }

    /// Returns whether the last retry was refused because lost connections have been retried for
    /// as long as the policy allows.
    pub fn is_out_of_time(&self) -> bool {
        self.out_of_time
    }

    /// Records a failed attempt and returns what to do next. `jitter` is between 0 and 1.
    pub fn next(
        &mut self,
        policy: &RetryPolicy,
        failure: &Failure,
        progress: Progress,
        jitter: f64,
    ) -> RetryDecision {
        let resumed = self.checkpoint.is_some();
        let fresh = progress.checkpoint.is_some();
        if fresh {
            self.checkpoint = progress.checkpoint;
            self.barren = 0;
        } else if resumed && progress.shown != VisibleProgress::Nothing {
            self.barren += 1;
        }
        let (used, budget) = match failure.retry() {
            Retry::Never => return RetryDecision::GiveUp,
            Retry::Server => (&mut self.spent.server, policy.server),
            Retry::Transport => (&mut self.spent.transport, policy.transport),
            Retry::Idle => (&mut self.spent.idle, policy.idle),
        };
        if *used >= budget || self.barren >= policy.barren_resumes {
            return RetryDecision::GiveUp;
        }
        *used += 1;
        let delay = delay(policy, *used, jitter);
        if failure.retry() == Retry::Transport
            && self.without_progress + delay > policy.transport_time
        {
            self.out_of_time = true;
            return RetryDecision::GiveUp;
        }
        match (&self.checkpoint, progress.shown) {
            // A checkpoint from before the tool call would make the server request it a second
            // time.
            (_, VisibleProgress::Called | VisibleProgress::Executed) => RetryDecision::GiveUp,
            (Some(checkpoint), _) => RetryDecision::Resume(delay, checkpoint.clone()),
            (None, VisibleProgress::Nothing | VisibleProgress::Remembered) => {
                RetryDecision::Repeat(delay)
            }
            // Sent again, the request would show the same text twice.
            (None, VisibleProgress::Something) => RetryDecision::GiveUp,
        }
    }
}

/// Returns an exponential delay: twice as long for each attempt, plus up to a fifth.
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

    fn with(checkpoint: Option<&'static [u8]>, shown: VisibleProgress) -> Progress {
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
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let delays: Vec<RetryDecision> = (0..4)
            .map(|_| retry_budget.next(&policy, &server(), nothing(), 0.0))
            .collect();
        let seconds = |s| RetryDecision::Repeat(Duration::from_secs(s));
        assert_eq!(
            delays,
            [seconds(2), seconds(4), seconds(8), RetryDecision::GiveUp]
        );
    }

    #[test]
    fn ten_transport_retries_capped_at_a_minute() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let mut last = RetryDecision::GiveUp;
        for _ in 0..10 {
            last = retry_budget.next(&policy, &transport(), nothing(), 1.0);
        }
        assert_eq!(last, RetryDecision::Repeat(Duration::from_secs(72)));
        assert_eq!(
            retry_budget.next(&policy, &transport(), nothing(), 0.0),
            RetryDecision::GiveUp
        );
    }

    #[test]
    fn lost_connections_are_retried_for_two_minutes_without_progress() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let mut clock = Duration::ZERO;
        while let RetryDecision::Repeat(delay) =
            retry_budget.next(&policy, &transport(), nothing(), 1.0)
        {
            clock += delay;
            retry_budget.set_without_progress(clock);
        }
        assert!(retry_budget.is_out_of_time());
        assert!(clock <= Duration::from_secs(120), "{clock:?}");
        assert!(clock > Duration::from_secs(60), "{clock:?}");
    }

    #[test]
    fn a_server_that_was_never_reached_is_retried_less_often() {
        let policy = RetryPolicy::default().unreached();
        let mut retry_budget = RetryBudget::default();
        let mut next = || retry_budget.next(&policy, &transport(), nothing(), 0.0);
        let delays = [next(), next(), next(), next()];
        let seconds = |s| RetryDecision::Repeat(Duration::from_secs(s));
        assert_eq!(
            delays,
            [seconds(2), seconds(4), seconds(8), RetryDecision::GiveUp]
        );
    }

    #[test]
    fn a_checkpoint_of_an_earlier_attempt_is_resumed() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let first = retry_budget.next(
            &policy,
            &transport(),
            with(Some(b"a"), VisibleProgress::Nothing),
            0.0,
        );
        assert_eq!(
            first,
            RetryDecision::Resume(Duration::from_secs(2), Bytes::from_static(b"a"))
        );
        let second = retry_budget.next(&policy, &transport(), nothing(), 0.0);
        assert_eq!(
            second,
            RetryDecision::Resume(Duration::from_secs(4), Bytes::from_static(b"a"))
        );
    }

    #[test]
    fn a_request_is_not_repeated_after_text_was_shown() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let next = retry_budget.next(
            &policy,
            &transport(),
            with(None, VisibleProgress::Something),
            0.0,
        );
        assert_eq!(next, RetryDecision::GiveUp);
    }

    #[test]
    fn a_run_is_not_retried_after_an_unreplayable_effect() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let next = retry_budget.next(
            &policy,
            &transport(),
            with(Some(b"a"), VisibleProgress::Executed),
            0.0,
        );
        assert_eq!(next, RetryDecision::GiveUp);
    }

    #[test]
    fn resumes_without_a_new_checkpoint_are_limited() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        retry_budget.next(
            &policy,
            &transport(),
            with(Some(b"a"), VisibleProgress::Something),
            0.0,
        );
        let barren = || with(None, VisibleProgress::Something);
        assert!(matches!(
            retry_budget.next(&policy, &transport(), barren(), 0.0),
            RetryDecision::Resume(..)
        ));
        assert_eq!(
            retry_budget.next(&policy, &transport(), barren(), 0.0),
            RetryDecision::GiveUp
        );
    }

    #[test]
    fn idle_streams_have_their_own_budget() {
        let idle = Failure::Idle("idle".into());
        let policy = RetryPolicy {
            idle: 2,
            ..RetryPolicy::default()
        };
        let mut retry_budget = RetryBudget::default();
        let mut next = || retry_budget.next(&policy, &idle, nothing(), 0.0);
        assert!(matches!(next(), RetryDecision::Repeat(_)));
        assert!(matches!(next(), RetryDecision::Repeat(_)));
        assert_eq!(next(), RetryDecision::GiveUp);
        assert_eq!(retry_budget.spent().idle, 2);
        let none = RetryPolicy { idle: 0, ..policy };
        let next = RetryBudget::default().next(&none, &idle, nothing(), 0.0);
        assert_eq!(next, RetryDecision::GiveUp);
    }

    #[test]
    fn retries_of_an_earlier_run_count() {
        let policy = RetryPolicy::default();
        let mut first = RetryBudget::default();
        for _ in 0..2 {
            first.next(&policy, &server(), nothing(), 0.0);
        }
        let mut second = RetryBudget::after(first.spent());
        let mut next = |failure: &Failure| second.next(&policy, failure, nothing(), 0.0);
        assert_eq!(
            next(&server()),
            RetryDecision::Repeat(Duration::from_secs(8))
        );
        assert_eq!(next(&server()), RetryDecision::GiveUp);
        assert!(
            matches!(next(&transport()), RetryDecision::Repeat(_)),
            "its own"
        );
    }

    #[test]
    fn after_shown_text_only_a_checkpoint_is_resumed() {
        let idle = Failure::Idle("idle".into());
        let policy = RetryPolicy::default();
        let shown = with(None, VisibleProgress::Something);
        let next = RetryBudget::default().next(&policy, &idle, shown, 0.0);
        assert_eq!(next, RetryDecision::GiveUp);
        let saved = with(Some(b"a"), VisibleProgress::Something);
        let next = RetryBudget::default().next(&policy, &idle, saved, 0.0);
        assert!(
            matches!(next, RetryDecision::Resume(..)),
            "from the first restart on"
        );
    }

    #[test]
    fn failures_without_retry_end_the_run() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let login = Failure::Login("who?".into());
        let next = retry_budget.next(
            &policy,
            &login,
            with(Some(b"a"), VisibleProgress::Nothing),
            0.0,
        );
        assert_eq!(next, RetryDecision::GiveUp);
    }
}
