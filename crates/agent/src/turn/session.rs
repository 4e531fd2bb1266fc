//! One session of a host: one task that owns its conversation and takes its turns in order.

mod effects;
mod repeated_request;
mod start_turn;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use self::effects::PromptEffects;
use self::repeated_request::LastAnswer;
use super::activity_display::{ActivityDisplay, Record, Recorded};
use super::channels::{OpenTurn, ReplyOnce, TurnChannels};
use super::conversation_slot::{Conversation, ConversationSlot};
use super::failure_cause::Cause;
use super::live_run::{LiveRun, Pause};
use super::recover;
use super::request::{Keep, Stop, TurnEvent, TurnResult};
use super::start_run::SessionResources;
use super::turn_progress::TurnProgress;
use super::usage::{self, SessionUsage};
use crate::conversation::lost_turn::TurnStart;
use crate::conversation::store::Store;
use crate::effect_log::Start;
use crate::inbox::{Inbox, Source};
use crate::run::{Ended, Outcome};
use agent_tools::bridge::external_calls::ExternalCallSender;
use agent_tools::cursor_config::CursorConfig;
use agent_tools::permission::GrantedTools;
use agent_tools::shell::ShellSession;
use agent_tools::shell::reaper::ChildReaper;

/// A handle to a session's task.
#[derive(Debug, Clone)]
pub struct Session {
    commands: mpsc::Sender<SessionCommand>,
    recorded: Recorded,
    usage: watch::Receiver<SessionUsage>,
    external_calls: watch::Receiver<Weak<ExternalCallSender>>,
    /// How many turns were requested so far.
    requested: Arc<watch::Sender<u64>>,
}

/// How long a released session may take to drain its run and save the conversation.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Resolves when a session's task has ended.
#[derive(Debug, Clone)]
pub struct SessionEnd(watch::Receiver<Weak<ExternalCallSender>>);

impl SessionEnd {
    /// Returns whether the task has ended.
    pub fn is_past(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Resolves when the task has ended and holds no lock.
    pub async fn wait(mut self) {
        // The task owns the sender.
        while self.0.changed().await.is_ok() {}
    }
}

enum SessionCommand {
    Turn(TurnChannels, Span),
    Invalidate(oneshot::Sender<()>),
    Release(oneshot::Sender<()>),
}

impl Session {
    /// Starts the task; it ends with the last handle. A session with a store is kept on disk under
    /// its name.
    pub fn start(store: Option<(Store, String)>, reaper: ChildReaper) -> Self {
        Self::start_after(None, store, reaper)
    }

    /// Starts the task of a session whose previous task may still use the same store.
    pub fn start_after(
        last: Option<SessionEnd>,
        store: Option<(Store, String)>,
        reaper: ChildReaper,
    ) -> Self {
        Self::spawn(last, ConversationSlot::new(store), reaper)
    }

    /// Starts the task of a named session that is kept in memory only.
    pub fn start_unkept(last: Option<SessionEnd>, name: &str, reaper: ChildReaper) -> Self {
        Self::spawn(last, ConversationSlot::unkept(name), reaper)
    }

    fn spawn(last: Option<SessionEnd>, slot: ConversationSlot, reaper: ChildReaper) -> Self {
        let (session, task, inbox) = Self::new(slot, reaper);
        tokio::spawn(async move {
            if let Some(last) = last {
                // A previous task that takes longer still holds its lock, which is reported as an
                // error.
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, last.wait()).await;
            }
            Box::pin(task.run(inbox)).await;
        });
        session
    }

