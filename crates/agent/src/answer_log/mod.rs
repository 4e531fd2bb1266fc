//! The one record of the text a run has produced: what was shown, by which stream, and whether a
//! checkpoint includes it.
//!
//! A stream that resumes from a checkpoint generates the text since that checkpoint again, and the
//! user must see it once. What to show, what the checkpoint lacks and what the next stream is sent
//! are questions to this record. Pure: no clock, no network.

mod phase;

use self::phase::{SegmentEvent, SegmentPhase, TRANSITIONS};
use crate::phases::next;

/// Shortest repetition, in characters, that is treated as one where a coincidence is possible.
///
/// A checkpoint may be written before text that was shown earlier than it arrived. A stream that
/// resumes from such a late checkpoint starts with all text between it and the checkpoint before.
/// Shorter text may recur by chance.
const MIN_REPETITION: usize = 16;

/// The text of a run, as far as the user has seen it and a later stream may repeat it.
#[derive(Debug, Default)]
pub(crate) struct AnswerLog {
    /// The answer.
    pub(crate) text: TextLog,
    /// The model's thinking.
    pub(crate) thinking: TextLog,
}

impl AnswerLog {
    /// Returns the log of a run that replaces one which had already shown this text.
    pub(crate) fn after(shown: String) -> Self {
        let mut log = Self::default();
        log.text.push(shown, SegmentPhase::Shown);
        log
    }

    /// Like [`Self::mark_sent`], for construction.
    pub(crate) fn marked_sent(mut self) -> Self {
        self.mark_sent();
        self
    }

    /// Records that the next stream is sent the shown text and asked to continue after it, and
    /// returns that text unless it is blank. If the stream repeats all of it nevertheless, the
    /// repetition is removed. Every new stream must be sent the text until a checkpoint includes
    /// it.
    pub(crate) fn mark_sent(&mut self) -> Option<String> {
        let shown = Some(self.text.shown()).filter(|shown| !shown.trim().is_empty());
        self.text.was_sent = shown.is_some();
        self.thinking.was_sent = shown.is_some();
        shown
    }

    /// Returns whether a stream was sent shown text that no checkpoint includes yet.
    pub(crate) fn is_marked_sent(&self) -> bool {
        self.text.was_sent
    }

    /// Starts another stream from the newest checkpoint.
    pub(crate) fn restart(&mut self) {
        self.text.restart();
        self.thinking.restart();
    }

    /// Records a checkpoint. It includes the text of this stream so far and the text the stream
    /// was sent.
    pub(crate) fn checkpoint(&mut self) {
        self.text.checkpoint();
        self.thinking.checkpoint();
    }
}

/// One kind of text, answer or thinking: segments in the order in which they were shown, those of
/// an earlier phase last.
#[derive(Debug, Default)]
pub(crate) struct TextLog {
    segments: Vec<Segment>,
    /// The number of the current stream.
    attempt: u32,
    /// The stream with which the text starts that the last stream has produced or repeated.
    origin: u32,
    /// Whether a stream since the checkpoint was sent this text.
    was_sent: bool,
    /// Whether nothing that this stream generated has been shown or dropped yet.
    at_start: bool,
}

/// A piece of text.
#[derive(Debug)]
struct Segment {
    text: String,
    /// The stream that generated it first.
    attempt: u32,
    phase: SegmentPhase,
}

impl TextLog {
    /// Returns the part of `piece` that has not been shown. Text that may repeat an earlier stream
    /// is held back, and returned later if it turns out to differ.
    pub(crate) fn take(&mut self, piece: &str) -> String {
        if piece.is_empty() {
            return String::new();
        }
        self.push(piece.into(), SegmentPhase::Held);
        if self.at_start {
            return self.begin();
        }
        let (held, known) = (self.held(), self.texts(SegmentPhase::Shown));
        if is_part(&held, &known) {
            return String::new();
        }
        self.drop_held();
        match held.strip_prefix(&known) {
            Some(new) => {
                self.apply(SegmentEvent::Repetition, SegmentPhase::Shown);
                self.add(new);
                new.into()
            }
            None => self.differ(&held),
        }
    }

