//! The simulated backend: what all connections share, and the way from a path to its
//! answer.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accounts::{Accounts, Credential, Freshness};
use super::append::Appends;
use super::catalogue::Catalogue;
use super::connect::{Code, ConnectError};
use super::conversation::{self, Conversations};
use super::exchange::{Answer, Exchange, Reply, ReplyTo, RequestHead, read_body};
use super::recording::{Recording, Ticket};
use super::scenario::{Fate, Library, ServerSettings};
use super::{Http2, rest, run, unary};

const EXCHANGE: &str = "/auth/exchange_user_api_key";
const RUN: &str = "/agent.v1.AgentService/Run";
const RUN_SSE: &str = "/agent.v1.AgentService/RunSSE";
const APPEND: &str = "/aiserver.v1.BidiService/BidiAppend";
const RECORDING: &str = "/__sim/recording";
/// A client that reads nothing keeps its run from being judged, and not for longer.
const JUDGING: Duration = Duration::from_secs(5);

/// All tasks of a simulator; cancelling ends them at their next wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// Starts a task.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let token = self.token.clone();
        self.tracker.spawn(async move {
            token.run_until_cancelled(task).await;
        });
    }

    /// Ends all tasks.
    pub(super) fn cancel(&self) {
        self.token.cancel();
    }

    /// Waits until all tasks have ended.
    pub(super) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Backend {
    library: Library,
    settings: ServerSettings,
    http2: Http2,
    accounts: Accounts,
    catalogue: Catalogue,
    appends: Appends,
    conversations: Conversations,
    recording: Recording,
    tasks: Tasks,
    runs: AtomicU64,
    canned_uses: Mutex<HashMap<String, u64>>,
    attempts: Mutex<HashMap<String, usize>>,
}

