//! The state the backend keeps of a conversation between its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::variables::Variables;

/// A blob that was stored under a name.
#[derive(Debug, Clone)]
pub(super) struct NamedBlob {
    pub(super) id: Bytes,
    /// The content.
    pub(super) data: Bytes,
}

/// The state of one conversation.
#[derive(Debug, Default)]
pub(super) struct SimConversation {
    /// Number of runs by scenario.
    pub(super) attempts: HashMap<String, usize>,
    /// The scenario of the last run.
    pub(super) scenario: Option<String>,
    /// Variables of its scenarios.
    pub(super) variables: Variables,
    /// Blobs by name.
    pub(super) blobs: HashMap<String, NamedBlob>,
    /// The last checkpoint that was sent.
    pub(super) checkpoint: Option<Bytes>,
}

/// A conversation that several runs may use.
pub(super) type SharedConversation = Arc<Mutex<SimConversation>>;

/// All conversations by id.
#[derive(Debug, Default)]
pub(super) struct Conversations(Mutex<HashMap<String, SharedConversation>>);

impl Conversations {
    /// Returns the conversation with this id; creates it if there is none.
    pub(super) fn get(&self, id: &str) -> SharedConversation {
        let mut all = lock(&self.0);
        Arc::clone(all.entry(id.to_owned()).or_default())
    }
}

/// Locks a mutex, poisoned or not. The guard must not be held across an await.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
