//! Which native tools are executed, and by which side, according to the user's settings.

mod decision;

use std::collections::{BTreeMap, BTreeSet};

use crate::ExecRequest;
use crate::handlers::mcp;
use crate::workspace::protected_paths::ProtectedPaths;
use crate::workspace::secret_paths::SecretPaths;

pub use decision::{DenialReason, HostPolicy, ToolDecision, ToolDecisions};

/// How a native tool is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutedBy {
    /// By this process.
    Local,
    /// By the host's own tools.
    Host,
    /// By this process, after the host has given permission.
    Ask,
    /// Not at all.
    Off,
}

/// A tool that settings know by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NativeTool {
    /// Reading files.
    Read,
    /// Listing folders and finding files.
    Ls,
    /// Searching.
    Grep,
    /// Writing and editing files.
    Write,
    /// Deleting files.
    Delete,
    /// Foreground and background commands.
    Shell,
    /// Fetching a page.
    Fetch,
    /// Changes in a repository, from git.
    GitDiff,
    /// Diagnostics of a file.
    Diagnostics,
}

impl NativeTool {
    /// All tools with the names settings use.
    pub const ALL: [(&'static str, NativeTool); 9] = [
        ("read", NativeTool::Read),
        ("ls", NativeTool::Ls),
        ("grep", NativeTool::Grep),
        ("write", NativeTool::Write),
        ("delete", NativeTool::Delete),
        ("shell", NativeTool::Shell),
        ("fetch", NativeTool::Fetch),
        ("git_diff", NativeTool::GitDiff),
        ("diagnostics", NativeTool::Diagnostics),
    ];

    /// Returns the tool a request belongs to, or `None` if it belongs to none.
    pub fn of(request: &ExecRequest) -> Option<Self> {
        Some(match request {
            ExecRequest::ReadArgs(_) | ExecRequest::PiReadArgs(_) => NativeTool::Read,
            ExecRequest::LsArgs(_) | ExecRequest::PiLsArgs(_) | ExecRequest::PiFindArgs(_) => {
                NativeTool::Ls
            }
            // A glob without a pattern finds files.
            ExecRequest::GrepArgs(args) if args.pattern.is_empty() => NativeTool::Ls,
            ExecRequest::GrepArgs(_) | ExecRequest::PiGrepArgs(_) => NativeTool::Grep,
            ExecRequest::WriteArgs(_)
            | ExecRequest::PiWriteArgs(_)
            | ExecRequest::PiEditArgs(_) => NativeTool::Write,
            ExecRequest::ReadMcpResourceExecArgs(args) if mcp::is_saved(args) => NativeTool::Write,
            ExecRequest::DeleteArgs(_) => NativeTool::Delete,
            ExecRequest::ShellArgs(_)
            | ExecRequest::ShellStreamArgs(_)
            | ExecRequest::BackgroundShellSpawnArgs(_)
            | ExecRequest::WriteShellStdinArgs(_)
            | ExecRequest::ForceBackgroundShellArgs(_)
            | ExecRequest::MiniSweAgentBashArgs(_)
            | ExecRequest::PiBashArgs(_) => NativeTool::Shell,
            ExecRequest::FetchArgs(_) => NativeTool::Fetch,
            ExecRequest::GitDiffRequest(_) => NativeTool::GitDiff,
            ExecRequest::DiagnosticsArgs(_) => NativeTool::Diagnostics,
            ExecRequest::RequestContextArgs(_)
            | ExecRequest::McpStateExecArgs(_)
            | ExecRequest::McpArgs(_)
            | ExecRequest::ListMcpResourcesExecArgs(_)
            | ExecRequest::ReadMcpResourceExecArgs(_)
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
            | ExecRequest::AdoptArgs(_) => return None,
        })
    }

    /// Returns the name settings use.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, tool)| *tool == self)
            .map_or("", |(name, _)| name)
    }

