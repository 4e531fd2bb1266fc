//! System errors in the words the official client uses, which are Node's.

use std::io;
use std::path::Path;

use rustix::fs::Access;
use rustix::io::Errno;

/// Node's code and text of an error.
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

/// `ENOENT: no such file or directory, open '/path'`.
pub(super) fn sentence(error: &io::Error, call: &str, path: &Path) -> String {
    let (code, text) = words(error);
    format!("{code}: {text}, {call} '{}'", path.display())
}

/// Whether an error is a certain one of the system's.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Whether a file can be read, or a folder entered and listed; otherwise the error.
pub(super) fn readable(path: &Path) -> io::Result<()> {
    let access = if path.is_dir() {
        Access::READ_OK | Access::EXEC_OK
    } else {
        Access::READ_OK
    };
    Ok(rustix::fs::access(path, access)?)
}

/// Whether the user may not do this.
pub(super) fn is_denied(error: &io::Error) -> bool {
    is(error, Errno::ACCESS) || is(error, Errno::PERM)
}
