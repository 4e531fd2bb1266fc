//! The system's own errors.

use std::io;
use std::path::Path;

use rustix::fs::Access;
pub(crate) use rustix::io::Errno;

/// Checks that a file can be read, or a directory entered and listed.
pub(crate) fn readable(path: &Path) -> io::Result<()> {
    let access = if path.is_dir() {
        Access::READ_OK | Access::EXEC_OK
    } else {
        Access::READ_OK
    };
    Ok(rustix::fs::access(path, access)?)
}
