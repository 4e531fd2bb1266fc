//! Signing in with a browser: a page to open, a poll until the person is done, and an API key
//! made for this machine. The tokens of the login itself are not kept.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::dashboard::Dashboard;
use super::key::{ApiKey, KeyError};
use super::stored::StoredLogin;
use crate::wire::endpoint::Endpoints;
use crate::wire::headers::HttpVersion;
use crate::wire::unary::{Call, CallError};

const PAGE: &str = "/loginDeepControl";
const POLL: &str = "/auth/poll";
const POLL_DEADLINE: Duration = Duration::from_secs(30);
/// As the official client: ever more seldom, and not for ever.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const POLLS: u32 = 150;
/// Answers that are neither yes nor not yet, in a row.
const PATIENCE: u32 = 3;
/// How long the key is good that a login makes.
const KEY_LIFE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// A login that has begun.
#[derive(Debug)]
pub struct Login {
    uuid: Uuid,
    verifier: SecretString,
    page: String,
}

/// Why nobody is signed in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginError {
    /// Without randomness the login could be guessed.
    #[error("the system gives no random numbers; a login would not be safe")]
    NoRandomness,
    /// The person did not come back.
    #[error("nobody signed in within the time for it; start the login again")]
    TooLate,
    /// The server has no such service.
    #[error("{0} has no browser login; check CURSOR_BACKEND_URL, or use an API key")]
    NoSuchService(String),
    /// The server answers what cannot be understood.
    #[error("Cursor's answer to the login was not understood (HTTP {0}); try again later")]
    Unexpected(u16),
    /// The server cannot be reached.
    #[error("cannot sign in: {0}")]
    Call(#[from] CallError),
    /// The key that was made cannot be used.
    #[error("Cursor made a key that cannot be used: {0}")]
    Key(#[from] KeyError),
}

/// What the server says while the person is in the browser.
#[derive(Debug, Clone)]
enum Polled {
    NotYet,
    SignedIn(SecretString),
    /// There is no `POST` for this; the older `GET` is left.
    NoPost,
    Odd(u16),
}

/// How the server wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Post,
    Get,
}

