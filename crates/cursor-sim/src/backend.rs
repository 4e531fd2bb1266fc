//! The simulated backend: the state all connections share, and the routing of requests.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accounts::{Accounts, RequestCredential};
use super::append::AppendStreams;
use super::connect::{Code, ConnectError};
use super::conversation::{self, Conversations};
use super::exchange::{
    FullResponse, IncomingRequest, RequestHead, ResponsePart, ResponseSender, read_body,
};
use super::models::SimModels;
use super::recording::{RecordingHandle, RequestRecorder};
use super::scenario::{CannedAction, ScenarioLibrary, ServerSettings};
use super::{Http2, rest, run, unary};

const EXCHANGE: &str = "/auth/exchange_user_api_key";
const RUN: &str = "/agent.v1.AgentService/Run";
const RUN_SSE: &str = "/agent.v1.AgentService/RunSSE";
const APPEND: &str = "/aiserver.v1.BidiService/BidiAppend";
const RECORDING: &str = "/__sim/recording";
/// How long a request for the recording waits for verdicts; bounded, because a client that does
/// not read delays the verdict on its run.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(5);

/// All tasks of a simulator; cancelling ends them at their next wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// Spawns a task that ends on cancellation.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let token = self.token.clone();
        self.tracker.spawn(async move {
            token.run_until_cancelled(task).await;
        });
    }

    pub(super) fn cancel(&self) {
        self.token.cancel();
    }

    /// Waits until all tasks have ended.
    pub(super) async fn wait(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// The state all connections share.
#[derive(Debug)]
pub(super) struct SimBackend {
    library: ScenarioLibrary,
    settings: ServerSettings,
    http2: Http2,
    accounts: Accounts,
    models: SimModels,
    accepted_models: SimModels,
    appends: AppendStreams,
    conversations: Conversations,
    recording: RecordingHandle,
    tasks: Tasks,
    runs: AtomicU64,
    canned_uses: Mutex<HashMap<String, u64>>,
    attempts: Mutex<HashMap<String, usize>>,
}

impl SimBackend {
    /// Creates a backend that plays these scenarios.
    pub(super) fn new(library: ScenarioLibrary, http2: Http2, recording: RecordingHandle) -> Self {
        let settings = library
            .only()
            .map(|scenario| scenario.server.clone())
            .unwrap_or_default();
        let models = settings.models.clone();
        let models = models.map_or_else(SimModels::default, SimModels::new);
        Self {
            accepted_models: models.clone().with(settings.canned_models()),
            models,
            accounts: Accounts::new(
                settings.token_ttl,
                settings.invalid_keys.clone(),
                settings.login_pending,
            ),
            library,
            settings,
            http2,
            appends: AppendStreams::default(),
            conversations: Conversations::default(),
            recording,
            tasks: Tasks::default(),
            runs: AtomicU64::new(0),
            canned_uses: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(super) fn library(&self) -> &ScenarioLibrary {
        &self.library
    }

    pub(super) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(super) fn models(&self) -> &SimModels {
        &self.models
    }

    /// Returns the models that runs may request: those of the list and of its canned replies.
    pub(super) fn accepted_models(&self) -> &SimModels {
        &self.accepted_models
    }

    pub(super) fn appends(&self) -> &AppendStreams {
        &self.appends
    }

    pub(super) fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    pub(super) fn recording(&self) -> &RecordingHandle {
        &self.recording
    }

    /// Returns the ordinal of the next run of a scenario, counted over all conversations.
    pub(super) fn next_attempt(&self, scenario: &str) -> usize {
        let mut attempts = conversation::lock(&self.attempts);
        let attempt = attempts.entry(scenario.to_owned()).or_default();
        *attempt += 1;
        *attempt
    }

    /// Returns the ordinal of the next run.
    pub(super) fn next_run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the `aiserver.v1.GetServerConfigResponse`.
    pub(super) fn server_config(&self) -> Value {
        let http2 = match self.http2 {
            Http2::Auto => self.settings.http2.unwrap_or(0),
            Http2::Off => 1,
            Http2::Force => 2,
        };
        let mut config = json!({ "configVersion": "simulated", "http2Config": http2 });
        if let Some(url) = &self.settings.agent_url {
            config["agentUrlConfig"] = json!({ "agentUrl": url, "agentnUrl": url });
        }
        config
    }

    /// Returns the limit of open streams on one connection, if there is one.
    pub(super) fn max_streams(&self) -> Option<u32> {
        self.settings.max_streams
    }

    /// Returns the account's privacy mode.
    pub(super) fn privacy_mode(&self) -> Value {
        self.settings
            .privacy_mode
            .clone()
            .unwrap_or_else(|| "PRIVACY_MODE_NO_STORAGE".into())
    }

    /// Responds to one request.
    pub(super) async fn serve(self: Arc<Self>, incoming: IncomingRequest) {
        let head = incoming.head.clone();
        if head.path == RECORDING {
            let recorder = RequestRecorder::unrecorded(&head);
            let mut sender = ResponseSender::new(incoming.response, recorder);
            // A client that has seen the end of a run may ask for its verdict at once.
            let _ = tokio::time::timeout(VERDICT_TIMEOUT, self.recording.wait_for_verdicts()).await;
            let _ = sender
                .send_full(FullResponse::json(200, &self.recording.to_json()))
                .await;
            return;
        }
        let credential = self.accounts.identify(&head.headers);
        let recorder = self.recording.record_request(&head, credential.bearer());
        let mut sender = ResponseSender::new(incoming.response.clone(), recorder);
        let canned = self.canned_action(&head.path);
        if let Some(fault) = canned.as_ref().and_then(fault) {
            let _ = sender.send(fault).await;
            return;
        }
        if matches!(head.path.as_str(), RUN | RUN_SSE) {
            if let Some(CannedAction::Respond { status, body }) = &canned {
                let _ = sender
                    .send_full(canned_response(*status, body.as_ref(), &head))
                    .await;
            } else if let Err(error) = authenticate(&credential) {
                let _ = sender.send_full(unary::error(&error)).await;
            } else if head.path == RUN {
                run::bidirectional(self, incoming, sender).await;
            } else {
                run::appended(self, incoming, sender).await;
            }
            return;
        }
        let mut incoming = incoming;
        let Ok(body) = read_body(&mut incoming.body).await else {
            return;
        };
        let response = self.unary(&head, &credential, &body, &canned, sender.recorder());
        if let Some(CannedAction::Delay(time)) = canned {
            tokio::time::sleep(time).await;
        }
        let _ = sender.send_full(response).await;
    }

    fn unary(
        &self,
        head: &RequestHead,
        credential: &RequestCredential,
        body: &[u8],
        canned: &Option<CannedAction>,
        recorder: &mut RequestRecorder,
    ) -> FullResponse {
        let method = unary::method(&head.path);
        let request = method.map(|method| method.read(head, body));
        match (&request, head.path.as_str()) {
            (Some(Ok(request)), path) => recorder.record_body(recorded_request(path, request)),
            (None, "/auth/poll") => recorder.record_body(rest::poll_request(head, body)),
            (None, _) if !body.is_empty() => {
                if let Ok(json) = serde_json::from_slice(body) {
                    recorder.record_body(json);
                }
            }
            _ => {}
        }
        if let Some(CannedAction::Respond { status, body }) = canned {
            return canned_response(*status, body.as_ref(), head);
        }
        if let Some(response) = rest::respond(self, head, credential, body) {
            return response;
        }
        let (Some(method), Some(request)) = (method, request) else {
            return unary::unimplemented(&head.path);
        };
        if head.method != http::Method::POST {
            return FullResponse::new(405, "text/plain", "method not allowed")
                .with_header("allow", "POST");
        }
        if let Err(error) = authenticate(credential) {
            return unary::error(&error);
        }
        match request {
            Ok(request) => method.respond(self, head, &request),
            Err(response) => *response,
        }
    }

    /// Returns the scenario's canned action for this path, if it applies to this call. Counts the
    /// call.
    fn canned_action(&self, path: &str) -> Option<CannedAction> {
        let canned = match path {
            EXCHANGE => self.settings.exchange.as_ref(),
            _ => None,
        }
        .or_else(|| self.settings.unary.get(path))?;
        let mut uses = conversation::lock(&self.canned_uses);
        let used = uses.entry(path.to_owned()).or_default();
        *used += 1;
        let nth = used.checked_sub(canned.after).filter(|nth| *nth > 0)?;
        match canned.times {
            Some(times) if nth > times => None,
            _ => Some(canned.action.clone()),
        }
    }
}

/// Returns the fault that replaces the response, if the action is one.
fn fault(action: &CannedAction) -> Option<ResponsePart> {
    match action {
        CannedAction::Reset(code) => Some(ResponsePart::Reset(*code)),
        CannedAction::GoAway(code) => Some(ResponsePart::GoAway(*code)),
        CannedAction::Cut => Some(ResponsePart::Cut),
        CannedAction::Respond { .. } | CannedAction::Delay(_) => None,
    }
}

fn canned_response(status: u16, body: Option<&Value>, head: &RequestHead) -> FullResponse {
    match (body, unary::method(&head.path)) {
        (None, _) => FullResponse::new(status, "application/json", ""),
        (Some(Value::String(text)), _) => FullResponse::new(status, "text/plain", text.clone()),
        (Some(body), Some(method)) if status == 200 => method.write(head, 200, body),
        (Some(body), _) => FullResponse::json(status, body),
    }
}

fn authenticate(credential: &RequestCredential) -> Result<(), ConnectError> {
    let reason = match credential {
        RequestCredential::AccessToken { expired: false } => return Ok(()),
        RequestCredential::AccessToken { expired: true } => "the access token has expired",
        RequestCredential::ApiKey(_) => "the access token was not issued by this backend",
        RequestCredential::None => "an access token is required",
    };
    Err(ConnectError::new(Code::Unauthenticated, reason))
}

/// Returns a request for the recording. The data of an appended message is left out, because the
/// recording has it as a frame.
fn recorded_request(path: &str, request: &Value) -> Value {
    let mut recorded = request.clone();
    if path == APPEND {
        for name in ["data", "dataBinary"] {
            if let Some(data) = recorded.get_mut(name) {
                let length = data.as_str().map_or(0, str::len);
                *data = format!("<{length} characters>").into();
            }
        }
    }
    recorded
}
