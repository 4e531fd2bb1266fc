//! Formats completed tool calls of Cursor's agent as tool cards or text.
//!
//! This module is display only: it never runs a command, calls a tool or changes a file, and it
//! knows neither streams nor host protocols. The only file access is a small preview of a file
//! that Cursor read without reporting its content ([`file_preview`]).
//!
//! A card of a host tool is created only if what Cursor recorded really fits the arguments of that
//! tool; everything else becomes a generic card of the tool [`ACTIVITY_TOOL`].

mod activity;
pub mod activity_tracker;
mod file_preview;
mod files;
mod from_wire;
mod generic_card;
mod misc_cards;
pub mod paths;
pub mod pi_diff;
mod search;
mod shell;
pub mod shell_output;
mod tasks;
mod text;
pub mod tool_names;
mod unknown_tool;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

pub use activity::Activity;
pub use text::single_line;

use crate::shell::CapturedOutput;
use activity::{CallOutcome, redacted};
use tool_names::CursorTool;

/// The host tool that displays generic cards, for activity that no other host tool fits.
pub const ACTIVITY_TOOL: &str = "cursor";

/// Where the activity happened, and how to redact it.
#[derive(Clone, Copy)]
pub struct Workspace<'a> {
    /// The directory that paths are displayed relative to.
    pub root: &'a Path,
    /// Removes secrets from a text.
    pub redact: &'a dyn Fn(&str) -> String,
}

/// A completed tool call with its recorded result, for the host to display.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The host's tool: the name of one of its own tools, or [`ACTIVITY_TOOL`].
    pub tool: &'static str,
    /// Arguments that satisfy the schema of that tool.
    pub arguments: Json,
    /// The recorded result as text.
    pub content: String,
    /// Further data for the host's renderer; may be `Null`.
    pub details: Json,
    /// Whether Cursor reported a failure.
    pub is_error: bool,
}

impl Card {
    /// Converts the card to a generic one. `hostTool` and `hostArguments` name the original, so
    /// that a host can still render it as a card of that tool. An edit is rendered by its diff
    /// instead, because hosts render their own edits differently.
    pub fn into_generic(self) -> Self {
        if self.tool == ACTIVITY_TOOL {
            return self;
        }
        let mut keys = ["command", "path"].iter();
        let subject = keys.find_map(|key| self.arguments[*key].as_str());
        let summary = single_line(subject.unwrap_or_default(), text::MAX_ARGUMENT_CHARS);
        let mut arguments = serde_json::json!({
            "activityTitle": tool_names::activity_title(tool_names::normalize(self.tool).name()),
            "activitySummary": summary,
        });
        let is_edit = self.tool == "edit";
        if !is_edit {
            arguments["hostTool"] = self.tool.into();
            arguments["hostArguments"] = self.arguments;
        }
        let card = Self {
            tool: ACTIVITY_TOOL,
            arguments,
            ..self
        };
        if is_edit {
            generic_card::with_preview_lines(card)
        } else {
            card
        }
    }
}

/// An activity with everything the formatters need.
struct ActivityView<'a> {
    reported_name: &'a str,
    tool: CursorTool,
    args: &'a Map<String, Json>,
    outcome: CallOutcome<'a>,
    root: PathBuf,
    redact: &'a dyn Fn(&str) -> String,
}

impl ActivityView<'_> {
    fn path(&self, path: &str) -> String {
        paths::display(path, &self.root)
    }

    /// Returns the display form of the `path` argument; `None` if it is absent or blank.
    fn path_argument(&self) -> Option<String> {
        let path = text::string(self.args.get("path"))?;
        (!path.trim().is_empty()).then(|| self.path(path))
    }

    fn failed(&self) -> bool {
        matches!(self.outcome, CallOutcome::Failed(_))
    }

    /// Returns a field of the result, if that is an object.
    fn value(&self, key: &str) -> Option<&Json> {
        self.outcome.value()?.get(key)
    }
}

fn view<'a>(activity: &'a Activity, workspace: &Workspace<'a>) -> ActivityView<'a> {
    ActivityView {
        reported_name: activity.reported_name(),
        tool: tool_names::resolve(activity.reported_name(), &activity.arguments),
        args: &activity.arguments,
        outcome: activity.outcome(),
        root: workspace.root.to_owned(),
        redact: workspace.redact,
    }
}

