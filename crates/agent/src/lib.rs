//! The engine: sessions, turns and runs, recovery, stored conversations, the model catalogue.
//!
//! ```text
//! session_manager   the sessions of a front end: lookup, queue, parked runs, retention
//! turn              sessions and turns: what a host sees of a run
//!   ├─ run          one live run in one task: reads the stream, answers every request
//!   ├─ conversation stored state, and how a transcript continues
//!   └─ catalog      Cursor's models → models a host can register, and back
//! effect_log        the record of tool calls, in memory and on disk
//! answer_log        the record of the text of a run
//! inbox             the record of user messages for a running model
//! message           the typed messages of a history
//! ```

pub mod answer_log;
pub mod catalog;
pub mod conversation;
pub mod effect_log;
mod hex;
pub mod inbox;
pub mod message;
mod phases;
pub mod run;
pub mod session_manager;
pub mod turn;

pub use agent_tools::prompts;
