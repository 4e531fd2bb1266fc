//! Checks of single parts: the simulator, the journal, the wire format, the schema, the source tree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub
)]

mod journal;
mod messages;
mod schema;
mod simulator;
mod workspace;
