//! A run from start to end: attempts, fallbacks, retries, one final event.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use uuid::Uuid;

use super::attempt::{self, Closing, Surroundings};
use super::backend::{Backend, Opened};
use super::blobs::Blobs;
use super::event::{Ended, Outcome, RunEvent, Usage};
use super::memo::Memo;
use super::overlap::Overlap;
use super::owed::Owed;
use super::queue::{self, Bounds};
use super::request::{Action, Mode, RunSpec, UserMessage};
use super::retry::{self, Ledger, Next, Progress, Reached, Restarts, RetryPolicy, Shown, Timing};
use super::watchdog::{Bark, Idle, Phase};
use crate::diag::Variant;
use crate::prompts;
use crate::tools::Executor;
use crate::wire::awake;
use crate::wire::error::WireError;
use crate::wire::failure::{Evidence, Failure, Presence, Retry};
use crate::wire::headers::{HttpVersion, RequestIds};

/// Events that may wait for the consumer, and their bytes.
const EVENTS: Bounds = Bounds {
    items: 256,
    bytes: 1024 * 1024,
};
/// Streams in a row that connections did not take before that counts as a failure.
const MOST_REFUSED: u32 = 4;

/// A message for a running run.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Gives the model a message while it works.
    Inject(Injection),
    /// Answered by [`RunEvent::Settled`] as soon as all that has arrived is told: what the
    /// model asks for at once can so be offered at once, without waiting for what may come.
    Settle,
    /// Ends the run.
    Cancel,
    /// Somebody waits for a cancelled run to be gone.
    Hurry,
}

/// A message of the user for a run that is under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// Its id, repeated by the server's reports.
    pub id: Uuid,
    /// The message.
    pub message: UserMessage,
}

/// A running run. Dropping it cancels the run.
#[derive(Debug)]
pub struct Handle {
    /// What happens; the last event is [`RunEvent::Ended`].
    pub events: queue::Receiver<RunEvent>,
    /// What to do.
    pub commands: mpsc::Sender<Command>,
    /// The run's id, known to the server.
    pub run_id: Uuid,
    task: AbortOnDropHandle<()>,
}

