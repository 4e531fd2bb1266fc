//! A run from its request to its verdict: who plays it, and how it came out.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::append::AlreadyOpen;
use super::backend::Backend;
use super::connect::{Code, ConnectError};
use super::conversation::{self, Shared};
use super::exchange::{Exchange, ReplyTo, Version, read_body};
use super::inbox::Inbox;
use super::recording::{Outcome, Verdict};
use super::request::RunRequest;
use super::responder;
use super::scenario::{Compression, Counting, Scenario};
use super::schema;
use super::script::{self, Player};
use super::session::{Line, Session, Stop};
use super::unary;
use crate::wire::envelope::{Decoder, Encoding};

/// How long a client may take to send its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The scenario a verdict names when the built-in responder played.
const BUILT_IN: &str = "(built-in)";

/// `AgentService/Run`: both directions on one stream.
pub(super) async fn bidirectional(backend: Arc<Backend>, exchange: Exchange, mut reply: ReplyTo) {
    if exchange.head.version != Version::Http2 {
        let refusal = ConnectError::new(Code::Unimplemented, "Run needs HTTP/2; use RunSSE");
        let mut answer = unary::error(&refusal);
        answer.status = 505;
        let _ = reply.answer(answer).await;
        return;
    }
    let encoding = match Encoding::from_header(exchange.head.header("connect-content-encoding")) {
        Ok(encoding) => encoding,
        Err(error) => {
            let refusal = ConnectError::new(Code::Unimplemented, error.to_string());
            let _ = reply.answer(unary::error(&refusal)).await;
            return;
        }
    };
    let request_id = exchange
        .head
        .header("x-request-id")
        .unwrap_or_default()
        .to_owned();
    let line = Line {
        run: backend.next_run(),
        request_id,
        recording: backend.recording().clone(),
        inbox: Inbox::stream(exchange.body, encoding),
        reply,
        window: exchange.window,
    };
    serve(&backend, Session::new(line)).await;
}

/// `AgentService/RunSSE`: the reply streams, client messages are appended one by one.
pub(super) async fn appended(backend: Arc<Backend>, mut exchange: Exchange, mut reply: ReplyTo) {
    let Ok(body) = read_body(&mut exchange.body).await else {
        return;
    };
    let Some(id) = request_id(&body) else {
        let reason = "expected one envelope with a BidiRequestId";
        let refusal = ConnectError::new(Code::InvalidArgument, reason);
        let _ = reply.answer(unary::error(&refusal)).await;
        return;
    };
    reply.ticket().body(serde_json::json!({ "requestId": id }));
    let messages = match backend.appends().open(&id) {
        Ok(messages) => messages,
        Err(AlreadyOpen) => {
            let reason = format!("a run of request id {id} was opened before");
            let refusal = ConnectError::new(Code::AlreadyExists, reason);
            let _ = reply.answer(unary::error(&refusal)).await;
            return;
        }
    };
    let line = Line {
        run: backend.next_run(),
        request_id: id.clone(),
        recording: backend.recording().clone(),
        inbox: Inbox::Appended(messages),
        reply,
        window: exchange.window,
    };
    serve(&backend, Session::new(line)).await;
    backend.appends().end(&id);
}

fn request_id(body: &[u8]) -> Option<String> {
    let mut decoder = Decoder::default();
    decoder.push(body);
    let payload = decoder
        .next_envelope()
        .ok()??
        .into_payload(Encoding::Identity)
        .ok()?;
    let message = schema::decode("aiserver.v1.BidiRequestId", &payload).ok()?;
    let id = message
        .get_field_by_name("request_id")?
        .as_str()?
        .to_owned();
    (!id.is_empty()).then_some(id)
}

/// Who plays a run.
enum Cast<'b> {
    Scenario(&'b Scenario),
    Responder,
    Nobody(String),
}

