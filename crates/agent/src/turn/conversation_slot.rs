//! The stored conversation of a session: in memory during a turn, on disk between turns.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::recover::SessionKey;
use crate::conversation::blob_store::{BlobStore, BlobStoreError};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::journal::{JournalEntry, PausedTurn, StoredImage, StoredMessage};
use crate::conversation::store::{BlobCheck, LoadOutcome, LockedConversation, Store, StoreError};
use crate::effect_log::{EffectLogFile, LeftFile};
use crate::run::{BlobError, BlobKey, Blobs, Image, MemoryBlobs, UserMessage};

/// The notice about a session folder that cannot be written.
const READ_ONLY: &str =
    "this session will not survive a restart: its folder can be read, but not written";

/// A conversation of Cursor's.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    pub(super) id: String,
    pub(super) blob_key: BlobKey,
    pub(super) account: String,
    pub(super) state: Option<Bytes>,
    /// The history the checkpoint covers.
    pub(super) sent: Option<Fingerprint>,
    /// The part of the answer to it that the checkpoint includes; `None` if unknown.
    pub(super) answer: Option<String>,
    /// The last pause of the current turn.
    pub(super) pause: Option<PausedTurn>,
    /// The rest of a complete answer that the host has not received.
    pub(super) unread: Option<String>,
    blobs: BlobPlace,
}

#[derive(Debug, Clone)]
enum BlobPlace {
    Memory(Arc<MemoryBlobs>),
    Disk(Arc<LockedConversation>, Arc<BlobStore>),
}

/// The blobs on disk, in the form a run uses.
struct DiskBlobs(Arc<BlobStore>);

impl Blobs for DiskBlobs {
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError> {
        let found = self.0.get(id);
        found.map_err(|error| BlobError::Store(error.to_string()))
    }

    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError> {
        self.0.set(id, &data).map_err(|error| match error {
            BlobStoreError::Full { limit } => BlobError::full(limit),
            BlobStoreError::Io(error) => BlobError::Store(error.to_string()),
        })
    }
}

impl Conversation {
    /// Returns a new conversation, stored where the session is stored.
    pub(super) fn new(
        account: String,
        kept: Option<Arc<LockedConversation>>,
    ) -> Result<Self, getrandom::Error> {
        let id = format!("agent-{}", Uuid::new_v4());
        Ok(Self {
            blobs: BlobPlace::of(kept, &id),
            id,
            blob_key: BlobKey::random()?,
            account,
            state: None,
            sent: None,
            answer: None,
            pause: None,
            unread: None,
        })
    }

    /// Returns a conversation read from disk; `None` if its entry is invalid.
    fn restore(entry: JournalEntry, kept: Arc<LockedConversation>) -> Option<Self> {
        Some(Self {
            blobs: BlobPlace::of(Some(kept), &entry.conversation_id),
            id: entry.conversation_id,
            blob_key: BlobKey::from_hex(&entry.blob_key)?,
            account: entry.account,
            state: entry.state,
            sent: entry.sent,
            answer: entry.answer,
            pause: entry.pause,
            unread: entry.unread,
        })
    }

    /// Returns an effect log file for a prompt; `None` if the conversation is not stored.
    pub(super) fn new_log_file(&self, history: Fingerprint) -> Option<EffectLogFile> {
        self.kept().map(|kept| kept.new_log_file(history))
    }

    /// Returns the blobs for a run.
    pub(super) fn blobs(&self) -> Arc<dyn Blobs> {
        match &self.blobs {
            BlobPlace::Memory(blobs) => blobs.clone(),
            BlobPlace::Disk(_, blob_store) => Arc::new(DiskBlobs(blob_store.clone())),
        }
    }

    /// Drops the conversation and returns the place it was stored in.
    pub(super) fn into_kept(self) -> Option<Arc<LockedConversation>> {
        self.kept()
    }

    fn kept(&self) -> Option<Arc<LockedConversation>> {
        match &self.blobs {
            BlobPlace::Memory(_) => None,
            BlobPlace::Disk(kept, _) => Some(kept.clone()),
        }
    }

