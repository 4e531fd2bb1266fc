//! The executor of a run with a host behind it: the host's own tools go to the host,
//! everything else to whoever executes Cursor's tools.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::bridge::Bridge;
use super::{Executor, Replies, Reply, Request, Work};

/// Routes requests.
pub struct Hosted {
    /// The host's tools.
    pub bridge: Arc<Bridge>,
    /// Everything else.
    pub native: Arc<dyn Executor>,
}

impl Executor for Hosted {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let Request::McpArgs(args) = request else {
            return Arc::clone(&self.native).execute(request, replies, abort);
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
}
