//! The engine: sessions, turns and runs, recovery, stored conversations, the model catalogue.
//!
//! ```text
//! turn              sessions and turns: what a host sees of a run
//!   ├─ run          one live run in one task: reads the stream, answers every request
//!   ├─ conversation stored state, and how a transcript continues
//!   └─ catalog      Cursor's models → models a host can register, and back
//! ```

pub mod catalog;
pub mod conversation;
pub mod run;
pub mod turn;

pub use agent_tools::prompts;
