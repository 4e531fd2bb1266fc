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

    /// The same in between; gives the words, if there are any. They are to be told to every
    /// stream until a checkpoint comes behind them.
    pub(super) fn tell(&mut self) -> Option<String> {
        self.text.told = !self.text.shown.is_empty();
        self.thinking.told = self.text.told;
        Some(self.text.shown.clone()).filter(|words| !words.trim().is_empty())
    }

    /// Whether a stream was told of words that no checkpoint knows.
    pub(super) fn is_told(&self) -> bool {
        self.text.told
    }

    /// Another stream begins, where the newest checkpoint stands.
    pub(super) fn restart(&mut self) {
        self.text.restart();
        self.thinking.restart();
    }

    /// A checkpoint came: it knows what this stream has said, and what it was told.
    pub(super) fn checkpoint(&mut self) {
        self.text.checkpoint();
        self.thinking.checkpoint();
    }
}

/// Words of one kind.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Shown since the checkpoint, by this stream or earlier ones.
    shown: String,
    /// Whether a stream since the checkpoint was told of it.
    told: bool,
    /// How far this stream has said it.
    heard: usize,
    /// Where the last stream began in it that said something else.
    anew: usize,
    /// Shown between the checkpoint and the one before it.
    earlier: String,
    /// Whether this stream has said nothing that was shown or let go.
    begins: bool,
    /// What it has said that may be the same again: nobody was shown it a second time.
    held: String,
}

impl Lane {
    /// What of a piece has not been shown. Words are held back while they may be those of an
    /// earlier stream, and come to light if it turns out that they are not.
    pub(super) fn take(&mut self, piece: &str) -> String {
        if piece.is_empty() {
            return String::new();
        }
        self.held.push_str(piece);
        if self.begins {
            return self.begin();
        }
        let said = std::mem::take(&mut self.held);
        let known = &self.shown[self.heard..];
        if let Some(new) = said.strip_prefix(known) {
            self.heard = self.shown.len();
            self.add(new);
            return new.into();
        }
        if known.starts_with(&said) {
            self.held = said;
            return String::new();
        }
        self.differ(&said)
    }

    /// The same at the beginning of a stream, where it is open which words come again.
    fn begin(&mut self) -> String {
        if self.is_late()
            && let Some(rest) = self.held.strip_prefix(&self.earlier)
        {
            // The checkpoint does not know them.
            let rest = rest.to_owned();
            self.begins = false;
            self.held.clear();
            self.heard = self.earlier.len();
            self.anew = 0;
            self.shown.insert_str(0, &std::mem::take(&mut self.earlier));
            return self.take(&rest);
        }
        let late = self.is_late() && is_part(&self.held, &self.earlier);
        if late || self.again(|words| is_part(&self.held, words)).is_some() {
            return String::new();
        }
        let said = std::mem::take(&mut self.held);
        self.decide(&said)
    }

    /// What a stream said that began with this.
    fn decide(&mut self, said: &str) -> String {
        self.begins = false;
        let Some(at) = self.again(|words| said.starts_with(words)) else {
            return self.differ(said);
        };
        let new = &said[self.shown.len() - at..];
        self.anew = at;
        self.add(new);
        new.into()
    }

    /// Whether the checkpoint may be late, so that a stream begins with what came before it.
    fn is_late(&self) -> bool {
        is_long(&self.earlier)
    }

    /// Where the words are that a stream may begin with and the checkpoint does not know: all of
    /// them, or what the last one said instead. One that was told may take up a few by chance.
    fn again(&self, which: impl Fn(&str) -> bool) -> Option<usize> {
        [0, self.anew].into_iter().find(|at| {
            let words = &self.shown[*at..];
            !words.is_empty() && (!self.told || is_long(words)) && which(words)
        })
    }

    /// What was held back, now that something else follows. If the words of an earlier stream
    /// may go on behind that, it is what they began with, and not shown.
    pub(super) fn release(&mut self) -> String {
        let said = std::mem::take(&mut self.held);
        if said.is_empty() {
            return said;
        }
        if !self.begins {
            self.heard += said.len();
            return String::new();
        }
        match self.again(|words| is_part(&said, words)) {
            Some(at) if !self.told || is_long(&said) => {
                self.begins = false;
                (self.anew, self.heard) = (at, at + said.len());
                String::new()
            }
            _ => self.decide(&said),
        }
    }

