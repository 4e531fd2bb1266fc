//! Cursor's own tools, executed by this process.
//!
//! The replies have the shape of the official client's; `docs/protocol.md` gives the reason for
//! each deliberate difference. Every path is checked by the [`guard`], every command runs in a
//! process group that ends with this process, file access happens off the async threads, and
//! everything held in memory is bounded. This module knows no streams, ids or hosts.

mod carry;
mod child;
mod collate;
mod command;
mod delete;
mod denylist;
mod errno;
mod fetch;
pub(super) mod forbidden;
mod git_diff;
mod grep;
pub mod guard;
mod ignored;
mod ls;
mod output;
mod pi;
mod pi_bash;
mod pi_edit;
mod pi_grep;
mod pipes;
pub mod policy;
pub mod protected;
mod read;
mod resource;
mod scratch;
mod search;
pub mod secret_paths;
mod shell;
mod terminal;
mod text;
mod walk;
mod workbench;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::bridge::Bridge;
use super::bridge::diagnostics::Diagnostics;
use super::by_host::{ByHost, HostTools, Seen};
use super::context::Facts;
use super::permission::{CurrentTools, Granted, TurnTools};
use super::refuse::Refuse;
use super::router::NativeRouter;
use super::{Executor, Replies, Reply, Request, Thrown, Work, servers};
pub use child::remove_secrets;
pub(super) use child::{Group, scrub, spawn};
use cursor_proto::agent::v1::*;
use cursor_proto::tool_gates::ToolGates;
use guard::Guard;
pub(super) use ignored::{FILE as IGNORE_FILE, is_ignored};
use policy::{Decision, Denial, HostPolicy, Mode, Policy, Tool};
use shell::{Dialect, Shell};
pub(super) use text::faithful;
pub(super) use walk::walk;
pub use workbench::Workbench;

/// What the executor of a run needs in addition to the facts of its request context.
pub struct Surroundings<'a> {
    /// The user's settings.
    pub policy: &'a Policy,
    /// The shell state and background commands that outlive a run.
    pub bench: &'a Arc<Workbench>,
    /// The decisions of the current turn.
    pub current: CurrentTools,
    /// What the host has allowed in this session.
    pub granted: Granted,
    /// Where calls of the host's tools go.
    pub bridge: Arc<Bridge>,
    /// What the host's tools have shown in this session.
    pub seen: Arc<Seen>,
}

