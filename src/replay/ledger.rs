//! What of a run's tool activity is to be shown, each call once.
//!
//! Calls that start and never complete are forgotten without a word: a missing completion is
//! not a failure. Echoes of the host's own tools are the host's to show.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value as Json;

use super::names::{self, Tool};
use super::output::{Shells, Stream};
use super::{Activity, Workspace, from_wire, text};
use crate::wire::proto::agent::v1::{
    InteractionUpdate, ToolCallCompletedUpdate, ToolCallDeltaUpdate, ToolCallStartedUpdate,
    interaction_update, shell_output_delta_update, shell_tool_call_delta, tool_call_delta,
};

/// Completions remembered, to know a second telling of them.
const MOST_REMEMBERED: usize = 4096;
/// Calls that may be under way at once.
const MOST_STARTED: usize = 1024;
/// Bytes of their arguments; of more the oldest are forgotten.
const MOST_STARTED_BYTES: usize = 8 * 1024 * 1024;
/// Characters of a line about a running call.
const LINE: usize = 240;
/// How deep in a call's arguments a host tool's name is looked for.
const DEPTH: usize = 4;

/// What to show.
#[derive(Debug, Clone, PartialEq)]
pub enum Show {
    /// Nothing.
    Nothing,
    /// A line of thinking.
    Line(String),
    /// A completed call.
    Completed(Box<Activity>),
}

/// How a completion was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By the update that follows a call's start.
    Update,
    /// In a summary of a step, where ids may be missing.
    Step,
}

/// What becomes of a completion.
#[derive(Debug, Clone, PartialEq)]
pub enum Completion {
    /// It is shown.
    Show(Box<Activity>),
    /// It was shown before: the same call.
    SameCall,
    /// It was shown before: the same tool, arguments and result, and no id says otherwise.
    SameContent,
    /// It was shown before, when it was told without its id.
    ToldWithoutId,
    /// It is a call of the host's own tools.
    Hosted,
}

/// The tool activity of one run.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Names under which the host's tools are offered.
    hosted: BTreeSet<String>,
    /// Calls under way, oldest first.
    started: VecDeque<(String, Activity)>,
    hosted_calls: BTreeSet<String>,
    shells: Shells,
    completed: Remembered,
    named: Remembered,
    nameless: Remembered,
}

/// A set that forgets the oldest.
#[derive(Debug, Default)]
struct Remembered {
    all: BTreeMap<String, ()>,
    order: VecDeque<String>,
}

