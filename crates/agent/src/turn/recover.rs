//! Recovers a turn whose run is gone: carries out and logs the plan of
//! [`crate::conversation::recovery`].
//!
//! Programs read these log events, so their field names are fixed.

use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use super::conversation_slot::Conversation;
use super::error_text::ContinuationLost;
use super::request::{Frontend, TurnRequest};
use super::start_run;
use super::turn_progress::TurnProgress;
use crate::conversation::image::DecodedImage;
use crate::conversation::journal::PausedTurn;
use crate::conversation::lost_turn::{LostTurn, ResumePrompt};
use crate::conversation::recovery::{
    ConversationOwner, LossKind, RebuildReason, RecoveryDecision, RecoveryPlan, RecoverySkip,
    StoredCheckpoint, StoredConversation, StoredPause, UnixMillis, plan_recovery,
};
use crate::run::{self, Action, Ended, Image, Outcome, UserMessage};
use cursor_client::failure::Retry;
use foundation::metrics;

/// Counter of rebuilt histories.
const REBUILT: &str = "cursor_provider.rebuild_full_history";
const RECOVERED: &str = "cursor_provider.recovered_via_checkpoint";
const SKIPPED: &str = "cursor_provider.recovery_skipped";

/// The key that identifies a session in logs, which show only its prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionKey {
    hex: String,
    /// Whether the session has a name.
    named: bool,
}

impl SessionKey {
    pub(super) fn of(session: Option<&str>) -> Self {
        let text = format!("bridge:{}", session.unwrap_or_default());
        let digest = Sha256::digest(text);
        Self {
            hex: digest.iter().take(8).map(|b| format!("{b:02x}")).collect(),
            named: session.is_some(),
        }
    }

    /// Returns the key if the session has a name.
    pub(super) fn name(&self) -> Option<&str> {
        self.named.then_some(self.hex.as_str())
    }

    pub(super) fn prefix(&self) -> &str {
        &self.hex[..8]
    }
}

/// Returns the wall-clock time, because a pause may have started in another process.
pub(super) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    UnixMillis(since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }))
}

/// The result of an attempt to recover a turn.
pub(super) enum RecoveryOutcome {
    /// The turn needs no recovery.
    Unneeded(Option<Conversation>),
    /// The turn can continue.
    Ready(Box<Ready>),
    /// The turn cannot be recovered this way: what is left of the conversation, and the error to
    /// report.
    Skipped(Option<Conversation>, ContinuationLost),
}

/// How a recovered turn continues.
pub(super) struct Ready {
    pub(super) conversation: Conversation,
    pub(super) action: Action,
    /// Answer text that the checkpoint includes and the host does not have.
    pub(super) unshown: String,
}

/// Tries to recover a turn from its stored conversation. `may_answer_again` says whether the new run
/// may answer the tool results again; otherwise it may only continue from its checkpoint, because the
/// host was shown something since.
pub(super) fn recover(
    request: &TurnRequest,
    kept: Option<Conversation>,
    key: &SessionKey,
    loss: LossKind,
    may_answer_again: bool,
) -> RecoveryOutcome {
    let messages = &request.transcript.messages;
    let Some(lost_turn) = LostTurn::read(messages) else {
        return RecoveryOutcome::Unneeded(kept);
    };
    let known = kept
        .as_ref()
        .and_then(|conversation| conversation.sent.as_ref()?.matched_prefix(messages));
    let decision = {
        let row = kept.as_ref().map(|kept| row(kept, &lost_turn, known));
        plan_recovery(row.as_ref(), &lost_turn.request(key.name(), loss), now())
    };
    let model = &request.model.id;
    let skipped = |skip: &RecoverySkip, kept| {
        log_skip(skip, &decision, key);
        let lost = ContinuationLost {
            had_checkpoint: decision.had_checkpoint,
            bridge_key: key.hex.clone(),
            skip: Some(skip.name()),
        };
        RecoveryOutcome::Skipped(kept, lost)
    };
    let mut conversation = match (kept, &decision.plan) {
        (Some(conversation), _) => conversation,
        (None, RecoveryPlan::Skip(skip)) => return skipped(skip, None),
        // A plan without a stored conversation is always a skip.
        (None, _) => return RecoveryOutcome::Unneeded(None),
    };
    if decision.clears_pause {
        conversation.pause = None;
    }
    if decision.clears_checkpoint {
        conversation.state = None;
        conversation.sent = None;
        conversation.answer = None;
    }
    let prompt = match &decision.plan {
        RecoveryPlan::Skip(skip) => return skipped(skip, Some(conversation)),
        RecoveryPlan::RecoverCheckpoint => {
            let paused_calls = conversation.pause.as_ref();
            let paused_calls = paused_calls.map_or_else(Vec::new, PausedTurn::all);
            let prompt = match known {
                Some(known) => {
                    lost_turn.prompt_since(known, conversation.answer.as_deref(), &paused_calls)
                }
                None => lost_turn.prompt_since(lost_turn.turn_start.start, None, &paused_calls),
            };
            if !may_answer_again && !prompt.text.is_empty() {
                return RecoveryOutcome::Unneeded(Some(conversation));
            }
            log_checkpoint(&conversation, &prompt, key, model);
            prompt
        }
        RecoveryPlan::RebuildHistory(_) if !may_answer_again => {
            return RecoveryOutcome::Unneeded(Some(conversation));
        }
        RecoveryPlan::RebuildHistory(reason) => {
            if let Err(problem) =
                start_run::reset_to_history(&mut conversation, request, &lost_turn.history())
            {
                tracing::warn!("{problem}");
                return skipped(&RecoverySkip::NoStoredConversation, Some(conversation));
            }
            let prompt = lost_turn.full_prompt();
            log_rebuild(*reason, &lost_turn, &prompt, key, request);
            prompt
        }
    };
    let unshown = prompt.unshown.clone();
    RecoveryOutcome::Ready(Box::new(Ready {
        conversation,
        action: action(prompt, request),
        unshown,
    }))
}

