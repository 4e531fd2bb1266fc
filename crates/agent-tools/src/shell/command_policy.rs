//! Commands that are not run, locally or by the host: either an administrator's list denies
//! them, or they must run read-only and no sandbox is available here that enforces it.

use super::denylist;
use crate::prompts::refusals::{self, NO_SANDBOX};
use crate::{ExecReply, ExecRequest};
use cursor_proto::agent::v1::*;

/// The official client's name of the policy.
const POLICY: &str = "workspace_readonly";

/// Why a command is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandDenied {
    /// An administrator's list denies it, for this reason.
    Denied(String),
    /// It must run read-only.
    ReadOnly,
}

/// Returns the command of a request that answers with a result of its own if it is denied; one that
/// starts in the background has [`CommandDenied::of_spawn`]. Has no default arm, because a command
/// that is not returned here is not checked before the host executes it.
pub(crate) fn command(request: &ExecRequest) -> Option<&ShellArgs> {
    match request {
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => Some(args),
        ExecRequest::ReadArgs(_)
        | ExecRequest::PiReadArgs(_)
        | ExecRequest::LsArgs(_)
        | ExecRequest::PiLsArgs(_)
        | ExecRequest::PiFindArgs(_)
        | ExecRequest::GrepArgs(_)
        | ExecRequest::PiGrepArgs(_)
        | ExecRequest::WriteArgs(_)
        | ExecRequest::PiWriteArgs(_)
        | ExecRequest::PiEditArgs(_)
        | ExecRequest::ReadMcpResourceExecArgs(_)
        | ExecRequest::DeleteArgs(_)
        | ExecRequest::BackgroundShellSpawnArgs(_)
        | ExecRequest::WriteShellStdinArgs(_)
        | ExecRequest::ForceBackgroundShellArgs(_)
        | ExecRequest::PiBashArgs(_)
        | ExecRequest::FetchArgs(_)
        | ExecRequest::GitDiffRequest(_)
        | ExecRequest::DiagnosticsArgs(_)
        | ExecRequest::RequestContextArgs(_)
        | ExecRequest::McpStateExecArgs(_)
        | ExecRequest::McpArgs(_)
        | ExecRequest::ListMcpResourcesExecArgs(_)
        | ExecRequest::RedactedReadArgs(_)
        | ExecRequest::ExecuteHookArgs(_)
        | ExecRequest::ForceBackgroundSubagentArgs(_)
        | ExecRequest::SubagentArgs(_)
        | ExecRequest::SubagentAwaitArgs(_)
        | ExecRequest::RecordScreenArgs(_)
        | ExecRequest::ComputerUseArgs(_)
        | ExecRequest::SmartModeClassifierArgs(_)
        | ExecRequest::CanvasDiagnosticsArgs(_)
        | ExecRequest::ShellAllowlistPrecheckArgs(_)
        | ExecRequest::McpAllowlistPrecheckArgs(_)
        | ExecRequest::WebFetchAllowlistPrecheckArgs(_)
        | ExecRequest::ConversationSearchArgs(_)
        | ExecRequest::AgentStoreConflictArgs(_)
        | ExecRequest::AdoptArgs(_) => None,
    }
}

/// Returns whether a command has to be checked with [`CommandDenied::of`] before it may run.
pub(crate) fn is_in_doubt(args: &ShellArgs) -> bool {
    let policy = args.requested_sandbox_policy.as_ref();
    !args.admin_command_denylist.is_empty() || is_read_only(policy)
}

fn is_read_only(policy: Option<&SandboxPolicy>) -> bool {
    policy.is_some_and(|policy| policy.r#type() == sandbox_policy::Type::WorkspaceReadonly)
}

/// Returns the policy that is reported for a command that runs here: no sandbox.
pub(crate) fn no_sandbox() -> SandboxPolicy {
    policy(sandbox_policy::Type::InsecureNone)
}

fn policy(kind: sandbox_policy::Type) -> SandboxPolicy {
    SandboxPolicy {
        r#type: kind as i32,
        ..SandboxPolicy::default()
    }
}

impl CommandDenied {
    /// Returns why a command is not run, or `None` if it may run.
    pub(crate) async fn of(args: &ShellArgs) -> Option<Self> {
        let policy = args.requested_sandbox_policy.as_ref();
        Self::by(&args.command, &args.admin_command_denylist, policy).await
    }

    /// Returns the same for a command that starts in the background.
    pub(crate) async fn of_spawn(args: &BackgroundShellSpawnArgs) -> Option<Self> {
        let policy = args.sandbox_policy.as_ref();
        Self::by(&args.command, &args.admin_command_denylist, policy).await
    }

    async fn by(command: &str, rules: &[String], policy: Option<&SandboxPolicy>) -> Option<Self> {
        if let Some(reason) = denylist::denial_reason(command, rules).await {
            tracing::warn!("refused a command that an administrator denies");
            return Some(Self::Denied(reason));
        }
        is_read_only(policy).then(|| {
            tracing::warn!("refused a command that must run read-only");
            Self::ReadOnly
        })
    }

    /// Returns the policy it would have run with.
    fn policy(&self) -> SandboxPolicy {
        match self {
            Self::Denied(_) => no_sandbox(),
            Self::ReadOnly => policy(sandbox_policy::Type::WorkspaceReadonly),
        }
    }

    /// Returns the result of a request that waits for the complete result. `with_policy` is whether
    /// the result names the sandbox policy.
    pub(crate) fn result(self, command: String, folder: String, with_policy: bool) -> ShellResult {
        ShellResult {
            sandbox_policy: with_policy.then(|| self.policy()),
            result: Some(match self {
                Self::Denied(reason) => {
                    shell_result::Result::Rejected(rejected(command, folder, reason))
                }
                Self::ReadOnly => shell_result::Result::SpawnError(ShellSpawnError {
                    command,
                    working_directory: folder,
                    error: refusals::sandbox_unsupported(POLICY),
                }),
            }),
            ..ShellResult::default()
        }
    }

    /// Returns the events of a streamed request.
    pub(crate) fn stream_events(
        self,
        command: String,
        folder: String,
        with_policy: bool,
    ) -> Vec<shell_stream::Event> {
        let sandbox_policy = with_policy.then(|| self.policy());
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

    /// Returns the result of a request that starts a command in the background.
    pub(crate) fn spawn_result(
        self,
        command: String,
        folder: String,
    ) -> BackgroundShellSpawnResult {
        use background_shell_spawn_result::Result;
        let result = Some(match self {
            Self::Denied(reason) => Result::Rejected(rejected(command, folder, reason)),
            Self::ReadOnly => Result::SandboxUnsupported(unsupported(command, folder)),
        });
        BackgroundShellSpawnResult { result }
    }

    /// Returns the replies to a request that has a [`command`].
    pub(crate) fn replies(self, request: ExecRequest) -> Vec<ExecReply> {
        match request {
            ExecRequest::ShellArgs(args) => {
                let with_policy = !args.skip_approval;
                let result = self.result(args.command, args.working_directory, with_policy);
                vec![ExecReply::ShellResult(result)]
            }
            ExecRequest::MiniSweAgentBashArgs(args) => {
                let result = self.result(args.command, args.working_directory, true);
                vec![ExecReply::MiniSweAgentBashResult(result)]
            }
            ExecRequest::ShellStreamArgs(args) => {
                let with_policy = !args.skip_approval;
                let events = self.stream_events(args.command, args.working_directory, with_policy);
                let reply = |event| ExecReply::ShellStream(ShellStream { event: Some(event) });
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