impl Remembered {
    fn add(&mut self, what: String) {
        if self.all.insert(what.clone(), ()).is_none() {
            self.order.push_back(what);
        }
        if self.order.len() > MOST_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    fn has(&self, what: &str) -> bool {
        self.all.contains_key(what)
    }
}

impl Ledger {
    /// A ledger for a run that is offered the host's tools under these names.
    pub fn new(hosted: impl IntoIterator<Item = String>) -> Self {
        Self {
            hosted: hosted.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The host itself executes the call with this id, and shows it.
    pub fn shown_by_host(&mut self, call: &str) {
        self.hosted_calls.insert(call.to_owned());
    }

    /// A call appeared.
    pub fn on_started(&mut self, update: &ToolCallStartedUpdate, at: &Workspace<'_>) -> Show {
        let Some(call) = &update.tool_call else {
            return Show::Nothing;
        };
        self.started(&update.call_id, from_wire::activity(call), at)
    }

    /// A call is complete.
    pub fn on_completed(&mut self, update: &ToolCallCompletedUpdate) -> Show {
        let Some(call) = &update.tool_call else {
            return Show::Nothing;
        };
        let id = Some(update.call_id.as_str()).filter(|id| !id.is_empty());
        match self.completed(Source::Update, id, from_wire::activity(call)) {
            Completion::Show(activity) => Show::Completed(activity),
            Completion::SameCall
            | Completion::SameContent
            | Completion::ToldWithoutId
            | Completion::Hosted => Show::Nothing,
        }
    }

    /// A running call printed something.
    pub fn on_delta(&mut self, update: &ToolCallDeltaUpdate, at: &Workspace<'_>) -> Show {
        use shell_tool_call_delta::Delta;
        use tool_call_delta::Delta as Of;
        let delta = update.tool_call_delta.as_ref();
        let Some(Of::ShellToolCallDelta(shell)) = delta.and_then(|delta| delta.delta.as_ref())
        else {
            return Show::Nothing;
        };
        let (stream, data) = match &shell.delta {
            Some(Delta::Stdout(out)) => (Stream::Stdout, &out.content),
            Some(Delta::Stderr(err)) => (Stream::Stderr, &err.content),
            None => return Show::Nothing,
        };
        let line = self
            .shells
            .printed_by(&update.call_id, stream, data, at.scrub);
        line.map_or(Show::Nothing, Show::Line)
    }

    /// Other updates: summaries, and output that names no call.
    pub fn on_other(&mut self, update: &InteractionUpdate, at: &Workspace<'_>) -> Show {
        use interaction_update::Message;
        use shell_output_delta_update::Event;
        let (stream, data) = match &update.message {
            Some(Message::Summary(summary)) if !summary.summary.trim().is_empty() => {
                let summary = (at.scrub)(&summary.summary);
                return Show::Line(format!("Cursor summary: {}\n", summary.trim()));
            }
            Some(Message::ShellOutputDelta(delta)) => match &delta.event {
                Some(Event::Stdout(out)) => (Stream::Stdout, &out.data),
                Some(Event::Stderr(err)) => (Stream::Stderr, &err.data),
                _ => return Show::Nothing,
            },
            _ => return Show::Nothing,
        };
        let line = self.shells.printed(stream, data, at.scrub);
        line.map_or(Show::Nothing, Show::Line)
    }

    /// Takes a call that starts; told twice it counts once. A subagent at work is worth a
    /// line, ordinary calls are not.
    pub fn started(&mut self, id: &str, activity: Activity, at: &Workspace<'_>) -> Show {
        let tool = names::resolve(activity.raw_name(), &activity.arguments);
        let known = self.started.iter_mut().find(|(known, _)| known == id);
        let told_before = known.is_some();
        let line = (tool == Tool::Task && !told_before)
            .then(|| text::string(activity.arguments.get("description")))
            .flatten()
            .map(|description| text::line(&(at.scrub)(description), LINE))
            .filter(|description| !description.is_empty());
        match known {
            Some((_, known)) => *known = activity,
            None => {
                if self.is_hosted(&activity) {
                    self.hosted_calls.insert(id.to_owned());
                }
                if tool == Tool::Shell {
                    self.shells.started(id);
                }
                self.started.push_back((id.to_owned(), activity));
            }
        }
        while self.started.len() > MOST_STARTED || self.started_bytes() > MOST_STARTED_BYTES {
            let Some((oldest, _)) = self.started.pop_front() else {
                break;
            };
            self.hosted_calls.remove(&oldest);
        }
        line.map_or(Show::Nothing, |line| {
            Show::Line(format!("Cursor task: {line}\n"))
        })
    }

    fn started_bytes(&self) -> usize {
        let bytes = |(id, activity): &(String, Activity)| id.len() + activity.bytes();
        self.started.iter().map(bytes).sum()
    }

    /// Takes a completion and says what becomes of it.
    pub fn completed(
        &mut self,
        source: Source,
        id: Option<&str>,
        activity: Activity,
    ) -> Completion {
        let matched = self.take_started(source, id, &activity);
        let started = matched.as_ref().map(|(id, _)| id.clone());
        let identity = id.map(str::to_owned).or_else(|| started.clone());
        let activity = match (source, matched) {
            (Source::Update, Some((_, started))) => activity.or_as_started(started),
            _ => activity,
        };
        let activity = match started.as_deref().or(id) {
            Some(id) => self.shells.completed(id, activity),
            None => activity,
        };
        let ours = identity
            .as_ref()
            .is_some_and(|id| self.hosted_calls.remove(id));
        if ours || self.is_hosted(&activity) {
            if let Some(id) = identity {
                self.completed.add(id);
            }
            return Completion::Hosted;
        }
        let content = fingerprint(&activity);
        if identity.as_ref().is_some_and(|id| self.completed.has(id)) {
            return Completion::SameCall;
        }
        // The id under which a call started stands for it too, whatever a step calls it.
        if let (Source::Step, Some(started)) = (source, started) {
            self.completed.add(started);
        }
        // Only an update with an id tells of a call of its own: a step may be an echo.
        let own = source == Source::Update && id.is_some();
        match own {
            true if self.nameless.has(&content) => return Completion::ToldWithoutId,
            false if self.nameless.has(&content) || self.named.has(&content) => {
                return Completion::SameContent;
            }
            _ => {}
        }
        if let Some(id) = identity {
            self.completed.add(id);
        }
        match own {
            true => self.named.add(content),
            false => self.nameless.add(content),
        }
        Completion::Show(Box::new(activity))
    }

    /// Calls that started and did not complete.
    pub fn still_started(&self) -> impl Iterator<Item = &str> {
        self.started.iter().map(|(id, _)| id.as_str())
    }

    /// The start a completion belongs to: by id, for steps else by tool and arguments.
    fn take_started(
        &mut self,
        source: Source,
        id: Option<&str>,
        activity: &Activity,
    ) -> Option<(String, Activity)> {
        let by_id = self
            .started
            .iter()
            .position(|(known, _)| Some(known.as_str()) == id);
        let by_content = || match source {
            Source::Update => None,
            Source::Step => self.started.iter().position(|(_, started)| {
                started.name == activity.name && started.arguments == activity.arguments
            }),
        };
        self.started.remove(by_id.or_else(by_content)?)
    }

    /// Whether a call is one of the host's tools, by the names it carries. What a result
    /// merely mentions does not count.
    fn is_hosted(&self, activity: &Activity) -> bool {
        if self.hosted.is_empty() {
            return false;
        }
        let name = activity.name.as_deref();
        name.is_some_and(|name| self.hosted.contains(name))
            || activity
                .arguments
                .iter()
                .any(|(key, value)| self.names_hosted(key, value, DEPTH))
    }

    fn names_hosted(&self, key: &str, value: &Json, depth: usize) -> bool {
        match value {
            Json::String(name) => {
                ["name", "toolName", "tool_name", "mcpToolName"].contains(&key)
                    && self.hosted.contains(name)
            }
            Json::Object(fields) if depth > 0 && ["args", "input", "arguments"].contains(&key) => {
                fields
                    .iter()
                    .any(|(key, value)| self.names_hosted(key, value, depth - 1))
            }
            _ => false,
        }
    }
}

/// A call's content in a few bytes.
fn fingerprint(activity: &Activity) -> String {
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;
    let told = serde_json::json!([activity.name, activity.arguments, activity.result]);
    let digest = Sha256::digest(told.to_string());
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
        Activity::read(&json)
    }

    fn scrub(text: &str) -> String {
        text.replace("hunter2", "***")
    }

    fn at() -> Workspace<'static> {
        Workspace {
            root: Path::new("/w"),
            scrub: &scrub,
        }
    }

