//! Reconstructs the timeline of turns from the lines of a debug log. Pure: uses no clock.
//!
//! A turn is one request of a host and contains its runs. A run without a turn is shown as a
//! turn of its own.

mod render;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value as Json};

pub use render::{Style, render};

/// The content of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Turns, in the order they started.
    pub turns: Vec<TurnTimeline>,
    /// Fields and kinds from the server that our schema does not know, with counts.
    pub drift: BTreeMap<String, u64>,
    /// Number of records that were dropped or failed to be written.
    pub missing: u64,
    /// Lines that are not records.
    pub problems: Vec<UnreadableLine>,
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// One turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TurnTimeline {
    /// The host's id of the turn, or the run's id.
    pub name: String,
    /// The session's id, shortened.
    pub session: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The ids of its runs.
    pub runs: Vec<String>,
    /// The start, in microseconds of the log's clock.
    pub start_us: u64,
    /// The duration in microseconds, up to the end of the log.
    pub length_us: u64,
    /// How it ended; `None` if the log does not contain the end.
    pub end: Option<String>,
    /// Its phases, in the order they started.
    pub phases: Vec<TurnPhase>,
    /// Totals over all phases and attempts.
    pub totals: Totals,
}

/// An interval of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnPhase {
    /// What happened.
    pub kind: PhaseKind,
    /// Details, such as the kind of tool.
    pub detail: String,
    /// The start in microseconds, relative to the turn's start.
    pub start_us: u64,
    /// The duration in microseconds.
    pub length_us: u64,
    /// Whether it succeeded.
    #[serde(rename = "mark")]
    pub status: PhaseStatus,
}

/// What happens in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum PhaseKind {
    Token,
    Connect,
    Wait,
    Thinking,
    Text,
    Exec,
    Pause,
    Failure,
    Cancel,
}

/// Whether a phase succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum PhaseStatus {
    /// Written as `well`.
    #[serde(rename = "well")]
    Ok,
    Failed,
    /// The log ends before the phase does.
    Open,
}

/// Totals of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Totals {
    pub first_text_us: Option<u64>,
    pub text_pieces: u64,
    pub text_bytes: u64,
    pub thinking_pieces: u64,
    /// Time during which at least one tool was running.
    pub tool_us: u64,
    /// Time without output and without a running tool.
    pub waiting_us: u64,
    pub attempts: u64,
    pub input: Option<u64>,
    pub output: Option<u64>,
}

/// Parses a log. Lines that are not records become [`UnreadableLine`]s.
pub fn read(text: &str) -> Timeline {
    let mut reader = TimelineReader::default();
    let cut_short = !text.is_empty() && !text.ends_with('\n');
    let lines = text.lines().count();
    for (index, line) in text.lines().enumerate() {
        let problem = |what| UnreadableLine {
            line: index + 1,
            what,
        };
        if line.trim().is_empty() {
            continue;
        }
        match record(line) {
            Some(record) => reader.take(&record),
            None if cut_short && index + 1 == lines => {
                let what = "incomplete: the log was cut off while this line was written";
                reader.timeline.problems.push(problem(what));
            }
            None => reader
                .timeline
                .problems
                .push(problem("not a record of a debug log")),
        }
    }
    reader.finish()
}

/// A line of the log.
struct ParsedRecord {
    us: u64,
    event: String,
    fields: Map<String, Json>,
}

fn record(line: &str) -> Option<ParsedRecord> {
    let Json::Object(fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
    Some(ParsedRecord {
        us: fields.get("us")?.as_u64()?,
        event: fields.get("event")?.as_str()?.to_owned(),
        fields,
    })
}

impl ParsedRecord {
    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name)?.as_u64()
    }

    fn us_of_ms(&self, name: &str) -> Option<u64> {
        Some(self.number(name)?.saturating_mul(1000))
    }
}

/// If the clock goes back by more than this many microseconds, the line is from another process.
const ANOTHER_PROCESS: u64 = 1_000_000;

#[derive(Default)]
struct TimelineReader {
    timeline: Timeline,
    open: Vec<TurnBuilder>,
    /// Finished turns, each with its position in the order of starts.
    finished: Vec<(usize, TurnTimeline)>,
    started: usize,
    last_us: u64,
}

/// A turn that has not ended yet.
#[derive(Default)]
struct TurnBuilder {
    turn: TurnTimeline,
    order: usize,
    /// The host's id of the turn, if the host started it.
    host_id: Option<String>,
    /// When the current attempt started to connect.
    connecting: Option<u64>,
    /// When the current attempt started to wait for output.
    waiting: Option<u64>,
    text: Option<u64>,
    thinking: Option<u64>,
    execs: BTreeMap<u64, (u64, String)>,
    last: u64,
}

