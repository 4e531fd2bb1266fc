//! Stores conversations on disk: one directory each, locked by one sidecar at a time.
//!
//! ```text
//! <root>/<hash of the session>/lock            held during a turn
//!                             /journal         replaced as a whole, never changed in place
//!                             /begun           effect log of an unanswered prompt
//!                             /blobs-<…>/<id>  the blobs of one conversation, written before
//!                                              the journal that needs them
//! ```
//!
//! A process may die between any two steps: the next one finds either the old journal with all its
//! blobs or the new journal with all of its blobs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::blob_store::{self, BlobStore, DiskUsage, KnownBlobs};
use super::fingerprint::Fingerprint;
use super::journal::{self, JournalEntry, JournalError, StoredMessage};
use crate::effect_log::{EffectLogFile, LeftFile};
use crate::hex::hex;
use foundation::file_id::link_count;
use foundation::private_files::{self, owner_only};

const LOCK: &str = "lock";
const JOURNAL: &str = "journal";
const BEGUN: &str = "begun";

/// The directory that contains all conversations.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    /// A parent directory that must be private too.
    within: Option<PathBuf>,
    steps: StoreSteps,
}

/// A step of writing; tests end the process at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreStep {
    /// A new file is open, without its final name.
    Opened,
    /// Half of it is written.
    Half,
    /// All of it is written.
    Written,
    /// It has its final name.
    Named,
    /// Blobs that no journal needs were removed.
    Cleared,
}

/// Called at every step; only set in tests.
#[derive(Clone, Default)]
struct StoreSteps(Option<Arc<dyn Fn(StoreStep) + Send + Sync>>);

impl std::fmt::Debug for StoreSteps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreSteps")
    }
}

/// Why a conversation cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another sidecar has locked it.
    #[error(
        "this session is at work in another cursor-sidecar; wait for its turn to end, or fork the session"
    )]
    Busy,
    /// Other users could access it.
    #[error(transparent)]
    Exposed(#[from] private_files::PrivateFileError),
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The path.
        path: String,
        /// The error.
        source: io::Error,
    },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.display().to_string();
    move |source| StoreError::Io {
        action,
        path,
        source,
    }
}

/// A conversation's directory, locked until this is dropped.
#[derive(Debug)]
pub struct LockedConversation {
    folder: PathBuf,
    steps: StoreSteps,
    /// The conversation id and what is known of its blobs, from the journal.
    known: Mutex<(String, KnownBlobs)>,
    access: Access,
    /// The lock is released when this is dropped, or with the process.
    _lock: File,
}

/// What the file system allows in a conversation's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Write,
    Read,
}

/// How thoroughly the blobs of a conversation are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobCheck {
    /// Their number.
    Count,
    /// Their number and their content.
    Content,
}

/// The result of reading a conversation.
#[derive(Debug)]
pub enum LoadOutcome {
    /// There is none.
    Nothing,
    /// The last entry.
    Loaded(Box<JournalEntry>),
    /// The last entry without its state, because some of its blobs are missing or corrupt.
    Incomplete(Box<JournalEntry>),
    /// An unusable journal, which was moved to this path.
    Damaged(JournalError, PathBuf),
}

