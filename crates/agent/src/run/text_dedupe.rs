//! Removes repeated text. A stream that resumes from a checkpoint generates the text since that
//! checkpoint again, and the user must see it once. Pure: no clock, no network.

/// Shortest repetition, in characters, that is treated as one where a coincidence is possible.
///
/// A checkpoint may be written before text that was shown earlier than it arrived. A stream that
/// resumes from such a late checkpoint starts with all text between it and the checkpoint before.
/// Shorter text may recur by chance.
const MIN_REPETITION: usize = 16;

/// The text shown to the user that the newest checkpoint does not include.
#[derive(Debug, Default)]
pub(super) struct TextDedupe {
    /// The answer.
    pub(super) text: StreamDedupe,
    /// The model's thinking.
    pub(super) thinking: StreamDedupe,
}

impl TextDedupe {
    /// Returns the state for a run that replaces one which had already shown this text.
    pub(super) fn after(shown: String) -> Self {
        let text = StreamDedupe {
            shown,
            ..StreamDedupe::default()
        };
        Self {
            text,
            thinking: StreamDedupe::default(),
        }
    }

    /// Like [`Self::mark_sent`], for construction.
    pub(super) fn marked_sent(mut self) -> Self {
        self.mark_sent();
        self
    }

    /// Records that the next stream is sent the shown text and asked to continue after it, and
    /// returns that text unless it is blank. If the stream repeats all of it nevertheless, the
    /// repetition is removed. Every new stream must be sent the text until a checkpoint includes
    /// it.
    pub(super) fn mark_sent(&mut self) -> Option<String> {
        self.text.was_sent = !self.text.shown.is_empty();
        self.thinking.was_sent = self.text.was_sent;
        Some(self.text.shown.clone()).filter(|full| !full.trim().is_empty())
    }

    /// Returns whether a stream was sent shown text that no checkpoint includes yet.
    pub(super) fn is_marked_sent(&self) -> bool {
        self.text.was_sent
    }

    /// Starts another stream from the newest checkpoint.
    pub(super) fn restart(&mut self) {
        self.text.restart();
        self.thinking.restart();
    }

    /// Records a checkpoint. It includes the text of this stream so far and the text the stream
    /// was sent.
    pub(super) fn checkpoint(&mut self) {
        self.text.checkpoint();
        self.thinking.checkpoint();
    }
}

/// One kind of text, answer or thinking.
#[derive(Debug, Default)]
pub(super) struct StreamDedupe {
    /// Text shown since the checkpoint, by this stream or earlier ones.
    shown: String,
    /// Whether a stream since the checkpoint was sent this text.
    was_sent: bool,
    /// How many bytes of `shown` this stream has covered, by repeating or by adding them.
    covered: usize,
    /// Where in `shown` the text of the last stream that diverged starts.
    diverged_at: usize,
    /// Text shown between the checkpoint and the one before it.
    earlier: String,
    /// Whether nothing that this stream generated has been shown or dropped yet.
    at_start: bool,
    /// Text of this stream that may be a repetition, neither shown nor dropped yet.
    held: String,
}

impl StreamDedupe {
    /// Returns the part of `piece` that has not been shown. Text that may repeat an earlier stream
    /// is held back, and returned later if it turns out to differ.
    pub(super) fn take(&mut self, piece: &str) -> String {
        if piece.is_empty() {
            return String::new();
        }
        self.held.push_str(piece);
        if self.at_start {
            return self.begin();
        }
        let text = std::mem::take(&mut self.held);
        let known = &self.shown[self.covered..];
        if let Some(new) = text.strip_prefix(known) {
            self.covered = self.shown.len();
            self.add(new);
            return new.into();
        }
        if known.starts_with(&text) {
            self.held = text;
            return String::new();
        }
        self.differ(&text)
    }

    /// Like [`Self::take`] at the start of a stream, where any of several texts may be repeated.
    fn begin(&mut self) -> String {
        if self.is_late()
            && let Some(rest) = self.held.strip_prefix(&self.earlier)
        {
            // The checkpoint does not include the earlier text.
            let rest = rest.to_owned();
            self.at_start = false;
            self.held.clear();
            self.covered = self.earlier.len();
            self.diverged_at = 0;
            self.shown.insert_str(0, &std::mem::take(&mut self.earlier));
            return self.take(&rest);
        }
        let late = self.is_late() && is_part(&self.held, &self.earlier);
        if late
            || self
                .repeated_from(|full| is_part(&self.held, full))
                .is_some()
        {
            return String::new();
        }
        let text = std::mem::take(&mut self.held);
        self.decide(&text)
    }

    /// Returns what to show of text at the start of a stream, now that nothing is held back.
    fn decide(&mut self, text: &str) -> String {
        self.at_start = false;
        let Some(at) = self.repeated_from(|full| text.starts_with(full)) else {
            return self.differ(text);
        };
        let new = &text[self.shown.len() - at..];
        self.diverged_at = at;
        self.add(new);
        new.into()
    }

