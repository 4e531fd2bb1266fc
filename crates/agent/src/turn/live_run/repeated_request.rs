//! A host that repeats the request of a parked turn, because it did not receive the answer: it is
//! sent the same text and the same calls again, and the run waits on.

use super::LiveRun;
use crate::conversation::fingerprint::Fingerprint;
use crate::message::{Message, ToolCall};

/// The answer of a turn that was parked.
#[derive(Debug, Default)]
pub(super) struct ParkedAnswer {
    /// The calls and cards at its end, as the host was sent them.
    pub(super) calls: Vec<ToolCall>,
    /// Its text, if the answer is to be sent again.
    pub(super) repeated: Option<String>,
}

impl LiveRun {
    /// Returns whether a history is the one that the parked turn has answered.
    pub(in crate::turn) fn is_repeated(&self, system: &str, messages: &[Message]) -> bool {
        let is_parked = !self.open.is_empty() || !self.show.open.is_empty();
        is_parked && Fingerprint::of(system, messages) == *self.answer.history()
    }

    /// Sends the answer of the parked turn again when the run is driven next.
    pub(in crate::turn) fn repeat(&mut self) {
        let waiting = self.waiting_text();
        let mut calls = std::mem::take(&mut self.parked.calls);
        calls.retain(|call| self.waits(&call.id));
        self.offering = calls;
        self.parked.repeated = Some(self.answer.shown(&waiting).to_owned());
        tracing::debug!(calls = self.offering.len(), "turn.repeated");
    }
}
