//! Events of a run that wait for a slow consumer, or for a host that is away.

use std::collections::VecDeque;

use super::event::RunEvent;
use super::queue::{QueueBounds, Weighed as _};

/// Events in order, with their sizes. One may exceed the bounds, because a message is handled as a
/// whole: whoever adds events stops when [`Self::is_full`].
pub(crate) struct PendingEvents {
    bounds: QueueBounds,
    events: VecDeque<(usize, RunEvent)>,
    bytes: usize,
}

impl PendingEvents {
    pub(crate) fn new(bounds: QueueBounds) -> Self {
        Self {
            bounds,
            events: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns whether nothing more should be read until some events are removed.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.bounds.items || self.bytes >= self.bounds.bytes as usize
    }

    /// Returns the events in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &RunEvent> {
        self.events.iter().map(|(_, event)| event)
    }

    /// Appends an event. A checkpoint replaces the last queued event if that is a checkpoint too.
    pub(crate) fn push(&mut self, event: RunEvent) {
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

    /// Puts an event before the others.
    pub(crate) fn push_front(&mut self, event: RunEvent) {
        let bytes = event.bytes();
        self.bytes += bytes;
        self.events.push_front((bytes, event));
    }

    /// Removes the events that `is_kept` does not accept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&RunEvent) -> bool) {
        self.events.retain(|(_, event)| is_kept(event));
        self.bytes = self.events.iter().map(|(bytes, _)| bytes).sum();
    }

    /// Returns the size of the first event.
    pub(super) fn first_bytes(&self) -> usize {
        self.events.front().map_or(0, |(bytes, _)| *bytes)
    }

    /// Removes and returns the first event.
    pub(crate) fn pop(&mut self) -> Option<RunEvent> {
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

    const MAX_EVENTS: usize = 1024;
    const MAX_BYTES: usize = 1024 * 1024;

    fn pending() -> PendingEvents {
        PendingEvents::new(QueueBounds {
            items: MAX_EVENTS,
            bytes: MAX_BYTES as u32,
        })
    }

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
        let mut pending = pending();
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
        let mut pending = pending();
        for bytes in [MAX_BYTES, 10] {
            pending.push(checkpoint(bytes));
        }
        assert!(!pending.is_full());
        let Some(RunEvent::Checkpoint(last)) = pending.pop() else {
            panic!("no checkpoint");
        };
        assert_eq!((last.state.len(), pending.is_empty()), (10, true));
    }

    /// Regression: calls that were cancelled while the host was away still counted, until nothing
    /// of the run was read any more.
    #[test]
    fn events_that_are_removed_or_put_back_are_counted() {
        let mut pending = pending();
        let call = || RunEvent::Thinking("x".repeat(MAX_BYTES / 4));
        for _ in 0..10 {
            pending.push(call());
            pending.retain(|event| !matches!(event, RunEvent::Thinking(_)));
        }
        assert_eq!((pending.bytes, pending.is_full()), (0, false));
        for _ in 0..4 {
            pending.push_front(call());
        }
        assert!(pending.is_full());
        while pending.pop().is_some() {}
        assert_eq!(pending.bytes, 0);
    }
}
