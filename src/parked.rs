//! Turns whose runs are parked, the longest waiting first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foundation::{metrics, prefix};

/// Counter of runs that are released because too many are parked.
const EVICTED: &str = "cursor_provider.parked_run_evicted";

/// Turns and their sessions.
#[derive(Default)]
pub(super) struct Parked(Mutex<VecDeque<Waiting>>);

struct Waiting {
    turn: String,
    session: String,
}

impl Parked {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a turn. If there are more than `most`, returns the session of the one that waited
    /// longest: the caller must release its run.
    #[must_use]
    pub(super) fn add(&self, turn: String, session: String, most: usize) -> Option<String> {
        let mut parked = self.lock();
        parked.push_back(Waiting { turn, session });
        if parked.len() <= most {
            return None;
        }
        let longest = parked.pop_front()?;
        metrics::counters().count(EVICTED, &[]);
        tracing::info!(
            turn = longest.turn,
            session = prefix(&longest.session),
            most,
            "bridge.evicted"
        );
        Some(longest.session)
    }

    /// Removes a turn and returns its session.
    pub(super) fn take(&self, turn: &str) -> Option<String> {
        let mut parked = self.lock();
        let at = parked.iter().position(|waiting| waiting.turn == turn)?;
        parked.remove(at).map(|waiting| waiting.session)
    }

    /// Removes all turns of a session.
    pub(super) fn forget(&self, session: &str) {
        self.lock().retain(|waiting| waiting.session != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waiting_run_is_evicted_first() {
        let parked = Parked::default();
        let add = |n: &str| parked.add(format!("t{n}"), format!("s{n}"), 2);
        assert_eq!((add("1"), add("2")), (None, None));
        assert_eq!(add("3"), Some("s1".into()));
        parked.forget("s2");
        assert_eq!(add("4"), None, "there was room");
        assert_eq!(parked.take("t3"), Some("s3".into()));
        assert_eq!(parked.take("t3"), None);
        assert_eq!((add("5"), add("6")), (None, Some("s4".into())));
    }
}
