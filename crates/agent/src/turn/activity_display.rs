//! Shows a host what native tools did: as cards that end the turn as tool use, with their results
//! recorded here, or as lines of thinking.
//!
//! A card is never executed: its result is the recorded one, or none.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;

use super::final_text::{self, Boundary, Candidates};
use super::request::TurnEvent;
use crate::message::ToolCall;
use crate::run::RunEvent;
use agent_tools::policy::{NativeTool, ToolDecision, ToolDecisions};
use agent_tools::shell::{CapturedOutput, ShellSession};
use agent_tools::tool_cards;
use agent_tools::tool_cards::activity_tracker::{ActivityTracker, DisplayItem};
use agent_tools::tool_cards::tool_names::CursorTool;
use agent_tools::tool_cards::{Activity, Workspace};

/// Prefix of the ids of all cards.
const CARD: &str = "cursor-replay-";

/// Returns whether a call with this id is a card, which is displayed and never executed.
pub fn is_card(id: &str) -> bool {
    id.starts_with(CARD)
}

/// How many recorded results a session keeps.
const MAX_RECORDS: usize = 512;
/// Their bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How much of an answer is kept to detect whether it contains the plan.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;

/// How a host shows native tool calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Surface {
    /// As lines of thinking.
    #[default]
    Text,
    /// As cards of these host tools; other activity as lines.
    Cards(Vec<String>),
}

/// The recorded result of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The result as text.
    pub content: String,
    /// Data for the host's renderer; `Null` if none.
    pub details: Json,
    /// Whether Cursor reported a failure.
    pub is_error: bool,
    /// Whether the run has ended, so that the host need not start another turn.
    pub is_last: bool,
}

/// The newest recorded results of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    by_id: HashMap<String, Record>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Record {
    fn bytes(&self) -> usize {
        self.content.len() + self.details.to_string().len()
    }
}

impl Records {
    fn remove(&mut self, id: &str) {
        if let Some(record) = self.by_id.remove(id) {
            self.bytes -= record.bytes();
        }
    }
}

impl Recorded {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &str) -> Option<Record> {
        self.lock().by_id.get(id).cloned()
    }

    /// Copies the records of a session that is closed: its host may still display the cards.
    pub(crate) fn copy_from(&self, closed: &Self) {
        let records: Vec<(String, Record)> = {
            let closed = closed.lock();
            let ids = closed.order.iter();
            ids.filter_map(|id| Some((id.clone(), closed.by_id.get(id)?.clone())))
                .collect()
        };
        for (id, record) in records {
            self.keep(&id, record);
        }
    }

    fn keep(&self, id: &str, record: Record) {
        let mut records = self.lock();
        records.bytes += record.bytes();
        records.by_id.insert(id.to_owned(), record);
        records.order.push_back(id.to_owned());
        while records.order.len() > MAX_RECORDS || records.bytes > MAX_BYTES {
            let Some(oldest) = records.order.pop_front() else {
                break;
            };
            records.remove(&oldest);
        }
    }

    /// Records that nothing follows these cards.
    fn close(&self, ids: &[String]) {
        let mut records = self.lock();
        for id in ids {
            if let Some(record) = records.by_id.get_mut(id) {
                record.is_last = true;
            }
        }
    }

    fn forget(&self, run: &str) {
        let mut records = self.lock();
        let of_run = |id: &String| id.starts_with(run);
        let (gone, kept) = std::mem::take(&mut records.order)
            .into_iter()
            .partition::<Vec<_>, _>(of_run);
        records.order = kept.into();
        for id in gone {
            records.remove(&id);
        }
    }
}

/// How an event of a native tool is shown.
pub(super) enum Shown {
    /// Not at all.
    Nothing,
    /// As lines of thinking.
    Lines(Vec<TurnEvent>),
    /// As a card: its call.
    Card(ToolCall),
}

/// How the native tool calls of one run are shown.
pub(super) struct ActivityDisplay {
    tracker: ActivityTracker,
    workspace: PathBuf,
    /// Where commands of the session run.
    shell_session: Arc<ShellSession>,
    /// Prefix of the ids of this run's cards.
    run: String,
    cards: u64,
    /// Cards that were sent to the host and have no results yet.
    pub(super) open: Vec<String>,
    recorded: Recorded,
    plan: Option<String>,
    /// The model's answer, to detect whether it contains the plan.
    answer: String,
    /// Who executes native tools. The host itself displays what it executes.
    pub(super) decisions: ToolDecisions,
}

impl Drop for ActivityDisplay {
    /// Results are dropped with their run: a later request for a card finds nothing.
    fn drop(&mut self) {
        self.recorded.forget(&self.run);
    }
}

