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
        let (sent, answer) = match self.rounds.first() {
            Some(round) => (&round.covers, &round.answer),
            None => (&self.covers, &self.heard),
        };
        self.conversation.sent = Some(sent.clone());
        self.conversation.answer = Some(answer.clone());
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
