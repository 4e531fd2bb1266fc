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

    fn idle() -> Failure {
        Failure::Idle("idle".into())
    }

    fn with(checkpoint: Option<&'static [u8]>, shown: VisibleProgress) -> Progress {
        Progress {
            checkpoint: checkpoint.map(Bytes::from_static),
            shown,
        }
    }

    /// Returns what follows each failure: the delay in seconds, from the start or from a checkpoint,
    /// or the end.
    fn decisions(
        budget: &mut RetryBudget,
        policy: &RetryPolicy,
        failures: impl IntoIterator<Item = (Failure, Progress)>,
    ) -> String {
        let decisions = failures.into_iter().map(|(failure, progress)| {
            match budget.next(policy, &failure, progress, 0.0) {
                RetryDecision::Repeat(delay) => delay.as_secs().to_string(),
                RetryDecision::Resume(delay, checkpoint) => {
                    format!(
                        "{}:{}",
                        String::from_utf8_lossy(&checkpoint),
                        delay.as_secs()
                    )
                }
                RetryDecision::GiveUp => "end".into(),
            }
        });
        decisions.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_kind_of_failure_has_its_retries() {
        let nothing = |failure: Failure, times| vec![(failure, Progress::default()); times];
        let policy = RetryPolicy::default();
        let with_idle = |idle| RetryPolicy { idle, ..policy };
        for (policy, failures, expected) in [
            (policy, nothing(server(), 4), "2 4 8 end"),
            (policy.unreached(), nothing(transport(), 4), "2 4 8 end"),
            (with_idle(2), nothing(idle(), 3), "2 4 end"),
            (with_idle(0), nothing(idle(), 1), "end"),
            (policy, nothing(Failure::Login("who?".into()), 1), "end"),
        ] {
            let mut budget = RetryBudget::default();
            let first = failures[0].0.clone();
            assert_eq!(
                decisions(&mut budget, &policy, failures),
                expected,
                "{first}"
            );
        }
        let mut budget = RetryBudget::default();
        decisions(&mut budget, &with_idle(2), nothing(idle(), 2));
        assert_eq!(budget.spent().idle, 2);
    }

    #[test]
    fn what_was_shown_decides_from_where() {
        use VisibleProgress::{Executed, Nothing, Something};
        let a: Option<&[u8]> = Some(b"a");
        for (failures, expected) in [
            // A checkpoint of an earlier attempt is resumed.
            (
                vec![
                    (transport(), with(a, Nothing)),
                    (transport(), with(None, Nothing)),
                ],
                "a:2 a:4",
            ),
            // After shown text, only a checkpoint is resumed.
            (vec![(transport(), with(None, Something))], "end"),
            (vec![(idle(), with(None, Something))], "end"),
            (vec![(idle(), with(a, Something))], "a:2"),
            // An effect that cannot be replayed.
            (vec![(transport(), with(a, Executed))], "end"),
            // A failure without retries.
            (
                vec![(Failure::Login("who?".into()), with(a, Nothing))],
                "end",
            ),
            // Resumes without a new checkpoint are limited.
            (
                vec![
                    (transport(), with(a, Something)),
                    (transport(), with(None, Something)),
                    (transport(), with(None, Something)),
                ],
                "a:2 a:4 end",
            ),
        ] {
            let (policy, mut budget) = (RetryPolicy::default(), RetryBudget::default());
            let case = format!("{failures:?}");
            assert_eq!(
                decisions(&mut budget, &policy, failures),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn ten_transport_retries_capped_at_a_minute() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let mut next =
            |jitter| retry_budget.next(&policy, &transport(), Progress::default(), jitter);
        let last = (0..10).map(|_| next(1.0)).last();
        assert_eq!(last, Some(RetryDecision::Repeat(Duration::from_secs(72))));
        assert_eq!(next(0.0), RetryDecision::GiveUp);
    }

    #[test]
    fn lost_connections_are_retried_for_two_minutes_without_progress() {
        let (policy, mut retry_budget) = (RetryPolicy::default(), RetryBudget::default());
        let mut clock = Duration::ZERO;
        while let RetryDecision::Repeat(delay) =
            retry_budget.next(&policy, &transport(), Progress::default(), 1.0)
        {
            clock += delay;
            retry_budget.set_without_progress(clock);
        }
        assert!(retry_budget.is_out_of_time());
        assert!(clock <= Duration::from_secs(120), "{clock:?}");
        assert!(clock > Duration::from_secs(60), "{clock:?}");
    }

    #[test]
    fn retries_of_an_earlier_run_count() {
        let policy = RetryPolicy::default();
        let nothing = |failure| (failure, Progress::default());
        let mut first = RetryBudget::default();
        decisions(&mut first, &policy, [nothing(server()), nothing(server())]);
        let mut second = RetryBudget::after(first.spent());
        let failures = [nothing(server()), nothing(server()), nothing(transport())];
        let decisions = decisions(&mut second, &policy, failures);
        assert_eq!(decisions, "8 end 2", "lost connections have their own");
    }
}
