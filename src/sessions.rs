//! The open sessions of a sidecar. Because it runs for weeks, the least recently used ones are
//! closed when there are too many; what is stored on disk stays.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::turn::{Gone, Session};

/// How many sessions may be open in addition to those with parked runs.
const MOST_BESIDE: usize = 512;

/// Sessions by name.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_name: HashMap<String, (Session, u64)>,
    /// Closed sessions whose tasks may still be running.
    leaving: HashMap<String, Gone>,
    /// Counts every use, to order sessions by it.
    uses: u64,
}

impl Known {
    fn used(&mut self, name: &str) -> Option<Session> {
        self.uses += 1;
        let (session, last) = self.by_name.get_mut(name)?;
        *last = self.uses;
        Some(session.clone())
    }

    fn close_one(&mut self, name: &str) {
        self.leaving.retain(|_, gone| !gone.is_past());
        if let Some((session, _)) = self.by_name.remove(name) {
            self.leaving.insert(name.to_owned(), session.gone());
        }
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open session and marks it as used.
    pub(super) fn find(&self, name: &str) -> Option<Session> {
        self.lock().used(name)
    }

    /// Returns whether a session is open, without marking it as used.
    pub(super) fn has(&self, name: &str) -> bool {
        self.lock().by_name.contains_key(name)
    }

    /// Returns the session of that name. Creates it if needed, after the previous one of that name
    /// if its task is still running. `waiting` is how many runs may be parked.
    pub(super) fn enter(
        &self,
        name: &str,
        waiting: usize,
        make: impl FnOnce(Option<Gone>) -> Session,
    ) -> Session {
        let mut known = self.lock();
        if let Some(session) = known.used(name) {
            return session;
        }
        let session = make(known.leaving.remove(name));
        let uses = known.uses;
        known
            .by_name
            .insert(name.to_owned(), (session.clone(), uses));
        if known.by_name.len() > MOST_BESIDE + waiting {
            let oldest = known.by_name.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                known.close_one(&name);
            }
        }
        session
    }

    /// Closes all sessions and returns handles to the ends of their tasks.
    pub(super) fn close(&self) -> Vec<Gone> {
        let mut known = self.lock();
        let names: Vec<String> = known.by_name.keys().cloned().collect();
        for name in names {
            known.close_one(&name);
        }
        std::mem::take(&mut known.leaving).into_values().collect()
    }

    /// Closes a session. Its task drains its run and ends.
    pub(super) fn remove(&self, name: &str) {
        self.lock().close_one(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_tools::shell::reaper::ChildReaper;

    #[tokio::test]
    async fn s47_the_least_recently_used_session_is_closed() {
        let sessions = Sessions::default();
        let most = MOST_BESIDE + 3;
        for n in 0..most {
            sessions.enter(&n.to_string(), 3, |_| {
                Session::start(None, ChildReaper::default())
            });
        }
        assert!(sessions.find("0").is_some(), "used again");
        sessions.enter("one more", 3, |_| {
            Session::start(None, ChildReaper::default())
        });
        assert_eq!(sessions.lock().by_name.len(), most);
        let there = |name: &str| sessions.lock().by_name.contains_key(name);
        assert!(there("0") && !there("1") && there("2") && there("one more"));
    }
}
