//! Runs the turn of a client's request, the same for every API: resolves the model, finds the
//! session, drives the run and sends its updates to the response.

use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;
use uuid::Uuid;

use super::answer::{Finish, TurnEnd, TurnUpdate};
use super::answer_format::AnswerFormat;
use super::answer_state::{AnswerOptions, AnswerState, TextHandling};
use super::api_error::ApiError;
use super::client_turn::ClientTurn;
use super::models::PROFILE;
use super::router::GatewayState;
use super::session_key;
use super::status::{TurnOrigin, TurnOutcome, TurnReport};
use crate::last_error;
use crate::model_resolver::{ModelRequest, ResolvedModel, catalog_client};
use agent::catalog::SpeedPreferences;
use agent::conversation::transcript::Transcript;
use agent::message::Message;
use agent::run::Backend;
use agent::session_manager::{SessionSelector, TurnTicket};
use agent::turn::usage;
use agent::turn::{Frontend, HostToolMode, Keep, Stop, Surface, TurnRequest};
use agent_tools::local_http::access::HttpError;
use agent_tools::policy::HostPolicy;
use cursor_client::account::Credential;
use foundation::{Digest, prefix};

/// The header of responses that names the model which answers.
const MODEL: HeaderName = HeaderName::from_static("x-cursor-model");

/// The longest name of a model. A longer one would take long to compare with the models there are.
const MAX_MODEL: usize = 256;

/// A turn that runs. Dropping it cancels the turn, because then the client has disconnected.
pub(super) struct StartedTurn {
    pub(super) updates: mpsc::Receiver<TurnUpdate>,
    /// The id of the session.
    pub(super) session: String,
    /// The tokens of the request by our estimate, for what is sent before the end.
    pub(super) estimated_input: u64,
    model: String,
    /// Delays shutdown until the response is sent.
    _tracked: TaskTrackerToken,
}

impl StartedTurn {
    /// Returns the headers of the response.
    pub(super) fn headers(&self) -> HeaderMap {
        let model = HeaderValue::from_str(&self.model).ok();
        model.map(|model| (MODEL, model)).into_iter().collect()
    }
}

/// What all turns of a request share.
struct GatewayTurnContext {
    state: Arc<GatewayState>,
    key: Credential,
    backend: Backend,
    resolved: ResolvedModel,
    arrived: Instant,
    options: AnswerOptions,
    workspace: PathBuf,
    /// The id of the session, if the request names one.
    session: Option<String>,
    updates: mpsc::Sender<TurnUpdate>,
    /// For the status page.
    report: TurnReport,
}

/// Estimates the tokens of a request.
pub(super) fn estimate_input(transcript: &Transcript) -> u64 {
    let tools = transcript.tools.iter().map(|tool| {
        usage::estimate(&tool.name)
            + usage::estimate(&tool.description)
            + usage::estimate(&tool.parameters.to_string())
    });
    usage::context(&transcript.system, &transcript.messages) + tools.sum::<u64>()
}

/// Starts the turn of a request.
pub(super) async fn start(
    state: &Arc<GatewayState>,
    turn: ClientTurn,
) -> Result<StartedTurn, ApiError> {
    if turn.model.len() > MAX_MODEL {
        let problem = format!("expected at most {MAX_MODEL} bytes");
        return Err(ApiError::field("model", &problem));
    }
    let permit = Arc::clone(&state.turn_permits).try_acquire_owned();
    let permit = permit.map_err(|_| HttpError::Busy)?;
    let arrived = Instant::now();
    let (key, backend) = state.backend()?;
    let client = catalog_client(&backend, key.clone());
    let (list, models) = state.models.current(PROFILE, &client).await;
    let model = state.config.gateway.models.resolve(&turn.model, &models);
    let chosen = ModelRequest {
        id: &model,
        level: turn.level,
        ..ModelRequest::default()
    };
    let speed = SpeedPreferences::default();
    let resolved = state.models.resolve_in(&list, &models, &chosen, &speed)?;
    let mut transcript = turn.transcript;
    let session = session_key::session_id(&turn.session, &transcript);
    if let Some(instruction) = turn.format.instruction() {
        let parts = [transcript.system.as_str(), instruction.as_str()];
        transcript.system = parts.join("\n\n").trim().to_owned();
    }
    let turn_id = Uuid::new_v4().simple().to_string();
    let ticket = reserve(state, &turn_id, &transcript, session.as_deref()).await?;
    let (updates, inbox) = mpsc::channel(64);
    let started = StartedTurn {
        updates: inbox,
        session: ticket.session_id().to_owned(),
        estimated_input: estimate_input(&transcript),
        model: resolved.model.id.clone(),
        _tracked: state.turns.token(),
    };
    let span = tracing::debug_span!(
        "turn",
        turn = turn_id,
        session = prefix(ticket.session_id())
    );
    let workspace = turn.workspace.unwrap_or_else(|| state.workspace.clone());
    let report = state.status.board.begin(&TurnOrigin {
        session: session_key::to_token(ticket.session_id()),
        name: turn.session.name,
        client: turn.client,
        model: started.model.clone(),
        folder: workspace.display().to_string(),
    });
    let context = GatewayTurnContext {
        state: Arc::clone(state),
        key,
        backend,
        resolved,
        arrived,
        options: AnswerOptions {
            limits: turn.limits,
            is_one_call: turn.is_one_call,
            is_retried: false,
        },
        workspace,
        session,
        updates,
        report,
    };
    tracing::debug!(parent: &span, asked = turn.model, model = started.model, "turn.model");
    let running = run(context, turn.format, transcript, ticket, permit);
    state.turns.spawn(running.instrument(span));
    Ok(started)
}

