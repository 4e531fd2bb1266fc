//! Shutdown signals for a process that serves.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use unix::shutdown_requested;
#[cfg(windows)]
pub(super) use windows::shutdown_requested;
