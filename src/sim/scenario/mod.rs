//! Scenario files: what the simulated backend does in a run, step by step.
//!
//! This room reads files and finds their mistakes; it plays nothing. The format is
//! described in `docs/scenarios.md`.

mod asks;
mod check;
mod ending;
mod fields;
mod library;
mod server;
mod source;
mod step;
mod steps;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::connect::Code;

pub(super) use library::Library;
pub use library::Source;
pub(super) use server::{Fate, ServerSettings};

/// A mistake in a scenario file, or no way to read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// Something in the file is not as it should be.
    #[error("{file}:{line}: {message}")]
    Mistake {
        /// The file as it was named.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
    /// The file or folder cannot be read.
    #[error("cannot read scenario {file}: {reason}")]
    Unreadable {
        /// The file as it was named.
        file: String,
        /// What the system said.
        reason: String,
    },
}

impl ScenarioError {
    pub(super) fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self::Mistake {
            file: file.to_owned(),
            line,
            message: message.into(),
        }
    }
}

/// One scenario.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    /// The name a user message chooses it by.
    pub(super) name: String,
    /// The file it came from.
    pub(super) file: String,
    /// Settings of the whole server, for a scenario that is alone.
    pub(super) server: ServerSettings,
    /// Which runs are counted as attempts.
    pub(super) counting: Counting,
    /// What each attempt plays; the last one repeats.
    pub(super) runs: Vec<Script>,
}

/// Which runs are counted as attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Counting {
    /// Those of a conversation.
    #[default]
    ByConversation,
    /// All of them, whoever asks.
    All,
}

impl Scenario {
    /// The script of an attempt, from 1.
    pub(super) fn script(&self, attempt: usize) -> Option<&Script> {
        let index = attempt
            .saturating_sub(1)
            .min(self.runs.len().checked_sub(1)?);
        self.runs.get(index)
    }
}

/// What one run plays.
#[derive(Debug, Clone)]
pub(super) struct Script {
    /// Whether server envelopes are compressed.
    pub(super) compression: Compression,
    /// Where an attempt begins.
    pub(super) telling: Telling,
    /// What becomes of words said into the run.
    pub(super) injections: Injections,
    /// The steps in order.
    pub(super) steps: Vec<Step>,
}

/// What becomes of words said into the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Injections {
    /// Nobody speaks of them; they are left for `expect_client`.
    #[default]
    Unclaimed,
    /// They are taken up as soon as they come, and said to be.
    Delivered,
    /// They are put off until the next turn.
    PutOff,
    /// They are refused.
    Rejected,
}

/// Where an attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// At the first step.
    Afresh,
    /// Behind what the conversation that the client brings already knows.
    Onward,
}

/// Whether server envelopes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Compression {
    /// As they are.
    #[default]
    Identity,
    /// With gzip.
    Gzip,
}

/// One step.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Its line in the file.
    pub(super) line: usize,
    /// What it does.
    pub(super) action: Action,
    /// How long it may wait.
    pub(super) limit: Duration,
}

/// How long a step waits when it does not say.
pub(super) const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

/// What a step does.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Sends an `AgentServerMessage`.
    Send(Value),
    /// Sends a payload as it is.
    SendBytes(Bytes),
    /// Sends the same text many times.
    Deltas {
        /// The text of each.
        text: String,
        /// How many.
        count: u64,
    },
    /// Asks the client to do something.
    Exec(Box<ExecStep>),
    /// Waits for execs that were left open.
    Await(Vec<String>),
    /// Aborts an exec that was left open.
    Abort(String),
    /// Stores a blob on the client.
    KvSet(KvSet),
    /// Reads a blob back.
    KvGet(KvGet),
    /// Asks the person a question.
    Query(Ask),
    /// Sends a checkpoint.
    Checkpoint(CheckpointPlan),
    /// What the next automatic checkpoint says about tokens.
    TokenDetails(Value),
    /// Ends the stream.
    End(Ending),
    /// Answers with an HTTP status instead of a stream.
    Status(StatusPlan),
    /// Waits for a client message.
    ExpectClient {
        /// What it must contain.
        pattern: Value,
        /// What to keep of it.
        capture: Vec<Capture>,
    },
    /// Compares the run request.
    ExpectRequest(Value),
    /// Compares the request headers.
    ExpectHeaders(Value),
    /// The request must carry the last checkpoint, byte for byte.
    ExpectState,
    /// Reads what was said before back from the client and compares it.
    ExpectHistory(Value),
    /// Waits for the client to leave.
    ExpectCancel,
    /// Waits for a file.
    ExpectFile(Value),
    /// Keeps back what is said from here, so that it goes out in one piece.
    Together,
    /// Lets time pass, heartbeats included.
    Delay(Duration),
    /// Lets time pass without a sound.
    Silence(Duration),
    /// Does something no good server does.
    Fault(Fault),
}

