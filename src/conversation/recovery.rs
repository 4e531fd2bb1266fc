//! What to do when a host brings tool results and the run that asked for them is gone: pure,
//! from what was kept, what the host says and the time.
//!
//! Two ways lead back: from a checkpoint of the turn under way, or from the host's own
//! transcript, if we wrote down ourselves that this very turn waits for these very calls.
//! Whatever does not fit exactly is no recovery, and the reason is told.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use crate::wire::state;

/// How old a pause may be; exactly this old is still fresh.
pub const OLDEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// How far in the future a stamp may lie: clocks are set, but not by much.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// No honest checkpoint is larger.
pub const LARGEST_CHECKPOINT: usize = state::LARGEST;

/// Milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub i64);

/// What was kept of a conversation, as far as recovery asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// Whose it is.
    pub owner: Owner<'a>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint<'a>>,
    /// The pause that was written down.
    pub pause: Option<Pause<'a>>,
}

/// Whose a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'a> {
    /// Whoever finds it.
    Anyone,
    /// This session's, or one's that had no name.
    Session(Option<&'a str>),
}

/// A place in a host's history: how many turns are complete, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point<'a> {
    /// Complete turns.
    pub turns: usize,
    /// Their fingerprint.
    pub history: &'a str,
}

/// A checkpoint as it was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint<'a> {
    /// Its bytes.
    pub state: Bytes,
    /// The turn it was taken in; `None` if that was not written down.
    pub at: Option<Point<'a>>,
}

/// A pause as it was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause<'a> {
    /// Ids of the calls that wait.
    pub pending: Vec<&'a str>,
    /// Complete turns before the one that waits.
    pub turns: Option<usize>,
    /// Their fingerprint.
    pub history: Option<&'a str>,
    /// When it began.
    pub recorded_at: Option<Millis>,
}

/// What a host says.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// Its session, if it names one.
    pub session: Option<&'a str>,
    /// The turns before the one under way.
    pub at: Point<'a>,
    /// Ids of all calls of the turn under way; `None` if there is no such turn.
    pub in_flight: Option<Vec<&'a str>>,
    /// Ids of the results it brings.
    pub received: Vec<&'a str>,
    /// What happened to the run.
    pub loss: Loss,
}

/// What happened to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It is gone.
    Gone,
    /// It was given its results and fell silent.
    Silent,
}

/// How to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// A new run on the stored checkpoint.
    RecoverCheckpoint,
    /// A new run on the host's own transcript.
    RebuildHistory(Reason),
    /// Not this way.
    Skip(Skip),
}

/// Why a history is rebuilt.
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
    /// The calls are not those that wait.
    PendingToolCallMismatch {
        /// Those that wait.
        expected: Vec<String>,
        /// Those that came.
        received: Vec<String>,
    },
}

impl Reason {
    /// Its name in logs and metrics.
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
    /// Its name in logs and errors.
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

    /// Whether no later request can fit the pause either.
    fn spoils_pause(&self) -> bool {
        matches!(
            self,
            Self::MidpauseTurnCountMismatch
                | Self::MidpauseHistoryFingerprintMismatch
                | Self::MidpauseMetadataStale
        )
    }
}

/// A plan, and what the row loses by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How to go on.
    pub plan: Plan,
    /// Whether a checkpoint was stored, before any was thrown away.
    pub had_checkpoint: bool,
    /// The pause fits no later request.
    pub clears_pause: bool,
    /// The checkpoint is of no use.
    pub clears_checkpoint: bool,
}

/// Plans a recovery. A checkpoint that cannot be used does not spoil the pause: the history
/// can still be rebuilt.
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
    let (found, told) = match &row.checkpoint {
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
    let stale = told == Some(Skip::StaleCheckpoint);
    let (plan, clears_pause) = match found {
        Ok(plan) => (plan, false),
        Err(skip) => {
            let spoilt = skip.spoils_pause();
            // What is wrong with the checkpoint says more than what is wrong with its stand-in.
            (Plan::Skip(told.unwrap_or(skip)), spoilt)
        }
    };
    Decision {
        plan,
        had_checkpoint: row.checkpoint.is_some(),
        clears_pause,
        clears_checkpoint: stale,
    }
}

/// Whether a checkpoint is not of the turn under way, or not one at all.
fn is_stale(checkpoint: &Checkpoint<'_>, pause: Option<&Pause<'_>>, request: &Request<'_>) -> bool {
    if state::check(&checkpoint.state).is_err() {
        return true;
    }
    let Some(at) = checkpoint.at else {
        return true;
    };
    // Taken when the turn seemed complete, though it paused: the pause knows better.
    let paused_here = pause.is_some_and(|pause| {
        (pause.turns, pause.history) == (Some(request.at.turns), Some(request.at.history))
    });
    at != request.at && !(at.turns.checked_sub(1) == Some(request.at.turns) && paused_here)
}

/// The guards of a checkpoint that is not stale.
fn resume(row: &Row<'_>, request: &Request<'_>, now: Millis) -> Result<(), Skip> {
    check_owner(row, request)?;
    let pending = row.pause.as_ref().map(|pause| ids(&pause.pending));
    let pending = pending.unwrap_or_default();
    let received = ids(&request.received);
    match &row.pause {
        Some(pause) if !pending.is_empty() => {
            check_age(pause, now)?;
            covered(&pending, &received)
        }
        // Results of calls nobody waits for.
        _ if !received.is_empty() => Err(mismatch(&pending, &received)),
        _ => Err(Skip::NoMidpauseSnapshot),
    }
}

/// The guards of a history that is to be rebuilt, in the order their reasons are told.
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
    covered(&pending, &received)?;
    let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    let (asked, came): (BTreeSet<String>, BTreeSet<String>) = (set(&in_flight), set(&received));
    match asked == came {
        true => Ok(()),
        false => Err(mismatch(&in_flight, &received)),
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

/// Every call that waits has its result. More results are fine: earlier rounds of the same
/// turn had theirs.
fn covered(pending: &[&str], received: &[&str]) -> Result<(), Skip> {
    match pending.iter().all(|id| received.contains(id)) {
        true => Ok(()),
        false => Err(mismatch(pending, received)),
    }
}

fn mismatch(expected: &[&str], received: &[&str]) -> Skip {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    Skip::PendingToolCallMismatch {
        expected: owned(expected),
        received: owned(received),
    }
}

/// Every id once, in order; an empty one is none.
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
