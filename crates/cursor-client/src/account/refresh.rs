//! Renews the tokens of a login. Clients of Cursor use three endpoints for it; they are tried in
//! the order of how many clients use them, and the one that works is remembered.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use super::credential::LoginTokens;
use super::exchange::ExchangeError;
use crate::connect_error::RemoteError;
use crate::endpoint::BaseUrl;
use crate::error::TransportError;
use crate::headers::HttpVersion;
use crate::http_clients::Http;
use crate::unary::{Call, CallError};

const DEADLINE: Duration = Duration::from_secs(15);
/// Maximum size of a response to a login, a poll or a refresh.
pub(super) const MAX_RESPONSE: usize = 256 * 1024;

/// Where new tokens are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshEndpoint {
    ExchangeKey,
    Token,
    Refresh,
}

impl RefreshEndpoint {
    /// All endpoints, in the order in which they are tried.
    pub(super) const ALL: [Self; 3] = [Self::ExchangeKey, Self::Token, Self::Refresh];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::ExchangeKey => "/auth/exchange_user_api_key",
            Self::Token => "/auth/token",
            Self::Refresh => "/auth/refresh",
        }
    }

    /// Returns the endpoint with this path.
    pub(super) fn find(path: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|endpoint| endpoint.path() == path)
    }
}

/// The response of one endpoint.
enum RefreshOutcome {
    Renewed(LoginTokens),
    /// The endpoint does not exist.
    NoSuchEndpoint,
    /// The token was not accepted.
    Rejected(String),
}

/// Requests new tokens. `preferred` is the endpoint that worked last time.
pub(super) async fn refresh(
    http: &Http,
    base: &BaseUrl,
    token: &SecretString,
    preferred: Option<RefreshEndpoint>,
) -> Result<(LoginTokens, RefreshEndpoint), ExchangeError> {
    let others = RefreshEndpoint::ALL.into_iter();
    let others = others.filter(|endpoint| Some(*endpoint) != preferred);
    let mut rejected = None;
    for endpoint in preferred.into_iter().chain(others) {
        match ask(http, base, token, endpoint).await? {
            RefreshOutcome::Renewed(tokens) => return Ok((tokens, endpoint)),
            RefreshOutcome::NoSuchEndpoint => {}
            RefreshOutcome::Rejected(reason) => {
                rejected.get_or_insert(reason);
            }
        }
    }
    Err(match rejected {
        Some(reason) => ExchangeError::SignedOut(format!("Cursor did not renew it: {reason}")),
        None => ExchangeError::SignedOut(format!("{base} does not renew logins")),
    })
}

async fn ask(
    http: &Http,
    base: &BaseUrl,
    token: &SecretString,
    endpoint: RefreshEndpoint,
) -> Result<RefreshOutcome, ExchangeError> {
    let json = HeaderValue::from_static("application/json");
    let mut headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
    let body = match endpoint {
        RefreshEndpoint::ExchangeKey | RefreshEndpoint::Refresh => {
            let bearer = format!("Bearer {}", token.expose_secret());
            let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| ExchangeError::BadToken)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
            json!({})
        }
        RefreshEndpoint::Token => json!({ "refreshToken": token.expose_secret() }),
    };
    let call = Call {
        base,
        path: endpoint.path(),
        headers,
        version: HttpVersion::Http1,
        deadline: DEADLINE,
    };
    let body = Bytes::from(body.to_string());
    let (status, response) = http
        .fetch_at_most(Method::POST, call, body, MAX_RESPONSE)
        .await
        .map_err(ExchangeError::Transient)?;
    tracing::debug!(path = endpoint.path(), status, "login.refresh");
    let parsed: Option<Json> = serde_json::from_slice(&response).ok();
    match (status, parsed) {
        (200..=299, Some(parsed)) => renewed(&parsed, token),
        // A page in place of a response says nothing about the login.
        (200..=299, None) => Err(transient(TransportError::of_unreadable(&response).into())),
        (404 | 405, _) => Ok(RefreshOutcome::NoSuchEndpoint),
        (400 | 401, _) | (403, Some(_)) => {
            let reason = RemoteError::from_response(status, &response).text();
            Ok(RefreshOutcome::Rejected(reason))
        }
        (429 | 500.., _) | (403, None) => Err(transient(
            RemoteError::from_response(status, &response).into(),
        )),
        _ => Err(ExchangeError::Failed(
            RemoteError::from_response(status, &response).into(),
        )),
    }
}

fn transient(error: CallError) -> ExchangeError {
    ExchangeError::Transient(error)
}

fn renewed(response: &Json, used: &SecretString) -> Result<RefreshOutcome, ExchangeError> {
    let text = |name: &str| {
        let text = response.get(name).and_then(Json::as_str);
        text.filter(|text| !text.is_empty())
    };
    let Some(access) = text("accessToken") else {
        return Err(ExchangeError::NoToken);
    };
    let refresh = text("refreshToken").unwrap_or(used.expose_secret());
    let tokens = LoginTokens::parse(access, Some(refresh)).map_err(|_| ExchangeError::BadToken)?;
    tokens.learn();
    Ok(RefreshOutcome::Renewed(tokens))
}
