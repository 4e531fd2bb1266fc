//! A run that outlives host turns: it waits while the host executes tools, and goes on
//! when their results come.

mod offer;
mod resume;
mod rounds;
mod words;

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::Instant;

pub(super) use self::offer::Offered;
use self::rounds::Round;
pub(super) use self::words::said;
use super::memory::Conversation;
use super::request::{TurnEvent, TurnRequest};
use super::show::{Show, ends_cards};
use super::steer::{Source, Steering, Then};
use super::tally::{Shown, Tally, tell};
use crate::conversation::continuation::results;
use crate::conversation::fingerprint::{Continuity, Fingerprint};
use crate::conversation::store::StoreError;
use crate::run::queue::Weighed as _;
use crate::run::{Command, Ended, Handle, Memo, Outcome, RunEvent};
use crate::tools::bridge::gate::Inlet;
use crate::tools::bridge::{Bridge, HostCall};
use crate::tools::permission::TurnTools;
use crate::wire::awake;
use crate::wire::failure::Retry;
use crate::wire::state::Occupancy;

/// Events that may pile up while the host works, and their bytes; then the run stops reading.
const MOST_WAITING: usize = 4096;
const MOST_WAITING_BYTES: usize = 4 * 1024 * 1024;

/// A run and what is open about it.
pub(super) struct Live {
    handle: Handle,
    bridge: Arc<Bridge>,
    pub(super) conversation: Conversation,
    /// The beginning of the session's key, once there was a pause.
    key: String,
    /// The state the run began with.
    began: Option<bytes::Bytes>,
    on_disk: OnDisk,
    /// What was done here that the state knows, and nobody has crossed out.
    settled: Vec<String>,
    /// The history the run has been told.
    covers: Fingerprint,
    /// The same without the words it was told last, if nothing else came with them.
    before_words: Option<Fingerprint>,
    /// What it has answered to that, shown or not.
    heard: String,
    /// Results it was given that its newest state may not know, oldest first.
    rounds: Vec<Round>,
    /// Calls of the host's tools that do not come from Cursor.
    inlet: Inlet,
    /// Calls the host has been offered and has not answered, oldest first.
    open: Vec<HostCall>,
    /// What the host has not been shown of them.
    offering: Vec<TurnEvent>,
    /// What happened while the host was away.
    waiting: VecDeque<RunEvent>,
    /// Bytes of those that were added since the host went away.
    waiting_bytes: usize,
    /// Words for the model at work.
    steering: Steering,
    /// What the context holds, by the newest state.
    occupancy: Option<Occupancy>,
    /// What the current turn says about tools; the run's executors read it.
    tools: watch::Sender<Arc<TurnTools>>,
    /// What Cursor's own tools did.
    show: Show,
    /// Lines that came between calls: they open the next turn.
    later: Vec<TurnEvent>,
    /// Answers to [`Command::Settle`] that have not come.
    settling: usize,
}

/// What a run begins with: the history it is told, and what of the answer is there already.
pub(super) struct Covered {
    pub(super) covers: Fingerprint,
    pub(super) heard: String,
}

/// Why driving a run stopped.
pub(super) enum Pause {
    /// The host has calls to execute.
    ToolUse,
    /// The run is over.
    Over(Option<Box<Ended>>),
}

impl Live {
    pub(super) fn new(
        handle: Handle,
        bridge: Arc<Bridge>,
        conversation: Conversation,
        Covered { covers, heard }: Covered,
        show: Show,
        inlet: Inlet,
        tools: watch::Sender<Arc<TurnTools>>,
    ) -> Self {
        Self {
            tools,
            handle,
            bridge,
            key: String::new(),
            began: conversation.state.clone(),
            conversation,
            on_disk: OnDisk::Current,
            settled: Vec::new(),
            covers,
            before_words: None,
            heard,
            rounds: Vec::new(),
            inlet,
            open: Vec::new(),
            offering: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            steering: Steering::new(),
            occupancy: None,
            show,
            later: Vec::new(),
            settling: 0,
        }
    }