    /// Returns whether the earlier text is long enough to recognise a late checkpoint by it.
    fn is_late(&self) -> bool {
        is_long(&self.earlier)
    }

    /// Returns the offset in `shown` of text that `which` accepts and a stream may repeat: all of
    /// it, or what the last diverging stream added. A stream that was sent the text may repeat a
    /// short piece by chance, which does not count.
    fn repeated_from(&self, which: impl Fn(&str) -> bool) -> Option<usize> {
        [0, self.diverged_at].into_iter().find(|at| {
            let full = &self.shown[*at..];
            !full.is_empty() && (!self.was_sent || is_long(full)) && which(full)
        })
    }

    /// Returns the text that was held back, because something other than text follows. If it is
    /// the start of text from an earlier stream, it is dropped as a repetition; the rest may
    /// follow.
    pub(super) fn release(&mut self) -> String {
        let text = std::mem::take(&mut self.held);
        if text.is_empty() {
            return text;
        }
        if !self.at_start {
            self.covered += text.len();
            return String::new();
        }
        match self.repeated_from(|full| is_part(&text, full)) {
            Some(at) if !self.was_sent || is_long(&text) => {
                self.at_start = false;
                (self.diverged_at, self.covered) = (at, at + text.len());
                String::new()
            }
            _ => self.decide(&text),
        }
    }

    /// Handles text that differs from the earlier stream's: both stay visible, in separate
    /// paragraphs. A stream that was sent the earlier text continues it without a break.
    fn differ(&mut self, text: &str) -> String {
        let follows = self.covered == self.shown.len() || (self.was_sent && self.covered == 0);
        let apart = match self.shown.trim_end_matches('\n') {
            _ if follows || self.shown.trim().is_empty() => "",
            line if self.shown.len() == line.len() => "\n\n",
            line if self.shown.len() == line.len() + 1 => "\n",
            _ => "",
        };
        self.shown.push_str(apart);
        self.diverged_at = self.shown.len();
        self.covered = self.shown.len();
        self.add(text);
        format!("{apart}{text}")
    }

    fn add(&mut self, new: &str) {
        self.shown.push_str(new);
        self.covered = self.shown.len();
    }

    /// Returns the shown text that the newest checkpoint does not include and no stream was sent.
    pub(super) fn unacknowledged(&self) -> &str {
        if self.was_sent { "" } else { &self.shown }
    }

    fn restart(&mut self) {
        self.covered = 0;
        self.held.clear();
        self.at_start = true;
    }

    /// Expects held back text to have been released. Later text may still be a repetition.
    fn checkpoint(&mut self) {
        self.release();
        if self.was_sent && self.at_start {
            (self.covered, self.diverged_at) = (self.shown.len(), 0);
        }
        let text = self.diverged_at.min(self.covered)..self.covered;
        // Of consecutive checkpoints without text between them, the later ones may be as late as
        // the first.
        if !text.is_empty() {
            self.earlier = self.shown[text].to_owned();
        }
        self.shown.drain(..self.covered);
        (self.covered, self.diverged_at) = (0, 0);
        self.was_sent &= !self.shown.is_empty();
    }
}

/// Returns whether `text` is a proper prefix of `full`.
fn is_part(text: &str, full: &str) -> bool {
    full.len() > text.len() && full.starts_with(text)
}

