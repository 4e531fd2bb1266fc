//! One entry of the effect log.

use prost::Message as _;

use super::EffectDigest;
use super::phase::{Phase, PhaseEvent, TRANSITIONS};
use crate::phases::next;
use crate::prompts;
use agent_tools::{ExecError, ExecReply};
use cursor_proto::agent::v1::ExecClientMessage;

/// A tool call, from its request until its prompt is answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effect {
    /// Identifies what it does; `None` if it cannot be replayed.
    pub(super) digest: Option<EffectDigest>,
    /// The server's tool call id; empty if it sent none.
    pub(super) call: String,
    /// The host's ids of the calls made for it.
    pub(super) host_calls: Vec<String>,
    pub(super) origin: Origin,
    /// Whether executing it twice would matter: it changes something, or asks the user.
    pub(super) is_lasting: bool,
    pub(super) phase: Phase,
    /// The request on the current stream; `None` if only an earlier stream has made it.
    pub(super) request: Option<RequestKey>,
    /// The replies sent to the server.
    pub(super) replies: Vec<ExecReply>,
    /// The outcome: success, or the error sent to the server.
    pub(super) end: Result<(), ExecError>,
    /// Whether the checkpoint that the current stream started from is known to lack the result.
    pub(super) is_missing: bool,
    /// Whether the current stream may still request it, because the checkpoint it started from may
    /// be older than the call. Its own checkpoints may lack the result too.
    pub(super) is_unconfirmed: bool,
    /// Whether the current stream has continued without requesting it. The checkpoint it started
    /// from includes the result, or the model has chosen something else.
    pub(super) is_passed: bool,
    /// Whether a host tool was called after it, whose result every later run is sent.
    pub(super) precedes_host_call: bool,
    /// Logical times at which it was requested and ended.
    pub(super) began: u64,
    pub(super) ended: u64,
}

/// Where a tool call is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// By us, or by the host while we wait. The server may use another call id when it asks again.
    Here,
    /// By the host between turns, or by the user. The host has the result in its own transcript.
    Host,
    /// By an earlier process; the outcome is unknown.
    Earlier,
}

/// Identifies a request within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKey {
    Exec(u32),
    Question(u32),
}

impl Effect {
    /// Returns the effect of a request that is executed from now on.
    pub(super) fn started(
        request: RequestKey,
        digest: Option<EffectDigest>,
        call: &str,
        origin: Origin,
    ) -> Self {
        let mut effect = Self {
            digest,
            call: call.into(),
            host_calls: Vec::new(),
            origin,
            is_lasting: true,
            phase: Phase::Requested,
            request: Some(request),
            replies: Vec::new(),
            end: Ok(()),
            is_missing: false,
            is_unconfirmed: false,
            is_passed: false,
            precedes_host_call: false,
            began: 0,
            ended: 0,
        };
        effect.apply(PhaseEvent::Start);
        effect
    }

    /// Returns the effect of an earlier process, which may have been executed.
    pub(super) fn unknown(digest: EffectDigest, is_in_checkpoint: bool) -> Self {
        Self {
            phase: if is_in_checkpoint {
                Phase::InCheckpoint
            } else {
                Phase::ResultSent
            },
            request: None,
            end: Err(ExecError(prompts::RESULT_UNKNOWN.into())),
            ..Self::started(RequestKey::Exec(0), Some(digest), "", Origin::Earlier)
        }
    }

    pub(super) fn apply(&mut self, event: PhaseEvent) {
        self.phase = next(TRANSITIONS, self.phase, event);
    }

    /// Returns whether it has no result yet.
    pub(super) fn is_open(&self) -> bool {
        self.phase < Phase::ResultSent
    }

    /// Returns whether the server has called it by this id, which is empty if it sent none.
    pub(super) fn has_call_id(&self, call: &str) -> bool {
        !call.is_empty() && self.call == call
    }

    /// Returns whether the current stream has requested it.
    pub(super) fn is_on_stream(&self) -> bool {
        self.request.is_some()
    }

    /// Returns whether a checkpoint may or may not include the result.
    pub(super) fn is_doubtful(&self) -> bool {
        matches!(
            self.phase,
            Phase::MaybeInCheckpoint | Phase::LikelyInCheckpoint
        )
    }

    /// Returns whether the newest checkpoint may lack the result of a call of the host.
    pub(super) fn is_lacked(&self) -> bool {
        let is_unproven = self.is_on_stream() && self.phase < Phase::InCheckpoint;
        !self.host_calls.is_empty() && (is_unproven || self.is_missing || self.is_unconfirmed)
    }

    /// Returns whether a stream that lacks the result is sent it if it requests the call again.
    pub(super) fn is_replayable(&self) -> bool {
        !self.is_open() && self.digest.is_some() && !self.call.is_empty()
    }

    /// Returns the encoded size of the replies.
    pub(super) fn bytes(&self) -> usize {
        self.replies.iter().map(size).sum()
    }

    /// Drops the replies, so that the effect cannot be replayed.
    pub(super) fn drop_replies(&mut self) {
        self.replies = Vec::new();
        self.digest = None;
    }
}

/// Returns the encoded size of a reply.
pub(super) fn size(reply: &ExecReply) -> usize {
    let message = Some(reply.clone());
    let reply = ExecClientMessage {
        message,
        ..ExecClientMessage::default()
    };
    reply.encoded_len()
}
