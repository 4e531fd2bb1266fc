//! The limit of open files. A parked run holds the lock file of its session and, over HTTP/1.1, a
//! connection of its own; many systems start with a limit of 1024.

#[cfg(unix)]
mod unix;

#[cfg(unix)]
pub(super) use unix::raise;

/// Does nothing, because Windows limits no process.
#[cfg(windows)]
pub(super) fn raise() {}
