//! Authentication: API keys, the access tokens issued for them, browser logins.
//!
//! Tokens look like JWTs but are not signed. The simulator keeps the tokens it issued and
//! rejects all others, and those that have expired.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::redact::BearerKind;
use super::schema::hex;

/// Default lifetime of a token.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// The API key that is rejected by default.
const INVALID_KEY: &str = "crsr_invalid";

/// The credential in a request's authorization header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestCredential {
    /// No header, or no bearer value in it.
    None,
    /// A bearer value that was not issued here: an API key, valid or not.
    ApiKey(String),
    /// A token issued here.
    AccessToken {
        /// Whether its lifetime has ended.
        expired: bool,
    },
}

impl RequestCredential {
    /// Returns how a recording names the bearer value.
    pub(super) fn bearer(&self) -> Option<BearerKind> {
        match self {
            Self::None => None,
            Self::ApiKey(token) if Accounts::is_refresh_token(token) => {
                Some(BearerKind::RefreshToken)
            }
            Self::ApiKey(_) => Some(BearerKind::ApiKey),
            Self::AccessToken { .. } => Some(BearerKind::AccessToken),
        }
    }
}

/// An access token and its refresh token.
#[derive(Debug, Clone)]
pub(super) struct TokenPair {
    pub(super) access: String,
    pub(super) refresh: String,
}

/// Issued tokens and pending logins.
#[derive(Debug)]
pub(super) struct Accounts {
    ttl: Duration,
    invalid_keys: Vec<String>,
    login_pending: u64,
    issued: Mutex<HashMap<String, SystemTime>>,
    /// The accounts of refresh tokens that were not used yet.
    refresh_tokens: Mutex<HashMap<String, String>>,
    polls: Mutex<HashMap<String, u64>>,
}

impl Accounts {
    /// Creates an instance without tokens; `None` means the default.
    pub(super) fn new(
        ttl: Option<Duration>,
        invalid_keys: Option<Vec<String>>,
        login_pending: Option<u64>,
    ) -> Self {
        Self {
            ttl: ttl.unwrap_or(TOKEN_TTL),
            invalid_keys: invalid_keys.unwrap_or_else(|| vec![INVALID_KEY.to_owned()]),
            login_pending: login_pending.unwrap_or(1),
            issued: Mutex::default(),
            refresh_tokens: Mutex::default(),
            polls: Mutex::default(),
        }
    }

    /// Returns the credential of a request.
    pub(super) fn identify(&self, headers: &HeaderMap) -> RequestCredential {
        let bearer = headers
            .get(http::header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(str::trim)
            .filter(|value| !value.is_empty());
        let Some(bearer) = bearer else {
            return RequestCredential::None;
        };
        match lock(&self.issued).get(bearer) {
            Some(expiry) => RequestCredential::AccessToken {
                expired: *expiry <= SystemTime::now(),
            },
            None => RequestCredential::ApiKey(bearer.to_owned()),
        }
    }

    /// Returns whether an API key is valid.
    pub(super) fn accepts(&self, api_key: &str) -> bool {
        !self.invalid_keys.iter().any(|invalid| invalid == api_key)
    }

    /// Issues a token for an account.
    pub(super) fn issue(&self, account: &str) -> TokenPair {
        let expiry = SystemTime::now() + self.ttl;
        let seconds = expiry
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let owner = &hex(&Sha256::digest(account.as_bytes()))[..12];
        let claims = json!({
            "exp": seconds,
            "sub": format!("simulated|user_{owner}"),
            "jti": uuid::Uuid::new_v4().to_string(),
        });
        let access = format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()));
        lock(&self.issued).insert(access.clone(), expiry);
        let refresh = format!("refresh-{}", uuid::Uuid::new_v4());
        lock(&self.refresh_tokens).insert(refresh.clone(), account.to_owned());
        TokenPair { access, refresh }
    }

    /// Issues tokens for a refresh token, which is valid once. Returns `None` if it is not one.
    pub(super) fn renew(&self, refresh: &str) -> Option<TokenPair> {
        let account = lock(&self.refresh_tokens).remove(refresh)?;
        Some(self.issue(&account))
    }

    /// Whether a bearer value has the form of a refresh token, used or not.
    pub(super) fn is_refresh_token(bearer: &str) -> bool {
        bearer.starts_with("refresh-")
    }

    /// Counts one poll of a browser login; returns whether the user has signed in.
    pub(super) fn poll_login(&self, uuid: &str) -> bool {
        let mut polls = lock(&self.polls);
        let count = polls.entry(uuid.to_owned()).or_default();
        *count += 1;
        *count > self.login_pending
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
