//! One run of the Cursor agent: one task owns the stream, reads it, and answers every request.
//!
//! The task never waits for its consumer or its executors: events and replies are queued while
//! heartbeats, aborts and answers continue. It decides when to retry; its caller decides what to
//! send in the first place.

mod answer;
mod assemble;
mod attempt;
mod backend;
mod blobs;
mod driver;
mod event;
mod execs;
mod limits;
mod memo;
mod overlap;
mod owed;
pub mod queue;
mod request;
mod retry;
mod tally;
mod watchdog;

pub use assemble::{AssembleError, dashboard};
pub use backend::{Backend, OpenError};
pub use blobs::{BlobError, Blobs, MemoryBlobs};
pub use driver::{Command, Handle, Injection, start};
pub use event::{Checkpoint, Ended, Outcome, RunEvent, Usage};
pub use limits::LimitError;
pub use memo::{Memo, Start, What};
pub use request::{Action, Image, Mode, Model, RunSpec, UserMessage};
pub use retry::{Ledger, Next, Progress, Restarts, RetryPolicy, Shown, Spent, Timing};
pub use watchdog::{Idle, Patience, RETRIES, Told};

pub use cursor_client::headers::BlobKey;
pub use cursor_proto::tool_gates::ToolGates;
