//! Checks of single parts: the simulator, the journal, the wire format, the source tree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub
)]

mod comments;
#[cfg(target_os = "linux")]
mod hot_paths;
mod journal;
mod messages;
mod simulator;
mod workspace;
