//! Events queued for a slow consumer, bounded in number and in bytes.

use std::collections::VecDeque;

use crate::run::event::RunEvent;
use crate::run::queue::Weighed as _;

/// Events that may be queued before the stream is no longer read.
const MAX_EVENTS: usize = 1024;
/// Bytes of queued events. One message may exceed it, because a message is handled as a whole.
const MAX_BYTES: usize = 1024 * 1024;

/// Events in order, with their sizes.
#[derive(Default)]
pub(super) struct PendingEvents {
    events: VecDeque<(usize, RunEvent)>,
    bytes: usize,
}

impl PendingEvents {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns whether the stream should not be read until the consumer has taken some events.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= MAX_EVENTS || self.bytes >= MAX_BYTES
    }

    /// Appends an event. A checkpoint replaces the last queued event if that is a checkpoint too.
    pub(super) fn push(&mut self, event: RunEvent) {
        if let (RunEvent::Checkpoint(_), Some((_, RunEvent::Checkpoint(_)))) =
            (&event, self.events.back())
            && let Some((bytes, _)) = self.events.pop_back()
        {
            self.bytes -= bytes;
        }
        let bytes = event.bytes();
        self.bytes += bytes;
        self.events.push_back((bytes, event));
    }

    /// Returns the size of the first event.
    pub(super) fn first_bytes(&self) -> usize {
        self.events.front().map_or(0, |(bytes, _)| *bytes)
    }

    /// Removes and returns the first event.
    pub(super) fn pop(&mut self) -> Option<RunEvent> {
        let (bytes, event) = self.events.pop_front()?;
        self.bytes -= bytes;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::event::Checkpoint;
    use bytes::Bytes;

    fn checkpoint(bytes: usize) -> RunEvent {
        RunEvent::Checkpoint(Checkpoint {
            state: Bytes::from(vec![0; bytes]),
            lacks: Vec::new(),
            unacknowledged: String::new(),
            messages: Vec::new(),
            saved: Vec::new(),
        })
    }

    #[test]
    fn is_full_after_few_large_or_many_small_events() {
        let mut pending = PendingEvents::default();
        for _ in 0..MAX_EVENTS {
            assert!(!pending.is_full());
            pending.push(RunEvent::Text("x".into()));
        }
        assert!(pending.is_full());
        while pending.pop().is_some() {}
        assert_eq!(pending.bytes, 0);
        let half = "x".repeat(MAX_BYTES / 2);
        pending.push(RunEvent::Thinking(half.clone()));
        assert!(!pending.is_full());
        pending.push(RunEvent::Text(half));
        assert!(pending.is_full());
    }

    #[test]
    fn a_checkpoint_replaces_a_queued_checkpoint_and_its_bytes() {
        let mut pending = PendingEvents::default();
        for bytes in [MAX_BYTES, 10] {
            pending.push(checkpoint(bytes));
        }
        assert!(!pending.is_full());
        let Some(RunEvent::Checkpoint(last)) = pending.pop() else {
            panic!("no checkpoint");
        };
        assert_eq!((last.state.len(), pending.is_empty()), (10, true));
    }
}
