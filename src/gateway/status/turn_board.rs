//! What the status page displays: sessions and their recent turns, and what each turn waits for.
//! It contains names, counts and times, and nothing of prompts, answers or results.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::watch;

use agent::turn::TurnEvent;
use agent::turn::usage::Tokens;
use foundation::terminal_text;

/// How many turns that have ended are displayed.
const MAX_ENDED: usize = 60;
/// How many sessions are displayed, the last used ones.
const MAX_SESSIONS: usize = 60;
/// How many intervals of a turn are displayed; further ones extend the last.
const MAX_SPANS: usize = 64;
/// How many calls of a turn are named.
const MAX_CALLS: usize = 8;
/// How much of a text of a client is displayed.
const MAX_TEXT: usize = 200;

/// What a turn does or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::gateway) enum TurnStage {
    /// Waits for an earlier turn of its session.
    Queued,
    /// Waits for Cursor.
    Cursor,
    /// Cursor is answering.
    Answering,
    /// Waits for the client to read the answer.
    Reading,
    /// The run is parked and waits for the client's results.
    Client,
    /// The client sent no results in time, so the run was released.
    Expired,
    /// The client's next request continued it.
    Continued,
    /// The answer is complete.
    Answered,
    /// It failed.
    Failed,
    /// The client disconnected, or the gateway ended.
    Cancelled,
}

impl TurnStage {
    fn is_active(self) -> bool {
        matches!(
            self,
            Self::Queued | Self::Cursor | Self::Answering | Self::Reading
        )
    }

    fn is_live(self) -> bool {
        self.is_active() || self == Self::Client
    }
}

/// Where a turn comes from.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct TurnOrigin {
    pub(in crate::gateway) session: String,
    /// The client's name of the session.
    pub(in crate::gateway) name: Option<String>,
    /// The program that sent it.
    pub(in crate::gateway) client: Option<String>,
    pub(in crate::gateway) model: String,
    pub(in crate::gateway) folder: String,
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub(in crate::gateway) enum TurnOutcome {
    /// The answer is complete.
    Answered(Tokens),
    /// The client's tools were called.
    Calls(Tokens),
    /// It failed with this error.
    Failed(String),
    /// The client disconnected.
    Cancelled,
}

/// An interval of a turn. Times are milliseconds since 1970.
#[derive(Debug, Clone, Serialize)]
struct StageSpan {
    stage: TurnStage,
    from: u64,
    /// `None` while it lasts.
    to: Option<u64>,
}

/// A turn on the page.
#[derive(Debug, Clone, Serialize)]
struct TurnRow {
    id: u64,
    session: String,
    model: String,
    stage: TurnStage,
    spans: Vec<StageSpan>,
    /// The tools that were called.
    calls: Vec<String>,
    error: Option<String>,
    retries: u32,
    input: u64,
    output: u64,
}

impl TurnRow {
    fn enter(&mut self, stage: TurnStage, now: u64) {
        if self.stage == stage {
            return;
        }
        self.stage = stage;
        // A turn that alternates without end keeps the bound.
        if self.spans.len() >= MAX_SPANS && stage.is_live() {
            return;
        }
        if let Some(last) = self.spans.last_mut().filter(|last| last.to.is_none()) {
            last.to = Some(now);
        }
        if stage.is_live() {
            let (from, to) = (now, None);
            self.spans.push(StageSpan { stage, from, to });
        }
    }

    /// Returns the row with a run that was parked for too long as released.
    fn at(&self, now: u64, park: u64) -> Self {
        let mut row = self.clone();
        let since = row.spans.last().map_or(now, |span| span.from);
        if row.stage == TurnStage::Client && now >= since.saturating_add(park) {
            row.enter(TurnStage::Expired, since + park);
        }
        row
    }
}

/// A session on the page.
#[derive(Debug, Clone, Serialize)]
struct SessionRow {
    id: String,
    name: Option<String>,
    client: Option<String>,
    model: String,
    folder: String,
    /// Its last turn, and the stage of it.
    turn: u64,
    stage: TurnStage,
    since: u64,
    calls: Vec<String>,
    turns: u64,
    input: u64,
    output: u64,
}

