//! The table of all settings, which drives the parser, `docs/settings.md` and warnings.

use super::parse;

/// One environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The name of the variable.
    pub name: &'static str,
    /// The default value; empty if the setting has none.
    pub default: &'static str,
    /// The values it accepts, as text for the user.
    pub values: &'static str,
    /// What it does, as text for the user.
    pub meaning: &'static str,
    /// How it is parsed, if it is a number.
    pub number: Option<Number>,
}

/// A number with bounds; a value outside them is set to the nearest bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    least: u64,
    most: u64,
    zero: ZeroMeaning,
}

/// Whether 0 is valid although it is below the lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZeroMeaning {
    /// 0 is valid, for example as "no limit".
    Allowed,
    /// 0 is not a valid value.
    Invalid,
}

/// The longest delay of Node's timers, because hosts run on Node.
const LONGEST_MS: u64 = 2_147_483_647;

impl Number {
    /// Parses a text as a host would; `None` if it is not a valid number.
    pub fn read(&self, text: &str) -> Option<u64> {
        if self.zero == ZeroMeaning::Allowed && text.trim().parse() == Ok(0.0) {
            return Some(0);
        }
        parse::positive(Some(text)).map(|given| self.within(given))
    }

    /// Returns the integer part, limited to the bounds.
    pub fn within(&self, given: f64) -> u64 {
        (given.trunc() as u64).clamp(self.least, self.most)
    }
}

