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

/// A limit that a figure is meant to keep.
#[derive(Debug)]
pub(super) struct Goal {
    /// What the figure is named.
    pub(super) what: &'static str,
    /// The start of the name it is compared with; empty if the limit is of our figure alone.
    beside: &'static str,
    limit: Limit,
    /// Why it is missed, where the profile says that the limit is not ours to reach.
    pub(super) reason: &'static str,
}

impl Goal {
    const fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }
}

const fn goal(what: &'static str, beside: &'static str, limit: Limit) -> Goal {
    Goal {
        what,
        beside,
        limit,
        reason: "",
    }
}

/// The goal that no bench measures.
pub(super) const CI: &str = "clean CI on two idle processors";

/// All goals, in the order in which they are displayed.
pub(super) const GOALS: &[Goal] = &[
    goal(
        "send to first delta, git repository of 60,000 files in 20,000 folders",
        "an empty folder",
        Limit::MostBeyond(20.0),
    ),
    goal(
        "CPU of a turn, 10 messages of history",
        "",
        Limit::Most(2.0),
    ),
    goal(
        "CPU of a turn, 1,000 messages of history",
        "",
        Limit::Most(2.0),
    ),
    goal(
        "CPU of a turn, 10,000 messages of history",
        "parsing their JSON once",
        Limit::MostBeyond(5.0),
    ),
    goal("send to first delta, warm", "", Limit::Most(2.0)),
    goal(
        "spawn to `initialize` answered",
        "a static program",
        Limit::MostRatio(3.0),
    )
    .because(
        "before `main` the system corrects 60,000 addresses, because the program can be loaded \
         anywhere (35,000 in the smaller program that is shipped): 0.9 ms of it, by strace.",
    ),
    goal(
        "CPU of `pi --list-models`",
        "pi with an empty extension",
        Limit::MostBeyond(15.0),
    )
    .because(
        "starting any program from Node takes most of it, as the row of the extension that only \
         starts `cat` shows. One file of plain JavaScript in place of our modules changes nothing, \
         nor do fewer imports.",
    ),
    goal(
        "MCP exec on the wire to tool call at the host",
        "",
        Limit::Most(0.4),
    ),
    goal(
        "tool result from the host to exec reply on the wire",
        "",
        Limit::Most(0.3),
    ),
    goal(
        "delay from wire to host, 50 runs stream, 500 wait for their hosts, p99",
        "",
        Limit::Most(3.0),
    ),
    goal(
        "delay from wire to host, 50 runs stream, 500 wait for their hosts, max",
        "",
        Limit::Most(10.0),
    ),
    goal("read of 1,000 files", "one cat", Limit::MostRatio(3.0)).because(
        "a read takes 28 system calls, one `cat` takes 4 for a file: the path is resolved without \
         links, compared with the places that no tool may read, and every folder above it is asked \
         for `.cursorignore`. What was found is not kept, because it may change between two reads.",
    ),
    goal(
        "grep, lines",
        "rg as the official client",
        Limit::MostRatio(1.3),
    ),
    goal("ls of the tree", "rg --files", Limit::MostRatio(2.0)),
    goal("shell stream", "a pipe", Limit::LeastRatio(0.9)).because(
        "the output is also checked as UTF-8 and written to the file that holds all of it, and the \
         programs that produce it share two processors with us.",
    ),
    goal("idle resident memory", "", Limit::Most(10.0)).because(
        "1.6 MB of it is memory of its own. The rest is the program's file, of which the system \
         maps sixteen pages for each that is used; of the program that is shipped, 13.7 MB are \
         resident, 1.2 of them its own.",
    ),
    goal("resident memory after 1000 deltas", "", Limit::Most(14.0))
        .because("as idle; the deltas add less than 3 MB."),
    goal("memory of a waiting run", "", Limit::Most(64.0)).because(
        "52 KB are allocated when runs are started one after the other (valgrind): 23 KB for the state of \
         its tasks, 16 KB for queues, each of which has room for 32 messages. 500 that start at once leave \
         as much again in the gaps of the allocator.",
    ),
    goal("memory of an idle session", "", Limit::Most(16.0)),
    goal(
        "request to the server",
        "no gateway",
        Limit::MostBeyond(0.3),
    ),
    goal("chunk to the client", "no gateway", Limit::MostBeyond(0.02)).because(
        "another process is woken for every chunk, which takes longer than that on this machine: \
         a word reaches a host on a pipe after 0.1 ms, too. With 200 streams, which keep it awake, a \
         chunk takes 0.04 to 0.3 ms longer than without a gateway.",
    ),
    goal(CI, "", Limit::Most(12.0)),
];

