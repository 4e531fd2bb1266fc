//! `hooks.json`: commands that are run before a tool and can deny it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use serde_json::Value as Json;

/// The default timeout of a hook.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest timeout that settings can set.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The event a hook runs on. Cursor has more; only these can deny a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookEvent {
    /// Before any tool.
    PreToolUse,
    /// Before a shell command.
    BeforeShellExecution,
    /// Before the content of a file is returned.
    BeforeReadFile,
    /// Before a tool of an MCP server.
    BeforeMcpExecution,
}

impl HookEvent {
    /// All events.
    pub const ALL: [HookEvent; 4] = [
        HookEvent::PreToolUse,
        HookEvent::BeforeShellExecution,
        HookEvent::BeforeReadFile,
        HookEvent::BeforeMcpExecution,
    ];

    /// The name of the event in settings and in a hook's input.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreToolUse => "preToolUse",
            Self::BeforeShellExecution => "beforeShellExecution",
            Self::BeforeReadFile => "beforeReadFile",
            Self::BeforeMcpExecution => "beforeMCPExecution",
        }
    }
}

/// One hook.
#[derive(Debug, Clone)]
pub struct Hook {
    /// The event it runs on.
    pub event: HookEvent,
    /// Which subjects it runs for; `None` matches all.
    matcher: Option<Regex>,
    /// How it is run.
    pub action: HookAction,
}

/// How a hook is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookAction {
    /// Run a command.
    Command {
        /// The command line for `sh -c`.
        command: String,
        /// The working directory.
        folder: PathBuf,
        /// The timeout.
        timeout: Duration,
    },
    /// The hook cannot be run, for this reason; the tools it guards are denied.
    Unusable(String),
}

impl Hook {
    /// Returns hooks that deny every event with this reason.
    pub(in crate::cursor_config) fn denying_all(why: &str) -> Vec<Self> {
        HookEvent::ALL.map(|event| Self::denying(event, why)).into()
    }

    fn denying(event: HookEvent, why: &str) -> Self {
        Self {
            event,
            matcher: None,
            action: HookAction::Unusable(why.to_owned()),
        }
    }

    /// Whether the hook runs for this event and subject.
    pub fn matches(&self, event: HookEvent, subject: &str) -> bool {
        self.event == event
            && self
                .matcher
                .as_ref()
                .is_none_or(|matcher| matcher.is_match(subject))
    }
}

/// Whether the commands of a hooks file may be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cursor_config) enum HookTrust {
    /// They may be run.
    Trusted,
    /// They may not, for this reason.
    Untrusted(String),
}

fn malformed(file: &Path, event: HookEvent) -> String {
    format!("{}: {} is no list of hooks", file.display(), event.name())
}

/// Returns the problems of a hooks file to report to the user.
pub(in crate::cursor_config) fn problems(file: &Path, json: Option<&Json>) -> Vec<String> {
    let Some(events) = json.and_then(|json| json.get("hooks")?.as_object()) else {
        return vec![format!(
            "{} cannot be understood: no tool runs before it can",
            file.display()
        )];
    };
    let wrong = |event: &HookEvent| {
        let listed = events.get(event.name());
        listed.is_some_and(|listed| !listed.is_array())
    };
    let wrong = HookEvent::ALL.into_iter().filter(wrong);
    wrong
        .map(|event| format!("{}: what it guards does not run", malformed(file, event)))
        .collect()
}

/// Reads the hooks of a file. If the file is malformed, all events are denied; if the entry of
/// one event is malformed, that event is denied.
pub(in crate::cursor_config) fn read(
    file: &Path,
    json: Option<&Json>,
    folder: &Path,
    trust: &HookTrust,
) -> Vec<Hook> {
    let events = json.and_then(|json| json.get("hooks")?.as_object());
    let Some(events) = events else {
        return Hook::denying_all(&format!("{} cannot be understood", file.display()));
    };
    let mut hooks = Vec::new();
    for event in HookEvent::ALL {
        let listed = match events.get(event.name()) {
            None => continue,
            Some(Json::Array(listed)) => listed,
            Some(_) => {
                hooks.push(Hook::denying(event, &malformed(file, event)));
                continue;
            }
        };
        for hook in listed {
            let pattern = hook["matcher"].as_str().unwrap_or_default();
            hooks.push(Hook {
                event,
                // An invalid pattern matches everything, because its intent is unknown.
                matcher: match pattern {
                    "" | "*" => None,
                    pattern => Regex::new(pattern).ok(),
                },
                action: match trust {
                    HookTrust::Trusted => action(hook, file, folder),
                    HookTrust::Untrusted(why) => HookAction::Unusable(why.clone()),
                },
            });
        }
    }
    hooks
}