/// Fills in what Cursor's report of a command leaves out with what was captured here.
pub fn complete_command(activity: &mut Activity, captured: CapturedOutput) {
    if tool(activity) == CursorTool::Shell {
        shell::complete(activity, captured);
    }
}

/// Returns the tool that an activity belongs to.
pub fn tool(activity: &Activity) -> CursorTool {
    tool_names::resolve(activity.reported_name(), &activity.arguments)
}

/// Returns the card to display for an activity. Hosts reject a call whose arguments do not satisfy
/// the schema of the tool, so such a card becomes a generic one.
pub fn card(activity: &Activity, workspace: &Workspace<'_>) -> Card {
    let activity = activity.redacted(workspace.redact);
    let view = view(&activity, workspace);
    let card = draw_card(&view, workspace);
    if fits_schema(&card) {
        return for_host_renderer(card, &view, workspace);
    }
    let card = match view.tool {
        CursorTool::Edit => files::generic_edit_card(&view),
        _ => unknown_tool::card(&view, view.tool.name()),
    };
    generic_card::with_preview_lines(redact_card(card, workspace))
}

/// Adapts a card to what the renderers of the host expect.
fn for_host_renderer(mut card: Card, view: &ActivityView<'_>, workspace: &Workspace<'_>) -> Card {
    match card.tool {
        "bash" => {
            // The end may have a secret that the head did not.
            card = redact_card(shell::with_tail(view, card), workspace);
        }
        "ls" => {
            if let Some(listing) = files::listing(view) {
                card.content = (workspace.redact)(&listing);
            }
        }
        _ => {}
    }
    // The host already marks a failed card.
    if card.tool != ACTIVITY_TOOL
        && let Some(error) = card.content.strip_prefix("Error: ")
        && card.is_error
    {
        card.content = error.to_owned();
    }
    generic_card::with_preview_lines(card)
}

/// Whether the arguments of a card satisfy the schema of the host's tool.
fn fits_schema(card: &Card) -> bool {
    let string = |key: &str| card.arguments[key].is_string();
    let number = |key: &str| matches!(card.arguments[key], Json::Null | Json::Number(_));
    let text = |key: &str| matches!(card.arguments[key], Json::Null | Json::String(_));
    match card.tool {
        "read" => string("path") && number("offset") && number("limit"),
        "bash" => string("command") && number("timeout"),
        "grep" | "find" => string("pattern") && text("path"),
        "ls" => text("path") && number("limit"),
        "write" => string("path") && string("content"),
        // The arguments always fit, but without a diff pi would compute one from the file.
        "edit" => card.is_error || card.details["diff"].is_string(),
        _ => true,
    }
}

/// Returns the card that an activity maps to by its tool alone, whether or not a host accepts it.
pub fn map_card(activity: &Activity, workspace: &Workspace<'_>) -> Card {
    let activity = activity.redacted(workspace.redact);
    draw_card(&view(&activity, workspace), workspace)
}

fn draw_card(view: &ActivityView<'_>, workspace: &Workspace<'_>) -> Card {
    let card = match &view.tool {
        CursorTool::Read => files::read_card(view),
        CursorTool::Shell => shell::card(view),
        CursorTool::Grep => search::grep_card(view),
        CursorTool::Glob => search::glob_card(view),
        CursorTool::Ls => files::ls_card(view),
        CursorTool::Edit => files::edit_card(view),
        CursorTool::Write => files::write_card(view),
        CursorTool::Other(name) => unknown_tool::card(view, name),
        _ => generic_card::card(view),
    };
    redact_card(card, workspace)
}

/// Redacts a finished card. The activity was redacted before truncation; this finds secrets that
/// are recognizable only in the formatted text, by a name before them.
fn redact_card(card: Card, workspace: &Workspace<'_>) -> Card {
    Card {
        arguments: redacted(&card.arguments, workspace.redact),
        content: (workspace.redact)(&card.content),
        details: redacted(&card.details, workspace.redact),
        ..card
    }
}

/// Formats an activity as text of limited length, for hosts without cards. Ends with a line break.
pub fn transcript(activity: &Activity, workspace: &Workspace<'_>) -> String {
    let activity = activity.redacted(workspace.redact);
    (workspace.redact)(&format_transcript(&view(&activity, workspace)))
}

