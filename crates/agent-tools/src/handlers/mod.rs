//! Cursor's own tools, executed by this process.
//!
//! The replies have the shape of the official client's; `docs/protocol.md` gives the reason for
//! each deliberate difference. Every path is checked by the [path guard](crate::workspace::path_guard), every command runs in a
//! process group that ends with this process, file access happens off the async threads, and
//! everything held in memory is bounded. This module knows no streams, ids or hosts.

mod delete;
pub mod fetch;
mod git_diff;
mod grep;
pub(crate) mod io_errors;
mod ls;
pub(crate) mod mcp;
mod mcp_resource;
mod pi_tools;
mod read;
mod search;
mod shell;
mod sort_names;
pub(crate) mod text_file;
pub(crate) mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::bridge::Bridge;
use crate::bridge::call_log::CallLogTarget;
use crate::host_delegate::{HostDelegate, HostToolSet, ReadCache};
use crate::permission::{CurrentTools, GrantedTools, TurnTools};
use crate::policy::{DenialReason, ExecutedBy, HostPolicy, NativeTool, ToolDecision, ToolPolicy};
use crate::prompts;
use crate::rejection::Rejector;
use crate::request_context::RunContext;
use crate::router::ToolRouter;
use crate::shell::ShellSession;
use crate::workspace::path_guard::PathGuard;
use crate::{ExecError, ExecReply, ExecRequest, ExecTask, Executor, ReplySender};
use cursor_proto::agent::v1::*;
use cursor_proto::tool_gates::ToolGates;
use shell::{Dialect, ShellHandler};

/// What the executor of a run needs in addition to the facts of its request context.
pub struct ExecutorOptions<'a> {
    /// The user's settings.
    pub policy: &'a ToolPolicy,
    /// The shell state and background commands that outlive a run.
    pub shell_session: &'a Arc<ShellSession>,
    /// The decisions of the current turn.
    pub current: CurrentTools,
    /// What the host has allowed in this session.
    pub granted: GrantedTools,
    /// Where calls of the host's tools go.
    pub bridge: Arc<Bridge>,
    /// What the host's tools have shown in this session.
    pub seen: Arc<ReadCache>,
}

/// Returns the executor of a run with a host, which routes each request by the current turn's
/// decisions.
pub fn executor(facts: RunContext, options: ExecutorOptions<'_>) -> Arc<dyn Executor> {
    let host_tools = Some(Arc::clone(&options.bridge));
    router(facts, options, host_tools)
}

fn router(
    mut facts: RunContext,
    options: ExecutorOptions<'_>,
    host_tools: Option<Arc<Bridge>>,
) -> Arc<dyn Executor> {
    let ExecutorOptions {
        policy,
        shell_session,
        current,
        granted,
        bridge,
        seen,
    } = options;
    let shell = current.borrow().decisions.of(NativeTool::Shell);
    if matches!(shell, ToolDecision::Local | ToolDecision::Ask) {
        facts.terminals = shell_session.terminals().ok();
    }
    let guard = Arc::new(PathGuard::by_policy(
        &facts.workspace,
        facts.home.clone(),
        policy,
    ));
    let refuse = |denial| Rejector {
        facts: facts.clone(),
        denial,
        available: Vec::new(),
        host_problem: None,
    };
    let no_tool = refuse(DenialReason::NoHostTool);
    let denied = Arc::new(refuse(DenialReason::Denied));
    Arc::new(ToolRouter {
        host_tools,
        host: Arc::new(HostDelegate::new(
            bridge,
            current.clone(),
            seen,
            no_tool,
            Arc::clone(&guard),
        )),
        current,
        granted,
        local: Arc::new(LocalExecutor {
            policy: policy.clone(),
            shell: ShellHandler {
                shell_session: Arc::clone(shell_session),
                workspace: guard.workspace().to_owned(),
                home: facts.home.clone(),
                is_hooked: facts.settings.hooks.has_command_hooks(),
            },
            guard,
            refuse: Arc::clone(&denied),
        }),
        refuse: denied,
    })
}

