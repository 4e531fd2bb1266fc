//! Cursor's many names for the same tool, and what a person calls them.

use serde_json::{Map, Value as Json};

use super::text;

/// A tool of Cursor's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tool {
    Read,
    Grep,
    Glob,
    Ls,
    Shell,
    Edit,
    Write,
    Delete,
    ReadLints,
    UpdateTodos,
    CreatePlan,
    Task,
    GenerateImage,
    Mcp,
    SemSearch,
    RecordScreen,
    WebSearch,
    WebFetch,
    /// One we know nothing of, by its name.
    Other(String),
}

/// The name of a tool without one.
const UNNAMED: &str = "unknown";

/// Each known tool: its name, its other names in lower case, what a neutral card calls it.
const KNOWN: &[(Tool, &str, &[&str], Option<&str>)] = &[
    (Tool::Read, "read", &["read_file"], None),
    (Tool::Grep, "grep", &["grep_search", "search"], None),
    (Tool::Glob, "glob", &["file_search"], None),
    (Tool::Ls, "ls", &["list_dir"], None),
    (
        Tool::Shell,
        "shell",
        &["run_terminal_cmd", "terminal", "bash"],
        None,
    ),
    (
        Tool::Edit,
        "edit",
        &[
            "strreplace",
            "str_replace",
            "str-replace",
            "edit_file",
            "editfile",
            "edit_notebook",
            "editnotebook",
            "notebook_edit",
            "notebookedit",
        ],
        Some("Cursor edit"),
    ),
    (
        Tool::Write,
        "write",
        &["write_file", "writefile"],
        Some("Cursor write"),
    ),
    (Tool::Delete, "delete", &[], Some("Cursor delete")),
    (
        Tool::ReadLints,
        "readLints",
        &[],
        Some("Cursor diagnostics"),
    ),
    (Tool::UpdateTodos, "updateTodos", &[], Some("Cursor todos")),
    (Tool::CreatePlan, "createPlan", &[], Some("Cursor plan")),
    (Tool::Task, "task", &[], Some("Cursor subagent")),
    (
        Tool::GenerateImage,
        "generateImage",
        &[],
        Some("Cursor image generation"),
    ),
    (Tool::Mcp, "mcp", &[], Some("Cursor MCP")),
    (
        Tool::SemSearch,
        "semSearch",
        &[],
        Some("Cursor semantic search"),
    ),
    (
        Tool::RecordScreen,
        "recordScreen",
        &[],
        Some("Cursor screen recording"),
    ),
    (
        Tool::WebSearch,
        "webSearch",
        &["web_search", "web-search"],
        Some("Cursor web search"),
    ),
    (
        Tool::WebFetch,
        "webFetch",
        &["web_fetch", "web-fetch"],
        Some("Cursor web fetch"),
    ),
];

impl Tool {
    /// The tool's one name.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => KNOWN
                .iter()
                .find(|(tool, ..)| tool == known)
                .map_or(UNNAMED, |(_, name, ..)| name),
        }
    }

    /// What a neutral card calls it; `None` for tools with a card of the host's own.
    fn title(&self) -> Option<&'static str> {
        KNOWN.iter().find(|(tool, ..)| tool == self)?.3
    }
}

/// The tool a name stands for, whatever its arguments.
pub fn normalise(name: &str) -> Tool {
    let name = text::spaced(name);
    if name.is_empty() {
        return Tool::Other(UNNAMED.to_owned());
    }
    let lower = name.to_lowercase();
    KNOWN
        .iter()
        .find(|(_, known, others, _)| {
            known.to_lowercase() == lower || others.contains(&lower.as_str())
        })
        .map_or(Tool::Other(name), |(tool, ..)| tool.clone())
}

/// The tool a call stands for: web tools hide behind several names, and behind MCP.
pub fn resolve(name: &str, arguments: &Map<String, Json>) -> Tool {
    let tool = normalise(name);
    if let Some(web) = web(name) {
        return web;
    }
    if tool == Tool::Mcp {
        let inner = text::string(arguments.get("toolName"))
            .or_else(|| text::string(arguments.get("tool_name")));
        if let Some(web) = inner.and_then(web) {
            return web;
        }
    }
    tool
}

fn web(name: &str) -> Option<Tool> {
    let name = text::spaced(name).to_lowercase();
    let joined = |first: &str, second: &str| {
        let rest = name.strip_prefix(first)?;
        let rest = rest.strip_prefix(['-', '_', ' ']).unwrap_or(rest);
        (rest == second).then_some(())
    };
    let any = |pairs: &[(&str, &str)]| pairs.iter().any(|(a, b)| joined(a, b).is_some());
    if any(&[("web", "search"), ("search", "web"), ("browser", "search")]) {
        return Some(Tool::WebSearch);
    }
    any(&[
        ("web", "fetch"),
        ("fetch", "web"),
        ("browser", "fetch"),
        ("fetch", "url"),
    ])
    .then_some(Tool::WebFetch)
}

/// What a neutral card for a tool of this name is called.
pub fn activity_title(name: &str) -> String {
    match normalise(name).title() {
        Some(title) => title.to_owned(),
        None => match name.trim() {
            "" | UNNAMED => "Cursor tool".to_owned(),
            name => format!("Cursor {}", text::line(name, text::ARGUMENT)),
        },
    }
}

/// How visible a running call of a tool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visibility {
    /// What it is called when it ends without a result; `None` if nobody wants to know.
    pub incomplete: Option<&'static str>,
    /// What it is called while it runs.
    pub running: Option<&'static str>,
    /// Whether a line about the running call is worth its noise.
    pub worth_a_line: bool,
    /// Whether it only looks around and is over at once.
    pub quick: bool,
}

/// How visible a call is while it runs.
pub fn visibility(tool: &Tool) -> Visibility {
    let quick = match tool {
        Tool::Read => Some("Cursor read"),
        Tool::Grep => Some("Cursor grep"),
        Tool::Glob => Some("Cursor find"),
        Tool::Ls => Some("Cursor ls"),
        _ => None,
    };
    let running = match tool {
        Tool::Shell => Some("Cursor shell"),
        tool => tool.title(),
    };
    let silent = matches!(
        tool,
        Tool::Edit | Tool::Write | Tool::Delete | Tool::ReadLints | Tool::Other(_)
    );
    Visibility {
        incomplete: running.or(quick),
        running,
        worth_a_line: running.is_some() && !silent,
        quick: quick.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_tools_are_known_by_their_words() {
        let at = |name: &str| resolve(name, &Map::new());
        assert_eq!(at(" Web   Search "), Tool::WebSearch);
        assert_eq!(at("browser_fetch"), Tool::WebFetch);
        assert_eq!(at("fetchurl"), Tool::WebFetch);
        let ours = "cursor_web_search";
        assert_eq!(at(ours), Tool::Other(ours.into()));
    }
}
