//! Which text is still to be shown when a run ends, given what was streamed.

/// What a run ended with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Candidates<'a> {
    /// The result, if the run has one.
    pub result: Option<&'a str>,
    /// A plan the run made instead of an answer.
    pub plan: Option<&'a str>,
    /// All streamed text, in order.
    pub streamed: &'a str,
    /// The part of it that was shown.
    pub emitted: &'a str,
}

/// Whether a result may continue in the middle of a shown word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Only where a word ends.
    Word,
    /// Anywhere.
    Any,
}

/// Returns the text to add: the remainder of the first of result, plan and streamed text that
/// contains more than was shown.
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

/// Returns `text` without the part that was shown already, or all of it if they do not overlap.
/// White space around either is ignored.
fn remainder<'a>(text: &'a str, shown: &str, boundary: Boundary) -> &'a str {
    if shown.is_empty() {
        return text;
    }
    if let Some(rest) = text.strip_prefix(shown)
        && (boundary == Boundary::Any || breaks(shown, rest))
    {
        return rest;
    }
    let ends_with = |shown: &str, text: &str| {
        shown
            .strip_suffix(text)
            .is_some_and(|before| breaks(before, text))
    };
    let trimmed = text.trim();
    if ends_with(shown, text)
        || (!trimmed.is_empty() && ends_with(shown.trim(), trimmed))
        || shown.split_whitespace().eq(text.split_whitespace())
    {
        return "";
    }
    text
}

/// Returns whether there is a word boundary between the two.
fn breaks(left: &str, right: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match (left.chars().next_back(), right.chars().next()) {
        (Some(left), Some(right)) => !(word(left) && word(right)),
        _ => true,
    }
}

/// Returns `text` without what this turn, or the run so far, has shown of it. This turn may have
/// stopped in the middle of a word; earlier turns are complete.
pub fn trim<'a>(text: &'a str, turn_emitted: &str, run_emitted: &str) -> &'a str {
    if turn_emitted.is_empty() {
        return remainder(text, run_emitted, Boundary::Word);
    }
    let rest = remainder(text, turn_emitted, Boundary::Any);
    if rest.len() < text.len() {
        return rest;
    }
    let boundary = if run_emitted.ends_with(turn_emitted) {
        Boundary::Any
    } else {
        Boundary::Word
    };
    remainder(text, run_emitted, boundary)
}

/// Returns the last text block that is not blank.
pub fn last<'a>(blocks: impl DoubleEndedIterator<Item = &'a str>) -> &'a str {
    blocks
        .rev()
        .find(|text| !text.trim().is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_is_removed_at_either_end() {
        let left = |text, shown| remainder(text, shown, Boundary::Word);
        assert_eq!(left("Done.", "Done."), "");
        assert_eq!(left("Done. More", "Done."), " More");
        assert_eq!(left("Donext", "Don"), "Donext", "in a word");
        assert_eq!(left("answer", "the answer"), "");
        assert_eq!(left("answer", "the answer \n"), "", "space after it");
        assert_eq!(left(" answer\n", "the answer"), "", "space around it");
        assert_eq!(left("wer ", "the answer"), "wer ", "in a word");
        assert_eq!(left("  ", "the answer"), "  ");
    }

    #[test]
    fn text_shown_by_the_turn_or_the_run_is_removed() {
        for (text, turn, run, wanted) in [
            ("Full answer", "Full", "earlier Full", " answer"),
            ("Donext", "Don", "Don", "ext"),
            ("two", "one two", "one two", ""),
            ("one two three", "two", "one two", " three"),
            ("one twofold", "two", "one two", "fold"),
            ("one two", "", "one", " two"),
            ("oneness", "", "one", "oneness"),
            ("oneness", "two", "one", "oneness"),
            ("abc", "", "", "abc"),
            ("", "abc", "abc", ""),
        ] {
            assert_eq!(trim(text, turn, run), wanted, "{text:?} {turn:?} {run:?}");
        }
    }
}
