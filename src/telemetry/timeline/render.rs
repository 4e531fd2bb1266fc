//! Renders a timeline for a terminal.

use std::fmt::Write as _;

use super::{PhaseKind, PhaseStatus, Timeline, TurnPhase, TurnTimeline};
use foundation::terminal_text::clean;

/// How to render a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The width of the terminal in columns.
    pub width: usize,
    /// Whether characters beyond ASCII may be used.
    pub unicode: bool,
    /// Whether to use colours.
    pub color: bool,
}

/// Columns of offset, name and duration, with the spaces between them.
const OFFSET: usize = 9;
const NAME: usize = 28;
const DURATION: usize = 9;
/// Minimum width of the area for bars.
const MIN_BAR: usize = 10;

impl Style {
    fn bar(self) -> usize {
        self.width
            .saturating_sub(2 + OFFSET + 2 + NAME + 1 + DURATION + 4)
            .max(MIN_BAR)
    }

    fn choose(self, ascii: &'static str, unicode: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// Returns a check mark, coloured.
    pub fn ok_sign(self) -> String {
        self.paint("32", self.choose("ok", "✓"))
    }

    /// Returns a warning sign, coloured.
    pub fn warning_sign(self) -> String {
        self.paint("33", "!")
    }

    /// Returns a cross, coloured.
    pub fn problem_sign(self) -> String {
        self.paint("31", self.choose("FAILED", "✘"))
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Renders every turn, then drift, missing records and problems.
pub fn render(timeline: &Timeline, style: Style) -> String {
    let mut page = String::new();
    for turn in &timeline.turns {
        render_turn(&mut page, turn, style);
        page.push('\n');
    }
    if timeline.turns.is_empty() {
        page.push_str("no turn in this log\n\n");
    }
    render_drift(&mut page, timeline, style);
    if timeline.missing > 0 {
        let _ = writeln!(
            page,
            "{} {} records are missing: the disk was too slow or full",
            style.warning_sign(),
            timeline.missing
        );
    }
    for problem in &timeline.problems {
        let sign = style.warning_sign();
        let _ = writeln!(page, "{sign} line {}: {}", problem.line, problem.what);
    }
    while page.ends_with("\n\n") {
        page.pop();
    }
    page
}

fn render_drift(page: &mut String, timeline: &Timeline, style: Style) {
    if timeline.drift.is_empty() {
        return;
    }
    page.push_str("wire drift: the server sends fields or kinds this version does not know\n");
    for (kind, count) in &timeline.drift {
        let kind = clean(kind);
        let _ = writeln!(page, "  {} {kind} (at least {count})", style.warning_sign());
    }
}

fn render_turn(page: &mut String, turn: &TurnTimeline, style: Style) {
    let dot = style.choose(" - ", " · ");
    let what = match turn.session {
        Some(_) => "turn",
        None => "run",
    };
    let mut head = format!("{what} {}", turn.name);
    for (name, value) in [("session ", &turn.session), ("", &turn.model)] {
        if let Some(value) = value {
            let _ = write!(head, "{dot}{name}{value}");
        }
    }
    let end = turn
        .end
        .as_deref()
        .unwrap_or("unfinished when the log ends");
    let _ = write!(head, "{dot}{}{dot}{end}", span(turn.length_us));
    let _ = writeln!(page, "{}", style.paint("1", &clean(&head)));
    for phase in &turn.phases {
        render_phase(page, phase, turn.length_us, style);
    }
    let _ = writeln!(page, "  {}", totals(turn).join(dot));
}

fn render_phase(page: &mut String, phase: &TurnPhase, whole: u64, style: Style) {
    let (name, colour) = match phase.kind {
        PhaseKind::Token => ("token", "35"),
        PhaseKind::Connect => ("connect", "36"),
        PhaseKind::Wait => ("wait", "2"),
        PhaseKind::Thinking => ("thinking", "34"),
        PhaseKind::Text => ("text", "32"),
        PhaseKind::Exec => ("tool", "33"),
        PhaseKind::Pause => ("pause after", "31"),
        PhaseKind::Failure => ("failed", "31"),
        PhaseKind::Cancel => ("cancelled", "31"),
    };
    let sign = match phase.status {
        PhaseStatus::Ok => " ",
        PhaseStatus::Failed => "!",
        PhaseStatus::Open => "?",
    };
    let colour = if phase.status == PhaseStatus::Failed {
        "31"
    } else {
        colour
    };
    let name = format!("{sign} {name} {}", phase.detail);
    let name: String = clean(name.trim_end()).chars().take(NAME).collect();
    let bar = style.paint(colour, &bar(phase, whole, style));
    let _ = writeln!(
        page,
        "  {:>OFFSET$}  {name:<NAME$} {:>DURATION$}  {bar}",
        format!("+{}", span(phase.start_us)),
        span(phase.length_us),
    );
}

/// Returns the bar of a phase, scaled to the turn's duration.
fn bar(phase: &TurnPhase, whole: u64, style: Style) -> String {
    let width = style.bar() as u64;
    let whole = whole.max(1);
    let column = |us: u64| (us.min(whole) * width / whole) as usize;
    let from = column(phase.start_us).min(width as usize - 1);
    let to = column(phase.start_us.saturating_add(phase.length_us));
    let point = style.choose("|", "▏");
    let body = if to > from {
        style.choose("#", "█").repeat(to - from)
    } else {
        point.to_owned()
    };
    format!("{}{body}", " ".repeat(from))
}

fn totals(turn: &TurnTimeline) -> Vec<String> {
    let totals = &turn.totals;
    let mut parts = Vec::new();
    if let Some(first) = totals.first_text_us {
        parts.push(format!("first text after {}", span(first)));
    }
    parts.push(format!(
        "{} deltas, {} bytes",
        totals.text_pieces + totals.thinking_pieces,
        totals.text_bytes
    ));
    parts.push(format!("tools {}", span(totals.tool_us)));
    parts.push(format!("waiting {}", span(totals.waiting_us)));
    if totals.attempts > 1 {
        parts.push(format!("{} attempts", totals.attempts));
    }
    if let (Some(input), Some(output)) = (totals.input, totals.output) {
        parts.push(format!("{input} tokens in, {output} out"));
    }
    parts
}

/// Formats a duration with about three digits.
fn span(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{}.{} ms", us / 1_000, us / 100 % 10),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..100_000_000 => {
            format!("{}.{:02} s", us / 1_000_000, us / 10_000 % 100)
        }
        _ => format!("{} s", us / 1_000_000),
    }
}
