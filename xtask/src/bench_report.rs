//! Makes the table, `docs/benchmarks.md` and its chart from the figures of one run of `make bench`.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

mod chart;
mod goals;

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

/// One line of the table: a figure of ours beside one of theirs.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    what: String,
    ours: String,
    theirs: String,
    ratio: String,
    spread: String,
    /// The goal and whether it is reached; empty if there is none.
    goal: String,
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

/// Reads the figures and makes the report. `machine` describes where they were measured.
pub(crate) fn report(figures: &Path, machine: &str) -> anyhow::Result<BenchReport> {
    let text = std::fs::read_to_string(figures)
        .with_context(|| format!("no figures in {}", figures.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let figures: Vec<Figure> = lines
        .map(|line| serde_json::from_str(line).context("a figure is invalid"))
        .collect::<Result<_, _>>()?;
    anyhow::ensure!(!figures.is_empty(), "no bench has reported a figure");
    Ok(BenchReport {
        table: table(&figures),
        page: page(&figures, machine),
        chart: chart::draw(&figures),
    })
}

/// Returns the areas in the order in which they were measured.
fn areas(figures: &[Figure]) -> Vec<&str> {
    let mut areas: Vec<&str> = Vec::new();
    for figure in figures {
        if !areas.contains(&figure.area.as_str()) {
            areas.push(&figure.area);
        }
    }
    areas
}

fn rows(figure: &Figure) -> Vec<Row> {
    let [low, high] = figure.quartiles;
    let spread = if figure.rounds > 1 {
        format!("{}–{}", number(low), number(high))
    } else {
        "one".into()
    };
    let row = |theirs: String, ratio: String, goal: String| Row {
        what: format!("{} ({})", figure.what, figure.unit),
        ours: number(figure.median),
        theirs,
        ratio,
        spread: spread.clone(),
        goal,
    };
    if figure.theirs.is_empty() {
        return vec![row("–".into(), "–".into(), goals::goal(figure, None))];
    }
    let beside = figure.theirs.iter().map(|other| {
        let theirs = format!("{} ({})", number(other.median), other.name);
        row(
            theirs,
            format!("{} ×", number(figure.median / other.median)),
            goals::goal(figure, Some(other)),
        )
    });
    beside.collect()
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
    let mut text = format!(
        "{:<76} {:>8}  {:<40} {:>8}  {:<14}  {}\n",
        "", "ours", "theirs", "ratio", "spread of ours", "goal"
    );
    for area in areas(figures) {
        let _ = writeln!(text, "{area}");
        for figure in figures.iter().filter(|figure| figure.area == area) {
            for row in rows(figure) {
                let _ = writeln!(
                    text,
                    "  {:<74} {:>8}  {:<40} {:>8}  {:<14}  {}",
                    row.what, row.ours, row.theirs, row.ratio, row.spread, row.goal
                );
            }
        }
    }
    text
}

fn page(figures: &[Figure], machine: &str) -> String {
    let mut page = format!(
        "# Benchmarks\n\n\
         `make bench` measures us and the programs we compare with side by side, and writes this\n\
         page and the chart from that run. Only the ratios mean something elsewhere: ours divided\n\
         by theirs. The spread is the first and the third quartile of our figure; `one` is a\n\
         figure that was measured once. A goal is of our figure, of the ratio (×), or of the\n\
         difference (+). Measured on {machine}.\n\n\
         ![Ours divided by theirs](benchmarks.svg)\n"
    );
    for area in areas(figures) {
        let _ = write!(
            page,
            "\n## {area}\n\n| | ours | theirs | ratio | spread | goal |\n|---|---|---|---|---|---|\n"
        );
        for figure in figures.iter().filter(|figure| figure.area == area) {
            for row in rows(figure) {
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} | {} | {} |",
                    row.what, row.ours, row.theirs, row.ratio, row.spread, row.goal
                );
            }
        }
    }
    page
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
            r#"{"area":"Start","what":"text","unit":"MB/s","median":0.5,"quartiles":[0.5,0.5],"rounds":1,"theirs":[{"name":"a","median":0.25,"quartiles":[0,0]},{"name":"b","median":1.0,"quartiles":[1,1]}]}"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let made = report(&path, "a machine").unwrap();
        insta::assert_snapshot!(made.page.split_once("## ").unwrap().1, @r"
        Start

        | | ours | theirs | ratio | spread | goal |
        |---|---|---|---|---|---|
        | spawn (ms) | 4.60 | 46.0 (Node) | 0.100 × | 4.10–5.25 |  |
        | text (MB/s) | 0.500 | 0.250 (a) | 2.00 × | one |  |
        | text (MB/s) | 0.500 | 1.00 (b) | 0.500 × | one |  |

        ## Tools

        | | ours | theirs | ratio | spread | goal |
        |---|---|---|---|---|---|
        | grep <all> (ms) | 150 | – | – | one |  |
        ");
        assert!(made.page.contains("Measured on a machine."));
        assert_eq!(made.table.lines().count(), 1 + 2 + 4, "{}", made.table);
        assert_eq!(made.chart.matches("<rect").count(), 3, "{}", made.chart);
        assert!(made.chart.starts_with("<svg") && made.chart.ends_with("</svg>\n"));
    }

    #[test]
    fn a_run_without_figures_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        assert!(report(&path, "").is_err());
        std::fs::write(&path, "\n").unwrap();
        assert!(report(&path, "").is_err());
        std::fs::write(&path, "{\n").unwrap();
        assert!(report(&path, "").is_err());
    }
}