impl Setting {
    const fn number(mut self, least: u64, most: u64, zero: ZeroMeaning) -> Self {
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
        "The Cursor API key. Never logged, never passed to other programs.",
    ),
    setting(
        "CURSOR_SIDECAR_GATEWAY_TOKEN",
        "",
        "16 or more visible characters",
        "The token that clients of the gateway must send. By default, a token is generated at the first start and kept in a private file.",
    ),
    setting(
        "PI_CURSOR_AGENT_URL",
        "",
        "https URL, or http to this machine",
        "Server for runs. Takes precedence over every other address.",
    ),
    setting(
        "CURSOR_AGENT_URL",
        "",
        "https URL, or http to this machine",
        "Server for runs if PI_CURSOR_AGENT_URL is not set.",
    ),
    setting(
        "CURSOR_BACKEND_URL",
        "https://api2.cursor.sh",
        "https URL, or http to this machine",
        "Server for key exchange, configuration and the model list. If it is set and no agent URL is, also the server for runs.",
    ),
    setting(
        "CURSOR_WEBSITE_URL",
        "https://cursor.com",
        "https URL, or http to this machine",
        "Website for logging in with a browser.",
    ),
    setting(
        "PI_CURSOR_HTTP",
        "auto",
        "auto, 1, 2",
        "HTTP version for runs. auto: as the server advises, otherwise HTTP/2 over TLS; falls back to HTTP/1.1 if HTTP/2 does not work.",
    ),
    setting(
        "PI_CURSOR_CLIENT_TYPE",
        "sdk",
        "a word",
        "The client type sent to Cursor (x-cursor-client-type).",
    ),
    setting(
        "PI_CURSOR_CLIENT_VERSION",
        "sdk-1.0.32",
        "a word",
        "The client version sent to Cursor (x-cursor-client-version).",
    ),
    setting(
        "PI_CURSOR_GHOST_MODE",
        "true",
        "true, false",
        "Ask Cursor to store nothing of what is sent (x-ghost-mode).",
    ),
    setting(
        "PI_CURSOR_CHECKSUM",
        "off",
        "off, on",
        "Send x-cursor-checksum. The official SDK does not send it.",
    ),
    setting(
        "PI_CURSOR_SIDECAR",
        "",
        "a path",
        "The program that pi's extension starts. By default, the one installed with the extension.",
    ),
    setting(
        "PI_CURSOR_STATE_DIR",
        "",
        "a folder",
        "Directory for persistent state. By default, cursor-sidecar in the platform's state directory.",
    ),
    setting(
        "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS",
        "86400000",
        "0, 1, 2 … milliseconds",
        "Use a cached model list for this long before asking Cursor again. 0: always ask.",
    ),
    setting(
        "PI_CURSOR_SDK_DISABLE_MODEL_CACHE",
        "off",
        "off, on",
        "Do not store the model list on disk.",
    ),
    setting(
        "PI_CURSOR_PROVIDER_DEBUG",
        "0",
        "0, 1",
        "Write a debug log; see docs/debugging.md.",
    ),
    setting(
        "PI_CURSOR_PROVIDER_DEBUG_FILE",
        "",
        "file",
        "Write the debug log to this file instead of a new file in the state directory. Enables the log.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE",
        "1",
        "0, 1",
        "Offer the host's tools to Cursor's agent.",
    ),
    setting(
        "PI_CURSOR_ASK_QUESTION",
        "1",
        "0, 1",
        "Let the model ask the user questions. Requires that the host's tools are offered.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG",
        "0",
        "0, 1",
        "Log calls of the host's tools on stderr, in lines that start with [pi-cursor-sdk:bridge]: names, ids and counts, never arguments or results.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
        "",
        "file",
        "Also append the lines of PI_CURSOR_PI_TOOL_BRIDGE_DEBUG to this file. Does not enable them.",
    ),
    setting(
        "PI_CURSOR_EXPOSE_BUILTIN_TOOLS",
        "0",
        "0, 1",
        "Also offer the host's read, bash, write, edit, grep, find and ls, although Cursor has its own.",
    ),
    setting(
        "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
        "3600000",
        "milliseconds, at least 60000",
        "Maximum duration of a tool call.",
    )
    .number(60_000, LONGEST_MS, ZeroMeaning::Invalid),
    setting(
        "PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS",
        "3600",
        "seconds, at least 60",
        "PI_CURSOR_MCP_TOOL_TIMEOUT_MS in seconds. Ignored if that is set.",
    )
    .number(60, LONGEST_MS / 1000, ZeroMeaning::Invalid),
    setting(
        "PI_CURSOR_SETTING_SOURCES",
        "all",
        "all, none, or some of project, user, team, mdm, plugins with commas",
        "Which Cursor settings are used: rules, skills, MCP servers, hooks; see docs/cursor-settings.md. team and plugins have no effect, because no file that is read contains their settings.",
    ),
    setting(
        "PI_CURSOR_TRUST_PROJECT",
        "0",
        "0, 1, or folders with colons",
        "Run commands that a project's own Cursor settings name (MCP servers, hooks): never, always, or in these folders. Accepts the files as they are when first seen; later changes need consent; see docs/cursor-settings.md.",
    ),
    setting(
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS",
        "10000",
        "milliseconds, 1000 to 60000",
        "Maximum time to connect to an MCP server of the user. Turns do not wait for it.",
    )
    .number(1_000, 60_000, ZeroMeaning::Invalid),
    setting(
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS",
        "10",
        "seconds, 1 to 60",
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS in seconds. Ignored if that is set.",
    )
    .number(1, 60, ZeroMeaning::Invalid),
    setting(
        "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS",
        "",
        "milliseconds, no more than any tool may take",
        "Maximum duration of a host tool call, if shorter than PI_CURSOR_MCP_TOOL_TIMEOUT_MS.",
    )
    .number(1, LONGEST_MS, ZeroMeaning::Invalid),
    setting(
        "PI_CURSOR_ACTIVE_BRIDGE_TTL_MS",
        "3600000",
        "milliseconds, at least 1000; 0: no limit",
        "How long a parked run waits for the host's tool results.",
    )
    .number(1_000, LONGEST_MS, ZeroMeaning::Allowed),
    setting(
        "PI_CURSOR_MAX_PARKED_RUNS",
        "512",
        "1 to 4096",
        "Maximum number of parked runs. Beyond it, the run that has waited longest is released, and its tool results are sent to a new run.",
    )
    .number(1, 4096, ZeroMeaning::Invalid),
    setting(
        "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS",
        "120000",
        "milliseconds, at least 1000; 0: no limit",
        "Restart the run if Cursor sends no output for this long.",
    )
    .number(1_000, LONGEST_MS, ZeroMeaning::Allowed),
    setting(
        "PI_CURSOR_STREAM_IDLE_MAX_RETRIES",
        "3",
        "0 to 10",
        "How many times a run is restarted because of PI_CURSOR_STREAM_IDLE_TIMEOUT_MS.",
    )
    .number(0, 10, ZeroMeaning::Allowed),
    setting(
        "PI_CURSOR_RESUME_IDLE_TIMEOUT_MS",
        "240000",
        "milliseconds, at least 1000; 0: no limit",
        "Replaces PI_CURSOR_STREAM_IDLE_TIMEOUT_MS after the host has returned tool results.",
    )
    .number(1_000, LONGEST_MS, ZeroMeaning::Allowed),
    setting(
        "PI_CURSOR_NATIVE_TOOL_DISPLAY",
        "auto",
        "auto, 0, 1",
        "Show Cursor's native tool calls as tool cards in the host instead of lines of text; see docs/cards.md. auto: on, unless the host prints a single answer.",
    ),
    setting(
        "PI_CURSOR_REGISTER_NATIVE_TOOLS",
        "1",
        "0, 1",
        "Let the extension wrap the host's own tools to show tool cards. 0: native tool calls are shown as lines of text.",
    ),
    setting(
        "PI_CURSOR_NATIVE_TOOLS",
        "",
        "local, host, ask, off; of single tools tool=local, tool=host, tool=ask, tool=off; several with commas",
        "Who executes Cursor's native tools: `local` this process, `host` the host's own tools, `ask` this process after the host gives permission, `off` no one. If unset, the host decides; pi reads and searches locally and runs commands, writes, edits and deletes with its own tools. `local,shell=host,delete=off` leaves commands to the host and disables deleting; PI_CURSOR_NATIVE_TOOLS_DENY lists the names of the tools. A tool that is disabled in the host stays disabled.",
    ),
    setting(
        "PI_CURSOR_NATIVE_TOOLS_DENY",
        "",
        "read, ls, grep, write, delete, shell, fetch, git_diff, diagnostics; several with commas",
        "Native tools that are always refused, regardless of PI_CURSOR_NATIVE_TOOLS.",
    ),
    setting(
        "PI_CURSOR_ALLOW_OUTSIDE_WRITES",
        "off",
        "off, on",
        "Allow native tools to write and delete files outside the workspace. Does not restrict commands.",
    ),
    setting(
        "PI_CURSOR_PROTECTED_PATHS",
        "default",
        "default, off, globs to add, !globs to allow; several with commas",
        "Paths that native tools must not write, edit or delete, regardless of who executes them, because other programs execute what is written there. default: `.git` (also git folders of other names), `.pi`, `.husky`, `.envrc`, `.mcp.json`, `.cursor/*.json`, `.claude/settings*`, `.vscode/tasks.json`, `.vscode/settings.json` at any depth, in any case and through links, and dotfiles of the home directory unless the workspace is inside one. Globs have the syntax of `.gitignore`, relative to the workspace, or to the home directory after `~/`: `infra/**,!.vscode/settings.json` protects one more folder and one file less; `off` drops everything before it. `.cursor/mcp.json`, `.cursor/hooks.json` and `.cursorignore` stay protected. Does not restrict commands.",
    ),
    setting(
        "PI_CURSOR_ALLOW_PRIVATE_FETCH",
        "off",
        "off, on",
        "Allow Cursor's fetch tool to access this machine and private networks.",
    ),
    setting(
        "HTTPS_PROXY",
        "",
        "URL",
        "Proxy for https hosts; NO_PROXY lists exceptions.",
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
        "Certificates to trust in addition to the system's.",
    ),
];

