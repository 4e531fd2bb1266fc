//! How a turn gets its run: the one that waits, one that brings a lost turn back, or a new one.

use super::Task;
use crate::conversation::answer::{Gap, compare};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::picture;
use crate::conversation::plan::{SendPlan, plan, with_note};
use crate::conversation::recovery::Loss;
use crate::diag::Digest;
use crate::run::{Action, Ended, Memo, Outcome, Start, UserMessage};
use crate::turn::launch;
use crate::turn::live::Live;
use crate::turn::memory::Conversation;
use crate::turn::recover::{self, Ready, Repeating, Tried};
use crate::turn::request::{TurnEvent, TurnRequest, TurnResult};
use crate::turn::tally::Tally;
use crate::turn::wording::{UNTOLD, wording};
use crate::wire::failure::{Failure, Retry};

impl Task {
    /// The run this turn drives: the one that waits, or a new one.
    pub(super) async fn begin(
        &mut self,
        request: &mut TurnRequest,
        tally: &mut Tally,
    ) -> Result<Live, TurnResult> {
        let mut untold = Vec::new();
        if let Some((mut live, _)) = self.live.take() {
            let Transcripted { system, messages } = transcript(request);
            let same_account = live.conversation.account == request.account;
            let lost = live.lost().cloned();
            if lost.is_none() && same_account && live.continues(system, messages) {
                live.resume(system, messages, tally).await;
                tracing::debug!(decision = "live resume", "plan");
                return Ok(live);
            }
            // The run is gone, or the history went another way: what waits is of no use any
            // more. Of a run that broke, the last checkpoint is, and what was said to it.
            live.cancel().await;
            if lost.is_some() {
                untold = live.unheard_beside(messages);
                self.done = Some((Fingerprint::of(system, messages), live.done()));
                live.lose();
                let notice = self.memory.put(live.conversation).await;
                self.notice(request, notice).await;
            }
        }
        let mut live = self.begin_anew(request, tally).await?;
        for words in untold {
            live.inject(words).await;
        }
        Ok(live)
    }

    /// A run on what is kept of the conversation, or on a new one.
    async fn begin_anew(
        &mut self,
        request: &mut TurnRequest,
        tally: &mut Tally,
    ) -> Result<Live, TurnResult> {
        let pictures = picture::latest(&request.transcript.messages)
            .map_err(|error| TurnResult::failed(error.to_string()))?;
        let taken = self.memory.take().await;
        let taken = taken.map_err(|busy| TurnResult::failed(busy.to_string()))?;
        self.notice(request, taken.notice).await;
        let mine = taken
            .conversation
            .filter(|conversation| conversation.account == request.account);
        let key = self.memory.key();
        let (mine, lost) = match recover::recover(request, mine, key, Loss::Gone, Repeating::Fine) {
            Tried::Ready(ready) => {
                let Ready {
                    conversation,
                    action,
                    unshown,
                } = *ready;
                tally.comebacks += 1;
                let mut live = self.launch(conversation, action, request, tally).await;
                live.owe(unshown);
                return Ok(live);
            }
            Tried::Unneeded(mine) => (mine, None),
            Tried::Skipped(mine, lost) => (mine, Some(lost)),
        };
        let sent = mine
            .as_ref()
            .and_then(|conversation| conversation.sent.as_ref());
        let answer = mine
            .as_ref()
            .and_then(|conversation| conversation.answer.as_deref());
        let Transcripted { system, messages } = transcript(request);
        let mut owed = String::new();
        let (conversation, text) = match plan(sent, answer, system, messages) {
            SendPlan::Nothing => {
                // What was taken in hand is put back as it was.
                if let Some(conversation) = mine {
                    let notice = self.memory.put(conversation).await;
                    self.notice(request, notice).await;
                }
                return Err(TurnResult::failed(match lost {
                    Some(lost) => recover::lost(&lost),
                    None => "there is no new message to answer".into(),
                }));
            }
            SendPlan::Resume { unshown } => {
                tracing::debug!(decision = "resume", "plan");
                owed = unshown;
                (mine, None)
            }
            SendPlan::Incremental { text, unshown } => {
                tracing::debug!(decision = "incremental", new = %Digest(&text), "plan");
                owed = unshown;
                (mine, Some(text))
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
                let fresh = launch::rebuilt(request, history, taken.kept);
                let told = |problem| match &lost {
                    Some(lost) => {
                        TurnResult::failed(format!("{} ({problem})", recover::lost(lost)))
                    }
                    None => TurnResult::failed(problem),
                };
                (Some(fresh.map_err(told)?), Some(text))
            }
        };
        let Some(conversation) = conversation else {
            return Err(TurnResult::failed("the session lost its conversation"));
        };
        let action = match text {
            None => Action::Resume,
            Some(text) => Action::UserMessage(UserMessage {
                text,
                images: recover::images(pictures),
                mode: request.mode,
            }),
        };
        let mut live = self.launch(conversation, action, request, tally).await;
        // A turn asked for during another cannot tell that one's answer, which was shown.
        if request.asked >= self.answered {
            live.owe(owed);
        }
        Ok(live)
    }

