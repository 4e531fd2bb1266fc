//! The figures of a bench: printed, and written for `cargo xtask report-benches` where
//! `BENCH_REPORT` names a file.

use std::io::Write as _;

use serde_json::json;

/// Returns how much a bench measures: with `BENCH_QUICK` so little that it only shows that every row
/// is measured.
#[allow(dead_code, reason = "not every bench uses all of it")]
pub(crate) fn sized(full: usize, quick: usize) -> usize {
    if std::env::var_os("BENCH_QUICK").is_some() {
        quick
    } else {
        full
    }
}

/// One figure, measured several times.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    sorted: Vec<f64>,
}

#[allow(dead_code, reason = "not every bench uses all of it")]
impl Samples {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }

    pub(crate) fn one(value: f64) -> Self {
        Self::of(vec![value])
    }

    pub(crate) fn median(&self) -> f64 {
        self.sorted[self.sorted.len() / 2]
    }

    /// The first and the third quartile.
    fn quartiles(&self) -> [f64; 2] {
        let last = self.sorted.len() - 1;
        [self.sorted[last / 4], self.sorted[last - last / 4]]
    }

    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self::of(self.sorted.iter().map(|value| change(*value)).collect())
    }
}

/// Adds a figure to the report: ours, and the same of each program it is compared with.
pub(crate) fn record(
    area: &str,
    what: &str,
    unit: &str,
    ours: &Samples,
    beside: &[(&str, Option<Samples>)],
) {
    let Some(path) = std::env::var_os("BENCH_REPORT") else {
        return;
    };
    let theirs = beside.iter().filter_map(|(name, samples)| {
        let samples = samples.as_ref()?;
        Some(json!({"name": name, "median": samples.median(), "quartiles": samples.quartiles()}))
    });
    let line = json!({
        "area": area, "what": what, "unit": unit, "median": ours.median(),
        "quartiles": ours.quartiles(), "rounds": ours.sorted.len(),
        "theirs": theirs.collect::<Vec<_>>(),
    });
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path);
    writeln!(file.unwrap(), "{line}").unwrap();
}
