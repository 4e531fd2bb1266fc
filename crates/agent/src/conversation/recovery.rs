//! Decides what to do when a host sends tool results for a run that no longer exists. Pure:
//! depends on the stored conversation, the host's request and the time.
//!
//! There are two ways to recover: from a checkpoint of the current turn, or from the host's own
//! transcript, if we recorded that this turn waits for exactly these calls. If anything does not
//! match exactly, there is no recovery, and the decision names the reason.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use cursor_proto::state;

/// How old a pause may be; a pause of exactly this age is accepted.
pub const OLDEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// How far in the future a time stamp may be, because clocks are adjusted.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// The largest checkpoint that is accepted.
pub const LARGEST_CHECKPOINT: usize = state::LARGEST;

/// Milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(pub i64);

/// The stored conversation, as far as recovery needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredConversation<'a> {
    /// The session it belongs to.
    pub owner: ConversationOwner<'a>,
    /// The last checkpoint.
    pub checkpoint: Option<StoredCheckpoint<'a>>,
    /// The recorded pause.
    pub pause: Option<StoredPause<'a>>,
}

/// Which session a stored conversation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationOwner<'a> {
    /// Any session may use it.
    Anyone,
    /// Only this session may use it; `None` is a session without an id.
    Session(Option<&'a str>),
}

/// A position in a host's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnPosition<'a> {
    /// Number of complete turns.
    pub turns: usize,
    /// Fingerprint of those turns.
    pub history: &'a str,
}

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCheckpoint<'a> {
    /// Its bytes.
    pub state: Bytes,
    /// The position it was taken at; `None` if that was not recorded.
    pub at: Option<TurnPosition<'a>>,
}

/// A stored pause.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPause<'a> {
    /// Ids of the pending calls.
    pub pending: Vec<&'a str>,
    /// Number of complete turns before the paused one.
    pub turns: Option<usize>,
    /// Fingerprint of those turns.
    pub history: Option<&'a str>,
    /// When it started.
    pub recorded_at: Option<UnixMillis>,
}

/// The host's request.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryRequest<'a> {
    /// Its session id, if it gave one.
    pub session: Option<&'a str>,
    /// The position of the current turn.
    pub at: TurnPosition<'a>,
    /// Ids of all calls of the current turn; `None` if there is no such turn.
    pub in_flight: Option<Vec<&'a str>>,
    /// Ids of the results in the request.
    pub received: Vec<&'a str>,
    /// How the run was lost.
    pub loss: LossKind,
}

/// How a run was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// It no longer exists.
    Gone,
    /// It was sent the results and went idle.
    Silent,
}

/// How to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryPlan {
    /// Start a new run from the stored checkpoint.
    RecoverCheckpoint,
    /// Start a new run from the host's own transcript.
    RebuildHistory(RebuildReason),
    /// Recovery is not possible.
    Skip(RecoverySkip),
}

/// Why the history is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RebuildReason {
    NoCheckpoint,
    SynthesizedAfterIdle,
    StaleCheckpoint,
    CheckpointToolMismatch,
}

/// Why there is no recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RecoverySkip {
    NoStoredConversation,
    NoMidpauseSnapshot,
    SessionMismatch,
    MidpauseTurnCountMismatch,
    MidpauseHistoryFingerprintMismatch,
    MidpauseMetadataStale,
    NoInflightToolContinuation,
    StaleCheckpoint,
    /// The received calls are not the pending ones.
    PendingToolCallMismatch {
        /// The pending calls.
        expected: Vec<String>,
        /// The received calls.
        received: Vec<String>,
    },
}

impl RebuildReason {
    /// Returns its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCheckpoint => "no_checkpoint",
            Self::SynthesizedAfterIdle => "synthesized_after_idle",
            Self::StaleCheckpoint => "stale_checkpoint",
            Self::CheckpointToolMismatch => "checkpoint_tool_mismatch",
        }
    }
}

