//! Who executes what Cursor's agent asks for on the exec channel.
//!
//! A run hands every request to an [`Executor`] and sends back whatever it replies; the
//! executor knows nothing of streams, ids or heartbeats. Calls of the host's tools wait for
//! the host ([`bridge`]); Cursor's own tools are executed here ([`native`]), by the host's tools
//! ([`by_host`]), or get the typed refusal the server expects ([`refuse::Refuse`]), as the user's
//! settings say. The user's Cursor settings ([`settings`]) bring MCP servers and hooks.

pub mod bridge;
pub mod by_host;
pub mod context;
mod git;
pub mod hosted;
pub mod leash;
pub mod loopback;
pub mod native;
pub mod offer;
mod paths;
pub mod permission;
pub mod refuse;
mod router;
mod servers;
pub mod settings;
pub mod surrogates;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use bridge::HostCall;

use crate::wire::proto::agent::v1::{
    AskQuestionArgs, AskQuestionResult, exec_client_message, exec_server_message,
};

/// What the server asks to be done.
pub type Request = exec_server_message::Message;
/// One (partial) result.
pub type Reply = exec_client_message::Message;

/// Executes requests.
pub trait Executor: Send + Sync + 'static {
    /// Begins work on one request; all its results go to `replies`. When `abort` fires, the
    /// work should end soon, with whatever result says so.
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work;

    /// Puts a question of the model to a person; `None` if nobody is there to ask.
    fn ask(&self, _question: &AskQuestionArgs) -> Option<Asking> {
        None
    }
}

/// A question that has been put to the host.
pub struct Asking {
    /// What the host has to do for it.
    pub call: HostCall,
    /// What the person says.
    pub answer: Pin<Box<dyn Future<Output = AskQuestionResult> + Send>>,
}

/// Work that has begun.
pub struct Work {
    /// Runs until the work is done. An error tells the server that the request failed as a
    /// whole.
    pub done: Pin<Box<dyn Future<Output = Result<(), Thrown>> + Send>>,
    /// What the host has to do for it.
    pub call: Option<HostCall>,
}

/// A request that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Thrown(pub String);

/// What an executor has to say of a request.
#[derive(Debug)]
pub enum Said {
    /// A result.
    Reply(Box<Reply>),
    /// The host has to do something for it.
    Call(HostCall),
}

/// Where the results of one request go.
#[derive(Debug, Clone)]
pub struct Replies {
    id: u32,
    queue: mpsc::Sender<(u32, Said)>,
}

impl Replies {
    /// Results of request `id` go to `queue`.
    pub fn new(id: u32, queue: mpsc::Sender<(u32, Said)>) -> Self {
        Self { id, queue }
    }

    /// Sends one result. Waits while the run has no room; a run that is gone takes nothing.
    pub async fn send(&self, reply: Reply) {
        let said = Said::Reply(Box::new(reply));
        let _ = self.queue.send((self.id, said)).await;
    }

    /// Has the host do something that was not known when the work began.
    pub async fn call(&self, call: HostCall) {
        let _ = self.queue.send((self.id, Said::Call(call))).await;
    }
}
