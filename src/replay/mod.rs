//! Completed Cursor tool activity → a card or lines of text.
//!
//! Everything here is display: this room never runs a command, never calls a tool, never
//! changes a file, and knows neither streams nor hosts' protocols. The only thing it may touch
//! is a small, safe preview of a file Cursor says it read without saying what it read
//! ([`preview`]).
//!
//! A native-looking card is made only when what Cursor recorded truthfully fits the host
//! tool's arguments; everything else becomes the neutral [`ACTIVITY`] card.

mod activity;
mod files;
mod from_wire;
pub mod ledger;
pub mod names;
mod neutral;
pub mod output;
pub mod paths;
pub mod pi_diff;
mod preview;
mod results;
mod search;
mod shell;
mod tasks;
mod text;
mod unknown;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

pub use activity::Activity;
pub use text::line as one_line;

use activity::{Outcome, scrubbed};
use names::Tool;

/// The host tool that shows activity no host tool of its own stands for.
pub const ACTIVITY: &str = "cursor";

/// Where the activity happened, and what must not be shown of it.
#[derive(Clone, Copy)]
pub struct Workspace<'a> {
    /// The folder paths are shown relative to.
    pub root: &'a Path,
    /// Takes secrets out of a text.
    pub scrub: &'a dyn Fn(&str) -> String,
}

/// A tool call to show in the host's own form, with its recorded result.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The host's tool: one of its own names, or [`ACTIVITY`].
    pub tool: &'static str,
    /// Arguments that satisfy that tool's schema.
    pub arguments: Json,
    /// The recorded result as text.
    pub content: String,
    /// What the host's renderer needs besides; `Null` if nothing.
    pub details: Json,
    /// Whether Cursor reported a failure.
    pub verdict: Verdict,
}

impl Card {
    /// The same card under the neutral name. `hostTool` and `hostArguments` say what it stands
    /// for, so that a host can still draw it as a card of that tool; an edit is drawn by its
    /// diff, because hosts frame their own edits differently.
    pub fn under_neutral_name(self) -> Self {
        if self.tool == ACTIVITY {
            return self;
        }
        let mut keys = ["command", "path"].iter();
        let subject = keys.find_map(|key| self.arguments[*key].as_str());
        let summary = one_line(subject.unwrap_or_default(), text::ARGUMENT);
        let mut arguments = serde_json::json!({
            "activityTitle": names::activity_title(names::normalise(self.tool).name()),
            "activitySummary": summary,
        });
        let is_edit = self.tool == "edit";
        if !is_edit {
            arguments["hostTool"] = self.tool.into();
            arguments["hostArguments"] = self.arguments;
        }
        let card = Self {
            tool: ACTIVITY,
            arguments,
            ..self
        };
        if is_edit {
            neutral::with_glance(card)
        } else {
            card
        }
    }
}

/// Whether a recorded call went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Done,
    /// It did not.
    Failed,
}

/// One activity as the formatters see it.
struct View<'a> {
    raw: &'a str,
    tool: Tool,
    args: &'a Map<String, Json>,
    outcome: Outcome<'a>,
    root: PathBuf,
    scrub: &'a dyn Fn(&str) -> String,
}

impl View<'_> {
    fn path(&self, path: &str) -> String {
        paths::display(path, &self.root)
    }

    /// An argument that is a path, as it is shown; `None` if it is absent or blank.
    fn path_argument(&self) -> Option<String> {
        let path = text::string(self.args.get("path"))?;
        (!path.trim().is_empty()).then(|| self.path(path))
    }

    fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    fn verdict(&self) -> Verdict {
        match self.failed() {
            true => Verdict::Failed,
            false => Verdict::Done,
        }
    }

    /// A field of the result, where it is an object.
    fn value(&self, key: &str) -> Option<&Json> {
        self.outcome.value()?.get(key)
    }
}

fn view<'a>(activity: &'a Activity, workspace: &Workspace<'a>) -> View<'a> {
    View {
        raw: activity.raw_name(),
        tool: names::resolve(activity.raw_name(), &activity.arguments),
        args: &activity.arguments,
        outcome: activity.outcome(),
        root: workspace.root.to_owned(),
        scrub: workspace.scrub,
    }
}

/// The tool of Cursor's agent that an activity belongs to.
pub fn tool(activity: &Activity) -> Tool {
    names::resolve(activity.raw_name(), &activity.arguments)
}

