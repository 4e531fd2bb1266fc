//! Scenario files: what the simulated backend does in a run, step by step.
//!
//! This module reads and checks files; `script` plays them. `docs/scenarios.md` describes the
//! format.

mod check;
mod end_steps;
mod library;
mod request_steps;
mod server_settings;
mod source;
mod step;
mod steps;
mod table_reader;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::connect::Code;

pub(super) use library::ScenarioLibrary;
pub use library::ScenarioSource;
pub(super) use server_settings::{CannedAction, ServerSettings};

/// An invalid or unreadable scenario file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file is invalid.
    #[error("{file}:{line}: {message}")]
    Invalid {
        /// The file as it was named.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what is expected.
        message: String,
    },
    /// The file or folder cannot be read.
    #[error("cannot read scenario {file}: {reason}")]
    Unreadable {
        /// The file as it was named.
        file: String,
        /// The system's error.
        reason: String,
    },
}

impl ScenarioError {
    pub(super) fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self::Invalid {
            file: file.to_owned(),
            line,
            message: message.into(),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    /// The name a user message selects it by.
    pub(super) name: String,
    pub(super) file: String,
    /// Settings of the backend; used only for a single scenario.
    pub(super) server: ServerSettings,
    /// Which runs count as attempts.
    pub(super) attempt_scope: AttemptScope,
    /// The script of each attempt; the last one repeats.
    pub(super) runs: Vec<Script>,
}

/// Which runs count as attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AttemptScope {
    /// Those of the same conversation.
    #[default]
    Conversation,
    /// Those of all conversations.
    All,
}

impl Scenario {
    /// Returns the script of an attempt, counted from 1.
    pub(super) fn script(&self, attempt: usize) -> Option<&Script> {
        let index = attempt
            .saturating_sub(1)
            .min(self.runs.len().checked_sub(1)?);
        self.runs.get(index)
    }
}

/// The script of one run.
#[derive(Debug, Clone)]
pub(super) struct Script {
    /// The compression of server envelopes.
    pub(super) compression: Compression,
    /// Whether an attempt skips the steps that its conversation already contains.
    pub(super) resumable: bool,
    /// How injected messages are handled.
    pub(super) injections: InjectionPolicy,
    /// The steps in order.
    pub(super) steps: Vec<ScenarioStep>,
}

/// How messages that the client injects into the run are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum InjectionPolicy {
    /// They are left for `expect_client`.
    #[default]
    Unclaimed,
    /// They are reported as delivered on arrival.
    Delivered,
    /// They are reported as queued for the next turn.
    Deferred,
    /// They are reported as rejected.
    Rejected,
}

/// The compression of server envelopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Compression {
    /// None.
    #[default]
    Identity,
    Gzip,
}

#[derive(Debug, Clone)]
pub(super) struct ScenarioStep {
    /// Its line in the file.
    pub(super) line: usize,
    /// What it does.
    pub(super) action: StepAction,
    /// How long it may take.
    pub(super) limit: Duration,
}

pub(super) const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

/// What a step does.
#[derive(Debug, Clone)]
pub(super) enum StepAction {
    /// Sends an `AgentServerMessage`.
    Send(Value),
    /// Sends a payload as it is.
    SendBytes(Bytes),
    /// Sends the same text many times.
    Deltas {
        text: String,
        /// How many.
        count: u64,
    },
    /// Sends an exec request.
    Exec(Box<ExecStep>),
    /// Waits for execs that were left open.
    Await(Vec<String>),
    /// Aborts an exec that was left open.
    Abort(String),
    /// Stores a blob on the client.
    KvSet(KvSet),
    /// Reads a blob back.
    KvGet(KvGet),
    /// Sends an interaction query.
    Query(QueryStep),
    /// Sends a checkpoint.
    Checkpoint(CheckpointPlan),
    /// Sets the token details of later automatic checkpoints.
    TokenDetails(Value),
    End(StreamEnd),
    /// Responds with an HTTP status instead of a stream.
    Status(StatusPlan),
    /// Waits for a client message.
    ExpectClient {
        /// What it must contain.
        pattern: Value,
        /// What to store of it.
        capture: Vec<Capture>,
    },
    /// Compares the run request.
    ExpectRequest(Value),
    /// Compares the request headers.
    ExpectHeaders(Value),
    /// Requires that the request has the last checkpoint, byte for byte.
    ExpectState,
    /// Reads the history back from the client and compares it.
    ExpectHistory(Value),
    /// Waits until the client ends its side or disconnects.
    ExpectCancel,
    /// Waits until a file exists.
    ExpectFile(Value),
    /// Buffers what is sent from here on, so that it is sent in one piece.
    Together,
    /// Waits, with heartbeats.
    Delay(Duration),
    /// Waits without heartbeats.
    Silence(Duration),
    /// Causes a fault.
    Fault(ServerFault),
}