impl Handle {
    /// Whether the run's task is gone (after its last event).
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

/// Starts a run.
pub fn start(
    backend: Backend,
    spec: RunSpec,
    executor: Arc<dyn Executor>,
    blobs: Arc<dyn Blobs>,
    policy: RetryPolicy,
    timing: Timing,
) -> Handle {
    let (events, receiver) = queue::weighed(EVENTS);
    let (commands, inbox) = mpsc::channel(16);
    let ids = RequestIds::first();
    crate::diag::secrets().learn(&spec.blob_key.expose_hex().into());
    let span =
        tracing::debug_span!("run", run = %ids.original, conversation = spec.conversation_id);
    let mut spec = spec;
    let memo = std::mem::take(&mut spec.done);
    let (shown, spent) = (Overlap::after(spec.shown.clone()), spec.spent);
    let (overlap, mode) = match &spec.action {
        Action::UserMessage(message) => (shown.told(), message.mode),
        Action::Resume | Action::Summarize => (shown, None),
    };
    let run = Run {
        backend,
        spec,
        executor,
        blobs,
        policy,
        timing,
        events,
        commands: inbox,
        ids,
        ledger: Ledger::after(spent),
        reached: Reached::Never,
        usage: None,
        attempts: 0,
        token_replaced: false,
        refused: 0,
        answer_bytes: 0,
        held: Vec::new(),
        left: Shown::Nothing,
        overlap,
        mode,
        memo,
        owed: Owed::default(),
    };
    let last_word = run.events.clone();
    let task = async move {
        // A panic fails this run and no other, and even then there is a last event.
        let run = Box::pin(AssertUnwindSafe(run.run()).catch_unwind());
        if run.await.is_err() {
            let failure = Failure::Refused("the run failed inside cursor-sidecar".into());
            let ended = Ended {
                outcome: Outcome::Failed(failure),
                usage: None,
                attempts: 0,
                spent,
                rest: Duration::ZERO,
                left: Shown::Executed,
                done: Memo::lost(),
            };
            let _ = last_word.send(RunEvent::Ended(ended)).await;
        }
    };
    Handle {
        events: receiver,
        commands,
        run_id: ids.original,
        task: AbortOnDropHandle::new(tokio::spawn(task.instrument(span))),
    }
}

struct Run {
    backend: Backend,
    spec: RunSpec,
    executor: Arc<dyn Executor>,
    blobs: Arc<dyn Blobs>,
    policy: RetryPolicy,
    timing: Timing,
    events: queue::Sender<RunEvent>,
    commands: mpsc::Receiver<Command>,
    ids: RequestIds,
    ledger: Ledger,
    reached: Reached,
    usage: Option<Usage>,
    attempts: u32,
    token_replaced: bool,
    refused: u32,
    /// Bytes of text and thinking that came, over all attempts.
    answer_bytes: usize,
    held: Vec<Injection>,
    left: Shown,
    overlap: Overlap,
    mode: Option<Mode>,
    memo: Memo,
    owed: Owed,
}

/// What one attempt came to.
enum Step {
    Done(Outcome),
    AgainAtOnce,
    Failed(Failure, Progress),
}

impl Run {
    async fn run(mut self) {
        let started = tokio::time::Instant::now();
        tracing::debug!(
            model = self.spec.model.id,
            action = %Variant(&self.spec.action),
            state_bytes = self.spec.state.as_ref().map(Bytes::len),
            tools = self.spec.offers.len(),
            "run.started"
        );
        let outcome = loop {
            if self.attempts == 0 && self.cancelled_within(self.spec.rest).await {
                break Outcome::Cancelled;
            }
            let (failure, progress) = match self.attempt().await {
                Step::Done(outcome) => break outcome,
                Step::AgainAtOnce => continue,
                Step::Failed(failure, progress) => (failure, progress),
            };
            let class = failure.class();
            let policy = self.policy.having(self.reached);
            let (delay, from) = match self.ledger.next(&policy, &failure, progress, jitter()) {
                Next::GiveUp => break Outcome::Failed(failure),
                Next::Repeat(delay) => (delay, "start"),
                Next::Resume(delay, checkpoint) => {
                    self.spec.state = Some(checkpoint);
                    self.spec.action = self.on_from_checkpoint(&failure);
                    (delay, "checkpoint")
                }
            };
            let delay_ms = delay.as_millis() as u64;
            tracing::debug!(class, delay_ms, from, "run.retry");
            self.ids = self.ids.again();
            if self.events.send(RunEvent::Retrying(failure)).await.is_err() {
                return;
            }
            if self.cancelled_within(delay).await {
                break Outcome::Cancelled;
            }
        };
        self.tell_end(&outcome, started);
        let rest = match &outcome {
            Outcome::Failed(failure) if failure.retry() == Retry::Server => {
                retry::delay(&self.policy, self.ledger.spent().server, jitter())
            }
            _ => Duration::ZERO,
        };
        self.memo.restart();
        let ended = Ended {
            outcome,
            usage: self.usage,
            attempts: self.attempts,
            spent: self.ledger.spent(),
            rest,
            left: self.left,
            done: self.memo,
        };
        let _ = self.events.send(RunEvent::Ended(ended)).await;
    }

    /// How a run goes on from its checkpoint: after a broken connection as the official client
    /// does, after silence told what was shown since. What one stream was told, the next is too.
    fn on_from_checkpoint(&mut self, failure: &Failure) -> Action {
        let tells = failure.retry() == Retry::Idle || self.overlap.is_told();
        match tells.then(|| self.overlap.tell()).flatten() {
            Some(words) => Action::UserMessage(UserMessage {
                text: prompts::continue_answer(&words),
                images: Vec::new(),
                mode: self.mode,
            }),
            None => Action::Resume,
        }
    }

