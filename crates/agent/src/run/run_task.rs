//! A run from start to end: attempts, HTTP version fallback, retries, one final event.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use uuid::Uuid;

use super::attempt::{self, AttemptContext, CloseReason};
use super::backend::{Backend, Opened};
use super::blobs::Blobs;
use super::event::{Ended, FailedAttempt, Outcome, RunEvent, Usage};
use super::queue::{self, QueueBounds};
use super::request::{Action, Mode, RunSpec, UserMessage};
use super::retry::{
    self, Progress, RetryBudget, RetryDecision, RetryPolicy, Timing, VisibleProgress,
};
use super::watchdog::{Idle, IdleTimeout, StreamPhase};
use crate::answer_log::AnswerLog;
use crate::effect_log::EffectLog;
use crate::prompts;
use agent_tools::Executor;
use cursor_client::error::WireError;
use cursor_client::failure::{Evidence, Failure, Presence, Retry};
use cursor_client::headers::{HttpVersion, RequestIds};
use cursor_client::suspend_aware_timer;
use foundation::VariantName;

/// Events that may be queued for the consumer, and their bytes.
const EVENTS: QueueBounds = QueueBounds {
    items: 256,
    bytes: 1024 * 1024,
};
/// Consecutive streams that full connections may refuse before it counts as a failure.
const MAX_REFUSED: u32 = 4;
/// How often the token of a run may expire during it.
const MAX_EXPIRED_TOKENS: u32 = 8;

/// A command for a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Injects a user message while the model works.
    Inject(Injection),
    /// The commands after this one wait until the results of these host calls, which the host has
    /// returned, are sent to the server.
    AfterResults(Vec<String>),
    /// Cancels the run because the user stopped it. What it was executing may be wanted again, so
    /// it is not recorded.
    Cancel,
    /// Cancels the run because another one replaces it. What it was executing is recorded as
    /// interrupted.
    Leave,
    /// Shortens the wait of a cancelled run, because the owner waits for it to end.
    ShortenCancel,
}

/// A user message for a run that is in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// Its id; the server's reports repeat it.
    pub id: Uuid,
    /// The message.
    pub message: UserMessage,
}

/// A run in progress. Dropping it cancels the run.
#[derive(Debug)]
pub struct Handle {
    /// The run's events; the last one is [`RunEvent::Ended`].
    pub events: queue::Receiver<RunEvent>,
    /// Commands to the run.
    pub commands: mpsc::Sender<Command>,
    _task: AbortOnDropHandle<()>,
}

#[cfg(test)]
impl Handle {
    /// Returns the handle of a run that emits these events and reads no command.
    pub(crate) fn of_events(events: queue::Receiver<RunEvent>) -> Self {
        Self {
            events,
            commands: mpsc::channel(16).0,
            _task: AbortOnDropHandle::new(tokio::spawn(std::future::ready(()))),
        }
    }
}

/// Starts a run in a new task.
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
    foundation::secrets().learn(&spec.blob_key.expose_hex().into());
    let span =
        tracing::debug_span!("run", run = %ids.original, conversation = spec.conversation_id);
    let mut spec = spec;
    let effects = std::mem::take(&mut spec.effects);
    let (shown, spent) = (AnswerLog::after(spec.shown.clone()), spec.spent);
    let (answer, mode) = match &spec.action {
        Action::UserMessage(message) => (shown.marked_sent(), message.mode),
        Action::Resume => (shown, None),
    };
    let run = RunTask {
        backend,
        spec,
        executor,
        blobs,
        policy,
        timing,
        events,
        commands: inbox,
        ids,
        retry_budget: RetryBudget::after(spent),
        is_reached: false,
        usage: None,
        attempts: 0,
        token_replaced: false,
        expired_tokens: 0,
        refused: 0,
        answer_bytes: 0,
        held: Vec::new(),
        visible_progress: VisibleProgress::Nothing,
        answer,
        mode,
        effects,
    };
    let final_event = run.events.clone();
    let task = async move {
        // A panic fails only this run, which still emits a final event.
        let run = Box::pin(AssertUnwindSafe(run.run()).catch_unwind());
        if run.await.is_err() {
            let ended = RunEvent::Ended(Ended::lost(spent));
            let _ = final_event.send(ended).await;
        }
    };
    Handle {
        events: receiver,
        commands,
        _task: AbortOnDropHandle::new(tokio::spawn(task.instrument(span))),
    }
}