impl TimelineReader {
    fn take(&mut self, record: &ParsedRecord) {
        if record.us.saturating_add(ANOTHER_PROCESS) < self.last_us {
            self.close_all();
        }
        self.last_us = record.us;
        match record.event.as_str() {
            "drift" => self.drift(record),
            "log.dropped" => self.timeline.missing += record.number("count").unwrap_or(0),
            "log.ended" => self.timeline.missing += record.number("failed").unwrap_or(0),
            "turn.started" => self.begin(record, record.text("turn")),
            _ => {}
        }
        if record.event == "run.started" {
            self.attach_run(record);
        }
        let Some(at) = self.find(record) else {
            return;
        };
        let building = &mut self.open[at];
        building.take(record);
        let over = match record.event.as_str() {
            "turn.answered" | "turn.refused" => true,
            "run.ended" => building.host_id.is_none(),
            _ => false,
        };
        if over {
            let building = self.open.remove(at);
            self.finished.push((building.order, building.finish()));
        }
    }

    fn drift(&mut self, record: &ParsedRecord) {
        let kind = record.text("kind").unwrap_or_default().to_owned();
        let count = self.timeline.drift.entry(kind).or_default();
        *count = (*count).max(record.number("count").unwrap_or(1));
    }

    fn begin(&mut self, record: &ParsedRecord, host_id: Option<&str>) {
        let name = host_id.or(record.text("run")).unwrap_or("?");
        self.started += 1;
        self.open.push(TurnBuilder {
            order: self.started,
            turn: TurnTimeline {
                name: name.to_owned(),
                start_us: record.us,
                ..TurnTimeline::default()
            },
            host_id: host_id.map(str::to_owned),
            last: record.us,
            ..TurnBuilder::default()
        });
    }

    /// Adds a new run to the turn it names, else to the only open turn, else to a turn of its own.
    fn attach_run(&mut self, record: &ParsedRecord) {
        let named = record.text("turn");
        let named = self
            .open
            .iter()
            .position(|turn| named.is_some() && turn.host_id.as_deref() == named);
        let at = match (named, self.open.len()) {
            (Some(at), _) => at,
            (None, 1) if self.open[0].host_id.is_some() => 0,
            _ => {
                self.begin(record, None);
                self.open.len() - 1
            }
        };
        if let Some(run) = record.text("run") {
            self.open[at].turn.runs.push(run.to_owned());
        }
    }

    /// Returns the index of the turn a record belongs to: by run, by turn id, or the only open one.
    fn find(&self, record: &ParsedRecord) -> Option<usize> {
        let by = |wanted: &dyn Fn(&TurnBuilder) -> bool| self.open.iter().position(wanted);
        if let Some(run) = record.text("run") {
            return by(&|turn| turn.turn.runs.iter().any(|known| known == run));
        }
        if let Some(name) = record.text("turn") {
            return by(&|turn| turn.host_id.as_deref() == Some(name));
        }
        (self.open.len() == 1).then_some(0)
    }

    fn close_all(&mut self) {
        for building in self.open.drain(..) {
            self.finished.push((building.order, building.finish()));
        }
    }

    fn finish(mut self) -> Timeline {
        self.close_all();
        self.finished.sort_by_key(|(order, _)| *order);
        self.timeline.turns = self.finished.into_iter().map(|(_, turn)| turn).collect();
        self.timeline
    }
}

impl TurnBuilder {
    fn take(&mut self, record: &ParsedRecord) {
        let now = record.us;
        self.last = self.last.max(now);
        let text = |name: &str| record.text(name).map(str::to_owned);
        match record.event.as_str() {
            "turn.started" => self.turn.session = text("session"),
            "run.started" => self.turn.model = text("model"),
            "attempt.started" => {
                self.turn.totals.attempts += 1;
                self.connecting = Some(now);
            }
            "token.exchanged" | "token.refreshed" => {
                // The attempt waited for the token, so connecting starts only now.
                let since = self.connecting.replace(now).unwrap_or(now);
                let how = record.event.trim_start_matches("token.");
                self.phase(PhaseKind::Token, how, since, now, PhaseStatus::Ok);
            }
            "token.refused" => {
                let since = self.connecting.unwrap_or(now);
                let kind = record.text("kind").unwrap_or_default();
                self.phase(PhaseKind::Token, kind, since, now, PhaseStatus::Failed);
            }
            "stream.opened" => {
                let since = self.connecting.take().unwrap_or(now);
                let version = record.text("version").unwrap_or_default();
                self.phase(PhaseKind::Connect, version, since, now, PhaseStatus::Ok);
                self.waiting = Some(now);
            }
            "text.first" => {
                self.first_output(now);
                self.text = Some(now);
                let since = now.saturating_sub(self.turn.start_us);
                self.turn.totals.first_text_us.get_or_insert(since);
            }
            "thinking.first" => {
                self.first_output(now);
                self.thinking = Some(now);
            }
            "exec.asked" => {
                self.first_output(now);
                let kind = record.text("kind").unwrap_or_default().to_owned();
                let id = record.number("exec").unwrap_or(0);
                self.execs.insert(id, (now, kind));
            }
            "exec.answered" => self.exec_answered(record),
            "attempt.closed" => self.attempt_closed(record),
            "stream.failed" => {
                let kind = record.text("kind").unwrap_or_default();
                let since = self.connecting.take().unwrap_or(now);
                self.phase(PhaseKind::Failure, kind, since, now, PhaseStatus::Failed);
            }
            "run.retry" => {
                let class = record.text("class").unwrap_or_default();
                let until = now + record.us_of_ms("delay_ms").unwrap_or(0);
                self.connecting = None;
                self.phase(PhaseKind::Pause, class, now, until, PhaseStatus::Failed);
            }
            "run.leaving" => self.phase(PhaseKind::Cancel, "", now, now, PhaseStatus::Failed),
            "run.ended" => {
                self.turn.totals.input = record.number("input");
                self.turn.totals.output = record.number("output");
                self.turn.end = text("class").or(text("outcome"));
            }
            "turn.answered" => self.turn.end = text("stop"),
            "turn.refused" => self.turn.end = Some("refused".into()),
            _ => {}
        }
    }