/// The card to show for an activity: one the host takes. Hosts refuse a call whose arguments
/// do not satisfy the tool's schema, so one that does not becomes a neutral card.
pub fn card(activity: &Activity, workspace: &Workspace<'_>) -> Card {
    let activity = activity.scrubbed(workspace.scrub);
    let view = view(&activity, workspace);
    let card = drawn(&view, workspace);
    if fits(&card) {
        return as_host_shows(card, &view, workspace);
    }
    let card = match view.tool {
        Tool::Edit => files::neutral_edit_card(&view),
        _ => unknown::card(&view, view.tool.name()),
    };
    neutral::with_glance(clean(card, workspace))
}

/// What only a host's own renderer makes use of.
fn as_host_shows(mut card: Card, view: &View<'_>, workspace: &Workspace<'_>) -> Card {
    match card.tool {
        "bash" => card.details = shell::time(view),
        "ls" => {
            if let Some(listing) = files::listing(view) {
                card.content = (workspace.scrub)(&listing);
            }
        }
        _ => {}
    }
    // The card's colour says that much.
    if card.tool != ACTIVITY
        && let Some(error) = card.content.strip_prefix("Error: ")
        && card.verdict == Verdict::Failed
    {
        card.content = error.to_owned();
    }
    neutral::with_glance(card)
}

/// Whether a card's arguments satisfy the schema of the host's tool.
fn fits(card: &Card) -> bool {
    let string = |key: &str| card.arguments[key].is_string();
    let number = |key: &str| matches!(card.arguments[key], Json::Null | Json::Number(_));
    let text = |key: &str| matches!(card.arguments[key], Json::Null | Json::String(_));
    match card.tool {
        "read" => string("path") && number("offset") && number("limit"),
        "bash" => string("command") && number("timeout"),
        "grep" | "find" => string("pattern") && text("path"),
        "ls" => text("path") && number("limit"),
        "write" => string("path") && string("content"),
        // Made only of arguments that fit, but without the change pi would go and look for it.
        "edit" => card.verdict == Verdict::Failed || card.details["diff"].is_string(),
        _ => true,
    }
}

/// The card an activity maps to by its tool alone, whether or not a host would take it.
pub fn mapped(activity: &Activity, workspace: &Workspace<'_>) -> Card {
    let activity = activity.scrubbed(workspace.scrub);
    drawn(&view(&activity, workspace), workspace)
}

fn drawn(view: &View<'_>, workspace: &Workspace<'_>) -> Card {
    let card = match &view.tool {
        Tool::Read => files::read_card(view),
        Tool::Shell => shell::card(view),
        Tool::Grep => search::grep_card(view),
        Tool::Glob => search::glob_card(view),
        Tool::Ls => files::ls_card(view),
        Tool::Edit => files::edit_card(view),
        Tool::Write => files::write_card(view),
        Tool::Other(name) => unknown::card(view, name),
        _ => neutral::card(view),
    };
    clean(card, workspace)
}

/// What was told has lost its secrets before it was cut; this finds those that show only in
/// what it became, by a name before them.
fn clean(card: Card, workspace: &Workspace<'_>) -> Card {
    Card {
        arguments: scrubbed(&card.arguments, workspace.scrub),
        content: (workspace.scrub)(&card.content),
        details: scrubbed(&card.details, workspace.scrub),
        ..card
    }
}

/// An activity as bounded text, for hosts without cards. Ends with a line break.
pub fn transcript(activity: &Activity, workspace: &Workspace<'_>) -> String {
    let activity = activity.scrubbed(workspace.scrub);
    (workspace.scrub)(&written(&view(&activity, workspace)))
}

fn written(view: &View<'_>) -> String {
    match &view.tool {
        Tool::Read => files::read(view),
        Tool::Shell => shell::transcript(view),
        Tool::Grep => search::grep(view),
        Tool::Glob => search::glob(view),
        Tool::Ls => files::ls(view),
        Tool::Edit => files::edit(view, view.path_argument()),
        Tool::Write => files::write(view),
        Tool::Other(name) => unknown::transcript(view, name),
        _ => neutral::transcript(view),
    }
}

