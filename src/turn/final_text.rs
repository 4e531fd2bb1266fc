//! Which text is still to be shown when a run ends, given what was streamed.

/// What a run ended with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Candidates<'a> {
    /// The result, where the run names one.
    pub result: Option<&'a str>,
    /// A plan the run made instead of an answer.
    pub plan: Option<&'a str>,
    /// Everything that streamed as text, in order.
    pub streamed: &'a str,
    /// What of it was shown.
    pub emitted: &'a str,
}

/// Whether a result may go on in the middle of a shown word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Only where a word ends.
    Word,
    /// Anywhere.
    Any,
}

/// The text to add: the first of result, plan and streamed text that says more than was shown.
pub fn select(candidates: Candidates<'_>, boundary: Boundary) -> &str {
    [
        candidates.result,
        candidates.plan,
        Some(candidates.streamed),
    ]
    .into_iter()
    .flatten()
    .map(|text| remainder(text, candidates.emitted, boundary))
    .find(|rest| !rest.trim().is_empty())
    .unwrap_or_default()
}

/// `text` less what of it was shown already; all of it where they do not fit.
fn remainder<'a>(text: &'a str, shown: &str, boundary: Boundary) -> &'a str {
    if shown.is_empty() {
        return text;
    }
    if let Some(rest) = text.strip_prefix(shown)
        && (boundary == Boundary::Any || breaks(shown, rest))
    {
        return rest;
    }
    let ends_with_it = shown
        .strip_suffix(text)
        .is_some_and(|before| breaks(before, text));
    if ends_with_it || shown.split_whitespace().eq(text.split_whitespace()) {
        return "";
    }
    text
}

/// Whether a word ends between the two.
fn breaks(left: &str, right: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match (left.chars().next_back(), right.chars().next()) {
        (Some(left), Some(right)) => !(word(left) && word(right)),
        _ => true,
    }
}

/// `text` less what this turn, or the run so far, has shown of it.
pub fn trim<'a>(text: &'a str, turn_emitted: &str, run_emitted: &str) -> &'a str {
    [turn_emitted, run_emitted]
        .into_iter()
        .filter(|shown| !shown.is_empty())
        .find_map(|shown| text.strip_prefix(shown))
        .unwrap_or(text)
}

/// The last text block that says something.
pub fn last<'a>(blocks: impl DoubleEndedIterator<Item = &'a str>) -> &'a str {
    blocks
        .rev()
        .find(|text| !text.trim().is_empty())
        .unwrap_or_default()
}