/// Counters of runs by outcome, and of retries, both by the class of the failure.
const RUNS_ENDED: &str = "cursor_provider.runs_ended";
const RUNS_RETRIED: &str = "cursor_provider.runs_retried";

struct RunTask {
    backend: Backend,
    spec: RunSpec,
    executor: Arc<dyn Executor>,
    blobs: Arc<dyn Blobs>,
    policy: RetryPolicy,
    timing: Timing,
    events: queue::Sender<RunEvent>,
    commands: mpsc::Receiver<Command>,
    ids: RequestIds,
    retry_budget: RetryBudget,
    /// Whether the server has accepted a stream.
    is_reached: bool,
    usage: Option<Usage>,
    attempts: u32,
    token_replaced: bool,
    expired_tokens: u32,
    refused: u32,
    /// Bytes of text and thinking received, over all attempts.
    answer_bytes: usize,
    /// User messages for the next stream.
    held: Vec<Injection>,
    visible_progress: VisibleProgress,
    answer: AnswerLog,
    mode: Option<Mode>,
    effects: EffectLog,
}

/// The result of one attempt.
enum AttemptResult {
    Done(Outcome),
    RetryNow,
    Failed(Failure, Progress),
}

impl RunTask {
    async fn run(mut self) {
        let started = tokio::time::Instant::now();
        // When the first of several attempts without progress failed.
        let mut failing_since = None;
        let mut failures = 0;
        tracing::debug!(
            model = self.spec.model.id,
            action = %VariantName(&self.spec.action),
            state_bytes = self.spec.state.as_ref().map(Bytes::len),
            tools = self.spec.offers.len(),
            "run.started"
        );
        let outcome = loop {
            if self.attempts == 0 && self.cancelled_within(self.spec.delay).await {
                break Outcome::Cancelled;
            }
            let (failure, progress) = match self.attempt().await {
                AttemptResult::Done(outcome) => break outcome,
                AttemptResult::RetryNow => continue,
                AttemptResult::Failed(failure, progress) => (failure, progress),
            };
            let class = failure.class();
            let policy = if self.is_reached {
                self.policy
            } else {
                self.policy.unreached()
            };
            let now = tokio::time::Instant::now();
            let is_new = progress.checkpoint.is_some() && progress.checkpoint != self.spec.state;
            if is_new || progress.shown != VisibleProgress::Nothing {
                failing_since = None;
            }
            let failing_since = *failing_since.get_or_insert(now);
            self.retry_budget.set_without_progress(now - failing_since);
            let (delay, from) = match self
                .retry_budget
                .next(&policy, &failure, progress, jitter())
            {
                RetryDecision::GiveUp if self.retry_budget.is_out_of_time() => {
                    tracing::debug!(class, "run.out_of_time");
                    break Outcome::Failed(Failure::persistent(now - failing_since));
                }
                RetryDecision::GiveUp
                    if !self.is_reached && failure.retry() == Retry::Transport =>
                {
                    tracing::debug!(class, "run.unreachable");
                    break Outcome::Failed(Failure::unreachable(&failure, self.attempts));
                }
                RetryDecision::GiveUp => break Outcome::Failed(failure),
                RetryDecision::Repeat(delay) => (delay, "start"),
                RetryDecision::Resume(delay, checkpoint) => {
                    self.spec.state = Some(checkpoint);
                    self.spec.action = self.resume_action(&failure);
                    (delay, "checkpoint")
                }
            };
            let delay_ms = delay.as_millis() as u64;
            tracing::debug!(class, delay_ms, from, "run.retry");
            foundation::metrics::counters().count(RUNS_RETRIED, &[("class", class)]);
            self.ids = self.ids.again();
            failures += 1;
            let attempt = FailedAttempt {
                next: failures + 1,
                last: failures + 1 + self.retry_budget.left(&policy, &failure),
                failure,
            };
            if self.events.send(RunEvent::Retrying(attempt)).await.is_err() {
                return;
            }
            if self.cancelled_within(delay).await {
                break Outcome::Cancelled;
            }
        };
        self.log_end(&outcome, started);
        let delay = match &outcome {
            Outcome::Failed(failure) if failure.retry() == Retry::Server => {
                retry::delay(&self.policy, self.retry_budget.spent().server, jitter())
            }
            _ => Duration::ZERO,
        };
        self.effects.restart();
        let ended = Ended {
            outcome,
            usage: self.usage,
            attempts: self.attempts,
            was_accepted: self.is_reached,
            spent: self.retry_budget.spent(),
            delay,
            visible_progress: self.visible_progress,
            effects: self.effects,
        };
        let _ = self.events.send(RunEvent::Ended(ended)).await;
    }

