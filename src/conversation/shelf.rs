//! The blobs of one conversation: on disk, except those the next journal will need.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Ids longer than this are named by their hash.
const LONGEST_NAME: usize = 64;

/// Blobs by id.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    /// Set in this run, by the path they will have.
    fresh: Mutex<HashMap<PathBuf, Bytes>>,
}

impl Shelf {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self {
            folder,
            fresh: Mutex::default(),
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
    pub(super) fn written(&self, path: &Path) {
        self.fresh().remove(path);
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