    /// Another turn takes the run over, with tool switches of its own.
    pub(super) fn use_tools(&mut self, tools: Arc<TurnTools>) {
        self.show.decisions = tools.decisions.clone();
        self.tools.send_replace(tools);
    }

    fn waits(&self, id: &str) -> bool {
        self.open.iter().any(|call| call.id == id) || self.show.waits(id)
    }

    /// Whether a history goes on with this run: by its calls, else by its words.
    pub(super) fn continues(&self, system: &str, messages: &[Json]) -> bool {
        if !results(messages, |id| self.waits(id)).is_empty() {
            return true;
        }
        let now = Fingerprint::of(system, messages);
        matches!(
            now.continuity(Some(&self.covers), messages),
            Continuity::Continues(_)
        )
    }

    /// How the run ended while the host was away, if it failed.
    pub(super) fn lost(&self) -> Option<&Outcome> {
        match self.waiting.back() {
            Some(RunEvent::Ended(Ended { outcome, .. })) => {
                Some(outcome).filter(|outcome| matches!(outcome, Outcome::Failed(_)))
            }
            _ => None,
        }
    }

    /// What tools did for a run that ended while the host was away.
    pub(super) fn done(&self) -> Memo {
        match self.waiting.back() {
            Some(RunEvent::Ended(ended)) => ended.done.clone(),
            _ => Memo::default(),
        }
    }

    /// The run broke while the host was away. Its state stands for what it stood for, unless
    /// the server itself refused to go on.
    pub(super) fn lose(&mut self) {
        let refused = matches!(self.lost(), Some(Outcome::Failed(failure)) if failure.retry() == Retry::Never && failure.doubts_state());
        if refused {
            self.conversation.sent = None;
        }
    }

    /// Whether the run's end waits to be told.
    fn is_over(&self) -> bool {
        let end = |event: &RunEvent| matches!(event, RunEvent::Ended(_));
        self.waiting.iter().any(end)
    }

    /// The run is to be given up; its last checkpoint may still come.
    pub(super) async fn cancel(&mut self) {
        self.leave().await;
        self.open.clear();
        self.inlet.shut();
    }

    /// The run is given up, and nobody goes on with its conversation: it is told so behind our
    /// back. What is kept of the conversation is free at once.
    pub(super) fn forsake(self) {
        let Self {
            mut handle,
            bridge,
            waiting,
            ..
        } = self;
        bridge.cancelled(calls(&waiting));
        tokio::spawn(async move {
            let _ = handle.commands.send(Command::Cancel).await;
            while handle.events.recv().await.is_some() {}
        });
    }

    async fn leave(&mut self) {
        self.bridge.cancelled(calls(&self.waiting));
        let _ = self.handle.commands.send(Command::Cancel).await;
    }

