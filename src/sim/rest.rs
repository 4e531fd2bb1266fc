//! The plain HTTP calls: key exchange, browser login, `/v1`.

use http::Method;
use serde_json::{Value, json};

use super::accounts::{Credential, Poll, Tokens};
use super::backend::Backend;
use super::connect::Code;
use super::exchange::{Answer, RequestHead};

/// Answers a plain HTTP call, if the path is one.
pub(super) fn answer(
    backend: &Backend,
    head: &RequestHead,
    credential: &Credential,
    body: &[u8],
) -> Option<Answer> {
    match (&head.method, head.path.as_str()) {
        (&Method::POST, "/auth/exchange_user_api_key") => Some(exchange(backend, credential)),
        (&Method::GET | &Method::POST, "/auth/poll") => Some(poll(backend, head, body)),
        (&Method::GET, "/v1/models") => Some(with_api_key(backend, credential, || {
            backend.catalogue().rest()
        })),
        (&Method::GET, "/v1/me") => Some(with_api_key(backend, credential, || {
            json!({
                "apiKeyName": "simulated",
                "userEmail": "person@example.invalid",
                "createdAt": "2026-01-01T00:00:00.000Z",
            })
        })),
        _ => None,
    }
}

/// An error the way these calls spell it, so that both readers of it find the message.
fn refuse(code: Code, message: &str) -> Answer {
    let body = json!({
        "code": code.name(),
        "message": message,
        "error": { "message": message },
    });
    Answer::json(code.http_status(), &body)
}

fn exchange(backend: &Backend, credential: &Credential) -> Answer {
    match credential {
        Credential::ApiKey(key) if backend.accounts().accepts(key) => {
            Answer::json(200, &tokens(&backend.accounts().issue(key)))
        }
        // Some clients trade a token they still hold for a fresh one.
        Credential::AccessToken(_) => {
            Answer::json(200, &tokens(&backend.accounts().issue("refreshed")))
        }
        Credential::ApiKey(_) | Credential::None => {
            refuse(Code::Unauthenticated, "Invalid User API key")
        }
    }
}

fn tokens(tokens: &Tokens) -> Value {
    json!({
        "accessToken": tokens.access,
        "refreshToken": tokens.refresh,
        "authId": "simulated|user_1",
    })
}

/// The JSON of a poll, for the recording.
pub(super) fn poll_request(head: &RequestHead, body: &[u8]) -> Value {
    if head.method == Method::POST {
        return serde_json::from_slice(body).unwrap_or(Value::Null);
    }
    let find = |wanted: &str| {
        url::form_urlencoded::parse(head.query.as_bytes())
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.into_owned())
    };
    json!({ "uuid": find("uuid"), "verifier": find("verifier") })
}

fn poll(backend: &Backend, head: &RequestHead, body: &[u8]) -> Answer {
    let request = poll_request(head, body);
    let uuid = request["uuid"].as_str().unwrap_or_default();
    let verifier = request["verifier"].as_str().unwrap_or_default();
    if uuid.is_empty() || verifier.is_empty() {
        return refuse(Code::InvalidArgument, "uuid and verifier are needed");
    }
    match backend.accounts().poll(uuid) {
        Poll::Pending => Answer::new(404, "text/plain", "Not found"),
        Poll::SignedIn => Answer::json(200, &tokens(&backend.accounts().issue(uuid))),
    }
}

fn with_api_key(
    backend: &Backend,
    credential: &Credential,
    reply: impl FnOnce() -> Value,
) -> Answer {
    match credential {
        Credential::ApiKey(key) if backend.accounts().accepts(key) => Answer::json(200, &reply()),
        _ => refuse(Code::Unauthenticated, "Invalid API key"),
    }
}
