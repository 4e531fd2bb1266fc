//! Makes the table, `docs/benchmarks.md` and its chart from the figures of one run of `make bench`.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

mod chart;
mod goals;

use goals::{GOALS, Goal};

/// One figure of ours.
#[derive(Debug, Clone, Deserialize)]
struct Figure {
    area: String,
    what: String,
    unit: String,
    median: f64,
    /// The first and the third quartile.
    quartiles: [f64; 2],
    rounds: usize,
    /// The same figure of other programs.
    theirs: Vec<OtherFigure>,
}

/// The same figure of another program.
#[derive(Debug, Clone, Deserialize)]
struct OtherFigure {
    name: String,
    median: f64,
}

/// One line of the table: a figure of ours beside one of theirs, or beside its limit.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    what: String,
    ours: String,
    theirs: String,
    ratio: String,
    spread: String,
    /// The limit; empty if there is none.
    goal: String,
    /// Whether it is kept; empty if there is none.
    is_met: &'static str,
}

/// The files that are made of the figures.
#[derive(Debug)]
pub(crate) struct BenchReport {
    /// The table, for a terminal.
    pub(crate) table: String,
    /// `docs/benchmarks.md`.
    pub(crate) page: String,
    /// `docs/benchmarks.svg`.
    pub(crate) chart: String,
}

