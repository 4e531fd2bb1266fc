//! Which native tools are executed, and by which side, according to the user's settings.

mod decision;

use std::collections::{BTreeMap, BTreeSet};

use super::protected::ProtectedPaths;
use super::secret_paths::SecretPaths;
use crate::Request;
use crate::servers;

pub use decision::{Decision, Decisions, Denial, HostPolicy};

/// How a native tool is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
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
pub enum Tool {
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

impl Tool {
    /// All tools with the names settings use.
    pub const ALL: [(&'static str, Tool); 9] = [
        ("read", Tool::Read),
        ("ls", Tool::Ls),
        ("grep", Tool::Grep),
        ("write", Tool::Write),
        ("delete", Tool::Delete),
        ("shell", Tool::Shell),
        ("fetch", Tool::Fetch),
        ("git_diff", Tool::GitDiff),
        ("diagnostics", Tool::Diagnostics),
    ];

    /// Returns the tool a request belongs to, or `None` if it belongs to none.
    pub fn of(request: &Request) -> Option<Self> {
        Some(match request {
            Request::ReadArgs(_) | Request::PiReadArgs(_) => Tool::Read,
            Request::LsArgs(_) | Request::PiLsArgs(_) | Request::PiFindArgs(_) => Tool::Ls,
            // A glob without a pattern finds files.
            Request::GrepArgs(args) if args.pattern.is_empty() => Tool::Ls,
            Request::GrepArgs(_) | Request::PiGrepArgs(_) => Tool::Grep,
            Request::WriteArgs(_) | Request::PiWriteArgs(_) | Request::PiEditArgs(_) => Tool::Write,
            Request::ReadMcpResourceExecArgs(args) if servers::is_saved(args) => Tool::Write,
            Request::DeleteArgs(_) => Tool::Delete,
            Request::ShellArgs(_)
            | Request::ShellStreamArgs(_)
            | Request::BackgroundShellSpawnArgs(_)
            | Request::WriteShellStdinArgs(_)
            | Request::ForceBackgroundShellArgs(_)
            | Request::MiniSweAgentBashArgs(_)
            | Request::PiBashArgs(_) => Tool::Shell,
            Request::FetchArgs(_) => Tool::Fetch,
            Request::GitDiffRequest(_) => Tool::GitDiff,
            Request::DiagnosticsArgs(_) => Tool::Diagnostics,
            _ => return None,
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
            Tool::Read => &["read_tool_call", "pi_read_tool_call"],
            Tool::Ls => &[
                "ls_tool_call",
                "glob_tool_call",
                "pi_ls_tool_call",
                "pi_find_tool_call",
            ],
            Tool::Grep => &["grep_tool_call", "pi_grep_tool_call"],
            Tool::Write => &["edit_tool_call", "pi_edit_tool_call", "pi_write_tool_call"],
            Tool::Delete => &["delete_tool_call"],
            Tool::Shell => &[
                "shell_tool_call",
                "write_shell_stdin_tool_call",
                "pi_bash_tool_call",
            ],
            Tool::Fetch => &["fetch_tool_call"],
            Tool::Diagnostics => &["read_lints_tool_call"],
            Tool::GitDiff => &[],
        }
    }

    /// Returns whether it can change files or have other side effects.
    pub fn changes_something(self) -> bool {
        matches!(self, Tool::Write | Tool::Delete | Tool::Shell)
    }

    /// Returns the host tools that enable it: for hosts that require this, it is executed only
    /// while one of them is active. Tools that only read follow `read`; `fetch` follows the tools
    /// that could reach the network otherwise.
    pub fn switched_by(self) -> &'static [&'static str] {
        match self {
            Tool::Read | Tool::GitDiff | Tool::Diagnostics => &["read"],
            Tool::Ls => &["ls", "find"],
            Tool::Grep => &["grep"],
            Tool::Write | Tool::Delete => &["edit", "write"],
            Tool::Shell => &["bash"],
            Tool::Fetch => &["fetch", "web_fetch", "bash"],
        }
    }

    /// Returns the usual names of host tools that do the same, best first.
    pub fn counterparts(self) -> &'static [&'static str] {
        match self {
            Tool::Read | Tool::Diagnostics => &["read"],
            Tool::Ls => &["ls", "find", "bash"],
            Tool::Grep => &["grep", "bash"],
            Tool::Write => &["edit", "write"],
            Tool::Delete | Tool::Shell | Tool::GitDiff => &["bash"],
            Tool::Fetch => &["fetch", "web_fetch", "bash"],
        }
    }
}

/// Whether the user allowed something that is refused by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leave {
    /// It is refused.
    #[default]
    Refused,
    /// The user allowed it.
    Allowed,
}

/// What the user's settings say about native tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The mode of tools without an entry in `overrides`; `None` leaves it to the host.
    pub mode: Option<Mode>,
    /// Modes of single tools.
    pub overrides: BTreeMap<Tool, Mode>,
    /// Tools that are refused in every mode.
    pub denied: BTreeSet<Tool>,
    /// Writes and deletes outside the workspace.
    pub outside_writes: Leave,
    /// Fetching from this machine and from private networks.
    pub private_fetch: Leave,
    /// Paths that are not changed.
    pub protected_paths: ProtectedPaths,
    /// Paths that are neither read nor changed.
    pub secret_paths: SecretPaths,
}

/// Modes by the names settings and hosts use.
pub const MODES: [(&str, Mode); 4] = [
    ("local", Mode::Local),
    ("host", Mode::Host),
    ("ask", Mode::Ask),
    ("off", Mode::Off),
];

impl Policy {
    /// Returns the policy without local execution, for front ends that execute nothing.
    pub fn without_local(mut self) -> Self {
        let here = |mode: &Mode| matches!(mode, Mode::Local | Mode::Ask);
        self.mode = self.mode.filter(|mode| !here(mode));
        self.overrides.retain(|_, mode| !here(mode));
        self
    }
}
