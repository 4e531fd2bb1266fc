//! What the consumer is told, and in which order.

use super::Attempt;
use crate::run::event::RunEvent;
use crate::run::limits::{MAX_PIECE, pieces};
use crate::run::queue::Weighed as _;

impl Attempt<'_> {
    pub(super) fn tell(&mut self, event: RunEvent) {
        self.release(&event);
        self.pass_on(event);
    }

    /// Words that were held back come before whatever they cannot be held back behind.
    fn release(&mut self, before: &RunEvent) {
        match before {
            RunEvent::Other(_) => {}
            RunEvent::Thinking(_) => self.release_text(),
            RunEvent::Text(_) | RunEvent::ThinkingDone => self.release_thinking(),
            _ => self.release_all(),
        }
    }

    /// Nothing comes that they could be held back for.
    pub(super) fn release_all(&mut self) {
        self.release_thinking();
        self.release_text();
    }

    fn release_thinking(&mut self) {
        let thinking = self.around.overlap.thinking.release();
        if !thinking.is_empty() {
            self.pass_on(RunEvent::Thinking(thinking));
        }
    }

    fn release_text(&mut self) {
        let text = self.around.overlap.text.release();
        if !text.is_empty() {
            self.pass_on(RunEvent::Text(text));
        }
    }

    /// Straight to the consumer if it keeps up, else into the queue. Of a run that was given
    /// up, only its state is still of interest, and the words that state knows.
    fn pass_on(&mut self, event: RunEvent) {
        let of_interest = matches!(event, RunEvent::Checkpoint(_) | RunEvent::Text(_));
        if self.leaving.is_some() && !of_interest {
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
        if self.pending.is_empty()
            && let Some(room) = self.around.events.try_reserve(event.bytes())
        {
            room.put(event);
        } else {
            self.pending.push(event);
        }
    }
}
