//! Whose hands do what Cursor's own tools ask for, as the user's settings say it.

use std::collections::{BTreeMap, BTreeSet};

use crate::diag::settings::{self, Warning};
use crate::tools::Request;
use crate::tools::by_host::HostTools;
use crate::tools::servers;
use crate::wire::headers::ToolGates;

/// Who executes Cursor's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// This process does.
    #[default]
    Local,
    /// The host's own tools do.
    Host,
    /// Nobody does.
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
    /// Commands, in front or behind.
    Shell,
    /// Getting a page.
    Fetch,
    /// What git says of changes.
    GitDiff,
    /// Diagnostics of a file.
    Diagnostics,
}

impl Tool {
    /// All of them, by the names settings use.
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

    /// The tool a request belongs to.
    pub fn of(request: &Request) -> Option<Self> {
        Some(match request {
            Request::ReadArgs(_) | Request::PiReadArgs(_) => Tool::Read,
            Request::LsArgs(_) | Request::PiLsArgs(_) | Request::PiFindArgs(_) => Tool::Ls,
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

    /// The name settings use.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, tool)| *tool == self)
            .map_or("", |(name, _)| name)
    }

    /// What Cursor calls it when a client says which tools it wants.
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

    /// The host's tools that do it where it is left to the host.
    pub fn done_by(self) -> &'static [&'static str] {
        match self {
            Tool::Read => &["read"],
            Tool::Ls => &["ls", "find"],
            Tool::Grep => &["grep", "find"],
            Tool::Write => &["edit", "write"],
            Tool::Shell => &["bash"],
            Tool::Delete | Tool::Fetch | Tool::GitDiff | Tool::Diagnostics => &[],
        }
    }

    /// The usual names of host tools that do the same, best first.
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

/// Whether something outside its usual bounds is allowed.
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
    /// Who executes, unless something else is said of a tool.
    pub mode: Mode,
    /// Who executes these instead.
    pub overrides: BTreeMap<Tool, Mode>,
    /// Tools nobody executes, whatever the mode.
    pub denied: BTreeSet<Tool>,
    /// Writes and deletes outside the workspace.
    pub outside_writes: Leave,
    /// Pages on this machine and in private networks.
    pub private_fetch: Leave,
}

const MODE: &str = "PI_CURSOR_NATIVE_TOOLS";
const DENY: &str = "PI_CURSOR_NATIVE_TOOLS_DENY";
const OUTSIDE: &str = "PI_CURSOR_ALLOW_OUTSIDE_WRITES";
const PRIVATE: &str = "PI_CURSOR_ALLOW_PRIVATE_FETCH";

const MODES: [(&str, Mode); 3] = [
    ("local", Mode::Local),
    ("host", Mode::Host),
    ("off", Mode::Off),
];

impl Policy {
    /// Who executes a tool.
    pub fn of(&self, tool: Tool) -> Mode {
        match self.denied.contains(&tool) {
            true => Mode::Off,
            false => *self.overrides.get(&tool).unwrap_or(&self.mode),
        }
    }

    /// Whether anybody executes a tool, of a host that has these tools with these arguments.
    pub fn executes(&self, tool: Tool, host_has: impl Fn(&str, &[&str]) -> bool) -> bool {
        let by_host = || match tool {
            Tool::Read => host_has("read", &["path"]),
            Tool::Ls => host_has("ls", &["path"]),
            Tool::Grep => host_has("grep", &["pattern"]),
            Tool::Write => host_has("write", &["path", "content"]),
            Tool::Shell => host_has("bash", &["command"]),
            Tool::Delete | Tool::Fetch | Tool::GitDiff | Tool::Diagnostics => false,
        };
        match self.of(tool) {
            Mode::Local => true,
            Mode::Host => by_host(),
            Mode::Off => false,
        }
    }