    /// Writes the conversation to disk, where it survives this process, with the messages that no
    /// checkpoint includes. It is synced in the background, because a host waits for this before it is
    /// shown a call. Does nothing for one in memory.
    pub(super) async fn save(&self, messages: &[UserMessage]) -> Result<(), StoreError> {
        let BlobPlace::Disk(kept, blob_store) = self.blobs.clone() else {
            return Ok(());
        };
        if kept.is_read_only() {
            return Ok(());
        }
        let entry = JournalEntry {
            conversation_id: self.id.clone(),
            blob_key: self.blob_key.expose_hex().into(),
            account: self.account.clone(),
            sent: self.sent.clone(),
            state: self.state.clone(),
            answer: self.answer.clone(),
            pause: self.pause.clone(),
            messages: messages.iter().map(stored).collect(),
            unread: self.unread.clone(),
            blobs: None,
            blob_bytes: None,
            sums: None,
        };
        let bytes = entry.state.as_ref().map(Bytes::len);
        let started = std::time::Instant::now();
        let sync = kept.sync();
        let written = blocking(move || kept.write(&entry, &blob_store)).await;
        if written.is_ok() {
            tokio::task::spawn_blocking(sync);
        }
        let ms = started.elapsed().as_millis() as u64;
        tracing::debug!(bytes, ms, ok = written.is_ok(), "journal.written");
        written
    }
}

/// Returns the stored form of a message.
fn stored(message: &UserMessage) -> StoredMessage {
    let image = |image: &Image| StoredImage {
        mime_type: image.mime_type.clone(),
        data: Some(image.data.clone()),
    };
    StoredMessage {
        text: message.text.clone(),
        images: message.images.iter().map(image).collect(),
    }
}

/// Returns a stored message as a run sends it.
fn restored(message: &StoredMessage) -> UserMessage {
    let image = |image: &StoredImage| Image {
        mime_type: image.mime_type.clone(),
        data: image.data.clone().unwrap_or_default(),
    };
    UserMessage {
        text: message.text.clone(),
        images: message.images.iter().map(image).collect(),
        mode: None,
    }
}

impl BlobPlace {
    /// Returns whether conversations are lost with the process.
    fn is_lost_with_us(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Disk(kept, _) => kept.is_read_only(),
        }
    }

    fn of(kept: Option<Arc<LockedConversation>>, conversation: &str) -> Self {
        match kept {
            Some(kept) => {
                let blob_store = Arc::new(kept.blob_store(conversation));
                Self::Disk(kept, blob_store)
            }
            None => Self::Memory(Arc::default()),
        }
    }
}

/// Where a session's conversation is stored between turns.
#[derive(Debug)]
pub(super) struct ConversationSlot {
    key: SessionKey,
    store: Option<(Store, String)>,
    /// A conversation that could not be written to disk.
    unsaved: Option<Conversation>,
    /// How thoroughly the files are verified: once is enough, because later ones are our own.
    check: BlobCheck,
}

/// What a turn starts with.
#[derive(Debug, Default)]
pub(super) struct LoadedConversation {
    pub(super) conversation: Option<Conversation>,
    /// Where a new conversation would be stored.
    pub(super) kept: Option<Arc<LockedConversation>>,
    /// The effect log that another process left.
    pub(super) log_file: Option<LeftFile>,
    /// Injected messages of another process that no checkpoint includes.
    pub(super) messages: Vec<UserMessage>,
    /// A notice for the user.
    pub(super) notice: Option<String>,
}

impl ConversationSlot {
    /// Returns a memory on disk under the session's name, or one without a store.
    pub(super) fn new(store: Option<(Store, String)>) -> Self {
        Self {
            key: SessionKey::of(store.as_ref().map(|(_, session)| session.as_str())),
            store,
            unsaved: None,
            check: BlobCheck::Content,
        }
    }

    /// Returns a memory without a store, for a session of that name.
    pub(super) fn unkept(name: &str) -> Self {
        Self {
            key: SessionKey::of(Some(name)),
            ..Self::new(None)
        }
    }