    #[test]
    fn echoes_of_the_hosts_tools_are_the_hosts() {
        let mut ledger = Ledger::new(["pi__weather".to_owned()]);
        let echo = |args: Json| call(json!({"name": "mcp", "args": args, "result": {}}));
        for args in [
            json!({"toolName": "pi__weather"}),
            json!({"args": {"input": {"name": "pi__weather"}}}),
        ] {
            assert_eq!(
                ledger.completed(Source::Update, Some("1"), echo(args)),
                Completion::Hosted
            );
        }
        let mentions = call(
            json!({"name": "mcp", "args": {"toolName": "other", "q": "pi__weather"},
                                   "result": {"name": "pi__weather"}}),
        );
        let shown = ledger.completed(Source::Update, Some("2"), mentions);
        assert!(matches!(shown, Completion::Show(_)));
    }

    #[test]
    fn what_the_host_executes_is_not_shown_again() {
        let mut ledger = Ledger::default();
        ledger.shown_by_host("1");
        let read = call(json!({"name": "read", "args": {"path": "a"}, "result": {}}));
        let shown = ledger.completed(Source::Update, Some("1"), read);
        assert_eq!(shown, Completion::Hosted);
    }

    #[test]
    fn a_step_under_another_id_is_the_call_it_matches() {
        let read = || call(json!({"name": "read", "args": {"path": "a"}, "result": {}}));
        let shown = |completion| matches!(completion, Completion::Show(_));
        let mut ledger = Ledger::default();
        ledger.started("1", read(), &at());
        assert!(shown(ledger.completed(Source::Step, Some("s"), read())));
        let update = ledger.completed(Source::Update, Some("1"), read());
        assert_eq!(update, Completion::SameCall);
        // Another step like it may be an echo, an update with an id of its own is not hidden
        // by updates.
        ledger.started("2", read(), &at());
        let echo = ledger.completed(Source::Step, None, read());
        assert_eq!(echo, Completion::SameContent);
        let mut ledger = Ledger::default();
        for id in ["1", "2"] {
            assert!(shown(ledger.completed(Source::Update, Some(id), read())));
        }
    }

    #[test]
    fn a_subagent_is_announced_once_without_secrets() {
        let mut ledger = Ledger::default();
        let task = || call(json!({"name": "task", "args": {"description": " find\nhunter2 "}}));
        let line = Show::Line("Cursor task: find ***\n".into());
        assert_eq!(ledger.started("1", task(), &at()), line);
        assert_eq!(ledger.started("1", task(), &at()), Show::Nothing);
        let read = call(json!({"name": "read", "args": {"path": "a"}}));
        assert_eq!(ledger.started("2", read, &at()), Show::Nothing);
    }

    #[test]
    fn the_ledger_does_not_grow_without_end() {
        let mut ledger = Ledger::default();
        for n in 0..MOST_REMEMBERED * 2 {
            let id = n.to_string();
            let read = || call(json!({"name": "read", "args": {"path": id}, "result": {}}));
            ledger.started(&format!("never-{id}"), read(), &at());
            ledger.completed(Source::Update, Some(&id), read());
        }
        assert_eq!(ledger.completed.all.len(), MOST_REMEMBERED);
        assert_eq!(ledger.completed.order.len(), MOST_REMEMBERED);
        assert_eq!(ledger.still_started().count(), MOST_STARTED);
    }
}
