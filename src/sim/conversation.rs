//! What the backend remembers of a conversation between its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::variables::Variables;

/// A blob that was stored under a name.
#[derive(Debug, Clone)]
pub(super) struct NamedBlob {
    /// Its id.
    pub(super) id: Bytes,
    /// Its content.
    pub(super) data: Bytes,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// How many runs each scenario has had.
    pub(super) attempts: HashMap<String, usize>,
    /// The scenario of the last run.
    pub(super) scenario: Option<String>,
    /// Values by name.
    pub(super) variables: Variables,
    /// Blobs by name.
    pub(super) blobs: HashMap<String, NamedBlob>,
    /// The last checkpoint that was sent.
    pub(super) checkpoint: Option<Bytes>,
}

/// A conversation that several runs may hold.
pub(super) type Shared = Arc<Mutex<Conversation>>;

/// All conversations by id.
#[derive(Debug, Default)]
pub(super) struct Conversations(Mutex<HashMap<String, Shared>>);

impl Conversations {
    /// The conversation of this id; a new one if there is none.
    pub(super) fn get(&self, id: &str) -> Shared {
        let mut all = lock(&self.0);
        Arc::clone(all.entry(id.to_owned()).or_default())
    }
}

/// Looks into a conversation; never hold this across a wait.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
