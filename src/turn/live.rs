//! A run that outlives host turns: it waits while the host executes tools, and goes on
//! when their results come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::Instant;
use uuid::Uuid;

use super::memory::Conversation;
use super::request::{Hands, TurnEvent, TurnRequest};
use super::usage::{self, Seen};
use crate::conversation::continuation::continuation;
use crate::conversation::fingerprint::{Continuity, Fingerprint};
use crate::conversation::store::StoreError;
use crate::diag::Digest;
use crate::run::{Command, Ended, Handle, Injection, Outcome, RunEvent};
use crate::tools::bridge::content::Content;
use crate::tools::bridge::{Bridge, HostCall, HostResult, Verdict};
use crate::wire::failure::Retry;
use crate::wire::proto::agent::v1::{ContextInjectionStateUpdate, context_injection_state};
use crate::wire::state::occupancy;

/// Events that may pile up while the host works; then the run stops reading.
const MOST_WAITING: usize = 4096;
/// The official client waits this long for the first word on an injected message.
const UNHEARD: Duration = Duration::from_secs(15);

/// A run and what is open about it.
pub(super) struct Live {
    handle: Handle,
    bridge: Arc<Bridge>,
    pub(super) conversation: Conversation,
    on_disk: OnDisk,
    /// The history the run has been told.
    covers: Fingerprint,
    /// Calls the host has been offered and has not answered, oldest first.
    open: Vec<HostCall>,
    /// What happened while the host was away.
    waiting: VecDeque<RunEvent>,
    /// Words the model has not been seen to hear.
    unheard: Vec<Unheard>,
}

struct Unheard {
    id: Uuid,
    text: String,
    /// When to stop hoping that the server takes it; `None` once it has said that it did.
    give_up: Option<Instant>,
}

/// Why driving a run stopped.
pub(super) enum Pause {
    /// The host has calls to execute.
    ToolUse,
    /// The run is over.
    Over(Option<Ended>),
}

/// What a turn has seen of a run.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) seen: Seen,
    /// The model's window, as Cursor told it.
    pub(super) window: Option<u32>,
    output: String,
}

impl Tally {
    /// Counts what was said to the model.
    pub(super) fn said(&mut self, text: &str) {
        self.seen.input += usage::estimate(text);
    }

    /// All of it so far.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            output: usage::estimate(&self.output),
            ..self.seen
        }
    }
}

impl Live {
    pub(super) fn new(
        handle: Handle,
        bridge: Arc<Bridge>,
        conversation: Conversation,
        covers: Fingerprint,
    ) -> Self {
        Self {
            handle,
            bridge,
            conversation,
            on_disk: OnDisk::Current,
            covers,
            open: Vec::new(),
            waiting: VecDeque::new(),
            unheard: Vec::new(),
        }
    }

