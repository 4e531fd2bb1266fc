//! Which history a checkpoint covers.

use super::{LiveRun, OnDisk};
use crate::conversation::fingerprint::Fingerprint;
use crate::run::Checkpoint;
use crate::turn::turn_progress::TurnProgress;
use cursor_proto::state::occupancy;

/// A part of the answer that the host has received, and the history it answers. The newest part is
/// in [`LiveRun::covers`] and [`LiveRun::answer`].
#[derive(Debug)]
pub(super) struct ResultBatch {
    /// The history before what the host returned.
    pub(super) covers: Fingerprint,
    /// The answer to that history.
    pub(super) answer: String,
    /// The ids of the calls that the host returned results for; empty if it returned only cards.
    pub(super) given: Vec<String>,
}

impl LiveRun {
    /// Stores a checkpoint. It covers the newest history of which it includes all results and all
    /// text: what it lacks is sent again if the run is lost.
    pub(super) fn checkpoint(&mut self, saved: Checkpoint) {
        self.on_disk = OnDisk::Stale;
        self.inbox.checkpoint();
        if let Ok(Some(occupancy)) = occupancy(&saved.state) {
            self.occupancy = Some(occupancy);
        }
        self.saved.extend(saved.saved);
        self.conversation.state = Some(saved.state);
        let lacks = |round: &ResultBatch| round.given.iter().any(|id| saved.lacks.contains(id));
        let lacking = self.rounds.iter().position(lacks);
        let mut at = self.rounds.len();
        let mut behind = saved.behind.as_str();
        // Go back from the latest text to the part of the answer the checkpoint includes.
        while lacking.is_some_and(|lacking| at > lacking)
            || (at > 0 && goes_back(self.answer_at(at), behind))
        {
            behind = behind.strip_suffix(self.answer_at(at)).unwrap_or_default();
            at -= 1;
        }
        let answer = known(self.answer_at(at), behind).to_owned();
        let sent = self
            .rounds
            .get(at)
            .map_or(&self.covers, |round| &round.covers);
        self.conversation.sent = Some(sent.clone());
        self.conversation.answer = Some(answer);
        self.rounds.drain(..at);
    }

    /// Returns whether the checkpoint is of this answer and lacks text of it, but no results.
    pub(super) fn lacks_only_text(&self) -> bool {
        let first = self.rounds.first();
        first.is_some_and(|first| self.conversation.sent.as_ref() == Some(&first.covers))
            && self.rounds.iter().all(|round| round.given.is_empty())
    }

    /// Returns the part of the answer with that number, the newest one last.
    fn answer_at(&self, at: usize) -> &str {
        self.rounds
            .get(at)
            .map_or(&self.answer, |round| &round.answer)
    }

    /// Reports the context size of the newest checkpoint, which may have arrived while the host was
    /// away.
    pub(super) fn count(&self, tally: &mut TurnProgress) {
        if let Some(occupancy) = &self.occupancy {
            tally.seen.occupied = Some(occupancy.used.into());
            tally.window = Some(occupancy.limit).filter(|limit| *limit > 0);
        }
    }
}

/// Returns whether `behind`, the text after a checkpoint, starts before `answer`.
fn goes_back(answer: &str, behind: &str) -> bool {
    behind.len() > answer.len() && behind.ends_with(answer)
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
    use super::{goes_back, known};

    #[test]
    fn the_known_answer_ends_where_the_text_after_the_checkpoint_starts() {
        assert_eq!(known("one two", ""), "one two");
        assert_eq!(known("one two", " two"), "one");
        assert_eq!(known(" two", "one two"), "");
        assert_eq!(known("one two", "three"), "one two");
        assert!(goes_back(" two", "one two") && goes_back("", "one"));
        assert!(!goes_back("one two", " two") && !goes_back("one", "one") && !goes_back("", ""));
    }
}
