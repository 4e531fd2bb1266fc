//! The sessions a sidecar has in hand. A sidecar lives for weeks: the longest unused go when
//! there are too many. What is kept of them on disk stays.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::turn::{Gone, Session};

/// Sessions in hand at most, beside those whose runs may wait for the host.
const MOST_BESIDE: usize = 512;

/// Sessions by name.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_name: HashMap<String, (Session, u64)>,
    /// Those that were let go and may still be at work.
    leaving: HashMap<String, Gone>,
    /// Counts every use.
    uses: u64,
}

impl Known {
    fn used(&mut self, name: &str) -> Option<Session> {
        self.uses += 1;
        let (session, last) = self.by_name.get_mut(name)?;
        *last = self.uses;
        Some(session.clone())
    }

    fn let_go(&mut self, name: &str) {
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

    /// A session there is.
    pub(super) fn find(&self, name: &str) -> Option<Session> {
        self.lock().used(name)
    }

    /// Whether there is one of that name. This is no use of it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.lock().by_name.contains_key(name)
    }

    /// The session of that name, made if there is none: after the last one of that name, if
    /// that is still at work. So many runs may wait for the host.
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
                known.let_go(&name);
            }
        }
        session
    }

    /// Lets go of all of them; gives the ends of those that were at work.
    pub(super) fn close(&self) -> Vec<Gone> {
        let mut known = self.lock();
        let names: Vec<String> = known.by_name.keys().cloned().collect();
        for name in names {
            known.let_go(&name);
        }
        std::mem::take(&mut known.leaving).into_values().collect()
    }

    /// Lets go of a session. Its task sees its run off and goes.
    pub(super) fn remove(&self, name: &str) {
        self.lock().let_go(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::leash::Leash;

    #[tokio::test]
    async fn s47_the_longest_unused_sessions_go() {
        let sessions = Sessions::default();
        let most = MOST_BESIDE + 3;
        for n in 0..most {
            sessions.enter(&n.to_string(), 3, |_| {
                Session::start(None, Leash::default())
            });
        }
        assert!(sessions.find("0").is_some(), "used again");
        sessions.enter("one more", 3, |_| Session::start(None, Leash::default()));
        assert_eq!(sessions.lock().by_name.len(), most);
        let there = |name: &str| sessions.lock().by_name.contains_key(name);
        assert!(there("0") && !there("1") && there("2") && there("one more"));
    }
}
