//! `cursor-sidecar`: use Cursor's models outside Cursor.
//!
//! The modules. Dependencies point down only; a test reads the `use` lines to enforce it:
//!
//! ```text
//! main              parses arguments, runs one front end, maps errors to exit codes
//! doors             front ends, which only translate
//!   └─ turn         sessions and turns: what a host sees of a run
//!        ├─ run     one live run in one task: reads the stream, answers every request
//!        ├─ conversation   stored state, and how a transcript continues
//!        ├─ tools   decides who executes a tool call, and executes native tools
//!        ├─ tool_cards  completed native tool calls → tool cards or lines of text
//!        ├─ catalog Cursor's models → models a host can register, and back
//!        └─ account API key → access token
//!             └─ wire    Cursor's protocol: envelopes, transports, headers, errors
//! sim               a simulated Cursor backend; uses wire only
//! prompts           every text we write to a model; uses no other module
//! diag              settings, state directory, debug log, timeline; used by all, uses none
//! ```
//!
//! The docs of each module say what it must not do.

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
