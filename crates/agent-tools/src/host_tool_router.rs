//! The executor of a run with a host: calls of the host's tools go to the host, everything else
//! to the executor of Cursor's tools and the user's MCP servers.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::bridge::Bridge;
use crate::bridge::tool_set::PROVIDER;
use crate::cursor_config::CursorConfig;
use crate::{ExecReply, ExecRequest, ExecTask, Executor, PendingQuestion, ReplySender};
use cursor_proto::agent::v1::{AskQuestionArgs, McpArgs};

/// Routes tool calls to the host or to the native executor.
pub struct HostToolRouter {
    /// The host's tools.
    pub bridge: Arc<Bridge>,
    /// The user's Cursor settings, which contain the MCP servers.
    pub settings: Arc<CursorConfig>,
    /// Executes everything else.
    pub native: Arc<dyn Executor>,
}

impl HostToolRouter {
    /// Returns whether a call is for one of the user's servers, or for an unknown one.
    fn is_for_other_server(&self, args: &McpArgs) -> bool {
        let named = !args.provider_identifier.is_empty() && args.provider_identifier != PROVIDER;
        named || self.settings.servers.of(args).is_some()
    }
}

impl Executor for HostToolRouter {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let args = match request {
            ExecRequest::McpArgs(args) if !self.is_for_other_server(&args) => args,
            other => return Arc::clone(&self.native).execute(other, replies, abort),
        };
        let (call, answer) = self.bridge.begin(&args, abort);
        let done = async move {
            replies.send(ExecReply::McpResult(answer.await)).await;
            Ok(())
        };
        ExecTask {
            done: Box::pin(done),
            call,
        }
    }
    fn ask(&self, question: &AskQuestionArgs) -> Option<PendingQuestion> {
        let (call, answer) = self.bridge.question(question.clone())?;
        Some(PendingQuestion {
            call,
            answer: Box::pin(answer),
        })
    }
}