    fn tell_end(&self, outcome: &Outcome, started: tokio::time::Instant) {
        let (outcome, class) = match outcome {
            Outcome::Finished => ("finished", None),
            Outcome::Cancelled => ("cancelled", None),
            Outcome::Failed(failure) => ("failed", Some(failure.class())),
        };
        let usage = self.usage.unwrap_or_default();
        tracing::debug!(
            outcome,
            class,
            ms = started.elapsed().as_millis() as u64,
            attempts = self.attempts,
            input = usage.input,
            output = usage.output,
            cache_read = usage.cache_read,
            cache_write = usage.cache_write,
            reasoning = usage.reasoning,
            "run.ended"
        );
    }

    async fn attempt(&mut self) -> Step {
        let started = tokio::time::Instant::now();
        self.attempts += 1;
        self.overlap.restart();
        self.memo.restart();
        self.owed.restart();
        tracing::debug!(n = self.attempts, request = %self.ids.request, "attempt.started");
        let opened = match self.spec.request(self.ids.original) {
            Ok(first) => tokio::select! {
                after = overdue(&self.timing) => return self.idle(Bark::unopened(after), Progress::default()),
                opened = self.backend.open(&self.spec, self.ids, &first, to_open(&self.timing)) => opened,
                () = given_up(&mut self.commands, &self.events, &mut self.held) => {
                    return Step::Done(Outcome::Cancelled);
                }
            },
            Err(error) => Err(error.into()),
        };
        let Opened {
            stream,
            version,
            issued,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let failure = error.failure();
                tracing::debug!(class = failure.class(), kind = %Variant(&error), "attempt.unopened");
                // A deadline of our own: silence like any other.
                if let (Some(after), Some(_)) = (error.waited(), self.timing.patience.first) {
                    return self.idle(Bark::unopened(after), Progress::default());
                }
                return Step::Failed(failure, Progress::default());
            }
        };
        let closed = attempt::drive(
            stream,
            Surroundings {
                events: &self.events,
                commands: &mut self.commands,
                executor: &self.executor,
                blobs: &*self.blobs,
                drift: &self.backend.drift,
                timing: &self.timing,
                run_id: self.ids.original,
                held: &mut self.held,
                answer_bytes: &mut self.answer_bytes,
                overlap: &mut self.overlap,
                memo: &mut self.memo,
                owed: &mut self.owed,
                on_accepted: &|| {
                    self.backend.choice.accepted(
                        &self.backend.endpoints.agent,
                        version,
                        tokio::time::Instant::now(),
                    )
                },
            },
        )
        .await;
        if let Some(usage) = closed.usage {
            self.usage = Some(self.usage.unwrap_or_default().plus(usage));
        }
        if closed.accepted {
            self.reached = Reached::Once;
        }
        let agent = &self.backend.endpoints.agent;
        self.left = closed.progress.shown;
        if closed.closing.is_silence() {
            self.backend.http.reconnect(agent, version);
        }
        let error = match closed.closing {
            Closing::Finished => return Step::Done(Outcome::Finished),
            Closing::Cancelled => return Step::Done(Outcome::Cancelled),
            Closing::Idle(bark) => return self.idle(bark, closed.progress),
            Closing::Limit(limit) => {
                tracing::warn!(%limit, "run.limit");
                return Step::Done(Outcome::Failed(Failure::TooLarge(limit.to_string())));
            }
            Closing::Failed(error) => error,
        };
        if !closed.accepted && self.backend.choice.switches(agent, version, &error) {
            match version {
                HttpVersion::Http2 => {
                    tracing::info!(%error, "HTTP/2 does not work here, using HTTP/1.1");
                }
                HttpVersion::Http1 => {
                    tracing::info!(
                        cause = error.cause(),
                        "no runs over HTTP/1.1 here, using HTTP/2"
                    );
                }
            }
            self.ids = self.ids.again();
            return Step::AgainAtOnce;
        }
        // A connection that is full has looked at nothing of the stream, and the next one is
        // made for it.
        if !closed.accepted && error.is_refusal() && self.refused < MOST_REFUSED {
            tracing::debug!("stream.refused");
            self.refused += 1;
            self.ids = self.ids.again();
            return Step::AgainAtOnce;
        }
        let evidence = self.evidence(&closed.progress);
        let failure = Failure::classify(&error, &evidence);
        if let (Failure::Login(_), WireError::Remote(_)) = (&failure, &error) {
            self.backend.account.reject(&issued.token).await;
            tracing::debug!("run.token_refused");
            // A token from before this attempt may just have grown old; a new one is worth a try.
            // Only a stream that brought nothing: anything else would be repeated.
            let untouched =
                closed.progress.checkpoint.is_none() && closed.progress.shown <= Shown::Remembered;
            if issued.at < started && !self.token_replaced && untouched {
                self.token_replaced = true;
                self.ids = self.ids.again();
                return Step::AgainAtOnce;
            }
        }
        Step::Failed(failure, closed.progress)
    }

