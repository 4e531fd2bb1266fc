//! Cursor's backend as a run sees it: hosts, credentials, transport.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::account::{Account, ExchangeError, IssuedToken};
use crate::wire::choice::Choice;
use crate::wire::drift::Drift;
use crate::wire::endpoint::Endpoints;
use crate::wire::error::{TransportError, WireError};
use crate::wire::failure::Failure;
use crate::wire::fields::FieldError;
use crate::wire::headers::{HttpVersion, Identity, RequestIds, anonymous};
use crate::wire::http::{Http, SetupError};
use crate::wire::proto::agent::v1::AgentClientMessage;
use crate::wire::proto::aiserver::v1::{
    GetServerConfigRequest, GetServerConfigResponse, Http2Config,
};
use crate::wire::stream::{Opening, RunStream};
use crate::wire::unary::{Call, CallError};

use super::request::RunSpec;

const SERVER_CONFIG: &str = "/aiserver.v1.ServerConfigService/GetServerConfig";
/// Advice is optional: a slow answer must not delay the first turn for long.
const ADVICE_DEADLINE: Duration = Duration::from_secs(3);

/// Everything runs share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Backend {
    /// HTTP clients.
    pub http: Arc<Http>,
    /// Counters of what we do not understand.
    pub drift: Arc<Drift>,
    /// Hosts.
    pub endpoints: Endpoints,
    /// How we introduce ourselves.
    pub identity: Identity,
    /// HTTP/2 or HTTP/1.1.
    pub choice: Arc<Choice>,
    /// Access tokens.
    pub account: Account,
}

/// Why a stream could not even be opened.
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
    /// What it means for the next attempt.
    pub fn failure(&self) -> Failure {
        let text = self.to_string();
        match self {
            Self::Exchange(ExchangeError::Transient(CallError::Wire(WireError::Transport(_)))) => {
                Failure::Transport(text)
            }
            Self::Exchange(error) if error.is_transient() => Failure::Server(text),
            Self::Exchange(ExchangeError::Rejected(_)) => Failure::Key(text),
            Self::Exchange(_) | Self::Setup(_) | Self::State(_) => Failure::Refused(text),
        }
    }
}

impl OpenError {
    /// How long was waited for an answer that did not come.
    pub(super) fn waited(&self) -> Option<Duration> {
        match self {
            Self::Exchange(ExchangeError::Transient(CallError::Wire(WireError::Transport(
                TransportError::Deadline { seconds, .. },
            )))) => Some(Duration::from_secs(*seconds)),
            _ => None,
        }
    }
}

/// An opened stream and what it was opened with.
pub(super) struct Opened {
    pub(super) stream: RunStream,
    pub(super) version: HttpVersion,
    pub(super) issued: IssuedToken,
}

impl Backend {
    /// Opens one attempt of a run, for which somebody has so much patience.
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

    /// Asks the server once which HTTP version it wants; no answer is no advice. Whoever has
    /// little patience wants a run for it.
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
            // Why not, the call has told.
            Err(_) => {
                tracing::debug!("advice.missing");
                // Asked once is asked: the next attempt need not wait for it again.
                self.choice
                    .advised(&self.endpoints.agent, Http2Config::Unspecified);
            }
        }
    }
}
