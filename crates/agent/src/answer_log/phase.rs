//! The phases of a piece of text and the only transitions between them.

/// How far a piece of text has come, from the stream until a checkpoint includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SegmentPhase {
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
pub(crate) enum SegmentEvent {
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
pub(super) const TRANSITIONS: &[(SegmentPhase, SegmentEvent, SegmentPhase)] = {
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

#[test]
fn the_diagram_of_a_piece_of_text_has_exactly_these_transitions() {
    crate::phases::assert_diagram("A piece of text", TRANSITIONS);
}
