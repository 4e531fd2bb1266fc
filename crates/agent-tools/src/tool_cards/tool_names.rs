//! Cursor's names for its tools, and their display titles.

use serde_json::{Map, Value as Json};

use super::text;

/// A tool of Cursor's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CursorTool {
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
    /// An unknown tool, by its name.
    Other(String),
}

/// The name of a tool without one.
const UNNAMED: &str = "unknown";

/// Each known tool: its name, its aliases in lower case, and its title on a generic card.
const KNOWN: &[(CursorTool, &str, &[&str], Option<&str>)] = &[
    (CursorTool::Read, "read", &["read_file"], None),
    (CursorTool::Grep, "grep", &["grep_search", "search"], None),
    (CursorTool::Glob, "glob", &["file_search"], None),
    (CursorTool::Ls, "ls", &["list_dir"], None),
    (
        CursorTool::Shell,
        "shell",
        &["run_terminal_cmd", "terminal", "bash"],
        None,
    ),
    (
        CursorTool::Edit,
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
        CursorTool::Write,
        "write",
        &["write_file", "writefile"],
        Some("Cursor write"),
    ),
    (CursorTool::Delete, "delete", &[], Some("Cursor delete")),
    (
        CursorTool::ReadLints,
        "readLints",
        &[],
        Some("Cursor diagnostics"),
    ),
    (
        CursorTool::UpdateTodos,
        "updateTodos",
        &[],
        Some("Cursor todos"),
    ),
    (
        CursorTool::CreatePlan,
        "createPlan",
        &[],
        Some("Cursor plan"),
    ),
    (CursorTool::Task, "task", &[], Some("Cursor subagent")),
    (
        CursorTool::GenerateImage,
        "generateImage",
        &[],
        Some("Cursor image generation"),
    ),
    (CursorTool::Mcp, "mcp", &[], Some("Cursor MCP")),
    (
        CursorTool::SemSearch,
        "semSearch",
        &[],
        Some("Cursor semantic search"),
    ),
    (
        CursorTool::RecordScreen,
        "recordScreen",
        &[],
        Some("Cursor screen recording"),
    ),
    (
        CursorTool::WebSearch,
        "webSearch",
        &["web_search", "web-search"],
        Some("Cursor web search"),
    ),
    (
        CursorTool::WebFetch,
        "webFetch",
        &["web_fetch", "web-fetch"],
        Some("Cursor web fetch"),
    ),
];

impl CursorTool {
    /// Returns the canonical name.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => KNOWN
                .iter()
                .find(|(tool, ..)| tool == known)
                .map_or(UNNAMED, |(_, name, ..)| name),
        }
    }

    /// Returns the title on a generic card; `None` for tools with a card of a host tool.
    fn title(&self) -> Option<&'static str> {
        KNOWN.iter().find(|(tool, ..)| tool == self)?.3
    }
}

/// Returns the tool for a name, regardless of its arguments.
pub fn normalize(name: &str) -> CursorTool {
    let name = text::collapse_whitespace(name);
    if name.is_empty() {
        return CursorTool::Other(UNNAMED.to_owned());
    }
    let lower = name.to_lowercase();
    KNOWN
        .iter()
        .find(|(_, known, others, _)| {
            known.to_lowercase() == lower || others.contains(&lower.as_str())
        })
        .map_or(CursorTool::Other(name), |(tool, ..)| tool.clone())
}

/// Returns the tool of a call. Web tools have several names and may be called through MCP.
pub fn resolve(name: &str, arguments: &Map<String, Json>) -> CursorTool {
    let tool = normalize(name);
    if let Some(web) = web(name) {
        return web;
    }
    if tool == CursorTool::Mcp {
        let inner = text::string(arguments.get("toolName"))
            .or_else(|| text::string(arguments.get("tool_name")));
        if let Some(web) = inner.and_then(web) {
            return web;
        }
    }
    tool
}

fn web(name: &str) -> Option<CursorTool> {
    let name = text::collapse_whitespace(name).to_lowercase();
    let joined = |first: &str, second: &str| {
        let rest = name.strip_prefix(first)?;
        let rest = rest.strip_prefix(['-', '_', ' ']).unwrap_or(rest);
        (rest == second).then_some(())
    };
    let any = |pairs: &[(&str, &str)]| pairs.iter().any(|(a, b)| joined(a, b).is_some());
    if any(&[("web", "search"), ("search", "web"), ("browser", "search")]) {
        return Some(CursorTool::WebSearch);
    }
    any(&[
        ("web", "fetch"),
        ("fetch", "web"),
        ("browser", "fetch"),
        ("fetch", "url"),
    ])
    .then_some(CursorTool::WebFetch)
}

/// Returns the title of a generic card for a tool name.
pub fn activity_title(name: &str) -> String {
    match normalize(name).title() {
        Some(title) => title.to_owned(),
        None => match name.trim() {
            "" | UNNAMED => "Cursor tool".to_owned(),
            name => format!(
                "Cursor {}",
                text::single_line(name, text::MAX_ARGUMENT_CHARS)
            ),
        },
    }
}

/// How a running or incomplete call of a tool is displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visibility {
    /// The title if it ends without a result; `None` if it is not displayed.
    pub incomplete: Option<&'static str>,
    /// The title while it runs.
    pub running: Option<&'static str>,
    /// Whether to display a progress line.
    pub shows_progress: bool,
    /// Whether it is a local lookup that completes at once.
    pub is_local_lookup: bool,
}

/// Returns how a call is displayed while it runs.
pub fn visibility(tool: &CursorTool) -> Visibility {
    let is_local_lookup = match tool {
        CursorTool::Read => Some("Cursor read"),
        CursorTool::Grep => Some("Cursor grep"),
        CursorTool::Glob => Some("Cursor find"),
        CursorTool::Ls => Some("Cursor ls"),
        _ => None,
    };
    let running = match tool {
        CursorTool::Shell => Some("Cursor shell"),
        tool => tool.title(),
    };
    let silent = matches!(
        tool,
        CursorTool::Edit
            | CursorTool::Write
            | CursorTool::Delete
            | CursorTool::ReadLints
            | CursorTool::Other(_)
    );
    Visibility {
        incomplete: running.or(is_local_lookup),
        running,
        shows_progress: running.is_some() && !silent,
        is_local_lookup: is_local_lookup.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_tools_are_recognized_by_their_names() {
        let at = |name: &str| resolve(name, &Map::new());
        assert_eq!(at(" Web   Search "), CursorTool::WebSearch);
        assert_eq!(at("browser_fetch"), CursorTool::WebFetch);
        assert_eq!(at("fetchurl"), CursorTool::WebFetch);
        let ours = "cursor_web_search";
        assert_eq!(at(ours), CursorTool::Other(ours.into()));
    }
}
