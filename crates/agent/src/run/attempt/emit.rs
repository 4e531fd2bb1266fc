//! Emits events to the consumer, in order.

use super::Attempt;
use crate::run::event::RunEvent;
use crate::run::limits::{MAX_PIECE, pieces};
use crate::run::queue::Weighed as _;
use tokio::time::Instant;

impl Attempt<'_> {
    /// Emits an event, after any held back text that must precede it.
    pub(super) fn emit(&mut self, event: RunEvent) {
        self.release(&event);
        self.deliver_or_queue(event);
    }

    /// Releases the text that was held back and must be shown before this event.
    fn release(&mut self, before: &RunEvent) {
        match before {
            RunEvent::Other(_) => {}
            RunEvent::Thinking(_) => self.release_text(),
            RunEvent::Text(_) | RunEvent::ThinkingDone => self.release_thinking(),
            _ => self.release_all(),
        }
    }

    /// Releases all text that was held back.
    pub(super) fn release_all(&mut self) {
        self.release_thinking();
        self.release_text();
    }

    fn release_thinking(&mut self) {
        let thinking = self.context.answer.thinking.release();
        if !thinking.is_empty() {
            self.deliver_or_queue(RunEvent::Thinking(thinking));
        }
    }

    fn release_text(&mut self) {
        let text = self.context.answer.text.release();
        if !text.is_empty() {
            self.deliver_or_queue(RunEvent::Text(text));
        }
    }

    /// Delivers an event directly if the consumer keeps up, and queues it otherwise. Of a
    /// cancelled run only checkpoints are needed, and the text that they include.
    fn deliver_or_queue(&mut self, event: RunEvent) {
        let needed = matches!(event, RunEvent::Checkpoint(_) | RunEvent::Text(_));
        if self.cancel_deadline.is_some() && !needed {
            return;
        }
        match event {
            RunEvent::Text(text) if text.len() > MAX_PIECE => {
                pieces(&text).for_each(|piece| self.queue(RunEvent::Text(piece.to_owned())));
            }
            RunEvent::Thinking(text) if text.len() > MAX_PIECE => {
                pieces(&text).for_each(|piece| self.queue(RunEvent::Thinking(piece.to_owned())));
            }
            event => self.queue(event),
        }
    }

    fn queue(&mut self, event: RunEvent) {
        self.batch.record(&event, Instant::now());
        if self.pending.is_empty()
            && let Some(room) = self.context.events.try_reserve(event.bytes())
        {
            room.put(event);
        } else {
            self.pending.push(event);
        }
    }
}