/// Everything on the page that changes with turns.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::gateway) struct BoardSnapshot {
    now: u64,
    started: u64,
    /// How long a run is parked, in milliseconds.
    park: u64,
    sessions: Vec<SessionRow>,
    turns: Vec<TurnRow>,
    total_turns: u64,
    input: u64,
    output: u64,
    cached: u64,
    retries: u64,
}

#[derive(Debug, Default)]
struct Rows {
    turns: VecDeque<TurnRow>,
    sessions: HashMap<String, SessionRow>,
    total: u64,
    input: u64,
    output: u64,
    cached: u64,
    retries: u64,
}

/// The sessions and turns of the gateway.
#[derive(Debug)]
pub(in crate::gateway) struct TurnBoard {
    rows: Mutex<Rows>,
    changes: watch::Sender<()>,
    park: u64,
    started: u64,
}

impl TurnBoard {
    /// Returns an empty board of a gateway that parks runs for `park`.
    pub(super) fn new(park: Duration) -> Self {
        Self {
            rows: Mutex::default(),
            changes: watch::Sender::default(),
            park: u64::try_from(park.as_millis()).unwrap_or(u64::MAX),
            started: now_ms(),
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that is notified of every change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Notifies the pages that are open.
    pub(super) fn notify(&self) {
        self.changes.send_replace(());
    }

    /// Adds a turn. The turn of its session that waits for the client is continued by it.
    pub(in crate::gateway) fn begin(self: &Arc<Self>, origin: &TurnOrigin) -> TurnReport {
        let now = now_ms();
        let mut rows = self.rows();
        rows.total += 1;
        let id = rows.total;
        let session = shown(&origin.session);
        let mut is_queued = false;
        for turn in rows.turns.iter_mut().filter(|turn| turn.session == session) {
            is_queued |= turn.stage.is_active();
            if turn.stage == TurnStage::Client {
                *turn = turn.at(now, self.park);
                if turn.stage == TurnStage::Client {
                    turn.enter(TurnStage::Continued, now);
                }
            }
        }
        let stage = if is_queued {
            TurnStage::Queued
        } else {
            TurnStage::Cursor
        };
        let (from, to) = (now, None);
        rows.turns.push_back(TurnRow {
            id,
            session: session.clone(),
            model: shown(&origin.model),
            stage,
            spans: vec![StageSpan { stage, from, to }],
            calls: Vec::new(),
            error: None,
            retries: 0,
            input: 0,
            output: 0,
        });
        let before = rows.sessions.get(&session);
        let (turns, input, output) =
            before.map_or((0, 0, 0), |row| (row.turns, row.input, row.output));
        let row = SessionRow {
            id: session.clone(),
            name: origin.name.as_deref().map(shown),
            client: origin.client.as_deref().map(shown),
            model: shown(&origin.model),
            folder: shown(&origin.folder),
            turn: id,
            stage,
            since: now,
            calls: Vec::new(),
            turns: turns + 1,
            input,
            output,
        };
        rows.sessions.insert(session, row);
        rows.trim();
        drop(rows);
        self.notify();
        let board = Arc::clone(self);
        TurnReport { board, id }
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut TurnRow, u64)) {
        let mut rows = self.rows();
        if let Some(row) = rows.turns.iter_mut().rev().find(|row| row.id == id) {
            change(row, now_ms());
        }
        drop(rows);
        self.notify();
    }

    /// Returns what the page displays now.
    pub(super) fn snapshot(&self) -> BoardSnapshot {
        let now = now_ms();
        let rows = self.rows();
        let turns: Vec<TurnRow> = rows
            .turns
            .iter()
            .map(|row| row.at(now, self.park))
            .collect();
        let mut sessions: Vec<SessionRow> = rows.sessions.values().cloned().collect();
        for session in &mut sessions {
            if let Some(turn) = turns.iter().find(|turn| turn.id == session.turn) {
                session.stage = turn.stage;
                session.calls.clone_from(&turn.calls);
                let last = turn.spans.last();
                session.since = last.map_or(now, |span| span.to.unwrap_or(span.from));
            }
        }
        sessions.sort_by_key(|session| std::cmp::Reverse(session.turn));
        BoardSnapshot {
            now,
            started: self.started,
            park: self.park,
            sessions,
            turns,
            total_turns: rows.total,
            input: rows.input,
            output: rows.output,
            cached: rows.cached,
            retries: rows.retries,
        }
    }
}

impl Rows {
    /// Removes what is too much, the oldest first. Live turns and their sessions stay.
    fn trim(&mut self) {
        let mut excess = self
            .turns
            .iter()
            .filter(|turn| !turn.stage.is_live())
            .count()
            .saturating_sub(MAX_ENDED);
        self.turns.retain(|turn| {
            let is_dropped = excess > 0 && !turn.stage.is_live();
            excess -= usize::from(is_dropped);
            !is_dropped
        });
        while self.sessions.len() > MAX_SESSIONS {
            let is_live = |id: u64| {
                let turn = self.turns.iter().find(|turn| turn.id == id);
                turn.is_some_and(|turn| turn.stage.is_live())
            };
            let unused = self.sessions.values().filter(|row| !is_live(row.turn));
            let Some(oldest) = unused.min_by_key(|row| row.turn) else {
                return;
            };
            let id = oldest.id.clone();
            self.sessions.remove(&id);
        }
    }
}

/// Reports the progress of one turn. Dropping it without an outcome reports a cancelled turn.
#[derive(Debug)]
pub(in crate::gateway) struct TurnReport {
    board: Arc<TurnBoard>,
    id: u64,
}

impl TurnReport {
    /// Reports an event. `is_reader_slow` says that the client has not read the events before it.
    pub(in crate::gateway) fn event(&self, event: &TurnEvent, is_reader_slow: bool) {
        let stage = match event {
            TurnEvent::Text(_) | TurnEvent::Thinking(_) if is_reader_slow => TurnStage::Reading,
            TurnEvent::Text(_) | TurnEvent::Thinking(_) => TurnStage::Answering,
            TurnEvent::ToolCall(call) => {
                return self.board.change(self.id, |row, now| {
                    row.enter(TurnStage::Answering, now);
                    if row.calls.len() < MAX_CALLS {
                        row.calls.push(shown(&call.name));
                    }
                });
            }
            TurnEvent::Retrying { .. } => {
                self.board.rows().retries += 1;
                return self.board.change(self.id, |row, now| {
                    row.retries += 1;
                    row.enter(TurnStage::Cursor, now);
                });
            }
            TurnEvent::ThinkingDone
            | TurnEvent::Request(_)
            | TurnEvent::Waiting(_)
            | TurnEvent::Remark(_)
            | TurnEvent::RetryNotice(_)
            | TurnEvent::Notice(_) => return,
        };
        let is_same = {
            let rows = self.board.rows();
            let row = rows.turns.iter().rev().find(|row| row.id == self.id);
            row.is_none_or(|row| row.stage == stage)
        };
        if !is_same {
            self.board.change(self.id, |row, now| row.enter(stage, now));
        }
    }

