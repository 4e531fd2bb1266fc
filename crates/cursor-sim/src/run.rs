//! Serves a run from its request to its verdict: a scenario or the built-in responder plays it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::append::AlreadyOpen;
use super::backend::SimBackend;
use super::connect::{Code, ConnectError};
use super::conversation::{self, SharedConversation};
use super::exchange::{IncomingRequest, ResponseSender, read_body};
use super::inbox::ReceivedFrames;
use super::recording::{RunVerdict, VerdictOutcome};
use super::request::RunRequest;
use super::responder;
use super::scenario::{AttemptScope, Compression, Scenario};
use super::schema;
use super::script::{self, Player};
use super::server_run::{RunConnection, RunStop, ServerRun};
use super::unary;
use cursor_proto::envelope::{Decoder, Encoding};

/// How long a client may take to send its run request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The scenario name in verdicts on runs of the built-in responder.
const BUILT_IN: &str = "(built-in)";

/// `AgentService/Run`: both directions on one stream.
pub(super) async fn bidirectional(
    backend: Arc<SimBackend>,
    incoming: IncomingRequest,
    mut sender: ResponseSender,
) {
    if incoming.head.version != http::Version::HTTP_2 {
        let error = ConnectError::new(Code::Unimplemented, "Run needs HTTP/2; use RunSSE");
        let mut response = unary::error(&error);
        response.status = 505;
        let _ = sender.send_full(response).await;
        return;
    }
    let encoding = match Encoding::from_header(incoming.head.header("connect-content-encoding")) {
        Ok(encoding) => encoding,
        Err(error) => {
            let error = ConnectError::new(Code::Unimplemented, error.to_string());
            let _ = sender.send_full(unary::error(&error)).await;
            return;
        }
    };
    let request_id = incoming
        .head
        .header("x-request-id")
        .unwrap_or_default()
        .to_owned();
    let connection = RunConnection {
        number: backend.next_run(),
        request_id,
        recording: backend.recording().clone(),
        inbox: ReceivedFrames::stream(incoming.body, encoding),
        sender,
        window: incoming.window,
    };
    serve(&backend, ServerRun::new(connection)).await;
}