    /// A stream that lived and did nothing. After results, starting over may be the owner's
    /// business.
    fn idle(&self, bark: Bark, progress: Progress) -> Step {
        let Bark {
            after,
            phase,
            told,
            unknown_exec,
        } = bark;
        let ms = after.as_millis() as u64;
        tracing::debug!(ms, ?phase, "native.stream.idle_timeout");
        let idle = Idle {
            after,
            attempts: self.attempts,
            retries: self.policy.idle,
            told,
            unknown_exec: unknown_exec.map(|id| format!("request {id}")),
        };
        let failure = Failure::Idle(idle.to_string());
        match (phase, self.policy.after_results) {
            (Phase::Resumed, Restarts::Above) => Step::Done(Outcome::Failed(failure)),
            _ => Step::Failed(failure, progress),
        }
    }

    fn evidence(&self, progress: &Progress) -> Evidence {
        let definitions = self.spec.offers.iter().map(|offer| offer.definition());
        let schemas = self
            .spec
            .offers
            .iter()
            .map(|offer| offer.schema.to_string());
        let combinators = schemas.into_iter().any(|schema| {
            ["\"oneOf\"", "\"anyOf\"", "\"allOf\""]
                .iter()
                .any(|key| schema.contains(key))
        });
        Evidence {
            tools: self.spec.offers.len(),
            tool_bytes: definitions
                .map(|definition| prost::Message::encoded_len(&definition))
                .sum(),
            schema_combinators: if combinators {
                Presence::Present
            } else {
                Presence::Absent
            },
            occupancy: progress
                .checkpoint
                .as_ref()
                .or(self.spec.state.as_ref())
                .and_then(|state| crate::wire::state::occupancy(state).ok().flatten()),
            failures_in_a_row: 0,
            output: match (progress.shown, &progress.checkpoint) {
                (Shown::Nothing, None) => Presence::Absent,
                _ => Presence::Present,
            },
        }
    }

    /// Waits, unless the owner cancels or goes away first.
    async fn cancelled_within(&mut self, delay: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(delay) => false,
            () = given_up(&mut self.commands, &self.events, &mut self.held) => true,
        }
    }
}

/// How long a stream may take to be opened.
fn to_open(timing: &Timing) -> Option<Duration> {
    let limit = timing.patience.first?;
    Some(limit.min(timing.stall))
}

/// Resolves when a stream should have been opened, with how long that took; never, for those
/// who want no watchdog.
async fn overdue(timing: &Timing) -> Duration {
    let Some(limit) = to_open(timing) else {
        return std::future::pending().await;
    };
    awake::sleep(limit).await;
    limit
}

/// Resolves when the owner cancels or goes away. Messages that arrive while there is no
/// stream to put them on are held for the next one.
async fn given_up(
    commands: &mut mpsc::Receiver<Command>,
    events: &queue::Sender<RunEvent>,
    held: &mut Vec<Injection>,
) {
    loop {
        tokio::select! {
            () = events.closed() => return,
            command = commands.recv() => match command {
                Some(Command::Cancel) | None => return,
                Some(Command::Inject(injection)) => held.push(injection),
                Some(Command::Hurry) => {}
                Some(Command::Settle) => {
                    let _ = events.send(RunEvent::Settled).await;
                }
            },
        }
    }
}

/// Uniform in 0..1; without randomness, no jitter.
fn jitter() -> f64 {
    getrandom::u32().map_or(0.0, |random| f64::from(random) / f64::from(u32::MAX))
}
