//! What Cursor knows of a session, in hand during a turn and on disk between turns.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::recover::BridgeKey;
use crate::conversation::begun::Begun;
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::journal::{Entry, Paused};
use crate::conversation::shelf::{Shelf, ShelfError};
use crate::conversation::store::{Found, Kept, Look, Store, StoreError};
use crate::run::{BlobError, BlobKey, Blobs, MemoryBlobs};

/// A conversation in hand.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    pub(super) id: String,
    pub(super) blob_key: BlobKey,
    pub(super) account: String,
    pub(super) state: Option<Bytes>,
    /// The history the state stands for.
    pub(super) sent: Option<Fingerprint>,
    /// What the state knows of the answer to it; `None` if nobody counted.
    pub(super) answer: Option<String>,
    /// The last pause of the turn under way.
    pub(super) pause: Option<Paused>,
    blobs: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Memory(Arc<MemoryBlobs>),
    Disk(Arc<Kept>, Arc<Shelf>),
}

/// Blobs on disk, as a run wants them.
struct OnShelf(Arc<Shelf>);

impl Blobs for OnShelf {
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError> {
        let found = self.0.get(id);
        found.map_err(|error| BlobError::Store(error.to_string()))
    }

    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError> {
        self.0.set(id, &data).map_err(|error| match error {
            ShelfError::Full { limit } => BlobError::full(limit),
            ShelfError::Io(error) => BlobError::Store(error.to_string()),
        })
    }
}

impl Conversation {
    /// A new one, kept where the session is kept.
    pub(super) fn new(account: String, kept: Option<Arc<Kept>>) -> Result<Self, getrandom::Error> {
        let id = format!("agent-{}", Uuid::new_v4());
        Ok(Self {
            blobs: Place::of(kept, &id),
            id,
            blob_key: BlobKey::random()?,
            account,
            state: None,
            sent: None,
            answer: None,
            pause: None,
        })
    }

    /// One read from disk; `None` if its entry makes no sense.
    fn restore(entry: Entry, kept: Arc<Kept>) -> Option<Self> {
        Some(Self {
            blobs: Place::of(Some(kept), &entry.conversation_id),
            id: entry.conversation_id,
            blob_key: BlobKey::from_hex(&entry.blob_key)?,
            account: entry.account,
            state: entry.state,
            sent: entry.sent,
            answer: entry.answer,
            pause: entry.pause,
        })
    }

    /// For what a turn of it will begin; nothing if it is not kept.
    pub(super) fn begins(&self, history: Fingerprint) -> Option<Begun> {
        self.kept().map(|kept| kept.begins(history))
    }

    /// The blobs, for a run.
    pub(super) fn blobs(&self) -> Arc<dyn Blobs> {
        match &self.blobs {
            Place::Memory(blobs) => blobs.clone(),
            Place::Disk(_, shelf) => Arc::new(OnShelf(shelf.clone())),
        }
    }

    /// Lets go of the conversation, not of the place it is kept in.
    pub(super) fn into_kept(self) -> Option<Arc<Kept>> {
        self.kept()
    }

    fn kept(&self) -> Option<Arc<Kept>> {
        match &self.blobs {
            Place::Memory(_) => None,
            Place::Disk(kept, _) => Some(kept.clone()),
        }
    }

    /// Writes the conversation down. One in memory has nothing to write.
    pub(super) async fn save(&self) -> Result<(), StoreError> {
        let Place::Disk(kept, shelf) = self.blobs.clone() else {
            return Ok(());
        };
        let entry = Entry {
            conversation_id: self.id.clone(),
            blob_key: self.blob_key.expose_hex().into(),
            account: self.account.clone(),
            sent: self.sent.clone(),
            state: self.state.clone(),
            answer: self.answer.clone(),
            pause: self.pause.clone(),
            blobs: None,
            sums: None,
        };
        let bytes = entry.state.as_ref().map(Bytes::len);
        let started = std::time::Instant::now();
        let written = blocking(move || kept.write(&entry, &shelf)).await;
        let ms = started.elapsed().as_millis() as u64;
        tracing::debug!(bytes, ms, ok = written.is_ok(), "journal.written");
        written
    }
}

impl Place {
    fn of(kept: Option<Arc<Kept>>, conversation: &str) -> Self {
        match kept {
            Some(kept) => {
                let shelf = Arc::new(kept.shelf(conversation));
                Self::Disk(kept, shelf)
            }
            None => Self::Memory(Arc::default()),
        }
    }
}

