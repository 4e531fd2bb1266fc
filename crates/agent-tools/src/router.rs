//! Routes each native tool to the executor that the current turn has decided on.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::permission::{CurrentTools, GrantedTools, is_permitted};
use crate::policy::{DenialReason, NativeTool, ToolDecision};
use crate::prompts;
use crate::rejection::{self, Rejector};
use crate::{ExecRequest, ExecTask, Executor, ReplySender};

/// Routes requests by tool.
pub(super) struct ToolRouter {
    /// The decisions of the current turn.
    pub(super) current: CurrentTools,
    /// Executes tools in this process.
    pub(super) local: Arc<dyn Executor>,
    /// Executes tools in the host.
    pub(super) host: Arc<dyn Executor>,
    /// Answers requests that belong to no tool, and refuses the rest.
    pub(super) refuse: Arc<Rejector>,
    /// Permissions that the host granted for the session.
    pub(super) granted: GrantedTools,
}

impl ToolRouter {
    fn refusing(&self, tool: NativeTool, denial: DenialReason) -> Arc<dyn Executor> {
        let current = self.current.borrow();
        let host_problem = match denial {
            DenialReason::NoHostTool => current.host.problem(tool),
            _ => None,
        };
        Arc::new(Rejector {
            facts: self.refuse.facts.clone(),
            denial,
            available: current.decisions.available(),
            host_problem,
        })
    }

    fn refuse_mcp(&self, request: ExecRequest, replies: ReplySender) -> ExecTask {
        let reason = prompts::refusals::HOST_TOOLS_OFF.to_owned();
        let done = async move {
            replies.send(rejection::refusal(request, reason)?).await;
            Ok(())
        };
        ExecTask {
            done: Box::pin(done),
            call: None,
        }
    }

    /// Executes a request here if the host permits it.
    fn ask(
        &self,
        tool: NativeTool,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let granted = self.granted.clone();
        let mut current = self.current.clone();
        let local = Arc::clone(&self.local);
        let declined = self.refusing(tool, DenialReason::Declined);
        let done = async move {
            let permitted = tokio::select! {
                permitted = is_permitted(tool, &request, &granted, &mut current) => permitted,
                () = abort.cancelled() => false,
            };
            let executor = if permitted { local } else { declined };
            executor.execute(request, replies, abort).done.await
        };
        ExecTask {
            done: Box::pin(done),
            call: None,
        }
    }
}

fn calls_mcp_server(request: &ExecRequest) -> bool {
    matches!(
        request,
        ExecRequest::McpArgs(_)
            | ExecRequest::ListMcpResourcesExecArgs(_)
            | ExecRequest::ReadMcpResourceExecArgs(_)
    )
}

impl Executor for ToolRouter {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let Some(tool) = NativeTool::of(&request) else {
            let mcp_servers = self.current.borrow().mcp_servers;
            if calls_mcp_server(&request) && !mcp_servers {
                return self.refuse_mcp(request, replies);
            }
            return Arc::clone(&self.refuse).execute(request, replies, abort);
        };
        let decision = self.current.borrow().decisions.of(tool);
        match decision {
            ToolDecision::Local => Arc::clone(&self.local).execute(request, replies, abort),
            ToolDecision::Host => Arc::clone(&self.host).execute(request, replies, abort),
            ToolDecision::Ask => self.ask(tool, request, replies, abort),
            ToolDecision::Refuse(denial) => {
                self.refusing(tool, denial).execute(request, replies, abort)
            }
        }
    }
}
