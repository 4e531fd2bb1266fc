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
pub struct Millis(pub i64);

/// The stored conversation, as far as recovery needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// The session it belongs to.
    pub owner: Owner<'a>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint<'a>>,
    /// The recorded pause.
    pub pause: Option<Pause<'a>>,
}

/// Which session a stored conversation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'a> {
    /// Any session may use it.
    Anyone,
    /// Only this session may use it; `None` is a session without an id.
    Session(Option<&'a str>),
}

/// A position in a host's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point<'a> {
    /// Number of complete turns.
    pub turns: usize,
    /// Fingerprint of those turns.
    pub history: &'a str,
}

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint<'a> {
    /// Its bytes.
    pub state: Bytes,
    /// The position it was taken at; `None` if that was not recorded.
    pub at: Option<Point<'a>>,
}

/// A stored pause.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause<'a> {
    /// Ids of the pending calls.
    pub pending: Vec<&'a str>,
    /// Number of complete turns before the paused one.
    pub turns: Option<usize>,
    /// Fingerprint of those turns.
    pub history: Option<&'a str>,
    /// When it started.
    pub recorded_at: Option<Millis>,
}

/// The host's request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// Its session id, if it gave one.
    pub session: Option<&'a str>,
    /// The position of the current turn.
    pub at: Point<'a>,
    /// Ids of all calls of the current turn; `None` if there is no such turn.
    pub in_flight: Option<Vec<&'a str>>,
    /// Ids of the results in the request.
    pub received: Vec<&'a str>,
    /// How the run was lost.
    pub loss: Loss,
}

/// How a run was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It no longer exists.
    Gone,
    /// It was sent the results and went idle.
    Silent,
}

/// How to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Start a new run from the stored checkpoint.
    RecoverCheckpoint,
    /// Start a new run from the host's own transcript.
    RebuildHistory(Reason),
    /// Recovery is not possible.
    Skip(Skip),
}

/// Why the history is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reason {
    NoCheckpoint,
    SynthesizedAfterIdle,
    StaleCheckpoint,
    CheckpointToolMismatch,
}

/// Why there is no recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Skip {
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

impl Reason {
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

impl Skip {
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
pub struct Decision {
    /// How to continue.
    pub plan: Plan,
    /// Whether a checkpoint was stored, before any was removed.
    pub had_checkpoint: bool,
    /// Whether to remove the pause, because no later request can match it.
    pub clears_pause: bool,
    /// Whether to remove the checkpoint, because it is unusable.
    pub clears_checkpoint: bool,
}

/// Plans a recovery. An unusable checkpoint does not invalidate the pause: the history can still
/// be rebuilt.
pub fn plan(row: Option<&Row<'_>>, request: &Request<'_>, now: Millis) -> Decision {
    let Some(row) = row else {
        return Decision {
            plan: Plan::Skip(Skip::NoStoredConversation),
            had_checkpoint: false,
            clears_pause: false,
            clears_checkpoint: false,
        };
    };
    let rebuilding = || rebuild(row, request, now);
    let (found, checkpoint_problem) = match &row.checkpoint {
        None => {
            let reason = match request.loss {
                Loss::Gone => Reason::NoCheckpoint,
                Loss::Silent => Reason::SynthesizedAfterIdle,
            };
            (rebuilding().map(|()| Plan::RebuildHistory(reason)), None)
        }
        Some(checkpoint) if is_stale(checkpoint, row.pause.as_ref(), request) => {
            let plan = Plan::RebuildHistory(Reason::StaleCheckpoint);
            (rebuilding().map(|()| plan), Some(Skip::StaleCheckpoint))
        }
        Some(_) => match resume(row, request, now) {
            Err(skip @ Skip::PendingToolCallMismatch { .. }) => {
                let plan = Plan::RebuildHistory(Reason::CheckpointToolMismatch);
                (rebuilding().map(|()| plan), Some(skip))
            }
            found => (found.map(|()| Plan::RecoverCheckpoint), None),
        },
    };
    let stale = checkpoint_problem == Some(Skip::StaleCheckpoint);
    let (plan, clears_pause) = match found {
        Ok(plan) => (plan, false),
        Err(skip) => {
            let invalid = skip.invalidates_pause();
            // The problem with the checkpoint is more informative than that of the rebuild.
            (Plan::Skip(checkpoint_problem.unwrap_or(skip)), invalid)
        }
    };
    Decision {
        plan,
        had_checkpoint: row.checkpoint.is_some(),
        clears_pause,
        clears_checkpoint: stale,
    }
}

/// Returns whether a checkpoint is invalid or does not belong to the current turn.
fn is_stale(checkpoint: &Checkpoint<'_>, pause: Option<&Pause<'_>>, request: &Request<'_>) -> bool {
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
fn resume(row: &Row<'_>, request: &Request<'_>, now: Millis) -> Result<(), Skip> {
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
        _ => Err(Skip::NoMidpauseSnapshot),
    }
}

/// Checks whether the history can be rebuilt. The first failed check is the reason that is
/// reported.
fn rebuild(row: &Row<'_>, request: &Request<'_>, now: Millis) -> Result<(), Skip> {
    let pause = row.pause.as_ref().ok_or(Skip::NoMidpauseSnapshot)?;
    let pending = ids(&pause.pending);
    if pending.is_empty() {
        return Err(Skip::NoMidpauseSnapshot);
    }
    check_owner(row, request)?;
    if pause.turns != Some(request.at.turns) {
        return Err(Skip::MidpauseTurnCountMismatch);
    }
    if pause.history != Some(request.at.history) {
        return Err(Skip::MidpauseHistoryFingerprintMismatch);
    }
    check_age(pause, now)?;
    let in_flight = ids(request.in_flight.as_deref().unwrap_or_default());
    let received = ids(&request.received);
    if in_flight.is_empty() || received.is_empty() {
        return Err(Skip::NoInflightToolContinuation);
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

fn check_owner(row: &Row<'_>, request: &Request<'_>) -> Result<(), Skip> {
    match row.owner {
        Owner::Session(session) if session != request.session => Err(Skip::SessionMismatch),
        _ => Ok(()),
    }
}

fn check_age(pause: &Pause<'_>, now: Millis) -> Result<(), Skip> {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let age = pause
        .recorded_at
        .map(|recorded| now.0.saturating_sub(recorded.0));
    match age {
        Some(age) if age <= millis(OLDEST_PAUSE) && age >= -millis(CLOCK_SKEW) => Ok(()),
        _ => Err(Skip::MidpauseMetadataStale),
    }
}

/// Checks that every pending call has a result. Additional results are accepted, because earlier
/// rounds of the same turn had theirs.
fn check_results(pending: &[&str], received: &[&str]) -> Result<(), Skip> {
    if pending.iter().all(|id| received.contains(id)) {
        Ok(())
    } else {
        Err(mismatch(pending, received))
    }
}

fn mismatch(expected: &[&str], received: &[&str]) -> Skip {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    Skip::PendingToolCallMismatch {
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
