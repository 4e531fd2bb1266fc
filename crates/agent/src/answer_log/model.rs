//! A model of a server that resumes late and repeats itself, checked after every step.
//!
//! The server generates a fixed text. A stream that starts from a checkpoint generates everything
//! after it again, in pieces of any size; a stream that was sent the shown text continues after it.
//! A checkpoint contains the text up to the current place, or up to the previous checkpoint if it is
//! late. A stream repeats the text that a late checkpoint lacks without interruption: less of it is
//! not recognised, because a few words may recur.

use proptest::prelude::*;

use super::*;

/// The text that the server generates; no part of it recurs.
const TEXT: &str = "The river rises in the hills north of the town, passes three old mills and a \
    stone bridge, turns west below the castle, and reaches the sea after ninety quiet miles.";

#[derive(Debug, Clone, Copy)]
enum AnswerStep {
    /// The stream generates this many characters more.
    Text(usize),
    /// Something other than text follows.
    Other,
    /// A checkpoint arrives; a late one is as old as the one before.
    Checkpoint { is_late: bool },
    /// The stream is lost. The next one starts from the newest checkpoint and may be sent the text
    /// that was shown since.
    Loss { sends_text: bool },
}

fn step() -> impl Strategy<Value = AnswerStep> {
    prop_oneof![
        6 => (1..40_usize).prop_map(AnswerStep::Text),
        2 => Just(AnswerStep::Other),
        2 => any::<bool>().prop_map(|is_late| AnswerStep::Checkpoint { is_late }),
        2 => any::<bool>().prop_map(|sends_text| AnswerStep::Loss { sends_text }),
    ]
}

#[derive(Default)]
struct AnswerModel {
    log: AnswerLog,
    /// What the user has seen.
    shown: String,
    /// How much the current stream knows.
    at: usize,
    /// How much the newest checkpoint includes, and where the stream was when it arrived.
    checkpoint: usize,
    arrived: usize,
    /// Up to where the stream repeats what a late checkpoint lacks.
    repeats_until: usize,
    /// Whether the next checkpoint may be late: the one before was not, and is of this stream.
    may_be_late: bool,
}

impl AnswerModel {
    fn take(&mut self, step: AnswerStep) {
        match step {
            AnswerStep::Text(length) => {
                let end = (self.at + length).min(TEXT.len());
                self.shown += &self.log.text.take(&TEXT[self.at..end]);
                self.at = end;
            }
            AnswerStep::Other | AnswerStep::Checkpoint { .. } if self.at < self.repeats_until => {}
            AnswerStep::Other => self.shown += &self.log.text.release(),
            AnswerStep::Checkpoint { is_late } => {
                self.shown += &self.log.text.release();
                self.log.checkpoint();
                // Text since the last one is needed to recognise a late checkpoint.
                let is_recognisable = self.at >= self.arrived + MIN_REPETITION;
                let is_late = is_late && self.may_be_late && is_recognisable;
                if !is_late {
                    self.checkpoint = self.at;
                }
                (self.may_be_late, self.arrived) = (!is_late, self.at);
            }
            AnswerStep::Loss { sends_text } => {
                let sent = (sends_text || self.log.is_marked_sent()).then(|| self.log.mark_sent());
                let is_sent = sent.flatten().is_some();
                self.log.restart();
                // A stream that was sent the text continues after it, whatever its checkpoint is.
                self.at = if is_sent {
                    self.shown.len()
                } else {
                    self.checkpoint
                };
                self.repeats_until = if is_sent { 0 } else { self.arrived };
                self.may_be_late = false;
            }
        }
    }

    /// The invariants of the log: no text twice, none lost.
    fn check(&self) {
        assert!(
            TEXT.starts_with(&self.shown),
            "shown twice or lost: {}",
            self.shown
        );
        let held = self.log.text.held();
        let reached = self.shown.len().max(self.at);
        assert!(reached <= self.shown.len() + held.len(), "lost: {held:?}");
        // What the newest checkpoint lacks is known, unless a stream was sent it.
        let unacknowledged = self.log.text.unacknowledged();
        assert!(self.shown.ends_with(&unacknowledged), "{unacknowledged:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_is_shown_twice_and_none_is_lost(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let mut world = AnswerModel {
            may_be_late: true,
            ..AnswerModel::default()
        };
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