impl ActivityDisplay {
    pub(super) fn new(
        recorded: Recorded,
        workspace: PathBuf,
        hosted: impl IntoIterator<Item = String>,
        decisions: ToolDecisions,
        shell_session: &Arc<ShellSession>,
    ) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.map_or(0, |now| now.as_millis());
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self {
            tracker: ActivityTracker::new(hosted),
            workspace,
            shell_session: Arc::clone(shell_session),
            run: format!("{CARD}{millis}-{run}-tool-"),
            cards: 0,
            open: Vec::new(),
            recorded,
            plan: None,
            answer: String::new(),
            decisions,
        }
    }

    /// Returns whether a tool result belongs to an open card.
    pub(super) fn waits(&self, id: &str) -> bool {
        self.open.iter().any(|open| open == id)
    }

    /// Returns how an event of a native tool is shown.
    pub(super) fn take(&mut self, event: &RunEvent, surface: &Surface) -> Shown {
        let at = Workspace {
            root: &self.workspace,
            redact: &scrub,
        };
        let show = match event {
            RunEvent::ToolStarted(update) => self.tracker.on_started(update, &at),
            RunEvent::ToolDelta(update) => self.tracker.on_delta(update, &at),
            RunEvent::ToolCompleted(update) => self.tracker.on_completed(update),
            RunEvent::Other(update) => self.tracker.on_other(update, &at),
            _ => DisplayItem::Nothing,
        };
        match show {
            DisplayItem::Nothing => Shown::Nothing,
            // The card of the command displays its output.
            DisplayItem::OutputLine(_) if matches!(surface, Surface::Cards(_)) => Shown::Nothing,
            DisplayItem::OutputLine(line) | DisplayItem::Line(line) => {
                Shown::Lines(vec![TurnEvent::Thinking(line)])
            }
            DisplayItem::Completed(mut activity) => {
                if let Some(captured) = self.captured(event) {
                    tool_cards::complete_command(&mut activity, captured);
                }
                self.completed(&activity, surface)
            }
        }
    }

    /// Returns what the command of a completed call printed, if it ran here.
    fn captured(&self, event: &RunEvent) -> Option<CapturedOutput> {
        let RunEvent::ToolCompleted(update) = event else {
            return None;
        };
        self.shell_session.captured_output(&update.call_id)
    }

    fn completed(&mut self, activity: &Activity, surface: &Surface) -> Shown {
        let at = Workspace {
            root: &self.workspace,
            redact: &scrub,
        };
        if let Some(plan) = tool_cards::plan(activity, &at) {
            self.plan = Some(plan);
        }
        let tool = native_tool(activity);
        if tool.is_some_and(|tool| self.decisions.of(tool) == ToolDecision::Host) {
            return Shown::Nothing;
        }
        let mut card = tool_cards::card(activity, &at);
        if tool.is_some_and(NativeTool::changes_something) {
            // Under the host's own name, a permission gate would treat the card as a call to
            // decide.
            card = card.into_generic();
        }
        if let Surface::Cards(tools) = surface
            && tools.iter().any(|tool| tool == card.tool)
        {
            return Shown::Card(self.add_card(card));
        }
        let text = tool_cards::transcript(activity, &at);
        Shown::Lines(vec![TurnEvent::Thinking(text), TurnEvent::ThinkingDone])
    }

    fn add_card(&mut self, card: tool_cards::Card) -> ToolCall {
        self.cards += 1;
        let id = format!("{}{}", self.run, self.cards);
        let record = Record {
            content: card.content,
            details: card.details,
            is_error: card.is_error,
            is_last: false,
        };
        self.recorded.keep(&id, record);
        self.open.push(id.clone());
        ToolCall {
            id,
            name: card.tool.to_owned(),
            arguments: card.arguments,
        }
    }

    /// Records that the run has ended and nothing follows the open cards.
    pub(super) fn close_cards(&self) {
        if self.plan.is_none() {
            self.recorded.close(&self.open);
        }
    }

    /// Records answer text.
    pub(super) fn record_answer(&mut self, text: &str) {
        if self.answer.len() < MAX_ANSWER_BYTES {
            self.answer.push_str(text);
        }
    }

    /// Returns the plan, or the part of it, that the answer does not contain.
    pub(super) fn unshown_plan(&mut self) -> Option<String> {
        let plan = self.plan.take();
        let candidates = Candidates {
            // The protocol has no separate result.
            result: None,
            plan: plan.as_deref().filter(|plan| !self.answer.contains(plan)),
            streamed: &self.answer,
            emitted: &self.answer,
        };
        let rest = final_text::select(candidates, Boundary::Word);
        if rest.is_empty() {
            return None;
        }
        let continues = plan.as_deref() != Some(rest) || self.answer.trim().is_empty();
        Some(if continues {
            rest.to_owned()
        } else {
            format!("\n\n{rest}")
        })
    }
}

/// Returns whether an event must come after the preceding cards: text, a host call, or the end of
/// the run.
pub(super) fn ends_cards(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::Text(_)
            | RunEvent::Thinking(_)
            | RunEvent::HostCall(_)
            | RunEvent::Retrying(_)
            | RunEvent::Ended(_)
    )
}

