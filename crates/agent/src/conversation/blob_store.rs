//! The blobs of one conversation: on disk, except those set since the last journal was written.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::journal::{BlobChecksums, checksum};
use super::store::StoreStep;
use crate::hex::hex;
use foundation::private_files::{self, owner_only};

/// Ids longer than this are stored under their hash.
const LONGEST_NAME: usize = 64;
/// How many bytes of blobs may be held in memory until the next journal is written; further blobs
/// are written at once.
const MAX_FRESH: usize = 16 * 1024 * 1024;
/// The most bytes of blobs that a conversation may have, on disk and in memory together.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Most blobs are smaller than this and are read at once.
const MOST_BLOBS: usize = 8 * 1024;
/// The end of the name of a file that is being written. Names of blobs are hexadecimal.
const UNFINISHED: &str = ".new";

/// Why a blob could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobStoreError {
    /// The conversation has reached its limit for blobs.
    #[error("the conversation has more than {limit} bytes of blobs")]
    Full {
        /// The limit in bytes.
        limit: usize,
    },
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Blobs by id.
#[derive(Debug)]
pub struct BlobStore {
    folder: PathBuf,
    /// Blobs that are not on disk yet, by their future path.
    fresh: Mutex<UnwrittenBlobs>,
    bounds: BlobLimits,
    /// Checksums of the blobs on disk whose file name is not their checksum.
    sums: Mutex<BlobChecksums>,
}

/// What the blobs on disk take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DiskUsage {
    pub(super) blobs: u64,
    pub(super) bytes: u64,
}

/// What is known of the blobs of a conversation before its folder is read.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownBlobs {
    pub(super) sums: BlobChecksums,
    /// `None` if the folder must be read for it.
    pub(super) usage: Option<DiskUsage>,
}

/// Size limits in bytes.
#[derive(Debug, Clone, Copy)]
struct BlobLimits {
    fresh: usize,
    all: usize,
}

/// Blobs that are not on disk, with the sizes of both kinds.
#[derive(Debug, Default)]
struct UnwrittenBlobs {
    blobs: HashMap<PathBuf, Bytes>,
    bytes: usize,
    /// What the blobs on disk take, if it is known.
    on_disk: Option<DiskUsage>,
}

impl BlobStore {
    pub(super) fn at(folder: PathBuf, known: KnownBlobs) -> Self {
        Self {
            folder,
            fresh: Mutex::new(UnwrittenBlobs {
                on_disk: known.usage,
                ..UnwrittenBlobs::default()
            }),
            bounds: BlobLimits {
                fresh: MAX_FRESH,
                all: MAX_BYTES,
            },
            sums: Mutex::new(known.sums),
        }
    }