/// An exec request and the expected answer.
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
    /// Whether the script continues at once; a later `await` waits for the answer.
    pub(super) leave_open: bool,
    /// A name for later steps.
    pub(super) name: Option<String>,
    /// Abort it after this long.
    pub(super) abort_after: Option<Duration>,
    /// What to store of the reply.
    pub(super) capture: Vec<Capture>,
    /// In a resumable script: text that marks this exec as answered if the conversation
    /// contains it.
    pub(super) answer_marker: Option<String>,
}

/// A part of a reply that is stored as a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Capture {
    pub(super) name: String,
    /// JSON pointer into the reply.
    pub(super) pointer: String,
}

/// The content of a blob.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Blob {
    /// UTF-8 text; variables are filled in.
    Text(String),
    Bytes(Bytes),
    /// JSON text; variables are filled in.
    Json(Value),
}

/// A blob to store.
#[derive(Debug, Clone)]
pub(super) struct KvSet {
    /// Its content.
    pub(super) blob: Blob,
    /// An id other than its hash.
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
    pub(super) key: BlobRef,
    /// The expected content.
    pub(super) expect: Option<Blob>,
    /// Whether the client must not have it.
    pub(super) must_be_missing: bool,
    /// A fixed request id instead of the next one.
    pub(super) id: Option<u32>,
}

/// A reference to a blob.
#[derive(Debug, Clone)]
pub(super) enum BlobRef {
    /// By the name from an earlier step.
    Name(String),
    Id(Bytes),
}

/// An interaction query and the expected response.
#[derive(Debug, Clone)]
pub(super) struct QueryStep {
    /// One case of `InteractionQuery`.
    pub(super) query: Value,
    /// A fixed id instead of the next one.
    pub(super) id: Option<u32>,
    /// What the response must contain.
    pub(super) expect: Option<Value>,
    /// What to store of it.
    pub(super) capture: Vec<Capture>,
}

/// The state of a checkpoint.
#[derive(Debug, Clone)]
pub(super) enum CheckpointPlan {
    /// This one.
    State(Value),
    /// The conversation so far; its parts are stored as blobs first.
    Auto,
    /// The conversation as it was before the last exec request, as if the checkpoint had taken
    /// longer than the tool.
    Late,
}

/// How a stream ends.
#[derive(Debug, Clone)]
pub(super) enum StreamEnd {
    /// Without an error.
    Success,
    Error(Box<ErrorPlan>),
}

#[derive(Debug, Clone)]
pub(super) struct ErrorPlan {
    /// The Connect code.
    pub(super) code: Code,
    pub(super) message: String,
    /// An `aiserver.v1.ErrorDetails`, if there is one.
    pub(super) details: Option<Value>,
    /// Metadata of the end-of-stream envelope.
    pub(super) metadata: Map<String, Value>,
}

/// An HTTP response in place of a stream.
#[derive(Debug, Clone)]
pub(super) struct StatusPlan {
    pub(super) status: u16,
    /// The body: a string as it is, anything else as JSON.
    pub(super) body: Option<Value>,
    /// Additional headers.
    pub(super) headers: Vec<(String, String)>,
}

/// A fault that the server causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerFault {
    /// Resets the stream.
    Reset(u32),
    /// Sends GOAWAY and closes the connection.
    GoAway(u32),
    /// Ends the body without an end-of-stream envelope.
    HalfClose,
    /// Sends nothing more.
    Stall,
    /// Sends the beginning of an envelope and ends the body.
    Truncate(usize),
    /// Sends bytes that are not an envelope.
    Garbage(Bytes),
    /// Sends only the prefix of an envelope of this size.
    Oversized(u32),
    /// Drops the connection.
    Cut,
    /// Sends an envelope in pieces.
    Drip {
        text: String,
        /// Bytes per piece.
        bytes: usize,
        /// Time between pieces.
        every: Duration,
    },
    /// Stops granting the client flow-control capacity.
    HoldWindow,
}

impl StepAction {
    /// Returns whether no step can follow.
    fn ends_the_run(&self) -> bool {
        match self {
            Self::End(_) | Self::Status(_) | Self::ExpectCancel => true,
            Self::Fault(fault) => matches!(
                fault,
                ServerFault::Reset(_)
                    | ServerFault::GoAway(_)
                    | ServerFault::HalfClose
                    | ServerFault::Stall
                    | ServerFault::Truncate(_)
                    | ServerFault::Cut
            ),
            _ => false,
        }
    }
}
