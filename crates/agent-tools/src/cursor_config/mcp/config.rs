//! `mcp.json`: the configured servers and how to connect to them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::bridge::tool_set::PROVIDER;

/// The configuration of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name in the settings.
    pub name: String,
    /// The prefix of its tools' names: unique, and only characters that Cursor accepts.
    pub label: String,
    /// How to connect to it.
    pub transport: McpTransport,
}

impl ServerConfig {
    /// Creates a configuration with the label that follows from its name.
    pub fn new(name: String, transport: McpTransport) -> Self {
        let label = String::new();
        let mut config = Self {
            name,
            label,
            transport,
        };
        config.label = plain(&config.identifier());
        config
    }

    /// Appends a number to the label if one of the others already uses it.
    pub(in crate::cursor_config) fn make_label_unique(&mut self, others: &[Self]) {
        let is_used = |label: &str| others.iter().any(|other| other.label == label);
        let mut number = 1;
        let own = self.label.clone();
        while is_used(&self.label) {
            number += 1;
            self.label = format!("{own}_{number}");
        }
    }

    /// The provider its tools are grouped under; never the host's own provider.
    pub fn identifier(&self) -> String {
        if self.name == PROVIDER {
            format!("user-{}", self.name)
        } else {
            self.name.clone()
        }
    }
}

/// Replaces every character that Cursor does not accept in a name with `_`.
pub(super) fn plain(name: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => letter,
        _ => '_',
    };
    name.chars().map(letter).collect()
}

/// How to connect to a server.
#[derive(Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A process that is spoken to over stdin and stdout.
    Command {
        /// The program.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables in addition to ours.
        env: BTreeMap<String, String>,
        /// The working directory.
        folder: PathBuf,
    },
    /// An HTTP endpoint.
    Http {
        /// Its URL.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
}

/// Omits arguments, variables and headers, because they can contain secrets.
impl fmt::Debug for McpTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { program, args, .. } => {
                write!(formatter, "Command({program:?} + {})", args.len())
            }
            Self::Http { headers, .. } => write!(formatter, "Http(+ {} headers)", headers.len()),
        }
    }
}

/// The values for `${…}` placeholders.
pub(in crate::cursor_config) struct EnvNames<'a> {
    pub(in crate::cursor_config) workspace: &'a Path,
    pub(in crate::cursor_config) home: Option<&'a Path>,
    /// Returns a variable of the environment that the servers inherit.
    pub(in crate::cursor_config) variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Reads the servers of a file. Returns those that are valid and a problem for each that is not.
/// `env_file` reads an `envFile`, because the caller limits how much is read.
pub(in crate::cursor_config) fn read(
    json: &Json,
    names: &EnvNames<'_>,
    env_file: &mut dyn FnMut(&Path) -> Option<String>,
) -> (Vec<ServerConfig>, Vec<String>) {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    let Some(all) = json.get("mcpServers").and_then(Json::as_object) else {
        return (servers, vec!["it has no \"mcpServers\"".into()]);
    };
    for (name, server) in all {
        if server["disabled"] == true || server["enabled"] == false {
            continue;
        }
        match transport(server, names, env_file) {
            Ok(transport) => servers.push(ServerConfig::new(name.clone(), transport)),
            Err(problem) => problems.push(format!("server {name:?}: {problem}")),
        }
    }
    (servers, problems)
}

fn transport(
    server: &Json,
    names: &EnvNames<'_>,
    env_file: &mut dyn FnMut(&Path) -> Option<String>,
) -> Result<McpTransport, String> {
    let text = |key: &str| {
        let text = server[key].as_str().filter(|text| !text.trim().is_empty());
        text.map(|text| filled(text, names))
    };
    let map = |key: &str| -> BTreeMap<String, String> {
        let members = server[key].as_object().into_iter().flatten();
        members
            .filter_map(|(name, value)| Some((name.clone(), filled(value.as_str()?, names))))
            .collect()
    };
    let kind = server["type"].as_str();
    if let Some(program) = text("command") {
        if kind.is_some_and(|kind| kind != "stdio") {
            return Err(format!(
                "type {:?} has no command",
                kind.unwrap_or_default()
            ));
        }
        let args = server["args"].as_array().into_iter().flatten();
        let mut env = BTreeMap::new();
        if let Some(file) = text("envFile") {
            let text = env_file(&names.workspace.join(file));
            env = variables(&text.ok_or("its envFile is no file that can be read")?);
        }
        env.extend(map("env"));
        return Ok(McpTransport::Command {
            program,
            args: args
                .filter_map(|arg| Some(filled(arg.as_str()?, names)))
                .collect(),
            env,
            folder: names.workspace.join(text("cwd").unwrap_or_default()),
        });
    }
    let Some(url) = text("url") else {
        return Err("it has neither a command nor a url".into());
    };
    if kind == Some("sse") {
        return Err("SSE is not spoken here; servers today offer Streamable HTTP".into());
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("its url is not http or https".into());
    }
    Ok(McpTransport::Http {
        url,
        headers: map("headers"),
    })
}

