//! `cursor-sidecar`: use Cursor's models outside Cursor.
//!
//! The map of the house. Arrows point down only, and a test reads the `use` lines to keep
//! it so:
//!
//! ```text
//! main              parse arguments, open one door, map errors to exit codes
//! doors             front ends that only translate
//!   └─ turn         what a host is shown of a run
//!        ├─ run     one live run = one task: reads the stream, answers every request
//!        ├─ conversation   what must survive, and how a history continues
//!        ├─ tools   who executes what Cursor's agent asks for
//!        ├─ tool_cards  completed tool calls of Cursor's agent → cards or text
//!        ├─ catalog Cursor's models → models a host can register, and back
//!        └─ account API key → access token
//!             └─ wire    Cursor on the wire: envelopes, transports, headers, errors
//! sim               a simulated Cursor backend; uses wire only
//! prompts           every text we write to a model; uses nothing
//! diag              settings, places, debug log, timeline; used by all, uses nobody
//! ```
//!
//! What each room may not do is said at its door (its module docs).

pub mod account;
pub mod catalog;
pub mod conversation;
pub mod diag;
pub mod doors;
pub mod prompts;
pub mod run;
pub mod sim;
pub mod tool_cards;
pub mod tools;
pub mod turn;
pub mod wire;