    /// Like [`Self::take`] at the start of a stream, where any of several texts may be repeated.
    fn begin(&mut self) -> String {
        let (held, last) = (self.held(), self.texts(SegmentPhase::LastCheckpoint));
        let may_be_late = is_long(&last);
        if may_be_late && let Some(rest) = held.strip_prefix(&last) {
            // The checkpoint does not include the text before it.
            (self.at_start, self.origin) = (false, 0);
            self.drop_held();
            self.apply(SegmentEvent::Repetition, SegmentPhase::LastCheckpoint);
            return self.take(rest);
        }
        let is_repeating = self.repeated_from(|full| is_part(&held, full)).is_some();
        if is_repeating || (may_be_late && is_part(&held, &last)) {
            return String::new();
        }
        self.drop_held();
        self.decide(&held)
    }

    /// Returns what to show of text at the start of a stream, now that nothing is held back.
    fn decide(&mut self, text: &str) -> String {
        self.at_start = false;
        let Some(origin) = self.repeated_from(|full| text.starts_with(full)) else {
            return self.differ(text);
        };
        let new = &text[self.text_from(origin).len()..];
        self.origin = origin;
        self.apply(SegmentEvent::Repetition, SegmentPhase::Shown);
        self.add(new);
        new.into()
    }

    /// Returns from which stream on the text starts that `which` accepts and a stream may repeat:
    /// all of it, or what the last stream has produced. A stream that was sent the text may repeat
    /// a short piece by chance, which does not count.
    fn repeated_from(&self, which: impl Fn(&str) -> bool) -> Option<u32> {
        [0, self.origin].into_iter().find(|origin| {
            let full = self.text_from(*origin);
            !full.is_empty() && (!self.was_sent || is_long(&full)) && which(&full)
        })
    }

    /// Returns the text that was held back, because something other than text follows. If it is
    /// the start of text from an earlier stream, it is dropped as a repetition; the rest may
    /// follow.
    pub(crate) fn release(&mut self) -> String {
        let held = self.held();
        self.drop_held();
        if held.is_empty() {
            return held;
        }
        if !self.at_start {
            self.cover(held.len());
            return String::new();
        }
        match self.repeated_from(|full| is_part(&held, full)) {
            Some(origin) if !self.was_sent || is_long(&held) => {
                (self.at_start, self.origin) = (false, origin);
                let before = self.shown().len() - self.text_from(origin).len();
                self.cover(before + held.len());
                String::new()
            }
            _ => self.decide(&held),
        }
    }

    /// Handles text that differs from the earlier stream's: both stay visible, in separate
    /// paragraphs. A stream that was sent the earlier text continues it without a break.
    fn differ(&mut self, text: &str) -> String {
        let shown = self.shown();
        let has = |phase| self.segments.iter().any(|segment| segment.phase == phase);
        let follows = !has(SegmentPhase::Shown) || (self.was_sent && !has(SegmentPhase::Covered));
        let line = shown.trim_end_matches('\n');
        let apart = match shown.len() - line.len() {
            _ if follows || shown.trim().is_empty() => "",
            0 => "\n\n",
            1 => "\n",
            _ => "",
        };
        self.apply(SegmentEvent::Difference, SegmentPhase::Shown);
        if let Some(last) = self.segments.last_mut() {
            last.text.push_str(apart);
        }
        self.origin = self.attempt;
        self.add(text);
        format!("{apart}{text}")
    }

    /// Records text that is shown now.
    fn add(&mut self, new: &str) {
        self.push(new.into(), SegmentPhase::Held);
        self.apply(SegmentEvent::Difference, SegmentPhase::Held);
        let at = self.segments.len().saturating_sub(2);
        if let [before, added] = &mut self.segments[at..]
            && (before.attempt, before.phase) == (added.attempt, added.phase)
        {
            before.text.push_str(&added.text);
            self.segments.pop();
        }
    }

