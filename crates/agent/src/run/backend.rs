//! Cursor's backend as a run uses it: endpoints, credentials, transport.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use cursor_client::account::{Account, ExchangeError, IssuedToken};
use cursor_client::endpoint::Endpoints;
use cursor_client::error::{TransportError, WireError};
use cursor_client::failure::Failure;
use cursor_client::headers::{HttpVersion, Identity, RequestIds, anonymous};
use cursor_client::http_clients::{Http, SetupError};
use cursor_client::http_version::Choice;
use cursor_client::stream::{Opening, RunStream};
use cursor_client::unary::{Call, CallError};
use cursor_proto::agent::v1::AgentClientMessage;
use cursor_proto::aiserver::v1::{GetServerConfigRequest, GetServerConfigResponse, Http2Config};
use cursor_proto::drift::Drift;
use cursor_proto::raw_fields::FieldError;

use super::request::RunSpec;

const SERVER_CONFIG: &str = "/aiserver.v1.ServerConfigService/GetServerConfig";
/// The server's advice is optional: a slow answer must not delay the first turn for long.
const ADVICE_DEADLINE: Duration = Duration::from_secs(3);

/// Everything that runs share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Backend {
    /// HTTP clients.
    pub http: Arc<Http>,
    /// Counters of unknown fields and messages.
    pub drift: Arc<Drift>,
    /// Server addresses.
    pub endpoints: Endpoints,
    /// Client type, version and privacy mode, as sent in headers.
    pub identity: Identity,
    /// Selects HTTP/2 or HTTP/1.1.
    pub choice: Arc<Choice>,
    /// Access tokens.
    pub account: Account,
}

/// Why a stream could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// No access token.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// No HTTP client.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The conversation's state is damaged.
    #[error("the conversation's state is damaged: {0}")]
    State(#[from] FieldError),
}

impl OpenError {
    /// Returns the failure class, which decides about a retry.
    pub fn failure(&self) -> Failure {
        let text = self.to_string();
        match self {
            Self::Exchange(ExchangeError::Transient(CallError::Wire(WireError::Transport(_)))) => {
                Failure::Transport(text)
            }
            Self::Exchange(ExchangeError::Transient(CallError::Wire(WireError::Remote(
                remote,
            )))) if remote.status == Some(429) => Failure::Server(format!("{text} (HTTP 429)")),
            Self::Exchange(error) if error.is_transient() => Failure::Server(text),
            Self::Exchange(ExchangeError::Rejected(_)) => Failure::Key(text),
            Self::Exchange(
                ExchangeError::SignedOut(_)
                | ExchangeError::NotRenewed(_)
                | ExchangeError::OtherAccount,
            ) => Failure::Login(text),
            Self::Exchange(_) | Self::Setup(_) | Self::State(_) => Failure::Refused(text),
        }
    }
}

impl OpenError {
    /// Returns the timeout if the server did not answer in time.
    pub(super) fn waited(&self) -> Option<Duration> {
        match self {
            Self::Exchange(ExchangeError::Transient(CallError::Wire(WireError::Transport(
                TransportError::Deadline { seconds, .. },
            )))) => Some(Duration::from_secs(*seconds)),
            _ => None,
        }
    }
}

/// An open stream and what it was opened with.
pub(super) struct Opened {
    pub(super) stream: RunStream,
    pub(super) version: HttpVersion,
    pub(super) issued: IssuedToken,
}

impl Backend {
    /// Opens one attempt of a run. `patience` is how long opening may take in total.
    pub(super) async fn open(
        &self,
        spec: &RunSpec,
        ids: RequestIds,
        first: &AgentClientMessage,
        patience: Option<Duration>,
    ) -> Result<Opened, OpenError> {
        let issued = self.account.token().await?;
        self.ask_for_advice(&issued, patience).await;
        let version = self.choice.version(&self.endpoints.agent, Instant::now());
        let opening = Opening {
            base: self.endpoints.agent.clone(),
            identity: self.identity.clone(),
            token: issued.token.clone(),
            ids,
            blob_key: spec.blob_key.clone(),
            gates: spec.gates.clone(),
            version,
        };
        let stream = RunStream::open(&self.http, &self.drift, opening, first).await?;
        Ok(Opened {
            stream,
            version,
            issued,
        })
    }

    /// Asks the server once which HTTP version it prefers; without an answer there is no advice.
    /// Uses at most a third of `patience`, because the run needs the rest.
    async fn ask_for_advice(&self, issued: &IssuedToken, patience: Option<Duration>) {
        if !self.choice.wants_advice(&self.endpoints.agent) {
            return;
        }
        let call = Call {
            base: &self.endpoints.backend,
            path: SERVER_CONFIG,
            headers: anonymous(&issued.token),
            version: HttpVersion::Http1,
            deadline: patience.map_or(ADVICE_DEADLINE, |all| ADVICE_DEADLINE.min(all / 3)),
        };
        let answer: Result<GetServerConfigResponse, _> = self
            .http
            .call(call, &GetServerConfigRequest::default())
            .await;
        match answer {
            Ok(config) => {
                let http2 = config.http2_config();
                tracing::debug!(http2 = http2.as_str_name(), "advice.given");
                self.choice.advised(&self.endpoints.agent, http2);
            }
            // The call has logged the reason.
            Err(_) => {
                tracing::debug!("advice.missing");
                // Counts as answered, so that the next attempt does not wait for it again.
                self.choice
                    .advised(&self.endpoints.agent, Http2Config::Unspecified);
            }
        }
    }
}