    fn new(
        slot: ConversationSlot,
        reaper: ChildReaper,
    ) -> (Self, SessionTask, mpsc::Receiver<SessionCommand>) {
        let (commands, inbox) = mpsc::channel(16);
        let recorded = Recorded::default();
        let (call_sender, external_calls) = watch::channel(Weak::new());
        let (count, requested) = watch::channel(0);
        let (usage_sender, usage) = watch::channel(SessionUsage::default());
        let task = SessionTask {
            requested,
            started: 0,
            slot,
            settings: None,
            shown_notices: BTreeSet::new(),
            answered: None,
            last_answer: None,
            live: None,
            effects: PromptEffects::default(),
            cards: None,
            usage: usage_sender,
            resources: SessionResources {
                recorded: recorded.clone(),
                shell_session: Arc::new(ShellSession::new(reaper)),
                read_cache: Arc::default(),
                granted: GrantedTools::default(),
                external_calls: call_sender,
            },
            inbox: Inbox::default(),
        };
        let session = Self {
            commands,
            recorded,
            usage,
            external_calls,
            requested: Arc::new(count),
        };
        (session, task, inbox)
    }

    /// Returns a handle to the end of the task, which is some time after the last [`Session`] is
    /// dropped.
    pub fn end(&self) -> SessionEnd {
        SessionEnd(self.external_calls.clone())
    }

    /// Returns Cursor's counters of the session since it was opened.
    pub fn usage(&self) -> SessionUsage {
        *self.usage.borrow()
    }

    /// Returns the recorded results of all cards.
    pub(crate) fn recorded_cards(&self) -> &Recorded {
        &self.recorded
    }

    /// Returns the recorded result of a card while its run exists.
    pub fn recorded(&self, call: &str) -> Option<Record> {
        self.recorded.get(call)
    }

    /// Returns the sender of calls from other MCP clients to the live run, if there is one. Does not
    /// wait for a turn.
    pub fn external_calls(&self) -> Option<Arc<ExternalCallSender>> {
        let sender = self.external_calls.borrow().upgrade();
        sender.filter(|sender| !sender.over().is_cancelled())
    }

    /// Reserves the next place in the session's queue at the first poll, so that later turns cannot
    /// overtake one whose request takes long to build.
    pub async fn enqueue(&self, turn: TurnChannels) {
        self.requested.send_modify(|turns| *turns += 1);
        // If the task has ended, it drops the channels and the turn fails.
        let turn = SessionCommand::Turn(turn, Span::current());
        let _ = self.commands.send(turn).await;
    }

    /// Forgets the conversation, because the host's history changed: the next turn sends it all.
    pub async fn invalidate(&self) {
        let (reply, done) = oneshot::channel();
        if self
            .commands
            .send(SessionCommand::Invalidate(reply))
            .await
            .is_ok()
        {
            let _ = done.await;
        }
    }

    /// Cancels a run that waits for the host and keeps the conversation.
    pub async fn release(&self) {
        if let Some(done) = self.start_release().await {
            let _ = done.await;
        }
    }

    /// Like [`Session::release`], but returns before it is done; turns requested from now on wait
    /// for it.
    pub async fn start_release(&self) -> Option<oneshot::Receiver<()>> {
        let (reply, done) = oneshot::channel();
        let requested = self.commands.send(SessionCommand::Release(reply)).await;
        requested.ok().map(|()| done)
    }
}

struct SessionTask {
    slot: ConversationSlot,
    /// How many turns were requested, and how many of them started.
    requested: watch::Receiver<u64>,
    started: u64,
    /// The settings that the turn has read for its first run.
    settings: Option<Arc<CursorConfig>>,
    /// Notices the user was shown, so that each is shown once.
    shown_notices: BTreeSet<String>,
    /// When the host last got an answer.
    answered: Option<Instant>,
    last_answer: Option<LastAnswer>,
    /// A run that waits for the host, and until when.
    live: Option<(LiveRun, Instant)>,
    /// What was executed for the prompt under way.
    effects: PromptEffects,
    /// Cards whose run was released while the host displayed them.
    cards: Option<ActivityDisplay>,
    /// Cursor's counters of the session.
    usage: watch::Sender<SessionUsage>,
    resources: SessionResources,
    /// Messages that were accepted from the host and not delivered to any run.
    inbox: Inbox,
}

