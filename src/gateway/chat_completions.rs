//! `POST /v1/chat/completions`: one request of a client is one turn, which is cancelled if the client disconnects.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderMap;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use super::api_error::ApiError;
use super::chat_request::ChatRequest;
use super::chat_response::{self, ResponseEnvelope};
use super::models::PROFILE;
use super::router::GatewayState;
use crate::model_resolver::{ModelRequest, ResolvedModel, catalog_client};
use agent::catalog::SpeedPreferences;
use agent::conversation::transcript::Transcript;
use agent::run::Backend;
use agent::session_manager::{AnswerSummary, SessionSelector, TurnTicket};
use agent::turn::{
    Frontend, HostToolMode, Stop, Surface, TurnEvent, TurnRequest, TurnResult, turn_events,
};
use agent_tools::local_http::access::HttpError;
use agent_tools::policy::HostPolicy;
use cursor_client::account::ApiKey;
use foundation::{Digest, prefix};

/// The header with a client's session id.
const SESSION: &str = "x-session-id";
const MAX_SESSION_ID: usize = 256;

/// What a turn sends to its response.
#[derive(Debug)]
pub(super) enum TurnUpdate {
    /// An event.
    Event(TurnEvent),
    /// The result; always the last.
    End(Box<TurnResult>),
}

/// Answers a request. The turn is cancelled if the client disconnects.
pub(super) async fn create(
    State(state): State<Arc<GatewayState>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let (body, memory) = state.bodies.read(&head.headers, body).await?;
    let chat = ChatRequest::parse(&body, session_id(&head.headers)?)?;
    drop((body, memory)); // a turn may take an hour
    let permit = Arc::clone(&state.turn_permits).try_acquire_owned();
    let permit = permit.map_err(|_| HttpError::Busy)?;
    let arrived = Instant::now();
    let (key, backend) = state.backend()?;
    let chosen = ModelRequest {
        id: &chat.model,
        level: chat.level,
        ..ModelRequest::default()
    };
    let client = catalog_client(&backend, key.clone());
    let speed = SpeedPreferences::default();
    let resolving = state.models.resolve(&chosen, &speed, PROFILE, &client);
    let resolved = resolving.await?;
    let envelope = ResponseEnvelope::new(&chat, &state.turns);
    let ticket = {
        let id = chat.session.as_deref();
        let id = id.map(|id| scoped_session_id(id, &chat.transcript));
        let selector = SessionSelector::Transcript {
            transcript: &chat.transcript,
            id: id.as_deref(),
        };
        let cancel = state.shutdown.child_token();
        let reserving = state.sessions.reserve(&envelope.id, selector, cancel);
        reserving.await?
    };
    let stream = chat.stream;
    // The client owns the receiver: when that is dropped, the client has disconnected.
    let (updates, inbox) = mpsc::channel(64);
    let span = tracing::debug_span!(
        "turn",
        turn = envelope.id,
        session = prefix(ticket.session_id())
    );
    let turn = PendingTurn {
        arrived,
        chat,
        key,
        backend,
        resolved,
        ticket,
        permit,
    };
    let tracked = Arc::clone(&state);
    tracked
        .turns
        .spawn(run(state, turn, updates).instrument(span));
    if stream {
        chat_response::stream(envelope, inbox).await
    } else {
        chat_response::buffer(envelope, inbox).await
    }
}

/// Returns the client's session id, if it sends one.
fn session_id(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(id) = headers.get(SESSION) else {
        return Ok(None);
    };
    match id.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(id) if id.len() <= MAX_SESSION_ID => Ok(Some(id.to_owned())),
        _ => {
            let problem = format!("expected at most {MAX_SESSION_ID} visible characters");
            Err(ApiError::field(SESSION, &problem))
        }
    }
}

/// Returns the session id for a client's. The system prompt is part of it, because a client may send
/// other requests (a title, a summary) under the same id.
fn scoped_session_id(id: &str, transcript: &Transcript) -> String {
    let digest = Sha256::digest(transcript.system.as_bytes());
    let prompt: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("gateway/named/{prompt}/{id}")
}

/// A turn that is ready to run.
struct PendingTurn {
    arrived: Instant,
    chat: ChatRequest,
    key: ApiKey,
    backend: Backend,
    resolved: ResolvedModel,
    ticket: TurnTicket,
    permit: OwnedSemaphorePermit,
}

/// Runs a turn and sends its events.
async fn run(state: Arc<GatewayState>, turn: PendingTurn, updates: mpsc::Sender<TurnUpdate>) {
    let PendingTurn {
        arrived,
        chat,
        key,
        backend,
        resolved,
        mut ticket,
        permit: _permit,
    } = turn;
    let transcript = chat.transcript;
    tracing::debug!(
        model = chat.model,
        messages = transcript.messages.len(),
        tools = transcript.tools.len(),
        system = %Digest(&transcript.system),
        "turn.started"
    );
    let cancel = ticket.cancel_token().clone();
    let (events, mut inbox) = turn_events();
    let request = TurnRequest {
        account: key.fingerprint(),
        backend,
        workspace: state.workspace.clone(),
        transcript,
        asked: arrived,
        model: resolved.model,
        limits: resolved.limits,
        mode: None,
        policy: state.policy.clone(),
        native_tools: HostPolicy::default(),
        permissions: None,
        library: Arc::default(),
        keep: ticket.keep(),
        door: Frontend::Chat,
        hands: HostToolMode::Between,
        surface: Surface::Text,
        cancel: cancel.clone(),
        injections: ticket.take_injections(),
        events,
    };
    let mut summary = AnswerSummary::default();
    let sending = async {
        while let Some(event) = inbox.recv().await {
            match &event {
                TurnEvent::Text(text) => summary.text.push_str(text),
                TurnEvent::ToolCall { id, .. } => summary.calls.push(id.clone()),
                _ => {}
            }
            if updates.send(TurnUpdate::Event(event)).await.is_err() {
                cancel.cancel();
            }
        }
    };
    let running = async { tokio::join!(ticket.run(request), sending) };
    let result = {
        let mut running = std::pin::pin!(running);
        tokio::select! {
            (result, ()) = &mut running => result,
            () = updates.closed() => {
                cancel.cancel();
                running.await.0
            }
        }
    };
    tracing::debug!(
        stop = ?StopName(&result.stop),
        ms = arrived.elapsed().as_millis() as u64,
        input = result.tokens.input,
        output = result.tokens.output,
        "turn.answered"
    );
    if let (Stop::Finished, Some(id), Some(window)) =
        (&result.stop, &resolved.model_id, result.window)
    {
        state.models.learn(id, window);
    }
    ticket.finish(&result.stop, &summary).await;
    let is_waiting = result.stop == Stop::ToolUse;
    let sent = updates.send(TurnUpdate::End(Box::new(result))).await;
    if is_waiting && (sent.is_err() || cancel.is_cancelled()) {
        ticket.release().await;
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

/// Returns a new id for a response, in OpenAI's form.
pub(super) fn response_id() -> String {
    format!("chatcmpl-{}", Uuid::new_v4().simple())
}
