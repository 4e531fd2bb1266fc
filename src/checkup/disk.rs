//! What a folder's disk permits.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use unix::{can_create_in, free_bytes};
#[cfg(windows)]
pub(super) use windows::{can_create_in, free_bytes};