fn action(hook: &Json, file: &Path, folder: &Path) -> HookAction {
    let kind = hook["type"].as_str().unwrap_or("command");
    let Some(command) = hook["command"].as_str().filter(|_| kind == "command") else {
        return HookAction::Unusable(format!(
            "{} has a hook of a kind this client cannot ask",
            file.display()
        ));
    };
    let seconds = hook["timeout"].as_f64().filter(|seconds| *seconds > 0.0);
    HookAction::Command {
        command: command.to_owned(),
        folder: folder.to_owned(),
        timeout: seconds.map_or(DEFAULT_TIMEOUT, |seconds| {
            Duration::try_from_secs_f64(seconds).map_or(MAX_TIMEOUT, |time| time.min(MAX_TIMEOUT))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hooks(json: Option<&Json>, trust: &HookTrust) -> Vec<Hook> {
        read(Path::new("/h/hooks.json"), json, Path::new("/h"), trust)
    }

    #[test]
    fn hooks_are_read_with_their_matchers() {
        let json = json!({"version": 1, "hooks": {
            "preToolUse": [{"command": "a", "matcher": "Shell|Write"}, {"command": "b", "timeout": 2, "matcher": "*"}],
            "beforeShellExecution": [{"command": "c", "matcher": "(?=x)"}],
            "afterFileEdit": [{"command": "d"}],
            "beforeMCPExecution": [{"type": "prompt", "prompt": "?"}],
        }});
        let hooks = hooks(Some(&json), &HookTrust::Trusted);
        assert_eq!(hooks.len(), 4);
        assert!(hooks[0].matches(HookEvent::PreToolUse, "Shell"));
        assert!(!hooks[0].matches(HookEvent::PreToolUse, "Read"));
        assert!(!hooks[0].matches(HookEvent::BeforeReadFile, "Shell"));
        assert!(hooks[1].matches(HookEvent::PreToolUse, "Read"));
        assert!(hooks[2].matches(HookEvent::BeforeShellExecution, "anything"));
        let HookAction::Command { timeout, .. } = &hooks[1].action else {
            panic!("{hooks:?}");
        };
        assert_eq!(*timeout, Duration::from_secs(2));
        assert!(matches!(hooks[3].action, HookAction::Unusable(_)));
    }

    #[test]
    fn a_hook_that_cannot_be_asked_denies() {
        let broken = hooks(None, &HookTrust::Trusted);
        assert_eq!(broken.len(), HookEvent::ALL.len());
        let json = json!({"hooks": {"beforeReadFile": [{"command": "a"}]}});
        let theirs = hooks(Some(&json), &HookTrust::Untrusted("no".into()));
        assert_eq!(theirs[0].action, HookAction::Unusable("no".into()));
    }

    #[test]
    fn an_event_without_a_list_guards_what_it_is_for() {
        for wrong in [
            json!({"command": "exit 2"}),
            json!("exit 2"),
            json!(null),
            json!(true),
        ] {
            let json = json!({"hooks": {"beforeShellExecution": wrong,
                                        "preToolUse": [{"command": "a"}]}});
            let hooks = hooks(Some(&json), &HookTrust::Trusted);
            assert_eq!(hooks.len(), 2, "{wrong}");
            assert!(matches!(hooks[0].action, HookAction::Command { .. }));
            assert!(hooks[1].matches(HookEvent::BeforeShellExecution, "ls"));
            let why = "/h/hooks.json: beforeShellExecution is no list of hooks";
            assert_eq!(hooks[1].action, HookAction::Unusable(why.into()));
            let found = problems(Path::new("/h/hooks.json"), Some(&json));
            assert_eq!(found, [format!("{why}: what it guards does not run")]);
        }
        // Entries that are not objects deny too.
        let json = json!({"hooks": {"beforeReadFile": ["exit 2", 7]}});
        let hooks = hooks(Some(&json), &HookTrust::Trusted);
        assert_eq!(hooks.len(), 2);
        assert!(
            hooks
                .iter()
                .all(|hook| matches!(hook.action, HookAction::Unusable(_)))
        );
    }
}
