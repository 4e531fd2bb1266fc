//! One request of a client is one turn, which is cancelled if the client disconnects.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use super::ask::{Asked, Form};
use super::desk::Seat;
use super::fault::Fault;
use super::models::PROFILE;
use super::reply::{self, Frame};
use super::site::House;
use crate::model_resolver::{ModelRequest, ResolvedModel, catalog_client};
use agent::catalog::SpeedPreferences;
use agent::run::Backend;
use agent::turn::{Door, Hands, Stop, Surface, TurnEvent, TurnRequest, TurnResult, turn_events};
use agent_tools::loopback::Answered;
use agent_tools::policy::HostPolicy;
use cursor_client::account::ApiKey;
use foundation::{Digest, prefix};

/// The header with a client's session id.
const SESSION: &str = "x-session-id";
/// The longest session id.
const LONGEST_NAME: usize = 256;

/// Part of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    /// An event.
    Event(TurnEvent),
    /// The result; always the last.
    End(Box<TurnResult>),
}

/// Parses a request.
pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Asked, Fault> {
    let session = match headers.get(SESSION) {
        None => None,
        Some(name) => match name.to_str().map(str::trim) {
            Ok("") => None,
            Ok(name) if name.len() <= LONGEST_NAME => Some(name.to_owned()),
            _ => {
                let problem = format!("expected at most {LONGEST_NAME} visible characters");
                return Err(Fault::field(SESSION, &problem));
            }
        },
    };
    Asked::read(body, session)
}

/// Answers a request. The turn is cancelled if the client disconnects.
pub(super) async fn answer(
    house: Arc<House>,
    asked: Asked,
    place: OwnedSemaphorePermit,
) -> Result<Answered, Fault> {
    let arrived = Instant::now();
    let (key, backend) = house.backend()?;
    let chosen = ModelRequest {
        id: &asked.model,
        level: asked.level,
        ..ModelRequest::default()
    };
    let client = catalog_client(&backend, key.clone());
    let unasked = SpeedPreferences::default();
    let found = house.catalogue.resolve(&chosen, &unasked, PROFILE, &client);
    let resolved = found.await?;
    let seat = house.desk.seat(&asked);
    let frame = Frame::new(&asked, &house.turns);
    let form = asked.form;
    // The client owns the receiver: when that is dropped, the client has disconnected.
    let (pieces, inbox) = mpsc::channel(64);
    let span = tracing::debug_span!("turn", turn = frame.id, session = prefix(&seat.name));
    let turn = Turn {
        id: frame.id.clone(),
        arrived,
        asked,
        key,
        backend,
        resolved,
        seat,
        place,
    };
    let tracked = Arc::clone(&house);
    tracked
        .turns
        .spawn(run(house, turn, pieces).instrument(span));
    match form {
        Form::Stream(_) => reply::stream(frame, inbox).await,
        Form::Whole => reply::whole(frame, inbox).await,
    }
}

/// A turn that is ready to run.
struct Turn {
    id: String,
    arrived: Instant,
    asked: Asked,
    key: ApiKey,
    backend: Backend,
    resolved: ResolvedModel,
    seat: Seat,
    /// Its permit among the active turns.
    place: OwnedSemaphorePermit,
}

/// The parts of an answer that decide which session the next request belongs to.
#[derive(Default)]
struct Summary {
    text: String,
    calls: Vec<String>,
}

/// Runs a turn and sends its events.
async fn run(house: Arc<House>, turn: Turn, pieces: mpsc::Sender<Piece>) {
    let Turn {
        id,
        arrived,
        asked,
        key,
        backend,
        resolved,
        seat,
        place: _place,
    } = turn;
    let transcript = asked.transcript;
    tracing::debug!(
        model = asked.model,
        messages = transcript.messages.len(),
        tools = transcript.tools.len(),
        system = %Digest(&transcript.system),
        "turn.started"
    );
    let cancel = house.leaving.child_token();
    let (events, mut inbox) = turn_events();
    let request = TurnRequest {
        account: key.fingerprint(),
        backend,
        workspace: house.workspace.clone(),
        transcript,
        asked: arrived,
        model: resolved.model,
        limits: resolved.limits,
        mode: None,
        policy: house.policy.clone(),
        native_tools: HostPolicy::default(),
        permissions: None,
        library: Arc::default(),
        keep: seat.keep,
        door: Door::Chat,
        hands: Hands::Between,
        surface: Surface::Text,
        cancel: cancel.clone(),
        injections: mpsc::channel(1).1,
        events,
    };
    let mut summary = Summary::default();
    let sending = async {
        while let Some(event) = inbox.recv().await {
            match &event {
                TurnEvent::Text(text) => summary.text.push_str(text),
                TurnEvent::ToolCall { id, .. } => summary.calls.push(id.clone()),
                _ => {}
            }
            if pieces.send(Piece::Event(event)).await.is_err() {
                cancel.cancel();
            }
        }
    };
    let running = async { tokio::join!(seat.session.turn(request), sending) };
    let result = {
        let mut running = std::pin::pin!(running);
        tokio::select! {
            (result, ()) = &mut running => result,
            () = pieces.closed() => {
                cancel.cancel();
                running.await.0
            }
        }
    };
    tracing::debug!(
        stop = ?Variant(&result.stop),
        ms = arrived.elapsed().as_millis() as u64,
        input = result.tokens.input,
        output = result.tokens.output,
        "turn.answered"
    );
    match &result.stop {
        Stop::Finished => {
            if let (Some(row), Some(window)) = (&resolved.model_id, result.window) {
                house.catalogue.learn(row, window);
            }
            house.desk.answered(&seat, &summary.text);
        }
        Stop::ToolUse => house.desk.waits(&seat, &id, summary.calls).await,
        Stop::Aborted | Stop::Failed(_) => house.desk.failed(&seat),
    }
    let waits = result.stop == Stop::ToolUse;
    let gone = pieces.send(Piece::End(Box::new(result))).await.is_err();
    if waits && (gone || cancel.is_cancelled()) {
        house.desk.left(&seat, &id).await;
    }
}

/// How a turn ended, without the error text.
struct Variant<'a>(&'a Stop);

impl std::fmt::Debug for Variant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Stop::Finished => "Stop",
            Stop::ToolUse => "ToolUse",
            Stop::Aborted => "Aborted",
            Stop::Failed(_) => "Error",
        })
    }
}

/// Returns a new id for an answer, in OpenAI's form.
pub(super) fn answer_id() -> String {
    format!("chatcmpl-{}", Uuid::new_v4().simple())
}