    fn push(&mut self, text: String, phase: SegmentPhase) {
        if !text.is_empty() {
            let attempt = self.attempt;
            self.segments.push(Segment {
                text,
                attempt,
                phase,
            });
        }
    }

    /// Records that this stream has repeated this many bytes more than it has covered.
    fn cover(&mut self, bytes: usize) {
        let mut left = bytes;
        for at in 0..self.segments.len() {
            let segment = &mut self.segments[at];
            if segment.phase != SegmentPhase::Shown || left == 0 {
                continue;
            }
            if segment.text.len() > left {
                let rest = Segment {
                    text: segment.text.split_off(left),
                    ..*segment
                };
                self.segments.insert(at + 1, rest);
            }
            let segment = &mut self.segments[at];
            left -= segment.text.len();
            segment.apply(SegmentEvent::Repetition);
        }
    }

    /// Returns the text that was shown since the checkpoint.
    fn shown(&self) -> String {
        self.text_from(0)
    }

    /// Returns the shown text from that of a stream on.
    fn text_from(&self, origin: u32) -> String {
        let shown = [SegmentPhase::Covered, SegmentPhase::Shown];
        self.collect(|segment| segment.attempt >= origin && shown.contains(&segment.phase))
    }

    fn texts(&self, phase: SegmentPhase) -> String {
        self.collect(|segment| segment.phase == phase)
    }

    /// Returns the text that is held back.
    pub(crate) fn held(&self) -> String {
        self.texts(SegmentPhase::Held)
    }

    fn collect(&self, which: impl Fn(&Segment) -> bool) -> String {
        let segments = self.segments.iter().filter(|segment| which(segment));
        segments.map(|segment| segment.text.as_str()).collect()
    }

    fn drop_held(&mut self) {
        self.segments
            .retain(|segment| segment.phase != SegmentPhase::Held);
    }

    fn apply(&mut self, event: SegmentEvent, to: SegmentPhase) {
        let segments = self.segments.iter_mut();
        for segment in segments.filter(|segment| segment.phase == to) {
            segment.apply(event);
        }
    }

    /// Returns the shown text that the newest checkpoint does not include and no stream was sent.
    pub(crate) fn unacknowledged(&self) -> String {
        if self.was_sent {
            String::new()
        } else {
            self.shown()
        }
    }

    fn restart(&mut self) {
        self.drop_held();
        self.apply(SegmentEvent::StreamLoss, SegmentPhase::Covered);
        self.attempt += 1;
        self.at_start = true;
    }

    /// Expects held back text to have been released. Later text may still be a repetition.
    fn checkpoint(&mut self) {
        self.release();
        if self.was_sent && self.at_start {
            self.apply(SegmentEvent::Repetition, SegmentPhase::Shown);
            self.origin = 0;
        }
        let origin = self.origin;
        let is_of_stream =
            |segment: &Segment| segment.phase == SegmentPhase::Covered && segment.attempt >= origin;
        // Of consecutive checkpoints without text between them, the later ones may be as late as
        // the first.
        if self.segments.iter().any(is_of_stream) {
            self.apply(SegmentEvent::Checkpoint, SegmentPhase::LastCheckpoint);
        }
        for segment in &mut self.segments {
            if segment.phase == SegmentPhase::Covered {
                segment.apply(SegmentEvent::Checkpoint);
                if segment.attempt < origin {
                    segment.apply(SegmentEvent::Checkpoint);
                }
            }
        }
        self.segments
            .retain(|segment| segment.phase != SegmentPhase::InCheckpoint);
        self.origin = 0;
        self.was_sent &= self
            .segments
            .iter()
            .any(|segment| segment.phase == SegmentPhase::Shown);
    }
}

impl Segment {
    fn apply(&mut self, event: SegmentEvent) {
        self.phase = next(TRANSITIONS, self.phase, event);
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
mod model;
#[cfg(test)]
mod tests;