    /// Whether a history goes on with this run: by its calls, else by its words.
    pub(super) fn continues(&self, system: &str, messages: &[Json]) -> bool {
        let waits = |id: &str| self.open.iter().any(|call| call.id == id);
        if !continuation(messages, waits).results.is_empty() {
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

    /// Gives the run what the host brings: results first, then words. Calls without a result
    /// are offered again, unless the person spoke instead.
    pub(super) async fn resume(&mut self, system: &str, messages: &[Json], tally: &mut Tally) {
        let waits = |id: &str| self.open.iter().any(|call| call.id == id);
        let brought = continuation(messages, waits);
        for (id, message) in brought.results {
            let Some(at) = self.open.iter().position(|call| call.id == id) else {
                continue;
            };
            tally.said(&message["content"].to_string());
            self.open.remove(at).answer(HostResult {
                content: Content::read(&message["content"]),
                verdict: match message["isError"] {
                    Json::Bool(true) => Verdict::Failed,
                    _ => Verdict::Done,
                },
                details: message["details"].clone(),
            });
        }
        tracing::debug!(left = self.open.len(), words = %Digest(&brought.words), "turn.resumed");
        self.covers = Fingerprint::of(system, messages);
        let left = std::mem::take(&mut self.open);
        if brought.words.is_empty() {
            for call in left.into_iter().rev() {
                self.waiting.push_front(RunEvent::HostCall(Box::new(call)));
            }
        } else {
            for call in left {
                call.answer(HostResult::failed(
                    "the user went on before this tool had finished",
                ));
            }
            tally.said(&brought.words);
            self.inject(brought.words).await;
        }
    }

    async fn inject(&mut self, text: String) {
        let id = Uuid::new_v4();
        self.unheard.push(Unheard {
            id,
            text: text.clone(),
            give_up: Some(Instant::now() + UNHEARD),
        });
        let _ = self
            .handle
            .commands
            .send(Command::Inject(Injection { id, text }))
            .await;
    }

    /// Words the model did not hear, to be said in a run of their own.
    pub(super) fn unheard_words(&mut self) -> Option<String> {
        let words: Vec<String> = self.unheard.drain(..).map(|unheard| unheard.text).collect();
        (!words.is_empty()).then(|| words.join("\n\n"))
    }

    /// The run is to be given up; its last checkpoint may still come.
    pub(super) async fn cancel(&mut self) {
        self.leave().await;
        self.open.clear();
    }

    async fn leave(&mut self) {
        let queued = |event: &&RunEvent| matches!(event, RunEvent::HostCall(_));
        self.bridge
            .cancelled(self.waiting.iter().filter(queued).count());
        let _ = self.handle.commands.send(Command::Cancel).await;
    }

    /// Sees a run off that was given up: gives its end, when the last checkpoint has come or
    /// the run has waited for it long enough.
    pub(super) async fn see_off(&mut self) -> Option<Ended> {
        loop {
            match self.next().await {
                Some(RunEvent::Checkpoint(state)) => self.checkpoint(state),
                Some(RunEvent::Ended(ended)) => return Some(ended),
                Some(_) => {}
                None => return None,
            }
        }
    }

    async fn next(&mut self) -> Option<RunEvent> {
        match self.waiting.pop_front() {
            Some(event) => Some(event),
            None => self.handle.events.recv().await,
        }
    }

    /// Takes one event while the host is away. Gives whether the conversation changed;
    /// pends while there is no room.
    pub(super) async fn idle(&mut self) -> Idle {
        if self.waiting.len() >= MOST_WAITING {
            return std::future::pending().await;
        }
        match self.handle.events.recv().await {
            Some(RunEvent::Checkpoint(state)) => {
                self.checkpoint(state);
                Idle::Changed
            }
            Some(event) => {
                self.waiting.push_back(event);
                Idle::Same
            }
            // The last event waits; there is nothing more to listen for.
            None => std::future::pending().await,
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

    fn checkpoint(&mut self, state: bytes::Bytes) {
        self.on_disk = OnDisk::Stale;
        self.conversation.state = Some(state);
        self.conversation.sent = Some(self.covers.clone());
    }

    /// Shows what the run does until the host is needed or it is over. Safe to drop and call
    /// again.
    pub(super) async fn drive(
        &mut self,
        request: &mut TurnRequest,
        tally: &mut Tally,
        offered: &mut Offered,
    ) -> Pause {
        loop {
            let give_up = self
                .unheard
                .iter()
                .filter_map(|unheard| unheard.give_up)
                .min();
            let event = tokio::select! {
                event = self.next() => event,
                Some(words) = request.injections.recv() => {
                    self.inject(words).await;
                    continue;
                }
                () = tokio::time::sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                    self.release().await;
                    continue;
                }
            };
            let shown = match event {
                Some(RunEvent::Text(text)) => {
                    tally.output.push_str(&text);
                    TurnEvent::Text(text)
                }
                Some(RunEvent::Thinking(text)) => {
                    tally.output.push_str(&text);
                    TurnEvent::Thinking(text)
                }
                Some(RunEvent::ThinkingDone) => TurnEvent::ThinkingDone,
                Some(RunEvent::Retrying(failure)) => TurnEvent::Retrying(failure.to_string()),
                Some(RunEvent::Checkpoint(state)) => {
                    if let Ok(Some(occupancy)) = occupancy(&state) {
                        tally.seen.occupied = Some(occupancy.used.into());
                        tally.window = Some(occupancy.limit).filter(|limit| *limit > 0);
                    }
                    self.checkpoint(state);
                    continue;
                }
                Some(RunEvent::HostCall(call)) => match self.offer(*call, request, offered).await {
                    Some(shown) => shown,
                    None => continue,
                },
                Some(RunEvent::Settled) => match offered {
                    Offered::Settling => return Pause::ToolUse,
                    Offered::Nothing => continue,
                },
                Some(RunEvent::Injection(report)) => {
                    self.heard(&report).await;
                    continue;
                }
                Some(RunEvent::Ended(ended)) => return Pause::Over(Some(ended)),
                Some(_) => continue,
                None => return Pause::Over(None),
            };
            if let TurnEvent::ToolCall {
                name, arguments, ..
            } = &shown
            {
                tally.output.push_str(name);
                tally.output.push_str(&arguments.to_string());
            }
            // A host that stopped listening has cancelled, or will.
            let _ = request.events.send(shown).await;
        }
    }

    /// Offers a call to the host. The first one of a turn asks the run to say when all that
    /// has already arrived is told: those calls are offered together.
    async fn offer(
        &mut self,
        call: HostCall,
        request: &TurnRequest,
        offered: &mut Offered,
    ) -> Option<TurnEvent> {
        if call.is_void() {
            return None;
        }
        if let Hands::Inline(hands) = &request.hands {
            if let Err(refused) = hands.send(call).await {
                refused
                    .0
                    .answer(HostResult::failed("the host takes no calls any more"));
            }
            return None;
        }
        let shown = TurnEvent::ToolCall {
            id: call.id.clone(),
            name: call.tool.clone(),
            arguments: call.arguments.clone(),
        };
        self.open.push(call);
        if *offered == Offered::Nothing {
            *offered = Offered::Settling;
            let _ = self.handle.commands.send(Command::Settle).await;
        }
        Some(shown)
    }

    async fn heard(&mut self, report: &ContextInjectionStateUpdate) {
        use context_injection_state::State;
        let Some(at) = self
            .unheard
            .iter()
            .position(|u| u.id.to_string() == report.injection_id)
        else {
            return;
        };
        match report.state.as_ref().and_then(|state| state.state.as_ref()) {
            Some(State::Delivered(_)) => {
                self.unheard.remove(at);
            }
            Some(State::Queued(_)) | None => self.unheard[at].give_up = None,
            // Not in this run: the words need one of their own.
            Some(State::QueuedForNextTurn(_) | State::Cancelled(_) | State::Rejected(_)) => {
                self.release().await;
            }
        }
    }

    /// Ends the run so that unheard words can be said in the next one.
    async fn release(&mut self) {
        for unheard in &mut self.unheard {
            unheard.give_up = None;
        }
        self.leave().await;
    }

    /// Whether the turn's end leaves a state that stands for all that was said.
    pub(super) fn settle_accounts(&mut self, outcome: Option<&Outcome>, shown: Shown) {
        let current = self.conversation.sent.as_ref() == Some(&self.covers);
        let sound = match outcome {
            Some(Outcome::Finished) => current,
            // What was shown and is in no checkpoint would be forgotten.
            Some(Outcome::Cancelled) => current || shown == Shown::Nothing,
            Some(Outcome::Failed(failure)) => current && failure.retry() == Retry::Transport,
            None => false,
        };
        if !sound {
            self.conversation.sent = None;
        }
    }
}

/// Whether what is on disk is what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDisk {
    Current,
    Stale,
}

/// Whether a turn has offered calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    Nothing,
    /// Yes, and the run has been asked to settle.
    Settling,
}

/// Whether the host has been shown anything of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Something,
}

impl Tally {
    pub(super) fn shown(&self) -> Shown {
        match self.output.is_empty() {
            true => Shown::Nothing,
            false => Shown::Something,
        }
    }
}

/// What happened while the host was away.
pub(super) enum Idle {
    /// A new checkpoint came.
    Changed,
    /// Something that can wait.
    Same,
}