/// Returns the executor of a run, which routes each native tool by the current turn's decisions.
pub fn executor(mut facts: Facts, surroundings: Surroundings<'_>) -> Arc<dyn Executor> {
    let Surroundings {
        policy,
        bench,
        current,
        granted,
        bridge,
        seen,
    } = surroundings;
    let shell = current.borrow().decisions.of(Tool::Shell);
    if matches!(shell, Decision::Local | Decision::Ask) {
        facts.terminals = bench.terminals().ok();
    }
    let guard = Arc::new(Guard::by_policy(
        &facts.workspace,
        facts.home.clone(),
        policy,
    ));
    let refuse = |denial| Refuse {
        facts: facts.clone(),
        denial,
        available: Vec::new(),
    };
    let no_tool = refuse(Denial::NoHostTool);
    let denied = Arc::new(refuse(Denial::Denied));
    Arc::new(NativeRouter {
        host: Arc::new(ByHost::new(
            bridge,
            current.clone(),
            seen,
            no_tool,
            Arc::clone(&guard),
        )),
        current,
        granted,
        local: Arc::new(Native {
            policy: policy.clone(),
            shell: Shell {
                bench: Arc::clone(bench),
                workspace: guard.workspace().to_owned(),
                home: facts.home.clone(),
                is_hooked: facts.settings.hooks.judge_commands(),
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
    facts: Facts,
    policy: &Policy,
    bench: &Arc<Workbench>,
    plan_mode: bool,
) -> (Arc<dyn Executor>, ToolGates) {
    let stated = HostPolicy {
        default: Some(Mode::Local),
        ..HostPolicy::default()
    };
    let tools = TurnTools::new(policy, &stated, HostTools::default(), plan_mode, None);
    let gates = tools.decisions.gates();
    let surroundings = Surroundings {
        policy,
        bench,
        current: watch::channel(Arc::new(tools)).1,
        granted: Granted::default(),
        bridge: Bridge::off(Duration::ZERO, Diagnostics::Off),
        seen: Arc::default(),
    };
    (executor(facts, surroundings), gates)
}

/// Executes native tools locally; `refuse` answers the requests it does not execute.
struct Native {
    policy: Policy,
    guard: Arc<Guard>,
    shell: Shell,
    refuse: Arc<Refuse>,
}

impl Executor for Native {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let denied = Tool::of(&request).is_some_and(|tool| self.policy.denied.contains(&tool));
        if denied || matches!(request, Request::RequestContextArgs(_)) {
            return Arc::clone(&self.refuse).execute(request, replies, abort);
        }
        let done = async move {
            if let Request::ShellStreamArgs(args) = request {
                self.shell.stream(args, replies, abort).await;
                return Ok(());
            }
            let reply = self.answer(request, abort).await?;
            replies.send(reply).await;
            Ok(())
        };
        Work {
            done: Box::pin(done),
            call: None,
        }
    }
}

impl Native {
    async fn answer(&self, request: Request, abort: CancellationToken) -> Result<Reply, Thrown> {
        match request {
            Request::ShellArgs(args) => {
                let result = self.shell.run(args, Dialect::Plain, abort).await;
                Ok(Reply::ShellResult(result))
            }
            Request::MiniSweAgentBashArgs(args) => {
                let result = self.shell.run(args, Dialect::Interleaved, abort).await;
                Ok(Reply::MiniSweAgentBashResult(result))
            }
            Request::BackgroundShellSpawnArgs(args) => Ok(Reply::BackgroundShellSpawnResult(
                self.shell.spawn(args).await,
            )),
            Request::WriteShellStdinArgs(args) => Ok(Reply::WriteShellStdinResult(
                self.shell.write_stdin(args, &abort).await,
            )),
            Request::ForceBackgroundShellArgs(args) => Ok(Reply::ForceBackgroundShellResult(
                self.shell.move_to_background(&args).await,
            )),
            Request::PiBashArgs(args) => {
                let result = Some(pi_bash::bash(&self.shell, args, abort).await);
                Ok(Reply::PiBashResult(PiBashExecResult { result }))
            }
            Request::FetchArgs(args) => {
                let leave = self.policy.private_fetch;
                Ok(Reply::FetchResult(fetch::fetch(args, leave, abort).await))
            }
            Request::GitDiffRequest(request) => {
                let response = git_diff::diff(&self.guard, request, &abort).await?;
                Ok(Reply::GitDiffResponse(response))
            }
            Request::ReadMcpResourceExecArgs(args) if servers::is_saved(&args) => {
                let facts = &self.refuse.facts;
                let result = resource::save(&self.guard, facts, args, &abort).await;
                Ok(Reply::ReadMcpResourceExecResult(result))
            }
            other => match servers::answer(&self.refuse.facts, other, abort.clone()).await {
                Ok(reply) => Ok(reply),
                Err(other) => self.files(other, abort).await,
            },
        }
    }

    /// Answers requests that only need the disk, on a thread that may block.
    async fn files(&self, request: Request, abort: CancellationToken) -> Result<Reply, Thrown> {
        let guard = Arc::clone(&self.guard);
        let refuse = Arc::clone(&self.refuse);
        let work = move || -> Result<Reply, Thrown> {
            Ok(match request {
                Request::ReadArgs(args) => Reply::ReadResult(read::read(&guard, &args, &abort)),
                Request::LsArgs(args) => Reply::LsResult(ls::ls(&guard, &args, &abort)),
                Request::GrepArgs(args) => Reply::GrepResult(grep::grep(&guard, &args, &abort)),
                Request::WriteArgs(args) => Reply::WriteResult(write::write(&guard, &args)),
                Request::DeleteArgs(args) => Reply::DeleteResult(delete::delete(&guard, &args)),
                Request::DiagnosticsArgs(args) => {
                    Reply::DiagnosticsResult(diagnostics(&guard, args))
                }
                Request::PiReadArgs(args) => {
                    let result = Some(match pi::read(&guard, &args) {
                        Ok(success) => pi_read_exec_result::Result::Success(success),
                        Err(pi::Failure(error)) => {
                            pi_read_exec_result::Result::Error(PiReadExecError { error })
                        }
                    });
                    Reply::PiReadResult(PiReadExecResult { result })
                }
                Request::PiWriteArgs(args) => {
                    let result = Some(match pi::write_file(&guard, &args) {
                        Ok(output) => {
                            pi_write_exec_result::Result::Success(PiWriteExecSuccess { output })
                        }
                        Err(pi::Failure(error)) => {
                            pi_write_exec_result::Result::Error(PiWriteExecError { error })
                        }
                    });
                    Reply::PiWriteResult(PiWriteExecResult { result })
                }
                Request::PiEditArgs(args) => {
                    let result = Some(match pi_edit::edit(&guard, &args) {
                        Ok(success) => pi_edit_exec_result::Result::Success(success),
                        Err(pi::Failure(error)) => {
                            pi_edit_exec_result::Result::Error(PiEditExecError { error })
                        }
                    });
                    Reply::PiEditResult(PiEditExecResult { result })
                }
                Request::PiLsArgs(args) => {
                    let result = Some(match pi::list(&guard, &args) {
                        Ok(success) => pi_ls_exec_result::Result::Success(success),
                        Err(pi::Failure(error)) => {
                            pi_ls_exec_result::Result::Error(PiLsExecError { error })
                        }
                    });
                    Reply::PiLsResult(PiLsExecResult { result })
                }
                Request::PiFindArgs(args) => {
                    let result = Some(match pi::find(&guard, &args, &abort) {
                        Ok(success) => pi_find_exec_result::Result::Success(success),
                        Err(pi::Failure(error)) => {
                            pi_find_exec_result::Result::Error(PiFindExecError { error })
                        }
                    });
                    Reply::PiFindResult(PiFindExecResult { result })
                }
                Request::PiGrepArgs(args) => {
                    let result = Some(match pi_grep::grep(&guard, &args, &abort) {
                        Ok(success) => pi_grep_exec_result::Result::Success(success),
                        Err(pi::Failure(error)) => {
                            pi_grep_exec_result::Result::Error(PiGrepExecError { error })
                        }
                    });
                    Reply::PiGrepResult(PiGrepExecResult { result })
                }
                other => return refuse.answer(other),
            })
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|_| Err(Thrown("the tool crashed".into())))
    }
}

/// Returns no diagnostics for a file that exists, because no language server runs here.
fn diagnostics(guard: &Guard, args: DiagnosticsArgs) -> DiagnosticsResult {
    let result = match guard.absolute(&args.path).metadata() {
        Ok(_) => diagnostics_result::Result::Success(DiagnosticsSuccess {
            path: args.path,
            ..DiagnosticsSuccess::default()
        }),
        Err(error) if errno::is_denied(&error) => {
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