async fn reserve(
    state: &GatewayState,
    turn_id: &str,
    transcript: &Transcript,
    id: Option<&str>,
) -> Result<TurnTicket, ApiError> {
    let selector = SessionSelector::Transcript { transcript, id };
    let cancel = state.shutdown.child_token();
    Ok(state.sessions.reserve(turn_id, selector, cancel).await?)
}

/// Runs the turn of a request, and a second one if its answer must be corrected.
async fn run(
    context: GatewayTurnContext,
    format: AnswerFormat,
    transcript: Transcript,
    ticket: TurnTicket,
    _permit: OwnedSemaphorePermit,
) {
    if matches!(format, AnswerFormat::Text) {
        let driven = context
            .drive(ticket, transcript, TextHandling::Streamed)
            .await;
        return context.finish(driven.ticket, driven.end).await;
    }
    let history = transcript.clone();
    let first = context.drive(ticket, transcript, TextHandling::Held).await;
    let problem = match checked(&format, &first) {
        Ok(text) => return context.finish_with(text, first).await,
        Err(problem) => problem,
    };
    tracing::debug!(%problem, "gateway.format_repair");
    let repaired = context.correct(history, &first.text, &problem).await;
    drop(first);
    match repaired {
        Err(error) => context.fail(error).await,
        Ok(second) => match checked(&format, &second) {
            Ok(text) => context.finish_with(text, second).await,
            Err(problem) => {
                let error = ApiError::wrong_format(&problem);
                context.finish(second.ticket, Err(error)).await;
            }
        },
    }
}

/// Returns the text of an answer to send. Only a complete answer must have the client's format.
fn checked(format: &AnswerFormat, driven: &DrivenTurn) -> Result<String, String> {
    match &driven.end {
        Ok(end) if end.finish == Finish::Complete => format.check(&driven.text).map(str::to_owned),
        _ => Ok(driven.text.clone()),
    }
}

/// A turn that has ended, and what its answer contains.
struct DrivenTurn {
    ticket: TurnTicket,
    end: Result<TurnEnd, ApiError>,
    text: String,
}

impl GatewayTurnContext {
    async fn send(&self, update: TurnUpdate) {
        let _ = self.updates.send(update).await;
    }

    /// Asks the model to correct an answer.
    async fn correct(
        &self,
        mut history: Transcript,
        answer: &str,
        problem: &str,
    ) -> Result<DrivenTurn, ApiError> {
        history.messages.push(Message::assistant(answer));
        history
            .messages
            .push(Message::user(AnswerFormat::correction(problem)));
        let turn_id = Uuid::new_v4().simple().to_string();
        let id = self.session.as_deref();
        let ticket = reserve(&self.state, &turn_id, &history, id).await?;
        Ok(self.drive(ticket, history, TextHandling::Held).await)
    }

    /// Sends the text that was held, then the end.
    async fn finish_with(&self, text: String, driven: DrivenTurn) {
        if !text.is_empty() && driven.end.is_ok() {
            self.send(TurnUpdate::Text(text)).await;
        }
        self.finish(driven.ticket, driven.end).await;
    }

    /// Sends the error of a turn that was not run.
    async fn fail(&self, error: ApiError) {
        self.report.end(TurnOutcome::Failed(error.summary()));
        self.record(&error).await;
        self.send(TurnUpdate::End(Err(error))).await;
    }