impl RecoverySkip {
    /// Returns its name in logs and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoStoredConversation => "no_stored_conversation",
            Self::NoMidpauseSnapshot => "no_midpause_snapshot",
            Self::SessionMismatch => "session_mismatch",
            Self::MidpauseTurnCountMismatch => "midpause_turn_count_mismatch",
            Self::MidpauseHistoryFingerprintMismatch => "midpause_history_fingerprint_mismatch",
            Self::MidpauseMetadataStale => "midpause_metadata_stale",
            Self::NoInflightToolContinuation => "no_inflight_tool_continuation",
            Self::StaleCheckpoint => "stale_checkpoint",
            Self::PendingToolCallMismatch { .. } => "pending_tool_call_mismatch",
        }
    }

    /// Returns whether no later request can match the pause either.
    fn invalidates_pause(&self) -> bool {
        matches!(
            self,
            Self::MidpauseTurnCountMismatch
                | Self::MidpauseHistoryFingerprintMismatch
                | Self::MidpauseMetadataStale
        )
    }
}

/// A plan, and what must be removed from the stored conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryDecision {
    /// How to continue.
    pub plan: RecoveryPlan,
    /// Whether a checkpoint was stored, before any was removed.
    pub had_checkpoint: bool,
    /// Whether to remove the pause, because no later request can match it.
    pub clears_pause: bool,
    /// Whether to remove the checkpoint, because it is unusable.
    pub clears_checkpoint: bool,
}

/// Plans a recovery. An unusable checkpoint does not invalidate the pause: the history can still
/// be rebuilt.
pub fn plan_recovery(
    row: Option<&StoredConversation<'_>>,
    request: &RecoveryRequest<'_>,
    now: UnixMillis,
) -> RecoveryDecision {
    let Some(row) = row else {
        return RecoveryDecision {
            plan: RecoveryPlan::Skip(RecoverySkip::NoStoredConversation),
            had_checkpoint: false,
            clears_pause: false,
            clears_checkpoint: false,
        };
    };
    let rebuilding = || rebuild(row, request, now);
    let (found, checkpoint_problem) = match &row.checkpoint {
        None => {
            let reason = match request.loss {
                LossKind::Gone => RebuildReason::NoCheckpoint,
                LossKind::Silent => RebuildReason::SynthesizedAfterIdle,
            };
            (
                rebuilding().map(|()| RecoveryPlan::RebuildHistory(reason)),
                None,
            )
        }
        Some(checkpoint) if is_stale(checkpoint, row.pause.as_ref(), request) => {
            let plan = RecoveryPlan::RebuildHistory(RebuildReason::StaleCheckpoint);
            (
                rebuilding().map(|()| plan),
                Some(RecoverySkip::StaleCheckpoint),
            )
        }
        Some(_) => match resume(row, request, now) {
            Err(skip @ RecoverySkip::PendingToolCallMismatch { .. }) => {
                let plan = RecoveryPlan::RebuildHistory(RebuildReason::CheckpointToolMismatch);
                (rebuilding().map(|()| plan), Some(skip))
            }
            found => (found.map(|()| RecoveryPlan::RecoverCheckpoint), None),
        },
    };
    let stale = checkpoint_problem == Some(RecoverySkip::StaleCheckpoint);
    let (plan, clears_pause) = match found {
        Ok(plan) => (plan, false),
        Err(skip) => {
            let invalid = skip.invalidates_pause();
            // The problem with the checkpoint is more informative than that of the rebuild.
            (
                RecoveryPlan::Skip(checkpoint_problem.unwrap_or(skip)),
                invalid,
            )
        }
    };
    RecoveryDecision {
        plan,
        had_checkpoint: row.checkpoint.is_some(),
        clears_pause,
        clears_checkpoint: stale,
    }
}

/// Returns whether a checkpoint is invalid or does not belong to the current turn.
fn is_stale(
    checkpoint: &StoredCheckpoint<'_>,
    pause: Option<&StoredPause<'_>>,
    request: &RecoveryRequest<'_>,
) -> bool {
    if state::check(&checkpoint.state).is_err() {
        return true;
    }
    let Some(at) = checkpoint.at else {
        return true;
    };
    // A checkpoint that was taken when the turn seemed complete is accepted if the pause is of
    // this turn.
    let paused_here = pause.is_some_and(|pause| {
        (pause.turns, pause.history) == (Some(request.at.turns), Some(request.at.history))
    });
    at != request.at && !(at.turns.checked_sub(1) == Some(request.at.turns) && paused_here)
}

