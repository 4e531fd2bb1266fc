//! `access` and `statvfs`.

use std::path::Path;

use rustix::fs::Access;

/// Returns whether something can be created in a folder.
pub(crate) fn can_create_in(folder: &Path) -> bool {
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Returns how many bytes are free on a folder's disk.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}
