//! Signing in with a browser: we show a page to open and poll until the user has signed in. The
//! browser may run on another machine.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::credential::LoginTokens;
use super::credential_store::StoredLogin;
use super::dashboard::Dashboard;
use super::key::KeyError;
use super::refresh::MAX_RESPONSE;
use crate::endpoint::Endpoints;
use crate::headers::HttpVersion;
use crate::unary::{Call, CallError};

const LOGIN_PATH: &str = "/loginDeepControl";
const POLL_PATH: &str = "/auth/poll";
const POLL_DEADLINE: Duration = Duration::from_secs(30);
/// Polling intervals and count are those of the official client.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(10);
const MAX_POLLS: u32 = 150;
/// Consecutive errors after which polling stops.
const MAX_ERRORS: u32 = 3;

/// A browser login in progress.
#[derive(Debug)]
pub struct BrowserLogin {
    uuid: Uuid,
    verifier: SecretString,
    page: String,
}

/// Why a login failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginError {
    /// There is no secure randomness for the verifier.
    #[error("the system provides no secure random numbers, which a login needs")]
    NoRandomness,
    /// The user did not sign in within the time limit.
    #[error("the login timed out; start it again")]
    TimedOut,
    /// The server has no browser login.
    #[error("{0} has no browser login; check CURSOR_BACKEND_URL, or use an API key")]
    NoSuchService(String),
    /// The server sent an unexpected response.
    #[error("unexpected response to the login (HTTP {0}); try again later")]
    Unexpected(u16),
    /// A web page was sent in place of a response: by a proxy, a portal, or a check for robots.
    #[error(
        "a web page was sent in place of Cursor's response (HTTP {0}); check the network and its proxy, then try again"
    )]
    WebPage(u16),
    /// A request failed.
    #[error("cannot sign in: {0}")]
    Call(#[from] CallError),
    /// Cursor returned an invalid token.
    #[error("Cursor returned an invalid token: {0}")]
    Key(#[from] KeyError),
}

/// The result of one poll.
#[derive(Debug, Clone)]
enum PollOutcome {
    NotYet,
    SignedIn(LoginTokens),
    /// The server does not support this HTTP method for polling.
    NotSupported,
    Unexpected(u16),
    WebPage(u16),
}

/// How to poll: newer servers expect `POST`, older ones `GET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PollMethod {
    Post,
    Get,
}

impl BrowserLogin {
    /// Starts a new login.
    pub fn begin(endpoints: &Endpoints) -> Result<Self, LoginError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|_| LoginError::NoRandomness)?;
        let verifier = URL_SAFE_NO_PAD.encode(random);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let uuid = Uuid::new_v4();
        let query = format!("challenge={challenge}&uuid={uuid}&mode=login&redirectTarget=sdk");
        let verifier = SecretString::from(verifier);
        foundation::secrets().learn(&verifier);
        Ok(Self {
            uuid,
            verifier,
            page: format!("{}?{query}", endpoints.website.join(LOGIN_PATH)),
        })
    }

    /// Returns the id of this login.
    pub fn id(&self) -> Uuid {
        self.uuid
    }

    /// Returns the URL of the page where the user signs in. It contains no secret.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// Waits until the user has signed in.
    pub async fn wait(&self, dashboard: &Dashboard) -> Result<StoredLogin, LoginError> {
        let tokens = self.poll(dashboard).await?;
        tokens.learn();
        // The email is informational, so a failure to fetch it does not fail the login.
        let email = dashboard
            .user_with(&tokens.access)
            .await
            .ok()
            .and_then(|user| user.email);
        let backend = dashboard.backend().to_string();
        Ok(StoredLogin::new(backend, tokens, email))
    }

    async fn poll(&self, dashboard: &Dashboard) -> Result<LoginTokens, LoginError> {
        let (mut delay, mut errors, mut method) = (FIRST_DELAY, 0, PollMethod::Post);
        for _ in 0..MAX_POLLS {
            let problem = match self.poll_once(dashboard, method).await {
                Ok(PollOutcome::SignedIn(tokens)) => return Ok(tokens),
                Ok(PollOutcome::NotSupported) if method == PollMethod::Post => {
                    method = PollMethod::Get;
                    continue;
                }
                Ok(PollOutcome::NotSupported) => {
                    return Err(LoginError::NoSuchService(dashboard.backend().to_string()));
                }
                Ok(PollOutcome::NotYet) => None,
                Ok(PollOutcome::Unexpected(status)) => Some(LoginError::Unexpected(status)),
                Ok(PollOutcome::WebPage(status)) => Some(LoginError::WebPage(status)),
                Err(error @ CallError::Setup(_)) => return Err(error.into()),
                Err(error) => Some(error.into()),
            };
            errors = match problem {
                Some(problem) if errors + 1 == MAX_ERRORS => return Err(problem),
                Some(_) => errors + 1,
                None => 0,
            };
            tokio::time::sleep(delay).await;
            delay = (delay * 6 / 5).min(MAX_DELAY);
        }
        Err(LoginError::TimedOut)
    }

    async fn poll_once(
        &self,
        dashboard: &Dashboard,
        method: PollMethod,
    ) -> Result<PollOutcome, CallError> {
        let verifier = self.verifier.expose_secret();
        let query_path = format!("{POLL_PATH}?uuid={}&verifier={verifier}", self.uuid);
        let in_body = json!({ "uuid": self.uuid.to_string(), "verifier": verifier }).to_string();
        let (http_method, path, body) = match method {
            PollMethod::Post => (Method::POST, POLL_PATH, Bytes::from(in_body)),
            PollMethod::Get => (Method::GET, query_path.as_str(), Bytes::new()),
        };
        let json = HeaderValue::from_static("application/json");
        let call = Call {
            base: dashboard.backend(),
            path,
            headers: HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]),
            version: HttpVersion::Http1,
            deadline: POLL_DEADLINE,
        };
        let (status, response) = dashboard
            .http()
            .fetch_at_most(http_method, call, body, MAX_RESPONSE)
            .await?;
        Ok(parse_poll(method, status, &response))
    }
}

