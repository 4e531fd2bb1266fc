//! The tokens that Cursor reported for a session, as text.

use agent::turn::usage::SessionUsage;

/// Describes the usage of a session; `None` if Cursor has reported none.
pub(super) fn describe(usage: SessionUsage) -> Option<String> {
    let count = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    if usage.runs == 0 {
        return None;
    }
    let cached = count(usage.counters.cache_read).unwrap_or_default();
    let rate = match usage.prompt {
        0 => 0.0,
        prompt => cached as f64 / prompt as f64 * 100.0,
    };
    let runs = if usage.runs == 1 { "run" } else { "runs" };
    Some(format!(
        "This session: {} {runs}, {} tokens in, {} out; {rate:.0} % of the input from the cache",
        usage.runs,
        usage.prompt,
        count(usage.counters.output).unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::run::Usage;

    #[test]
    fn the_cache_is_part_of_what_was_read() {
        let mut usage = SessionUsage::default();
        assert_eq!(describe(usage), None);
        usage.add(Usage {
            input: Some(100),
            output: Some(10),
            cache_read: Some(300),
            cache_write: Some(0),
            reasoning: None,
        });
        let text = "This session: 1 run, 400 tokens in, 10 out; 75 % of the input from the cache";
        assert_eq!(describe(usage).as_deref(), Some(text));
    }
}
