//! How a host is shown what Cursor's own tools did: cards that end the turn as tool use,
//! their results recorded here, or lines of thinking.
//!
//! A card is never executed: its result is what was recorded, or nothing.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;

use super::final_text::{self, Boundary, Candidates};
use super::request::TurnEvent;
use crate::run::RunEvent;
use crate::tool_cards::activity_tracker::{ActivityTracker, DisplayItem};
use crate::tool_cards::tool_names::CursorTool;
use crate::tool_cards::{self, Activity, Workspace};
use crate::tools::bridge::Verdict;
use crate::tools::native::policy::{Decision, Decisions, Tool};

/// How the ids of all cards start.
const CARD: &str = "cursor-replay-";

/// Whether a call with this id is a card, which is displayed and never executed.
pub fn is_card(id: &str) -> bool {
    id.starts_with(CARD)
}

/// Recorded results a session holds.
const MOST_RECORDS: usize = 512;
/// Their bytes.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// As much of an answer is kept to know whether it has the plan in it.
const MOST_SAID: usize = 2 * 1024 * 1024;

/// How a host shows the activity of Cursor's own tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Surface {
    /// As lines of thinking.
    #[default]
    Text,
    /// As cards of these tools of the host, other activity as lines.
    Cards(Vec<String>),
}

/// The recorded result behind a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The result as text.
    pub content: String,
    /// What the host's renderer needs besides; `Null` if nothing.
    pub details: Json,
    /// Whether Cursor reported a failure.
    pub verdict: Verdict,
    /// Whether anything comes after it.
    pub follows: Follows,
}

/// Whether a run has more to say after a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// It may have.
    Perhaps,
    /// It is over and has said all: the host need not ask for more.
    Nothing,
}

/// The recorded results of a session, the newest few.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded(Arc<Mutex<Records>>);

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

    pub(super) fn get(&self, id: &str) -> Option<Record> {
        self.lock().by_id.get(id).cloned()
    }

    fn keep(&self, id: &str, record: Record) {
        let mut records = self.lock();
        records.bytes += record.bytes();
        records.by_id.insert(id.to_owned(), record);
        records.order.push_back(id.to_owned());
        while records.order.len() > MOST_RECORDS || records.bytes > MOST_BYTES {
            let Some(oldest) = records.order.pop_front() else {
                break;
            };
            records.remove(&oldest);
        }
    }

    /// Nothing follows these cards.
    fn close(&self, ids: &[String]) {
        let mut records = self.lock();
        for id in ids {
            if let Some(record) = records.by_id.get_mut(id) {
                record.follows = Follows::Nothing;
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

/// What an event of a run's tools is to the host.
pub(super) enum Shown {
    /// Nothing.
    Nothing,
    /// Lines of thinking.
    Lines(Vec<TurnEvent>),
    /// A card: its call.
    Card(TurnEvent),
}

/// The tool activity of one run, as its host is shown it.
pub(super) struct Show {
    tracker: ActivityTracker,
    workspace: PathBuf,
    /// Cards of this run have ids that start so.
    run: String,
    cards: u64,
    /// Cards the host was given and has brought no results for.
    pub(super) open: Vec<String>,
    recorded: Recorded,
    plan: Option<String>,
    /// What the model answered, to know whether it said the plan itself.
    said: String,
    /// Who executes native tools. What the host executes, it displays itself.
    pub(super) decisions: Decisions,
}

impl Drop for Show {
    /// Results go with their run: a card that comes later finds nothing.
    fn drop(&mut self) {
        self.recorded.forget(&self.run);
    }
}

impl Show {
    pub(super) fn new(
        recorded: Recorded,
        workspace: PathBuf,
        hosted: impl IntoIterator<Item = String>,
        decisions: Decisions,
    ) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.map_or(0, |now| now.as_millis());
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self {
            tracker: ActivityTracker::new(hosted),
            workspace,
            run: format!("{CARD}{millis}-{run}-tool-"),
            cards: 0,
            open: Vec::new(),
            recorded,
            plan: None,
            said: String::new(),
            decisions,
        }
    }

    /// Whether a host's tool result is that of an open card.
    pub(super) fn waits(&self, id: &str) -> bool {
        self.open.iter().any(|open| open == id)
    }

    /// Takes an event of the run's tools.
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
            DisplayItem::Line(line) => Shown::Lines(vec![TurnEvent::Thinking(line)]),
            DisplayItem::Completed(activity) => self.completed(&activity, surface),
        }
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
        if tool.is_some_and(|tool| self.decisions.of(tool) == Decision::Host) {
            return Shown::Nothing;
        }
        let mut card = tool_cards::card(activity, &at);
        if tool.is_some_and(Tool::changes_something) {
            // Under the host's own name a permission gate would take it for a call to decide.
            card = card.into_generic();
        }
        if let Surface::Cards(tools) = surface
            && tools.iter().any(|tool| tool == card.tool)
        {
            return Shown::Card(self.deal(card));
        }
        let text = tool_cards::transcript(activity, &at);
        Shown::Lines(vec![TurnEvent::Thinking(text), TurnEvent::ThinkingDone])
    }

    fn deal(&mut self, card: tool_cards::Card) -> TurnEvent {
        self.cards += 1;
        let id = format!("{}{}", self.run, self.cards);
        let record = Record {
            content: card.content,
            details: card.details,
            verdict: if card.is_error {
                Verdict::Failed
            } else {
                Verdict::Done
            },
            follows: Follows::Perhaps,
        };
        self.recorded.keep(&id, record);
        self.open.push(id.clone());
        TurnEvent::ToolCall {
            id,
            name: card.tool.to_owned(),
            arguments: card.arguments,
        }
    }

    /// The run is over and nothing was said after the open cards.
    pub(super) fn last(&self) {
        if self.plan.is_none() {
            self.recorded.close(&self.open);
        }
    }

    /// The model answers.
    pub(super) fn said(&mut self, text: &str) {
        if self.said.len() < MOST_SAID {
            self.said.push_str(text);
        }
    }

    /// What the run ends with and nobody was shown: a plan, or the rest of it.
    pub(super) fn unsaid(&mut self) -> Option<String> {
        let plan = self.plan.take();
        let candidates = Candidates {
            // The wire names no result of its own.
            result: None,
            plan: plan.as_deref().filter(|plan| !self.said.contains(plan)),
            streamed: &self.said,
            emitted: &self.said,
        };
        let rest = final_text::select(candidates, Boundary::Word);
        if rest.is_empty() {
            return None;
        }
        let goes_on = plan.as_deref() != Some(rest) || self.said.trim().is_empty();
        Some(match goes_on {
            true => rest.to_owned(),
            false => format!("\n\n{rest}"),
        })
    }
}