/// `AgentService/RunSSE`: the response is a stream, client messages are appended one by one.
pub(super) async fn appended(
    backend: Arc<SimBackend>,
    mut incoming: IncomingRequest,
    mut sender: ResponseSender,
) {
    let Ok(body) = read_body(&mut incoming.body).await else {
        return;
    };
    let Some(id) = request_id(&body) else {
        let reason = "expected one envelope with a BidiRequestId";
        let error = ConnectError::new(Code::InvalidArgument, reason);
        let _ = sender.send_full(unary::error(&error)).await;
        return;
    };
    sender
        .recorder()
        .record_body(serde_json::json!({ "requestId": id }));
    let messages = match backend.appends().open(&id) {
        Ok(messages) => messages,
        Err(AlreadyOpen) => {
            let reason = format!("a run with request id {id} was opened before");
            let error = ConnectError::new(Code::AlreadyExists, reason);
            let _ = sender.send_full(unary::error(&error)).await;
            return;
        }
    };
    let connection = RunConnection {
        number: backend.next_run(),
        request_id: id.clone(),
        recording: backend.recording().clone(),
        inbox: ReceivedFrames::Appended(messages),
        sender,
        window: incoming.window,
    };
    serve(&backend, ServerRun::new(connection)).await;
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

/// What plays a run.
enum RunDriver<'b> {
    Scenario(&'b Scenario),
    Responder,
    UnknownScenario(String),
}

async fn serve(backend: &SimBackend, mut run: ServerRun) {
    let mut scenario_attempt = (BUILT_IN.to_owned(), 1);
    let result = play(backend, &mut run, &mut scenario_attempt).await;
    let (outcome, failures) = match result {
        Ok(()) => (VerdictOutcome::Completed, Vec::new()),
        Err(RunStop::ClientLeft) => {
            let error = ConnectError::new(Code::Canceled, "the client left");
            let _ = run.end_with_error(&error).await;
            (VerdictOutcome::CancelledByClient, Vec::new())
        }
        Err(RunStop::Failed(reason)) => {
            tracing::info!(%reason, "run failed");
            let _ = run.end_with_error(&script::failure(&reason)).await;
            (VerdictOutcome::Failed, vec![reason])
        }
    };
    let (scenario, attempt) = scenario_attempt;
    backend.recording().record_verdict(RunVerdict {
        run: run.number(),
        scenario,
        attempt,
        outcome,
        failures,
    });
}

/// Plays a run; sets `scenario_attempt` to the scenario's name and the ordinal of the attempt.
async fn play(
    backend: &SimBackend,
    run: &mut ServerRun,
    scenario_attempt: &mut (String, usize),
) -> Result<(), RunStop> {
    if !backend.library().decides_headers() {
        run.open(Compression::Identity).await?;
    }
    let first = run.first_message(REQUEST_LIMIT).await?;
    let request = RunRequest::read(&first)
        .map_err(|error| RunStop::Failed(error.to_string()))?
        .ok_or_else(|| {
            RunStop::Failed("expected a runRequest first, got another message".into())
        })?;
    let conversation_id = request
        .text("conversationId")
        .unwrap_or(run.request_id())
        .to_owned();
    let conversation = backend.conversations().get(&conversation_id);
    set_variables(run, &request, &conversation, &conversation_id);
    let requested = request.message.present.get("requestedModel");
    if let Some(error) = requested.and_then(|model| backend.accepted_models().refusal(model)) {
        return run.end_with_error(&error).await;
    }

    match choose_driver(backend, &request, &conversation) {
        RunDriver::Responder => responder::respond(run, &request, conversation).await,
        RunDriver::UnknownScenario(name) => {
            let known: Vec<&str> = backend.library().names().collect();
            Err(RunStop::Failed(format!(
                "no scenario is named {name:?}; there are {}",
                known.join(", ")
            )))
        }
        RunDriver::Scenario(scenario) => {
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
            let attempt = match scenario.attempt_scope {
                AttemptScope::Conversation => attempt,
                AttemptScope::All => backend.next_attempt(&scenario.name),
            };
            *scenario_attempt = (scenario.name.clone(), attempt);
            match scenario.script(attempt) {
                Some(script) => {
                    Player::new(run, scenario, &request, conversation)
                        .play(script)
                        .await
                }
                None => run.end().await,
            }
        }
    }
}

fn set_variables(
    run: &ServerRun,
    request: &RunRequest,
    conversation: &SharedConversation,
    conversation_id: &str,
) {
    let mut conversation = conversation::lock(conversation);
    let variables = &mut conversation.variables;
    variables.set("CONVERSATION_ID", conversation_id.into());
    variables.set("REQUEST_ID", run.request_id().into());
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

fn choose_driver<'b>(
    backend: &'b SimBackend,
    request: &RunRequest,
    conversation: &SharedConversation,
) -> RunDriver<'b> {
    let library = backend.library();
    if let Some(scenario) = library.only() {
        return RunDriver::Scenario(scenario);
    }
    match request.user_text() {
        Some(text) => {
            let Some(name) = text
                .trim_start()
                .strip_prefix('@')
                .and_then(|rest| rest.split_whitespace().next())
            else {
                return RunDriver::Responder;
            };
            match library.named(name) {
                Some(scenario) => RunDriver::Scenario(scenario),
                None if library.names().next().is_none() => RunDriver::Responder,
                None => RunDriver::UnknownScenario(name.to_owned()),
            }
        }
        // A resumed run has no message: it continues the conversation's last scenario.
        None => conversation::lock(conversation)
            .scenario
            .as_deref()
            .and_then(|name| library.named(name))
            .map_or(RunDriver::Responder, RunDriver::Scenario),
    }
}
