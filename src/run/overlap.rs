//! Words since the last checkpoint: a stream that goes on from it says them again, and nobody
//! wants to read them twice. Pure: no clock, no network.

/// A checkpoint may have been on its way when words were said, and not know them: then a stream
/// begins with all that came between it and the one before. Fewer words may come again by
/// themselves.
const LATE: usize = 16;

/// What was shown that the newest checkpoint does not know.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// The answer.
    pub(super) text: Lane,
    /// What the model thought.
    pub(super) thinking: Lane,
}

impl Overlap {
    /// Of a run that starts where another one was shown this much.
    pub(super) fn after(shown: String) -> Self {
        let text = Lane {
            shown,
            ..Lane::default()
        };
        Self {
            text,
            thinking: Lane::default(),
        }
    }

    /// The next stream is told what was shown, and should go on behind it: only if it says all
    /// of it again all the same, it is shown once.
    pub(super) fn told(mut self) -> Self {
        self.tell();
        self
    }

    /// The same in between; gives the words, if there are any.
    pub(super) fn tell(&mut self) -> Option<String> {
        self.thinking.tell();
        Some(self.text.tell()).filter(|words| !words.trim().is_empty())
    }

    /// Another stream begins, where the newest checkpoint stands.
    pub(super) fn restart(&mut self) {
        self.text.restart();
        self.thinking.restart();
    }

    /// A checkpoint came: it knows what this stream has said.
    pub(super) fn checkpoint(&mut self) {
        self.text.checkpoint();
        self.thinking.checkpoint();
    }
}

/// Words of one kind.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Shown since the checkpoint, by this stream or an earlier one.
    shown: String,
    /// How far this stream has said it.
    heard: usize,
    /// Shown between the checkpoint and the one before it.
    earlier: String,
    /// What this stream has said so far, while that may be the earlier words again.
    held: Option<String>,
}

impl Lane {
    /// What of a piece has not been shown. A stream that says something else than the one
    /// before it is believed from there on.
    pub(super) fn take(&mut self, piece: &str) -> String {
        let Some(mut said) = self.held.take() else {
            return self.pass(piece);
        };
        said.push_str(piece);
        if self.earlier.len() > said.len() && self.earlier.starts_with(&said) {
            self.held = Some(said);
            return String::new();
        }
        match said.strip_prefix(&self.earlier) {
            Some(rest) => {
                // The checkpoint does not know them.
                self.heard = self.earlier.len();
                self.shown.insert_str(0, &std::mem::take(&mut self.earlier));
                self.pass(rest)
            }
            None => self.pass(&said),
        }
    }

    /// What was held back, now that something else follows.
    pub(super) fn release(&mut self) -> String {
        match self.held.take() {
            Some(said) => self.pass(&said),
            None => String::new(),
        }
    }

    fn pass(&mut self, piece: &str) -> String {
        let known = &self.shown[self.heard..];
        let same: usize = known
            .chars()
            .zip(piece.chars())
            .take_while(|(known, said)| known == said)
            .map(|(known, _)| known.len_utf8())
            .sum();
        self.heard += same;
        let new = &piece[same..];
        if !new.is_empty() {
            self.shown.truncate(self.heard);
            self.shown.push_str(new);
            self.heard = self.shown.len();
        }
        new.into()
    }

    fn tell(&mut self) -> String {
        self.heard = 0;
        self.earlier = std::mem::take(&mut self.shown);
        self.earlier.clone()
    }

    fn restart(&mut self) {
        self.heard = 0;
        self.held = (self.earlier.chars().count() >= LATE).then(String::new);
    }

    fn checkpoint(&mut self) {
        let said: String = self.shown.drain(..self.heard).collect();
        self.heard = 0;
        // Of checkpoints without a word between them, the second may be as late.
        if !said.is_empty() {
            self.earlier = said;
        }
    }
}

/// What a model is told that fell silent behind words it does not know of.
pub fn go_on(words: &str) -> String {
    format!(
        "[Your answer was interrupted. The user has read this of it:]\n\n{}\n\n[Go on right behind it, without saying any of it again.]",
        words.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lane: &mut Lane, pieces: &[&str]) -> String {
        pieces.iter().map(|piece| lane.take(piece)).collect()
    }

    #[test]
    fn what_is_said_again_is_shown_once() {
        let mut overlap = Overlap::default();
        assert_eq!(told(&mut overlap.text, &["one ", "two "]), "one two ");
        overlap.checkpoint();
        assert_eq!(told(&mut overlap.text, &["three ", "four "]), "three four ");
        overlap.restart();
        let again = ["th", "ree fo", "ur five ", "six"];
        assert_eq!(told(&mut overlap.text, &again), "five six");
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["three four five six!"]), "!");
    }

    #[test]
    fn a_checkpoint_in_the_middle_keeps_what_is_still_to_be_repeated() {
        let mut overlap = Overlap::default();
        told(&mut overlap.text, &["one two three "]);
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["one "]), "");
        overlap.checkpoint();
        assert_eq!(told(&mut overlap.text, &["two three four"]), "four");
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["two three four"]), "");
    }

    #[test]
    fn other_words_are_shown_from_where_they_differ() {
        let mut overlap = Overlap::default();
        told(&mut overlap.text, &["so ä it is"]);
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["so ö ", "was"]), "ö was");
        assert_eq!(told(&mut overlap.thinking, &["hm"]), "hm");
    }

    #[test]
    fn words_a_late_checkpoint_does_not_know_are_shown_once() {
        let mut overlap = Overlap::default();
        told(&mut overlap.text, &["one two three four "]);
        overlap.checkpoint();
        overlap.checkpoint();
        told(&mut overlap.text, &["five "]);
        for _ in 0..2 {
            overlap.restart();
            let again = ["one two ", "three four fi", "ve six"];
            let new = told(&mut overlap.text, &again);
            assert!(new == "six" || new.is_empty(), "{new}");
        }
        assert_eq!(told(&mut overlap.text, &[" seven"]), " seven");
    }

    #[test]
    fn words_that_begin_like_the_earlier_ones_are_held_back_and_then_shown() {
        let mut overlap = Overlap::default();
        told(&mut overlap.text, &["Now the tests are run. "]);
        overlap.checkpoint();
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["Now the "]), "");
        assert_eq!(told(&mut overlap.text, &["docs."]), "Now the docs.");
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["Now the "]), "");
        assert_eq!(overlap.text.release(), "");
        assert_eq!(told(&mut overlap.text, &["docs. More."]), " More.");
    }

    #[test]
    fn a_stream_that_was_told_goes_on_or_says_all_of_it_again() {
        let shown = "The capital is Paris. ";
        let mut overlap = Overlap::after(shown.into());
        assert_eq!(overlap.tell().as_deref(), Some(shown));
        overlap.restart();
        let on = ["The ", "river is the Seine."];
        assert_eq!(told(&mut overlap.text, &on), "The river is the Seine.");
        let mut overlap = Overlap::after(shown.into()).told();
        overlap.restart();
        let again = ["The capital ", "is Paris. On the Seine."];
        assert_eq!(told(&mut overlap.text, &again), "On the Seine.");
        assert_eq!(Overlap::after(" \n".into()).tell(), None);
    }

    #[test]
    fn a_few_words_may_be_said_twice() {
        let mut overlap = Overlap::default();
        told(&mut overlap.text, &["And then: "]);
        overlap.checkpoint();
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["And then: "]), "And then: ");
    }
}
