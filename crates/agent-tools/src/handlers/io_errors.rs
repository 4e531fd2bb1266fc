//! System errors in the official client's wording, which is Node's.

use std::io;
use std::path::Path;

use crate::errno::Errno;
pub(crate) use crate::errno::readable;

/// Returns Node's code and text for an error.
fn words(error: &io::Error) -> (&'static str, &'static str) {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => ("ENOENT", "no such file or directory"),
        Some(Errno::ACCESS) => ("EACCES", "permission denied"),
        Some(Errno::PERM) => ("EPERM", "operation not permitted"),
        Some(Errno::ISDIR) => ("EISDIR", "illegal operation on a directory"),
        Some(Errno::NOTDIR) => ("ENOTDIR", "not a directory"),
        Some(Errno::LOOP) => ("ELOOP", "too many symbolic links encountered"),
        Some(Errno::NAMETOOLONG) => ("ENAMETOOLONG", "name too long"),
        Some(Errno::NOSPC) => ("ENOSPC", "no space left on device"),
        Some(Errno::FBIG) => ("EFBIG", "file too large"),
        Some(Errno::DQUOT) => ("EDQUOT", "disk quota exceeded"),
        Some(Errno::ROFS) => ("EROFS", "read-only file system"),
        Some(Errno::BUSY) => ("EBUSY", "resource busy or locked"),
        Some(Errno::TXTBSY) => ("ETXTBSY", "text file is busy"),
        Some(Errno::MFILE) => ("EMFILE", "too many open files"),
        Some(Errno::INVAL) => ("EINVAL", "invalid argument"),
        _ => ("EIO", "i/o error"),
    }
}

/// Returns a message like `ENOENT: no such file or directory, open '/path'`.
pub(crate) fn sentence(error: &io::Error, call: &str, path: &Path) -> String {
    let (code, text) = words(error);
    format!("{code}: {text}, {call} '{}'", path.display())
}

/// Returns whether an error is this system error.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error().map(Errno::from_raw_os_error) == Some(errno)
}

/// Returns whether an error means that the user lacks permission.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    is(error, Errno::ACCESS) || is(error, Errno::PERM)
}
