//! How a turn gets its run: a parked one, one that recovers a lost turn, or a new one.

use super::SessionTask;
use super::repeated_request::LastAnswer;
use crate::conversation::answer_diff::{AnswerGap, compare};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::image;
use crate::conversation::journal::PausedTurn;
use crate::conversation::lost_turn::{TurnStart, update_pause};
use crate::conversation::recovery::LossKind;
use crate::conversation::send_plan::{SendPlan, latest_start, plan_send, with_note};
use crate::conversation::transcript::Transcript;
use crate::effect_log::Start;
use crate::inbox::{Source, UnsavedMessage, joined};
use crate::message::Message;
use crate::prompts;
use crate::run::{Action, Ended, Outcome, UserMessage};
use crate::turn::activity_display::is_card;
use crate::turn::channels::OpenTurn;
use crate::turn::conversation_slot::Conversation;
use crate::turn::error_text::{EFFECTS_LOST, wording};
use crate::turn::failure_cause::Cause;
use crate::turn::live_run::{LiveRun, user_texts};
use crate::turn::recover::{self, Ready, RecoveryOutcome};
use crate::turn::request::{Stop, TurnEvent, TurnResult};
use crate::turn::start_run;
use crate::turn::turn_progress::{TurnProgress, send_event};
use crate::turn::usage;
use cursor_client::failure::{Failure, Retry};
use foundation::Digest;

impl SessionTask {
    /// Returns the run this turn drives: the parked one or a new one.
    pub(super) async fn begin(
        &mut self,
        request: &mut OpenTurn,
        progress: &mut TurnProgress,
    ) -> Result<LiveRun, TurnResult> {
        let mut unsent = latest_start(&request.transcript.messages);
        let mut live = match self.resume_parked(request, progress).await {
            Some(live) => live,
            None => {
                if let Some(result) = self.repeat_answer(request, progress).await {
                    return Err(result);
                }
                let live = self.start_run(request, progress).await?;
                // A message that the checkpoint is taken to cover is not sent with the history.
                if let Some(sent) = &live.conversation.sent {
                    unsent = sent.len();
                }
                live
            }
        };
        self.cards = None;
        let messages = &request.transcript.messages;
        let now = user_texts(messages.get(unsent..).unwrap_or_default());
        for message in self.inbox.take_except(0) {
            // The host's history may contain it by now.
            if !now.contains(&message.text) {
                live.inject(message, Source::Separate).await;
            }
        }
        Ok(live)
    }