/// Returns the native tool of an activity, if the policy has one for it.
fn native_tool(activity: &Activity) -> Option<NativeTool> {
    Some(match tool_cards::tool(activity) {
        CursorTool::Read => NativeTool::Read,
        CursorTool::Grep => NativeTool::Grep,
        CursorTool::Glob | CursorTool::Ls => NativeTool::Ls,
        CursorTool::Shell => NativeTool::Shell,
        CursorTool::Edit | CursorTool::Write => NativeTool::Write,
        CursorTool::Delete => NativeTool::Delete,
        CursorTool::ReadLints => NativeTool::Diagnostics,
        _ => return None,
    })
}

/// Redacts secrets.
fn scrub(text: &str) -> String {
    foundation::secrets().scrub(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_tools::host_delegate::HostToolSet;
    use agent_tools::policy::{ExecutedBy, HostPolicy, ToolPolicy};
    use serde_json::json;

    /// A policy that executes everything locally.
    fn local() -> ToolDecisions {
        let settings = ToolPolicy {
            mode: Some(ExecutedBy::Local),
            ..ToolPolicy::default()
        };
        let host = HostToolSet::default();
        ToolDecisions::new(&settings, &HostPolicy::default(), &host, false)
    }

    fn display(recorded: &Recorded) -> ActivityDisplay {
        let (recorded, folder) = (recorded.clone(), PathBuf::from("/w"));
        ActivityDisplay::new(recorded, folder, [], local(), &Arc::default())
    }

    fn record(bytes: usize) -> Record {
        Record {
            content: "x".repeat(bytes),
            details: json!({}),
            is_error: false,
            is_last: false,
        }
    }

    #[test]
    fn records_are_bounded_in_number_and_size() {
        let recorded = Recorded::default();
        for n in 0..MAX_RECORDS + 10 {
            recorded.keep(&format!("a-{n}"), record(8));
        }
        assert_eq!(recorded.lock().by_id.len(), MAX_RECORDS);
        assert!(recorded.get("a-0").is_none() && recorded.get("a-521").is_some());
        for n in 0..40 {
            recorded.keep(&format!("b-{n}"), record(1024 * 1024));
        }
        assert!(recorded.lock().bytes <= MAX_BYTES);
        assert!(recorded.get("b-39").is_some());
    }

    #[test]
    fn results_are_dropped_with_their_run() {
        let recorded = Recorded::default();
        let card = |show: &mut ActivityDisplay| {
            let call =
                json!({"name": "read", "args": {"path": "/w/a"}, "result": {"content": "A"}});
            let tools = Surface::Cards(vec!["read".into()]);
            match show.completed(&Activity::from_json(&call), &tools) {
                Shown::Card(call) => call.id,
                _ => panic!("no card"),
            }
        };
        let (mut one, mut two) = (display(&recorded), display(&recorded));
        let (first, second) = (card(&mut one), card(&mut two));
        assert!(one.waits(&first) && !one.waits(&second));
        drop(one);
        assert_eq!(recorded.get(&first), None);
        assert_eq!(recorded.get(&second).map(|r| r.content), Some("A".into()));
    }

    #[test]
    fn cards_of_local_changes_do_not_look_like_calls_to_a_permission_gate() {
        let mut show = display(&Recorded::default());
        let call = json!({"name": "shell", "args": {"command": "rm -rf a"}, "result": {}});
        let tools = Surface::Cards(vec!["bash".into(), "cursor".into()]);
        let Shown::Card(ToolCall {
            name, arguments, ..
        }) = show.completed(&Activity::from_json(&call), &tools)
        else {
            panic!("no card");
        };
        assert_eq!(name, "cursor");
        assert_eq!(arguments["hostTool"], "bash");
        assert_eq!(arguments["hostArguments"]["command"], "rm -rf a");
        assert_eq!(arguments["activitySummary"], "rm -rf a");
    }

    #[test]
    fn activity_without_a_card_tool_is_shown_as_lines() {
        let mut show = display(&Recorded::default());
        let call = json!({"name": "shell", "args": {"command": "ls"}, "result": {"stdout": "a"}});
        let tools = Surface::Cards(vec!["read".into()]);
        let Shown::Lines(lines) = show.completed(&Activity::from_json(&call), &tools) else {
            panic!("a card without a tool");
        };
        assert!(matches!(&lines[0], TurnEvent::Thinking(line) if line == "$ ls\n\na\n"));
    }

    #[test]
    fn a_run_ends_with_the_part_of_its_plan_that_was_not_shown() {
        let ends = |answer: &[&str], plan: Option<&str>| {
            let mut show = display(&Recorded::default());
            answer.iter().for_each(|text| show.record_answer(text));
            show.plan = plan.map(str::to_owned);
            show.unshown_plan()
        };
        assert_eq!(ends(&["Done."], None), None);
        assert_eq!(ends(&[], Some("1. go")).as_deref(), Some("1. go"));
        assert_eq!(
            ends(&["Done."], Some("1. go")).as_deref(),
            Some("\n\n1. go")
        );
        assert_eq!(ends(&["So: ", "1. go", " Yes?"], Some("1. go")), None);
        assert_eq!(
            ends(&["1. ", "go"], Some("1. go\n2. go")).as_deref(),
            Some("\n2. go")
        );
        assert_eq!(ends(&["Done."], Some(" \n")), None);
    }
}