    /// What the server is told not to offer to the model: it would only be refused.
    pub fn gates(&self, host: &HostTools) -> ToolGates {
        let refused = |tool: Tool| !self.executes(tool, |name, needs| host.take(name, needs));
        let tools = Tool::ALL.iter().map(|(_, tool)| *tool);
        let names = tools.filter(|tool| refused(*tool)).flat_map(Tool::calls);
        ToolGates {
            allowed: None,
            excluded: names.map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Reads the settings. What is not understood becomes a warning, and whatever it may have
    /// forbidden is forbidden: nobody should learn from a deleted file that a word was mistyped.
    pub fn from_env(env: &impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let (mut mode, mut overrides) = (Mode::Local, BTreeMap::new());
        let mut denied = BTreeSet::new();
        let mut unread = false;
        for text in listed(&env(MODE)) {
            let (tool, said) = match text.split_once('=') {
                None => (None, mode_of(text)),
                Some((tool, said)) => (Some(tool_of(tool)), mode_of(said)),
            };
            let instead = match (tool, said) {
                (None, Some(said)) => {
                    mode = said;
                    continue;
                }
                (Some(Some(tool)), Some(said)) => {
                    overrides.insert(tool, said);
                    continue;
                }
                // It would have allowed what nobody else allows.
                (Some(None), Some(Mode::Local)) => "it changes nothing",
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
            mode = Mode::Off;
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
        };
        (policy, warnings)
    }
}

/// What stands between commas.
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
    fn the_default_executes_here_and_keeps_to_the_workspace() {
        assert_eq!(read(&[]), (Policy::default(), Vec::new()));
        assert_eq!(Policy::default().mode, Mode::Local);
        assert_eq!(Policy::default().outside_writes, Leave::Refused);
    }

    #[test]
    fn modes_denials_and_leaves_are_read() {
        let (policy, warnings) = read(&[
            (MODE, " Off "),
            (DENY, "shell, WRITE,,"),
            (OUTSIDE, "1"),
            (PRIVATE, "true"),
        ]);
        assert_eq!(warnings, []);
        assert_eq!(policy.mode, Mode::Off);
        assert_eq!(policy.denied, BTreeSet::from([Tool::Write, Tool::Shell]));
        assert_eq!(policy.outside_writes, Leave::Allowed);
        assert_eq!(policy.private_fetch, Leave::Allowed);
    }

    #[test]
    fn single_tools_can_be_somebody_elses() {
        let (policy, warnings) = read(&[(MODE, "host, Shell = Local,read=off,"), (DENY, "write")]);
        assert_eq!(warnings, []);
        let of = |tool| policy.of(tool);
        assert_eq!(
            [Tool::Grep, Tool::Shell, Tool::Read, Tool::Write].map(of),
            [Mode::Host, Mode::Local, Mode::Off, Mode::Off]
        );
        // Nothing is said of the others.
        let (policy, warnings) = read(&[(MODE, "shell=off")]);
        assert_eq!((policy.mode, warnings.len()), (Mode::Local, 0));
        assert_eq!(policy.of(Tool::Shell), Mode::Off);
        let excluded = read(&[(MODE, "off,read=local")])
            .0
            .gates(&HostTools::default());
        assert!(!excluded.excluded.contains(&"read_tool_call".into()));
        assert!(excluded.excluded.contains(&"shell_tool_call".into()));
    }

    #[test]
    fn the_server_is_told_what_would_be_refused() {
        let schema = serde_json::json!({"properties": {"path": {}, "command": {}}});
        let host = HostTools::new([("read", &schema), ("bash", &schema)]);
        let excluded = |pairs: &[(&str, &str)]| read(pairs).0.gates(&host).excluded;
        assert_eq!(excluded(&[]), [""; 0]);
        assert_eq!(excluded(&[(DENY, "delete")]), ["delete_tool_call"]);
        let by_host = excluded(&[(MODE, "host")]);
        assert!(by_host.contains(&"grep_tool_call".into()), "{by_host:?}");
        assert!(!by_host.contains(&"shell_tool_call".into()), "{by_host:?}");
        assert!(excluded(&[(MODE, "off")]).contains(&"shell_tool_call".into()));
    }

    #[test]
    fn what_is_not_understood_is_told_and_forbids_what_it_may_have_forbidden() {
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
            let by = |(name, tool): &(&str, Tool)| match policy.of(*tool) {
                Mode::Local => Some((*name).to_owned()),
                Mode::Host => Some(format!("{name}=host")),
                Mode::Off => None,
            };
            let by: Vec<String> = Tool::ALL.iter().filter_map(by).collect();
            assert_eq!(by.join(" "), executed, "{mode} {deny}");
            let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            let [told] = told.as_slice() else {
                panic!("{mode} {deny}: {told:?}");
            };
            assert!(
                told.ends_with(&format!("until it is, {meanwhile}")),
                "{told}"
            );
        }
        let (policy, warnings) = read(&[(OUTSIDE, "maybe")]);
        assert_eq!((policy, warnings.len()), (Policy::default(), 1));
    }
}