    /// Returns a blob; `None` if it was never set.
    pub fn get(&self, id: &[u8]) -> io::Result<Option<Bytes>> {
        let path = self.path(id);
        if let Some(data) = self.fresh().blobs.get(&path) {
            return Ok(Some(data.clone()));
        }
        match read(&path) {
            Ok(data) => Ok(Some(data)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a blob: in memory until the next journal is written, or on disk at once if memory
    /// holds too much.
    pub fn set(&self, id: &[u8], data: &[u8]) -> Result<(), BlobStoreError> {
        let path = self.path(id);
        let mut fresh = self.fresh();
        let on_disk = *fresh.on_disk.get_or_insert_with(|| self.read_usage());
        let before = fresh.blobs.get(&path).map_or(0, Bytes::len);
        let waiting = fresh.bytes - before + data.len();
        let limit = self.bounds.all;
        if on_disk.bytes as usize + waiting > limit {
            // What it replaces is not counted.
            let replaced = fs::metadata(&path).map_or(0, |file| file.len());
            if on_disk.bytes.saturating_sub(replaced) as usize + waiting > limit {
                return Err(BlobStoreError::Full { limit });
            }
        }
        if waiting <= self.bounds.fresh {
            fresh.blobs.insert(path, Bytes::copy_from_slice(data));
            fresh.bytes = waiting;
            return Ok(());
        }
        drop(fresh);
        make_private(&self.folder)?;
        self.write(&path, data, |_| ())?;
        Ok(())
    }

    /// Writes a blob. `step` is called with the state of its file.
    pub(super) fn write(
        &self,
        path: &Path,
        data: &[u8],
        step: impl Fn(StoreStep),
    ) -> io::Result<()> {
        let usage = self.usage();
        let replaced = fs::symlink_metadata(path).ok().map(|file| file.len());
        write(path, data, step)?;
        {
            let mut fresh = self.fresh();
            if let Some(data) = fresh.blobs.remove(path) {
                fresh.bytes -= data.len();
            }
            let others = usage.bytes - replaced.unwrap_or(0).min(usage.bytes);
            fresh.on_disk = Some(DiskUsage {
                blobs: usage.blobs + u64::from(replaced.is_none()),
                bytes: others + data.len() as u64,
            });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let sum = checksum(data);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if *name == sum {
            sums.remove(&*name);
        } else {
            sums.insert(name.into_owned(), sum);
        }
        Ok(())
    }

    /// Returns what the blobs on disk take.
    pub(super) fn usage(&self) -> DiskUsage {
        *self
            .fresh()
            .on_disk
            .get_or_insert_with(|| self.read_usage())
    }

    fn read_usage(&self) -> DiskUsage {
        let sizes = files(&self.folder).filter_map(|entry| Some(entry.metadata().ok()?.len()));
        sizes.fold(DiskUsage::default(), |usage, bytes| DiskUsage {
            blobs: usage.blobs + 1,
            bytes: usage.bytes + bytes,
        })
    }

    /// Returns how many blobs are on disk.
    pub(super) fn count(&self) -> u64 {
        files(&self.folder).count() as u64
    }

    /// Removes corrupt blobs, and returns whether there were any. `known` is the number of blobs
    /// that the journal knows of. Most blobs are named by their checksum, and the journal has the
    /// checksums of the others. Blobs that were stored after the journal was written have no
    /// recorded checksum; they are accepted and recorded now, if their number fits.
    pub(super) fn remove_corrupt(&self, known: u64) -> bool {
        let sums = self.sums();
        let (mut present, mut wrong, mut unrecorded) = (0, Vec::new(), Vec::new());
        for entry in files(&self.folder) {
            present += 1;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Opening anything but a file, such as a pipe, could block.
            let file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let data = file.then(|| fs::read(entry.path()).ok()).flatten();
            let sum = data.as_deref().map(checksum);
            match sums.get(&name) {
                Some(wanted) if sum.as_ref() != Some(wanted) => wrong.push(name),
                None if sum.as_ref() != Some(&name) => unrecorded.push((name, sum)),
                _ => {}
            }
        }
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let written_later = unrecorded.len() as u64 <= u64::saturating_sub(present, known);
        for (name, sum) in unrecorded {
            match sum {
                Some(sum) if written_later => drop(sums.insert(name, sum)),
                _ => wrong.push(name),
            }
        }
        self.fresh().on_disk = None;
        for name in &wrong {
            // A file that cannot be removed is found again the next time.
            let _ = fs::remove_file(self.folder.join(name));
            sums.remove(name);
        }
        !wrong.is_empty()
    }

    /// Returns the checksums of the blobs whose file name is not their checksum.
    pub(super) fn sums(&self) -> BlobChecksums {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.clone()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the blobs that are not on disk yet.
    pub(super) fn unwritten(&self) -> Vec<(PathBuf, Bytes)> {
        let fresh = self.fresh();
        fresh
            .blobs
            .iter()
            .map(|(path, data)| (path.clone(), data.clone()))
            .collect()
    }

    fn fresh(&self) -> MutexGuard<'_, UnwrittenBlobs> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: &[u8]) -> PathBuf {
        let name = if id.is_empty() || id.len() > LONGEST_NAME {
            format!("h{}", hex(Sha256::digest(id)))
        } else {
            hex(id)
        };
        self.folder.join(name)
    }
}

/// Returns the files of blobs in a folder, without those that are being written or were left
/// unfinished.
fn files(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| {
        let name = entry.file_name();
        !name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes())
    })
}

/// Returns the content of a file. A small one takes one call of the system.
fn read(path: &Path) -> io::Result<Bytes> {
    let mut file = File::open(path)?;
    let mut data = vec![0; MOST_BLOBS];
    let length = file.read(&mut data)?;
    data.truncate(length);
    if length == MOST_BLOBS {
        file.read_to_end(&mut data)?;
    }
    data.shrink_to_fit();
    Ok(data.into())
}

/// Writes a file that only this user can read. Whenever the process dies, its old content is found or
/// the new one. It is not synced: what a crash of the machine has damaged does not match its checksum,
/// so the conversation is rebuilt from the history.
pub(super) fn write(path: &Path, data: &[u8], step: impl Fn(StoreStep)) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let mut options = File::options();
    owner_only(options.create(true).truncate(true).write(true));
    let mut file = options.open(&unfinished)?;
    step(StoreStep::Opened);
    let (first, second) = data.split_at(data.len() / 2);
    file.write_all(first)?;
    step(StoreStep::Half);
    file.write_all(second)?;
    step(StoreStep::Written);
    drop(file);
    fs::rename(&unfinished, path)?;
    step(StoreStep::Named);
    Ok(())
}

/// Creates a directory that only this user can access.
pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    private_files::folder_builder()
        .recursive(true)
        .create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(folder: &Path) -> BlobStore {
        BlobStore {
            bounds: BlobLimits { fresh: 10, all: 40 },
            ..BlobStore::at(folder.join("blobs"), KnownBlobs::default())
        }
    }