/// The text of a plan, if the activity made one: what the run may end with.
pub fn plan(activity: &Activity, workspace: &Workspace<'_>) -> Option<String> {
    let view = view(activity, workspace);
    if view.tool != Tool::CreatePlan {
        return None;
    }
    let plan = tasks::plan_text(&view)?.trim();
    (!plan.is_empty()).then(|| (workspace.scrub)(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(call: Json) -> Card {
        let scrub = |text: &str| text.replace("hunter2", "***");
        let at = Workspace {
            root: Path::new("/w"),
            scrub: &scrub,
        };
        card(&Activity::read(&call), &at)
    }

    #[test]
    fn what_is_cut_in_the_middle_of_a_secret_shows_no_half_of_it() {
        for at in 100..125 {
            let prompt = format!("{}hunter2 and more", "x".repeat(at));
            let call = json!({"name": "mcp", "args": {"toolName": prompt.clone(), "args": {"a": prompt}},
                "result": {"status": "success", "value": {}}});
            let card = shown(call);
            let told = format!("{card:?}");
            assert!(!told.contains("xh"), "{at}: {told}");
        }
        let long = format!("{}hunter2", "x".repeat(23_997));
        let call = json!({"name": "grep", "args": {"pattern": "x"}, "result": {"status": "success",
            "value": {"workspaceResults": {"/w": {"type": "files", "output": {"files": [long]}}}}}});
        assert!(!shown(call).content.contains("xh"));
    }

    #[test]
    fn what_was_found_is_told_from_the_workspace_on() {
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
    fn a_part_of_a_file_says_where_the_rest_is() {
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
    fn secrets_are_taken_out_of_everything_shown() {
        let card = shown(json!({"name": "edit",
            "args": {"path": "a", "oldText": "hunter2", "newText": "b"},
            "result": {"diffString": "@@ -1 +1 @@\n-hunter2\n+b"}}));
        let all = format!("{} {} {}", card.arguments, card.content, card.details);
        assert!(!all.contains("hunter2"), "{all}");
        let call = json!({"name": "createPlan", "args": {"plan": "use hunter2"}, "result": {}});
        let scrub = |text: &str| text.replace("hunter2", "***");
        let at = Workspace {
            root: Path::new("/w"),
            scrub: &scrub,
        };
        assert_eq!(plan(&Activity::read(&call), &at), Some("use ***".into()));
    }

    #[test]
    fn a_call_the_host_would_refuse_becomes_a_neutral_card() {
        for call in [
            json!({"name": "read", "args": {}, "result": {"content": "c"}}),
            json!({"name": "shell", "args": {"cmd": "ls"}, "result": {"stdout": "a"}}),
            json!({"name": "grep", "args": {"glob": "*"}, "result": {"totalMatches": 0}}),
            json!({"name": "ls", "args": {"path": 7}, "result": {}}),
            json!({"name": "write", "args": {"content": "c"}, "result": {}}),
            json!({"name": "edit", "args": {"path": "a", "oldText": "o", "newText": "n"}, "result": {}}),
        ] {
            let card = shown(call);
            assert_eq!(card.tool, ACTIVITY);
            assert!(card.arguments["activityTitle"].is_string());
        }
        let fitting = shown(json!({"name": "ls", "args": {}, "result": {}}));
        assert_eq!(fitting.tool, "ls");
    }

    #[test]
    fn cards_of_the_host_carry_what_its_renderers_take() {
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
    fn a_neutral_card_carries_what_is_seen_at_a_glance() {
        let lines: Vec<String> = (1..=12).map(|n| format!("line {n}")).collect();
        let result = json!({"content": [{"text": lines.join("\n")}]});
        let mcp = shown(json!({"name": "mcp", "args": {"toolName": "t"}, "result": result}));
        let glance = mcp.details["glance"].as_array().map(Vec::len);
        assert_eq!((glance, &mcp.details["glanceMore"]), (Some(8), &json!(4)));
        let edit = shown(json!({"name": "edit", "args": {"path": "a"},
            "result": {"diffString": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-\told\n+new"}}));
        assert_eq!(edit.details["glance"], json!(["-1    old", "+1 new"]));
        let page = shown(json!({"name": "web_fetch", "args": {"url": "u"}, "result": result}));
        assert_eq!(page.details["glance"], json!([]), "pages stay folded");
        assert_eq!(page.details["glanceMore"], 12);
    }

    #[test]
    fn a_tool_that_says_it_failed_is_no_success() {
        let card = shown(json!({"name": "mcp", "args": {"toolName": "t"},
            "result": {"status": "success", "value": {"isError": true, "content": [{"text": "bad"}]}}}));
        assert_eq!(card.verdict, Verdict::Failed);
    }

    #[test]
    fn odd_calls_are_shown_without_harm() {
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