    /// Reports the end. Further outcomes are ignored.
    pub(in crate::gateway) fn end(&self, outcome: TurnOutcome) {
        let now = now_ms();
        let mut guard = self.board.rows();
        let rows = &mut *guard;
        let Some(row) = rows.turns.iter_mut().rev().find(|row| row.id == self.id) else {
            return;
        };
        if !row.stage.is_active() {
            return;
        }
        let (stage, tokens) = match outcome {
            TurnOutcome::Answered(tokens) => (TurnStage::Answered, tokens),
            TurnOutcome::Calls(tokens) => (TurnStage::Client, tokens),
            TurnOutcome::Failed(error) => {
                row.error = Some(shown(&error));
                (TurnStage::Failed, Tokens::default())
            }
            TurnOutcome::Cancelled => (TurnStage::Cancelled, Tokens::default()),
        };
        row.enter(stage, now);
        let input = tokens.input + tokens.cache_read + tokens.cache_write;
        (row.input, row.output) = (input, tokens.output);
        let session = row.session.clone();
        rows.input += input;
        rows.output += tokens.output;
        rows.cached += tokens.cache_read;
        if let Some(session) = rows.sessions.get_mut(&session) {
            session.input += input;
            session.output += tokens.output;
        }
        let is_next = |row: &&mut TurnRow| row.session == session && row.stage == TurnStage::Queued;
        if let Some(next) = rows.turns.iter_mut().find(is_next) {
            next.enter(TurnStage::Cursor, now);
        }
        drop(guard);
        self.board.notify();
    }

