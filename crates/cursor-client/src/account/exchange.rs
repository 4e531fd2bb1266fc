//! The key exchange: `POST /auth/exchange_user_api_key`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use super::key::ApiKey;
use crate::endpoint::BaseUrl;
use crate::error::{TransportError, WireError};
use crate::headers::{HttpVersion, fetched};
use crate::http_clients::Http;
use crate::unary::{Call, CallError};

const PATH: &str = "/auth/exchange_user_api_key";
const DEADLINE: Duration = Duration::from_secs(30);

/// Exchanges an API key for an access token.
pub trait TokenExchange: Send + Sync + 'static {
    /// Performs one exchange.
    fn exchange(&self)
    -> Pin<Box<dyn Future<Output = Result<SecretString, ExchangeError>> + Send>>;

    /// Is called when the server did not accept a token that was issued. An exchange of a key
    /// needs no reaction: the next one issues another token.
    fn rejected(&self, _token: &SecretString) {}
}

/// Why a key could not be exchanged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExchangeError {
    /// The server rejected the key.
    #[error(
        "Cursor did not accept the API key ({0}); create a new one in Cursor's dashboard, under Integrations"
    )]
    Rejected(String),
    /// The server has no key exchange.
    #[error("{0} has no key exchange; check CURSOR_BACKEND_URL")]
    NoSuchService(String),
    /// A login has ended and cannot be renewed.
    #[error(
        "the Cursor login has ended ({0}); sign in again with /login, or with `cursor-sidecar login`"
    )]
    SignedOut(String),
    /// A token that is not renewed here has expired, or was not accepted.
    #[error("{0}")]
    NotRenewed(&'static str),
    /// A renewed token belongs to another account.
    #[error(
        "Cursor returned a token of another account, which is not used; sign in again with /login, or with `cursor-sidecar login`"
    )]
    OtherAccount,
    /// The response has no token.
    #[error("Cursor's response to the request for a token has none")]
    NoToken,
    /// The token contains characters that an HTTP header cannot carry.
    #[error("Cursor sent a token that cannot be sent in a header")]
    BadToken,
    /// A temporary failure, such as a network error; worth a retry.
    #[error("cannot get a token from Cursor: {0}")]
    Transient(CallError),
    /// Any other failure; a retry would fail as well.
    #[error("cannot get a token from Cursor: {0}")]
    Failed(CallError),
}

impl ExchangeError {
    /// Whether the same exchange may succeed on a retry.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient(_))
    }
}

/// The exchange over HTTP.
pub struct HttpExchange {
    /// The HTTP clients.
    pub http: Arc<Http>,
    /// The server.
    pub base: BaseUrl,
    /// The key.
    pub key: ApiKey,
}

impl TokenExchange for HttpExchange {
    fn exchange(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<SecretString, ExchangeError>> + Send>> {
        let (http, base, key) = (Arc::clone(&self.http), self.base.clone(), self.key.clone());
        Box::pin(async move { exchange(&http, &base, &key).await })
    }
}

async fn exchange(
    http: &Http,
    base: &BaseUrl,
    key: &ApiKey,
) -> Result<SecretString, ExchangeError> {
    let mut headers = fetched();
    let bearer = format!("Bearer {}", key.secret().expose_secret());
    // `ApiKey` guarantees visible ASCII, so this is always a valid header value.
    if let Ok(mut value) = HeaderValue::from_str(&bearer) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let call = Call {
        base,
        path: PATH,
        headers,
        version: HttpVersion::Http1,
        deadline: DEADLINE,
    };
    let response = match http.call_json(call, &json!({})).await {
        Ok(response) => response,
        Err(error) => return Err(classify(error, base)),
    };
    match response.get("accessToken").and_then(Json::as_str) {
        // Reported here, because a run without the header would fail with a misleading error.
        Some(token) if HeaderValue::from_str(token).is_err() => Err(ExchangeError::BadToken),
        Some(token) if !token.is_empty() => Ok(token.into()),
        _ => Err(ExchangeError::NoToken),
    }
}

fn classify(error: CallError, base: &BaseUrl) -> ExchangeError {
    match &error {
        CallError::Setup(_) | CallError::Wire(WireError::Transport(TransportError::Tls { .. })) => {
            ExchangeError::Failed(error)
        }
        CallError::Wire(WireError::Transport(_)) => ExchangeError::Transient(error),
        CallError::Wire(WireError::Remote(remote)) => match remote.status {
            Some(401) => ExchangeError::Rejected(remote.text()),
            Some(404) => ExchangeError::NoSuchService(base.to_string()),
            Some(429 | 500..) => ExchangeError::Transient(error),
            _ => ExchangeError::Failed(error),
        },
    }
}
