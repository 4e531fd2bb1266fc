//! Routes each native tool to the executor that the current turn has decided on.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::native::policy::{Decision, Denial, Tool};
use super::permission::{CurrentTools, Granted, is_permitted};
use super::refuse::{self, Refuse};
use super::{Executor, Replies, Request, Work};

/// Routes requests by tool.
pub(super) struct NativeRouter {
    /// The decisions of the current turn.
    pub(super) current: CurrentTools,
    /// Executes tools in this process.
    pub(super) local: Arc<dyn Executor>,
    /// Executes tools in the host.
    pub(super) host: Arc<dyn Executor>,
    /// Answers requests that belong to no tool, and refuses the rest.
    pub(super) refuse: Arc<Refuse>,
    /// Permissions that the host granted for the session.
    pub(super) granted: Granted,
}

impl NativeRouter {
    fn refusing(&self, denial: Denial) -> Arc<dyn Executor> {
        let available = self.current.borrow().decisions.available();
        Arc::new(Refuse {
            facts: self.refuse.facts.clone(),
            denial,
            available,
        })
    }

    fn refuse_mcp(&self, request: Request, replies: Replies) -> Work {
        let reason = "the user has switched off all tools of the host".to_owned();
        let done = async move {
            replies.send(refuse::refusal(request, reason)?).await;
            Ok(())
        };
        Work {
            done: Box::pin(done),
            call: None,
        }
    }

    /// Executes a request here if the host permits it.
    fn ask(
        &self,
        tool: Tool,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let granted = self.granted.clone();
        let mut current = self.current.clone();
        let local = Arc::clone(&self.local);
        let declined = self.refusing(Denial::Declined);
        let done = async move {
            let permitted = tokio::select! {
                permitted = is_permitted(tool, &request, &granted, &mut current) => permitted,
                () = abort.cancelled() => false,
            };
            let executor = if permitted { local } else { declined };
            executor.execute(request, replies, abort).done.await
        };
        Work {
            done: Box::pin(done),
            call: None,
        }
    }
}

fn calls_mcp_server(request: &Request) -> bool {
    matches!(
        request,
        Request::McpArgs(_)
            | Request::ListMcpResourcesExecArgs(_)
            | Request::ReadMcpResourceExecArgs(_)
    )
}

impl Executor for NativeRouter {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let Some(tool) = Tool::of(&request) else {
            let mcp_servers = self.current.borrow().mcp_servers;
            if calls_mcp_server(&request) && !mcp_servers {
                return self.refuse_mcp(request, replies);
            }
            return Arc::clone(&self.refuse).execute(request, replies, abort);
        };
        let decision = self.current.borrow().decisions.of(tool);
        match decision {
            Decision::Local => Arc::clone(&self.local).execute(request, replies, abort),
            Decision::Host => Arc::clone(&self.host).execute(request, replies, abort),
            Decision::Ask => self.ask(tool, request, replies, abort),
            Decision::Refuse(denial) => self.refusing(denial).execute(request, replies, abort),
        }
    }
}
