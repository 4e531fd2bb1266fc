//! Blobs the server keeps on the client, by its ids.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Why a blob could not be kept or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("blob store failed: {0}")]
pub struct BlobError(pub String);

/// Where blobs live. A checkpoint is only worth something with all its blobs.
pub trait Blobs: Send + Sync + 'static {
    /// The blob under an id; `None` if it was never set.
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError>;
    /// Keeps a blob.
    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError>;
}

/// Blobs in memory.
#[derive(Debug, Default)]
pub struct MemoryBlobs(Mutex<HashMap<Vec<u8>, Bytes>>);

impl Blobs for MemoryBlobs {
    fn get(&self, id: &[u8]) -> Result<Option<Bytes>, BlobError> {
        let blobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(blobs.get(id).cloned())
    }

    fn set(&self, id: &[u8], data: Bytes) -> Result<(), BlobError> {
        // A copy, since the data is a slice of the whole network buffer it came in.
        let data = Bytes::copy_from_slice(&data);
        let mut blobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.insert(id.to_vec(), data);
        Ok(())
    }
}
