//! One run of the Cursor agent: one task owns the stream, reads it, and answers every request.
//!
//! The task never waits for its consumer or its executors: events and replies are queued while
//! heartbeats, aborts and answers continue. It decides when to retry; its caller decides what to
//! send in the first place.

mod assemble;
mod attempt;
mod backend;
mod blobs;
mod checkpoint_contents;
mod event;
mod limits;
mod open_execs;
mod pending_events;
mod query_replies;
pub mod queue;
mod request;
mod retry;
mod run_task;
mod stream_stats;
mod watchdog;

pub use assemble::{AssembleError, dashboard};
pub use backend::{Backend, OpenError};
pub use blobs::{BlobError, Blobs, MemoryBlobs};
pub(crate) use checkpoint_contents::{CheckpointContents, ResultEvidence};
pub use event::{Checkpoint, Ended, FailedAttempt, Outcome, RunEvent, Usage};
pub use limits::LimitError;
pub(crate) use pending_events::PendingEvents;
pub use request::{Action, Image, Mode, Model, RunSpec, UserMessage};
pub use retry::{
    Progress, RetriesUsed, RetryBudget, RetryDecision, RetryPolicy, Timing, VisibleProgress,
};
pub use run_task::{Command, Handle, Injection, start};
pub use watchdog::{Idle, IdleLimits, RETRIES};

pub use cursor_client::headers::BlobKey;
pub use cursor_proto::tool_gates::ToolGates;
