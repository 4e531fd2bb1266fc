//! Which file it is, whatever its name.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::link_count;
#[cfg(windows)]
pub use windows::link_count;

/// Identifies a file on this machine. Two hard links have the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    volume: u64,
    index: u64,
}
