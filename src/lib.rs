//! `cursor-sidecar`: use Cursor's models outside Cursor.
//!
//! The map of the house. Arrows point down only, and a test reads the `use` lines to keep
//! it so:
//!
//! ```text
//! main            parse arguments, open one door, map errors to exit codes
//!   └─ run        one live run = one task: reads the stream, answers every request
//!        ├─ account   API key → access token
//!        └─ wire      Cursor on the wire: envelopes, transports, headers, errors
//! sim             a simulated Cursor backend; uses wire only
//! diag            counters and settings; used by all, uses nobody
//! ```
//!
//! What each room may not do is said at its door (its module docs).

pub mod account;
pub mod diag;
pub mod doors;
pub mod run;
pub mod sim;
pub mod tools;
pub mod wire;
