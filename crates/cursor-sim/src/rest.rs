//! The plain HTTP calls: key exchange, browser login, `/v1`.

use http::Method;
use serde_json::{Value, json};

use super::accounts::{Accounts, RequestCredential, TokenPair};
use super::backend::SimBackend;
use super::connect::Code;
use super::exchange::{FullResponse, RequestHead};

/// Returns the response to a plain HTTP call, or `None` if the path is not one.
pub(super) fn respond(
    backend: &SimBackend,
    head: &RequestHead,
    credential: &RequestCredential,
    body: &[u8],
) -> Option<FullResponse> {
    match (&head.method, head.path.as_str()) {
        (&Method::POST, "/auth/exchange_user_api_key") => Some(exchange_key(backend, credential)),
        (&Method::POST, "/auth/refresh") => Some(match credential {
            RequestCredential::ApiKey(token) => renew(backend, token),
            _ => error(Code::Unauthenticated, "Invalid refresh token"),
        }),
        (&Method::POST, "/auth/token") => {
            let request: Value = serde_json::from_slice(body).unwrap_or_default();
            let token = request["refreshToken"].as_str();
            Some(renew(backend, token.unwrap_or_default()))
        }
        (&Method::GET | &Method::POST, "/auth/poll") => Some(poll_login(backend, head, body)),
        (&Method::GET, "/v1/models") => Some(with_api_key(backend, credential, || {
            backend.models().rest()
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

/// Returns an error response with the message in both places where clients read it.
fn error(code: Code, message: &str) -> FullResponse {
    let body = json!({
        "code": code.name(),
        "message": message,
        "error": { "message": message },
    });
    FullResponse::json(code.http_status(), &body)
}

fn exchange_key(backend: &SimBackend, credential: &RequestCredential) -> FullResponse {
    match credential {
        RequestCredential::ApiKey(token) if Accounts::is_refresh_token(token) => {
            renew(backend, token)
        }
        RequestCredential::ApiKey(key) if backend.accounts().accepts(key) => {
            FullResponse::json(200, &tokens_json(&backend.accounts().issue(key)))
        }
        // Some clients exchange a token they still have for a new one.
        RequestCredential::AccessToken { .. } => {
            FullResponse::json(200, &tokens_json(&backend.accounts().issue("refreshed")))
        }
        RequestCredential::ApiKey(_) | RequestCredential::None => {
            error(Code::Unauthenticated, "Invalid User API key")
        }
    }
}

/// Responds to a request to renew a login.
fn renew(backend: &SimBackend, token: &str) -> FullResponse {
    match backend.accounts().renew(token) {
        Some(tokens) => FullResponse::json(200, &tokens_json(&tokens)),
        None => error(Code::Unauthenticated, "Invalid refresh token"),
    }
}

fn tokens_json(tokens: &TokenPair) -> Value {
    json!({
        "accessToken": tokens.access,
        "refreshToken": tokens.refresh,
        "authId": "simulated|user_1",
    })
}

/// Returns the request of a login poll as JSON, from the body or the query.
pub(super) fn poll_request(head: &RequestHead, body: &[u8]) -> Value {
    if head.method == Method::POST {
        return serde_json::from_slice(body).unwrap_or(Value::Null);
    }
    let find = |key: &str| {
        url::form_urlencoded::parse(head.query.as_bytes())
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.into_owned())
    };
    json!({ "uuid": find("uuid"), "verifier": find("verifier") })
}

fn poll_login(backend: &SimBackend, head: &RequestHead, body: &[u8]) -> FullResponse {
    let request = poll_request(head, body);
    let uuid = request["uuid"].as_str().unwrap_or_default();
    let verifier = request["verifier"].as_str().unwrap_or_default();
    if uuid.is_empty() || verifier.is_empty() {
        return error(Code::InvalidArgument, "uuid and verifier are required");
    }
    if backend.accounts().poll_login(uuid) {
        FullResponse::json(200, &tokens_json(&backend.accounts().issue(uuid)))
    } else {
        FullResponse::new(404, "text/plain", "Not found")
    }
}

fn with_api_key(
    backend: &SimBackend,
    credential: &RequestCredential,
    reply: impl FnOnce() -> Value,
) -> FullResponse {
    match credential {
        RequestCredential::ApiKey(key) if backend.accounts().accepts(key) => {
            FullResponse::json(200, &reply())
        }
        _ => error(Code::Unauthenticated, "Invalid API key"),
    }
}