/// Whether an event belongs after the cards before it: something said, a call of the host's
/// tools, the end.
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

/// The native tool that an activity belongs to, as the policy knows it.
fn native_tool(activity: &Activity) -> Option<Tool> {
    Some(match tool_cards::tool(activity) {
        CursorTool::Read => Tool::Read,
        CursorTool::Grep => Tool::Grep,
        CursorTool::Glob | CursorTool::Ls => Tool::Ls,
        CursorTool::Shell => Tool::Shell,
        CursorTool::Edit | CursorTool::Write => Tool::Write,
        CursorTool::Delete => Tool::Delete,
        CursorTool::ReadLints => Tool::Diagnostics,
        _ => return None,
    })
}

/// Secrets stay out of what is shown.
fn scrub(text: &str) -> String {
    crate::diag::secrets().scrub(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::by_host::HostTools;
    use crate::tools::native::policy::{HostPolicy, Mode, Policy};
    use serde_json::json;

    /// Everything executed here.
    fn local() -> Decisions {
        let settings = Policy {
            mode: Some(Mode::Local),
            ..Policy::default()
        };
        let host = HostTools::default();
        Decisions::new(&settings, &HostPolicy::default(), &host, false)
    }

    fn record(bytes: usize) -> Record {
        Record {
            content: "x".repeat(bytes),
            details: json!({}),
            verdict: Verdict::Done,
            follows: Follows::Perhaps,
        }
    }

    #[test]
    fn records_are_bounded_in_number_and_size() {
        let recorded = Recorded::default();
        for n in 0..MOST_RECORDS + 10 {
            recorded.keep(&format!("a-{n}"), record(8));
        }
        assert_eq!(recorded.lock().by_id.len(), MOST_RECORDS);
        assert!(recorded.get("a-0").is_none() && recorded.get("a-521").is_some());
        for n in 0..40 {
            recorded.keep(&format!("b-{n}"), record(1024 * 1024));
        }
        assert!(recorded.lock().bytes <= MOST_BYTES);
        assert!(recorded.get("b-39").is_some());
    }

    #[test]
    fn results_go_with_their_run() {
        let recorded = Recorded::default();
        let show = || Show::new(recorded.clone(), PathBuf::from("/w"), [], local());
        let card = |show: &mut Show| {
            let call =
                json!({"name": "read", "args": {"path": "/w/a"}, "result": {"content": "A"}});
            let tools = Surface::Cards(vec!["read".into()]);
            match show.completed(&Activity::from_json(&call), &tools) {
                Shown::Card(TurnEvent::ToolCall { id, .. }) => id,
                _ => panic!("no card"),
            }
        };
        let (mut one, mut two) = (show(), show());
        let (first, second) = (card(&mut one), card(&mut two));
        assert!(one.waits(&first) && !one.waits(&second));
        drop(one);
        assert_eq!(recorded.get(&first), None);
        assert_eq!(recorded.get(&second).map(|r| r.content), Some("A".into()));
    }

    #[test]
    fn changes_made_here_have_cards_that_no_permission_gate_takes_for_a_call() {
        let mut show = Show::new(Recorded::default(), PathBuf::from("/w"), [], local());
        let call = json!({"name": "shell", "args": {"command": "rm -rf a"}, "result": {}});
        let tools = Surface::Cards(vec!["bash".into(), "cursor".into()]);
        let Shown::Card(TurnEvent::ToolCall {
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
    fn what_the_host_has_no_card_for_is_told_in_lines() {
        let mut show = Show::new(Recorded::default(), PathBuf::from("/w"), [], local());
        let call = json!({"name": "shell", "args": {"command": "ls"}, "result": {"stdout": "a"}});
        let tools = Surface::Cards(vec!["read".into()]);
        let Shown::Lines(lines) = show.completed(&Activity::from_json(&call), &tools) else {
            panic!("a card without a tool");
        };
        assert_eq!(lines[0], TurnEvent::Thinking("$ ls\n\na\n".into()));
    }

    #[test]
    fn a_run_ends_with_what_of_its_plan_was_not_said() {
        let ends = |said: &[&str], plan: Option<&str>| {
            let mut show = Show::new(Recorded::default(), PathBuf::from("/w"), [], local());
            said.iter().for_each(|text| show.said(text));
            show.plan = plan.map(str::to_owned);
            show.unsaid()
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