    /// Returns how the next attempt resumes from the checkpoint: after a lost connection as the
    /// official client does, after an idle timeout with a message that contains the text shown
    /// since. Once a stream was sent such a message, later ones are too.
    fn resume_action(&mut self, failure: &Failure) -> Action {
        let sends_text = failure.retry() == Retry::Idle || self.answer.is_marked_sent();
        match sends_text.then(|| self.answer.mark_sent()).flatten() {
            Some(text) => {
                // A message replaces the calls that the checkpoint waits for, so their results are
                // sent with it.
                let mut parts = self.effects.send_results();
                parts.push(prompts::continue_answer(&text));
                Action::UserMessage(UserMessage {
                    text: parts.join("\n\n"),
                    images: Vec::new(),
                    mode: self.mode,
                })
            }
            None => Action::Resume,
        }
    }

    fn log_end(&self, outcome: &Outcome, started: tokio::time::Instant) {
        let (outcome, class) = match outcome {
            Outcome::Finished => ("finished", None),
            Outcome::Cancelled => ("cancelled", None),
            Outcome::Failed(failure) => ("failed", Some(failure.class())),
        };
        let labels = [("outcome", outcome), ("class", class.unwrap_or_default())];
        let labels = &labels[..1 + usize::from(class.is_some())];
        foundation::metrics::counters().count(RUNS_ENDED, labels);
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

    async fn attempt(&mut self) -> AttemptResult {
        let started = tokio::time::Instant::now();
        self.attempts += 1;
        self.answer.restart();
        self.effects.restart();
        tracing::debug!(n = self.attempts, request = %self.ids.request, "attempt.started");
        let opened = match self.spec.request(self.ids.original) {
            // In a box: a run that is open, for hours perhaps, does not keep room for it.
            Ok(first) => tokio::select! {
                after = open_overdue(&self.timing) => return self.idle(IdleTimeout::unopened(after), Progress::default()),
                opened = Box::pin(self.backend.open(&self.spec, self.ids, &first, open_timeout(&self.timing))) => opened,
                () = cancelled(&mut self.commands, &self.events, &mut self.held) => {
                    return AttemptResult::Done(Outcome::Cancelled);
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
                tracing::debug!(class = failure.class(), kind = %VariantName(&error), "attempt.unopened");
                // A timeout of our own counts as idle, like silence on an open stream.
                if let (Some(after), Some(_)) = (error.waited(), self.timing.patience.first) {
                    return self.idle(IdleTimeout::unopened(after), Progress::default());
                }
                return AttemptResult::Failed(failure, Progress::default());
            }
        };
        let closed = attempt::drive(
            stream,
            AttemptContext {
                events: &self.events,
                commands: &mut self.commands,
                executor: &self.executor,
                blobs: &*self.blobs,
                drift: &self.backend.drift,
                timing: &self.timing,
                run_id: self.ids.original,
                held: &mut self.held,
                answer_bytes: &mut self.answer_bytes,
                usage: &mut self.usage,
                answer: &mut self.answer,
                effects: &mut self.effects,
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
        self.is_reached |= closed.accepted;
        let agent = &self.backend.endpoints.agent;
        self.visible_progress = closed.progress.shown;
        if closed.reason.is_silence() {
            self.backend.http.reconnect(agent, version);
        }
        let error = match closed.reason {
            CloseReason::Finished => return AttemptResult::Done(Outcome::Finished),
            CloseReason::Cancelled => return AttemptResult::Done(Outcome::Cancelled),
            CloseReason::Idle(idle_timeout) => return self.idle(idle_timeout, closed.progress),
            CloseReason::Limit(limit) => {
                tracing::warn!(%limit, "run.limit");
                return AttemptResult::Done(Outcome::Failed(Failure::TooLarge(limit.to_string())));
            }
            CloseReason::Failed(error) => error,
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
            return self.retry_now(closed.injected);
        }
        // A full connection has processed nothing of the stream, and the next attempt opens a new
        // connection.
        if !closed.accepted && error.is_refusal() && self.refused < MAX_REFUSED {
            tracing::debug!("stream.refused");
            self.refused += 1;
            return self.retry_now(closed.injected);
        }
        let evidence = self.evidence(&closed.progress);
        let failure = Failure::classify(&error, &evidence);
        if let (Failure::Login(_), WireError::Remote(_)) = (&failure, &error) {
            self.backend.account.reject(&issued.token).await;
            tracing::debug!("run.token_refused");
            // A token issued before this attempt may have expired, so try once with a new one.
            // Only if the stream produced nothing: anything else would be repeated.
            let untouched = closed.progress.checkpoint.is_none()
                && closed.progress.shown <= VisibleProgress::Remembered;
            if issued.at < started && !self.token_replaced && untouched {
                self.token_replaced = true;
                return self.retry_now(closed.injected);
            }
            // The server had accepted the token, so it has expired during the run. The run
            // continues with a new one, like after a lost connection.
            // A typed error says more than that: the user is not signed in.
            let is_typed =
                matches!(&error, WireError::Remote(remote) if remote.cursor_error().is_some());
            if !untouched && !is_typed && self.expired_tokens < MAX_EXPIRED_TOKENS {
                self.expired_tokens += 1;
                let failure = Failure::Transport(failure.to_string());
                return AttemptResult::Failed(failure, closed.progress);
            }
        }
        AttemptResult::Failed(failure, closed.progress)
    }

    /// Repeats the request on another stream at once. The owner does not notice, so that stream is
    /// sent the user messages that this one was sent.
    fn retry_now(&mut self, injected: Vec<Injection>) -> AttemptResult {
        self.held.splice(..0, injected);
        self.ids = self.ids.again();
        AttemptResult::RetryNow
    }

    /// Handles an idle stream. After tool results, restarting may be left to the owner.
    fn idle(&self, idle_timeout: IdleTimeout, progress: Progress) -> AttemptResult {
        let IdleTimeout {
            after,
            phase,
            has_text,
            is_silent,
            unknown_exec,
        } = idle_timeout;
        let ms = after.as_millis() as u64;
        tracing::debug!(ms, ?phase, "native.stream.idle_timeout");
        let idle = Idle {
            after,
            attempts: self.attempts,
            retries: self.policy.idle,
            has_text,
            is_silent,
            unknown_exec: unknown_exec.map(|id| format!("request {id}")),
        };
        let failure = Failure::Idle(idle.to_string());
        if phase == StreamPhase::Resumed && !self.policy.restarts_after_results {
            AttemptResult::Done(Outcome::Failed(failure))
        } else {
            AttemptResult::Failed(failure, progress)
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
                .and_then(|state| cursor_proto::state::occupancy(state).ok().flatten()),
            output: match (progress.shown, &progress.checkpoint) {
                (VisibleProgress::Nothing, None) => Presence::Absent,
                _ => Presence::Present,
            },
        }
    }

    /// Waits for `delay`, and returns whether the owner cancelled the run or dropped its handle
    /// meanwhile.
    async fn cancelled_within(&mut self, delay: Duration) -> bool {
        // A timer takes a millisecond at least. An attempt notices a cancellation by itself.
        if delay.is_zero() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => false,
            () = cancelled(&mut self.commands, &self.events, &mut self.held) => true,
        }
    }
}

/// Returns how long opening a stream may take; `None` if the watchdog is off.
fn open_timeout(timing: &Timing) -> Option<Duration> {
    let limit = timing.patience.first?;
    Some(limit.min(timing.stall))
}

/// Resolves with the limit when opening a stream took too long; never if the watchdog is off.
async fn open_overdue(timing: &Timing) -> Duration {
    let Some(limit) = open_timeout(timing) else {
        return std::future::pending().await;
    };
    suspend_aware_timer::sleep(limit).await;
    limit
}

/// Resolves when the owner cancels the run or drops its handle. User messages that arrive while no
/// stream is open are held for the next one.
async fn cancelled(
    commands: &mut mpsc::Receiver<Command>,
    events: &queue::Sender<RunEvent>,
    held: &mut Vec<Injection>,
) {
    loop {
        tokio::select! {
            () = events.closed() => return,
            command = commands.recv() => match command {
                Some(Command::Cancel | Command::Leave) | None => return,
                Some(Command::Inject(injection)) => held.push(injection),
                // Without a stream there is nothing to send a result to.
                Some(Command::ShortenCancel | Command::AfterResults(_)) => {}
            },
        }
    }
}

/// Returns a random number in 0..1, or 0 without a source of randomness.
fn jitter() -> f64 {
    getrandom::u32().map_or(0.0, |random| f64::from(random) / f64::from(u32::MAX))
}
