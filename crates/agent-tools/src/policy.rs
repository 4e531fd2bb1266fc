//! Which native tools are executed, and by which side, according to the user's settings.

mod decision;

use std::collections::{BTreeMap, BTreeSet};

use crate::ExecRequest;
use crate::handlers::mcp;
use crate::workspace::protected_paths::ProtectedPaths;
use crate::workspace::secret_paths::SecretPaths;
use foundation::settings::{self, Warning};

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

const MODE: &str = "PI_CURSOR_NATIVE_TOOLS";
const DENY: &str = "PI_CURSOR_NATIVE_TOOLS_DENY";
const OUTSIDE: &str = "PI_CURSOR_ALLOW_OUTSIDE_WRITES";
const PRIVATE: &str = "PI_CURSOR_ALLOW_PRIVATE_FETCH";

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

    /// Reads the settings. A part that is not understood becomes a warning, and everything it may
    /// have been meant to forbid is forbidden, because a typo must not allow an effect.
    pub fn from_env(env: &impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let (mut mode, mut overrides) = (None, BTreeMap::new());
        let mut denied = BTreeSet::new();
        let mut unread = false;
        for text in listed(&env(MODE)) {
            let (tool, said) = match text.split_once('=') {
                None => (None, mode_of(text)),
                Some((tool, said)) => (Some(tool_of(tool)), mode_of(said)),
            };
            let instead = match (tool, said) {
                (None, Some(said)) => {
                    mode = Some(said);
                    continue;
                }
                (Some(Some(tool)), Some(said)) => {
                    overrides.insert(tool, said);
                    continue;
                }
                // It could only have allowed something.
                (Some(None), Some(ExecutedBy::Local | ExecutedBy::Ask)) => "it changes nothing",
                (Some(Some(tool)), None) => {
                    overrides.insert(tool, ExecutedBy::Off);
                    "that tool is refused"
                }
                (None | Some(None), _) => {
                    unread = true;
                    "every tool without a word of its own is refused"
                }
            };
            warnings.extend(settings::taken_for(MODE, text, instead));
        }
        if unread {
            mode = Some(ExecutedBy::Off);
        }
        for name in listed(&env(DENY)) {
            match tool_of(name) {
                Some(tool) => {
                    denied.insert(tool);
                }
                None => {
                    denied.extend(NativeTool::ALL.iter().map(|(_, tool)| *tool));
                    let instead = "all of Cursor's own tools are refused";
                    warnings.extend(settings::taken_for(DENY, name, instead));
                }
            }
        }
        let switches = [
            ("0", false),
            ("off", false),
            ("false", false),
            ("1", true),
            ("on", true),
            ("true", true),
        ];
        let mut allows = |name| settings::choose(env, name, &switches, false, &mut warnings);
        let (allow_outside_writes, allow_private_fetch) = (allows(OUTSIDE), allows(PRIVATE));
        let policy = Self {
            mode,
            overrides,
            denied,
            allow_outside_writes,
            allow_private_fetch,
            protected_paths: ProtectedPaths::from_env(env, &mut warnings),
            secret_paths: SecretPaths::from_env(env),
        };
        (policy, warnings)
    }
}

/// Returns the non-empty parts between commas.
fn listed(text: &Option<String>) -> impl Iterator<Item = &str> {
    let parts = text.as_deref().unwrap_or_default().split(',');
    parts.map(str::trim).filter(|part| !part.is_empty())
}

fn named<T: Copy>(known: &[(&str, T)], name: &str) -> Option<T> {
    let same = |(known, _): &&(&str, T)| known.eq_ignore_ascii_case(name.trim());
    known.iter().find(same).map(|(_, value)| *value)
}

fn mode_of(name: &str) -> Option<ExecutedBy> {
    named(&MODES, name)
}