/// Checks whether a checkpoint that is not stale can be resumed.
fn resume(
    row: &StoredConversation<'_>,
    request: &RecoveryRequest<'_>,
    now: UnixMillis,
) -> Result<(), RecoverySkip> {
    check_owner(row, request)?;
    let pending = row.pause.as_ref().map(|pause| ids(&pause.pending));
    let pending = pending.unwrap_or_default();
    let received = ids(&request.received);
    match &row.pause {
        Some(pause) if !pending.is_empty() => {
            check_age(pause, now)?;
            check_results(&pending, &received)
        }
        // Results of calls that are not pending.
        _ if !received.is_empty() => Err(mismatch(&pending, &received)),
        _ => Err(RecoverySkip::NoMidpauseSnapshot),
    }
}

/// Checks whether the history can be rebuilt. The first failed check is the reason that is
/// reported.
fn rebuild(
    row: &StoredConversation<'_>,
    request: &RecoveryRequest<'_>,
    now: UnixMillis,
) -> Result<(), RecoverySkip> {
    let pause = row.pause.as_ref().ok_or(RecoverySkip::NoMidpauseSnapshot)?;
    let pending = ids(&pause.pending);
    if pending.is_empty() {
        return Err(RecoverySkip::NoMidpauseSnapshot);
    }
    check_owner(row, request)?;
    if pause.turns != Some(request.at.turns) {
        return Err(RecoverySkip::MidpauseTurnCountMismatch);
    }
    if pause.history != Some(request.at.history) {
        return Err(RecoverySkip::MidpauseHistoryFingerprintMismatch);
    }
    check_age(pause, now)?;
    let in_flight = ids(request.in_flight.as_deref().unwrap_or_default());
    let received = ids(&request.received);
    if in_flight.is_empty() || received.is_empty() {
        return Err(RecoverySkip::NoInflightToolContinuation);
    }
    check_results(&pending, &received)?;
    let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    let (asked, answered): (BTreeSet<String>, BTreeSet<String>) = (set(&in_flight), set(&received));
    if asked == answered {
        Ok(())
    } else {
        Err(mismatch(&in_flight, &received))
    }
}

fn check_owner(
    row: &StoredConversation<'_>,
    request: &RecoveryRequest<'_>,
) -> Result<(), RecoverySkip> {
    match row.owner {
        ConversationOwner::Session(session) if session != request.session => {
            Err(RecoverySkip::SessionMismatch)
        }
        _ => Ok(()),
    }
}

fn check_age(pause: &StoredPause<'_>, now: UnixMillis) -> Result<(), RecoverySkip> {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let age = pause
        .recorded_at
        .map(|recorded| now.0.saturating_sub(recorded.0));
    match age {
        Some(age) if age <= millis(OLDEST_PAUSE) && age >= -millis(CLOCK_SKEW) => Ok(()),
        _ => Err(RecoverySkip::MidpauseMetadataStale),
    }
}

/// Checks that every pending call has a result. Additional results are accepted, because earlier
/// rounds of the same turn had theirs.
fn check_results(pending: &[&str], received: &[&str]) -> Result<(), RecoverySkip> {
    if pending.iter().all(|id| received.contains(id)) {
        Ok(())
    } else {
        Err(mismatch(pending, received))
    }
}

fn mismatch(expected: &[&str], received: &[&str]) -> RecoverySkip {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    RecoverySkip::PendingToolCallMismatch {
        expected: owned(expected),
        received: owned(received),
    }
}

/// Returns every id once, in order, without empty ones.
fn ids<'a>(all: &[&'a str]) -> Vec<&'a str> {
    let mut once: Vec<&str> = Vec::with_capacity(all.len());
    for id in all.iter().filter(|id| !id.is_empty()) {
        if !once.contains(id) {
            once.push(id);
        }
    }
    once
}

#[cfg(test)]
mod tests;
