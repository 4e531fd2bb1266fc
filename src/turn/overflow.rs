//! Context overflow, worded so that a host compacts and tries again.

/// The words hosts look for.
const PREFIX: &str = "context_length_exceeded: ";

/// The text a host takes for an overflow, if `text` tells of one; `None` leaves it alone.
pub fn reword(text: &str) -> Option<String> {
    is_overflow(text).then(|| format!("{PREFIX}{text}"))
}

fn is_overflow(text: &str) -> bool {
    let text = text.to_lowercase();
    let says = |cues: &[&str]| cues.iter().any(|cue| text.contains(cue));
    // Already worded, or a limit on requests rather than on words.
    if says(&[
        "context_length_exceeded",
        "too many requests",
        "rate limit",
        "rate_limit",
        "throttl",
        "quota",
        "429",
    ]) {
        return false;
    }
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |word: &str| words.contains(&word);
    let exceeds = words.iter().any(|word| word.starts_with("exceed"));
    says(&[
        "context length",
        "context window",
        "maximum context",
        "prompt is too long",
        "prompt too long",
        "conversation is too long",
        "conversation too long",
        "input is too long",
        "too many tokens",
        "token limit",
    ]) || (exceeds && (has("context") || has("tokens")))
}