    /// Returns the names Cursor uses for it in a client's list of tools.
    fn calls(self) -> &'static [&'static str] {
        match self {
            NativeTool::Read => &["read_tool_call", "pi_read_tool_call"],
            NativeTool::Ls => &[
                "ls_tool_call",
                "glob_tool_call",
                "pi_ls_tool_call",
                "pi_find_tool_call",
            ],
            NativeTool::Grep => &["grep_tool_call", "pi_grep_tool_call"],
            NativeTool::Write => &["edit_tool_call", "pi_edit_tool_call", "pi_write_tool_call"],
            NativeTool::Delete => &["delete_tool_call"],
            NativeTool::Shell => &[
                "shell_tool_call",
                "write_shell_stdin_tool_call",
                "pi_bash_tool_call",
            ],
            NativeTool::Fetch => &["fetch_tool_call"],
            NativeTool::Diagnostics => &["read_lints_tool_call"],
            NativeTool::GitDiff => &[],
        }
    }

    /// Returns whether it can change files or have other side effects.
    pub fn changes_something(self) -> bool {
        matches!(
            self,
            NativeTool::Write | NativeTool::Delete | NativeTool::Shell
        )
    }

    /// Returns the host tools that enable it: for hosts that require this, it is executed only
    /// while one of them is active. Tools that only read follow `read`; `fetch` follows the tools
    /// that could reach the network otherwise.
    pub fn switched_by(self) -> &'static [&'static str] {
        match self {
            NativeTool::Read | NativeTool::GitDiff | NativeTool::Diagnostics => &["read"],
            NativeTool::Ls => &["ls", "find"],
            NativeTool::Grep => &["grep"],
            NativeTool::Write | NativeTool::Delete => &["edit", "write"],
            NativeTool::Shell => &["bash"],
            NativeTool::Fetch => &["fetch", "web_fetch", "bash"],
        }
    }

    /// Returns the usual names of host tools that do the same, best first.
    pub fn counterparts(self) -> &'static [&'static str] {
        match self {
            NativeTool::Read | NativeTool::Diagnostics => &["read"],
            NativeTool::Ls => &["ls", "find", "bash"],
            NativeTool::Grep => &["grep", "bash"],
            NativeTool::Write => &["edit", "write"],
            NativeTool::Delete | NativeTool::Shell | NativeTool::GitDiff => &["bash"],
            NativeTool::Fetch => &["fetch", "web_fetch", "bash"],
        }
    }
}

/// What the user's settings say about native tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolPolicy {
    /// The mode of tools without an entry in `overrides`; `None` leaves it to the host.
    pub mode: Option<ExecutedBy>,
    /// Modes of single tools.
    pub overrides: BTreeMap<NativeTool, ExecutedBy>,
    /// Tools that are refused in every mode.
    pub denied: BTreeSet<NativeTool>,
    /// Whether files outside the workspace may be written and deleted.
    pub allow_outside_writes: bool,
    /// Whether pages of this machine and of private networks may be fetched.
    pub allow_private_fetch: bool,
    /// Paths that are not changed.
    pub protected_paths: ProtectedPaths,
    /// Paths that are neither read nor changed.
    pub secret_paths: SecretPaths,
}

/// Modes by the names settings and hosts use.
pub const MODES: [(&str, ExecutedBy); 4] = [
    ("local", ExecutedBy::Local),
    ("host", ExecutedBy::Host),
    ("ask", ExecutedBy::Ask),
    ("off", ExecutedBy::Off),
];

impl ToolPolicy {
    /// Returns the policy without local execution, for front ends that execute nothing.
    pub fn without_local(mut self) -> Self {
        let here = |mode: &ExecutedBy| matches!(mode, ExecutedBy::Local | ExecutedBy::Ask);
        self.mode = self.mode.filter(|mode| !here(mode));
        self.overrides.retain(|_, mode| !here(mode));
        self
    }
}
