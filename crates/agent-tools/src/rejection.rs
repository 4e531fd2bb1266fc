//! Refusals: the typed result that rejects each kind of request.
//!
//! Every refused request is still answered, because the model reads the reason and continues;
//! without an answer the turn would hang.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::handlers::mcp;
use crate::policy::{DenialReason, NativeTool};
use crate::prompts::refusals;
use crate::request_context::RunContext;
use crate::tool_definition::ToolDefinition;
use crate::{ExecError, ExecReply, ExecRequest, ExecTask, Executor, ReplySender, request_context};
use cursor_proto::agent::v1::*;

/// Answers requests about the context and MCP servers, and refuses everything else.
#[derive(Debug, Clone)]
pub struct Rejector {
    /// The facts that the context reports.
    pub facts: RunContext,
    /// Why native tools are refused.
    pub denial: DenialReason,
    /// Names of native tools that are available instead.
    pub available: Vec<&'static str>,
    /// Why a tool of the host cannot be used for it.
    pub host_problem: Option<String>,
}

impl Default for Rejector {
    /// Refuses because the settings say so, without facts about the machine.
    fn default() -> Self {
        Self {
            facts: RunContext::default(),
            denial: DenialReason::Settings,
            available: Vec::new(),
            host_problem: None,
        }
    }
}

impl Executor for Rejector {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let done = async move {
            let reply = match request {
                ExecRequest::RequestContextArgs(_) => {
                    ExecReply::RequestContextResult(request_context::reply(&self.facts).await)
                }
                ExecRequest::McpStateExecArgs(args) => {
                    ExecReply::McpStateExecResult(mcp::state(&self.facts, &args))
                }
                ExecRequest::ListMcpResourcesExecArgs(args) => {
                    let result = mcp::resources(&self.facts, &args, &abort).await;
                    ExecReply::ListMcpResourcesExecResult(result)
                }
                ExecRequest::ReadMcpResourceExecArgs(args) => {
                    let result = mcp::read(&self.facts, args, &abort).await;
                    ExecReply::ReadMcpResourceExecResult(result)
                }
                ExecRequest::McpArgs(args) => {
                    let servers = &self.facts.settings.servers;
                    let result = servers.call(&args, abort).await;
                    ExecReply::McpResult(result.unwrap_or_else(|| self.mcp(args)))
                }
                other => self.answer(other)?,
            };
            replies.send(reply).await;
            Ok(())
        };
        ExecTask {
            done: Box::pin(done),
            call: None,
        }
    }
}

impl Rejector {
    /// Returns the reason for a refusal, and the tools that are available instead.
    fn reason(&self, request: &ExecRequest) -> String {
        let tool = NativeTool::of(request);
        let name = tool.map_or("this", NativeTool::name);
        let mut reason = match self.denial {
            DenialReason::NoHostTool if is_background_shell(request) => {
                refusals::BACKGROUND_NEEDS_LOCAL_SHELL.to_owned()
            }
            denial => self
                .host_problem
                .clone()
                .unwrap_or_else(|| refusals::denied(denial, name)),
        };
        let counterparts = tool.map(NativeTool::counterparts).unwrap_or_default();
        let offered = counterparts.iter().find_map(|name| {
            let same = |offer: &&ToolDefinition| offer.name.rsplit("__").next() == Some(name);
            self.facts.offers.iter().find(same)
        });
        let usable = !matches!(self.denial, DenialReason::PlanMode | DenialReason::Declined);
        if let Some(offer) = offered.filter(|_| usable) {
            reason.push_str(&refusals::use_instead(&offer.name));
        } else if !self.available.is_empty() && usable {
            reason.push_str(&refusals::available(&self.available));
        }
        reason
    }

    /// Returns the typed refusal of a request.
    pub(super) fn answer(&self, request: ExecRequest) -> Result<ExecReply, ExecError> {
        let reason = self.reason(&request);
        match request {
            ExecRequest::McpArgs(args) => Ok(ExecReply::McpResult(self.mcp(args))),
            other => refusal(other, reason),
        }
    }

    /// Returns the names of all tool groups: those of the offers and the user's MCP servers.
    fn server_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.facts.offers.iter().map(|offer| &offer.provider) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names.extend(self.facts.settings.servers.names());
        names
    }

    /// Refuses a call of a host tool when no host is attached.
    fn mcp(&self, args: McpArgs) -> McpResult {
        let known: Vec<&ToolDefinition> = self
            .facts
            .offers
            .iter()
            .filter(|offer| offer.provider == args.provider_identifier)
            .collect();
        let result = if known.is_empty() {
            mcp_result::Result::ServerNotFound(McpServerNotFound {
                name: args.provider_identifier,
                available_servers: self.server_names(),
            })
        } else if known.iter().any(|offer| offer.name == args.name) {
            mcp_result::Result::Rejected(McpRejected {
                reason: refusals::NO_HOST.into(),
                ..McpRejected::default()
            })
        } else {
            mcp_result::Result::ToolNotFound(McpToolNotFound {
                name: args.name,
                available_tools: known.iter().map(|offer| offer.name.clone()).collect(),
            })
        };
        McpResult {
            result: Some(result),
        }
    }
}