/// Returns the executor of a run without a host, which executes everything locally unless the
/// settings say otherwise, and the tools the server must not offer.
pub fn executor_without_host(
    facts: RunContext,
    policy: &ToolPolicy,
    shell_session: &Arc<ShellSession>,
    plan_mode: bool,
) -> (Arc<dyn Executor>, ToolGates) {
    let stated = HostPolicy {
        default: Some(ExecutedBy::Local),
        ..HostPolicy::default()
    };
    let tools = TurnTools::new(policy, &stated, HostToolSet::default(), plan_mode, None);
    let gates = tools.decisions.gates();
    let options = ExecutorOptions {
        policy,
        shell_session,
        current: watch::channel(Arc::new(tools)).1,
        granted: GrantedTools::default(),
        bridge: Bridge::off(Duration::ZERO, CallLogTarget::Off),
        seen: Arc::default(),
    };
    (router(facts, options, None), gates)
}

/// Executes native tools locally; `refuse` answers the requests it does not execute.
struct LocalExecutor {
    policy: ToolPolicy,
    guard: Arc<PathGuard>,
    shell: ShellHandler,
    refuse: Arc<Rejector>,
}

impl Executor for LocalExecutor {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let done = async move {
            if let ExecRequest::ShellStreamArgs(args) = request {
                self.shell.stream(args, replies, abort).await;
                return Ok(());
            }
            let reply = self.answer(request, abort).await?;
            replies.send(reply).await;
            Ok(())
        };
        ExecTask {
            done: Box::pin(done),
            call: None,
        }
    }
}

impl LocalExecutor {
    async fn answer(
        &self,
        request: ExecRequest,
        abort: CancellationToken,
    ) -> Result<ExecReply, ExecError> {
        match request {
            ExecRequest::ShellArgs(args) => {
                let result = self.shell.run(args, Dialect::Plain, abort).await;
                Ok(ExecReply::ShellResult(result))
            }
            ExecRequest::MiniSweAgentBashArgs(args) => {
                let result = self.shell.run(args, Dialect::Interleaved, abort).await;
                Ok(ExecReply::MiniSweAgentBashResult(result))
            }
            ExecRequest::BackgroundShellSpawnArgs(args) => Ok(
                ExecReply::BackgroundShellSpawnResult(self.shell.spawn(args).await),
            ),
            ExecRequest::WriteShellStdinArgs(args) => Ok(ExecReply::WriteShellStdinResult(
                self.shell.write_stdin(args, &abort).await,
            )),
            ExecRequest::ForceBackgroundShellArgs(args) => Ok(
                ExecReply::ForceBackgroundShellResult(self.shell.move_to_background(&args).await),
            ),
            ExecRequest::PiBashArgs(args) => {
                let result = Some(pi_tools::bash::bash(&self.shell, args, abort).await);
                Ok(ExecReply::PiBashResult(PiBashExecResult { result }))
            }
            ExecRequest::FetchArgs(args) => {
                let allow_private = self.policy.allow_private_fetch;
                Ok(ExecReply::FetchResult(
                    fetch::fetch(args, allow_private, abort).await,
                ))
            }
            ExecRequest::GitDiffRequest(request) => {
                let response = git_diff::diff(&self.guard, request, &abort).await?;
                Ok(ExecReply::GitDiffResponse(response))
            }
            ExecRequest::ReadMcpResourceExecArgs(args) if mcp::is_saved(&args) => {
                let facts = &self.refuse.facts;
                let result = mcp_resource::save(&self.guard, facts, args, &abort).await;
                Ok(ExecReply::ReadMcpResourceExecResult(result))
            }
            other => self.files(other, abort).await,
        }
    }

