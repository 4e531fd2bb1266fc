//! What the figures are meant to reach.

use super::{Figure, OtherFigure};

/// The limit of a figure, or of its ratio to that of another program.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Most(f64),
    MostRatio(f64),
    LeastRatio(f64),
    /// The difference to the other figure, in the unit of both.
    MostBeyond(f64),
}

/// Each figure with a goal: what it says, the start of the name it is compared with, and the limit.
const GOALS: &[(&str, &str, Limit)] = &[
    (
        "send to first delta, git repository of 60,000 files in 20,000 folders",
        "an empty folder",
        Limit::MostBeyond(20.0),
    ),
    (
        "CPU of a turn, 10 messages of history",
        "",
        Limit::Most(2.0),
    ),
    (
        "CPU of a turn, 1,000 messages of history",
        "",
        Limit::Most(2.0),
    ),
    (
        "CPU of a turn, 10,000 messages of history",
        "parsing their JSON once",
        Limit::MostBeyond(5.0),
    ),
    (
        "send to first delta, warm",
        "the official client",
        Limit::Most(2.0),
    ),
    (
        "spawn to `initialize` answered",
        "`echo`",
        Limit::MostRatio(3.0),
    ),
    (
        "CPU of `pi --list-models`",
        "pi with an empty extension",
        Limit::MostBeyond(15.0),
    ),
    (
        "MCP exec on the wire to tool call at the host",
        "",
        Limit::Most(0.4),
    ),
    (
        "tool result from the host to exec reply on the wire",
        "",
        Limit::Most(0.3),
    ),
    (
        "delay from wire to host, 50 runs stream, 500 wait for their hosts, p99",
        "",
        Limit::Most(3.0),
    ),
    (
        "delay from wire to host, 50 runs stream, 500 wait for their hosts, max",
        "",
        Limit::Most(10.0),
    ),
    ("read of 1,000 files", "cat", Limit::MostRatio(3.0)),
    ("grep, lines", "the client's rg", Limit::MostRatio(1.3)),
    ("ls of the tree", "rg --files", Limit::MostRatio(2.0)),
    ("shell stream", "a pipe", Limit::LeastRatio(0.9)),
    ("idle resident memory", "", Limit::Most(10.0)),
    ("resident memory after 1000 deltas", "", Limit::Most(14.0)),
    ("memory of a waiting run", "", Limit::Most(64.0)),
    ("memory of an idle session", "", Limit::Most(16.0)),
    ("request to the server", "", Limit::Most(0.3)),
    ("chunk to the client", "", Limit::Most(0.02)),
];

/// Returns the goal of a figure beside another program's, and whether it is reached; empty if there
/// is none.
pub(super) fn goal(figure: &Figure, beside: Option<&OtherFigure>) -> String {
    let name = beside.map_or("", |other| other.name.as_str());
    let found = GOALS
        .iter()
        .find(|(what, other, _)| *what == figure.what && name.starts_with(other));
    let Some((.., limit)) = found else {
        return String::new();
    };
    let theirs = beside.map_or(f64::NAN, |other| other.median);
    let (text, is_reached) = match *limit {
        Limit::Most(most) => (format!("≤ {most}"), figure.median <= most),
        Limit::MostRatio(most) => (format!("≤ {most} ×"), figure.median / theirs <= most),
        Limit::LeastRatio(least) => (format!("≥ {least} ×"), figure.median / theirs >= least),
        Limit::MostBeyond(most) => (format!("≤ +{most}"), figure.median - theirs <= most),
    };
    let mark = if is_reached { "✓" } else { "✘" };
    format!("{text} {mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(what: &str, median: f64) -> Figure {
        Figure {
            area: String::new(),
            what: what.into(),
            unit: String::new(),
            median,
            quartiles: [median; 2],
            rounds: 1,
            theirs: Vec::new(),
        }
    }

    #[test]
    fn a_goal_is_of_a_figure_and_of_what_it_is_compared_with() {
        let other = |name: &str, median: f64| OtherFigure {
            name: name.into(),
            median,
        };
        let warm = "send to first delta, warm";
        let client = other("the official client", 30.0);
        assert_eq!(goal(&figure(warm, 2.0), Some(&client)), "≤ 2 ✓");
        assert_eq!(goal(&figure(warm, 2.1), Some(&client)), "≤ 2 ✘");
        let cat = other("cat", 10.0);
        let read = "read of 1,000 files";
        assert_eq!(goal(&figure(read, 31.0), Some(&cat)), "≤ 3 × ✘");
        assert_eq!(goal(&figure(read, 31.0), Some(&client)), "");
        let pipe = other("a pipe", 10.0);
        assert_eq!(goal(&figure("shell stream", 9.0), Some(&pipe)), "≥ 0.9 × ✓");
        let parsing = other("parsing their JSON once", 10.0);
        let long = figure("CPU of a turn, 10,000 messages of history", 14.0);
        assert_eq!(goal(&long, Some(&parsing)), "≤ +5 ✓");
        assert_eq!(goal(&figure("something else", 1.0), None), "");
    }
}