    async fn record(&self, error: &ApiError) {
        let state_dir = self.state.config.state_dir.as_deref();
        last_error::record(state_dir, "gateway", &error.summary()).await;
    }

    /// Sends the end. A run that waits for calls which did not reach the client is released.
    async fn finish(&self, mut ticket: TurnTicket, end: Result<TurnEnd, ApiError>) {
        let is_waiting = end
            .as_ref()
            .is_ok_and(|end| end.finish == Finish::ToolCalls);
        let outcome = match &end {
            _ if self.updates.is_closed() => TurnOutcome::Cancelled,
            Ok(end) if is_waiting => TurnOutcome::Calls(end.usage.tokens),
            Ok(end) => TurnOutcome::Answered(end.usage.tokens),
            Err(error) => TurnOutcome::Failed(error.summary()),
        };
        // Before the client can send its next request.
        self.report.end(outcome);
        if let Err(error) = &end {
            self.record(error).await;
        }
        let sent = self.updates.send(TurnUpdate::End(end)).await;
        if is_waiting && (sent.is_err() || ticket.cancel_token().is_cancelled()) {
            self.report.release();
            ticket.release().await;
        }
    }

    /// Runs one turn and sends its updates, except the end.
    async fn drive(
        &self,
        mut ticket: TurnTicket,
        mut transcript: Transcript,
        handling: TextHandling,
    ) -> DrivenTurn {
        tracing::debug!(
            messages = transcript.messages.len(),
            tools = transcript.tools.len(),
            system = %Digest(&transcript.system),
            "turn.started"
        );
        let input = estimate_input(&transcript);
        let last = transcript.messages.last();
        let has_results = last.is_some_and(|message| message.as_tool_result().is_some());
        session_key::restore_call_ids(&mut transcript);
        let cancel = ticket.cancel_token().clone();
        // Calls name their session, so it must survive a restart; plain chats need not.
        let keep = if transcript.tools.is_empty() {
            ticket.keep()
        } else {
            Keep::Disk
        };
        let request = TurnRequest {
            account: self.key.fingerprint(),
            backend: self.backend.clone(),
            workspace: self.workspace.clone(),
            transcript,
            asked: self.arrived,
            model: self.resolved.model.clone(),
            limits: self.resolved.limits,
            mode: None,
            policy: self.state.policy.clone(),
            native_tools: HostPolicy::default(),
            can_be_asked: false,
            library: Arc::default(),
            keep,
            frontend: Frontend::Chat,
            tool_mode: HostToolMode::Between,
            surface: Surface::Text,
        };
        let token = session_key::to_token(ticket.session_id());
        let options = AnswerOptions {
            // Results must not be lost, so a turn that brings some is retried here.
            is_retried: has_results,
            ..self.options.clone()
        };
        let mut answer = AnswerState::new(&self.updates, token, handling, options);
        let (mut inbox, result) = ticket.start(request).await;
        let sending = async {
            while let Some(event) = inbox.recv().await {
                self.report.event(&event, self.updates.capacity() == 0);
                if answer.cut.is_none() && (!answer.take(event).await || answer.cut.is_some()) {
                    cancel.cancel();
                }
            }
        };
        let running = async { tokio::join!(result, sending) };
        let result = {
            let mut running = std::pin::pin!(running);
            tokio::select! {
                (result, ()) = &mut running => result,
                () = self.updates.closed() => {
                    cancel.cancel();
                    running.await.0
                }
            }
        };
        answer.flush().await;
        tracing::debug!(
            stop = ?StopName(&result.stop),
            ms = self.arrived.elapsed().as_millis() as u64,
            input = result.request_tokens.tokens.prompt(),
            output = result.request_tokens.tokens.output,
            "turn.answered"
        );
        if let (Stop::Finished, Some(id), Some(window)) =
            (&result.stop, &self.resolved.model_id, result.window)
        {
            self.state.models.learn(id, window);
        }
        ticket.finish(&result.stop, &answer.summary).await;
        DrivenTurn {
            ticket,
            end: answer.end(&result, input),
            text: answer.summary.text,
        }
    }
}

/// How a turn ended, without the error text.
struct StopName<'a>(&'a Stop);

impl std::fmt::Debug for StopName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Stop::Finished => "Stop",
            Stop::ToolUse => "ToolUse",
            Stop::Aborted => "Aborted",
            Stop::Failed(_) => "Error",
        })
    }
}