impl Login {
    /// A new login, and the page to open for it.
    pub fn begin(endpoints: &Endpoints) -> Result<Self, LoginError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|_| LoginError::NoRandomness)?;
        let verifier = URL_SAFE_NO_PAD.encode(random);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let uuid = Uuid::new_v4();
        let query = format!("challenge={challenge}&uuid={uuid}&mode=login&redirectTarget=sdk");
        let verifier = SecretString::from(verifier);
        crate::diag::secrets().learn(&verifier);
        Ok(Self {
            uuid,
            verifier,
            page: format!("{}?{query}", endpoints.website.join(PAGE)),
        })
    }

    /// What names this login.
    pub fn id(&self) -> Uuid {
        self.uuid
    }

    /// The page where the person signs in. It holds no secret.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// Waits until the person has signed in, and makes a key for this machine.
    pub async fn wait(&self, dashboard: &Dashboard) -> Result<StoredLogin, LoginError> {
        let token = self.poll(dashboard).await?;
        crate::diag::secrets().learn(&token);
        let now = since_epoch();
        let expires = now + KEY_LIFE;
        let name = match hostname() {
            Some(host) => format!("cursor-sidecar ({host})"),
            None => "cursor-sidecar".into(),
        };
        let key = dashboard.create_key(&token, name, expires).await?;
        let key = ApiKey::parse(&key)?;
        crate::diag::secrets().learn(key.secret());
        // Whose it is, is good to know and no reason to fail.
        let email = dashboard.me_with(&token).await.ok().and_then(|me| me.email);
        Ok(StoredLogin {
            backend: dashboard.backend().to_string(),
            key,
            email,
            created_ms: now.as_millis() as u64,
            expires_ms: expires.as_millis() as u64,
        })
    }

    async fn poll(&self, dashboard: &Dashboard) -> Result<SecretString, LoginError> {
        let (mut pause, mut odd, mut ask) = (FIRST_PAUSE, 0, Ask::Post);
        for _ in 0..POLLS {
            let problem = match self.poll_once(dashboard, ask).await {
                Ok(Polled::SignedIn(token)) => return Ok(token),
                Ok(Polled::NoPost) if ask == Ask::Post => {
                    ask = Ask::Get;
                    continue;
                }
                Ok(Polled::NoPost) => {
                    return Err(LoginError::NoSuchService(dashboard.backend().to_string()));
                }
                Ok(Polled::NotYet) => None,
                Ok(Polled::Odd(status)) => Some(LoginError::Unexpected(status)),
                Err(error @ CallError::Setup(_)) => return Err(error.into()),
                Err(error) => Some(error.into()),
            };
            odd = match problem {
                Some(problem) if odd + 1 == PATIENCE => return Err(problem),
                Some(_) => odd + 1,
                None => 0,
            };
            tokio::time::sleep(pause).await;
            pause = (pause * 6 / 5).min(LONGEST_PAUSE);
        }
        Err(LoginError::TooLate)
    }

    async fn poll_once(&self, dashboard: &Dashboard, ask: Ask) -> Result<Polled, CallError> {
        let verifier = self.verifier.expose_secret();
        let in_url = format!("{POLL}?uuid={}&verifier={verifier}", self.uuid);
        let in_body = json!({ "uuid": self.uuid.to_string(), "verifier": verifier }).to_string();
        let (method, path, body) = match ask {
            Ask::Post => (Method::POST, POLL, Bytes::from(in_body)),
            Ask::Get => (Method::GET, in_url.as_str(), Bytes::new()),
        };
        let json = HeaderValue::from_static("application/json");
        let call = Call {
            base: dashboard.backend(),
            path,
            headers: HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]),
            version: HttpVersion::Http1,
            deadline: POLL_DEADLINE,
        };
        let (status, answer) = dashboard.http().fetch(method, call, body).await?;
        Ok(read(ask, status, &answer))
    }
}

/// What an answer to a poll means.
fn read(ask: Ask, status: u16, answer: &[u8]) -> Polled {
    let text = String::from_utf8_lossy(answer);
    match (status, ask) {
        (200, _) => {
            let answer: Option<Json> = serde_json::from_slice(answer).ok();
            let token = answer
                .as_ref()
                .and_then(|answer| answer["accessToken"].as_str());
            match token {
                Some(token) if !token.is_empty() => Polled::SignedIn(token.into()),
                _ => Polled::Odd(status),
            }
        }
        (404, Ask::Post) if text == "Not found" => Polled::NotYet,
        (404, Ask::Post) => Polled::NoPost,
        (404, Ask::Get) if text.contains("Route GET:") => Polled::NoPost,
        (404, Ask::Get) => Polled::NotYet,
        _ => Polled::Odd(status),
    }
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn hostname() -> Option<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_str().ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_challenge_and_not_the_secret() {
        let endpoints = Endpoints::resolve(|_| None, None).unwrap();
        let login = Login::begin(&endpoints).unwrap();
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
    fn answers_to_a_poll_are_told_apart() {
        let of = |ask, status, text: &str| match read(ask, status, text.as_bytes()) {
            Polled::NotYet => "not yet".to_owned(),
            Polled::SignedIn(token) => token.expose_secret().to_owned(),
            Polled::NoPost => "no such call".to_owned(),
            Polled::Odd(status) => status.to_string(),
        };
        assert_eq!(of(Ask::Post, 404, "Not found"), "not yet");
        assert_eq!(of(Ask::Post, 404, "{}"), "no such call");
        assert_eq!(of(Ask::Get, 404, "Not found"), "not yet");
        let missing = r#"{"message":"Route GET:/auth/poll not found"}"#;
        assert_eq!(of(Ask::Get, 404, missing), "no such call");
        assert_eq!(of(Ask::Get, 200, r#"{"accessToken":"t"}"#), "t");
        assert_eq!(of(Ask::Post, 200, "{}"), "200");
        assert_eq!(of(Ask::Post, 502, ""), "502");
    }
}