/// Reads the figures and makes the report. `ci_minutes` is a figure that no bench measures, `machine`
/// describes where all were measured.
pub(crate) fn report(
    figures: &Path,
    ci_minutes: Option<f64>,
    machine: &str,
) -> anyhow::Result<BenchReport> {
    let text = std::fs::read_to_string(figures)
        .with_context(|| format!("no figures in {}", figures.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut figures: Vec<Figure> = lines
        .map(|line| serde_json::from_str(line).context("a figure is invalid"))
        .collect::<Result<_, _>>()?;
    anyhow::ensure!(!figures.is_empty(), "no bench has reported a figure");
    figures.extend(ci_minutes.map(|minutes| Figure {
        area: "Development".into(),
        what: goals::CI.into(),
        unit: "min".into(),
        median: minutes,
        quartiles: [minutes; 2],
        rounds: 1,
        theirs: Vec::new(),
    }));
    Ok(BenchReport {
        table: table(&figures),
        page: page(&figures, machine),
        chart: chart::draw(&figures),
    })
}

/// Returns the goals, and then the other figures by area, in the order in which they were measured.
fn sections(figures: &[Figure]) -> Vec<(&str, Vec<Row>)> {
    let goals: Vec<Row> = GOALS.iter().map(|goal| goal_row(goal, figures)).collect();
    let mut sections = vec![("Goals", goals)];
    for figure in figures {
        let rows = other_rows(figure);
        match sections.iter_mut().find(|(area, _)| *area == figure.area) {
            Some((_, of_area)) => of_area.extend(rows),
            None => sections.push((&figure.area, rows)),
        }
    }
    sections.retain(|(_, rows)| !rows.is_empty());
    sections
}

/// Returns the row of a goal, also if its figure was not measured.
fn goal_row(goal: &Goal, figures: &[Figure]) -> Row {
    let Some(figure) = goal.figure(figures) else {
        let nothing = || "–".to_owned();
        return Row {
            what: goal.what.to_owned(),
            ours: nothing(),
            theirs: nothing(),
            ratio: nothing(),
            spread: nothing(),
            goal: goal.text(),
            is_met: "not measured",
        };
    };
    let row = match (goal.other(figure), goal.most()) {
        (Some(other), _) => row(figure, other.median, &other.name),
        (None, most) => row(figure, most.unwrap_or(f64::NAN), "the goal"),
    };
    Row {
        goal: goal.text(),
        is_met: if goal.is_reached(figure) { "yes" } else { "no" },
        ..row
    }
}

/// Returns the rows of a figure that are not the row of a goal.
fn other_rows(figure: &Figure) -> Vec<Row> {
    let is_goal = GOALS.iter().any(|goal| goal.what == figure.what);
    if figure.theirs.is_empty() {
        return if is_goal {
            Vec::new()
        } else {
            vec![row(figure, f64::NAN, "")]
        };
    }
    let others = figure.theirs.iter();
    others
        .filter(|other| goals::of(figure, other).is_none())
        .map(|other| row(figure, other.median, &other.name))
        .collect()
}

fn row(figure: &Figure, theirs: f64, name: &str) -> Row {
    let [low, high] = figure.quartiles;
    let spread = if figure.rounds > 1 {
        format!("{}–{}", number(low), number(high))
    } else {
        "one".into()
    };
    let is_compared = theirs.is_finite();
    let or_nothing = |text: String| if is_compared { text } else { "–".into() };
    Row {
        what: format!("{} ({})", figure.what, figure.unit),
        ours: number(figure.median),
        theirs: or_nothing(format!("{} ({name})", number(theirs))),
        ratio: or_nothing(format!("{} ×", number(figure.median / theirs))),
        spread,
        goal: String::new(),
        is_met: "",
    }
}

/// Returns a number with three significant digits.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn table(figures: &[Figure]) -> String {
    let line = |row: &Row| {
        format!(
            "  {:<74} {:>8}  {:<40} {:>9}  {:<14}  {:<8} {}",
            row.what, row.ours, row.theirs, row.ratio, row.spread, row.goal, row.is_met
        )
    };
    let mut text = line(&Row {
        what: String::new(),
        ours: "ours".into(),
        theirs: "theirs, or the goal".into(),
        ratio: "ratio".into(),
        spread: "spread of ours".into(),
        goal: "goal".into(),
        is_met: "met",
    });
    text.push('\n');
    for (title, rows) in sections(figures) {
        let _ = writeln!(text, "{title}");
        for row in rows {
            let _ = writeln!(text, "{}", line(&row).trim_end());
        }
    }
    text
}

fn page(figures: &[Figure], machine: &str) -> String {
    let mut page = format!(
        "# Benchmarks\n\n\
         `make bench` measures us and the programs we compare with side by side, and writes this\n\
         page and the chart from that run. Only the ratios mean something elsewhere: ours divided\n\
         by theirs, or by the goal where nothing is beside it. The spread is the first and the third\n\
         quartile of our figure; `one` is a figure that was measured once. A goal is of our figure,\n\
         of the ratio (×), or of the difference (+). Measured on {machine}.\n\n\
         ![Ours divided by theirs](benchmarks.svg)\n"
    );
    for (title, rows) in sections(figures) {
        let is_goal = title == "Goals";
        let (names, lines) = if is_goal {
            (" goal | met |", "---|---|")
        } else {
            ("", "")
        };
        let _ = write!(
            page,
            "\n## {title}\n\n| | ours | theirs | ratio | spread |{names}\n|---|---|---|---|---|{lines}\n"
        );
        for row in rows {
            let _ = write!(
                page,
                "| {} | {} | {} | {} | {} |",
                row.what, row.ours, row.theirs, row.ratio, row.spread
            );
            if is_goal {
                let _ = write!(page, " {} | {} |", row.goal, row.is_met);
            }
            page.push('\n');
        }
        if is_goal {
            page.push_str(&reasons(figures));
        }
    }
    page
}

/// Returns why goals are missed, as far as it is known.
fn reasons(figures: &[Figure]) -> String {
    let is_missed = |goal: &&Goal| {
        let figure = goal.figure(figures);
        !goal.reason.is_empty() && figure.is_some_and(|figure| !goal.is_reached(figure))
    };
    let lines = GOALS.iter().filter(is_missed);
    let lines: String = lines
        .map(|goal| format!("\n- {}: {}", goal.what, goal.reason))
        .collect();
    if lines.is_empty() {
        return lines;
    }
    format!("\nWhy goals are missed:\n{lines}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_a_table_a_page_and_a_chart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        let lines = [
            r#"{"area":"Start","what":"spawn","unit":"ms","median":4.6,"quartiles":[4.1,5.25],"rounds":9,"theirs":[{"name":"Node","median":46.0,"quartiles":[45,47]}]}"#,
            r#"{"area":"Tools","what":"grep <all>","unit":"ms","median":150.0,"quartiles":[150,150],"rounds":1,"theirs":[]}"#,
            r#"{"area":"Tools","what":"shell stream","unit":"MB/s","median":0.5,"quartiles":[0.5,0.5],"rounds":1,"theirs":[{"name":"a pipe","median":0.5,"quartiles":[0,0]},{"name":"b","median":1.0,"quartiles":[1,1]}]}"#,
            r#"{"area":"Start","what":"CPU of `pi --list-models`","unit":"ms","median":40.0,"quartiles":[40,40],"rounds":1,"theirs":[{"name":"pi with an empty extension","median":20.0,"quartiles":[20,20]}]}"#,
            r#"{"area":"Tools","what":"memory of an idle session","unit":"KiB","median":32.0,"quartiles":[32,32],"rounds":1,"theirs":[]}"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let made = report(&path, Some(11.5), "a machine").unwrap();
        let (_, tables) = made.page.split_once("## ").unwrap();
        let (goals, others) = tables.split_once("\n## ").unwrap();
        let (goals, reasons) = goals.split_once("\nWhy goals are missed:\n\n").unwrap();
        assert!(reasons.starts_with("- CPU of `pi --list-models`: starting any program"));
        assert_eq!(
            reasons.lines().count(),
            1,
            "the others have none: {reasons}"
        );
        let goals: Vec<&str> = goals.lines().collect();
        assert_eq!(goals.len(), 4 + GOALS.len(), "every goal has its row");
        for row in [
            "| shell stream (MB/s) | 0.500 | 0.500 (a pipe) | 1.00 × | one | ≥ 0.9 × | yes |",
            "| memory of an idle session (KiB) | 32.0 | 16.0 (the goal) | 2.00 × | one | ≤ 16 | no |",
            "| clean CI on two idle processors (min) | 11.5 | 12.0 (the goal) | 0.958 × | one | ≤ 12 | yes |",
            "| idle resident memory | – | – | – | – | ≤ 10 | not measured |",
        ] {
            assert!(goals.contains(&row), "{goals:#?}");
        }
        insta::assert_snapshot!(others, @r"
        Start

        | | ours | theirs | ratio | spread |
        |---|---|---|---|---|
        | spawn (ms) | 4.60 | 46.0 (Node) | 0.100 × | 4.10–5.25 |

        ## Tools

        | | ours | theirs | ratio | spread |
        |---|---|---|---|---|
        | grep <all> (ms) | 150 | – | – | one |
        | shell stream (MB/s) | 0.500 | 1.00 (b) | 0.500 × | one |
        ");
        assert!(made.page.contains("Measured on a machine."));
        let lines = made.table.lines().count();
        assert_eq!(lines, 1 + 1 + GOALS.len() + 2 + 3, "{}", made.table);
        assert_eq!(made.chart.matches("<rect").count(), 4, "{}", made.chart);
        assert!(made.chart.starts_with("<svg") && made.chart.ends_with("</svg>\n"));
    }

    #[test]
    fn a_run_without_figures_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        assert!(report(&path, None, "").is_err());
        std::fs::write(&path, "\n").unwrap();
        assert!(report(&path, None, "").is_err());
        std::fs::write(&path, "{\n").unwrap();
        assert!(report(&path, None, "").is_err());
    }
}
