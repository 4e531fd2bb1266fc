//! Questions about the recorded tool calls. None of them changes the log.

use super::effect::{Effect, Origin};
use super::phase::Phase;
use super::{EffectDigest, EffectLog, Start, Unreplayable};
use crate::run::VisibleProgress;
use agent_tools::{ExecError, ExecReply};

/// The recorded result of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Replay {
    pub(crate) replies: Vec<ExecReply>,
    pub(crate) end: Result<(), ExecError>,
}

impl Replay {
    pub(super) fn of(effect: Effect) -> Self {
        Self {
            replies: effect.replies,
            end: effect.end,
        }
    }
}

impl EffectLog {
    /// Returns whether something of this digest was requested.
    pub(super) fn has(&self, digest: EffectDigest) -> bool {
        let same = |effect: &Effect| effect.digest == Some(digest);
        self.effects.iter().any(same)
    }

    /// Returns the index of the recorded result for a request that only an earlier stream has made.
    /// A result that the checkpoint includes is meant only if the call id is the same.
    pub(super) fn recorded(&self, digest: EffectDigest, call: &str) -> Option<usize> {
        let matches = |effect: &Effect| {
            let needs_same_call = effect.phase == Phase::InCheckpoint || effect.is_passed;
            effect.digest == Some(digest)
                && !effect.is_on_stream()
                && (effect.has_call_id(call) || !needs_same_call)
        };
        self.effects.iter().position(matches)
    }

    /// Returns whether a run started this way can be sent every effect that was executed.
    pub fn can_report_all(&self, start: Start) -> bool {
        let unreplayable = match start {
            Start::State => self.unreplayable,
            Start::History => self.ever_unreplayable,
        };
        unreplayable < Unreplayable::Something
    }

    /// Returns whether a result of one of these host calls is still to be sent. A request that has
    /// made another call since has used the result.
    pub(crate) fn awaits(&self, host_calls: &[String]) -> bool {
        let last = |effect: &Effect| {
            let last = effect.host_calls.last();
            last.is_some_and(|id| host_calls.contains(id))
        };
        self.effects
            .iter()
            .any(|effect| effect.is_open() && last(effect))
    }

    /// Returns the host's ids of calls whose results the newest checkpoint may not include.
    pub(crate) fn lacks(&self) -> Vec<String> {
        let lacked = self.effects.iter().filter(|effect| effect.is_lacked());
        lacked
            .flat_map(|effect| effect.host_calls.iter().cloned())
            .collect()
    }

    /// Returns whether a stream that resumes from the newest checkpoint would call the host or ask
    /// the user again, because no result can be replayed.
    pub(super) fn has_unreplayable_call(&self) -> bool {
        let lasting = |effect: &&Effect| effect.origin == Origin::Host && effect.is_lasting;
        let mut lacked = self
            .effects
            .iter()
            .filter(lasting)
            .filter(|effect| effect.is_lacked());
        lacked.any(|effect| !effect.is_replayable())
    }

    /// Returns what the log means for a retry: effects that cannot be replayed, calls of the host,
    /// effects that can be replayed, or none.
    pub(crate) fn visible_progress(&self) -> VisibleProgress {
        let ours = |effect: &&Effect| effect.origin != Origin::Host;
        let mut ours = self.effects.iter().filter(ours);
        let unsaved = |effect: &Effect| {
            effect.is_on_stream() && effect.digest.is_some() && effect.phase < Phase::InCheckpoint
        };
        if self.unreplayable != Unreplayable::Nothing || ours.clone().any(Effect::is_open) {
            VisibleProgress::Executed
        } else if self.would_call_again {
            VisibleProgress::Called
        } else if ours.any(unsaved) {
            VisibleProgress::Remembered
        } else {
            VisibleProgress::Nothing
        }
    }
}