/// Parses lines of the form `NAME=value`.
fn variables(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("export ").unwrap_or(line).split_once('='))
        .map(|(name, value)| {
            let value = value.trim();
            let bare = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'))
                .or_else(|| value.strip_prefix('\'')?.strip_suffix('\''));
            (name.trim().to_owned(), bare.unwrap_or(value).to_owned())
        })
        .collect()
}

/// Replaces every known `${…}` placeholder; unknown ones are kept.
fn filled(text: &str, names: &EnvNames<'_>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let Some(end) = inside.find('}') else {
            rest = &rest[at..];
            break;
        };
        match named(&inside[..end], names) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[at..at + 2 + end + 1]),
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    out
}

fn named(name: &str, names: &EnvNames<'_>) -> Option<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    if let Some(variable) = name.strip_prefix("env:") {
        return (names.variable)(variable);
    }
    match name {
        "workspaceFolder" => Some(path(names.workspace)),
        "workspaceFolderBasename" => names.workspace.file_name().map(|name| path(name.as_ref())),
        "userHome" => names.home.map(path),
        "pathSeparator" | "/" => Some("/".into()),
        _ => match name.split_once(":-") {
            Some((name, default)) => (names.variable)(name).or_else(|| Some(default.to_owned())),
            None => (names.variable)(name),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(json: &Json) -> (Vec<ServerConfig>, Vec<String>) {
        let variable = |name: &str| (name == "TOKEN").then(|| "t0ken".to_owned());
        let names = EnvNames {
            workspace: Path::new("/srv/space"),
            home: Some(Path::new("/home/me")),
            variable: &variable,
        };
        read(json, &names, &mut |_| None)
    }

    #[test]
    fn both_kinds_are_read_and_names_filled_in() {
        let (servers, problems) = parsed(&json!({"mcpServers": {
            "files": {"command": "${userHome}/bin/x", "args": ["--in", "${workspaceFolder}", "${NO:-d}", "${NONE}"],
                      "env": {"T": "${env:TOKEN}"}, "cwd": "sub"},
            "web": {"url": "https://${TOKEN}.example/${workspaceFolderBasename}", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
            "off": {"command": "x", "disabled": true},
        }}));
        assert_eq!(problems, [""; 0]);
        let McpTransport::Command {
            program,
            args,
            env,
            folder,
        } = &servers[0].transport
        else {
            panic!("{servers:?}");
        };
        assert_eq!(program, "/home/me/bin/x");
        assert_eq!(args, &["--in", "/srv/space", "d", "${NONE}"]);
        assert_eq!(
            (env["T"].as_str(), folder.to_str()),
            ("t0ken", Some("/srv/space/sub"))
        );
        let McpTransport::Http { url, headers } = &servers[1].transport else {
            panic!("{servers:?}");
        };
        assert_eq!(url, "https://t0ken.example/space");
        assert_eq!(headers["Authorization"], "Bearer t0ken");
        assert_eq!(servers.len(), 2);
        assert!(!format!("{servers:?}").contains("t0ken"));
    }

    #[test]
    fn invalid_settings_are_reported_by_name() {
        let (servers, problems) = parsed(&json!({"mcpServers": {
            "a": {}, "b": {"url": "ftp://x"}, "c": {"url": "http://x", "type": "sse"},
            "d": {"command": "x", "type": "http"}, "e": {"command": "x", "envFile": "none"}, "f": {"command": "x"},
        }}));
        assert_eq!((servers.len(), problems.len()), (1, 5), "{problems:?}");
        assert_eq!(parsed(&json!({"servers": {}})).1.len(), 1);
    }

    #[test]
    fn the_hosts_group_is_not_to_be_had() {
        let (servers, _) = parsed(&json!({"mcpServers": {"pi": {"command": "x"}}}));
        assert_eq!(servers[0].identifier(), "user-pi");
    }

    #[test]
    fn servers_whose_names_look_alike_have_labels_of_their_own() {
        let (mut servers, _) = parsed(&json!({"mcpServers": {
            "a_b": {"command": "x"}, "a b": {"command": "x"}, "a:b": {"command": "x"}, "c": {"command": "x"},
        }}));
        for at in 0..servers.len() {
            let (before, rest) = servers.split_at_mut(at);
            rest[0].make_label_unique(before);
        }
        let labels: Vec<&str> = servers.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, ["a_b", "a_b_2", "a_b_3", "c"]);
    }

    #[test]
    fn lines_of_an_env_file() {
        let read = variables("# c\nexport A=1\nB = \"two words\"\nC='x'\nnothing\n");
        let expected = [("A", "1"), ("B", "two words"), ("C", "x")];
        assert_eq!(read, expected.map(|(n, v)| (n.into(), v.into())).into());
    }
}