/// Where a session's conversation is between turns.
#[derive(Debug)]
pub(super) struct Memory {
    key: BridgeKey,
    store: Option<(Store, String)>,
    /// What could not be put on disk.
    unsaved: Option<Conversation>,
    /// How closely what is on disk is looked at: once is enough, for after that we wrote it.
    look: Look,
}

/// What a turn begins with.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) conversation: Option<Conversation>,
    /// Where a new conversation would be kept.
    pub(super) kept: Option<Arc<Kept>>,
    /// What a turn of another process has begun.
    pub(super) begun: Option<Begun>,
    /// What a person should know.
    pub(super) notice: Option<String>,
}

impl Memory {
    /// On disk under the session's name, or nowhere.
    pub(super) fn new(store: Option<(Store, String)>) -> Self {
        Self {
            key: BridgeKey::of(store.as_ref().map(|(_, session)| session.as_str())),
            store,
            unsaved: None,
            look: Look::Content,
        }
    }

    /// In memory alone, for a session of that name.
    pub(super) fn unkept(name: &str) -> Self {
        Self {
            key: BridgeKey::of(Some(name)),
            ..Self::new(None)
        }
    }

    /// What the session is known by.
    pub(super) fn key(&self) -> &BridgeKey {
        &self.key
    }

    /// Nothing is written any more.
    pub(super) fn leave_disk(&mut self) {
        self.store = None;
    }

    /// Takes the conversation in hand. Only another owner is a reason not to go on: whatever
    /// else is wrong with the disk, the turn is taken without it.
    pub(super) async fn take(&mut self) -> Result<Taken, StoreError> {
        let nothing = |notice| Taken {
            conversation: None,
            kept: None,
            begun: None,
            notice,
        };
        if let Some(conversation) = self.unsaved.take() {
            return Ok(Taken {
                kept: conversation.kept(),
                conversation: Some(conversation),
                begun: None,
                notice: None,
            });
        }
        let Some((store, session)) = self.store.clone() else {
            return Ok(nothing(None));
        };
        let look = std::mem::replace(&mut self.look, Look::Count);
        let found = blocking(move || {
            let kept = store.take(&session)?;
            let found = kept.read(look)?;
            // What this process has begun, it knows.
            let begun = match look {
                Look::Content => kept.begun(),
                Look::Count => None,
            };
            Ok((Arc::new(kept), found, begun))
        });
        let (kept, found, begun) = match found.await {
            Ok(found) => found,
            Err(StoreError::Busy) => {
                tracing::debug!("lock.busy");
                self.look = Look::Content;
                return Err(StoreError::Busy);
            }
            Err(error) => {
                // Once is enough: this session stays in memory from now on.
                self.store = None;
                return Ok(nothing(Some(format!(
                    "this session will not survive a restart: {error}"
                ))));
            }
        };
        let (conversation, notice) = match found {
            Found::Nothing => (None, None),
            Found::Entry(entry) => (Conversation::restore(*entry, kept.clone()), None),
            Found::Incomplete(entry) => {
                tracing::debug!("journal.incomplete");
                let notice = "files of this session are missing on disk or damaged; what Cursor knew of it cannot be used and its history is told anew";
                let conversation = Conversation::restore(*entry, kept.clone());
                (conversation, Some(notice.to_owned()))
            }
            Found::Damaged(damage, aside) => {
                tracing::debug!(reason = %damage, "journal.set_aside");
                let notice = format!(
                    "what was kept of this session cannot be used ({damage}) and was set aside as {}; its history is told anew",
                    aside.display()
                );
                (None, Some(notice))
            }
        };
        Ok(Taken {
            conversation,
            kept: Some(kept),
            begun,
            notice,
        })
    }

    /// Puts the conversation away; gives what a person should know.
    pub(super) async fn put(&mut self, conversation: Conversation) -> Option<String> {
        match conversation.save().await {
            Ok(()) => {
                if let Place::Memory(_) = conversation.blobs {
                    self.unsaved = Some(conversation);
                }
                None
            }
            Err(error) => {
                self.unsaved = Some(conversation);
                Some(format!("this turn could not be written down: {error}"))
            }
        }
    }

    /// Forgets the conversation, on disk too.
    pub(super) async fn forget(&mut self) {
        self.unsaved = None;
        if let Some((store, session)) = self.store.clone() {
            let forgotten = blocking(move || store.take(&session)?.forget()).await;
            if let Err(error) = forgotten {
                // The fingerprint will tell that the history is another one.
                tracing::debug!(%error, "not forgotten");
            }
        }
    }
}

/// Runs file work where it blocks nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Io {
            action: "finish work on",
            path: "the session's folder".into(),
            source: std::io::Error::other(error),
        }),
    }
}