/// Returns how a run was lost that failed while the host was connected, if its turn may be recovered.
/// At most once per turn, because local effects must not be repeated.
pub(super) fn within_turn(ended: &Ended, progress: &TurnProgress) -> Option<LossKind> {
    let Outcome::Failed(failure) = &ended.outcome else {
        return None;
    };
    let loss = match failure.retry() {
        Retry::Idle => LossKind::Silent,
        // The run has used its retries, unless open host calls prevented them.
        Retry::Transport | Retry::Server
            if ended.visible_progress == run::VisibleProgress::Called =>
        {
            LossKind::Gone
        }
        _ => return None,
    };
    if progress.recoveries > 0 || ended.visible_progress == run::VisibleProgress::Executed {
        return None;
    }
    Some(loss)
}

/// Returns the stored conversation as the planner needs it. A checkpoint of an earlier turn does
/// not cover this pause.
fn row<'a>(
    kept: &'a Conversation,
    lost_turn: &'a LostTurn<'_>,
    known: Option<usize>,
) -> StoredConversation<'a> {
    let state = kept.state.clone().filter(|_| kept.sent.is_some());
    let checkpoint = match known {
        Some(known) if known <= lost_turn.turn_start.start => None,
        Some(_) => Some(Some(lost_turn.turn_start.position())),
        None => Some(None),
    };
    let pause = kept.pause.as_ref();
    StoredConversation {
        owner: pause.map_or(ConversationOwner::Anyone, |pause| {
            ConversationOwner::Session(pause.session.as_deref())
        }),
        checkpoint: state
            .zip(checkpoint)
            .map(|(state, at)| StoredCheckpoint { state, at }),
        pause: pause.map(|pause| StoredPause {
            pending: pause.calls.iter().map(|call| call.id.as_str()).collect(),
            turns: Some(pause.turns),
            history: Some(&pause.history),
            recorded_at: Some(UnixMillis(pause.recorded_at)),
        }),
    }
}

/// Resumes if the checkpoint includes everything, else sends the rest as a user message.
fn action(prompt: ResumePrompt, request: &TurnRequest) -> Action {
    if prompt.text.is_empty() {
        return Action::Resume;
    }
    Action::UserMessage(UserMessage {
        text: prompt.text,
        images: images(prompt.images),
        mode: request.mode,
    })
}

fn log_checkpoint(kept: &Conversation, prompt: &ResumePrompt, key: &SessionKey, model: &str) {
    let calls = kept.pause.iter().flat_map(|pause| &pause.calls);
    let calls: Vec<&str> = calls.map(|call| call.id.as_str()).collect();
    tracing::debug!(
        parent: None,
        bridgeKeyPrefix = key.prefix(),
        modelId = model,
        recoveryPath = "stored_checkpoint",
        pendingToolCallIds = calls.join(" "),
        toolResultCount = prompt.results,
        sentinelInjectionDetected = prompt.lookalike,
        "bridge.recovered_via_checkpoint"
    );
    metrics::counters().count(RECOVERED, &[("model", model)]);
}

fn log_rebuild(
    reason: RebuildReason,
    lost_turn: &LostTurn<'_>,
    prompt: &ResumePrompt,
    key: &SessionKey,
    request: &TurnRequest,
) {
    let model = request.model.id.as_str();
    let event = match request.frontend {
        Frontend::Native => "native.rebuild_full_history",
        Frontend::Chat => "chat.rebuild_full_history",
    };
    tracing::debug!(
        parent: None,
        bridgeKeyPrefix = key.prefix(),
        modelId = model,
        rebuildReason = reason.name(),
        completedTurnCount = lost_turn.turn_start.turns,
        inFlightTurnHasImages = lost_turn.has_images(),
        toolResultCount = prompt.results,
        sentinelInjectionDetected = prompt.lookalike,
        "{event}"
    );
    metrics::emit(REBUILT, reason.name(), model);
}

fn log_skip(skip: &RecoverySkip, decision: &RecoveryDecision, key: &SessionKey) {
    let (expected, received) = match skip {
        RecoverySkip::PendingToolCallMismatch { expected, received } => {
            (Some(expected.join(" ")), Some(received.join(" ")))
        }
        _ => (None, None),
    };
    tracing::debug!(
        parent: None,
        bridgeKeyPrefix = key.prefix(),
        skipReason = skip.name(),
        hadStoredCheckpoint = decision.had_checkpoint,
        expected,
        received,
        "bridge.recovery_skipped"
    );
    metrics::counters().count(SKIPPED, &[("reason", skip.name())]);
}

/// Returns the error text of a turn that could not be recovered.
pub(super) fn lost(lost: &ContinuationLost) -> String {
    tracing::debug!(
        parent: None,
        bridgeKeyPrefix = lost.prefix(),
        skipReason = lost.skip,
        hadStoredCheckpoint = lost.had_checkpoint,
        "native.lost_tool_continuation"
    );
    lost.to_string()
}

/// Converts images to the form a run sends.
pub(super) fn images(pictures: Vec<DecodedImage>) -> Vec<Image> {
    let image = |picture: DecodedImage| Image {
        mime_type: Some(picture.mime_type.into()),
        data: picture.data,
    };
    pictures.into_iter().map(image).collect()
}
