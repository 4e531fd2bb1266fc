//! Refusals: the typed result that rejects each kind of request.
//!
//! Every refused request is still answered, because the model reads the reason and continues;
//! without an answer the turn would hang.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::context::Facts;
use super::native::policy::{Denial, Tool};
use super::offer::Offer;
use super::{Executor, Replies, Reply, Request, Thrown, Work, context, servers};
use cursor_proto::agent::v1::*;

/// Answers the request for context and refuses everything else.
#[derive(Debug, Clone)]
pub struct Refuse {
    /// The facts that the context reports.
    pub facts: Facts,
    /// Why native tools are refused.
    pub denial: Denial,
    /// Names of native tools that are available instead.
    pub available: Vec<&'static str>,
}

impl Default for Refuse {
    /// Refuses because the settings say so, without facts about the machine.
    fn default() -> Self {
        Self {
            facts: Facts::default(),
            denial: Denial::Settings,
            available: Vec::new(),
        }
    }
}

impl Executor for Refuse {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let done = async move {
            let reply = match request {
                Request::RequestContextArgs(_) => {
                    Reply::RequestContextResult(context::reply(&self.facts).await)
                }
                other => match servers::answer(&self.facts, other, abort).await {
                    Ok(reply) => reply,
                    Err(other) => self.answer(other)?,
                },
            };
            replies.send(reply).await;
            Ok(())
        };
        Work {
            done: Box::pin(done),
            call: None,
        }
    }
}

impl Refuse {
    /// Returns the reason for a refusal, and the tools that are available instead.
    fn reason(&self, request: &Request) -> String {
        let tool = Tool::of(request);
        let name = tool.map_or("this", Tool::name);
        let mut reason = match (self.denial, request) {
            (Denial::NoHostTool, request) if is_background_shell(request) => {
                "the host's shell runs commands in the foreground only; run the command in the \
                 foreground"
                    .to_owned()
            }
            (Denial::Denied, _) => format!("the user's settings deny this client the tool {name}"),
            (Denial::Host, _) => format!("this host does not allow Cursor's built-in tool {name}"),
            (Denial::SwitchedOff, _) => {
                format!("the user has switched off the host's tools for {name}")
            }
            (Denial::NoHostTool, _) => "this client leaves Cursor's built-in tools to the host, \
                                        which has none for this"
                .to_owned(),
            (Denial::PlanMode, _) => {
                format!("{name} is not available in plan mode: plan, change nothing")
            }
            (Denial::Declined, _) => "the user declined this; ask before you try again".to_owned(),
            (Denial::Settings, _) => {
                "this client does not execute Cursor's built-in tools".to_owned()
            }
        };
        let counterparts = tool.map(Tool::counterparts).unwrap_or_default();
        let offered = counterparts.iter().find_map(|name| {
            let same = |offer: &&Offer| offer.name.rsplit("__").next() == Some(name);
            self.facts.offers.iter().find(same)
        });
        let usable = !matches!(self.denial, Denial::PlanMode | Denial::Declined);
        if let Some(offer) = offered.filter(|_| usable) {
            reason.push_str(&format!("; use the tool {} instead", offer.name));
        } else if !self.available.is_empty() && usable {
            reason.push_str(&format!("; available: {}", self.available.join(", ")));
        }
        reason
    }

