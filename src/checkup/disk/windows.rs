//! Attempts, because access lists say little.

use std::path::Path;

/// Returns whether a folder can be created in a folder; it is removed again.
pub(crate) fn can_create_in(folder: &Path) -> bool {
    let probe = folder.join(format!(".doctor-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&probe).is_ok() && std::fs::remove_dir(&probe).is_ok()
}

/// Returns `None`, because no safe call knows.
pub(crate) fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}