impl Goal {
    /// Returns the figure that the goal is of, if it was measured.
    pub(super) fn figure<'a>(&self, figures: &'a [Figure]) -> Option<&'a Figure> {
        let mut named = figures.iter().filter(|figure| figure.what == self.what);
        named.find(|figure| self.beside.is_empty() || self.other(figure).is_some())
    }

    /// Returns what a figure is compared with.
    pub(super) fn other<'a>(&self, figure: &'a Figure) -> Option<&'a OtherFigure> {
        let mut theirs = figure.theirs.iter();
        theirs.find(|other| other.name.starts_with(self.beside))
    }

    /// Returns the limit as a text.
    pub(super) fn text(&self) -> String {
        match self.limit {
            Limit::Most(most) => format!("≤ {most}"),
            Limit::MostRatio(most) => format!("≤ {most} ×"),
            Limit::LeastRatio(least) => format!("≥ {least} ×"),
            Limit::MostBeyond(most) => format!("≤ +{most}"),
        }
    }

    /// Returns the value that our figure is compared with, if it is a figure of ours alone.
    pub(super) fn most(&self) -> Option<f64> {
        match self.limit {
            Limit::Most(most) => Some(most),
            _ => None,
        }
    }

    /// Returns whether a figure keeps the limit.
    pub(super) fn is_reached(&self, figure: &Figure) -> bool {
        let theirs = self.other(figure).map_or(f64::NAN, |other| other.median);
        match self.limit {
            Limit::Most(most) => figure.median <= most,
            Limit::MostRatio(most) => figure.median / theirs <= most,
            Limit::LeastRatio(least) => figure.median / theirs >= least,
            Limit::MostBeyond(most) => figure.median - theirs <= most,
        }
    }
}

/// Returns the goal in whose row a figure is displayed beside another program's, if there is one.
pub(super) fn of(figure: &Figure, beside: &OtherFigure) -> Option<&'static Goal> {
    let mut goals = GOALS.iter().filter(|goal| goal.what == figure.what);
    goals.find(|goal| {
        let other = goal.other(figure);
        other.is_some_and(|other| other.name == beside.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(what: &str, median: f64, theirs: &[(&str, f64)]) -> Figure {
        let other = |&(name, median): &(&str, f64)| OtherFigure {
            name: name.into(),
            median,
        };
        Figure {
            area: String::new(),
            what: what.into(),
            unit: String::new(),
            median,
            quartiles: [median; 2],
            rounds: 1,
            theirs: theirs.iter().map(other).collect(),
        }
    }

    fn verdict(what: &str, median: f64, theirs: &[(&str, f64)]) -> Option<(String, bool)> {
        let figures = [figure(what, median, theirs)];
        let goal = GOALS.iter().find(|goal| goal.what == what)?;
        let figure = goal.figure(&figures)?;
        Some((goal.text(), goal.is_reached(figure)))
    }

    #[test]
    fn a_goal_is_of_a_figure_and_of_what_it_is_compared_with() {
        let reached = |text: &str, is_reached| Some((text.to_owned(), is_reached));
        let warm = "send to first delta, warm";
        let client = [("the official client", 30.0)];
        assert_eq!(verdict(warm, 2.0, &client), reached("≤ 2", true));
        assert_eq!(verdict(warm, 2.1, &client), reached("≤ 2", false));
        let read = "read of 1,000 files";
        let cat = [("one cat of all", 10.0)];
        assert_eq!(verdict(read, 31.0, &cat), reached("≤ 3 ×", false));
        assert_eq!(verdict(read, 31.0, &client), None, "not measured");
        let pipe = [("a pipe", 10.0)];
        assert_eq!(
            verdict("shell stream", 9.0, &pipe),
            reached("≥ 0.9 ×", true)
        );
        let long = "CPU of a turn, 10,000 messages of history";
        let parsing = [("10 messages", 1.0), ("parsing their JSON once", 10.0)];
        assert_eq!(verdict(long, 14.0, &parsing), reached("≤ +5", true));
        assert_eq!(verdict("something else", 1.0, &[]), None);
    }
}