    /// Returns the key that identifies the session in logs.
    pub(super) fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Stops writing to disk.
    pub(super) fn leave_disk(&mut self) {
        self.store = None;
    }

    /// Returns the stored conversation. Fails only if another process owns it; after any other
    /// error of the disk the turn continues without it.
    pub(super) async fn take(&mut self) -> Result<LoadedConversation, StoreError> {
        if let Some(conversation) = self.unsaved.take() {
            return Ok(LoadedConversation {
                kept: conversation.kept(),
                conversation: Some(conversation),
                ..LoadedConversation::default()
            });
        }
        let Some((store, session)) = self.store.clone() else {
            return Ok(LoadedConversation::default());
        };
        let check = std::mem::replace(&mut self.check, BlobCheck::Count);
        let found = blocking(move || {
            let kept = store.lock(&session)?;
            let found = kept.read(check)?;
            // This process knows what it has started itself.
            let log_file = match check {
                BlobCheck::Content => kept.left_log_file(),
                BlobCheck::Count => None,
            };
            Ok((Arc::new(kept), found, log_file))
        });
        let (kept, found, log_file) = match found.await {
            Ok(found) => found,
            Err(StoreError::Busy) => {
                tracing::debug!("lock.busy");
                self.check = BlobCheck::Content;
                return Err(StoreError::Busy);
            }
            Err(error) => {
                // Reported once: this session stays in memory from now on.
                self.store = None;
                return Ok(LoadedConversation {
                    notice: Some(format!("this session will not survive a restart: {error}")),
                    ..LoadedConversation::default()
                });
            }
        };
        let (entry, notice) = match found {
            LoadOutcome::Nothing => (None, None),
            LoadOutcome::Loaded(entry) => (Some(entry), None),
            LoadOutcome::Incomplete(entry) => {
                tracing::debug!("journal.incomplete");
                let notice = "stored files of this session are missing or damaged; the conversation is rebuilt from the history";
                (Some(entry), Some(notice.to_owned()))
            }
            LoadOutcome::Damaged(damage, aside) => {
                tracing::debug!(reason = %damage, "journal.set_aside");
                let notice = format!(
                    "the stored conversation of this session cannot be used ({damage}) and was set aside as {}; it is rebuilt from the history",
                    aside.display()
                );
                (None, Some(notice))
            }
        };
        let read_only = || kept.is_read_only().then(|| READ_ONLY.to_owned());
        // This process knows the messages it has accepted itself.
        let messages = match (check, &entry) {
            (BlobCheck::Content, Some(entry)) => entry.messages.iter().map(restored).collect(),
            _ => Vec::new(),
        };
        Ok(LoadedConversation {
            conversation: entry.and_then(|entry| Conversation::restore(*entry, kept.clone())),
            notice: notice.or_else(read_only),
            kept: Some(kept),
            log_file,
            messages,
        })
    }

    /// Stores the conversation, with the messages that the next turn sends; returns a notice for the
    /// user if that fails.
    pub(super) async fn put(
        &mut self,
        conversation: Conversation,
        messages: &[UserMessage],
    ) -> Option<String> {
        match conversation.save(messages).await {
            Ok(()) => {
                if conversation.blobs.is_lost_with_us() {
                    self.unsaved = Some(conversation);
                }
                None
            }
            Err(error) => {
                self.unsaved = Some(conversation);
                Some(format!("this turn could not be saved: {error}"))
            }
        }
    }

    /// Removes the conversation, also from disk, where only these messages are kept.
    pub(super) async fn forget(&mut self, messages: &[UserMessage]) {
        self.unsaved = None;
        if let Some((store, session)) = self.store.clone() {
            let messages: Vec<StoredMessage> = messages.iter().map(stored).collect();
            let forgotten = blocking(move || store.lock(&session)?.delete_except(messages)).await;
            if let Err(error) = forgotten {
                // The fingerprint will show that the history differs.
                tracing::debug!(%error, "the stored conversation could not be removed");
            }
        }
    }
}

/// Runs file operations on a thread that may block.
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
