//! The executor of a run with a host behind it: the host's own tools go to the host,
//! everything else to whoever executes Cursor's tools and calls the user's MCP servers.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::bridge::Bridge;
use super::bridge::snapshot::PROVIDER;
use super::settings::Settings;
use super::{Asking, Executor, Replies, Reply, Request, Work};
use crate::wire::proto::agent::v1::{AskQuestionArgs, McpArgs};

/// Routes requests.
pub struct Hosted {
    /// The host's tools.
    pub bridge: Arc<Bridge>,
    /// The user's MCP servers are in it.
    pub settings: Arc<Settings>,
    /// Everything else.
    pub native: Arc<dyn Executor>,
}

impl Hosted {
    /// Whether a call is for a server of the user, or for one nobody knows.
    fn is_elsewhere(&self, args: &McpArgs) -> bool {
        let named = !args.provider_identifier.is_empty() && args.provider_identifier != PROVIDER;
        named || self.settings.servers.of(args).is_some()
    }
}

impl Executor for Hosted {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let args = match request {
            Request::McpArgs(args) if !self.is_elsewhere(&args) => args,
            other => return Arc::clone(&self.native).execute(other, replies, abort),
        };
        let (call, answer) = self.bridge.begin(&args, abort);
        let done = async move {
            replies.send(Reply::McpResult(answer.await)).await;
            Ok(())
        };
        Work {
            done: Box::pin(done),
            call,
        }
    }
    fn ask(&self, question: &AskQuestionArgs) -> Option<Asking> {
        let (call, answer) = self.bridge.question(question.clone())?;
        Some(Asking {
            call,
            answer: Box::pin(answer),
        })
    }
}
