//! Blobs the server keeps on the client, by its ids.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::limits::{LimitError, MAX_MEMORY_BLOBS};

/// Why a blob could not be kept or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The store failed.
    #[error("blob store failed: {0}")]
    Store(String),
    /// The conversation has as many bytes of blobs as it may have.
    #[error(transparent)]
    Full(#[from] LimitError),
}

impl BlobError {
    /// A conversation that has reached its limit of so many bytes.
    pub fn full(limit: usize) -> Self {
        Self::Full(LimitError::Blobs { limit })
    }
}

/// Where blobs live. A checkpoint is only worth something with all its blobs.
pub trait Blobs: Send + Sync + 'static {
    /// The blob under an id; `None` if it was never set.
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError>;
    /// Keeps a blob.
    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError>;
}

/// Blobs in memory, bounded in bytes.
#[derive(Debug, Default)]
pub struct MemoryBlobs(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    blobs: HashMap<Vec<u8>, Bytes>,
    bytes: usize,
}

impl Blobs for MemoryBlobs {
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(held.blobs.get(id).cloned())
    }

    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = |data: &Bytes| id.len() + data.len();
        let before = held.blobs.get(id).map_or(0, cost);
        let bytes = held.bytes - before + cost(&data);
        if bytes > MAX_MEMORY_BLOBS {
            return Err(BlobError::full(MAX_MEMORY_BLOBS));
        }
        held.bytes = bytes;
        // A copy, since the data is a slice of the whole network buffer it came in.
        let data = Bytes::copy_from_slice(&data);
        held.blobs.insert(id.to_vec(), data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_in_memory_are_bounded_in_bytes() {
        let blobs = MemoryBlobs::default();
        let half = Bytes::from(vec![0; MAX_MEMORY_BLOBS / 2]);
        blobs.set(b"a", half.clone()).unwrap();
        // The same blob again takes no more room.
        blobs.set(b"a", half.clone()).unwrap();
        let full = BlobError::full(MAX_MEMORY_BLOBS);
        assert_eq!(blobs.set(b"b", half.clone()), Err(full));
        assert_eq!(blobs.get(b"b"), Ok(None));
        blobs.set(b"a", Bytes::from_static(b"small")).unwrap();
        blobs.set(b"b", half).unwrap();
    }
}