    /// Sees a run off that was given up: gives its end, when the last checkpoint has come or
    /// the run has waited for it long enough. A state that knows words nobody was shown is
    /// not taken: the next turn would go on behind them. From when it is `wanted` gone, the
    /// run has little time.
    pub(super) async fn see_off(&mut self, wanted: impl Future<Output = ()>) -> Option<Ended> {
        let mut shown = Shown::Something;
        let mut wanted = std::pin::pin!(wanted.fuse());
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = &mut wanted => {
                    let _ = self.handle.commands.send(Command::Hurry).await;
                    continue;
                }
            };
            match event {
                Some(RunEvent::Text(_)) => shown = Shown::Nothing,
                Some(RunEvent::Checkpoint(saved)) if shown == Shown::Something => {
                    self.checkpoint(saved);
                }
                Some(RunEvent::Ended(ended)) => return Some(ended),
                Some(_) => {}
                None => return None,
            }
        }
    }

    async fn next(&mut self) -> Option<RunEvent> {
        if let Some(event) = self.waiting.pop_front() {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(event.bytes());
            return Some(event);
        }
        let event = tokio::select! {
            event = self.handle.events.recv() => event,
            call = self.inlet.next() => Some(RunEvent::HostCall(Box::new(call))),
        };
        self.hear(event.as_ref());
        event
    }

    fn hear(&mut self, event: Option<&RunEvent>) {
        if let Some(RunEvent::Text(text)) = event {
            self.heard.push_str(text);
        }
    }

    /// Takes one event while the host is away. Gives whether the conversation changed;
    /// pends while there is no room.
    pub(super) async fn idle(&mut self) -> Idle {
        if self.waiting.len() >= MOST_WAITING || self.waiting_bytes >= MOST_WAITING_BYTES {
            return std::future::pending().await;
        }
        let event = tokio::select! {
            Some(event) = self.handle.events.recv() => event,
            call = self.inlet.next() => {
                // Callers that come and go must not use up the room of the run's events.
                self.waiting.retain(|event| !is_void(event));
                RunEvent::HostCall(Box::new(call))
            }
        };
        self.hear(Some(&event));
        match event {
            RunEvent::Checkpoint(saved) => {
                self.checkpoint(saved);
                Idle::Changed
            }
            event => {
                if let RunEvent::Ended(Ended {
                    outcome: Outcome::Failed(failure),
                    ..
                }) = &event
                {
                    let event = match self.conversation.sent.as_ref() == Some(&self.covers) {
                        true => "bridge.died_mid_pause_checkpoint_saved",
                        false => "bridge.died_mid_pause_no_checkpoint",
                    };
                    let key = self.key.as_str();
                    tracing::debug!(event, bridgeKeyPrefix = key, class = failure.class());
                }
                self.waiting_bytes += event.bytes();
                self.waiting.push_back(event);
                Idle::Same
            }
        }
    }

    /// Writes the conversation down if it has changed: a host that calls tools in a row must
    /// not wait for the disk each time.
    pub(super) async fn save(&mut self) -> Result<(), StoreError> {
        if self.on_disk == OnDisk::Stale {
            self.conversation.save().await?;
            self.on_disk = OnDisk::Current;
        }
        Ok(())
    }

    /// What was done here that the state knows, told once.
    pub(super) fn settled(&mut self) -> Vec<String> {
        std::mem::take(&mut self.settled)
    }

    /// Shows what the run does until the host is needed or it is over. Safe to drop and call
    /// again.
    pub(super) async fn drive(
        &mut self,
        request: &mut TurnRequest,
        tally: &mut Tally,
        offered: &mut Offered,
    ) -> Pause {
        while *offered == Offered::Nothing && !self.later.is_empty() {
            tell(self.later.remove(0), request, tally).await;
        }
        loop {
            let give_up = self.steering.deadline();
            let mut event = tokio::select! {
                // What the server has said by now counts before the time is up.
                biased;
                Some(message) = request.injections.recv() => {
                    self.inject(message, Source::Beside).await;
                    continue;
                }
                event = self.next() => event,
                () = tokio::time::sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                    let now = Instant::now();
                    match give_up.is_some_and(|due| awake::is_late(due, now)) {
                        // We were stopped: what the server said meanwhile is still to be read.
                        true => self.steering.rearm(now),
                        false => self.release(offered).await,
                    }
                    continue;
                }
            };
            if *offered == Offered::Cards
                && let Some(event) = event.take_if(|event| ends_cards(event))
            {
                let over = |event: &RunEvent| matches!(event, RunEvent::Ended(end) if end.outcome == Outcome::Finished);
                if over(&event) && self.later.is_empty() && self.steering.is_settled() {
                    self.show.last();
                }
                self.waiting.push_front(event);
                return Pause::ToolUse;
            }
            // Words after a call are said after it.
            if *offered == Offered::Calls
                && let Some(event) = event.take_if(|event| is_speech(event))
            {
                self.waiting.push_front(event);
                return Pause::ToolUse;
            }
            let shown = match event {
                Some(RunEvent::Text(text)) => {
                    self.show.said(&text);
                    TurnEvent::Text(text)
                }
                Some(RunEvent::Thinking(text)) => TurnEvent::Thinking(text),
                Some(RunEvent::ThinkingDone) => TurnEvent::ThinkingDone,
                Some(RunEvent::Retrying(failure)) => {
                    self.say_again().await;
                    TurnEvent::Retrying(failure.to_string())
                }
                Some(RunEvent::Checkpoint(saved)) => {
                    tally.since_checkpoint.clone_from(&saved.behind);
                    self.checkpoint(saved);
                    self.count(tally);
                    continue;
                }
                Some(RunEvent::HostCall(call)) => {
                    self.offer(*call, request, offered).await;
                    continue;
                }
                Some(RunEvent::Settled) => {
                    self.settling = self.settling.saturating_sub(1);
                    match offered {
                        // Of an earlier turn: this one's is still to come.
                        _ if self.settling > 0 => continue,
                        Offered::Calls | Offered::Cards => return Pause::ToolUse,
                        Offered::Nothing => continue,
                    }
                }
                Some(RunEvent::Injection(report)) => {
                    if self.steering.report(&report) == Then::Release {
                        self.release(offered).await;
                    }
                    continue;
                }
                // Another agent's calls outlast Cursor's words: the host does them first.
                Some(RunEvent::Ended(ended)) if self.owes(&ended, *offered) => {
                    self.waiting.push_front(RunEvent::Ended(ended));
                    return Pause::ToolUse;
                }
                Some(RunEvent::Ended(ended)) => {
                    if ended.outcome == Outcome::Finished
                        && let Some(rest) = self.show.unsaid()
                    {
                        // The state knows it, though not as words.
                        if let Some(answer) = &mut self.conversation.answer {
                            answer.push_str(&rest);
                        }
                        tell(TurnEvent::Text(rest), request, tally).await;
                    }
                    return Pause::Over(Some(Box::new(ended)));
                }
                Some(event) => match self.activity(event, request, tally, offered).await {
                    Some(pause) => return pause,
                    None => continue,
                },
                None => return Pause::Over(None),
            };
            tell(shown, request, tally).await;
        }
    }

    /// Whether the turn's end leaves a state that stands for all that was said.
    pub(super) fn settle_accounts(&mut self, outcome: Option<&Outcome>) {
        let current = self.conversation.sent.as_ref() == Some(&self.covers);
        // Words it ended without hearing are said to the state they came behind.
        let unheard = self.before_words.is_some()
            && self.conversation.sent == self.before_words
            && self.has_unheard();
        let sound = match outcome {
            Some(Outcome::Finished) => current || unheard,
            // An older state is told all that came since.
            Some(Outcome::Cancelled) => true,
            Some(Outcome::Failed(failure)) => match failure.retry() {
                Retry::Transport => true,
                // One the run began with may be what the server chokes on.
                Retry::Server | Retry::Idle => self.conversation.state != self.began,
                Retry::Never => !failure.doubts_state(),
            },
            None => false,
        };
        if !sound {
            self.conversation.sent = None;
        }
        if let Some(Outcome::Finished) = outcome {
            self.conversation.pause = None;
            if !self.has_unheard() {
                // They were answered.
                self.steering.known();
            }
        }
    }
}

/// How many calls wait among events.
fn calls(waiting: &VecDeque<RunEvent>) -> usize {
    let queued = |event: &&RunEvent| matches!(event, RunEvent::HostCall(_));
    waiting.iter().filter(queued).count()
}

/// Whether an event is a call nobody waits for any more.
fn is_void(event: &RunEvent) -> bool {
    matches!(event, RunEvent::HostCall(call) if call.is_void())
}

/// Whether an event is something the model says.
fn is_speech(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Text(_) | RunEvent::Thinking(_))
}

/// Whether what is on disk is what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDisk {
    Current,
    Stale,
}

/// What happened while the host was away.
pub(super) enum Idle {
    /// A new checkpoint came.
    Changed,
    /// Something that can wait.
    Same,
}
