//! The open sessions of a sidecar. Because it runs for weeks, the least recently used ones are
//! closed when there are too many; what is stored on disk stays.

use std::collections::HashMap;

use crate::turn::{Record, Recorded, Session, SessionEnd};

/// How many sessions may be open in addition to those with parked runs.
const MAX_WITHOUT_RUN: usize = 512;

/// Open sessions by id.
#[derive(Default)]
pub(super) struct OpenSessions {
    by_id: HashMap<String, (Session, u64)>,
    /// Closed sessions whose tasks may still be running.
    ending: HashMap<String, SessionEnd>,
    /// Recorded results of the cards of closed sessions.
    closed_cards: Recorded,
    /// Counts every use, to order sessions by it.
    uses: u64,
}

impl OpenSessions {
    /// Returns an open session and marks it as used.
    pub(super) fn find(&mut self, id: &str) -> Option<Session> {
        self.uses += 1;
        let (session, last) = self.by_id.get_mut(id)?;
        *last = self.uses;
        Some(session.clone())
    }

    /// Returns the recorded result of a card, also if its session was closed.
    pub(super) fn recorded_card(&mut self, id: &str, call: &str) -> Option<Record> {
        let record = self.find(id).and_then(|session| session.recorded(call));
        record.or_else(|| self.closed_cards.get(call))
    }

    /// Returns whether a session is open, without marking it as used.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Returns the session. Starts it if needed, after the previous one of that id if its task is
    /// still running.
    pub(super) fn open(
        &mut self,
        id: &str,
        max_parked: usize,
        start: impl FnOnce(Option<SessionEnd>) -> Session,
    ) -> Session {
        if let Some(session) = self.find(id) {
            return session;
        }
        let session = start(self.ending.remove(id));
        self.by_id
            .insert(id.to_owned(), (session.clone(), self.uses));
        if self.by_id.len() > MAX_WITHOUT_RUN + max_parked {
            let oldest = self.by_id.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.close(&id);
            }
        }
        session
    }

    /// Closes a session. Its task drains its run and ends.
    pub(super) fn close(&mut self, id: &str) {
        self.ending.retain(|_, end| !end.is_past());
        if let Some((session, _)) = self.by_id.remove(id) {
            self.closed_cards.copy_from(session.recorded_cards());
            self.ending.insert(id.to_owned(), session.end());
        }
    }

    /// Closes all sessions and returns the ends of their tasks.
    pub(super) fn close_all(&mut self) -> Vec<SessionEnd> {
        let ids: Vec<String> = self.by_id.keys().cloned().collect();
        for id in ids {
            self.close(&id);
        }
        std::mem::take(&mut self.ending).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_tools::shell::reaper::ChildReaper;

    #[tokio::test]
    async fn the_least_recently_used_session_is_closed() {
        let mut sessions = OpenSessions::default();
        let start = |_| Session::start(None, ChildReaper::default());
        let max = MAX_WITHOUT_RUN + 3;
        for n in 0..max {
            sessions.open(&n.to_string(), 3, start);
        }
        assert!(sessions.find("0").is_some(), "used again");
        sessions.open("one more", 3, start);
        assert_eq!(sessions.by_id.len(), max);
        let is_open = |id: &str| sessions.contains(id);
        assert!(is_open("0") && !is_open("1") && is_open("2") && is_open("one more"));
    }
}