    /// A run in place of one that failed after the host had brought its results.
    pub(super) async fn bring_back(
        &mut self,
        live: &Live,
        ended: Option<&Ended>,
        request: &TurnRequest,
        tally: &mut Tally,
    ) -> Option<Live> {
        let ended = ended?;
        let (loss, repeating) = recover::within_turn(ended, tally)?;
        let kept = Some(live.conversation.clone());
        let key = self.memory.key();
        let Tried::Ready(ready) = recover::recover(request, kept, key, loss, repeating) else {
            return None;
        };
        // What the state knows of this turn's answer, this turn has shown.
        let Ready {
            conversation,
            action,
            unshown: _,
        } = *ready;
        let Transcripted { system, messages } = transcript(request);
        self.done = Some((Fingerprint::of(system, messages), ended.done.clone()));
        tally.comebacks += 1;
        tally.idle_restarts = ended.idle_restarts;
        if let Outcome::Failed(failure) = &ended.outcome {
            let event = TurnEvent::Retrying(failure.to_string());
            let _ = request.events.send(event).await;
        }
        Some(self.launch(conversation, action, request, tally).await)
    }

    /// Starts a run, telling once what of the tools had to be changed.
    async fn launch(
        &mut self,
        conversation: Conversation,
        action: Action,
        request: &TurnRequest,
        tally: &mut Tally,
    ) -> Live {
        if let Action::UserMessage(message) = &action {
            tally.said(&message.text);
        }
        let snapshot = launch::snapshot(request);
        for warning in &snapshot.warnings {
            if self.told.insert(warning.clone()) {
                self.notice(request, Some(warning.clone())).await;
            }
        }
        let settings = request
            .library
            .open(&request.policy.cursor, &request.workspace)
            .await;
        let problems = settings.servers.problems(snapshot.tools.len());
        for notice in settings.notices.iter().chain(&problems) {
            if self.told.insert(notice.clone()) {
                self.notice(request, Some(notice.clone())).await;
            }
        }
        let done = self.done_for(request, start(&conversation));
        let surroundings = launch::Surroundings {
            recorded: &self.recorded,
            bench: &self.bench,
            gate: &self.gate,
            settings,
        };
        let shown = match action {
            Action::Resume => tally.since_checkpoint.clone(),
            _ => String::new(),
        };
        let before = launch::Before {
            restarts: tally.idle_restarts,
            shown,
            told: tally.answer().to_owned(),
            done,
        };
        launch::launch(
            conversation,
            action,
            request,
            snapshot,
            before,
            &surroundings,
        )
    }

    /// What tools did for this very history already.
    fn done_for(&mut self, request: &TurnRequest, start: Start) -> Memo {
        let Transcripted { system, messages } = transcript(request);
        let same = |(of, _): &(Fingerprint, Memo)| *of == Fingerprint::of(system, messages);
        let done = self.done.take().filter(same);
        done.map_or_else(Memo::default, |(_, memo)| memo.handed_on(start))
    }

    /// Tells a failure. What tools did is kept for the host that asks again; one whose tools
    /// did what no other run can be told of should not do so by itself.
    pub(super) fn fail(
        &mut self,
        request: &TurnRequest,
        live: &Live,
        ended: &Ended,
        failure: &Failure,
    ) -> String {
        let tells_all = ended.done.tells_all(start(&live.conversation));
        let Transcripted { system, messages } = transcript(request);
        self.done = Some((Fingerprint::of(system, messages), ended.done.clone()));
        match failure.retry() {
            Retry::Server | Retry::Transport | Retry::Idle if !tells_all => UNTOLD.into(),
            _ => wording(failure),
        }
    }

    /// Says words in a run of their own, on the state the last one left.
    pub(super) async fn say_apart(
        &mut self,
        conversation: Conversation,
        words: UserMessage,
        request: &TurnRequest,
        tally: &mut Tally,
    ) -> Result<Live, String> {
        let Transcripted { system, messages } = transcript(request);
        let (sent, known) = (conversation.sent.as_ref(), conversation.answer.as_deref());
        let gap = known.map_or(Gap::None, |known| compare(known, tally.answer()));
        let (conversation, text) = match plan(sent, None, system, messages) {
            // The state has all but the words that were not heard, and what it was behind.
            SendPlan::Nothing | SendPlan::Resume { .. } => {
                (conversation, with_note(words.text, &gap))
            }
            SendPlan::Incremental { text, .. } => (conversation, text),
            SendPlan::Bootstrap { history, text, .. } => {
                // Words of the host's own history are in the text; others came by themselves.
                let (before, text) = match text.contains(&words.text) {
                    true => (history, text),
                    false => (messages, words.text),
                };
                // What this turn has answered is in no state, and would be said again.
                let mut history = before.to_vec();
                if !tally.answer().is_empty() {
                    let content = serde_json::json!([{"type": "text", "text": tally.answer()}]);
                    history.push(serde_json::json!({"role": "assistant", "content": content}));
                }
                let fresh = launch::rebuilt(request, &history, conversation.into_kept())?;
                (fresh, text)
            }
        };
        let action = Action::UserMessage(UserMessage {
            text,
            images: words.images,
            mode: request.mode,
        });
        Ok(self.launch(conversation, action, request, tally).await)
    }
}

/// Where a run of a conversation begins.
fn start(conversation: &Conversation) -> Start {
    match conversation.sent {
        Some(_) => Start::State,
        None => Start::History,
    }
}

struct Transcripted<'a> {
    system: &'a str,
    messages: &'a [serde_json::Value],
}

fn transcript(request: &TurnRequest) -> Transcripted<'_> {
    Transcripted {
        system: &request.transcript.system,
        messages: &request.transcript.messages,
    }
}
