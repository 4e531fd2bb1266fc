//! The phases of a tool call and the only transitions between them.

/// How far a tool call has come, from the request until a checkpoint includes its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The server has requested it.
    Requested,
    /// It is executed here, by the host or by the user.
    Executing,
    /// Its result was sent, and no checkpoint is known to include it.
    ResultSent,
    /// The server has requested or reported something else since.
    Progressed,
    /// The model has continued since, or the server has reported the call complete.
    Acknowledged,
    /// One checkpoint has arrived after the server progressed: it may be older than the result.
    MaybeInCheckpoint,
    /// One checkpoint has arrived after the acknowledgement: it may still be older. Or the turn has
    /// ended, and the next checkpoint is its last.
    LikelyInCheckpoint,
    /// The newest checkpoint includes the result.
    InCheckpoint,
}

/// What happens to a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PhaseEvent {
    /// Its execution starts.
    Start,
    /// Its result is sent to the server.
    Result,
    /// Its execution is interrupted; that is its result.
    Interruption,
    /// The server requests or reports something else.
    ServerProgress,
    /// The model continues, or the server reports the call complete.
    ModelProgress,
    /// A checkpoint arrives that does not list the call as pending.
    Checkpoint,
    /// A checkpoint arrives that lists the call as pending, so it does not include the result.
    CheckpointWithout,
    /// A checkpoint arrives that names the call with its result, or does not list it any more.
    CheckpointWith,
    /// The server ends the turn, so the model has read every result.
    TurnEnd,
    /// The stream is lost; the next one starts from the newest checkpoint.
    StreamLoss,
    /// A later stream requests it again and is sent the recorded result.
    Replay,
    /// The stream that continued without it reaches a checkpoint.
    Bypass,
    /// The checkpoint is abandoned, and the history is sent instead.
    CheckpointLoss,
    /// The next run may know of it: host results or a user message follow it.
    NewInput,
}

/// All transitions. What is not listed leaves the phase as it is.
pub(super) const TRANSITIONS: &[(Phase, PhaseEvent, Phase)] = {
    use Phase::*;
    use PhaseEvent::*;
    &[
        (Requested, Start, Executing),
        (Executing, Result, ResultSent),
        (Executing, Interruption, ResultSent),
        (ResultSent, ServerProgress, Progressed),
        (ResultSent, ModelProgress, Acknowledged),
        (ResultSent, TurnEnd, LikelyInCheckpoint),
        (ResultSent, CheckpointWith, InCheckpoint),
        (ResultSent, Bypass, InCheckpoint),
        (ResultSent, NewInput, MaybeInCheckpoint),
        (Progressed, ModelProgress, Acknowledged),
        (Progressed, Checkpoint, MaybeInCheckpoint),
        (Progressed, CheckpointWith, InCheckpoint),
        (Progressed, TurnEnd, LikelyInCheckpoint),
        (Progressed, StreamLoss, ResultSent),
        (Acknowledged, Checkpoint, LikelyInCheckpoint),
        (Acknowledged, CheckpointWith, InCheckpoint),
        (Acknowledged, TurnEnd, LikelyInCheckpoint),
        (Acknowledged, StreamLoss, ResultSent),
        (MaybeInCheckpoint, ModelProgress, LikelyInCheckpoint),
        (MaybeInCheckpoint, Checkpoint, InCheckpoint),
        (MaybeInCheckpoint, CheckpointWith, InCheckpoint),
        (MaybeInCheckpoint, TurnEnd, LikelyInCheckpoint),
        (MaybeInCheckpoint, CheckpointWithout, Acknowledged),
        (MaybeInCheckpoint, Replay, ResultSent),
        (MaybeInCheckpoint, Bypass, InCheckpoint),
        (LikelyInCheckpoint, Checkpoint, InCheckpoint),
        (LikelyInCheckpoint, CheckpointWith, InCheckpoint),
        (LikelyInCheckpoint, TurnEnd, InCheckpoint),
        (LikelyInCheckpoint, CheckpointWithout, Acknowledged),
        (LikelyInCheckpoint, Replay, ResultSent),
        (LikelyInCheckpoint, Bypass, InCheckpoint),
        (InCheckpoint, CheckpointWithout, Acknowledged),
        (InCheckpoint, Replay, ResultSent),
        (InCheckpoint, CheckpointLoss, ResultSent),
    ]
};

#[test]
fn the_diagram_of_a_tool_call_has_exactly_these_transitions() {
    crate::phases::assert_diagram("A tool call", TRANSITIONS);
}
