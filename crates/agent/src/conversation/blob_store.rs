//! The blobs of one conversation: on disk, except those set since the last journal was written.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::atomic_file;
use super::journal::{BlobChecksums, checksum};
use crate::hex::hex;
use foundation::private_files;

/// Ids longer than this are stored under their hash.
const LONGEST_NAME: usize = 64;
/// How many bytes of blobs may be held in memory until the next journal is written; further blobs
/// are written at once.
const MAX_FRESH: usize = 16 * 1024 * 1024;
/// The most bytes of blobs that a conversation may have, on disk and in memory together.
const MAX_BYTES: usize = 256 * 1024 * 1024;

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
    /// Bytes on disk, counted when the first blob is set.
    on_disk: Option<usize>,
}

impl BlobStore {
    pub(super) fn at(folder: PathBuf, sums: BlobChecksums) -> Self {
        Self {
            folder,
            fresh: Mutex::default(),
            bounds: BlobLimits {
                fresh: MAX_FRESH,
                all: MAX_BYTES,
            },
            sums: Mutex::new(sums),
        }
    }

    /// Returns a blob; `None` if it was never set.
    pub fn get(&self, id: &[u8]) -> io::Result<Option<Bytes>> {
        let path = self.path(id);
        if let Some(data) = self.fresh().blobs.get(&path) {
            return Ok(Some(data.clone()));
        }
        match fs::read(&path) {
            Ok(data) => Ok(Some(data.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a blob: in memory until the next journal is written, or on disk at once if memory
    /// holds too much.
    pub fn set(&self, id: &[u8], data: &[u8]) -> Result<(), BlobStoreError> {
        let path = self.path(id);
        let mut fresh = self.fresh();
        let on_disk = *fresh.on_disk.get_or_insert_with(|| self.bytes_on_disk());
        let before = fresh.blobs.get(&path).map_or(0, Bytes::len);
        let waiting = fresh.bytes - before + data.len();
        if on_disk + waiting > self.bounds.all {
            // A blob that was written twice was counted twice, so count all again, without the one
            // it replaces, before rejecting it.
            let on_disk = self.bytes_on_disk();
            fresh.on_disk = Some(on_disk);
            let replaced = fs::metadata(&path).map_or(0, |file| file.len() as usize);
            if on_disk.saturating_sub(replaced) + waiting > self.bounds.all {
                let limit = self.bounds.all;
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
        let mut file = atomic_file::open(&path)?;
        file.write_all(data)?;
        file.commit()?;
        self.written(&path, data);
        Ok(())
    }

    fn bytes_on_disk(&self) -> usize {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let bytes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len() as usize));
        bytes.sum()
    }

    /// Returns how many blobs are on disk.
    pub(super) fn count(&self) -> u64 {
        fs::read_dir(&self.folder).map_or(0, |entries| entries.flatten().count() as u64)
    }

    /// Removes corrupt blobs, and returns whether there were any. `known` is the number of blobs
    /// that the journal knows of. Most blobs are named by their checksum, and the journal has the
    /// checksums of the others. Blobs that were stored after the journal was written have no
    /// recorded checksum; they are accepted and recorded now, if their number fits.
    pub(super) fn remove_corrupt(&self, known: u64) -> bool {
        let sums = self.sums();
        let (mut present, mut wrong, mut unrecorded) = (0, Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
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

    /// Records that a blob is on disk.
    pub(super) fn written(&self, path: &Path, data: &[u8]) {
        {
            let mut fresh = self.fresh();
            if let Some(data) = fresh.blobs.remove(path) {
                fresh.bytes -= data.len();
            }
            fresh.on_disk = fresh.on_disk.map(|bytes| bytes + data.len());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let sum = checksum(data);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if *name == sum {
            sums.remove(&*name);
        } else {
            sums.insert(name.into_owned(), sum);
        }
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
            ..BlobStore::at(folder.join("blobs"), BlobChecksums::default())
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
}
