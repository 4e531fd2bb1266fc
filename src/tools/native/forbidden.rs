//! Commands that are not run, whoever would run them: an administrator denies them, or they
//! are to change nothing and there is no sandbox here that keeps them from it.

use super::denylist;
use crate::tools::{Reply, Request};
use crate::wire::proto::agent::v1::*;

/// How the official client calls the policy.
const POLICY: &str = "workspace_readonly";
const NO_SANDBOX: &str = "this client has no sandbox that keeps a command from changing things";

/// Why a command is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tools) enum Forbidden {
    /// An administrator's list says so, in these words.
    Denied(String),
    /// It is to run read-only.
    ReadOnly,
}

/// The command of a request, if it is one that can be forbidden.
pub(in crate::tools) fn command(request: &Request) -> Option<&ShellArgs> {
    match request {
        Request::ShellArgs(args)
        | Request::ShellStreamArgs(args)
        | Request::MiniSweAgentBashArgs(args) => Some(args),
        _ => None,
    }
}

/// Whether it takes a closer look to know that a command may run.
pub(in crate::tools) fn is_in_doubt(args: &ShellArgs) -> bool {
    let policy = args.requested_sandbox_policy.as_ref();
    !args.admin_command_denylist.is_empty() || is_read_only(policy)
}

fn is_read_only(policy: Option<&SandboxPolicy>) -> bool {
    policy.is_some_and(|policy| policy.r#type() == sandbox_policy::Type::WorkspaceReadonly)
}

/// How a command runs here that may run.
pub(super) fn no_sandbox() -> SandboxPolicy {
    policy(sandbox_policy::Type::InsecureNone)
}

fn policy(kind: sandbox_policy::Type) -> SandboxPolicy {
    SandboxPolicy {
        r#type: kind as i32,
        ..SandboxPolicy::default()
    }
}

impl Forbidden {
    /// Why a command is not run, if it is not.
    pub(in crate::tools) async fn of(args: &ShellArgs) -> Option<Self> {
        let policy = args.requested_sandbox_policy.as_ref();
        Self::by(&args.command, &args.admin_command_denylist, policy).await
    }

    /// The same for one that is to run behind.
    pub(super) async fn behind(args: &BackgroundShellSpawnArgs) -> Option<Self> {
        let policy = args.sandbox_policy.as_ref();
        Self::by(&args.command, &args.admin_command_denylist, policy).await
    }

    async fn by(command: &str, rules: &[String], policy: Option<&SandboxPolicy>) -> Option<Self> {
        if let Some(reason) = denylist::objection(command, rules).await {
            tracing::warn!("refused a command an administrator denies");
            return Some(Self::Denied(reason));
        }
        is_read_only(policy).then(|| {
            tracing::warn!("refused a command that is to run read-only");
            Self::ReadOnly
        })
    }

    /// How it would have been run.
    fn policy(&self) -> SandboxPolicy {
        match self {
            Self::Denied(_) => no_sandbox(),
            Self::ReadOnly => policy(sandbox_policy::Type::WorkspaceReadonly),
        }
    }

    /// What a request is answered that waits for the whole result; `told` is whether it is
    /// also told the policy.
    pub(super) fn whole(self, command: String, folder: String, told: bool) -> ShellResult {
        ShellResult {
            sandbox_policy: told.then(|| self.policy()),
            result: Some(match self {
                Self::Denied(reason) => {
                    shell_result::Result::Rejected(rejected(command, folder, reason))
                }
                Self::ReadOnly => shell_result::Result::SpawnError(ShellSpawnError {
                    command,
                    working_directory: folder,
                    error: format!(
                        "Sandbox policy '{POLICY}' is not supported on this system: {NO_SANDBOX}"
                    ),
                }),
            }),
            ..ShellResult::default()
        }
    }

    /// What a request is answered that hears of everything at once.
    pub(super) fn streamed(
        self,
        command: String,
        folder: String,
        told: bool,
    ) -> Vec<shell_stream::Event> {
        let sandbox_policy = told.then(|| self.policy());
        match self {
            Self::Denied(reason) => {
                vec![shell_stream::Event::Rejected(rejected(
                    command, folder, reason,
                ))]
            }
            Self::ReadOnly => vec![
                shell_stream::Event::Start(ShellStreamStart { sandbox_policy }),
                shell_stream::Event::SandboxUnsupported(unsupported(command, folder)),
            ],
        }
    }

    /// What a request is answered that wants a command behind.
    pub(super) fn spawned(self, command: String, folder: String) -> BackgroundShellSpawnResult {
        use background_shell_spawn_result::Result;
        let result = Some(match self {
            Self::Denied(reason) => Result::Rejected(rejected(command, folder, reason)),
            Self::ReadOnly => Result::SandboxUnsupported(unsupported(command, folder)),
        });
        BackgroundShellSpawnResult { result }
    }

    /// The answers to the request of a [`command`].
    pub(in crate::tools) fn replies(self, request: Request) -> Vec<Reply> {
        match request {
            Request::ShellArgs(args) => {
                let told = !args.skip_approval;
                let result = self.whole(args.command, args.working_directory, told);
                vec![Reply::ShellResult(result)]
            }
            Request::MiniSweAgentBashArgs(args) => {
                let result = self.whole(args.command, args.working_directory, true);
                vec![Reply::MiniSweAgentBashResult(result)]
            }
            Request::ShellStreamArgs(args) => {
                let told = !args.skip_approval;
                let events = self.streamed(args.command, args.working_directory, told);
                let reply = |event| Reply::ShellStream(ShellStream { event: Some(event) });
                events.into_iter().map(reply).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn rejected(command: String, working_directory: String, reason: String) -> ShellRejected {
    ShellRejected {
        command,
        working_directory,
        reason,
        is_readonly: false,
    }
}

fn unsupported(command: String, working_directory: String) -> ShellSandboxUnsupported {
    ShellSandboxUnsupported {
        command,
        working_directory,
        sandbox_policy_type: POLICY.into(),
        reason: NO_SANDBOX.into(),
        is_readonly: true,
    }
}
