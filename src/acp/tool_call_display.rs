//! Tool calls as a client displays them: title, kind, location, content, plan.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, ToolCallLocation, ToolKind,
};
use serde_json::Value as Json;

use agent_tools::policy::NativeTool;
use agent_tools::tool_cards::ACTIVITY_TOOL;

/// What is displayed of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCallView {
    pub(super) title: String,
    pub(super) kind: ToolKind,
    /// The file it concerns.
    pub(super) path: Option<PathBuf>,
    /// The command, path, pattern or URL, by which a request for permission is matched to the call.
    pub(super) subject: String,
}

impl ToolCallView {
    /// Returns the view of a call of one of the host's tools, or of a tool card.
    pub(super) fn of_call(name: &str, arguments: &Json, cwd: &Path) -> Self {
        let (name, arguments) = match arguments["hostTool"].as_str() {
            Some(tool) => (tool, &arguments["hostArguments"]),
            None => (name, arguments),
        };
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        let path = || Some(cwd.join(text("path"))).filter(|_| !text("path").is_empty());
        let view = |title: String, kind, path, subject| Self {
            title,
            kind,
            path,
            subject,
        };
        match name {
            "bash" => view(text("command"), ToolKind::Execute, None, text("command")),
            "read" => view(
                format!("Read {}", text("path")),
                ToolKind::Read,
                path(),
                text("path"),
            ),
            "ls" => view(
                format!("List {}", text("path")),
                ToolKind::Search,
                path(),
                text("path"),
            ),
            "grep" | "find" => view(
                format!("Search {}", text("pattern")),
                ToolKind::Search,
                path(),
                text("pattern"),
            ),
            "write" | "edit" => view(
                format!("Edit {}", text("path")),
                ToolKind::Edit,
                path(),
                text("path"),
            ),
            ACTIVITY_TOOL => {
                let action = text("activityTitle");
                let action = action.strip_prefix("Cursor ").unwrap_or(&action);
                let summary = text("activitySummary");
                let kind = activity_kind(action);
                let concerns_file = matches!(kind, ToolKind::Edit | ToolKind::Delete);
                let path = concerns_file.then(|| cwd.join(&summary));
                view(format!("{action} {summary}"), kind, path, summary)
            }
            other => view(other.to_owned(), ToolKind::Other, path(), String::new()),
        }
    }

    /// Returns the view of a native tool that needs permission.
    pub(super) fn of_native(tool: NativeTool, subject: &str, cwd: &Path) -> Self {
        let (verb, kind) = match tool {
            NativeTool::Read => ("Read ", ToolKind::Read),
            NativeTool::Ls => ("List ", ToolKind::Search),
            NativeTool::Grep => ("Search ", ToolKind::Search),
            NativeTool::Write => ("Edit ", ToolKind::Edit),
            NativeTool::Delete => ("Delete ", ToolKind::Delete),
            NativeTool::Shell => ("", ToolKind::Execute),
            NativeTool::Fetch => ("Fetch ", ToolKind::Fetch),
            NativeTool::GitDiff => ("Show changes ", ToolKind::Read),
            NativeTool::Diagnostics => ("Check ", ToolKind::Read),
        };
        let names_file = matches!(
            tool,
            NativeTool::Read | NativeTool::Ls | NativeTool::Write | NativeTool::Delete
        );
        Self {
            title: format!("{verb}{subject}"),
            kind,
            path: names_file.then(|| cwd.join(subject)),
            subject: subject.to_owned(),
        }
    }

    /// Returns the location, for clients that follow the agent.
    pub(super) fn locations(&self) -> Vec<ToolCallLocation> {
        let path = self.path.iter();
        path.map(|path| ToolCallLocation::new(path.clone()))
            .collect()
    }
}

/// Returns the kind of an activity by its title.
fn activity_kind(action: &str) -> ToolKind {
    match action {
        "edit" | "write" => ToolKind::Edit,
        "delete" => ToolKind::Delete,
        "web fetch" => ToolKind::Fetch,
        "web search" | "semantic search" => ToolKind::Search,
        "todos" | "plan" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// Returns the plan that a card of Cursor's todo list shows; `None` for other cards.
pub(super) fn plan(name: &str, arguments: &Json, content: &str) -> Option<Plan> {
    if name != ACTIVITY_TOOL || arguments["activityTitle"] != "Cursor todos" {
        return None;
    }
    let entry = |line: &str| {
        let (status, rest) = [
            ("✓ ", PlanEntryStatus::Completed),
            ("… ", PlanEntryStatus::InProgress),
            ("○ ", PlanEntryStatus::Pending),
            ("• ", PlanEntryStatus::Pending),
        ]
        .into_iter()
        .find_map(|(mark, status)| Some((status, line.trim().strip_prefix(mark)?)))?;
        let text = rest.rsplit_once(" (").map_or(rest, |(text, _)| text);
        Some(PlanEntry::new(text, PlanEntryPriority::Medium, status))
    };
    let entries: Vec<PlanEntry> = content.lines().filter_map(entry).collect();
    (!entries.is_empty()).then(|| Plan::new(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cards_are_displayed_by_what_they_did() {
        let view = |name, arguments| ToolCallView::of_call(name, &arguments, Path::new("/w"));
        let ran = view(
            "cursor",
            json!({"activityTitle": "Cursor shell", "hostTool": "bash",
                "hostArguments": {"command": "make"}}),
        );
        assert_eq!((ran.title.as_str(), ran.kind), ("make", ToolKind::Execute));
        let edited = view(
            "cursor",
            json!({"activityTitle": "Cursor edit", "activitySummary": "src/a.rs"}),
        );
        assert_eq!(edited.title, "edit src/a.rs");
        assert_eq!(edited.kind, ToolKind::Edit);
        assert_eq!(edited.path.unwrap(), Path::new("/w/src/a.rs"));
        let read = view("read", json!({"path": "a.rs"}));
        assert_eq!(read.locations()[0].path, Path::new("/w/a.rs"));
    }

    #[test]
    fn todos_become_a_plan() {
        let todos = json!({"activityTitle": "Cursor todos"});
        let text =
            "updateTodos\n✓ read it (completed)\n… fix it (now) (inProgress)\n○ test (pending)";
        let plan = plan("cursor", &todos, text).unwrap();
        let entries = plan.entries.iter();
        let entries: Vec<(&str, PlanEntryStatus)> = entries
            .map(|entry| (entry.content.as_str(), entry.status.clone()))
            .collect();
        assert_eq!(
            entries,
            [
                ("read it", PlanEntryStatus::Completed),
                ("fix it (now)", PlanEntryStatus::InProgress),
                ("test", PlanEntryStatus::Pending)
            ]
        );
        assert_eq!(super::plan("read", &json!({}), text), None);
    }
}