    /// Ends the wait for the first output.
    fn first_output(&mut self, now: u64) {
        if let Some(since) = self.waiting.take() {
            self.phase(PhaseKind::Wait, "", since, now, PhaseStatus::Ok);
        }
    }

    fn exec_answered(&mut self, record: &ParsedRecord) {
        let id = record.number("exec").unwrap_or(0);
        if let Some((since, kind)) = self.execs.remove(&id) {
            let status = match record.text("outcome") {
                Some("done") => PhaseStatus::Ok,
                _ => PhaseStatus::Failed,
            };
            self.phase(PhaseKind::Exec, &kind, since, record.us, status);
        }
    }

    /// Adds the totals of an attempt, and the phases whose end is only in this record.
    fn attempt_closed(&mut self, record: &ParsedRecord) {
        let number = |name: &str| record.number(name).unwrap_or(0);
        let length = |first, last| {
            let (first, last) = (record.us_of_ms(first), record.us_of_ms(last));
            last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
        };
        let (pieces, bytes) = (number("text_pieces"), number("text_bytes"));
        let thoughts = number("thinking_pieces");
        self.turn.totals.text_pieces += pieces;
        self.turn.totals.text_bytes += bytes;
        self.turn.totals.thinking_pieces += thoughts;
        if let Some(since) = self.thinking.take() {
            let until = since + length("thinking_first_ms", "thinking_last_ms");
            let detail = format!("{thoughts} pieces");
            self.phase(PhaseKind::Thinking, &detail, since, until, PhaseStatus::Ok);
        }
        if let Some(since) = self.text.take() {
            let until = since + length("text_first_ms", "text_last_ms");
            let detail = format!("{pieces} pieces");
            self.phase(PhaseKind::Text, &detail, since, until, PhaseStatus::Ok);
        }
        self.unanswered(PhaseStatus::Failed);
        self.first_output(record.us);
    }

    /// Ends the tool calls that have no answer.
    fn unanswered(&mut self, status: PhaseStatus) {
        for (_, (since, kind)) in std::mem::take(&mut self.execs) {
            self.phase(PhaseKind::Exec, &kind, since, self.last, status);
        }
    }

    fn phase(
        &mut self,
        kind: PhaseKind,
        detail: &str,
        since: u64,
        until: u64,
        status: PhaseStatus,
    ) {
        self.turn.phases.push(TurnPhase {
            kind,
            detail: detail.to_owned(),
            start_us: since.saturating_sub(self.turn.start_us),
            length_us: until.saturating_sub(since),
            status,
        });
    }

    fn finish(mut self) -> TurnTimeline {
        if self.turn.end.is_none() {
            self.unanswered(PhaseStatus::Open);
            let open = [
                (self.connecting.take(), PhaseKind::Connect),
                (self.waiting.take(), PhaseKind::Wait),
                (self.thinking.take(), PhaseKind::Thinking),
                (self.text.take(), PhaseKind::Text),
            ];
            for (since, kind) in open {
                if let Some(since) = since {
                    self.phase(kind, "", since, self.last, PhaseStatus::Open);
                }
            }
        }
        let mut turn = self.turn;
        turn.length_us = self.last.saturating_sub(turn.start_us);
        turn.phases.sort_by_key(|phase| phase.start_us);
        let of = |kinds: &[PhaseKind]| {
            let phases = turn.phases.iter();
            let mut spans: Vec<(u64, u64)> = phases
                .filter(|phase| kinds.contains(&phase.kind))
                .map(|phase| (phase.start_us, phase.start_us + phase.length_us))
                .collect();
            covered(&mut spans).min(turn.length_us)
        };
        let busy = of(&[PhaseKind::Exec, PhaseKind::Text, PhaseKind::Thinking]);
        turn.totals.tool_us = of(&[PhaseKind::Exec]);
        turn.totals.waiting_us = turn.length_us - busy;
        turn
    }
}

/// Returns the total length that the intervals cover, counting overlaps once.
fn covered(spans: &mut [(u64, u64)]) -> u64 {
    spans.sort_unstable();
    let mut covered = 0;
    let mut end = 0;
    for &mut (from, to) in spans {
        covered += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    covered
}

#[cfg(test)]
mod tests;