/// Interprets the response to a poll.
fn parse_poll(method: PollMethod, status: u16, response: &[u8]) -> PollOutcome {
    let text = String::from_utf8_lossy(response);
    let is_page = text.trim_start().starts_with('<');
    match (status, method) {
        (200, _) => {
            let response: Option<Json> = serde_json::from_slice(response).ok();
            let text = |name: &str| response.as_ref().and_then(|json| json[name].as_str());
            let tokens =
                text("accessToken").map(|access| LoginTokens::parse(access, text("refreshToken")));
            match tokens {
                Some(Ok(tokens)) => PollOutcome::SignedIn(tokens),
                _ if is_page => PollOutcome::WebPage(status),
                _ => PollOutcome::Unexpected(status),
            }
        }
        (404, PollMethod::Post) if text == "Not found" => PollOutcome::NotYet,
        (404, PollMethod::Post) => PollOutcome::NotSupported,
        (404, PollMethod::Get) if text.contains("Route GET:") => PollOutcome::NotSupported,
        (404, PollMethod::Get) => PollOutcome::NotYet,
        _ if is_page => PollOutcome::WebPage(status),
        _ => PollOutcome::Unexpected(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointOptions;

    #[test]
    fn the_page_url_has_the_challenge_but_not_the_verifier() {
        let endpoints = Endpoints::resolve(&EndpointOptions::default()).unwrap();
        let login = BrowserLogin::begin(&endpoints).unwrap();
        let secret = login.verifier.expose_secret();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(secret));
        let expected = format!(
            "https://cursor.com/loginDeepControl?challenge={challenge}&uuid={}&mode=login&redirectTarget=sdk",
            login.id()
        );
        assert_eq!(login.page(), expected);
        assert!(!login.page().contains(secret));
        assert!(!format!("{login:?}").contains(secret));
    }

    #[test]
    fn poll_responses_are_distinguished() {
        let of = |method, status, text: &str| match parse_poll(method, status, text.as_bytes()) {
            PollOutcome::NotYet => "not yet".to_owned(),
            PollOutcome::SignedIn(tokens) => tokens.access.expose_secret().to_owned(),
            PollOutcome::NotSupported => "not supported".to_owned(),
            PollOutcome::Unexpected(status) => status.to_string(),
            PollOutcome::WebPage(status) => format!("page {status}"),
        };
        assert_eq!(of(PollMethod::Post, 404, "Not found"), "not yet");
        assert_eq!(of(PollMethod::Post, 404, "{}"), "not supported");
        assert_eq!(of(PollMethod::Get, 404, "Not found"), "not yet");
        let missing = r#"{"message":"Route GET:/auth/poll not found"}"#;
        assert_eq!(of(PollMethod::Get, 404, missing), "not supported");
        assert_eq!(of(PollMethod::Get, 200, r#"{"accessToken":"t"}"#), "t");
        assert_eq!(of(PollMethod::Post, 200, "{}"), "200");
        assert_eq!(of(PollMethod::Post, 502, ""), "502");
        assert_eq!(of(PollMethod::Post, 403, " <html>"), "page 403");
        assert_eq!(of(PollMethod::Get, 200, "<!doctype html>"), "page 200");
    }
}