async fn serve(backend: &Backend, mut session: Session) {
    let mut title = (BUILT_IN.to_owned(), 1);
    let result = perform(backend, &mut session, &mut title).await;
    let (outcome, failures) = match result {
        Ok(()) => (Outcome::Completed, Vec::new()),
        Err(Stop::ClientLeft) => {
            let error = ConnectError::new(Code::Canceled, "the client left");
            let _ = session.end_with_error(&error).await;
            (Outcome::CancelledByClient, Vec::new())
        }
        Err(Stop::Failed(reason)) => {
            tracing::info!(%reason, "run failed");
            let _ = session.end_with_error(&script::failure(&reason)).await;
            (Outcome::Failed, vec![reason])
        }
    };
    let (scenario, attempt) = title;
    backend.recording().verdict(Verdict {
        run: session.run(),
        scenario,
        attempt,
        outcome,
        failures,
    });
}

async fn perform(
    backend: &Backend,
    session: &mut Session,
    title: &mut (String, usize),
) -> Result<(), Stop> {
    if !backend.library().decides_headers() {
        session.open(Compression::Identity).await?;
    }
    let first = session.first_message(REQUEST_LIMIT).await?;
    let request = RunRequest::read(&first)
        .map_err(|error| Stop::Failed(error.to_string()))?
        .ok_or_else(|| Stop::Failed("expected a runRequest first, got another message".into()))?;
    let conversation_id = request
        .text("conversationId")
        .unwrap_or(session.request_id())
        .to_owned();
    let conversation = backend.conversations().get(&conversation_id);
    set_variables(session, &request, &conversation, &conversation_id);

    match cast(backend, &request, &conversation) {
        Cast::Responder => responder::respond(session, &request, conversation).await,
        Cast::Nobody(name) => {
            let known: Vec<&str> = backend.library().names().collect();
            Err(Stop::Failed(format!(
                "no scenario is named {name:?}; there are {}",
                known.join(", ")
            )))
        }
        Cast::Scenario(scenario) => {
            let attempt = {
                let mut conversation = conversation::lock(&conversation);
                conversation.scenario = Some(scenario.name.clone());
                let attempt = conversation
                    .attempts
                    .entry(scenario.name.clone())
                    .or_default();
                *attempt += 1;
                *attempt
            };
            let attempt = match scenario.counting {
                Counting::ByConversation => attempt,
                Counting::All => backend.next_attempt(&scenario.name),
            };
            *title = (scenario.name.clone(), attempt);
            match scenario.script(attempt) {
                Some(script) => {
                    Player::new(session, scenario, &request, conversation)
                        .play(script)
                        .await
                }
                None => session.end().await,
            }
        }
    }
}

fn set_variables(
    session: &Session,
    request: &RunRequest,
    conversation: &Shared,
    conversation_id: &str,
) {
    let mut conversation = conversation::lock(conversation);
    let variables = &mut conversation.variables;
    variables.set("CONVERSATION_ID", conversation_id.into());
    variables.set("REQUEST_ID", session.request_id().into());
    let known = [
        ("RUN_ID", request.text("runId")),
        ("USER_TEXT", request.user_text()),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            variables.set(name, Value::from(value));
        }
    }
    if let Some(path) = request.context().and_then(script::workspace) {
        variables.set("WS", path.clone());
    }
}

fn cast<'b>(backend: &'b Backend, request: &RunRequest, conversation: &Shared) -> Cast<'b> {
    let library = backend.library();
    if let Some(scenario) = library.lone() {
        return Cast::Scenario(scenario);
    }
    match request.user_text() {
        Some(text) => {
            let Some(name) = text
                .trim_start()
                .strip_prefix('@')
                .and_then(|rest| rest.split_whitespace().next())
            else {
                return Cast::Responder;
            };
            match library.named(name) {
                Some(scenario) => Cast::Scenario(scenario),
                None if library.names().next().is_none() => Cast::Responder,
                None => Cast::Nobody(name.to_owned()),
            }
        }
        // A resumed run has no message: it goes on with what the conversation played last.
        None => conversation::lock(conversation)
            .scenario
            .as_deref()
            .and_then(|name| library.named(name))
            .map_or(Cast::Responder, Cast::Scenario),
    }
}
