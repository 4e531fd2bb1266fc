//! Renders the matrix as a table and as a picture.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::place::FaultPosition;
use super::server::TrialScript;
use super::sidecar::SidecarHttp;
use super::trial::{Fault, FaultScope, KINDS, RecoveryKind, TrialKind, TrialResult};

const OUTCOMES: [(RecoveryKind, &str, &str); 7] = [
    (RecoveryKind::Untouched, "not reached", "#e5e7eb"),
    (RecoveryKind::WentOn, "went on", "#bbf7d0"),
    (RecoveryKind::Resumed, "resumed", "#4ade80"),
    (RecoveryKind::Recovered, "recovered", "#22d3ee"),
    (RecoveryKind::Rebuilt, "rebuilt", "#60a5fa"),
    (RecoveryKind::Again, "asked again", "#fde047"),
    (RecoveryKind::TypedError, "typed error", "#fb923c"),
];
const WRONG: &str = "#dc2626";
const CELL: usize = 9;
const LEFT: usize = 260;

fn name(kind: TrialKind) -> String {
    let fault = match kind.fault {
        Fault::Reset => "reset",
        Fault::GoAway => "GOAWAY",
        Fault::HalfClose => "half-close",
        Fault::Stall => "stall",
        Fault::Garbage => "garbage",
        Fault::KillSidecar => "kill -9 sidecar",
        Fault::KillHost => "kill -9 host",
        Fault::RestartServer => "server restart",
        Fault::Unavailable => "unavailable",
    };
    let mut name = fault.to_owned();
    name += match kind.story {
        TrialScript::Prompt => "",
        TrialScript::Bare => ", no checkpoint",
        TrialScript::Late => ", late checkpoints",
        TrialScript::Busy => ", many tools",
        TrialScript::BusyBare => ", many tools, no checkpoint",
    };
    name += match kind.http {
        SidecarHttp::Two => "",
        SidecarHttp::One => ", HTTP/1.1",
    };
    name += match kind.places {
        FaultScope::Wire => "",
        FaultScope::Pauses => ", in a pause",
    };
    name
}

fn colour(results: &TrialResult) -> &'static str {
    if !results.violations.is_empty() {
        return WRONG;
    }
    let found = OUTCOMES
        .iter()
        .find(|(outcome, ..)| *outcome == results.outcome);
    found.map_or(WRONG, |(.., colour)| colour)
}

/// Returns an SVG with one row per kind and one column per place: frames, a gap, bytes, pauses.
pub fn draw(cells: &BTreeMap<(TrialKind, (usize, usize)), &TrialResult>) -> String {
    let tried = |kind: &TrialKind| cells.keys().any(|(of, _)| of == kind);
    let kinds: Vec<TrialKind> = KINDS.into_iter().filter(tried).collect();
    let columns: Vec<(usize, usize)> = {
        let mut all: Vec<_> = cells.keys().map(|(_, column)| *column).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let frames = columns.iter().filter(|(kind, _)| *kind == 0).count();
    let x = |index: usize| LEFT + index * CELL + if index >= frames { CELL } else { 0 };
    let (width, height) = (x(columns.len()) + 10, 40 + kinds.len() * CELL * 2 + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"16\">before each frame</text><text x=\"{}\" y=\"16\">within bytes</text>\n",
        x(frames)
    );
    for (row, kind) in kinds.iter().enumerate() {
        let y = 26 + row * CELL * 2;
        let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">{}</text>", y + 12, name(*kind));
        for (index, column) in columns.iter().enumerate() {
            let Some(results) = cells.get(&(*kind, *column)) else {
                continue;
            };
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                x(index),
                CELL - 1,
                CELL * 2 - 3,
                colour(results)
            );
        }
    }
    let y = 26 + kinds.len() * CELL * 2 + 14;
    let wrong = [(WRONG, "wrong")];
    let legend = OUTCOMES.iter().map(|(_, name, colour)| (*colour, *name));
    for (index, (colour, name)) in legend.chain(wrong).enumerate() {
        let x = 4 + index * 100;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
            y - 9,
            x + 14
        );
    }
    svg + "</svg>\n"
}

fn sum(row: &[&TrialResult], of: impl Fn(&TrialResult) -> usize) -> usize {
    row.iter().map(|results| of(results)).sum()
}

/// Returns the outcomes per fault, followed by the number of errors that hosts received, final or
/// not, and how often hosts retried by themselves.
pub fn table(results: &[((TrialKind, FaultPosition), TrialResult)]) -> String {
    let mut table = format!("{:<54}", "");
    for (_, name, _) in OUTCOMES {
        let _ = write!(table, "{name:>12}");
    }
    table.push_str("       wrong | errors given  again after one  sidecar left within\n");
    for kind in KINDS {
        let row: Vec<&TrialResult> = results
            .iter()
            .filter(|((of, _), _)| *of == kind)
            .map(|(_, results)| results)
            .collect();
        if row.is_empty() {
            continue;
        }
        let _ = write!(table, "{:<54}", name(kind));
        for (outcome, ..) in OUTCOMES {
            let count = row
                .iter()
                .filter(|results| results.outcome == outcome)
                .count();
            let _ = write!(table, "{count:>12}");
        }
        let wrong = row
            .iter()
            .filter(|results| !results.violations.is_empty())
            .count();
        let (errors, retries) = (
            sum(&row, |results| results.errors),
            sum(&row, |results| results.retries),
        );
        let _ = write!(table, "{wrong:>12} | {errors:>12}  {retries:>15}");
        let slowest = row
            .iter()
            .map(|results| results.orphaned)
            .max()
            .unwrap_or_default();
        let _ = if slowest.is_zero() {
            writeln!(table)
        } else {
            writeln!(table, "  {:>16} ms", slowest.as_millis())
        };
    }
    table
}