    /// Reports that the parked run was released, because its calls did not reach the client.
    pub(in crate::gateway) fn release(&self) {
        self.board.change(self.id, |row, now| {
            if row.stage == TurnStage::Client {
                row.enter(TurnStage::Cancelled, now);
            }
        });
    }
}

impl Drop for TurnReport {
    fn drop(&mut self) {
        self.end(TurnOutcome::Cancelled);
    }
}

/// Returns a text of a client as it is displayed: short, and without control characters.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(MAX_TEXT).collect();
    terminal_text::cleaned(short)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(session: &str) -> TurnOrigin {
        TurnOrigin {
            session: session.into(),
            name: Some("window\u{1b}[31m\u{202e}".repeat(100)),
            client: None,
            model: "composer-2".into(),
            folder: "/".into(),
        }
    }

    fn again() -> TurnEvent {
        TurnEvent::Retrying {
            reason: "again".into(),
            is_limit: false,
        }
    }

    fn stages(board: &TurnBoard) -> Vec<TurnStage> {
        let turns = board.snapshot().turns;
        turns.iter().map(|turn| turn.stage).collect()
    }

    #[test]
    fn a_turn_is_queued_runs_waits_and_is_continued() {
        use TurnStage::{Answered, Answering, Cancelled, Client, Continued, Cursor, Queued};
        let board = Arc::new(TurnBoard::new(Duration::from_secs(900)));
        let first = board.begin(&origin("a"));
        let second = board.begin(&origin("a"));
        let other = board.begin(&origin("b"));
        assert_eq!(stages(&board), [Cursor, Queued, Cursor]);
        first.event(&TurnEvent::Text("secret".into()), false);
        assert_eq!(stages(&board), [Answering, Queued, Cursor]);
        first.end(TurnOutcome::Answered(Tokens::default()));
        assert_eq!(stages(&board), [Answered, Cursor, Cursor]);
        second.end(TurnOutcome::Calls(Tokens::default()));
        drop((first, second, other));
        assert_eq!(stages(&board), [Answered, Client, Cancelled]);
        let third = board.begin(&origin("a"));
        assert_eq!(stages(&board), [Answered, Continued, Cancelled, Cursor]);
        third.event(&again(), false);
        let snapshot = board.snapshot();
        assert_eq!((snapshot.retries, snapshot.total_turns), (1, 4));
        let name = snapshot.sessions[0].name.clone().unwrap();
        assert!(name.chars().count() <= MAX_TEXT, "{name}");
        assert!(!name.contains(['\u{1b}', '\u{202e}']), "{name:?}");
        let json = serde_json::to_string(&snapshot).unwrap();
        assert!(!json.contains("secret"), "{json}");
    }

    #[test]
    fn a_run_that_was_parked_for_too_long_is_displayed_as_released() {
        let board = Arc::new(TurnBoard::new(Duration::ZERO));
        board
            .begin(&origin("a"))
            .end(TurnOutcome::Calls(Tokens::default()));
        assert_eq!(stages(&board), [TurnStage::Expired]);
        assert_eq!(board.snapshot().sessions[0].stage, TurnStage::Expired);
    }

    #[test]
    fn turns_and_sessions_are_bounded_and_live_ones_stay() {
        let board = Arc::new(TurnBoard::new(Duration::from_secs(900)));
        let live = board.begin(&origin("live"));
        for n in 0..500 {
            board.begin(&origin(&n.to_string()));
            for _ in 0..10 {
                live.event(&TurnEvent::Text("a".into()), false);
                live.event(&again(), false);
            }
        }
        let snapshot = board.snapshot();
        assert_eq!(snapshot.sessions.len(), MAX_SESSIONS);
        assert!(snapshot.turns.len() <= MAX_ENDED + 2);
        let kept = snapshot.turns.iter().find(|turn| turn.id == 1).unwrap();
        assert_eq!(kept.spans.len(), MAX_SPANS);
        assert!(snapshot.sessions.iter().any(|session| session.id == "live"));
    }
}
