//! Words since the last checkpoint: a stream that goes on from it says them again, and nobody
//! wants to read them twice. Pure: no clock, no network.

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
        let text = Lane { shown, heard: 0 };
        Self {
            text,
            thinking: Lane::default(),
        }
    }

    /// Another stream begins, where the newest checkpoint stands.
    pub(super) fn restart(&mut self) {
        self.text.heard = 0;
        self.thinking.heard = 0;
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
}

impl Lane {
    /// What of a piece has not been shown. A stream that says something else than the one
    /// before it is believed from there on.
    pub(super) fn take<'a>(&mut self, piece: &'a str) -> &'a str {
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
        new
    }

    fn checkpoint(&mut self) {
        self.shown.drain(..self.heard);
        self.heard = 0;
    }
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
}
