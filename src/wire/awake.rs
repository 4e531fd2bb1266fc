//! Waits that a stop of this process does not use up.
//!
//! A process that is stopped (Ctrl-Z, a closed lid, a machine out of breath) finds its timers
//! due when it goes on, and what came meanwhile unread. Whoever is judged by a timer is listened
//! to once more: as long as the timer came late.

use std::time::Duration;

use tokio::time::Instant;

/// How long what has arrived may take to be read.
pub const LOOK: Duration = Duration::from_millis(100);
/// After a long stop, a peer that is there shows it within this time.
const MOST: Duration = Duration::from_secs(5);

/// Timers of a machine that is out of breath may all come late.
const ROUNDS: usize = 5;

/// How long to go on listening at a timer that was due then.
pub fn extra(due: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(due).clamp(LOOK, MOST)
}

/// Whether a timer that was due then came late: nobody listened meanwhile.
pub fn is_late(due: Instant, now: Instant) -> bool {
    now.saturating_duration_since(due) > LOOK
}

/// Waits so long, and on if that time was not spent awake.
pub async fn sleep(limit: Duration) {
    let mut until = Instant::now() + limit;
    tokio::time::sleep_until(until).await;
    for _ in 0..ROUNDS {
        let now = Instant::now();
        until = now + extra(until, now);
        tokio::time::sleep_until(until).await;
        if !is_late(until, Instant::now()) {
            return;
        }
    }
}

/// What comes of it within so long a time.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = sleep(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a wait of ten seconds takes that is stopped after one, for so many seconds.
    async fn waited(stop: u64) -> Duration {
        let started = Instant::now();
        let waiting = tokio::spawn(sleep(Duration::from_secs(10)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::time::advance(Duration::from_secs(stop)).await;
        waiting.await.unwrap();
        started
            .elapsed()
            .saturating_sub(Duration::from_secs(stop + 1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_though_every_timer_comes_late() {
        let waiting = tokio::spawn(sleep(Duration::from_secs(1)));
        for _ in 0..=ROUNDS {
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        tokio::task::yield_now().await;
        assert!(waiting.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_was_slept_through_goes_on() {
        for (stop, least) in [(0, 9_000), (5, 4_000), (12, 3_000), (3600, 5_000)] {
            let waited = waited(stop).await.as_millis();
            let wanted = least..least + 250;
            assert!(wanted.contains(&waited), "{waited} ms after {stop} s");
        }
    }
}
