//! Execution of the tools that Cursor's agent requests on the exec channel.
//!
//! A run passes every request to an [`Executor`] and sends its replies back; the executor knows
//! nothing of streams, ids or heartbeats.
//!
//! ```text
//! router            decides once what answers each request, by its kind and the turn's policy
//!   ├─ bridge       tools of the host: offered to a run, pending calls, the MCP endpoint
//!   ├─ handlers     executed in this process
//!   ├─ host_delegate  executed by a tool of the host
//!   └─ rejection    refused with the typed result that the server expects
//! shell             sessions, foreground and background commands, the reaper
//! workspace         which paths may be accessed, ignore files, repositories
//! cursor_config     the user's rules, skills, hooks and MCP servers
//! prompts           every text written to a model
//! tool_cards        what a host displays for a native tool call
//! ```

pub mod bridge;
pub mod cursor_config;
mod errno;
pub mod handlers;
pub mod host_delegate;
mod line_diff;
pub mod local_http;
pub mod permission;
pub mod policy;
pub mod prompts;
pub mod rejection;
pub mod request_context;
mod router;
pub mod shell;
pub mod surrogates;
pub mod tool_cards;
pub mod tool_definition;
pub mod workspace;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use bridge::HostCall;

use cursor_proto::agent::v1::{
    AskQuestionArgs, AskQuestionResult, exec_client_message, exec_server_message,
};

/// An exec request of the server.
pub type ExecRequest = exec_server_message::Message;
/// One complete or partial result.
pub type ExecReply = exec_client_message::Message;

/// Executes exec requests.
pub trait Executor: Send + Sync + 'static {
    /// Starts work on one request; all its results go to `replies`. When `abort` fires, the work
    /// should end soon with a result that reports it.
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask;

    /// Asks the user a question of the model; returns `None` if the host cannot ask.
    fn ask(&self, _question: &AskQuestionArgs) -> Option<PendingQuestion> {
        None
    }
}

/// A question that has been sent to the host.
pub struct PendingQuestion {
    /// The call that the host must execute for it.
    pub call: HostCall,
    /// The user's answer.
    pub answer: Pin<Box<dyn Future<Output = AskQuestionResult> + Send>>,
}

/// Work that has started.
pub struct ExecTask {
    /// Completes when the work is done. An error is reported to the server as a failure of the
    /// whole request.
    pub done: Pin<Box<dyn Future<Output = Result<(), ExecError>> + Send>>,
    /// The call that the host must execute for it.
    pub call: Option<HostCall>,
}

/// A request that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExecError(pub String);

/// What an executor sends while it works on a request.
#[derive(Debug)]
pub enum ExecOutput {
    /// A result.
    Reply(Box<ExecReply>),
    /// A call that the host must execute.
    Call(HostCall),
}

/// Sends the results of one request.
#[derive(Debug, Clone)]
pub struct ReplySender {
    id: u32,
    queue: mpsc::Sender<(u32, ExecOutput)>,
}

impl ReplySender {
    /// Creates a sender of the results of request `id` to `queue`.
    pub fn new(id: u32, queue: mpsc::Sender<(u32, ExecOutput)>) -> Self {
        Self { id, queue }
    }

    /// Sends one result. Waits while the queue is full; the result is dropped if the run has
    /// ended.
    pub async fn send(&self, reply: ExecReply) {
        let output = ExecOutput::Reply(Box::new(reply));
        let _ = self.queue.send((self.id, output)).await;
    }

    /// Sends the host a call that was not known when the work started.
    pub async fn call(&self, call: HostCall) {
        let _ = self.queue.send((self.id, ExecOutput::Call(call))).await;
    }
}