    /// Answers requests that only need the disk, on a thread that may block.
    async fn files(
        &self,
        request: ExecRequest,
        abort: CancellationToken,
    ) -> Result<ExecReply, ExecError> {
        let guard = Arc::clone(&self.guard);
        let refuse = Arc::clone(&self.refuse);
        let work = move || -> Result<ExecReply, ExecError> {
            Ok(match request {
                ExecRequest::ReadArgs(args) => {
                    ExecReply::ReadResult(read::read(&guard, &args, &abort))
                }
                ExecRequest::LsArgs(args) => ExecReply::LsResult(ls::ls(&guard, &args, &abort)),
                ExecRequest::GrepArgs(args) => {
                    ExecReply::GrepResult(grep::grep(&guard, &args, &abort))
                }
                ExecRequest::WriteArgs(args) => ExecReply::WriteResult(write::write(&guard, &args)),
                ExecRequest::DeleteArgs(args) => {
                    ExecReply::DeleteResult(delete::delete(&guard, &args))
                }
                ExecRequest::DiagnosticsArgs(args) => {
                    ExecReply::DiagnosticsResult(diagnostics(&guard, args))
                }
                ExecRequest::PiReadArgs(args) => {
                    let result = Some(match pi_tools::read(&guard, &args) {
                        Ok(success) => pi_read_exec_result::Result::Success(success),
                        Err(pi_tools::PiToolError(error)) => {
                            pi_read_exec_result::Result::Error(PiReadExecError { error })
                        }
                    });
                    ExecReply::PiReadResult(PiReadExecResult { result })
                }
                ExecRequest::PiWriteArgs(args) => {
                    let result = Some(match pi_tools::write_file(&guard, &args) {
                        Ok(output) => {
                            pi_write_exec_result::Result::Success(PiWriteExecSuccess { output })
                        }
                        Err(pi_tools::PiToolError(error)) => {
                            pi_write_exec_result::Result::Error(PiWriteExecError { error })
                        }
                    });
                    ExecReply::PiWriteResult(PiWriteExecResult { result })
                }
                ExecRequest::PiEditArgs(args) => {
                    let result = Some(match pi_tools::edit::edit(&guard, &args) {
                        Ok(success) => pi_edit_exec_result::Result::Success(success),
                        Err(pi_tools::PiToolError(error)) => {
                            pi_edit_exec_result::Result::Error(PiEditExecError { error })
                        }
                    });
                    ExecReply::PiEditResult(PiEditExecResult { result })
                }
                ExecRequest::PiLsArgs(args) => {
                    let result = Some(match pi_tools::list(&guard, &args) {
                        Ok(success) => pi_ls_exec_result::Result::Success(success),
                        Err(pi_tools::PiToolError(error)) => {
                            pi_ls_exec_result::Result::Error(PiLsExecError { error })
                        }
                    });
                    ExecReply::PiLsResult(PiLsExecResult { result })
                }
                ExecRequest::PiFindArgs(args) => {
                    let result = Some(match pi_tools::find(&guard, &args, &abort) {
                        Ok(success) => pi_find_exec_result::Result::Success(success),
                        Err(pi_tools::PiToolError(error)) => {
                            pi_find_exec_result::Result::Error(PiFindExecError { error })
                        }
                    });
                    ExecReply::PiFindResult(PiFindExecResult { result })
                }
                ExecRequest::PiGrepArgs(args) => {
                    let result = Some(match pi_tools::grep::grep(&guard, &args, &abort) {
                        Ok(success) => pi_grep_exec_result::Result::Success(success),
                        Err(pi_tools::PiToolError(error)) => {
                            pi_grep_exec_result::Result::Error(PiGrepExecError { error })
                        }
                    });
                    ExecReply::PiGrepResult(PiGrepExecResult { result })
                }
                other => return refuse.answer(other),
            })
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|_| Err(ExecError(prompts::tools::TOOL_CRASHED.into())))
    }
}

/// Returns no diagnostics for a file that exists, because no language server runs here.
fn diagnostics(guard: &PathGuard, args: DiagnosticsArgs) -> DiagnosticsResult {
    let result = match guard.absolute(&args.path).metadata() {
        Ok(_) => diagnostics_result::Result::Success(DiagnosticsSuccess {
            path: args.path,
            ..DiagnosticsSuccess::default()
        }),
        Err(error) if io_errors::is_denied(&error) => {
            let path = args.path;
            diagnostics_result::Result::PermissionDenied(DiagnosticsPermissionDenied { path })
        }
        Err(_) => {
            diagnostics_result::Result::FileNotFound(DiagnosticsFileNotFound { path: args.path })
        }
    };
    DiagnosticsResult {
        result: Some(result),
    }
}
