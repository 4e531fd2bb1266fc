//! States of the conversation: which are taken, and what they are taken to know.

use bytes::Bytes;

use super::Attempt;
use crate::run::event::RunEvent;
use crate::run::retry::{Progress, Shown};
use crate::wire::state;

impl Attempt<'_> {
    pub(super) fn checkpoint(&mut self, state: &Bytes) {
        self.tally.checkpoint(state.len());
        self.turn_ended = self.turn_ended.map(|_| self.last_inbound);
        // One that nothing can go on from must not replace one that something can.
        if let Err(unusable) = state::check(state) {
            self.around.drift.count(format!("checkpoint: {unusable}"));
            return;
        }
        // A copy: the state is kept, the network buffer it came in should not be.
        let state = Bytes::copy_from_slice(state);
        // A state from while a tool runs does not know of its result: the server would ask
        // for it a second time.
        self.progress = Progress {
            checkpoint: Some(state.clone()),
            shown: self.under_way(),
        };
        self.around.overlap.checkpoint();
        self.around.memo.checkpoint();
        self.tell(RunEvent::Checkpoint(state));
        // Perhaps its last. One that was on its way when the server was told is not.
        if let (Some(until), 0) = (self.leaving, self.untold) {
            let soon = self.last_inbound + self.around.timing.farewell;
            self.leaving = Some(until.min(soon));
        }
    }

    /// What is at work here that a state from now does not know the end of.
    fn under_way(&self) -> Shown {
        match self.questions.is_empty() && self.changing.is_empty() {
            true => Shown::Nothing,
            false => Shown::Called,
        }
    }
}
