//! The phases of a user message and the only transitions between them.

/// How far a user message has come, from its arrival until a checkpoint includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MessagePhase {
    /// Accepted from the host, and sent to no run.
    Waiting,
    /// Sent to the run, which has not reported on it.
    Injected,
    /// The run has put it in its queue.
    Queued,
    /// The model has it, but no checkpoint includes it.
    Delivered,
    /// One checkpoint has arrived since: it may be older than the delivery.
    MaybeInCheckpoint,
    /// A checkpoint includes it.
    InCheckpoint,
}

/// What happens to a user message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageEvent {
    /// It is injected into a run.
    Injection,
    /// The run reports that it is queued.
    QueueReport,
    /// The run reports that the model has it, or the run starts with it.
    Delivery,
    /// A checkpoint arrives.
    Checkpoint,
    /// A checkpoint arrives that names it.
    CheckpointWith,
    /// The stream is lost, and the next one is sent it again.
    StreamLoss,
    /// The run is over.
    RunLoss,
}

/// All transitions. What is not listed leaves the phase as it is.
pub(super) const TRANSITIONS: &[(MessagePhase, MessageEvent, MessagePhase)] = {
    use MessageEvent::*;
    use MessagePhase::*;
    &[
        (Waiting, Injection, Injected),
        (Waiting, Delivery, Delivered),
        (Injected, QueueReport, Queued),
        (Injected, Delivery, Delivered),
        (Injected, RunLoss, Waiting),
        (Queued, Delivery, Delivered),
        (Queued, StreamLoss, Injected),
        (Queued, RunLoss, Waiting),
        (Delivered, Checkpoint, MaybeInCheckpoint),
        (Delivered, StreamLoss, Injected),
        (Delivered, RunLoss, Waiting),
        (MaybeInCheckpoint, Checkpoint, InCheckpoint),
        (MaybeInCheckpoint, StreamLoss, Injected),
        (MaybeInCheckpoint, RunLoss, Waiting),
        (Injected, CheckpointWith, InCheckpoint),
        (Queued, CheckpointWith, InCheckpoint),
        (Delivered, CheckpointWith, InCheckpoint),
        (MaybeInCheckpoint, CheckpointWith, InCheckpoint),
    ]
};

#[test]
fn the_diagram_of_a_user_message_has_exactly_these_transitions() {
    crate::phases::assert_diagram("A user message", TRANSITIONS);
}
