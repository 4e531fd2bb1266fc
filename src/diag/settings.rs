//! Every setting, in one table: the parser, `docs/settings.md` and warnings read it.

use super::parse;

/// One environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The value in force when it is not set.
    pub default: &'static str,
    /// The values it takes.
    pub values: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// How it is read, if it is a number.
    pub number: Option<Number>,
}

/// A number with bounds: what lies outside of them counts as the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    least: u64,
    most: u64,
    zero: Zero,
}

/// What 0 is where the least is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zero {
    /// A number like others, or a word for none of it.
    Taken,
    /// No such number.
    Refused,
}

/// The longest delay Node's timers know; hosts run on it.
const LONGEST_MS: u64 = 2_147_483_647;

impl Number {
    /// Reads a text as a host would; `None` for what is no such number.
    pub fn read(&self, text: &str) -> Option<u64> {
        if self.zero == Zero::Taken && text.trim().parse() == Ok(0.0) {
            return Some(0);
        }
        parse::positive(Some(text)).map(|given| self.within(given))
    }

    /// The number within the bounds, without parts of it.
    pub fn within(&self, given: f64) -> u64 {
        (given.trunc() as u64).clamp(self.least, self.most)
    }
}

impl Setting {
    const fn number(mut self, least: u64, most: u64, zero: Zero) -> Self {
        self.number = Some(Number { least, most, zero });
        self
    }
}