/// A setting that could not be parsed, or an unknown one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// An invalid value; the default is used instead.
    #[error("{name}: {value:?} is not one of {expected}; using {default}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The given value.
        value: String,
        /// The values it accepts.
        expected: &'static str,
        /// The default, which is used instead.
        default: &'static str,
    },
    /// An invalid value of a setting that forbids something.
    #[error("{name}: {value:?} is not one of {expected}; until it is, {instead}")]
    Closed {
        /// The setting.
        name: &'static str,
        /// The given value.
        value: String,
        /// The values it accepts.
        expected: &'static str,
        /// What is forbidden until the value is valid.
        instead: &'static str,
    },
    /// An invalid item of a list.
    #[error("{name}: {value:?} is not one of {expected}; it is left out")]
    Part {
        /// The setting.
        name: &'static str,
        /// The item.
        value: String,
        /// The values it accepts.
        expected: &'static str,
    },
    /// A `PI_CURSOR_` name that is not a setting.
    #[error("{0} is not a setting of cursor-sidecar; see docs/settings.md")]
    Unknown(String),
}

/// Returns the setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Returns the value that `choices` maps the text to. For any other text, adds a warning and
/// returns the default.
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

/// Returns the warning for an invalid value.
pub fn not_understood(name: &str, value: Option<&str>) -> Option<Warning> {
    let setting = find(name)?;
    Some(Warning::Value {
        name: setting.name,
        value: value?.to_owned(),
        expected: setting.values,
        default: setting.default,
    })
}

