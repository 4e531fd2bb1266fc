//! The answer of a run in rounds, each to a history of the host, and what of it a checkpoint covers.

use crate::conversation::answer_diff::{AnswerGap, compare};
use crate::conversation::fingerprint::Fingerprint;

/// The answer of a run as far as the newest checkpoint may lack it.
#[derive(Debug)]
pub(in crate::turn) struct AnswerRounds {
    /// Rounds that the host has, oldest first.
    earlier: Vec<AnswerRound>,
    current: AnswerRound,
}

/// The answer to a history.
#[derive(Debug)]
struct AnswerRound {
    history: Fingerprint,
    text: String,
    /// The calls that the host returned results for after this round; empty if it returned only
    /// cards.
    results: Vec<String>,
}

/// What a checkpoint covers.
#[derive(Debug, PartialEq)]
pub(super) struct Coverage {
    /// The history.
    pub(super) history: Fingerprint,
    /// The part of the answer to it that the checkpoint includes.
    pub(super) answer: String,
}

impl AnswerRounds {
    /// Returns the answer of a run that is sent this history; the host has the start of the answer.
    pub(in crate::turn) fn new(history: Fingerprint, text: String) -> Self {
        Self {
            earlier: Vec::new(),
            current: AnswerRound {
                history,
                text,
                results: Vec::new(),
            },
        }
    }

    /// Returns the history that the run was sent.
    pub(super) fn history(&self) -> &Fingerprint {
        &self.current.history
    }

    /// Returns the part of the answer to it that the host was sent; `waiting` is the rest.
    pub(super) fn shown(&self, waiting: &str) -> &str {
        let text = self.current.text.as_str();
        text.strip_suffix(waiting).unwrap_or(text)
    }

    /// Adds text to the answer.
    pub(super) fn push(&mut self, text: &str) {
        self.current.text.push_str(text);
    }

    fn round(&self, at: usize) -> &AnswerRound {
        self.earlier.get(at).unwrap_or(&self.current)
    }

    /// Returns what a checkpoint covers: the newest history of which it includes all results and all
    /// text, because what it lacks is sent again if the run is lost. `lacks` are calls whose results
    /// it may lack, `unacknowledged` is the end of the text as far as it lacks it.
    pub(super) fn checkpoint(&mut self, lacks: &[String], unacknowledged: &str) -> Coverage {
        let is_lacking = |round: &AnswerRound| round.results.iter().any(|id| lacks.contains(id));
        let lacking = self.earlier.iter().position(is_lacking);
        let mut at = self.earlier.len();
        let mut unacknowledged = unacknowledged;
        // Go back from the latest text to the round whose answer the checkpoint includes.
        while lacking.is_some_and(|lacking| at > lacking)
            || (at > 0 && goes_back(&self.round(at).text, unacknowledged))
        {
            unacknowledged = unacknowledged
                .strip_suffix(&*self.round(at).text)
                .unwrap_or_default();
            at -= 1;
        }
        let round = self.round(at);
        let coverage = Coverage {
            history: round.history.clone(),
            answer: known(&round.text, unacknowledged).to_owned(),
        };
        self.earlier.drain(..at);
        coverage
    }

    /// Returns whether a checkpoint that covers this history is of this answer and lacks text of it,
    /// but no results.
    pub(super) fn lacks_only_text(&self, covered: Option<&Fingerprint>) -> bool {
        let first = self.earlier.first();
        first.is_some_and(|first| covered == Some(&first.history))
            && self.earlier.iter().all(|round| round.results.is_empty())
    }