const fn setting(
    name: &'static str,
    default: &'static str,
    values: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting {
        name,
        default,
        values,
        meaning,
        number: None,
    }
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    setting(
        "CURSOR_API_KEY",
        "",
        "a key",
        "The Cursor API key. Never logged, never passed on.",
    ),
    setting(
        "CURSOR_SIDECAR_GATEWAY_TOKEN",
        "",
        "16 or more visible characters",
        "What clients of the gateway have to show; by default one made at its first start, in a private file.",
    ),
    setting(
        "PI_CURSOR_AGENT_URL",
        "",
        "https URL, or http to this machine",
        "Where runs go. Wins over every other address.",
    ),
    setting(
        "CURSOR_AGENT_URL",
        "",
        "https URL, or http to this machine",
        "Where runs go, if PI_CURSOR_AGENT_URL is not set.",
    ),
    setting(
        "CURSOR_BACKEND_URL",
        "https://api2.cursor.sh",
        "https URL, or http to this machine",
        "Key exchange, configuration, catalogue; runs too, if no agent URL is set.",
    ),
    setting(
        "CURSOR_WEBSITE_URL",
        "https://cursor.com",
        "https URL, or http to this machine",
        "Where a browser login is done.",
    ),
    setting(
        "PI_CURSOR_HTTP",
        "auto",
        "auto, 1, 2",
        "HTTP version of runs. auto: the server's advice, else HTTP/2 over TLS; falls back to 1 where 2 does not get through.",
    ),
    setting(
        "PI_CURSOR_CLIENT_TYPE",
        "sdk",
        "a word",
        "How we introduce ourselves (x-cursor-client-type).",
    ),
    setting(
        "PI_CURSOR_CLIENT_VERSION",
        "sdk-1.0.32",
        "a word",
        "The client version we claim (x-cursor-client-version).",
    ),
    setting(
        "PI_CURSOR_GHOST_MODE",
        "true",
        "true, false",
        "Whether Cursor is told to keep nothing (x-ghost-mode).",
    ),
    setting(
        "PI_CURSOR_CHECKSUM",
        "off",
        "off, on",
        "Whether x-cursor-checksum is sent. The official SDK does not send it.",
    ),
    setting(
        "PI_CURSOR_SIDECAR",
        "",
        "a path",
        "The program pi's extension starts; the one it came with by default.",
    ),
    setting(
        "PI_CURSOR_STATE_DIR",
        "",
        "a folder",
        "Where what must survive is kept. By default cursor-sidecar in the platform's state folder.",
    ),
    setting(
        "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS",
        "86400000",
        "0, 1, 2 … milliseconds",
        "How long a cached list of models is used without asking Cursor; 0: never.",
    ),
    setting(
        "PI_CURSOR_SDK_DISABLE_MODEL_CACHE",
        "off",
        "off, on",
        "Whether the list of models is kept on disk at all.",
    ),
    setting(
        "PI_CURSOR_PROVIDER_DEBUG",
        "0",
        "0, 1",
        "Whether a debug log is written; see docs/debugging.md.",
    ),
    setting(
        "PI_CURSOR_PROVIDER_DEBUG_FILE",
        "",
        "file",
        "The debug log's file, instead of a new one in the state folder. Turns the log on.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE",
        "1",
        "0, 1",
        "Whether the host's tools are offered to Cursor's agent.",
    ),
    setting(
        "PI_CURSOR_ASK_QUESTION",
        "1",
        "0, 1",
        "Whether the model may put questions to the person, if the host's tools are offered.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG",
        "0",
        "0, 1",
        "Whether calls of the host's tools are told on stderr, as lines that begin with [pi-cursor-sdk:bridge]: names, ids and counts, never arguments or results.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
        "",
        "file",
        "The file those lines are appended to besides.",
    ),
    setting(
        "PI_CURSOR_EXPOSE_BUILTIN_TOOLS",
        "0",
        "0, 1",
        "Whether read, bash, write, edit, grep, find and ls of the host are offered too, though Cursor has its own.",
    ),
    setting(
        "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
        "3600000",
        "milliseconds, at least 60000",
        "How long a tool may take.",
    )
    .number(60_000, LONGEST_MS, Zero::Refused),
    setting(
        "PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS",
        "3600",
        "seconds, at least 60",
        "The same in seconds; milliseconds win.",
    )
    .number(60, LONGEST_MS / 1000, Zero::Refused),
    setting(
        "PI_CURSOR_SETTING_SOURCES",
        "all",
        "all, none, or some of project, user, team, mdm, plugins with commas",
        "Which Cursor settings count: rules, skills, MCP servers, hooks; see docs/cursor-settings.md. Nothing of team and plugins lies in files that are read.",
    ),
    setting(
        "PI_CURSOR_TRUST_PROJECT",
        "0",
        "0, 1, or folders with colons",
        "Whether commands that a project's own Cursor settings name (MCP servers, hooks) are run: never, always, or in these folders. What the files say when they are first seen is accepted; see docs/cursor-settings.md.",
    ),
    setting(
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS",
        "10000",
        "milliseconds, 1000 to 60000",
        "How long an MCP server of the user may take to be there. No turn waits for it.",
    )
    .number(1_000, 60_000, Zero::Refused),
    setting(
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS",
        "10",
        "seconds, 1 to 60",
        "The same in seconds; milliseconds win.",
    )
    .number(1, 60, Zero::Refused),
    setting(
        "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS",
        "",
        "milliseconds, no more than any tool may take",
        "How long a tool of the host may take, if less than any tool may.",
    )
    .number(1, LONGEST_MS, Zero::Refused),
    setting(
        "PI_CURSOR_ACTIVE_BRIDGE_TTL_MS",
        "3600000",
        "milliseconds, at least 1000; 0: no limit",
        "How long a run waits for the host to bring the results of its tools.",
    )
    .number(1_000, LONGEST_MS, Zero::Taken),
    setting(
        "PI_CURSOR_MAX_PARKED_RUNS",
        "512",
        "1 to 4096",
        "How many runs may wait for the host at once. Of more, the one that waited longest is let go; its results are brought to a new run.",
    )
    .number(1, 4096, Zero::Refused),
    setting(
        "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS",
        "120000",
        "milliseconds, at least 1000; 0: no limit",
        "How long Cursor may be at work without anything coming of it before the run is started over.",
    )
    .number(1_000, LONGEST_MS, Zero::Taken),
    setting(
        "PI_CURSOR_STREAM_IDLE_MAX_RETRIES",
        "3",
        "0 to 10",
        "How often a run is started over for that.",
    )
    .number(0, 10, Zero::Taken),
    setting(
        "PI_CURSOR_RESUME_IDLE_TIMEOUT_MS",
        "240000",
        "milliseconds, at least 1000; 0: no limit",
        "The same after the host has brought the results of its tools.",
    )
    .number(1_000, LONGEST_MS, Zero::Taken),
    setting(
        "PI_CURSOR_NATIVE_TOOL_DISPLAY",
        "auto",
        "auto, 0, 1",
        "Whether what Cursor's own tools did is shown as cards of the host rather than told in lines; see docs/cards.md. auto: wherever it is not a single answer that is printed.",
    ),
    setting(
        "PI_CURSOR_REGISTER_NATIVE_TOOLS",
        "1",
        "0, 1",
        "Whether the extension wraps the host's own tools to show such cards. 0: it is told in lines.",
    ),
    setting(
        "PI_CURSOR_NATIVE_TOOLS",
        "",
        "local, host, ask, off; of single tools tool=local, tool=host, tool=ask, tool=off; several with commas",
        "Who executes Cursor's native tools: `local` this process, `host` the host's own tools, `ask` this process after the host gave permission, `off` no one. Unset, the host decides; pi reads and searches locally and runs commands, writes, edits and deletes with its own tools. `local,shell=host,delete=off` leaves commands to the host and deletes nothing; the tools have the names of the next setting. A tool that is switched off in the host stays off.",
    ),
    setting(
        "PI_CURSOR_NATIVE_TOOLS_DENY",
        "",
        "read, ls, grep, write, delete, shell, fetch, git_diff, diagnostics; several with commas",
        "Cursor's own tools that are refused, whoever executes the others.",
    ),
    setting(
        "PI_CURSOR_ALLOW_OUTSIDE_WRITES",
        "off",
        "off, on",
        "Whether Cursor's own tools may write and delete files outside the workspace. Commands are not bound by this.",
    ),
    setting(
        "PI_CURSOR_PROTECTED_PATHS",
        "default",
        "default, off, globs to add, !globs to allow; several with commas",
        "Paths that Cursor's native tools do not write, edit or delete, whoever executes them, because other programs run what is written there. default: `.git` (also git folders of other names), `.pi`, `.husky`, `.envrc`, `.mcp.json`, `.cursor/*.json`, `.claude/settings*`, `.vscode/tasks.json`, `.vscode/settings.json` at any depth, in any case and behind links, and dotfiles of the home directory unless the workspace is inside one. Globs are those of `.gitignore` from the workspace on, or from the home directory on after `~/`: `infra/**,!.vscode/settings.json` protects one folder more and one file less; `off` drops what stands before it. `.cursor/mcp.json`, `.cursor/hooks.json` and `.cursorignore` stay protected. Commands are not bound by this.",
    ),
    setting(
        "PI_CURSOR_ALLOW_PRIVATE_FETCH",
        "off",
        "off, on",
        "Whether Cursor's fetch may reach this machine and private networks.",
    ),
    setting(
        "HTTPS_PROXY",
        "",
        "URL",
        "Proxy for https hosts; NO_PROXY names exceptions.",
    ),
    setting(
        "SSL_CERT_FILE",
        "",
        "PEM file",
        "Certificates to trust instead of the system's.",
    ),
    setting(
        "NODE_EXTRA_CA_CERTS",
        "",
        "PEM file",
        "Certificates to trust besides the system's.",
    ),
];