fn is_long(full: &str) -> bool {
    full.chars().count() >= MIN_REPETITION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(dedupe: &mut StreamDedupe, pieces: &[&str]) -> String {
        pieces.iter().map(|piece| dedupe.take(piece)).collect()
    }

    #[test]
    fn repeated_text_is_shown_once() {
        let mut overlap = TextDedupe::default();
        assert_eq!(take_all(&mut overlap.text, &["one ", "two "]), "one two ");
        overlap.checkpoint();
        assert_eq!(
            take_all(&mut overlap.text, &["three ", "four "]),
            "three four "
        );
        overlap.restart();
        let repetition = ["th", "ree fo", "ur five ", "six"];
        assert_eq!(take_all(&mut overlap.text, &repetition), "five six");
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["three four five six!"]), "!");
    }

    #[test]
    fn a_checkpoint_in_the_middle_keeps_what_is_still_to_be_repeated() {
        let mut overlap = TextDedupe::default();
        take_all(&mut overlap.text, &["one two three "]);
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["one "]), "");
        overlap.checkpoint();
        assert_eq!(take_all(&mut overlap.text, &["two three four"]), "four");
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["two three four"]), "");
    }

    #[test]
    fn different_text_is_shown_in_full_as_a_new_paragraph() {
        let mut overlap = TextDedupe::default();
        take_all(&mut overlap.text, &["so ä it is"]);
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["so "]), "");
        assert_eq!(take_all(&mut overlap.text, &["ö ", "was"]), "\n\nso ö was");
        assert_eq!(take_all(&mut overlap.thinking, &["hm"]), "hm");
        overlap.restart();
        // Either text may be repeated.
        assert_eq!(take_all(&mut overlap.text, &["so ", "ö was it"]), " it");
        overlap.checkpoint();
        assert_eq!(overlap.text.unacknowledged(), "");
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["so"]), "so");
        let mut overlap = TextDedupe::after("a line\n".into());
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["", "another"]), "\nanother");
    }

    #[test]
    fn a_repetition_that_is_interrupted_again_is_not_shown() {
        let mut overlap = TextDedupe::after("one two three ".into());
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["one two "]), "");
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["one two three four"]), "four");
    }

    #[test]
    fn an_event_between_repeated_texts_does_not_show_them_again() {
        let mut overlap = TextDedupe::after("Look. Found. ".into());
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["Look. "]), "");
        assert_eq!(overlap.text.release(), "");
        assert_eq!(take_all(&mut overlap.text, &["Found. Done. "]), "Done. ");
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["Look. "]), "");
        assert_eq!(overlap.text.release(), "");
        assert_eq!(take_all(&mut overlap.text, &["Fo", "rgot."]), "\n\nForgot.");
    }

    #[test]
    fn shown_text_is_sent_to_each_stream_until_a_checkpoint_includes_it() {
        let mut overlap = TextDedupe::after("The capital is Paris. ".into());
        assert!(!overlap.is_marked_sent());
        overlap.mark_sent();
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["It has "]), "It has ");
        assert!(overlap.is_marked_sent());
        let all = "The capital is Paris. It has ";
        assert_eq!(overlap.mark_sent().as_deref(), Some(all));
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["The capital is "]), "");
        assert_eq!(overlap.mark_sent().as_deref(), Some(all));
        overlap.restart();
        let repetition = [all, "a river."];
        assert_eq!(take_all(&mut overlap.text, &repetition), "a river.");
        overlap.checkpoint();
        assert!(!overlap.is_marked_sent());
        assert_eq!(overlap.mark_sent(), None);
    }

    #[test]
    fn a_checkpoint_before_any_text_includes_only_text_that_was_sent() {
        let shown = "The capital is Paris. ";
        let repetition = [shown, "On the Seine."];
        let mut overlap = TextDedupe::after(shown.into());
        overlap.restart();
        overlap.checkpoint();
        assert_eq!(overlap.text.unacknowledged(), shown);
        assert_eq!(take_all(&mut overlap.text, &repetition), "On the Seine.");
        let mut overlap = TextDedupe::after(shown.into()).marked_sent();
        overlap.restart();
        overlap.checkpoint();
        assert_eq!(
            (overlap.text.unacknowledged(), overlap.is_marked_sent()),
            ("", false)
        );
        assert_eq!(take_all(&mut overlap.text, &repetition), "On the Seine.");
    }

    #[test]
    fn text_missing_from_a_late_checkpoint_is_shown_once() {
        let mut overlap = TextDedupe::default();
        take_all(&mut overlap.text, &["one two three four "]);
        overlap.checkpoint();
        overlap.checkpoint();
        take_all(&mut overlap.text, &["five "]);
        for _ in 0..2 {
            overlap.restart();
            let repetition = ["one two ", "three four fi", "ve six"];
            let new = take_all(&mut overlap.text, &repetition);
            assert!(new == "six" || new.is_empty(), "{new}");
        }
        assert_eq!(take_all(&mut overlap.text, &[" seven"]), " seven");
    }

    #[test]
    fn text_that_starts_like_earlier_text_is_held_back_and_then_shown() {
        let mut overlap = TextDedupe::default();
        take_all(&mut overlap.text, &["Now the tests are run. "]);
        overlap.checkpoint();
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["Now the "]), "");
        assert_eq!(take_all(&mut overlap.text, &["docs."]), "Now the docs.");
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["Now the "]), "");
        assert_eq!(overlap.text.release(), "");
        assert_eq!(take_all(&mut overlap.text, &["docs. More."]), " More.");
    }

    #[test]
    fn a_stream_that_was_sent_the_text_may_continue_or_repeat_it() {
        let shown = "The capital is Paris. ";
        let mut overlap = TextDedupe::after(shown.into());
        assert_eq!(overlap.mark_sent().as_deref(), Some(shown));
        overlap.restart();
        let continuation = ["The ", "river is the Seine."];
        assert_eq!(
            take_all(&mut overlap.text, &continuation),
            "The river is the Seine."
        );
        let mut overlap = TextDedupe::after(shown.into()).marked_sent();
        overlap.restart();
        let repetition = ["The capital ", "is Paris. On the Seine."];
        assert_eq!(take_all(&mut overlap.text, &repetition), "On the Seine.");
        assert_eq!(TextDedupe::after(" \n".into()).mark_sent(), None);
    }

    #[test]
    fn a_short_repetition_is_shown() {
        let mut overlap = TextDedupe::default();
        take_all(&mut overlap.text, &["And then: "]);
        overlap.checkpoint();
        overlap.restart();
        assert_eq!(take_all(&mut overlap.text, &["And then: "]), "And then: ");
    }
}
