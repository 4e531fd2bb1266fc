//! Which history a checkpoint covers.

use super::{Live, OnDisk};
use crate::conversation::fingerprint::Fingerprint;
use crate::run::{Checkpoint, What};
use crate::turn::tally::Tally;
use cursor_proto::state::occupancy;

/// Tool results of the host, and what a checkpoint without them covers.
#[derive(Debug)]
pub(super) struct Round {
    /// The history before the results.
    pub(super) covers: Fingerprint,
    /// The answer to that history.
    pub(super) answer: String,
    /// The ids of the answered calls.
    pub(super) given: Vec<String>,
}

impl Live {
    /// Stores a checkpoint. If it came too early to include the host's latest results, it covers
    /// the history before them, and they are sent again if the run is lost.
    pub(super) fn checkpoint(&mut self, saved: Checkpoint) {
        self.on_disk = OnDisk::Stale;
        self.steering.checkpoint();
        if let Ok(Some(occupancy)) = occupancy(&saved.state) {
            self.occupancy = Some(occupancy);
        }
        let settled = saved.settled.iter().map(What::to_string);
        self.settled.extend(settled);
        self.conversation.state = Some(saved.state);
        let lacks = |round: &Round| round.given.iter().any(|id| saved.lacks.contains(id));
        let unknown = self.rounds.iter().position(lacks);
        self.rounds.drain(..unknown.unwrap_or(self.rounds.len()));
        // Go back from the latest text to the part of the answer the checkpoint includes.
        let (mut sent, mut answer) = (&self.covers, self.answer.as_str());
        let mut behind = saved.behind.as_str();
        for round in self.rounds.iter().rev() {
            behind = behind.strip_suffix(answer).unwrap_or_default();
            (sent, answer) = (&round.covers, &round.answer);
        }
        self.conversation.sent = Some(sent.clone());
        self.conversation.answer = Some(known(answer, behind).to_owned());
    }

    /// Reports the context size of the newest checkpoint, which may have arrived while the host was
    /// away.
    pub(super) fn count(&self, tally: &mut Tally) {
        if let Some(occupancy) = &self.occupancy {
            tally.seen.occupied = Some(occupancy.used.into());
            tally.window = Some(occupancy.limit).filter(|limit| *limit > 0);
        }
    }
}

/// Returns the part of `answer` that a checkpoint includes, without the suffix `behind` that came
/// after the checkpoint. `behind` may start before `answer`.
fn known<'a>(answer: &'a str, behind: &str) -> &'a str {
    match answer.strip_suffix(behind) {
        Some(known) => known,
        None if behind.ends_with(answer) => "",
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn the_known_answer_ends_where_the_text_after_the_checkpoint_starts() {
        assert_eq!(known("one two", ""), "one two");
        assert_eq!(known("one two", " two"), "one");
        assert_eq!(known(" two", "one two"), "");
        assert_eq!(known("one two", "three"), "one two");
    }
}
