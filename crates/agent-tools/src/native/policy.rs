//! Which native tools are executed, and by which side, according to the user's settings.

mod decision;

use std::collections::{BTreeMap, BTreeSet};

use super::protected::ProtectedPaths;
use super::secret_paths::SecretPaths;
use crate::Request;
use crate::servers;
use foundation::settings::{self, Warning};

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

const MODE: &str = "PI_CURSOR_NATIVE_TOOLS";
const DENY: &str = "PI_CURSOR_NATIVE_TOOLS_DENY";
const OUTSIDE: &str = "PI_CURSOR_ALLOW_OUTSIDE_WRITES";
const PRIVATE: &str = "PI_CURSOR_ALLOW_PRIVATE_FETCH";

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
                (Some(None), Some(Mode::Local | Mode::Ask)) => "it changes nothing",
                (Some(Some(tool)), None) => {
                    overrides.insert(tool, Mode::Off);
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
            mode = Some(Mode::Off);
        }
        for name in listed(&env(DENY)) {
            match tool_of(name) {
                Some(tool) => {
                    denied.insert(tool);
                }
                None => {
                    denied.extend(Tool::ALL.iter().map(|(_, tool)| *tool));
                    let instead = "all of Cursor's own tools are refused";
                    warnings.extend(settings::taken_for(DENY, name, instead));
                }
            }
        }
        let leaves = [
            ("0", Leave::Refused),
            ("off", Leave::Refused),
            ("false", Leave::Refused),
            ("1", Leave::Allowed),
            ("on", Leave::Allowed),
            ("true", Leave::Allowed),
        ];
        let mut leave = |name| settings::choose(env, name, &leaves, Leave::Refused, &mut warnings);
        let (outside_writes, private_fetch) = (leave(OUTSIDE), leave(PRIVATE));
        let policy = Self {
            mode,
            overrides,
            denied,
            outside_writes,
            private_fetch,
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

fn mode_of(name: &str) -> Option<Mode> {
    named(&MODES, name)
}

fn tool_of(name: &str) -> Option<Tool> {
    named(&Tool::ALL, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Policy, Vec<Warning>) {
        Policy::from_env(&|name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_default_leaves_the_mode_to_the_host_and_keeps_to_the_workspace() {
        assert_eq!(read(&[]), (Policy::default(), Vec::new()));
        assert_eq!(Policy::default().mode, None);
        assert_eq!(Policy::default().outside_writes, Leave::Refused);
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
        assert_eq!(policy.mode, Some(Mode::Off));
        assert_eq!(policy.denied, BTreeSet::from([Tool::Write, Tool::Shell]));
        assert_eq!(policy.outside_writes, Leave::Allowed);
        assert_eq!(policy.private_fetch, Leave::Allowed);
    }

    #[test]
    fn single_tools_have_modes_of_their_own() {
        let (policy, warnings) = read(&[(MODE, "host, Shell = Local,read=off,write=ask,")]);
        assert_eq!(warnings, []);
        assert_eq!(policy.mode, Some(Mode::Host));
        let modes = [
            (Tool::Read, Mode::Off),
            (Tool::Write, Mode::Ask),
            (Tool::Shell, Mode::Local),
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
        assert_eq!(policy.overrides, BTreeMap::from([(Tool::Read, Mode::Off)]));
        assert_eq!(policy.denied, BTreeSet::from([Tool::Write]));
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
            let chosen = |tool: &Tool| {
                let own = policy.overrides.get(tool).copied().or(policy.mode);
                own.filter(|_| !policy.denied.contains(tool))
            };
            let by = |(name, tool): &(&str, Tool)| match chosen(tool)? {
                Mode::Local => Some((*name).to_owned()),
                Mode::Host => Some(format!("{name}=host")),
                Mode::Ask | Mode::Off => None,
            };
            let by: Vec<String> = Tool::ALL.iter().filter_map(by).collect();
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
        assert_eq!((policy, warnings.len()), (Policy::default(), 1));
    }
}
