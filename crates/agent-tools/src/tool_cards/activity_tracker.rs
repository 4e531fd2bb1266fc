//! Tracks the tool activity of a run, so that each call is displayed once.
//!
//! Calls that start and never complete are dropped silently, because a missing completion is not a
//! failure. Echoes of the host's own tools are not displayed, because the host does that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value as Json;

use super::shell_output::{OutputStream, ShellOutputs};
use super::tool_names::{self, CursorTool};
use super::{Activity, Workspace, from_wire, text};
use crate::bridge::question;
use cursor_proto::agent::v1::{
    InteractionUpdate, ToolCallCompletedUpdate, ToolCallDeltaUpdate, ToolCallStartedUpdate,
    interaction_update, shell_output_delta_update, shell_tool_call_delta, tool_call_delta,
};

/// Completions remembered to detect duplicates.
const MAX_REMEMBERED: usize = 4096;
/// Maximum number of calls that are tracked as started.
const MAX_STARTED: usize = 1024;
/// Maximum bytes of their arguments; beyond that the oldest calls are dropped.
const MAX_STARTED_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of a progress line.
const MAX_LINE_CHARS: usize = 240;
/// How deep the arguments of a call are searched for the name of a host tool.
const MAX_DEPTH: usize = 4;
/// The name of Cursor's own question.
const QUESTION: &str = "askQuestion";

/// What to display for an update.
#[derive(Debug, Clone, PartialEq)]
pub enum DisplayItem {
    /// Nothing.
    Nothing,
    /// A progress line.
    Line(String),
    /// A line of the output of a running command.
    OutputLine(String),
    /// A completed call.
    Completed(Box<Activity>),
}

/// How a completion was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionSource {
    /// By an update after the start of the call.
    Update,
    /// In the summary of a step, where ids may be missing.
    Step,
}

/// How a completion is handled.
#[derive(Debug, Clone, PartialEq)]
pub enum Completion {
    /// It is displayed.
    Display(Box<Activity>),
    /// Not displayed: a call with this id already was.
    DuplicateId,
    /// Not displayed: a call with the same tool, arguments and result already was, and no id
    /// distinguishes them.
    DuplicateContent,
    /// Not displayed: it was already displayed when it was reported without its id.
    DuplicateWithoutId,
    /// Not displayed: it is a call of a host tool.
    HostTool,
}

/// Tracks the tool activity of one run.
#[derive(Debug, Default)]
pub struct ActivityTracker {
    /// The names under which host tools are offered.
    host_tools: BTreeSet<String>,
    /// Calls that have started, oldest first.
    started: VecDeque<(String, Activity)>,
    host_calls: BTreeSet<String>,
    shell_outputs: ShellOutputs,
    completed_ids: BoundedSet,
    shown_with_id: BoundedSet,
    shown_without_id: BoundedSet,
}

/// A set of limited size that drops the oldest item.
#[derive(Debug, Default)]
struct BoundedSet {
    items: BTreeMap<String, ()>,
    order: VecDeque<String>,
}

impl BoundedSet {
    fn add(&mut self, item: String) {
        if self.items.insert(item.clone(), ()).is_none() {
            self.order.push_back(item);
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.items.remove(&oldest);
        }
    }

    fn contains(&self, item: &str) -> bool {
        self.items.contains_key(item)
    }
}

