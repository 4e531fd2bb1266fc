//! The key exchange: `POST /auth/exchange_user_api_key`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use super::key::ApiKey;
use crate::wire::endpoint::BaseUrl;
use crate::wire::error::{TransportError, WireError};
use crate::wire::headers::HttpVersion;
use crate::wire::http::Http;
use crate::wire::unary::{Call, CallError};

const PATH: &str = "/auth/exchange_user_api_key";
const DEADLINE: Duration = Duration::from_secs(30);

/// Turns a key into an access token.
pub trait Exchange: Send + Sync + 'static {
    /// One exchange.
    fn exchange(&self)
    -> Pin<Box<dyn Future<Output = Result<SecretString, ExchangeError>> + Send>>;
}

/// Why there is no token.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExchangeError {
    /// The server does not know the key.
    #[error("Cursor did not accept the API key ({0}); check CURSOR_API_KEY or create a new key")]
    Refused(String),
    /// There is no such service at this address.
    #[error("{0} has no key exchange; check CURSOR_BACKEND_URL")]
    NoSuchService(String),
    /// An answer without a token.
    #[error("Cursor answered the key exchange without a token")]
    NoToken,
    /// A token that cannot be sent.
    #[error("Cursor answered the key exchange with a token that no header can carry")]
    BadToken,
    /// May work a little later.
    #[error("cannot exchange the API key: {0}")]
    Passing(CallError),
    /// Any other refusal.
    #[error("cannot exchange the API key: {0}")]
    Failed(CallError),
}

impl ExchangeError {
    /// Whether the same exchange may work a little later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Passing(_))
    }
}

/// The real exchange.
pub struct HttpExchange {
    /// Clients.
    pub http: Arc<Http>,
    /// The host.
    pub base: BaseUrl,
    /// The key.
    pub key: ApiKey,
}

impl Exchange for HttpExchange {
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
    let mut headers = HeaderMap::new();
    let bearer = format!("Bearer {}", key.secret().expose_secret());
    // A checked key is visible ASCII, so it always is a header value.
    if let Ok(mut value) = HeaderValue::from_str(&bearer) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    let call = Call {
        base,
        path: PATH,
        headers,
        version: HttpVersion::Http1,
        deadline: DEADLINE,
    };
    let answer = match http.call_json(call, &json!({})).await {
        Ok(answer) => answer,
        Err(error) => return Err(judge(error, base)),
    };
    match answer.get("accessToken").and_then(Json::as_str) {
        // Sent without it, a run would be refused for a reason that is none.
        Some(token) if HeaderValue::from_str(token).is_err() => Err(ExchangeError::BadToken),
        Some(token) if !token.is_empty() => Ok(token.into()),
        _ => Err(ExchangeError::NoToken),
    }
}

fn judge(error: CallError, base: &BaseUrl) -> ExchangeError {
    match &error {
        CallError::Setup(_) | CallError::Wire(WireError::Transport(TransportError::Tls { .. })) => {
            ExchangeError::Failed(error)
        }
        CallError::Wire(WireError::Transport(_)) => ExchangeError::Passing(error),
        CallError::Wire(WireError::Remote(remote)) => match remote.status {
            Some(401) => ExchangeError::Refused(remote.text()),
            Some(404) => ExchangeError::NoSuchService(base.to_string()),
            Some(429 | 500..) => ExchangeError::Passing(error),
            _ => ExchangeError::Failed(error),
        },
    }
}