fn format_transcript(view: &ActivityView<'_>) -> String {
    match &view.tool {
        CursorTool::Read => files::read(view),
        CursorTool::Shell => shell::transcript(view),
        CursorTool::Grep => search::grep(view),
        CursorTool::Glob => search::glob(view),
        CursorTool::Ls => files::ls(view),
        CursorTool::Edit => files::edit(view, view.path_argument()),
        CursorTool::Write => files::write(view),
        CursorTool::Other(name) => unknown_tool::transcript(view, name),
        _ => generic_card::transcript(view),
    }
}

/// Returns the text of the plan, if the activity created one.
pub fn plan(activity: &Activity, workspace: &Workspace<'_>) -> Option<String> {
    let view = view(activity, workspace);
    if view.tool != CursorTool::CreatePlan {
        return None;
    }
    let plan = tasks::plan_text(&view)?.trim();
    (!plan.is_empty()).then(|| (workspace.redact)(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(call: Json) -> Card {
        let redact = |text: &str| text.replace("hunter2", "***");
        let at = Workspace {
            root: Path::new("/w"),
            redact: &redact,
        };
        card(&Activity::from_json(&call), &at)
    }

    #[test]
    fn truncation_does_not_leave_part_of_a_secret() {
        for at in 100..125 {
            let prompt = format!("{}hunter2 and more", "x".repeat(at));
            let call = json!({"name": "mcp", "args": {"toolName": prompt.clone(), "args": {"a": prompt}},
                "result": {"status": "success", "value": {}}});
            let card = shown(call);
            let debug = format!("{card:?}");
            assert!(!debug.contains("xh"), "{at}: {debug}");
        }
        let long = format!("{}hunter2", "x".repeat(23_997));
        let call = json!({"name": "grep", "args": {"pattern": "x"}, "result": {"status": "success",
            "value": {"workspaceResults": {"/w": {"type": "files", "output": {"files": [long]}}}}}});
        assert!(!shown(call).content.contains("xh"));
    }

    #[test]
    fn matches_are_displayed_relative_to_the_workspace() {
        let found = |kind: &str, output: Json| {
            let value = json!({"workspaceResults": {"/w": {"type": kind, "output": output}}});
            let call = json!({"name": "grep", "args": {"pattern": "x"},
                "result": {"status": "success", "value": value}});
            shown(call).content
        };
        assert_eq!(
            found("files", json!({"files": ["/w/a.rs", "/v/b.rs"]})),
            "a.rs\n/v/b.rs"
        );
        let counts = json!({"counts": [{"file": "/w/a.rs", "count": 2}]});
        assert_eq!(found("count", counts), "a.rs: 2");
        let matches = json!({"matches": [{"file": "/w/a.rs", "lineNumber": 1, "line": "x"}]});
        assert_eq!(found("content", matches), "a.rs:1: x");
        let find = json!({"name": "glob", "args": {"globPattern": "*"},
            "result": {"status": "success", "value": {"files": ["/w/src/a.rs"]}}});
        assert_eq!(shown(find).content, "src/a.rs");
    }

    #[test]
    fn a_partial_read_names_the_offset_to_continue_at() {
        let read = |args: Json, lines: usize, total: usize| {
            let content = vec!["x"; lines].join("\n");
            let result = json!({"content": content, "totalLines": total});
            shown(json!({"name": "read", "args": args, "result": result})).content
        };
        let whole = read(json!({"path": "a"}), 30, 30);
        assert!(whole.ends_with("[10 more lines in file. Use offset=21 to continue.]"));
        let part = read(json!({"path": "a", "offset": 11, "limit": 5}), 5, 30);
        assert!(part.ends_with("[15 more lines in file. Use offset=16 to continue.]"));
        let end = read(json!({"path": "a", "offset": 26, "limit": 5}), 5, 30);
        assert_eq!(end, "x\nx\nx\nx\nx");
        let tail = read(json!({"path": "a", "offset": -5}), 5, 30);
        assert_eq!(tail, "x\nx\nx\nx\nx");
    }

    #[test]
    fn secrets_are_removed_from_cards_and_plans() {
        let card = shown(json!({"name": "edit",
            "args": {"path": "a", "oldText": "hunter2", "newText": "b"},
            "result": {"diffString": "@@ -1 +1 @@\n-hunter2\n+b"}}));
        let all = format!("{} {} {}", card.arguments, card.content, card.details);
        assert!(!all.contains("hunter2"), "{all}");
        let call = json!({"name": "createPlan", "args": {"plan": "use hunter2"}, "result": {}});
        let redact = |text: &str| text.replace("hunter2", "***");
        let at = Workspace {
            root: Path::new("/w"),
            redact: &redact,
        };
        assert_eq!(
            plan(&Activity::from_json(&call), &at),
            Some("use ***".into())
        );
    }

    #[test]
    fn a_call_that_the_host_would_reject_becomes_a_generic_card() {
        for call in [
            json!({"name": "read", "args": {}, "result": {"content": "c"}}),
            json!({"name": "shell", "args": {"cmd": "ls"}, "result": {"stdout": "a"}}),
            json!({"name": "grep", "args": {"glob": "*"}, "result": {"totalMatches": 0}}),
            json!({"name": "ls", "args": {"path": 7}, "result": {}}),
            json!({"name": "write", "args": {"content": "c"}, "result": {}}),
            json!({"name": "edit", "args": {"path": "a", "oldText": "o", "newText": "n"}, "result": {}}),
        ] {
            let card = shown(call);
            assert_eq!(card.tool, ACTIVITY_TOOL);
            assert!(card.arguments["activityTitle"].is_string());
        }
        let fitting = shown(json!({"name": "ls", "args": {}, "result": {}}));
        assert_eq!(fitting.tool, "ls");
    }

    #[test]
    fn cards_contain_what_the_renderers_of_the_host_expect() {
        let tree = json!({"name": "w/", "children": [
            {"name": "src/", "children": [{"name": "b.rs"}, {"name": "A.rs"}]}, {"name": "README"}]});
        let listed = |tree: &Json| {
            let result = json!({ "directoryTreeRoot": tree });
            shown(json!({"name": "ls", "args": {}, "result": result})).content
        };
        assert_eq!(listed(&tree), "README\nsrc/\nsrc/A.rs\nsrc/b.rs");
        assert_eq!(
            listed(&json!({"name": "w/", "children": []})),
            "(empty directory)"
        );
        let rootless = json!({"directoryTreeRoot": null, "entries": [{"name": "a"}]});
        let listed = shown(json!({"name": "ls", "args": {}, "result": rootless}));
        assert_eq!(listed.content, "a");
        let took = json!({"stdout": "a", "executionTime": 1200});
        let bash = shown(json!({"name": "shell", "args": {"command": "c"}, "result": took}));
        assert_eq!(bash.details, json!({"executionTime": 1200}));
        let gone = json!({"status": "error", "error": "no such file"});
        let read = shown(json!({"name": "read", "args": {"path": "a"}, "result": gone}));
        assert_eq!(read.content, "no such file");
    }

    #[test]
    fn a_generic_card_has_preview_lines() {
        let lines: Vec<String> = (1..=12).map(|n| format!("line {n}")).collect();
        let result = json!({"content": [{"text": lines.join("\n")}]});
        let mcp = shown(json!({"name": "mcp", "args": {"toolName": "t"}, "result": result}));
        let glance = mcp.details["glance"].as_array().map(Vec::len);
        assert_eq!((glance, &mcp.details["glanceMore"]), (Some(8), &json!(4)));
        let edit = shown(json!({"name": "edit", "args": {"path": "a"},
            "result": {"diffString": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-\told\n+new"}}));
        assert_eq!(edit.details["glance"], json!(["-1    old", "+1 new"]));
        let page = shown(json!({"name": "web_fetch", "args": {"url": "u"}, "result": result}));
        assert_eq!(page.details["glance"], json!([]), "pages are collapsed");
        assert_eq!(page.details["glanceMore"], 12);
    }

    #[test]
    fn a_tool_error_makes_the_card_an_error() {
        let card = shown(json!({"name": "mcp", "args": {"toolName": "t"},
            "result": {"status": "success", "value": {"isError": true, "content": [{"text": "bad"}]}}}));
        assert!(card.is_error);
    }

    #[test]
    fn malformed_calls_are_displayed() {
        for call in [
            json!({}),
            json!({"name": "read", "args": {"path": 7}, "result": [1, 2]}),
            json!({"name": "shell", "args": {"timeout": "soon"}, "result": null}),
            json!({"name": "grep", "result": {"status": "success", "value": {"workspaceResults": []}}}),
            json!({"name": "edit", "args": {"edits": [7]}, "result": {"diff": "@@ -x +y @@"}}),
            json!({"name": "task", "args": {"subagentType": 3}, "result": {"conversationSteps": {}}}),
            json!({"name": "updateTodos", "result": {"todos": "none"}}),
        ] {
            let card = shown(call.clone());
            assert!(card.arguments.is_object(), "{call}");
        }
    }
}