impl ActivityTracker {
    /// Creates a tracker for a run that is offered host tools under these names.
    pub fn new(host_tools: impl IntoIterator<Item = String>) -> Self {
        Self {
            host_tools: host_tools.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Handles the start of a call.
    pub fn on_started(
        &mut self,
        update: &ToolCallStartedUpdate,
        at: &Workspace<'_>,
    ) -> DisplayItem {
        let Some(call) = &update.tool_call else {
            return DisplayItem::Nothing;
        };
        self.record_start(&update.call_id, from_wire::activity(call), at)
    }

    /// Handles the completion of a call.
    pub fn on_completed(&mut self, update: &ToolCallCompletedUpdate) -> DisplayItem {
        let Some(call) = &update.tool_call else {
            return DisplayItem::Nothing;
        };
        let id = Some(update.call_id.as_str()).filter(|id| !id.is_empty());
        match self.record_completion(CompletionSource::Update, id, from_wire::activity(call)) {
            Completion::Display(activity) => DisplayItem::Completed(activity),
            Completion::DuplicateId
            | Completion::DuplicateContent
            | Completion::DuplicateWithoutId
            | Completion::HostTool => DisplayItem::Nothing,
        }
    }

    /// Handles output of a running call.
    pub fn on_delta(&mut self, update: &ToolCallDeltaUpdate, at: &Workspace<'_>) -> DisplayItem {
        use shell_tool_call_delta::Delta;
        use tool_call_delta::Delta as Of;
        let delta = update.tool_call_delta.as_ref();
        let Some(Of::ShellToolCallDelta(shell)) = delta.and_then(|delta| delta.delta.as_ref())
        else {
            return DisplayItem::Nothing;
        };
        let (stream, data) = match &shell.delta {
            Some(Delta::Stdout(out)) => (OutputStream::Stdout, &out.content),
            Some(Delta::Stderr(err)) => (OutputStream::Stderr, &err.content),
            None => return DisplayItem::Nothing,
        };
        let line = self
            .shell_outputs
            .printed_by(&update.call_id, stream, data, at.redact);
        line.map_or(DisplayItem::Nothing, DisplayItem::OutputLine)
    }

    /// Handles other updates: summaries, and output without a call id.
    pub fn on_other(&mut self, update: &InteractionUpdate, at: &Workspace<'_>) -> DisplayItem {
        use interaction_update::Message;
        use shell_output_delta_update::Event;
        let (stream, data) = match &update.message {
            Some(Message::Summary(summary)) if !summary.summary.trim().is_empty() => {
                let summary = (at.redact)(&summary.summary);
                return DisplayItem::Line(format!("Cursor summary: {}\n", summary.trim()));
            }
            Some(Message::ShellOutputDelta(delta)) => match &delta.event {
                Some(Event::Stdout(out)) => (OutputStream::Stdout, &out.data),
                Some(Event::Stderr(err)) => (OutputStream::Stderr, &err.data),
                _ => return DisplayItem::Nothing,
            },
            _ => return DisplayItem::Nothing,
        };
        let line = self.shell_outputs.printed(stream, data, at.redact);
        line.map_or(DisplayItem::Nothing, DisplayItem::OutputLine)
    }

    /// Records the start of a call; a repeated start replaces the earlier one. Returns a progress
    /// line for subagents only.
    pub fn record_start(
        &mut self,
        id: &str,
        activity: Activity,
        at: &Workspace<'_>,
    ) -> DisplayItem {
        let tool = tool_names::resolve(activity.reported_name(), &activity.arguments);
        let known = self.started.iter_mut().find(|(known, _)| known == id);
        let is_known = known.is_some();
        let line = (tool == CursorTool::Task && !is_known)
            .then(|| text::string(activity.arguments.get("description")))
            .flatten()
            .map(|description| text::single_line(&(at.redact)(description), MAX_LINE_CHARS))
            .filter(|description| !description.is_empty());
        match known {
            Some((_, known)) => *known = activity,
            None => {
                if self.is_host_tool(&activity) {
                    self.host_calls.insert(id.to_owned());
                }
                if tool == CursorTool::Shell {
                    self.shell_outputs.started(id);
                }
                self.started.push_back((id.to_owned(), activity));
            }
        }
        while self.started.len() > MAX_STARTED || self.started_bytes() > MAX_STARTED_BYTES {
            let Some((oldest, _)) = self.started.pop_front() else {
                break;
            };
            self.host_calls.remove(&oldest);
        }
        line.map_or(DisplayItem::Nothing, |line| {
            DisplayItem::Line(format!("Cursor task: {line}\n"))
        })
    }

    fn started_bytes(&self) -> usize {
        let bytes = |(id, activity): &(String, Activity)| id.len() + activity.bytes();
        self.started.iter().map(bytes).sum()
    }

    /// Records a completion and returns how it is handled.
    pub fn record_completion(
        &mut self,
        source: CompletionSource,
        id: Option<&str>,
        activity: Activity,
    ) -> Completion {
        let matched = self.take_started(id, &activity);
        let started = matched.as_ref().map(|(id, _)| id.clone());
        let identity = id.map(str::to_owned).or_else(|| started.clone());
        let activity = match (source, matched) {
            (CompletionSource::Update, Some((_, started))) => activity.or_from_start(started),
            _ => activity,
        };
        let activity = match started.as_deref().or(id) {
            Some(id) => self.shell_outputs.completed(id, activity),
            None => activity,
        };
        let is_host_call = identity
            .as_ref()
            .is_some_and(|id| self.host_calls.remove(id));
        if is_host_call || self.is_host_tool(&activity) {
            if let Some(id) = identity {
                self.completed_ids.add(id);
            }
            return Completion::HostTool;
        }
        let content = fingerprint(&activity);
        if identity
            .as_ref()
            .is_some_and(|id| self.completed_ids.contains(id))
        {
            return Completion::DuplicateId;
        }
        // Only an update of a call that is known by an id is certainly a separate call; a step may be
        // an echo.
        let has_own_id = source == CompletionSource::Update && identity.is_some();
        // The call is also known by the id it started with, even if its completion has another.
        if let Some(started) = started {
            self.completed_ids.add(started);
        }
        if has_own_id && self.shown_without_id.contains(&content) {
            return Completion::DuplicateWithoutId;
        }
        if !has_own_id
            && (self.shown_without_id.contains(&content) || self.shown_with_id.contains(&content))
        {
            return Completion::DuplicateContent;
        }
        if let Some(id) = identity {
            self.completed_ids.add(id);
        }
        if has_own_id {
            self.shown_with_id.add(content);
        } else {
            self.shown_without_id.add(content);
        }
        Completion::Display(Box::new(activity))
    }

    /// Returns the ids of calls that started and did not complete.
    pub fn incomplete_calls(&self) -> impl Iterator<Item = &str> {
        self.started.iter().map(|(id, _)| id.as_str())
    }

    /// Removes and returns the start that a completion belongs to: by id, else by tool and arguments.
    /// Of several equal shells it is unknown which one has ended, and their output differs.
    fn take_started(
        &mut self,
        id: Option<&str>,
        activity: &Activity,
    ) -> Option<(String, Activity)> {
        let by_id = self
            .started
            .iter()
            .position(|(known, _)| Some(known.as_str()) == id);
        let by_content = || {
            let equal = |(_, started): &(String, Activity)| {
                started.name == activity.name && started.arguments == activity.arguments
            };
            let tool = tool_names::resolve(activity.reported_name(), &activity.arguments);
            let count = self.started.iter().filter(|call| equal(call)).count();
            let is_certain = count == 1 || tool != CursorTool::Shell;
            let first = || self.started.iter().position(equal);
            is_certain.then(first).flatten()
        };
        self.started.remove(by_id.or_else(by_content)?)
    }

    /// Whether a call is one of a host tool, by its name or the tool name in its arguments. Names
    /// in the result are ignored.
    fn is_host_tool(&self, activity: &Activity) -> bool {
        if self.host_tools.is_empty() {
            return false;
        }
        let name = activity.name.as_deref();
        // Cursor's own question is asked through the host's tool, which the host displays.
        let is_question = name == Some(QUESTION);
        if is_question
            && self
                .host_tools
                .iter()
                .any(|name| name.ends_with(question::TOOL))
        {
            return true;
        }
        name.is_some_and(|name| self.host_tools.contains(name))
            || activity
                .arguments
                .iter()
                .any(|(key, value)| self.names_host_tool(key, value, MAX_DEPTH))
    }

    fn names_host_tool(&self, key: &str, value: &Json, depth: usize) -> bool {
        match value {
            Json::String(name) => {
                ["name", "toolName", "tool_name", "mcpToolName"].contains(&key)
                    && self.host_tools.contains(name)
            }
            Json::Object(fields) if depth > 0 && ["args", "input", "arguments"].contains(&key) => {
                fields
                    .iter()
                    .any(|(key, value)| self.names_host_tool(key, value, depth - 1))
            }
            _ => false,
        }
    }
}

/// Returns a hash of the content of a call.
fn fingerprint(activity: &Activity) -> String {
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;
    let content = serde_json::json!([activity.name, activity.arguments, activity.result]);
    let digest = Sha256::digest(content.to_string());
    digest.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn call(json: Json) -> Activity {
        Activity::from_json(&json)
    }

    fn redact(text: &str) -> String {
        text.replace("hunter2", "***")
    }

    fn at() -> Workspace<'static> {
        Workspace {
            root: Path::new("/w"),
            redact: &redact,
        }
    }

    #[test]
    fn echoes_of_host_tools_are_not_displayed() {
        let mut tracker = ActivityTracker::new(["pi__weather".to_owned()]);
        let echo = |args: Json| call(json!({"name": "mcp", "args": args, "result": {}}));
        for args in [
            json!({"toolName": "pi__weather"}),
            json!({"args": {"input": {"name": "pi__weather"}}}),
        ] {
            assert_eq!(
                tracker.record_completion(CompletionSource::Update, Some("1"), echo(args)),
                Completion::HostTool
            );
        }
        let mentions = call(
            json!({"name": "mcp", "args": {"toolName": "other", "q": "pi__weather"},
                                   "result": {"name": "pi__weather"}}),
        );
        let shown = tracker.record_completion(CompletionSource::Update, Some("2"), mentions);
        assert!(matches!(shown, Completion::Display(_)));
    }

    #[test]
    fn a_step_with_another_id_matches_the_started_call() {
        let read = || call(json!({"name": "read", "args": {"path": "a"}, "result": {}}));
        let shown = |completion| matches!(completion, Completion::Display(_));
        let mut tracker = ActivityTracker::default();
        tracker.record_start("1", read(), &at());
        assert!(shown(tracker.record_completion(
            CompletionSource::Step,
            Some("s"),
            read()
        )));
        let update = tracker.record_completion(CompletionSource::Update, Some("1"), read());
        assert_eq!(update, Completion::DuplicateId);
        // Another step with the same content may be an echo. An update with its own id is never
        // hidden by other updates.
        tracker.record_start("2", read(), &at());
        let echo = tracker.record_completion(CompletionSource::Step, None, read());
        assert_eq!(echo, Completion::DuplicateContent);
        let mut tracker = ActivityTracker::default();
        for id in ["1", "2"] {
            assert!(shown(tracker.record_completion(
                CompletionSource::Update,
                Some(id),
                read()
            )));
        }
    }

    #[test]
    fn a_completion_under_another_id_ends_the_started_call() {
        let shell = || call(json!({"name": "shell", "args": {"command": "a"}, "result": {}}));
        let mut tracker = ActivityTracker::default();
        tracker.record_start("1", shell(), &at());
        let completed = tracker.record_completion(CompletionSource::Update, Some("2"), shell());
        assert!(matches!(completed, Completion::Display(_)));
        assert_eq!(tracker.incomplete_calls().count(), 0);
        for id in ["1", "2"] {
            let again = tracker.record_completion(CompletionSource::Update, Some(id), shell());
            assert_eq!(again, Completion::DuplicateId);
        }
        // Two equal shells are running: it is unknown which of them this is.
        for id in ["3", "4"] {
            tracker.record_start(id, shell(), &at());
        }
        tracker.record_completion(CompletionSource::Update, Some("5"), shell());
        assert_eq!(tracker.incomplete_calls().count(), 2);
    }

    #[test]
    fn a_subagent_is_announced_once_and_redacted() {
        let mut tracker = ActivityTracker::default();
        let task = || call(json!({"name": "task", "args": {"description": " find\nhunter2 "}}));
        let line = DisplayItem::Line("Cursor task: find ***\n".into());
        assert_eq!(tracker.record_start("1", task(), &at()), line);
        assert_eq!(
            tracker.record_start("1", task(), &at()),
            DisplayItem::Nothing
        );
        let read = call(json!({"name": "read", "args": {"path": "a"}}));
        assert_eq!(tracker.record_start("2", read, &at()), DisplayItem::Nothing);
    }

    #[test]
    fn the_tracker_has_a_limited_size() {
        let mut tracker = ActivityTracker::default();
        for n in 0..MAX_REMEMBERED * 2 {
            let id = n.to_string();
            let read = || call(json!({"name": "read", "args": {"path": id}, "result": {}}));
            let never = call(json!({"name": "ls", "args": {"path": id}}));
            tracker.record_start(&format!("never-{id}"), never, &at());
            tracker.record_completion(CompletionSource::Update, Some(&id), read());
        }
        assert_eq!(tracker.completed_ids.items.len(), MAX_REMEMBERED);
        assert_eq!(tracker.completed_ids.order.len(), MAX_REMEMBERED);
        assert_eq!(tracker.incomplete_calls().count(), MAX_STARTED);
    }
}
