//! Counters of this process, and metric lines on stderr for collectors.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::Serialize;

/// Counters by name.
#[derive(Debug, Default)]
pub struct Counters(Mutex<BTreeMap<String, u64>>);

impl Counters {
    /// Increments the counter of this name and these labels.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}={value:?}"))
            .collect();
        let name = if labels.is_empty() {
            name.to_owned()
        } else {
            format!("{name}{{{}}}", labels.join(","))
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(name).or_default() += 1;
    }

    /// Returns all counts so far.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Returns the process-wide counters.
pub fn counters() -> &'static Counters {
    static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::default);
    &COUNTERS
}

/// A metric as a line of JSON.
#[derive(Debug, Serialize)]
struct MetricLine<'a> {
    event: String,
    metric: &'a str,
    reason: &'a str,
    model: &'a str,
    count: u64,
}

/// Increments a counter and emits the metric on stderr and in the debug log.
pub fn emit(metric: &str, reason: &str, model: &str) {
    counters().count(metric, &[("reason", reason), ("model", model)]);
    let line = MetricLine {
        event: format!("metric.{metric}"),
        metric,
        reason,
        model,
        count: 1,
    };
    // Without the spans of the current turn, like the line on stderr.
    tracing::debug!(parent: None, event = line.event, metric, reason, model, count = 1_u64);
    if let Ok(mut json) = serde_json::to_string(&line) {
        json.push('\n');
        // One write for the whole line, because other threads write to stderr too.
        let _ = std::io::stderr().write_all(json.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_by_name_and_labels() {
        let counters = Counters::default();
        for reason in ["a", "b", "a"] {
            counters.count("m", &[("reason", reason)]);
        }
        counters.count("n", &[]);
        let wanted = [(r#"m{reason="a"}"#, 2), (r#"m{reason="b"}"#, 1), ("n", 1)];
        let wanted = wanted.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counters.counts(), BTreeMap::from(wanted));
    }
}
