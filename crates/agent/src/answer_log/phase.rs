//! The phases of a piece of text and the only transitions between them.

/// How far a piece of text has come, from the stream until a checkpoint includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentPhase {
    /// Received, and not shown yet because it may repeat what was shown.
    Held,
    /// Shown by an earlier stream; the current one has not repeated it.
    Shown,
    /// Shown, and generated or repeated by the current stream.
    Covered,
    /// The newest checkpoint includes it, unless that was written earlier than it arrived.
    LastCheckpoint,
    /// A checkpoint includes it.
    InCheckpoint,
}

/// What happens to a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentEvent {
    /// The stream generates text that was not shown: it is shown now, after what was shown before.
    Difference,
    /// The stream repeats it.
    Repetition,
    /// A checkpoint arrives.
    Checkpoint,
    /// The stream is lost; the next one starts from the newest checkpoint.
    StreamLoss,
}

/// All transitions. What is not listed leaves the phase as it is; held text that turns out to be a
/// repetition is dropped.
pub const TRANSITIONS: &[(SegmentPhase, SegmentEvent, SegmentPhase)] = {
    use SegmentEvent::*;
    use SegmentPhase::*;
    &[
        (Held, Difference, Covered),
        (Shown, Difference, Covered),
        (Shown, Repetition, Covered),
        (Covered, StreamLoss, Shown),
        (Covered, Checkpoint, LastCheckpoint),
        (LastCheckpoint, Repetition, Covered),
        (LastCheckpoint, Checkpoint, InCheckpoint),
    ]
};

/// Returns the phase after an event; `None` if the event does not change it.
pub fn next(phase: SegmentPhase, event: SegmentEvent) -> Option<SegmentPhase> {
    let mut transitions = TRANSITIONS.iter();
    let found = transitions.find(|(from, by, _)| (*from, *by) == (phase, event));
    found.map(|(_, _, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_of_a_piece_of_text_has_exactly_these_transitions() {
        let named = |(from, by, to): &(SegmentPhase, SegmentEvent, SegmentPhase)| {
            (format!("{from:?}"), format!("{by:?}"), format!("{to:?}"))
        };
        let mut expected: Vec<_> = TRANSITIONS.iter().map(named).collect();
        expected.sort();
        assert_eq!(crate::diagram::transitions("A piece of text"), expected);
    }
}