impl Backend {
    /// A backend that plays these scenarios.
    pub(super) fn new(library: Library, http2: Http2, recording: Recording) -> Self {
        let settings = library
            .lone()
            .map(|scenario| scenario.server.clone())
            .unwrap_or_default();
        Self {
            accounts: Accounts::new(
                settings.token_ttl,
                settings.invalid_keys.clone(),
                settings.login_pending,
            ),
            catalogue: settings
                .models
                .clone()
                .map_or_else(Catalogue::default, Catalogue::new),
            library,
            settings,
            http2,
            appends: Appends::default(),
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

    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    pub(super) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(super) fn appends(&self) -> &Appends {
        &self.appends
    }

    pub(super) fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    pub(super) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The ordinal of the next run of a scenario, over all conversations.
    pub(super) fn next_attempt(&self, scenario: &str) -> usize {
        let mut attempts = conversation::lock(&self.attempts);
        let attempt = attempts.entry(scenario.to_owned()).or_default();
        *attempt += 1;
        *attempt
    }

    /// The ordinal of the next run.
    pub(super) fn next_run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `aiserver.v1.GetServerConfigResponse`.
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

    /// Streams a client may have open on one connection, if not all it likes.
    pub(super) fn max_streams(&self) -> Option<u32> {
        self.settings.max_streams
    }

    /// The account's privacy mode.
    pub(super) fn privacy_mode(&self) -> Value {
        self.settings
            .privacy_mode
            .clone()
            .unwrap_or_else(|| "PRIVACY_MODE_NO_STORAGE".into())
    }

    /// Answers one request.
    pub(super) async fn serve(self: Arc<Self>, exchange: Exchange) {
        let head = exchange.head.clone();
        if head.path == RECORDING {
            let mut reply = ReplyTo::new(exchange.reply, Ticket::unrecorded(&head));
            // Whoever has seen a run's end may ask for its verdict at once.
            let _ = tokio::time::timeout(JUDGING, self.recording.judged()).await;
            let _ = reply
                .answer(Answer::json(200, &self.recording.to_json()))
                .await;
            return;
        }
        let credential = self.accounts.identify(&head.headers);
        let ticket = self.recording.request(&head, credential.bearer());
        let mut reply = ReplyTo::new(exchange.reply.clone(), ticket);
        let fate = self.fate(&head.path);
        if let Some(fault) = fate.as_ref().and_then(fault) {
            let _ = reply.send(fault).await;
            return;
        }
        if matches!(head.path.as_str(), RUN | RUN_SSE) {
            if let Some(Fate::Answer { status, body }) = &fate {
                let _ = reply
                    .answer(fixed_answer(*status, body.as_ref(), &head))
                    .await;
            } else if let Err(refusal) = authenticate(&credential) {
                let _ = reply.answer(unary::error(&refusal)).await;
            } else if head.path == RUN {
                run::bidirectional(self, exchange, reply).await;
            } else {
                run::appended(self, exchange, reply).await;
            }
            return;
        }
        let mut exchange = exchange;
        let Ok(body) = read_body(&mut exchange.body).await else {
            return;
        };
        let answer = self.unary(&head, &credential, &body, &fate, reply.ticket());
        if let Some(Fate::Late(time)) = fate {
            tokio::time::sleep(time).await;
        }
        let _ = reply.answer(answer).await;
    }

    fn unary(
        &self,
        head: &RequestHead,
        credential: &Credential,
        body: &[u8],
        fate: &Option<Fate>,
        ticket: &mut Ticket,
    ) -> Answer {
        let method = unary::method(&head.path);
        let request = method.map(|method| method.read(head, body));
        match (&request, head.path.as_str()) {
            (Some(Ok(request)), path) => ticket.body(recorded(path, request)),
            (None, "/auth/poll") => ticket.body(rest::poll_request(head, body)),
            (None, _) if !body.is_empty() => {
                if let Ok(json) = serde_json::from_slice(body) {
                    ticket.body(json);
                }
            }
            _ => {}
        }
        if let Some(Fate::Answer { status, body }) = fate {
            return fixed_answer(*status, body.as_ref(), head);
        }
        if let Some(answer) = rest::answer(self, head, credential, body) {
            return answer;
        }
        let (Some(method), Some(request)) = (method, request) else {
            return unary::unimplemented(&head.path);
        };
        if head.method != http::Method::POST {
            return Answer::new(405, "text/plain", "method not allowed")
                .with_header("allow", "POST");
        }
        if let Err(refusal) = authenticate(credential) {
            return unary::error(&refusal);
        }
        match request {
            Ok(request) => method.answer(self, head, &request),
            Err(refusal) => *refusal,
        }
    }

    /// What was fixed for this path, as often as it is to happen.
    fn fate(&self, path: &str) -> Option<Fate> {
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
            _ => Some(canned.fate.clone()),
        }
    }
}

/// The reply of a call that gets no answer.
fn fault(fate: &Fate) -> Option<Reply> {
    match fate {
        Fate::Reset(code) => Some(Reply::Reset(*code)),
        Fate::GoAway(code) => Some(Reply::GoAway(*code)),
        Fate::Cut => Some(Reply::Cut),
        Fate::Answer { .. } | Fate::Late(_) => None,
    }
}

fn fixed_answer(status: u16, body: Option<&Value>, head: &RequestHead) -> Answer {
    match (body, unary::method(&head.path)) {
        (None, _) => Answer::new(status, "application/json", ""),
        (Some(Value::String(text)), _) => Answer::new(status, "text/plain", text.clone()),
        (Some(body), Some(method)) if status == 200 => method.write(head, 200, body),
        (Some(body), _) => Answer::json(status, body),
    }
}

fn authenticate(credential: &Credential) -> Result<(), ConnectError> {
    let reason = match credential {
        Credential::AccessToken(Freshness::Valid) => return Ok(()),
        Credential::AccessToken(Freshness::Expired) => "the access token has expired",
        Credential::ApiKey(_) => "this is no access token of this backend",
        Credential::None => "an access token is needed",
    };
    Err(ConnectError::new(Code::Unauthenticated, reason))
}

/// The request for the recording; an appended message is shown among the frames.
fn recorded(path: &str, request: &Value) -> Value {
    let mut shown = request.clone();
    if path == APPEND {
        for name in ["data", "dataBinary"] {
            if let Some(data) = shown.get_mut(name) {
                let length = data.as_str().map_or(0, str::len);
                *data = format!("<{length} characters>").into();
            }
        }
    }
    shown
}
