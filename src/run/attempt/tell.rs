//! What the consumer is told, and in which order.

use tokio::sync::mpsc;

use super::Attempt;
use crate::run::event::RunEvent;

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
        // A newer state replaces one that nobody has taken yet.
        if let (RunEvent::Checkpoint(_), Some(last @ RunEvent::Checkpoint(_))) =
            (&event, self.pending.back_mut())
        {
            *last = event;
            return;
        }
        if self.pending.is_empty() {
            match self.around.events.try_send(event) {
                Err(mpsc::error::TrySendError::Full(event)) => self.pending.push_back(event),
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            }
        } else {
            self.pending.push_back(event);
        }
    }
}
