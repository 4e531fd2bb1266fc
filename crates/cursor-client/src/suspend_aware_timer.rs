//! Timeouts that are extended if this process was stopped meanwhile.
//!
//! When a stopped process (Ctrl-Z, a closed lid, an overloaded machine) continues, its timers
//! have expired and received data is still unread. Therefore a timer that fires late is extended
//! by as long as it was late, so that the data is read before the peer is considered silent.

use std::time::Duration;

use tokio::time::Instant;

/// How long reading data that has already arrived may take.
pub const LOOK: Duration = Duration::from_millis(100);
/// Maximum extension; within this time after a long stop, a live peer sends something.
const MOST: Duration = Duration::from_secs(5);

/// Maximum number of extensions, because on an overloaded machine every timer may be late.
const ROUNDS: usize = 5;

/// Returns how long to keep waiting after a timer that was due at `due`.
pub fn extra(due: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(due).clamp(LOOK, MOST)
}

/// Returns whether a timer that was due at `due` fired late, so that nothing was read meanwhile.
pub fn is_late(due: Instant, now: Instant) -> bool {
    now.saturating_duration_since(due) > LOOK
}

/// Waits for `limit`, and longer if the process was stopped meanwhile.
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

/// Returns the result of `work`, or `None` if it takes longer than `limit`.
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

    /// Returns how long a sleep of ten seconds continues after a stop of `stop` seconds that began
    /// one second into it.
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
    async fn a_sleep_ends_even_if_every_timer_is_late() {
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
    async fn a_sleep_during_a_stop_is_extended() {
        for (stop, least) in [(0, 9_000), (5, 4_000), (12, 3_000), (3600, 5_000)] {
            let waited = waited(stop).await.as_millis();
            let wanted = least..least + 250;
            assert!(wanted.contains(&waited), "{waited} ms after {stop} s");
        }
    }
}