    /// This stream says something else than the one before it: both stay, apart. One that was
    /// told goes on right behind.
    fn differ(&mut self, said: &str) -> String {
        let follows = self.heard == self.shown.len() || (self.told && self.heard == 0);
        let apart = match self.shown.trim_end_matches('\n') {
            _ if follows || self.shown.trim().is_empty() => "",
            line if self.shown.len() == line.len() => "\n\n",
            line if self.shown.len() == line.len() + 1 => "\n",
            _ => "",
        };
        self.shown.push_str(apart);
        self.anew = self.shown.len();
        self.heard = self.shown.len();
        self.add(said);
        format!("{apart}{said}")
    }

    fn add(&mut self, new: &str) {
        self.shown.push_str(new);
        self.heard = self.shown.len();
    }

    /// What was shown that the newest checkpoint does not know.
    pub(super) fn behind(&self) -> &str {
        match self.told {
            true => "",
            false => &self.shown,
        }
    }

    fn restart(&mut self) {
        self.heard = 0;
        self.held.clear();
        self.begins = true;
    }

    /// What was held back has been released. What comes may still be the same again.
    fn checkpoint(&mut self) {
        self.release();
        if self.told && self.begins {
            (self.heard, self.anew) = (self.shown.len(), 0);
        }
        let said = self.anew.min(self.heard)..self.heard;
        // Of checkpoints without a word between them, the second may be as late.
        if !said.is_empty() {
            self.earlier = self.shown[said].to_owned();
        }
        self.shown.drain(..self.heard);
        (self.heard, self.anew) = (0, 0);
        self.told &= !self.shown.is_empty();
    }
}

/// Whether more is to come of these words.
fn is_part(said: &str, words: &str) -> bool {
    words.len() > said.len() && words.starts_with(said)
}

fn is_long(words: &str) -> bool {
    words.chars().count() >= LATE
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
    fn other_words_are_shown_whole_and_apart() {
        let mut overlap = Overlap::default();
        told(&mut overlap.text, &["so ä it is"]);
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["so "]), "");
        assert_eq!(told(&mut overlap.text, &["ö ", "was"]), "\n\nso ö was");
        assert_eq!(told(&mut overlap.thinking, &["hm"]), "hm");
        overlap.restart();
        // Either of them may come again.
        assert_eq!(told(&mut overlap.text, &["so ", "ö was it"]), " it");
        overlap.checkpoint();
        assert_eq!(overlap.text.behind(), "");
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["so"]), "so");
        let mut overlap = Overlap::after("a line\n".into());
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["", "another"]), "\nanother");
    }

    #[test]
    fn words_that_are_broken_off_again_are_held_back() {
        let mut overlap = Overlap::after("one two three ".into());
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["one two "]), "");
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["one two three four"]), "four");
    }

    #[test]
    fn something_between_words_does_not_bring_them_back() {
        let mut overlap = Overlap::after("Look. Found. ".into());
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["Look. "]), "");
        assert_eq!(overlap.text.release(), "");
        assert_eq!(told(&mut overlap.text, &["Found. Done. "]), "Done. ");
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["Look. "]), "");
        assert_eq!(overlap.text.release(), "");
        assert_eq!(told(&mut overlap.text, &["Fo", "rgot."]), "\n\nForgot.");
    }

    #[test]
    fn told_words_are_told_until_a_checkpoint_comes_behind_them() {
        let mut overlap = Overlap::after("The capital is Paris. ".into());
        assert!(!overlap.is_told());
        overlap.tell();
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["It has "]), "It has ");
        assert!(overlap.is_told());
        let all = "The capital is Paris. It has ";
        assert_eq!(overlap.tell().as_deref(), Some(all));
        overlap.restart();
        assert_eq!(told(&mut overlap.text, &["The capital is "]), "");
        assert_eq!(overlap.tell().as_deref(), Some(all));
        overlap.restart();
        let again = [all, "a river."];
        assert_eq!(told(&mut overlap.text, &again), "a river.");
        overlap.checkpoint();
        assert!(!overlap.is_told());
        assert_eq!(overlap.tell(), None);
    }

    #[test]
    fn a_checkpoint_before_the_first_word_knows_what_was_told_and_nothing_else() {
        let shown = "The capital is Paris. ";
        let again = [shown, "On the Seine."];
        let mut overlap = Overlap::after(shown.into());
        overlap.restart();
        overlap.checkpoint();
        assert_eq!(overlap.text.behind(), shown);
        assert_eq!(told(&mut overlap.text, &again), "On the Seine.");
        let mut overlap = Overlap::after(shown.into()).told();
        overlap.restart();
        overlap.checkpoint();
        assert_eq!((overlap.text.behind(), overlap.is_told()), ("", false));
        assert_eq!(told(&mut overlap.text, &again), "On the Seine.");
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