/// Returns the warning for an invalid value of a setting that forbids something; `instead` says
/// what is forbidden because of it.
pub fn taken_for(name: &str, value: &str, instead: &'static str) -> Option<Warning> {
    let setting = find(name)?;
    Some(Warning::Closed {
        name: setting.name,
        value: value.to_owned(),
        expected: setting.values,
        instead,
    })
}

/// Returns the warning for an invalid item of a list.
pub fn part_not_understood(name: &str, part: &str) -> Option<Warning> {
    let setting = find(name)?;
    Some(Warning::Part {
        name: setting.name,
        value: part.to_owned(),
        expected: setting.values,
    })
}

/// Returns a number within its bounds. Returns `None` if it is not set, and also adds a warning
/// if it is not a number.
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

/// Returns warnings for `PI_CURSOR_` names that are not settings.
pub fn unknown(names: impl Iterator<Item = String>) -> Vec<Warning> {
    let mut unknown: Vec<String> = names
        .filter(|name| name.starts_with("PI_CURSOR_") && find(name).is_none())
        .collect();
    unknown.sort_unstable();
    unknown.into_iter().map(Warning::Unknown).collect()
}

/// Returns the text of `docs/settings.md`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Settings\n\nEnvironment variables. A value that cannot be read gives a warning, and the default is used. An unreadable item of a list gives a warning and is ignored, except in `PI_CURSOR_NATIVE_TOOLS` and `PI_CURSOR_NATIVE_TOOLS_DENY`, where it denies everything it could have meant. An unknown `PI_CURSOR_…` name gives a warning. A number out of range is set to the nearest bound. `cursor-sidecar doctor` shows the effective values.\n\n| name | default | values | meaning |\n|---|---|---|---|\n",
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
    fn an_invalid_value_warns_once_and_the_default_is_used() {
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
    fn unknown_names_cause_warnings() {
        let names = ["PI_CURSOR_HTPP", "PI_CURSOR_HTTP", "CURSOR_ELSE", "PATH"];
        let warnings = unknown(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(warnings, [Warning::Unknown("PI_CURSOR_HTPP".into())]);
    }

    #[test]
    fn the_docs_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == markdown(),
            "docs/settings.md is stale: run `make docs`"
        );
    }
}