/// Something that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A bad value; the default is in force instead.
    #[error("{name}: {value:?} is not one of {expected}; using {default}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        expected: &'static str,
        /// What is used instead.
        default: &'static str,
    },
    /// A bad value of a setting that forbids something.
    #[error("{name}: {value:?} is not one of {expected}; until it is, {instead}")]
    Closed {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        expected: &'static str,
        /// What is forbidden meanwhile.
        instead: &'static str,
    },
    /// A bad part of a list.
    #[error("{name}: {value:?} is not one of {expected}; it is left out")]
    Part {
        /// The setting.
        name: &'static str,
        /// The part.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// A `PI_CURSOR_` name nobody reads.
    #[error("{0} is not a setting of cursor-sidecar; see docs/settings.md")]
    Unknown(String),
}

/// The setting of a name in the table.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Reads a choice: the value `choices` gives for the text, or the default and a warning.
pub fn choose<Value: Copy>(
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    choices: &[(&str, Value)],
    default: Value,
    warnings: &mut Vec<Warning>,
) -> Value {
    let Some(text) = env(name).filter(|text| !text.trim().is_empty()) else {
        return default;
    };
    let wanted = text.trim().to_ascii_lowercase();
    if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == wanted) {
        return *value;
    }
    warnings.extend(not_understood(name, Some(&text)));
    default
}

/// The warning for a value that is not understood.
pub fn not_understood(name: &str, value: Option<&str>) -> Option<Warning> {
    let setting = find(name)?;
    Some(Warning::Value {
        name: setting.name,
        value: value?.to_owned(),
        expected: setting.values,
        default: setting.default,
    })
}

/// The warning for a value of a setting that forbids something, and what it was taken for.
pub fn taken_for(name: &str, value: &str, instead: &'static str) -> Option<Warning> {
    let setting = find(name)?;
    Some(Warning::Closed {
        name: setting.name,
        value: value.to_owned(),
        expected: setting.values,
        instead,
    })
}

