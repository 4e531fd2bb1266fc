//! Whether the host is alive, beside the end of our input.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use unix::{has_hung_up, host_gone, is_alive};
#[cfg(windows)]
pub(super) use windows::{has_hung_up, host_gone, is_alive};