    /// Returns the typed refusal of a request.
    pub(super) fn answer(&self, request: Request) -> Result<Reply, Thrown> {
        let reason = self.reason(&request);
        match request {
            Request::McpArgs(args) => Ok(Reply::McpResult(self.mcp(args))),
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
        let known: Vec<&Offer> = self
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
                reason: "no host is attached that could run this tool".into(),
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
fn is_background_shell(request: &Request) -> bool {
    matches!(
        request,
        Request::BackgroundShellSpawnArgs(_)
            | Request::WriteShellStdinArgs(_)
            | Request::ForceBackgroundShellArgs(_)
    )
}

/// Returns the typed refusal of a request with this reason, or an error if it has none.
pub(super) fn refusal(request: Request, reason: String) -> Result<Reply, Thrown> {
    Ok(match request {
        // Answered before this is reached.
        Request::RequestContextArgs(_) => return Err(unsupported("request_context_args")),
        Request::ReadArgs(args) => Reply::ReadResult(read(args, reason)),
        Request::LsArgs(args) => Reply::LsResult(LsResult {
            result: Some(ls_result::Result::Rejected(LsRejected {
                path: args.path,
                reason,
            })),
        }),
        Request::WriteArgs(args) => Reply::WriteResult(WriteResult {
            result: Some(write_result::Result::Rejected(WriteRejected {
                path: args.path,
                reason,
            })),
        }),
        Request::DeleteArgs(args) => Reply::DeleteResult(DeleteResult {
            result: Some(delete_result::Result::Rejected(DeleteRejected {
                path: args.path,
                reason,
            })),
        }),
        Request::DiagnosticsArgs(args) => Reply::DiagnosticsResult(DiagnosticsResult {
            result: Some(diagnostics_result::Result::Rejected(DiagnosticsRejected {
                path: args.path,
                reason,
            })),
        }),
        Request::GrepArgs(_) => Reply::GrepResult(GrepResult {
            result: Some(grep_result::Result::Error(GrepError { error: reason })),
        }),
        Request::ShellArgs(args) => Reply::ShellResult(shell(args, reason)),
        Request::MiniSweAgentBashArgs(args) => Reply::MiniSweAgentBashResult(shell(args, reason)),
        Request::ShellStreamArgs(args) => Reply::ShellStream(ShellStream {
            event: Some(shell_stream::Event::Rejected(rejected_shell(
                args.command,
                args.working_directory,
                reason,
            ))),
        }),
        Request::BackgroundShellSpawnArgs(args) => {
            Reply::BackgroundShellSpawnResult(BackgroundShellSpawnResult {
                result: Some(background_shell_spawn_result::Result::Rejected(
                    rejected_shell(args.command, args.working_directory, reason),
                )),
            })
        }
        Request::WriteShellStdinArgs(_) => Reply::WriteShellStdinResult(WriteShellStdinResult {
            result: Some(write_shell_stdin_result::Result::Error(
                WriteShellStdinError { error: reason },
            )),
        }),
        Request::ForceBackgroundShellArgs(_) => {
            Reply::ForceBackgroundShellResult(ForceBackgroundShellResult {
                status: ForceBackgroundShellStatus::NotFound as i32,
                shell_result: None,
            })
        }
        Request::ForceBackgroundSubagentArgs(_) => {
            Reply::ForceBackgroundSubagentResult(ForceBackgroundSubagentResult {
                status: ForceBackgroundSubagentStatus::NotFound as i32,
            })
        }
        Request::FetchArgs(args) => Reply::FetchResult(FetchResult {
            result: Some(fetch_result::Result::Error(FetchError {
                url: args.url,
                error: reason,
            })),
        }),
        Request::McpArgs(_) => Reply::McpResult(McpResult {
            result: Some(mcp_result::Result::Rejected(McpRejected {
                reason,
                ..McpRejected::default()
            })),
        }),
        // Answered before this is reached.
        Request::McpStateExecArgs(_) => return Err(unsupported("mcp_state_exec_args")),
        Request::ListMcpResourcesExecArgs(_) => {
            let rejected = ListMcpResourcesRejected { reason };
            Reply::ListMcpResourcesExecResult(ListMcpResourcesExecResult {
                result: Some(list_mcp_resources_exec_result::Result::Rejected(rejected)),
            })
        }
        Request::ReadMcpResourceExecArgs(args) => {
            let uri = args.uri;
            let rejected = ReadMcpResourceRejected { uri, reason };
            Reply::ReadMcpResourceExecResult(ReadMcpResourceExecResult {
                result: Some(read_mcp_resource_exec_result::Result::Rejected(rejected)),
            })
        }
        Request::SubagentArgs(_) => Reply::SubagentResult(SubagentResult {
            result: Some(subagent_result::Result::Error(SubagentError {
                agent_id: None,
                error: "this client does not run subagents".into(),
            })),
        }),
        Request::SubagentAwaitArgs(args) => Reply::SubagentAwaitResult(SubagentAwaitResult {
            result: Some(subagent_await_result::Result::NotFound(
                SubagentAwaitNotFound {
                    agent_id: args.agent_id,
                },
            )),
        }),
        Request::ShellAllowlistPrecheckArgs(_) => {
            Reply::ShellAllowlistPrecheckResult(ShellAllowlistPrecheckResult::default())
        }
        Request::McpAllowlistPrecheckArgs(_) => {
            Reply::McpAllowlistPrecheckResult(McpAllowlistPrecheckResult::default())
        }
        Request::WebFetchAllowlistPrecheckArgs(_) => {
            Reply::WebFetchAllowlistPrecheckResult(WebFetchAllowlistPrecheckResult::default())
        }
        Request::PiReadArgs(_) => Reply::PiReadResult(PiReadExecResult {
            result: Some(pi_read_exec_result::Result::Error(PiReadExecError {
                error: reason,
            })),
        }),
        Request::PiBashArgs(_) => Reply::PiBashResult(PiBashExecResult {
            result: Some(pi_bash_exec_result::Result::Error(PiBashExecError {
                error: reason,
                ..PiBashExecError::default()
            })),
        }),
        Request::PiEditArgs(_) => Reply::PiEditResult(PiEditExecResult {
            result: Some(pi_edit_exec_result::Result::Error(PiEditExecError {
                error: reason,
            })),
        }),
        Request::PiWriteArgs(_) => Reply::PiWriteResult(PiWriteExecResult {
            result: Some(pi_write_exec_result::Result::Error(PiWriteExecError {
                error: reason,
            })),
        }),
        Request::PiGrepArgs(_) => Reply::PiGrepResult(PiGrepExecResult {
            result: Some(pi_grep_exec_result::Result::Error(PiGrepExecError {
                error: reason,
            })),
        }),
        Request::PiFindArgs(_) => Reply::PiFindResult(PiFindExecResult {
            result: Some(pi_find_exec_result::Result::Error(PiFindExecError {
                error: reason,
            })),
        }),
        Request::PiLsArgs(_) => Reply::PiLsResult(PiLsExecResult {
            result: Some(pi_ls_exec_result::Result::Error(PiLsExecError {
                error: reason,
            })),
        }),
        // Its result type has no refusal.
        Request::GitDiffRequest(_) => return Err(Thrown(reason)),
        // The official local client has no handler for these kinds either.
        Request::RedactedReadArgs(_) => return Err(unsupported("redacted_read_args")),
        Request::ExecuteHookArgs(_) => return Err(unsupported("execute_hook_args")),
        Request::ComputerUseArgs(_) => return Err(unsupported("computer_use_args")),
        Request::RecordScreenArgs(_) => return Err(unsupported("record_screen_args")),
        Request::SmartModeClassifierArgs(_) => {
            return Err(unsupported("smart_mode_classifier_args"));
        }
        Request::CanvasDiagnosticsArgs(_) => {
            return Err(unsupported("canvas_diagnostics_args"));
        }
        Request::ConversationSearchArgs(_) => {
            return Err(unsupported("conversation_search_args"));
        }
        Request::AgentStoreConflictArgs(_) => {
            return Err(unsupported("agent_store_conflict_args"));
        }
        Request::AdoptArgs(_) => return Err(unsupported("adopt_args")),
    })
}

fn unsupported(kind: &str) -> Thrown {
    Thrown(format!("this client has no handler for {kind}"))
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
