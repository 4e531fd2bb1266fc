//! Which history a state stands for.

use super::{Live, OnDisk};
use crate::conversation::fingerprint::Fingerprint;
use crate::run::{Checkpoint, What};
use crate::turn::tally::Tally;
use crate::wire::state::occupancy;

/// Results the host brought, and what a state stands for that does not know them.
#[derive(Debug)]
pub(super) struct Round {
    /// The history before them.
    pub(super) covers: Fingerprint,
    /// The answer to it.
    pub(super) answer: String,
    /// The calls that were answered.
    pub(super) given: Vec<String>,
}

impl Live {
    /// Takes a state. One that came too early to know the host's last results stands for the
    /// history before them: they are told again if the run is lost.
    pub(super) fn checkpoint(&mut self, saved: Checkpoint) {
        self.on_disk = OnDisk::Stale;
        self.steering.known();
        if let Ok(Some(occupancy)) = occupancy(&saved.state) {
            self.occupancy = Some(occupancy);
        }
        let settled = saved.settled.iter().map(What::to_string);
        self.settled.extend(settled);
        self.conversation.state = Some(saved.state);
        let lacks = |round: &Round| round.given.iter().any(|id| saved.lacks.contains(id));
        let unknown = self.rounds.iter().position(lacks);
        self.rounds.drain(..unknown.unwrap_or(self.rounds.len()));
        // From the last words back, as far as it does not know them.
        let (mut sent, mut answer) = (&self.covers, self.heard.as_str());
        let mut behind = saved.behind.as_str();
        for round in self.rounds.iter().rev() {
            behind = behind.strip_suffix(answer).unwrap_or_default();
            (sent, answer) = (&round.covers, &round.answer);
        }
        self.conversation.sent = Some(sent.clone());
        self.conversation.answer = Some(known(answer, behind).to_owned());
    }

    /// Counts what the context holds by the newest state, which may have come while the host
    /// was away.
    pub(super) fn count(&self, tally: &mut Tally) {
        if let Some(occupancy) = &self.occupancy {
            tally.seen.occupied = Some(occupancy.used.into());
            tally.window = Some(occupancy.limit).filter(|limit| *limit > 0);
        }
    }
}

/// What is known of an answer that ends with words that are not; they may begin before it.
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
    fn an_answer_is_known_up_to_the_words_behind_its_state() {
        assert_eq!(known("one two", ""), "one two");
        assert_eq!(known("one two", " two"), "one");
        assert_eq!(known(" two", "one two"), "");
        assert_eq!(known("one two", "three"), "one two");
    }
}