impl SessionTask {
    async fn run(mut self, mut inbox: mpsc::Receiver<SessionCommand>) {
        loop {
            let until = self.live.as_ref().map(|(_, until)| *until);
            let command = tokio::select! {
                command = inbox.recv() => command,
                has_changed = idle(&mut self.live) => {
                    // Not inside the select: a write that is cancelled half way would continue in
                    // the background and could overwrite a later one.
                    if let (true, Some((live, _))) = (has_changed, &mut self.live) {
                        match live.save().await {
                            Ok(()) => self.effects.saved(&live.take_saved()),
                            Err(error) => tracing::warn!(
                                "the session's last checkpoint could not be saved: {error}"
                            ),
                        }
                    }
                    continue;
                }
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    let key = self.slot.key().prefix();
                    tracing::debug!(bridgeKeyPrefix = key, "bridge.active_ttl_expired");
                    Box::pin(self.release()).await;
                    continue;
                }
            };
            match command {
                Some(SessionCommand::Turn(turn, span)) => {
                    self.started += 1;
                    let (request, mut answer) = match turn.open().await {
                        Ok(turn) => turn,
                        // They were reported as accepted, so the next turn sends them.
                        Err(messages) => {
                            self.inbox.add(messages);
                            continue;
                        }
                    };
                    let repositories = Arc::clone(request.library.repositories());
                    let workspace = request.workspace.clone();
                    // What a turn needs is in a box, so that an idle session does not keep room for it.
                    let turn = Box::pin(self.turn(request, &mut answer)).instrument(span);
                    let result = turn.await;
                    self.answered = Some(Instant::now());
                    answer.send(result);
                    // A parked run has its context.
                    if self.live.is_none() {
                        repositories.refresh_if_slow(&workspace);
                    }
                }
                Some(SessionCommand::Invalidate(done)) => {
                    Box::pin(self.invalidate()).await;
                    let _ = done.send(());
                }
                Some(SessionCommand::Release(done)) => {
                    Box::pin(self.release()).await;
                    let _ = done.send(());
                }
                None => break Box::pin(self.release()).await,
            }
        }
    }

    /// Forgets the conversation, but neither what was executed for the prompt under way nor the
    /// messages that were accepted for it.
    async fn invalidate(&mut self) {
        self.last_answer = None;
        let mut effects = None;
        if let Some((mut live, _)) = self.live.take() {
            live.leave().await;
            let ended = live.drain(std::future::ready(())).await;
            effects = Some(ended.effects);
            self.inbox.keep_saved(&mut live.inbox);
            self.inbox.add(live.inbox.separate());
            self.cards = Some(live.into_parts().1);
        }
        self.effects.rewritten(effects);
        self.inbox.checkpoint_lost();
        self.slot.forget(&self.inbox.separate()).await;
    }

    /// Cancels a run that waits for the host and saves its conversation.
    async fn release(&mut self) {
        if let Some((mut live, _)) = self.live.take() {
            let (unread, pause) = (live.unread(), live.conversation.pause.clone());
            live.leave().await;
            let ended = live.drain(self.next_turn()).await;
            live.check_checkpoint(&ended.outcome);
            if unread.is_some() {
                (live.conversation.unread, live.conversation.pause) = (unread, pause);
            }
            self.keep_messages(&mut live);
            self.effects.keep(live.history(), ended.effects);
            let (notice, cards) = self.save_conversation(live).await;
            self.cards = Some(cards);
            if let Some(notice) = notice {
                tracing::warn!("{notice}");
            }
        }
    }

    async fn turn(&mut self, mut request: OpenTurn, answer: &mut ReplyOnce) -> TurnResult {
        self.settings = None;
        if request.cancel_token().is_cancelled()
            || (self.live.is_none() && !self.prepared(&request).await)
        {
            self.inbox.add(request.take_messages().await);
            return TurnResult::aborted();
        }
        if request.keep == Keep::Memory {
            self.slot.leave_disk();
        }
        let mut progress = TurnProgress::default();
        let transcript = &request.transcript;
        progress.seen.context = usage::context(&transcript.system, &transcript.messages);
        let mut live = match self.begin(&mut request, &mut progress).await {
            Ok(live) => live,
            Err(result) => {
                self.inbox.add(request.take_messages().await);
                return result;
            }
        };
        loop {
            let cancel = request.cancel_token().clone();
            let pause = tokio::select! {
                pause = live.drive(&mut request, &mut progress) => pause,
                () = cancel.cancelled() => {
                    return self.abort(live, request, progress, answer).await;
                }
            };
            let ended = match pause {
                Pause::ToolUse => {
                    live.inject_queued(&mut request).await;
                    let place = TurnStart::of(&request.transcript.messages);
                    live.pause(place, self.slot.key(), recover::now());
                    match live.save().await {
                        Ok(()) => self.effects.saved(&live.take_saved()),
                        Err(error) => {
                            let notice = format!("this turn could not be saved: {error}");
                            self.notice(&request, Some(notice)).await;
                        }
                    }
                    live.present(&request, &mut progress).await;
                    tracing::debug!("turn.parked");
                    let result = progress.result(Stop::ToolUse, None, &request);
                    self.live = Some((live, Instant::now() + request.policy.park));
                    return result;
                }
                Pause::Over(ended) => *ended,
            };
            self.count_run(&ended, &mut progress);
            self.inbox.keep_saved(&mut live.inbox);
            if let Some(again) = self
                .recover_run(&live, &ended, &request, &mut progress)
                .await
            {
                let unsaved = live.take_unsaved();
                live = again;
                for message in self.inbox.take_except(0).into_iter().chain(unsaved) {
                    live.inject(message, Source::Separate).await;
                }
                continue;
            }
            live.inject_queued(&mut request).await;
            live.check_checkpoint(&ended.outcome);
            let over = matches!(ended.outcome, Outcome::Finished | Outcome::Cancelled);
            if over && !live.inbox.is_delivered() {
                let undelivered = live.inbox.take();
                let effects = ended.effects.for_next_run(Start::State, true);
                self.effects.keep(live.history(), effects);
                live = match self
                    .send_separately(live.conversation, undelivered, &request, &mut progress)
                    .await
                {
                    Ok(live) => live,
                    Err(problem) => return TurnResult::failed(Cause::Internal, problem),
                };
                continue;
            }
            self.inbox.add(live.take_unsaved());
            let (stop, cause) = match &ended.outcome {
                Outcome::Finished => (Stop::Finished, None),
                Outcome::Cancelled => (Stop::Aborted, None),
                Outcome::Failed(failure) => {
                    let text = self.fail(&request, &live, &ended, failure);
                    (Stop::Failed(text), Some(Cause::of(failure)))
                }
            };
            let (notice, _) = self.save_conversation(live).await;
            self.notice(&request, notice).await;
            if let Stop::Finished = stop {
                self.effects.answered();
                self.inbox.finish();
                self.last_answer = LastAnswer::of(&request, progress.answer());
            }
            return progress.result(stop, cause, &request);
        }
    }

    /// Keeps the messages that the conversation of a run which has ended may lack, now or later.
    fn keep_messages(&mut self, live: &mut LiveRun) {
        self.inbox.keep_saved(&mut live.inbox);
        self.inbox.add(live.take_unsaved());
    }

    /// Adds Cursor's counters of a run to those of the turn and the session. A run that replaces it
    /// has the retries that it left.
    fn count_run(&self, ended: &Ended, progress: &mut TurnProgress) {
        (progress.spent, progress.delay) = (ended.spent, ended.delay);
        let Some(counters) = ended.usage else {
            // A lost run has no counters that include what its turns returned.
            return;
        };
        progress.report(counters);
        self.usage.send_modify(|usage| usage.add(counters));
        let SessionUsage { runs, counters, .. } = *self.usage.borrow();
        tracing::debug!(
            runs,
            input = counters.input,
            output = counters.output,
            cache_read = counters.cache_read,
            cache_write = counters.cache_write,
            reasoning = counters.reasoning,
            "session.usage"
        );
    }

    /// Reads the settings that a new run needs, which may take a while. Returns `false` if the turn
    /// was cancelled meanwhile; nothing has started yet.
    async fn prepared(&mut self, request: &OpenTurn) -> bool {
        let policy = &request.policy;
        // In the background, for the context that the run is asked for.
        request.library.repositories().refresh(&request.workspace);
        let reading = request.library.open(&policy.cursor, &request.workspace);
        tokio::select! {
            settings = reading => {
                self.settings = Some(settings);
                true
            }
            () = request.cancel_token().cancelled() => false,
        }
    }

    /// Answers the host at once, then drains the run before the next turn starts.
    async fn abort(
        &mut self,
        mut live: LiveRun,
        mut request: OpenTurn,
        progress: TurnProgress,
        answer: &mut ReplyOnce,
    ) -> TurnResult {
        let result = progress.result(Stop::Aborted, None, &request);
        self.answered = Some(Instant::now());
        answer.send(result.clone());
        let last = request.take_messages().await;
        let history = request.history();
        drop(request); // ends the host's events
        let key = self.slot.key().prefix();
        tracing::debug!(bridgeKeyPrefix = key, "native.stream.abort");
        live.cancel().await;
        let ended = live.drain(self.next_turn()).await;
        live.check_checkpoint(&ended.outcome);
        self.effects.stopped(history, ended.effects);
        // These messages were reported as accepted.
        self.keep_messages(&mut live);
        self.inbox.add(last);
        if let Some(notice) = self.put(live.conversation).await {
            tracing::warn!("{notice}");
        }
        result
    }

    /// Stores a conversation with the messages that the next turn sends; returns a notice for the
    /// user if that fails.
    async fn put(&mut self, conversation: Conversation) -> Option<String> {
        self.slot.put(conversation, &self.inbox.separate()).await
    }

    /// Resolves when another turn waits for this one to end.
    fn next_turn(&self) -> impl Future<Output = ()> + use<> {
        let (mut requested, started) = (self.requested.clone(), self.started);
        async move {
            let waits = requested
                .wait_for(|requested| *requested > started)
                .await
                .is_ok();
            if !waits {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn notice(&self, request: &OpenTurn, notice: Option<String>) {
        if let Some(notice) = notice {
            tracing::warn!("{notice}");
            request.send(TurnEvent::Notice(notice)).await;
        }
    }

    /// Saves the conversation of a run that has ended. Returns a notice for the user if that fails,
    /// and the run's cards.
    async fn save_conversation(&mut self, mut live: LiveRun) -> (Option<String>, ActivityDisplay) {
        let saved = live.take_saved();
        let (conversation, cards) = live.into_parts();
        let notice = self.put(conversation).await;
        if notice.is_none() {
            self.effects.saved(&saved);
        }
        (notice, cards)
    }
}

/// Reads a parked run while the host is away, so that it does not stall. Returns whether its
/// conversation has changed.
async fn idle(live: &mut Option<(LiveRun, Instant)>) -> bool {
    match live {
        Some((live, _)) => live.idle().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session waits for most of its life, so its task has no room for a turn.
    #[tokio::test]
    async fn an_idle_session_is_small() {
        let memory = ConversationSlot::unkept("s");
        let (_session, task, inbox) = Session::new(memory, ChildReaper::default());
        let task = task.run(inbox);
        assert!(size_of_val(&task) <= 10 * 1024, "{}", size_of_val(&task));
    }
}
