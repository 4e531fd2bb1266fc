//! Calls and cards for the host: collected until everything that arrived together is read, written
//! to disk, and then shown.

use super::{LiveRun, Pause};
use crate::conversation::journal::{PausedTurn, PendingCall};
use crate::conversation::lost_turn::TurnStart;
use crate::conversation::recovery::UnixMillis;
use crate::message::ToolCall;
use crate::run::{Ended, Outcome, RunEvent};
use crate::turn::activity_display::{self, Surface, is_card};
use crate::turn::channels::OpenTurn;
use crate::turn::recover::SessionKey;
use crate::turn::request::{HostToolMode, TurnEvent};
use crate::turn::turn_progress::{TurnProgress, send_event};
use agent_tools::bridge::HostCall;

/// What a turn offers to the host at its end: either calls of host tools or cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingBatch {
    Nothing,
    Calls,
    Cards,
}

impl LiveRun {
    pub(super) fn batch(&self) -> PendingBatch {
        match self.offering.first() {
            None => PendingBatch::Nothing,
            Some(call) if is_card(&call.id) => PendingBatch::Cards,
            Some(_) => PendingBatch::Calls,
        }
    }

    /// Offers a call to the host, together with the others of its batch.
    pub(super) async fn offer(&mut self, call: HostCall, request: &OpenTurn) {
        if call.is_void() {
            return;
        }
        if self.inbox.is_released() {
            // If it were shown now, the host would execute it for a cancelled run.
            self.open.push(call);
            return;
        }
        if request.tool_mode == HostToolMode::Inline {
            return request.call_host(call).await;
        }
        self.offering.push(ToolCall {
            id: call.id.clone(),
            name: call.tool.clone(),
            arguments: call.arguments.clone(),
        });
        self.open.push(call);
    }

    /// Records that the turn waits for the host. Must be saved before the host is shown the calls.
    pub(in crate::turn) fn pause(&mut self, place: TurnStart, key: &SessionKey, now: UnixMillis) {
        let calls: Vec<PendingCall> = self
            .offering
            .iter()
            .map(|call| PendingCall {
                id: call.id.clone(),
                tool: call.name.clone(),
                cursor: self.cursor_call_id(&call.id),
            })
            .collect();
        let earlier = match self.conversation.pause.take() {
            Some(last) if (last.turns, &last.history) == (place.turns, &place.history) => {
                // The same calls if the host repeats its request.
                if last.calls == calls {
                    last.earlier
                } else {
                    [last.earlier, last.calls].concat()
                }
            }
            _ => Vec::new(),
        };
        self.key = key.prefix().to_owned();
        tracing::debug!(
            bridgeKeyPrefix = key.prefix(),
            calls = calls.len(),
            hasCheckpoint = self.conversation.sent.as_ref() == Some(self.answer.history()),
            "native.stream.tool_call_snapshot_saved"
        );
        self.conversation.pause = Some(PausedTurn {
            calls,
            earlier,
            turns: place.turns,
            history: place.history,
            recorded_at: now.0,
            session: key.name().map(str::to_owned),
        });
        self.is_saved = false;
    }

    fn cursor_call_id(&self, id: &str) -> Option<String> {
        let call = self.open.iter().find(|call| call.id == id)?;
        call.cursor.clone()
    }

    /// Sends the collected calls and cards to the host.
    pub(in crate::turn) async fn present(
        &mut self,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) {
        self.parked.calls = std::mem::take(&mut self.offering);
        for call in &self.parked.calls {
            send_event(TurnEvent::ToolCall(call.clone()), request, progress).await;
        }
    }

    /// Returns whether a finished run leaves open calls that this turn has offered.
    pub(super) fn leaves_calls(&self, ended: &Ended) -> bool {
        ended.outcome == Outcome::Finished
            && self.batch() == PendingBatch::Calls
            && self.open.iter().any(|call| !call.is_void())
    }

    /// Shows native tool activity. Cards and calls never share a turn.
    pub(super) async fn activity(
        &mut self,
        event: RunEvent,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> Option<Pause> {
        let surface = match request.tool_mode {
            HostToolMode::Between => &request.surface,
            // A card ends the turn, which an inline host does not expect.
            HostToolMode::Inline => &Surface::Text,
        };
        let completed = matches!(event, RunEvent::ToolCompleted(_));
        if self.batch() == PendingBatch::Calls && completed && *surface != Surface::Text {
            self.waiting.push_front(event);
            return Some(Pause::ToolUse);
        }
        match self.show.take(&event, surface) {
            activity_display::Shown::Nothing => {}
            activity_display::Shown::Lines(lines) if self.batch() == PendingBatch::Nothing => {
                for line in lines {
                    send_event(line, request, progress).await;
                }
            }
            activity_display::Shown::Lines(lines) => self.later.extend(lines),
            activity_display::Shown::Card(call) => self.offering.push(call),
        }
        None
    }
}
