//! System errors by their Unix names, which are also Node's.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{Errno, readable};
#[cfg(windows)]
pub(crate) use windows::{Errno, readable};
