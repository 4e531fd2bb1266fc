//! The blobs of one conversation: on disk, except those the next journal will need.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::journal::{Sums, checksum};

/// Ids longer than this are named by their hash.
const LONGEST_NAME: usize = 64;

/// Blobs by id.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    /// Set in this run, by the path they will have.
    fresh: Mutex<HashMap<PathBuf, Bytes>>,
    /// Checksums of those on disk that are not named by theirs.
    sums: Mutex<Sums>,
}

impl Shelf {
    pub(super) fn at(folder: PathBuf, sums: Sums) -> Self {
        Self {
            folder,
            fresh: Mutex::default(),
            sums: Mutex::new(sums),
        }
    }

    /// A blob; `None` if it was never set.
    pub fn get(&self, id: &[u8]) -> io::Result<Option<Bytes>> {
        let path = self.path(id);
        if let Some(data) = self.fresh().get(&path) {
            return Ok(Some(data.clone()));
        }
        match fs::read(&path) {
            Ok(data) => Ok(Some(data.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a blob, in memory until the next journal is written.
    pub fn set(&self, id: &[u8], data: &[u8]) {
        self.fresh()
            .insert(self.path(id), Bytes::copy_from_slice(data));
    }

    /// How many blobs are on disk.
    pub(super) fn count(&self) -> u64 {
        fs::read_dir(&self.folder).map_or(0, |entries| entries.flatten().count() as u64)
    }

    /// Removes blobs that are not what was put there, of so many that the journal knows of.
    /// Most are named by their checksum, the others' are written down. What was put there after
    /// the journal was written may be anything, and is what it is from now on. Gives whether
    /// any were removed.
    pub(super) fn weed(&self, known: u64) -> bool {
        let sums = self.sums();
        let (mut there, mut wrong, mut strange) = (0, Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            there += 1;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Anything but a file could keep us waiting.
            let file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let data = file.then(|| fs::read(entry.path()).ok()).flatten();
            let sum = data.as_deref().map(checksum);
            match sums.get(&name) {
                Some(wanted) if sum.as_ref() != Some(wanted) => wrong.push(name),
                None if sum.as_ref() != Some(&name) => strange.push((name, sum)),
                _ => {}
            }
        }
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = strange.len() as u64 <= u64::saturating_sub(there, known);
        for (name, sum) in strange {
            match sum {
                Some(sum) if newer => drop(sums.insert(name, sum)),
                _ => wrong.push(name),
            }
        }
        for name in &wrong {
            // What stays is found again.
            let _ = fs::remove_file(self.folder.join(name));
            sums.remove(name);
        }
        !wrong.is_empty()
    }

    /// The checksums of what is not named by its own.
    pub(super) fn sums(&self) -> Sums {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.clone()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is not on disk yet.
    pub(super) fn unwritten(&self) -> Vec<(PathBuf, Bytes)> {
        let fresh = self.fresh();
        fresh
            .iter()
            .map(|(path, data)| (path.clone(), data.clone()))
            .collect()
    }

    /// A blob is on disk.
    pub(super) fn written(&self, path: &Path, data: &[u8]) {
        self.fresh().remove(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let sum = checksum(data);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        match *name == sum {
            true => sums.remove(&*name),
            false => sums.insert(name.into_owned(), sum),
        };
    }

    fn fresh(&self) -> MutexGuard<'_, HashMap<PathBuf, Bytes>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: &[u8]) -> PathBuf {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let name = if id.is_empty() || id.len() > LONGEST_NAME {
            format!("h{}", hex(&Sha256::digest(id)))
        } else {
            hex(id)
        };
        self.folder.join(name)
    }
}
