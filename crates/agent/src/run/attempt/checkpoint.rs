//! Checkpoints: which are accepted, and what they are taken to include.

use bytes::Bytes;

use super::Attempt;
use crate::effect_log::EffectDigest;
use crate::run::event::{Checkpoint, RunEvent};
use cursor_proto::agent::v1::{ContextInjectionStateUpdate, context_injection_state};
use cursor_proto::state;

impl Attempt<'_> {
    /// Handles a checkpoint from the server.
    pub(super) fn checkpoint(&mut self, state: &Bytes) {
        self.stats.checkpoint(state.len());
        // A checkpoint that cannot be resumed must not replace one that can.
        if let Err(unusable) = state::check(state) {
            self.context.drift.count(format!("checkpoint: {unusable}"));
            return;
        }
        self.turn_ended = self.turn_ended.map(|_| self.last_inbound);
        self.liveness_counts_until = None;
        // A copy, because the state is kept and the network buffer it arrived in should not be.
        let state = Bytes::copy_from_slice(state);
        let contents = self.reader.read(&state, self.context.blobs);
        let saved = self.context.effects.checkpoint(&contents);
        self.release_all();
        self.context.answer.checkpoint();
        let checkpoint = self.describe(state.clone(), contents.messages, saved);
        (self.checkpoint, self.has_text) = (Some(state), false);
        self.emit(RunEvent::Checkpoint(checkpoint));
        self.is_confirmed = self.turn_ended.is_some();
        // This may be the last checkpoint, so shorten the wait. One that arrives before the
        // cancellation was sent is not.
        if let (Some(until), 0) = (self.cancel_deadline, self.unsent_until_cancel) {
            let soon = self.last_inbound + self.context.timing.final_checkpoint_grace;
            self.cancel_deadline = Some(until.min(soon));
        }
    }

    /// Emits the last checkpoint of a finished stream again, if the end of the turn proves that it
    /// includes more than was certain when it arrived.
    pub(super) fn confirm_checkpoint(&mut self) {
        if let (Some(state), false) = (self.checkpoint.clone(), self.is_confirmed) {
            let checkpoint = self.describe(state, Vec::new(), Vec::new());
            self.emit(RunEvent::Checkpoint(checkpoint));
        }
    }

    fn describe(
        &self,
        state: Bytes,
        messages: Vec<String>,
        saved: Vec<EffectDigest>,
    ) -> Checkpoint {
        Checkpoint {
            lacks: self.context.effects.lacks(),
            state,
            unacknowledged: self.context.answer.text.unacknowledged(),
            messages,
            saved,
        }
    }

    /// Records what an update says about results sent earlier: the server has received them if it
    /// continues.
    pub(super) fn note_received(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Text(text) | RunEvent::Thinking(text) if text.is_empty() => {}
            RunEvent::Text(_) | RunEvent::Thinking(_) => self.context.effects.model_progressed(),
            // A turn that was cancelled ends without an answer, so its end proves nothing.
            RunEvent::TurnEnded(_) if self.cancel_deadline.is_none() => {
                self.context.effects.turn_ended();
            }
            // The model reads a message after the results that were sent before it. That a message
            // was queued or rejected says nothing about the model.
            RunEvent::Injection(report) if is_delivered(report) => {
                self.context.effects.model_progressed();
            }
            RunEvent::ToolCompleted(completed) => {
                self.context.effects.completed(&completed.call_id);
            }
            _ => {}
        }
    }
}

fn is_delivered(report: &ContextInjectionStateUpdate) -> bool {
    let state = report.state.as_ref().and_then(|state| state.state.as_ref());
    matches!(state, Some(context_injection_state::State::Delivered(_)))
}