impl Store {
    /// Returns a store in a directory, which is created when it is first needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            within: None,
            steps: StoreSteps::default(),
        }
    }

    /// Returns the store, restricted to use while a parent directory is private.
    pub fn within(self, folder: impl Into<PathBuf>) -> Self {
        Self {
            within: Some(folder.into()),
            ..self
        }
    }

    /// Returns the store with a callback for each step of writing.
    pub fn watched(self, steps: impl Fn(StoreStep) + Send + Sync + 'static) -> Self {
        Self {
            steps: StoreSteps(Some(Arc::new(steps))),
            ..self
        }
    }

    /// Locks a session's directory, and creates it if needed. One that cannot be written is locked
    /// for reading.
    pub fn lock(&self, session: &str) -> Result<LockedConversation, StoreError> {
        let folder = self.root.join(name(session));
        for above in self.within.iter().chain([&self.root]) {
            private_files::check_folder(above)?;
        }
        loop {
            make_private(&folder)?;
            let path = folder.join(LOCK);
            let (lock, access) = match open_lock(&path) {
                // A sweep removed the directory between the two calls.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(failed("open", &path))?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Err(StoreError::Busy),
                Err(fs::TryLockError::Error(error)) => {
                    return Err(failed("lock", &path)(error));
                }
            }
            // A sweep may have removed the file that was just locked.
            if link_count(&lock).map_err(failed("look at", &path))? > 0 {
                return Ok(LockedConversation {
                    folder,
                    steps: self.steps.clone(),
                    known: Mutex::default(),
                    access,
                    _lock: lock,
                });
            }
        }
    }

    /// Removes conversations that were not used for a while, then the least recently used ones
    /// until the rest fits. Returns how many were removed.
    pub fn sweep(&self, now: SystemTime, bounds: RetentionLimits) -> Result<usize, StoreError> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(failed("list", &self.root))?,
        };
        for entry in entries.flatten() {
            let folder = entry.path();
            let used = [JOURNAL, LOCK]
                .iter()
                .filter_map(|file| folder.join(file).metadata().ok()?.modified().ok())
                .max();
            if let Some(used) = used {
                found.push((used, size(&folder), folder));
            }
        }
        found.sort_unstable_by_key(|(used, ..)| std::cmp::Reverse(*used));
        let (mut total, mut removed) = (0_u64, 0);
        for (used, size, folder) in found {
            let age = now.duration_since(used).unwrap_or_default();
            total = total.saturating_add(size);
            let keep = age <= bounds.unused && total <= bounds.bytes;
            if !keep && remove_if_free(&folder) {
                total = total.saturating_sub(size);
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Limits for the stored conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// How long a conversation may stay unused.
    pub unused: Duration,
    /// Bytes that all conversations may take.
    pub bytes: u64,
}

impl LockedConversation {
    /// Returns whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.access == Access::Read
    }

    /// Reads the last entry. A damaged journal is moved aside, not deleted.
    pub fn read(&self, check: BlobCheck) -> Result<LoadOutcome, StoreError> {
        let path = self.folder.join(JOURNAL);
        let decoded = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(LoadOutcome::Nothing);
            }
            Err(error) => return Err(failed("look at", &path)(error)),
            // Reading a pipe would block until something writes to it.
            Ok(data) if !data.is_file() => Err(JournalError::Shape),
            Ok(_) => journal::decode(&fs::read(&path).map_err(failed("read", &path))?),
        };
        match decoded {
            Ok(mut entry) => {
                let (blobs, sums) = (entry.blobs.take().unwrap_or(0), entry.sums.take());
                let bytes = entry.blob_bytes.take();
                let check = sums.as_ref().map_or(BlobCheck::Count, |_| check);
                let mut known = KnownBlobs {
                    sums: sums.unwrap_or_default(),
                    usage: None,
                };
                self.set_known(&entry.conversation_id, known.clone());
                let blob_store = self.blob_store(&entry.conversation_id);
                let count = blob_store.count();
                let sound = count >= blobs
                    && (check == BlobCheck::Count || !blob_store.remove_corrupt(blobs));
                // Blobs that were stored after the journal are not in its sum.
                let is_counted = |bytes: &u64| sound && count == blobs && *bytes > 0;
                known.usage = bytes
                    .filter(is_counted)
                    .map(|bytes| DiskUsage { blobs, bytes });
                known.sums = blob_store.sums();
                self.set_known(&entry.conversation_id, known);
                if sound || entry.state.is_none() {
                    return Ok(LoadOutcome::Loaded(Box::new(entry)));
                }
                entry.state = None;
                entry.sent = None;
                Ok(LoadOutcome::Incomplete(Box::new(entry)))
            }
            Err(damage) => {
                // One damaged journal is enough for an investigation; the next one replaces it.
                let damaged_path = self.folder.join("journal.damaged");
                fs::rename(&path, &damaged_path).map_err(failed("set aside", &path))?;
                Ok(LoadOutcome::Damaged(damage, damaged_path))
            }
        }
    }

    /// Returns the effect log of a prompt that another process did not finish.
    pub fn left_log_file(&self) -> Option<LeftFile> {
        EffectLogFile::read(self.folder.join(BEGUN))
    }

    /// Returns an empty effect log file for a prompt with this history.
    pub fn new_log_file(&self, history: Fingerprint) -> EffectLogFile {
        EffectLogFile::new(self.folder.join(BEGUN), history)
    }

    fn set_known(&self, conversation_id: &str, known: KnownBlobs) {
        let known = (conversation_id.to_owned(), known);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Returns the blobs of a conversation, with what is known of them from the journal that was read
    /// or written last.
    pub fn blob_store(&self, conversation_id: &str) -> BlobStore {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = if known.0 == conversation_id {
            known.1.clone()
        } else {
            KnownBlobs::default()
        };
        let folder = format!("blobs-{}", name(conversation_id));
        BlobStore::at(self.folder.join(folder), known)
    }

    /// Writes the blobs that are not on disk yet, then the entry that needs them, then removes the
    /// blobs of earlier conversations.
    pub fn write(&self, entry: &JournalEntry, blob_store: &BlobStore) -> Result<(), StoreError> {
        make_private(blob_store.folder())?;
        for (path, data) in blob_store.unwritten() {
            let written = blob_store.write(&path, &data, |step| self.step(step));
            written.map_err(failed("write", &path))?;
        }
        let path = self.folder.join(JOURNAL);
        let (usage, sums) = (blob_store.usage(), blob_store.sums());
        let entry = JournalEntry {
            blobs: Some(usage.blobs),
            blob_bytes: Some(usage.bytes),
            sums: Some(sums.clone()),
            ..entry.clone()
        };
        let bytes = journal::encode(&entry)
            .map_err(|error| failed("encode", &path)(io::Error::other(error)))?;
        let written = blob_store::write(&path, &bytes, |step| self.step(step));
        written.map_err(failed("write", &path))?;
        let usage = Some(usage);
        self.set_known(&entry.conversation_id, KnownBlobs { sums, usage });
        self.remove_other_blobs(blob_store.folder());
        Ok(())
    }

    /// Deletes the conversation, but neither these messages nor the effect log of the prompt under
    /// way.
    pub fn delete_except(&self, messages: Vec<StoredMessage>) -> Result<(), StoreError> {
        if messages.is_empty() {
            return self.delete();
        }
        let (LoadOutcome::Loaded(entry) | LoadOutcome::Incomplete(entry)) =
            self.read(BlobCheck::Count)?
        else {
            return Ok(());
        };
        let entry = JournalEntry {
            sent: None,
            state: None,
            answer: None,
            pause: None,
            unread: None,
            messages,
            ..*entry
        };
        self.write(&entry, &self.blob_store(&entry.conversation_id))
    }

    /// Deletes the conversation, but not the effect log of the prompt under way.
    pub fn delete(&self) -> Result<(), StoreError> {
        let path = self.folder.join(JOURNAL);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &path)(error))
            }
            _ => {
                self.remove_other_blobs(Path::new(""));
                Ok(())
            }
        }
    }

    /// Returns what makes the journal that was written last survive a crash of the machine. Nothing
    /// needs to wait for it: a journal that does not survive is rebuilt from the host's history.
    pub fn sync(&self) -> impl FnOnce() + Send + 'static {
        let path = self.folder.join(JOURNAL);
        move || {
            let synced = File::options().write(true).open(&path);
            let synced = synced.and_then(|file| file.sync_data());
            if let Err(error) = synced.and_then(|()| private_files::sync_folder_of(&path)) {
                tracing::debug!(%error, "the journal cannot be synced");
            }
        }
    }

    /// Removes other blob directories. Leftovers only cost space, so those that cannot be removed
    /// are left to a later write.
    fn remove_other_blobs(&self, keep: &Path) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path != keep && entry.file_name().as_encoded_bytes().starts_with(b"blobs-") {
                if let Err(error) = fs::remove_dir_all(&path) {
                    tracing::debug!(%error, "cannot remove old blobs");
                }
                self.step(StoreStep::Cleared);
            }
        }
    }

    fn step(&self, step: StoreStep) {
        if let Some(steps) = &self.steps.0 {
            steps(step);
        }
    }
}

/// Opens the lock file, for writing if possible. A file that exists can be locked without.
fn open_lock(path: &Path) -> io::Result<(File, Access)> {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let mut options = File::options();
    owner_only(options.create(true).truncate(false).write(true));
    match options.open(path) {
        Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => {
            let lock = File::open(path).map_err(|_| error)?;
            Ok((lock, Access::Read))
        }
        lock => Ok((lock?, Access::Write)),
    }
}

/// Returns a directory name that reveals nothing and is always a single path component.
fn name(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..16])
}

fn make_private(folder: &Path) -> Result<(), StoreError> {
    blob_store::make_private(folder).map_err(failed("create", folder))
}

/// Returns the bytes in a directory; unreadable entries count as zero.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Removes a conversation unless it is locked, and returns whether it did.
fn remove_if_free(folder: &Path) -> bool {
    let lock = File::options().write(true).open(folder.join(LOCK));
    match lock {
        Ok(lock) => lock.try_lock().is_ok() && fs::remove_dir_all(folder).is_ok(),
        Err(_) => false,
    }
}