/// Whether a request needs a shell that keeps commands running in the background.
fn is_background_shell(request: &ExecRequest) -> bool {
    matches!(
        request,
        ExecRequest::BackgroundShellSpawnArgs(_)
            | ExecRequest::WriteShellStdinArgs(_)
            | ExecRequest::ForceBackgroundShellArgs(_)
    )
}

/// Returns the typed refusal of a request with this reason, or an error if it has none.
pub(super) fn refusal(request: ExecRequest, reason: String) -> Result<ExecReply, ExecError> {
    Ok(match request {
        // Answered before this is reached.
        ExecRequest::RequestContextArgs(_) => return Err(unsupported("request_context_args")),
        ExecRequest::ReadArgs(args) => ExecReply::ReadResult(read(args, reason)),
        ExecRequest::LsArgs(args) => ExecReply::LsResult(LsResult {
            result: Some(ls_result::Result::Rejected(LsRejected {
                path: args.path,
                reason,
            })),
        }),
        ExecRequest::WriteArgs(args) => ExecReply::WriteResult(WriteResult {
            result: Some(write_result::Result::Rejected(WriteRejected {
                path: args.path,
                reason,
            })),
        }),
        ExecRequest::DeleteArgs(args) => ExecReply::DeleteResult(DeleteResult {
            result: Some(delete_result::Result::Rejected(DeleteRejected {
                path: args.path,
                reason,
            })),
        }),
        ExecRequest::DiagnosticsArgs(args) => ExecReply::DiagnosticsResult(DiagnosticsResult {
            result: Some(diagnostics_result::Result::Rejected(DiagnosticsRejected {
                path: args.path,
                reason,
            })),
        }),
        ExecRequest::GrepArgs(_) => ExecReply::GrepResult(GrepResult {
            result: Some(grep_result::Result::Error(GrepError { error: reason })),
        }),
        ExecRequest::ShellArgs(args) => ExecReply::ShellResult(shell(args, reason)),
        ExecRequest::MiniSweAgentBashArgs(args) => {
            ExecReply::MiniSweAgentBashResult(shell(args, reason))
        }
        ExecRequest::ShellStreamArgs(args) => ExecReply::ShellStream(ShellStream {
            event: Some(shell_stream::Event::Rejected(rejected_shell(
                args.command,
                args.working_directory,
                reason,
            ))),
        }),
        ExecRequest::BackgroundShellSpawnArgs(args) => {
            ExecReply::BackgroundShellSpawnResult(BackgroundShellSpawnResult {
                result: Some(background_shell_spawn_result::Result::Rejected(
                    rejected_shell(args.command, args.working_directory, reason),
                )),
            })
        }
        ExecRequest::WriteShellStdinArgs(_) => {
            ExecReply::WriteShellStdinResult(WriteShellStdinResult {
                result: Some(write_shell_stdin_result::Result::Error(
                    WriteShellStdinError { error: reason },
                )),
            })
        }
        ExecRequest::ForceBackgroundShellArgs(_) => {
            ExecReply::ForceBackgroundShellResult(ForceBackgroundShellResult {
                status: ForceBackgroundShellStatus::NotFound as i32,
                shell_result: None,
            })
        }
        ExecRequest::ForceBackgroundSubagentArgs(_) => {
            ExecReply::ForceBackgroundSubagentResult(ForceBackgroundSubagentResult {
                status: ForceBackgroundSubagentStatus::NotFound as i32,
            })
        }
        ExecRequest::FetchArgs(args) => ExecReply::FetchResult(FetchResult {
            result: Some(fetch_result::Result::Error(FetchError {
                url: args.url,
                error: reason,
            })),
        }),
        ExecRequest::McpArgs(_) => ExecReply::McpResult(McpResult {
            result: Some(mcp_result::Result::Rejected(McpRejected {
                reason,
                ..McpRejected::default()
            })),
        }),
        // Answered before this is reached.
        ExecRequest::McpStateExecArgs(_) => return Err(unsupported("mcp_state_exec_args")),
        ExecRequest::ListMcpResourcesExecArgs(_) => {
            let rejected = ListMcpResourcesRejected { reason };
            ExecReply::ListMcpResourcesExecResult(ListMcpResourcesExecResult {
                result: Some(list_mcp_resources_exec_result::Result::Rejected(rejected)),
            })
        }
        ExecRequest::ReadMcpResourceExecArgs(args) => {
            let uri = args.uri;
            let rejected = ReadMcpResourceRejected { uri, reason };
            ExecReply::ReadMcpResourceExecResult(ReadMcpResourceExecResult {
                result: Some(read_mcp_resource_exec_result::Result::Rejected(rejected)),
            })
        }
        ExecRequest::SubagentArgs(_) => ExecReply::SubagentResult(SubagentResult {
            result: Some(subagent_result::Result::Error(SubagentError {
                agent_id: None,
                error: refusals::NO_SUBAGENTS.into(),
            })),
        }),
        ExecRequest::SubagentAwaitArgs(args) => {
            ExecReply::SubagentAwaitResult(SubagentAwaitResult {
                result: Some(subagent_await_result::Result::NotFound(
                    SubagentAwaitNotFound {
                        agent_id: args.agent_id,
                    },
                )),
            })
        }
        ExecRequest::ShellAllowlistPrecheckArgs(_) => {
            ExecReply::ShellAllowlistPrecheckResult(ShellAllowlistPrecheckResult::default())
        }
        ExecRequest::McpAllowlistPrecheckArgs(_) => {
            ExecReply::McpAllowlistPrecheckResult(McpAllowlistPrecheckResult::default())
        }
        ExecRequest::WebFetchAllowlistPrecheckArgs(_) => {
            ExecReply::WebFetchAllowlistPrecheckResult(WebFetchAllowlistPrecheckResult::default())
        }
        ExecRequest::PiReadArgs(_) => ExecReply::PiReadResult(PiReadExecResult {
            result: Some(pi_read_exec_result::Result::Error(PiReadExecError {
                error: reason,
            })),
        }),
        ExecRequest::PiBashArgs(_) => ExecReply::PiBashResult(PiBashExecResult {
            result: Some(pi_bash_exec_result::Result::Error(PiBashExecError {
                error: reason,
                ..PiBashExecError::default()
            })),
        }),
        ExecRequest::PiEditArgs(_) => ExecReply::PiEditResult(PiEditExecResult {
            result: Some(pi_edit_exec_result::Result::Error(PiEditExecError {
                error: reason,
            })),
        }),
        ExecRequest::PiWriteArgs(_) => ExecReply::PiWriteResult(PiWriteExecResult {
            result: Some(pi_write_exec_result::Result::Error(PiWriteExecError {
                error: reason,
            })),
        }),
        ExecRequest::PiGrepArgs(_) => ExecReply::PiGrepResult(PiGrepExecResult {
            result: Some(pi_grep_exec_result::Result::Error(PiGrepExecError {
                error: reason,
            })),
        }),
        ExecRequest::PiFindArgs(_) => ExecReply::PiFindResult(PiFindExecResult {
            result: Some(pi_find_exec_result::Result::Error(PiFindExecError {
                error: reason,
            })),
        }),
        ExecRequest::PiLsArgs(_) => ExecReply::PiLsResult(PiLsExecResult {
            result: Some(pi_ls_exec_result::Result::Error(PiLsExecError {
                error: reason,
            })),
        }),
        // Its result type has no refusal.
        ExecRequest::GitDiffRequest(_) => return Err(ExecError(reason)),
        // The official local client has no handler for these kinds either.
        ExecRequest::RedactedReadArgs(_) => return Err(unsupported("redacted_read_args")),
        ExecRequest::ExecuteHookArgs(_) => return Err(unsupported("execute_hook_args")),
        ExecRequest::ComputerUseArgs(_) => return Err(unsupported("computer_use_args")),
        ExecRequest::RecordScreenArgs(_) => return Err(unsupported("record_screen_args")),
        ExecRequest::SmartModeClassifierArgs(_) => {
            return Err(unsupported("smart_mode_classifier_args"));
        }
        ExecRequest::CanvasDiagnosticsArgs(_) => {
            return Err(unsupported("canvas_diagnostics_args"));
        }
        ExecRequest::ConversationSearchArgs(_) => {
            return Err(unsupported("conversation_search_args"));
        }
        ExecRequest::AgentStoreConflictArgs(_) => {
            return Err(unsupported("agent_store_conflict_args"));
        }
        ExecRequest::AdoptArgs(_) => return Err(unsupported("adopt_args")),
    })
}

fn unsupported(kind: &str) -> ExecError {
    ExecError(refusals::no_handler(kind))
}

fn read(args: ReadArgs, reason: String) -> ReadResult {
    ReadResult {
        result: Some(read_result::Result::Rejected(ReadRejected {
            path: args.path,
            reason,
        })),
    }
}

fn shell(args: ShellArgs, reason: String) -> ShellResult {
    ShellResult {
        result: Some(shell_result::Result::Rejected(rejected_shell(
            args.command,
            args.working_directory,
            reason,
        ))),
        ..ShellResult::default()
    }
}

fn rejected_shell(command: String, working_directory: String, reason: String) -> ShellRejected {
    ShellRejected {
        command,
        working_directory,
        reason,
        is_readonly: false,
    }
}