    /// Starts the answer to a longer history, which the host asks for with these results, or with
    /// none; `waiting` is text that the host has not been sent. `known` is what the newest
    /// checkpoint includes of the answer so far, if it covers the history so far. Returns the text
    /// that only the checkpoint has, if it covers the longer history too because no results are new
    /// and it lacks no text.
    pub(super) fn resume(
        &mut self,
        history: Fingerprint,
        waiting: String,
        results: Option<Vec<String>>,
        known: Option<&str>,
    ) -> Option<String> {
        let next = Self::new(history, waiting).current;
        let mut last = std::mem::replace(&mut self.current, next);
        let shown = last.text.strip_suffix(&self.current.text).map(str::len);
        last.text.truncate(shown.unwrap_or(last.text.len()));
        match known.map(|known| compare(known, &last.text)) {
            Some(AnswerGap::None) if results.is_none() => Some(String::new()),
            Some(AnswerGap::Unshown(text)) if results.is_none() => Some(text),
            // The checkpoint stays where it is: results or text that it lacks are sent again if the
            // run is lost.
            _ => {
                last.results = results.unwrap_or_default();
                self.earlier.push(last);
                None
            }
        }
    }
}

/// Returns whether `unacknowledged`, the text after a checkpoint, starts before `answer`.
fn goes_back(answer: &str, unacknowledged: &str) -> bool {
    unacknowledged.len() > answer.len() && unacknowledged.ends_with(answer)
}

/// Returns the part of `answer` that a checkpoint includes, without the suffix `unacknowledged` that came
/// after the checkpoint. `unacknowledged` may start before `answer`.
fn known<'a>(answer: &'a str, unacknowledged: &str) -> &'a str {
    match answer.strip_suffix(unacknowledged) {
        Some(known) => known,
        None if unacknowledged.ends_with(answer) => "",
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    fn history(messages: usize) -> Fingerprint {
        let messages: Vec<Message> = (0..messages)
            .map(|at| Message::user(at.to_string()))
            .collect();
        Fingerprint::of("S", &messages)
    }

    fn covers(messages: usize, answer: &str) -> Coverage {
        Coverage {
            history: history(messages),
            answer: answer.into(),
        }
    }

    #[test]
    fn the_known_answer_ends_where_the_text_after_the_checkpoint_starts() {
        assert_eq!(known("one two", ""), "one two");
        assert_eq!(known("one two", " two"), "one");
        assert_eq!(known(" two", "one two"), "");
        assert_eq!(known("one two", "three"), "one two");
        assert!(goes_back(" two", "one two") && goes_back("", "one"));
        assert!(!goes_back("one two", " two") && !goes_back("one", "one") && !goes_back("", ""));
    }

    #[test]
    fn a_checkpoint_covers_the_newest_history_of_which_it_lacks_nothing() {
        let rounds = || {
            let mut rounds = AnswerRounds::new(history(1), String::new());
            rounds.push("One. ");
            rounds.resume(history(3), String::new(), Some(vec!["a".into()]), None);
            rounds.push("Two. ");
            rounds
        };
        assert_eq!(rounds().checkpoint(&[], ""), covers(3, "Two. "));
        assert_eq!(rounds().checkpoint(&[], "wo. "), covers(3, "T"));
        assert_eq!(rounds().checkpoint(&["a".into()], ""), covers(1, "One. "));
        assert_eq!(rounds().checkpoint(&[], "e. Two. "), covers(1, "On"));
        let mut rounds = rounds();
        assert!(
            !rounds.lacks_only_text(Some(&history(1))),
            "it lacks a result"
        );
        rounds.checkpoint(&[], "");
        assert!(
            !rounds.lacks_only_text(Some(&history(3))),
            "it lacks nothing"
        );
    }

    #[test]
    fn a_checkpoint_covers_the_history_after_a_card_if_it_lacks_no_text() {
        let resume = |known: &str, waiting: &str| {
            let mut rounds = AnswerRounds::new(history(1), String::new());
            rounds.push("One. Two. ");
            let unshown = rounds.resume(history(3), waiting.into(), None, Some(known));
            let lacks_text = rounds.lacks_only_text(Some(&history(1)));
            assert_eq!(unshown.is_none(), lacks_text);
            unshown
        };
        assert_eq!(resume("One. Two. ", "").as_deref(), Some(""));
        assert_eq!(resume("One. ", ""), None, "the checkpoint lacks text");
        assert_eq!(resume("One. Two.", "Two. ").as_deref(), Some(" Two."));
    }
}
