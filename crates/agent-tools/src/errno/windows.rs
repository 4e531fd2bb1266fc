//! Windows's errors under the names that Node gives them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// A system error. Its number is the one of Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) const NOENT: Self = Self(2); // ERROR_FILE_NOT_FOUND
    pub(crate) const MFILE: Self = Self(4); // ERROR_TOO_MANY_OPEN_FILES
    pub(crate) const ACCESS: Self = Self(5); // ERROR_ACCESS_DENIED
    pub(crate) const XDEV: Self = Self(17); // ERROR_NOT_SAME_DEVICE
    pub(crate) const ROFS: Self = Self(19); // ERROR_WRITE_PROTECT
    pub(crate) const BUSY: Self = Self(32); // ERROR_SHARING_VIOLATION
    pub(crate) const INVAL: Self = Self(87); // ERROR_INVALID_PARAMETER
    pub(crate) const NOSPC: Self = Self(112); // ERROR_DISK_FULL
    pub(crate) const TXTBSY: Self = Self(170); // ERROR_BUSY
    pub(crate) const NAMETOOLONG: Self = Self(206); // ERROR_FILENAME_EXCED_RANGE
    pub(crate) const FBIG: Self = Self(223); // ERROR_FILE_TOO_LARGE
    pub(crate) const NOTDIR: Self = Self(267); // ERROR_DIRECTORY
    pub(crate) const ISDIR: Self = Self(336); // ERROR_DIRECTORY_NOT_SUPPORTED
    pub(crate) const LOOP: Self = Self(681); // ERROR_STOPPED_ON_SYMLINK
    pub(crate) const PERM: Self = Self(1314); // ERROR_PRIVILEGE_NOT_HELD
    pub(crate) const DQUOT: Self = Self(1816); // ERROR_NOT_ENOUGH_QUOTA

    /// Returns the error with this number. Several numbers of Windows have one name.
    pub(crate) fn from_raw_os_error(number: i32) -> Self {
        Self(match number {
            3 | 53 | 67 | 123 | 161 => Self::NOENT.0, // paths, names of servers and of disks
            33 => Self::BUSY.0,                       // ERROR_LOCK_VIOLATION
            39 => Self::NOSPC.0,                      // ERROR_HANDLE_DISK_FULL
            1921 => Self::LOOP.0,                     // ERROR_CANT_RESOLVE_FILENAME
            other => other,
        })
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

/// Checks that a file can be read, or a directory listed.
pub(crate) fn readable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        fs::read_dir(path).map(drop)
    } else {
        File::open(path).map(drop)
    }
}
