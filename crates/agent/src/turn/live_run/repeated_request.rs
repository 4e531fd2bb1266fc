//! A host that repeats the request of a parked turn, because it did not receive the answer: it is
//! sent the same text and the same calls again, and the run waits on.

use super::LiveRun;
use crate::conversation::fingerprint::Fingerprint;
use crate::message::Message;
use crate::run::RunEvent;
use crate::turn::request::TurnEvent;

/// The answer of a turn that was parked.
#[derive(Debug, Default)]
pub(super) struct ParkedAnswer {
    /// The calls and cards at its end.
    pub(super) calls: Vec<TurnEvent>,
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
        let waiting = self.waiting.iter().filter_map(|event| match event {
            RunEvent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let waiting: String = waiting.collect();
        let calls = std::mem::take(&mut self.parked.calls);
        let is_open =
            |event: &TurnEvent| matches!(event, TurnEvent::ToolCall { id, .. } if self.waits(id));
        self.offering = calls.into_iter().filter(is_open).collect();
        self.parked.repeated = Some(self.answer.shown(&waiting).to_owned());
        tracing::debug!(calls = self.offering.len(), "turn.repeated");
    }
}
