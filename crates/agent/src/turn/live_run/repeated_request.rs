//! A host that repeats the request of a parked turn, because it did not receive the answer: it is
//! sent the same text and the same calls again, and the run waits on.

use serde_json::Value as Json;

use super::LiveRun;
use crate::conversation::fingerprint::Fingerprint;
use crate::message::Message;
use crate::turn::request::TurnEvent;

/// A call or card as the host was sent it.
#[derive(Debug)]
struct ParkedCall {
    id: String,
    name: String,
    arguments: Json,
}

/// The answer of a turn that was parked.
#[derive(Debug, Default)]
pub(super) struct ParkedAnswer {
    /// The calls and cards at its end.
    calls: Vec<ParkedCall>,
    /// Its text, if the answer is to be sent again.
    pub(super) repeated: Option<String>,
}

impl ParkedAnswer {
    /// Records the calls that are sent to the host.
    pub(super) fn record(&mut self, offering: &[TurnEvent]) {
        let call = |event: &TurnEvent| match event {
            TurnEvent::ToolCall {
                id,
                name,
                arguments,
            } => Some(ParkedCall {
                id: id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
            }),
            _ => None,
        };
        self.calls = offering.iter().filter_map(call).collect();
    }
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
        let calls = std::mem::take(&mut self.parked.calls);
        let open = calls.into_iter().filter(|call| self.waits(&call.id));
        let events = open.map(|call| TurnEvent::ToolCall {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        });
        self.offering = events.collect();
        self.parked.repeated = Some(self.answer.shown(&waiting).to_owned());
        tracing::debug!(calls = self.offering.len(), "turn.repeated");
    }
}
