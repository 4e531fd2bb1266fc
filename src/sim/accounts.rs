//! Who may do what: API keys, the access tokens issued for them, browser logins.
//!
//! Tokens are shaped like JWTs, signed by nobody and remembered: one that was not issued
//! here, or is past its time, is refused.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::redact::Bearer;
use super::schema::hex;

/// How long a token is good unless a scenario says otherwise.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// The API key that is refused unless a scenario says otherwise.
const INVALID_KEY: &str = "crsr_invalid";

/// What a request's authorization header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// Nothing, or nothing we understand.
    None,
    /// A bearer value that was not issued here: an API key, good or bad.
    ApiKey(String),
    /// A token issued here.
    AccessToken(Freshness),
}

/// Whether a token is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// It is.
    Valid,
    /// It is past its time.
    Expired,
}

impl Credential {
    /// How a recording names it.
    pub(super) fn bearer(&self) -> Option<Bearer> {
        match self {
            Self::None => None,
            Self::ApiKey(_) => Some(Bearer::ApiKey),
            Self::AccessToken(_) => Some(Bearer::AccessToken),
        }
    }
}

/// What a login poll finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Poll {
    /// The person has not signed in yet.
    Pending,
    /// The person has.
    SignedIn,
}

/// An access token and the refresh token that goes with it.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    /// The access token.
    pub(super) access: String,
    /// The refresh token.
    pub(super) refresh: String,
}

/// All accounts.
#[derive(Debug)]
pub(super) struct Accounts {
    ttl: Duration,
    invalid_keys: Vec<String>,
    login_pending: u64,
    issued: Mutex<HashMap<String, SystemTime>>,
    polls: Mutex<HashMap<String, u64>>,
}

impl Accounts {
    /// Starts with nobody signed in.
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
            polls: Mutex::default(),
        }
    }

    /// Reads a request's authorization header.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Credential {
        let bearer = headers
            .get(http::header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(str::trim)
            .filter(|value| !value.is_empty());
        let Some(bearer) = bearer else {
            return Credential::None;
        };
        match lock(&self.issued).get(bearer) {
            Some(expiry) if *expiry > SystemTime::now() => {
                Credential::AccessToken(Freshness::Valid)
            }
            Some(_) => Credential::AccessToken(Freshness::Expired),
            None => Credential::ApiKey(bearer.to_owned()),
        }
    }

    /// Whether an API key is good.
    pub(super) fn accepts(&self, api_key: &str) -> bool {
        !self.invalid_keys.iter().any(|invalid| invalid == api_key)
    }

    /// Issues a token for an account.
    pub(super) fn issue(&self, account: &str) -> Tokens {
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
        Tokens {
            access,
            refresh: format!("refresh-{}", uuid::Uuid::new_v4()),
        }
    }

    /// One poll of a browser login.
    pub(super) fn poll(&self, uuid: &str) -> Poll {
        let mut polls = lock(&self.polls);
        let count = polls.entry(uuid.to_owned()).or_default();
        *count += 1;
        if *count <= self.login_pending {
            Poll::Pending
        } else {
            Poll::SignedIn
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
