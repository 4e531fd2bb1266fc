//! Blobs that the server stores on the client, by the server's ids.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::limits::{LimitError, MAX_MEMORY_BLOBS};

/// Why a blob could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The store failed.
    #[error("blob store failed: {0}")]
    Store(String),
    /// The conversation has reached its limit for blobs.
    #[error(transparent)]
    Full(#[from] LimitError),
}

impl BlobError {
    /// Returns the error of a conversation that has reached its limit of `limit` bytes.
    pub fn full(limit: usize) -> Self {
        Self::Full(LimitError::Blobs { limit })
    }
}

/// A store for blobs. A checkpoint is only usable with all its blobs.
pub trait Blobs: Send + Sync + 'static {
    /// Returns the blob with this id; `None` if it was never set.
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError>;
    /// Stores a blob.
    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError>;
}

/// Blobs in memory, bounded in bytes.
#[derive(Debug, Default)]
pub struct MemoryBlobs(Mutex<StoredBlobs>);

#[derive(Debug, Default)]
struct StoredBlobs {
    blobs: HashMap<Vec<u8>, Bytes>,
    bytes: usize,
}

impl Blobs for MemoryBlobs {
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(stored.blobs.get(id).cloned())
    }

    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError> {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = |data: &Bytes| id.len() + data.len();
        let before = stored.blobs.get(id).map_or(0, cost);
        let bytes = stored.bytes - before + cost(&data);
        if bytes > MAX_MEMORY_BLOBS {
            return Err(BlobError::full(MAX_MEMORY_BLOBS));
        }
        stored.bytes = bytes;
        // A copy, because the data is a slice of the network buffer it arrived in.
        let data = Bytes::copy_from_slice(&data);
        stored.blobs.insert(id.to_vec(), data);
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
        // Setting the same blob again takes no more space.
        blobs.set(b"a", half.clone()).unwrap();
        let full = BlobError::full(MAX_MEMORY_BLOBS);
        assert_eq!(blobs.set(b"b", half.clone()), Err(full));
        assert_eq!(blobs.get(b"b"), Ok(None));
        blobs.set(b"a", Bytes::from_static(b"small")).unwrap();
        blobs.set(b"b", half).unwrap();
    }
}
