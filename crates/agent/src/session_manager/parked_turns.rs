//! Turns whose runs are parked, the longest waiting first.

use std::collections::VecDeque;

use foundation::{metrics, prefix};

/// Counter of runs that are released because too many are parked.
const EVICTED: &str = "cursor_provider.parked_run_evicted";

/// Parked turns and their sessions.
#[derive(Default)]
pub(super) struct ParkedTurns(VecDeque<ParkedTurn>);

struct ParkedTurn {
    turn_id: String,
    session_id: String,
}

impl ParkedTurns {
    /// Adds a turn. If there are more than `max`, returns the session of the one that waited
    /// longest: the caller must release its run.
    #[must_use]
    pub(super) fn add(&mut self, turn_id: &str, session_id: &str, max: usize) -> Option<String> {
        self.0.push_back(ParkedTurn {
            turn_id: turn_id.to_owned(),
            session_id: session_id.to_owned(),
        });
        if self.0.len() <= max {
            return None;
        }
        let longest = self.0.pop_front()?;
        metrics::counters().count(EVICTED, &[]);
        tracing::info!(
            turn = longest.turn_id,
            session = prefix(&longest.session_id),
            most = max,
            "bridge.evicted"
        );
        Some(longest.session_id)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Removes a turn and returns its session.
    pub(super) fn remove(&mut self, turn_id: &str) -> Option<String> {
        let at = self.0.iter().position(|turn| turn.turn_id == turn_id)?;
        self.0.remove(at).map(|turn| turn.session_id)
    }

    /// Removes all turns of a session.
    pub(super) fn remove_session(&mut self, session_id: &str) {
        self.0.retain(|turn| turn.session_id != session_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waiting_run_is_evicted_first() {
        let mut parked = ParkedTurns::default();
        let add =
            |parked: &mut ParkedTurns, n: &str| parked.add(&format!("t{n}"), &format!("s{n}"), 2);
        assert_eq!((add(&mut parked, "1"), add(&mut parked, "2")), (None, None));
        assert_eq!(add(&mut parked, "3"), Some("s1".into()));
        parked.remove_session("s2");
        assert_eq!(add(&mut parked, "4"), None, "there was room");
        assert_eq!(parked.remove("t3"), Some("s3".into()));
        assert_eq!(parked.remove("t3"), None);
        assert_eq!(add(&mut parked, "5"), None);
        assert_eq!(add(&mut parked, "6"), Some("s4".into()));
    }
}