    /// Returns the parked run, if this turn continues it.
    async fn resume_parked(
        &mut self,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> Option<LiveRun> {
        let (mut live, _) = self.live.take()?;
        let Transcript {
            system, messages, ..
        } = &request.transcript;
        let same_account = live.conversation.account == request.account;
        let lost = live.lost().cloned();
        if lost.is_none() && same_account && live.continues(system, messages) {
            live.use_tools(request.tools());
            if live.is_repeated(system, messages) {
                live.repeat();
                return Some(live);
            }
            live.resume(system, messages, progress).await;
            tracing::debug!(decision = "live resume", "plan");
            return Some(live);
        }
        // The run is lost, or the history diverged: the queued events are useless. Keep the messages
        // that the run was sent, and of a lost run the last checkpoint.
        live.leave().await;
        if lost.is_none() {
            // The next run may be one of the same conversation, which allows one at a time.
            let ended = live.drain(std::future::ready(())).await;
            self.effects.keep(live.history(), ended.effects);
            self.inbox.keep_saved(&mut live.inbox);
            self.inbox.add(live.inbox.separate());
        } else {
            live.drop_resent(messages);
            self.effects.keep(request.history(), live.effects());
            live.lose();
            self.keep_messages(&mut live);
            let notice = self.put(live.conversation).await;
            self.notice(request, notice).await;
        }
        None
    }

    /// Starts a run on the stored conversation, or on a new one.
    async fn start_run(
        &mut self,
        request: &mut OpenTurn,
        progress: &mut TurnProgress,
    ) -> Result<LiveRun, TurnResult> {
        let pictures = image::latest(&request.transcript.messages)
            .map_err(|error| TurnResult::failed(Cause::Request, error.to_string()))?;
        let loaded = self.slot.take().await;
        let loaded = loaded.map_err(|busy| TurnResult::failed(Cause::Taken, busy.to_string()))?;
        self.notice(request, loaded.notice).await;
        if let Some(left) = loaded.log_file {
            self.effects.found(left);
        }
        self.inbox.add_first(loaded.messages);
        let mut stored = loaded
            .conversation
            .filter(|conversation| conversation.account == request.account);
        if let Some(pause) = stored.as_mut().and_then(|stored| stored.pause.as_mut()) {
            update_pause(pause, &request.transcript.messages);
        }
        let unread = stored.as_mut().and_then(|stored| stored.unread.take());
        if let (Some(text), Some(conversation)) = (unread, stored.as_ref())
            && returns_cards(conversation, &request.transcript.messages)
        {
            let conversation = conversation.clone();
            return Err(self
                .show_unread(text, conversation, request, progress)
                .await);
        }
        let key = self.slot.key();
        let (stored, lost) = match recover::recover(request, stored, key, LossKind::Gone, true) {
            RecoveryOutcome::Ready(ready) => {
                let Ready {
                    conversation,
                    action,
                    unshown,
                } = *ready;
                progress.recoveries += 1;
                let mut live = self.launch(conversation, action, request, progress).await;
                live.queue_text(unshown);
                return Ok(live);
            }
            RecoveryOutcome::Unneeded(stored) => (stored, None),
            RecoveryOutcome::Skipped(stored, lost) => (stored, Some(lost)),
        };
        let known = stored.as_ref();
        let sent = known.and_then(|known| known.sent.as_ref());
        let answer = known.and_then(|known| known.answer.as_deref());
        let Transcript {
            system, messages, ..
        } = &request.transcript;
        let mut unshown_text = String::new();
        let pause = known.and_then(|known| known.pause.as_ref());
        let paused_calls = pause.map_or_else(Vec::new, PausedTurn::all);
        let (conversation, text) = match plan_send(sent, answer, &paused_calls, system, messages) {
            SendPlan::Nothing => {
                // Put the conversation back unchanged.
                if let Some(conversation) = stored {
                    let notice = self.put(conversation).await;
                    self.notice(request, notice).await;
                }
                return Err(match lost {
                    Some(lost) => {
                        let text = recover::lost(&lost);
                        TurnResult::failed(Cause::ContinuationLost(Box::new(lost)), text)
                    }
                    None => {
                        let text = "there is no new message to answer";
                        TurnResult::failed(Cause::Request, text)
                    }
                });
            }
            SendPlan::Resume { unshown } => {
                tracing::debug!(decision = "resume", "plan");
                unshown_text = unshown;
                (stored, None)
            }
            SendPlan::Incremental { text, unshown } => {
                tracing::debug!(decision = "incremental", new = %Digest(&text), "plan");
                unshown_text = unshown;
                (stored, Some(text))
            }
            SendPlan::Bootstrap {
                history,
                text,
                because,
            } => {
                tracing::debug!(
                    decision = "bootstrap",
                    reason = ?because,
                    history_messages = history.len(),
                    new = %Digest(&text),
                    "plan"
                );
                let sent_tokens = usage::estimate(system) + usage::message_tokens(history);
                progress.count_tokens(sent_tokens.min(request.limits.window));
                let fresh = start_run::rebuilt(request, history, loaded.kept);
                let failed = |problem| match &lost {
                    Some(lost) => {
                        let text = format!("{} ({problem})", recover::lost(lost));
                        TurnResult::failed(Cause::ContinuationLost(Box::new(lost.clone())), text)
                    }
                    None => TurnResult::failed(Cause::Internal, problem),
                };
                (Some(fresh.map_err(failed)?), Some(text))
            }
        };
        let Some(conversation) = conversation else {
            let text = "the session lost its conversation";
            return Err(TurnResult::failed(Cause::Internal, text));
        };
        let action = match text {
            None => Action::Resume,
            Some(text) => Action::UserMessage(UserMessage {
                text,
                images: recover::images(pictures),
                mode: request.mode,
            }),
        };
        let mut live = self.launch(conversation, action, request, progress).await;
        // A turn requested while another one ran cannot know that one's answer, which the host was
        // shown.
        if self
            .answered
            .is_none_or(|answered| request.asked >= answered)
        {
            live.queue_text(unshown_text);
        }
        Ok(live)
    }

    /// Shows the rest of an answer that was complete before the host returned, and ends the turn.
    async fn show_unread(
        &mut self,
        text: String,
        mut conversation: Conversation,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> TurnResult {
        let messages = &request.transcript.messages;
        let answer = conversation.answer.as_deref();
        let is_saved = answer.is_some_and(|answer| answer.ends_with(&text));
        // The checkpoint now covers the cards too, or the next turn sends the history.
        conversation.sent = (conversation.sent.take())
            .filter(|sent| is_saved && sent.matched_prefix(messages).is_some())
            .map(|_| request.history());
        conversation.answer = Some(text.clone());
        conversation.pause = None;
        send_event(TurnEvent::Text(text), request, progress).await;
        let notice = self.put(conversation).await;
        self.notice(request, notice).await;
        self.effects.answered();
        self.last_answer = LastAnswer::of(request, progress.answer());
        self.inbox.finish();
        progress.result(Stop::Finished, None, request)
    }

    /// Returns a run that replaces one that failed after the host had sent its results, if the turn
    /// can be recovered.
    pub(super) async fn recover_run(
        &mut self,
        live: &LiveRun,
        ended: &Ended,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> Option<LiveRun> {
        let loss = recover::within_turn(ended, progress)?;
        let may_answer_again = !progress.has_answered();
        let kept = Some(live.conversation.clone());
        let key = self.slot.key();
        let RecoveryOutcome::Ready(ready) =
            recover::recover(request, kept, key, loss, may_answer_again)
        else {
            return None;
        };
        // This turn has already shown the part of its answer that the checkpoint includes.
        let Ready {
            conversation,
            action,
            unshown: _,
        } = *ready;
        let action = match (action, loss) {
            (Action::Resume, LossKind::Silent) if !progress.since_checkpoint.trim().is_empty() => {
                Action::UserMessage(UserMessage {
                    text: prompts::continue_answer(&progress.since_checkpoint),
                    images: Vec::new(),
                    mode: request.mode,
                })
            }
            (action, _) => action,
        };
        self.effects.keep(request.history(), ended.effects.clone());
        progress.recoveries += 1;
        if let Outcome::Failed(failure) = &ended.outcome {
            request.send(TurnEvent::retrying(failure)).await;
        }
        // The prompt was counted when it was first sent.
        let counted = progress.seen.input;
        let live = self.launch(conversation, action, request, progress).await;
        progress.seen.input = counted;
        Some(live)
    }

    /// Starts a run. Reports each change to the offered tools once.
    async fn launch(
        &mut self,
        conversation: Conversation,
        action: Action,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> LiveRun {
        if let Action::UserMessage(message) = &action {
            progress.count_text(&message.text);
            progress.count_tokens(usage::image_tokens(message.images.len()));
        }
        let snapshot = start_run::snapshot(request);
        for warning in &snapshot.warnings {
            if self.shown_notices.insert(warning.clone()) {
                tracing::info!("{warning}");
                let remark = TurnEvent::Remark(warning.clone());
                request.send(remark).await;
            }
        }
        let settings = match self.settings.take() {
            Some(settings) => settings,
            None => {
                let library = &request.library;
                library
                    .open(&request.policy.cursor, &request.workspace)
                    .await
            }
        };
        let problems = settings.servers.problems(snapshot.tools.len());
        for notice in settings.notices.iter().chain(&problems) {
            if self.shown_notices.insert(notice.clone()) {
                self.notice(request, Some(notice.clone())).await;
            }
        }
        let started_from = start(&conversation);
        if started_from == Start::History {
            self.inbox.checkpoint_lost();
        }
        let (effects, log_file) = self.effects.begin(request, &conversation, started_from);
        let before = start_run::CarriedOver {
            spent: progress.spent,
            delay: std::mem::take(&mut progress.delay),
            shown: progress.since_checkpoint.clone(),
            answer: progress.answer().to_owned(),
            effects,
            log_file,
        };
        // On every event of the run, because recovery events carry the same key.
        let key = self.slot.key().prefix();
        let span = tracing::debug_span!("bridge", bridgeKeyPrefix = key);
        let resources = &self.resources;
        span.in_scope(|| {
            start_run::launch(
                conversation,
                action,
                request,
                snapshot,
                before,
                &settings,
                resources,
            )
        })
    }

    /// Returns the error text of a failed turn and keeps its effects for a retry. If a retry could
    /// not report all of them to Cursor, the text is one on which hosts do not retry automatically.
    pub(super) fn fail(
        &mut self,
        request: &OpenTurn,
        live: &LiveRun,
        ended: &Ended,
        failure: &Failure,
    ) -> String {
        let can_report_all = ended.effects.can_report_all(start(&live.conversation));
        self.effects.keep(request.history(), ended.effects.clone());
        match failure.retry() {
            Retry::Server | Retry::Transport | Retry::Idle if !can_report_all => {
                EFFECTS_LOST.into()
            }
            _ => wording(failure),
        }
    }

    /// Sends messages in a run of their own, on the checkpoint the last run left.
    pub(super) async fn send_separately(
        &mut self,
        conversation: Conversation,
        undelivered: Vec<UnsavedMessage>,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> Result<LiveRun, String> {
        let Transcript {
            system, messages, ..
        } = &request.transcript;
        let (sent, known) = (conversation.sent.as_ref(), conversation.answer.as_deref());
        // A checkpoint from before this turn includes none of its answer. What it lacks of the answer
        // before, such as text before a card, is in the history.
        let is_of_turn = sent.is_some_and(|sent| sent.len() > latest_start(messages));
        let (known, earlier) = if is_of_turn {
            (known, None)
        } else {
            (Some(""), known)
        };
        let gap = known.map_or(AnswerGap::None, |known| compare(known, progress.answer()));
        // What the history contains after the checkpoint is not sent separately.
        let covered = sent.map_or(0, Fingerprint::len);
        let in_history =
            (undelivered.iter()).any(|unsaved| matches!(unsaved.source, Source::History(_)));
        let separate = |covered: usize| {
            let separate = undelivered.iter().filter(|unsaved| match unsaved.source {
                Source::Separate => true,
                Source::History(place) => place <= covered,
            });
            let texts: Vec<&str> = separate
                .map(|unsaved| unsaved.message.text.as_str())
                .collect();
            texts.join("\n\n")
        };
        let joined_with = |text: String, separate: String| {
            if separate.is_empty() {
                text
            } else {
                format!("{text}\n\n{separate}")
            }
        };
        let all =
            joined(undelivered.iter().map(|unsaved| unsaved.message.clone())).unwrap_or_default();
        let (conversation, text) = match plan_send(sent, earlier, &[], system, messages) {
            // The checkpoint lacks only the undelivered messages and the text after it.
            SendPlan::Nothing | SendPlan::Resume { .. } => {
                (conversation, with_note(all.text, &gap))
            }
            SendPlan::Incremental { text, .. } => {
                let text = joined_with(text, separate(covered));
                (conversation, with_note(text, &gap))
            }
            SendPlan::Bootstrap { history, text, .. } => {
                let (before, text) = if in_history {
                    (history, joined_with(text, separate(0)))
                } else {
                    (&messages[..], separate(0))
                };
                // No checkpoint includes this turn's answer, and the model would repeat it.
                let mut history = before.to_vec();
                if !progress.answer().is_empty() {
                    history.push(Message::assistant(progress.answer()));
                }
                let fresh = start_run::rebuilt(request, &history, conversation.into_kept());
                if fresh.is_err() {
                    self.inbox.add([all.clone()]);
                }
                (fresh?, text)
            }
        };
        let action = Action::UserMessage(UserMessage {
            text,
            images: all.images,
            mode: request.mode,
        });
        progress.start_paragraph();
        let mut live = self.launch(conversation, action, request, progress).await;
        live.inbox.start_with(undelivered);
        for message in self.inbox.take_except(0) {
            live.inject(message, Source::Separate).await;
        }
        Ok(live)
    }
}

/// Returns whether a history returns the results of the cards of the stored pause, and nothing else.
fn returns_cards(conversation: &Conversation, messages: &[Message]) -> bool {
    let at = latest_start(messages);
    let (Some(pause), Some(before)) = (&conversation.pause, at.checked_sub(1)) else {
        return false;
    };
    let place = TurnStart::of(&messages[..before]);
    let of_pause = |message: &Message| {
        message.as_tool_result().is_some_and(|result| {
            is_card(&result.call_id) && pause.calls.iter().any(|call| call.id == result.call_id)
        })
    };
    (place.turns, &place.history) == (pause.turns, &pause.history)
        && at < messages.len()
        && messages[at..].iter().all(of_pause)
}

/// Returns whether a run of the conversation starts from its checkpoint or from a history.
fn start(conversation: &Conversation) -> Start {
    match conversation.sent {
        Some(_) => Start::State,
        None => Start::History,
    }
}