fn tool_of(name: &str) -> Option<NativeTool> {
    named(&NativeTool::ALL, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (ToolPolicy, Vec<Warning>) {
        ToolPolicy::from_env(&|name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_default_leaves_the_mode_to_the_host_and_keeps_to_the_workspace() {
        assert_eq!(read(&[]), (ToolPolicy::default(), Vec::new()));
        assert_eq!(ToolPolicy::default().mode, None);
        assert!(!ToolPolicy::default().allow_outside_writes);
    }

    #[test]
    fn modes_denials_and_permissions_are_read() {
        let (policy, warnings) = read(&[
            (MODE, " Off "),
            (DENY, "shell, WRITE,,"),
            (OUTSIDE, "1"),
            (PRIVATE, "true"),
        ]);
        assert_eq!(warnings, []);
        assert_eq!(policy.mode, Some(ExecutedBy::Off));
        assert_eq!(
            policy.denied,
            BTreeSet::from([NativeTool::Write, NativeTool::Shell])
        );
        assert!(policy.allow_outside_writes);
        assert!(policy.allow_private_fetch);
    }

    #[test]
    fn single_tools_have_modes_of_their_own() {
        let (policy, warnings) = read(&[(MODE, "host, Shell = Local,read=off,write=ask,")]);
        assert_eq!(warnings, []);
        assert_eq!(policy.mode, Some(ExecutedBy::Host));
        let modes = [
            (NativeTool::Read, ExecutedBy::Off),
            (NativeTool::Write, ExecutedBy::Ask),
            (NativeTool::Shell, ExecutedBy::Local),
        ];
        assert_eq!(policy.overrides, BTreeMap::from(modes));
        // The others are left to the host.
        let (policy, warnings) = read(&[(MODE, "shell=off")]);
        assert_eq!((policy.mode, warnings.len()), (None, 0));
    }

    #[test]
    fn front_ends_without_local_execution_keep_the_denials() {
        let (policy, _) = read(&[(MODE, "local,shell=ask,read=off"), (DENY, "write")]);
        let policy = policy.without_local();
        assert_eq!(policy.mode, None);
        assert_eq!(
            policy.overrides,
            BTreeMap::from([(NativeTool::Read, ExecutedBy::Off)])
        );
        assert_eq!(policy.denied, BTreeSet::from([NativeTool::Write]));
    }

    #[test]
    fn a_part_that_is_not_understood_warns_and_forbids_what_it_may_have_forbidden() {
        const UNNAMED: &str = "every tool without a word of its own is refused";
        const ALL: &str = "all of Cursor's own tools are refused";
        let by_host = "read=host ls=host grep=host write=host delete=host shell=host fetch=host git_diff=host diagnostics=host";
        let but_shell = by_host.replace("shell=host ", "");
        for (mode, deny, executed, meanwhile) in [
            ("of", "", "", UNNAMED),
            ("remote,local,read=local", "", "read", UNNAMED),
            ("local,shel=off", "", "", UNNAMED),
            ("local,bash=host", "", "", UNNAMED),
            ("host,shell=of", "", &but_shell, "that tool is refused"),
            ("host,shel=local", "", by_host, "it changes nothing"),
            ("read=local", "delete,shel", "", ALL),
        ] {
            let (policy, warnings) = read(&[(MODE, mode), (DENY, deny)]);
            let chosen = |tool: &NativeTool| {
                let own = policy.overrides.get(tool).copied().or(policy.mode);
                own.filter(|_| !policy.denied.contains(tool))
            };
            let by = |(name, tool): &(&str, NativeTool)| match chosen(tool)? {
                ExecutedBy::Local => Some((*name).to_owned()),
                ExecutedBy::Host => Some(format!("{name}=host")),
                ExecutedBy::Ask | ExecutedBy::Off => None,
            };
            let by: Vec<String> = NativeTool::ALL.iter().filter_map(by).collect();
            assert_eq!(by.join(" "), executed, "{mode} {deny}");
            let messages: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            let [message] = messages.as_slice() else {
                panic!("{mode} {deny}: {messages:?}");
            };
            assert!(
                message.ends_with(&format!("until it is, {meanwhile}")),
                "{message}"
            );
        }
        let (policy, warnings) = read(&[(OUTSIDE, "maybe")]);
        assert_eq!((policy, warnings.len()), (ToolPolicy::default(), 1));
    }
}
