//! Context overflow: rewords errors so that a host compacts and retries.

/// The prefix hosts look for.
const PREFIX: &str = "context_length_exceeded: ";

/// Returns the text a host recognises as an overflow if `text` reports one; `None` otherwise.
pub fn reword(text: &str) -> Option<String> {
    let text = text.trim();
    is_overflow(text).then(|| format!("{PREFIX}{text}"))
}

fn is_overflow(text: &str) -> bool {
    let worded = text.contains("context_length_exceeded");
    let text = text.to_lowercase();
    let says = |cues: &[&str]| cues.iter().any(|cue| text.contains(cue));
    // Already reworded, or a rate limit: too many tokens per minute are no reason to compact.
    if worded
        || says(&["too many requests", "throttl", "quota"])
        || text
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == "429")
        || follows(&text, "rate", "limit", 1)
        || follows(&text, "retry", "after", 1)
    {
        return false;
    }
    says(&[
        "contextlength",
        "context length",
        "context_length",
        "contextwindow",
        "context window",
        "context_window",
        "maximum context",
        "prompt is too long",
        "too large for model",
    ]) || follows(&text, "exceeds", "context", FAR)
        || follows(&text, "exceeded", "context", FAR)
}

/// How many characters may lie between two words of one phrase.
const FAR: usize = 30;

/// Returns whether `second` follows `first` on the same line, at most `far` characters later.
fn follows(text: &str, first: &str, second: &str, far: usize) -> bool {
    text.match_indices(first).any(|(at, _)| {
        let rest = &text[at + first.len()..];
        let between = rest.lines().next().and_then(|line| line.find(second));
        between.is_some_and(|bytes| rest[..bytes].encode_utf16().count() <= far)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_errors_are_reworded() {
        for text in [
            "Prompt is too long",
            "context_window is full",
            "ContextLength reached",
            "request too large for model x",
            "exceeds the limit of the context",
            "Your input EXCEEDED this context",
            "context length over 429000",
        ] {
            let wanted = format!("context_length_exceeded: {text}");
            assert_eq!(reword(text), Some(wanted), "{text}");
        }
        assert_eq!(
            reword(" context window\n").as_deref(),
            Some("context_length_exceeded: context window")
        );
    }

    #[test]
    fn other_errors_are_not_reworded() {
        for text in [
            "",
            "  ",
            "too many tokens",
            "token limit reached",
            "in this context nothing exceeded anything",
            "exceeded by far more than anyone would have thought of in any context",
            "rate-limited: context window",
            "ratelimit on context length",
            "context window; retry after 5 s",
            "throttled: prompt is too long",
            "429: context window",
            "context_length_exceeded: told",
        ] {
            assert_eq!(reword(text), None, "{text}");
        }
    }
}