/// The warning for a part of a list that is not understood.
pub fn part_not_understood(name: &str, part: &str) -> Option<Warning> {
    let setting = find(name)?;
    Some(Warning::Part {
        name: setting.name,
        value: part.to_owned(),
        expected: setting.values,
    })
}

/// Reads a number: within its bounds. `None` if it is not set, and with a warning if it is not
/// understood.
pub fn number(
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    warnings: &mut Vec<Warning>,
) -> Option<u64> {
    let text = env(name).filter(|text| !text.trim().is_empty())?;
    let read = find(name)?.number?.read(&text);
    if read.is_none() {
        warnings.extend(not_understood(name, Some(&text)));
    }
    read
}

/// Warnings for `PI_CURSOR_` names that no setting has.
pub fn unknown(names: impl Iterator<Item = String>) -> Vec<Warning> {
    let mut unknown: Vec<String> = names
        .filter(|name| name.starts_with("PI_CURSOR_") && find(name).is_none())
        .collect();
    unknown.sort_unstable();
    unknown.into_iter().map(Warning::Unknown).collect()
}

/// The table as `docs/settings.md` shows it.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Settings\n\nEnvironment variables. A value that cannot be read gives a warning, and the default is used. An unreadable item of a list gives a warning and is ignored, except in `PI_CURSOR_NATIVE_TOOLS` and `PI_CURSOR_NATIVE_TOOLS_DENY`, where it denies everything it could have meant. An unknown `PI_CURSOR_…` name gives a warning. A number out of range is set to the nearest bound. `cursor-sidecar doctor` tells what is in force.\n\n| name | default | values | meaning |\n|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let default = if setting.default.is_empty() {
            String::new()
        } else {
            format!("`{}`", setting.default)
        };
        page.push_str(&format!(
            "| `{}` | {default} | {} | {} |\n",
            setting.name, setting.values, setting.meaning
        ));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_warns_once_and_the_default_rules() {
        let mut warnings = Vec::new();
        let read = |value: &'static str, warnings: &mut Vec<Warning>| {
            let env = |_: &str| Some(value.to_owned());
            choose(&env, "PI_CURSOR_HTTP", &[("1", 1), ("2", 2)], 0, warnings)
        };
        assert_eq!(read(" 2 ", &mut warnings), 2);
        assert_eq!(read("", &mut warnings), 0);
        assert!(warnings.is_empty());
        assert_eq!(read("3", &mut warnings), 0);
        insta::assert_snapshot!(warnings[0], @r#"PI_CURSOR_HTTP: "3" is not one of auto, 1, 2; using auto"#);
    }

    #[test]
    fn a_number_is_kept_within_its_bounds() {
        let read = |name: &str, text: &str| find(name).unwrap().number.unwrap().read(text);
        for (text, wanted) in [
            ("0", Some(0)),
            (" 0 ", Some(0)),
            ("1", Some(1_000)),
            ("1000", Some(1_000)),
            ("2000.9", Some(2_000)),
            ("1e99", Some(LONGEST_MS)),
            ("-1", None),
            ("", None),
            ("full", None),
        ] {
            let name = "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS";
            assert_eq!(read(name, text), wanted, "{text:?}");
        }
        let retries = |text| read("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", text);
        let tried = ["0", "3", "10", "11", "2.7", "-1", "many"].map(retries);
        let wanted = [Some(0), Some(3), Some(10), Some(10), Some(2), None, None];
        assert_eq!(tried, wanted);
        let runs = |text| read("PI_CURSOR_MAX_PARKED_RUNS", text);
        assert_eq!(["0", "0.5", "9999"].map(runs), [None, Some(1), Some(4096)]);
    }

    #[test]
    fn a_default_that_is_a_number_is_within_its_bounds() {
        for setting in SETTINGS {
            let Some(number) = setting.number.filter(|_| !setting.default.is_empty()) else {
                continue;
            };
            let read = number.read(setting.default).map(|read| read.to_string());
            assert_eq!(read.as_deref(), Some(setting.default), "{}", setting.name);
        }
    }

    #[test]
    fn unknown_names_are_told() {
        let names = ["PI_CURSOR_HTPP", "PI_CURSOR_HTTP", "CURSOR_ELSE", "PATH"];
        let warnings = unknown(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(warnings, [Warning::Unknown("PI_CURSOR_HTPP".into())]);
    }

    #[test]
    fn the_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == markdown(),
            "docs/settings.md is stale: run `make docs`"
        );
    }
}
