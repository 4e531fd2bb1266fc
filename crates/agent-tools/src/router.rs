//! Decides what answers each exec request: a tool of the host, a handler in this process, or a refusal.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::bridge::Bridge;
use crate::bridge::tool_set::PROVIDER;
use crate::permission::{CurrentTools, GrantedTools, is_permitted};
use crate::policy::{DenialReason, NativeTool, ToolDecision};
use crate::prompts;
use crate::rejection::{self, Rejector};
use crate::{ExecReply, ExecRequest, ExecTask, Executor, PendingQuestion, ReplySender};
use cursor_proto::agent::v1::{AskQuestionArgs, McpArgs};

/// Routes each request by its kind and the decisions of the current turn.
pub(super) struct ToolRouter {
    /// The tools that the host offers; `None` for a run without a host.
    pub(super) host_tools: Option<Arc<Bridge>>,
    /// The decisions of the current turn.
    pub(super) current: CurrentTools,
    /// Executes tools in this process.
    pub(super) local: Arc<dyn Executor>,
    /// Executes tools in the host.
    pub(super) host: Arc<dyn Executor>,
    /// Answers requests about the context and MCP servers, and refuses the rest.
    pub(super) refuse: Arc<Rejector>,
    /// Permissions that the host granted for the session.
    pub(super) granted: GrantedTools,
}

/// What answers a request.
enum ToolRoute<'a> {
    /// A tool of the host that the model has called by name.
    HostTool(&'a Bridge, &'a McpArgs),
    /// A handler in this process.
    Local,
    /// A handler in this process, if the host permits it.
    Ask(NativeTool),
    /// A tool of the host, in place of a native one.
    Delegate,
    /// The context of the run, the user's MCP servers, or the refusal of an unsupported kind.
    Context,
    /// A refusal of a native tool.
    Refuse(NativeTool, DenialReason),
    /// A refusal, because MCP servers are off in this turn.
    RefuseMcp,
}

impl ToolRouter {
    fn route<'a>(&'a self, request: &'a ExecRequest) -> ToolRoute<'a> {
        let current = self.current.borrow();
        let Some(tool) = NativeTool::of(request) else {
            return match (request, &self.host_tools) {
                (ExecRequest::McpArgs(args), Some(bridge)) if !self.is_for_other_server(args) => {
                    ToolRoute::HostTool(bridge, args)
                }
                _ if calls_mcp_server(request) && !current.mcp_servers => ToolRoute::RefuseMcp,
                _ => ToolRoute::Context,
            };
        };
        match current.decisions.of(tool) {
            ToolDecision::Local => ToolRoute::Local,
            ToolDecision::Host => ToolRoute::Delegate,
            ToolDecision::Ask => ToolRoute::Ask(tool),
            ToolDecision::Refuse(denial) => ToolRoute::Refuse(tool, denial),
        }
    }

    /// Returns whether a call is for one of the user's servers, or for an unknown one.
    fn is_for_other_server(&self, args: &McpArgs) -> bool {
        let named = !args.provider_identifier.is_empty() && args.provider_identifier != PROVIDER;
        named || self.refuse.facts.settings.servers.of(args).is_some()
    }

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

    /// Executes a request here if the host permits it.
    fn ask_permission(
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

fn call_host_tool(
    bridge: &Bridge,
    args: &McpArgs,
    replies: ReplySender,
    abort: CancellationToken,
) -> ExecTask {
    let (call, answer) = bridge.begin(args, abort);
    let done = async move {
        replies.send(ExecReply::McpResult(answer.await)).await;
        Ok(())
    };
    ExecTask {
        done: Box::pin(done),
        call,
    }
}

fn refuse_mcp(request: ExecRequest, replies: ReplySender) -> ExecTask {
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
        match self.route(&request) {
            ToolRoute::HostTool(bridge, args) => call_host_tool(bridge, args, replies, abort),
            ToolRoute::Local => Arc::clone(&self.local).execute(request, replies, abort),
            ToolRoute::Ask(tool) => self.ask_permission(tool, request, replies, abort),
            ToolRoute::Delegate => Arc::clone(&self.host).execute(request, replies, abort),
            ToolRoute::Context => Arc::clone(&self.refuse).execute(request, replies, abort),
            ToolRoute::Refuse(tool, denial) => {
                self.refusing(tool, denial).execute(request, replies, abort)
            }
            ToolRoute::RefuseMcp => refuse_mcp(request, replies),
        }
    }

    fn ask(&self, question: &AskQuestionArgs) -> Option<PendingQuestion> {
        let (call, answer) = self.host_tools.as_ref()?.question(question.clone())?;
        Some(PendingQuestion {
            call,
            answer: Box::pin(answer),
        })
    }
}
