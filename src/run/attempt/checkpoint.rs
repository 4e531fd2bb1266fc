//! States of the conversation: which are taken, and what they are taken to know.

use bytes::Bytes;

use super::Attempt;
use crate::run::event::{Checkpoint, RunEvent};
use crate::run::retry::{Progress, Shown};
use crate::wire::state;

impl Attempt<'_> {
    pub(super) fn checkpoint(&mut self, state: &Bytes) {
        self.tally.checkpoint(state.len());
        // One that nothing can go on from must not replace one that something can.
        if let Err(unusable) = state::check(state) {
            self.around.drift.count(format!("checkpoint: {unusable}"));
            return;
        }
        self.turn_ended = self.turn_ended.map(|_| self.last_inbound);
        self.beats_until = None;
        // A copy: the state is kept, the network buffer it came in should not be.
        let state = Bytes::copy_from_slice(state);
        self.around.owed.checkpoint(&state::pending(&state));
        let settled = self.around.memo.checkpoint();
        self.release_all();
        self.around.overlap.checkpoint();
        let event = RunEvent::Checkpoint(Checkpoint {
            lacks: self.around.owed.unknown(),
            state: state.clone(),
            behind: self.around.overlap.text.behind().to_owned(),
            settled,
        });
        // A state that does not know a tool's result asks for it a second time, which is fine
        // where it is on record.
        let memo = &*self.around.memo;
        let shown = match self.around.owed.is_settled(|call| memo.holds(call)) {
            true => Shown::Nothing,
            false => Shown::Called,
        };
        self.progress = Progress {
            checkpoint: Some(state),
            shown,
        };
        self.tell(event);
        // Perhaps its last. One that was on its way when the server was told is not.
        if let (Some(until), 0) = (self.leaving, self.untold) {
            let soon = self.last_inbound + self.around.timing.farewell;
            self.leaving = Some(until.min(soon));
        }
    }

    /// What an update says of results the server was given: it has them, once it goes on.
    pub(super) fn heard(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Text(said) | RunEvent::Thinking(said) if said.is_empty() => {}
            // A report on words that followed a result has come past it too.
            RunEvent::Text(_)
            | RunEvent::Thinking(_)
            | RunEvent::Injection(_)
            | RunEvent::TurnEnded(_) => {
                self.around.owed.spoken();
                self.around.memo.worked();
            }
            RunEvent::ToolCompleted(completed) => {
                self.around.owed.completed(&completed.call_id);
                self.around.memo.worked();
            }
            _ => {}
        }
    }
}