    #[test]
    fn blobs_are_bounded_in_memory_and_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let blob_store = small(folder.path());
        blob_store.set(b"a", &[1; 8]).unwrap();
        assert_eq!(blob_store.count(), 0, "held until the journal is written");
        for id in [b"b", b"c", b"d"] {
            blob_store.set(id, &[2; 9]).unwrap();
        }
        assert_eq!((blob_store.count(), blob_store.unwritten().len()), (3, 1));
        // Setting the same blob again takes no more space.
        blob_store.set(b"a", &[3; 8]).unwrap();
        blob_store.set(b"b", &[2; 9]).unwrap();
        let full = blob_store.set(b"e", &[4; 9]);
        assert!(
            matches!(full, Err(BlobStoreError::Full { limit: 40 })),
            "{full:?}"
        );
        assert_eq!(blob_store.get(b"e").unwrap(), None);
        assert_eq!(blob_store.get(b"c").unwrap().as_deref(), Some(&[2; 9][..]));
        assert_eq!(blob_store.sums().len(), 3, "blobs on disk have checksums");
        // Blobs on disk count for the next run, too.
        let next = small(folder.path());
        next.set(b"f", &[5; 9]).unwrap();
        assert!(next.set(b"g", &[5; 9]).is_err());
    }

    #[test]
    fn a_blob_that_was_left_unfinished_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let blob_store = BlobStore::at(folder.path().into(), KnownBlobs::default());
        let path = blob_store.path(b"a");
        let unfinished = folder.path().join(format!("{}{UNFINISHED}", hex(b"a")));
        std::fs::write(&unfinished, "half").unwrap();
        assert_eq!((blob_store.count(), blob_store.usage().blobs), (0, 0));
        assert!(!blob_store.remove_corrupt(0), "nothing is corrupt");
        let long = vec![7; 3 * MOST_BLOBS];
        for data in [&long[..], b"", &long[..MOST_BLOBS]] {
            blob_store.write(&path, data, |_| ()).unwrap();
            assert_eq!(blob_store.get(b"a").unwrap().as_deref(), Some(data));
            let usage = DiskUsage {
                blobs: 1,
                bytes: data.len() as u64,
            };
            assert_eq!(
                (blob_store.usage(), blob_store.read_usage()),
                (usage, usage)
            );
        }
        assert!(!unfinished.exists());
    }
}