/// An exec and what its answer must be.
#[derive(Debug, Clone)]
pub(super) struct ExecStep {
    /// The request: one case of `ExecServerMessage`.
    pub(super) args: Value,
    /// A fixed id instead of the next one.
    pub(super) id: Option<u32>,
    /// What the reply must contain.
    pub(super) expect: Option<Value>,
    /// What the events of a stream must contain, in order.
    pub(super) replies: Vec<Value>,
    /// The client must throw, with this in its message.
    pub(super) throws: Option<String>,
    /// The client may throw instead of replying, with this in its message.
    pub(super) may_throw: Option<String>,
    /// Whether to wait for the answer.
    pub(super) wait: Wait,
    /// A name for later steps.
    pub(super) name: Option<String>,
    /// Abort it after this long.
    pub(super) abort_after: Option<Duration>,
    /// What to keep of the reply.
    pub(super) capture: Vec<Capture>,
    /// In a story: words of the answer by which a conversation shows that it knows it.
    pub(super) told: Option<String>,
}

/// Whether a step waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// At once.
    Now,
    /// In a later `await`.
    Later,
}

/// A part of a reply kept under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Capture {
    /// The name.
    pub(super) name: String,
    /// JSON pointer into the reply.
    pub(super) pointer: String,
}

/// The content of a blob.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Blob {
    /// UTF-8 text; variables are filled in.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
    /// JSON text; variables are filled in.
    Json(Value),
}

/// A blob to store.
#[derive(Debug, Clone)]
pub(super) struct KvSet {
    /// Its content.
    pub(super) blob: Blob,
    /// An id that is not its hash.
    pub(super) blob_id: Option<Bytes>,
    /// A name for later steps.
    pub(super) name: Option<String>,
    /// A fixed request id instead of the next one.
    pub(super) id: Option<u32>,
}

/// A blob to read back.
#[derive(Debug, Clone)]
pub(super) struct KvGet {
    /// Which one.
    pub(super) key: BlobKey,
    /// What must come back.
    pub(super) expect: Option<Blob>,
    /// Whether it must be there.
    pub(super) presence: Presence,
    /// A fixed request id instead of the next one.
    pub(super) id: Option<u32>,
}

/// How a blob is named.
#[derive(Debug, Clone)]
pub(super) enum BlobKey {
    /// By the name an earlier step gave.
    Name(String),
    /// By its id.
    Id(Bytes),
}

/// Whether the client must have something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It must.
    Required,
    /// It must not.
    Missing,
}

/// A question to the person.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// One case of `InteractionQuery`.
    pub(super) query: Value,
    /// A fixed id instead of the next one.
    pub(super) id: Option<u32>,
    /// What the response must contain.
    pub(super) expect: Option<Value>,
    /// What to keep of it.
    pub(super) capture: Vec<Capture>,
}

/// Which state a checkpoint carries.
#[derive(Debug, Clone)]
pub(super) enum CheckpointPlan {
    /// This one.
    State(Value),
    /// The conversation so far, its parts stored as blobs first.
    Auto,
    /// The same as it stood when a tool was last asked for: on its way for longer than the tool
    /// took to answer.
    Late,
}

/// How a stream ends.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    /// Well.
    Success,
    /// With an error.
    Error(Box<ErrorPlan>),
}

/// An error that ends a stream.
#[derive(Debug, Clone)]
pub(super) struct ErrorPlan {
    /// Connect's code.
    pub(super) code: Code,
    /// Connect's message.
    pub(super) message: String,
    /// An `aiserver.v1.ErrorDetails`, if there is one.
    pub(super) details: Option<Value>,
    /// Metadata of the end-of-stream envelope.
    pub(super) metadata: Map<String, Value>,
}

/// An HTTP answer in place of a stream.
#[derive(Debug, Clone)]
pub(super) struct StatusPlan {
    /// The status.
    pub(super) status: u16,
    /// The body; a string as it is, anything else as JSON.
    pub(super) body: Option<Value>,
    /// Further headers.
    pub(super) headers: Vec<(String, String)>,
}

/// Things no good server does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Resets the stream.
    Reset(u32),
    /// Sends GOAWAY and closes the connection.
    GoAway(u32),
    /// Ends the body without an end-of-stream envelope.
    HalfClose,
    /// Says nothing more, ever.
    Stall,
    /// Sends only the beginning of an envelope and ends the body.
    Truncate(usize),
    /// Sends bytes that are no envelope.
    Garbage(Bytes),
    /// Announces an envelope of this size and sends nothing of it.
    Oversized(u32),
    /// Drops the connection.
    Cut,
    /// Sends an envelope piece by piece.
    Drip {
        /// The text it carries.
        text: String,
        /// Bytes a piece.
        bytes: usize,
        /// Time between pieces.
        every: Duration,
    },
    /// Grants the client no more room to send.
    HoldWindow,
}

impl Action {
    /// Whether nothing can follow.
    fn ends_the_run(&self) -> bool {
        match self {
            Self::End(_) | Self::Status(_) | Self::ExpectCancel => true,
            Self::Fault(fault) => matches!(
                fault,
                Fault::Reset(_)
                    | Fault::GoAway(_)
                    | Fault::HalfClose
                    | Fault::Stall
                    | Fault::Truncate(_)
                    | Fault::Cut
            ),
            _ => false,
        }
    }
}
