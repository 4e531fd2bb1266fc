//! Removes secrets from recordings; keeps their kind, length and fingerprint.

use http::HeaderMap;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::schema::hex;

/// Headers that are recorded as length and fingerprint only.
const SECRET_HEADERS: [&str; 4] = [
    "x-blob-encryption-key",
    "x-inference-authentication-jwt",
    "cookie",
    "proxy-authorization",
];

/// JSON members of unary calls that contain secrets.
const SECRET_MEMBERS: [&str; 6] = [
    "accessToken",
    "refreshToken",
    "apiKey",
    "verifier",
    "secretKey",
    "accessKey",
];

/// The kind of a bearer value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BearerKind {
    /// A token this simulator issued.
    AccessToken,
    /// A refresh token, used or not.
    RefreshToken,
    /// Any other value, taken for an API key.
    ApiKey,
}

/// Returns the headers without their secrets; repeated headers are joined by a comma.
pub(super) fn headers(headers: &HeaderMap, bearer: Option<BearerKind>) -> Map<String, Value> {
    let mut redacted = Map::new();
    for name in headers.keys() {
        let text = if name == http::header::AUTHORIZATION {
            match bearer {
                Some(BearerKind::AccessToken) => "Bearer <access token>".to_owned(),
                Some(BearerKind::ApiKey) => "Bearer <api key>".to_owned(),
                Some(BearerKind::RefreshToken) => "Bearer <refresh token>".to_owned(),
                None => "<other>".to_owned(),
            }
        } else {
            let values: Vec<_> = headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            let text = values.join(", ");
            if SECRET_HEADERS.contains(&name.as_str()) {
                fingerprint(&text)
            } else {
                text
            }
        };
        redacted.insert(name.as_str().to_owned(), Value::String(text));
    }
    redacted
}

/// Returns the length and fingerprint of the bearer value.
pub(super) fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    Some(fingerprint(value.strip_prefix("Bearer ")?))
}

/// Returns the length and a few digits of a hash, enough to see whether two secrets are equal.
fn fingerprint(secret: &str) -> String {
    let digest = hex(&Sha256::digest(secret.as_bytes()));
    format!("<{} characters, sha256 {}>", secret.len(), &digest[..8])
}

/// Returns a JSON body without its secrets.
pub(super) fn body(mut json: Value) -> Value {
    redact(&mut json);
    json
}

fn redact(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(secret) if SECRET_MEMBERS.contains(&name.as_str()) => {
                        *value = Value::String(fingerprint(secret));
                    }
                    other => redact(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_by_their_kind_or_fingerprint() {
        let mut map = HeaderMap::new();
        map.insert("authorization", "Bearer crsr_secret".parse().unwrap());
        map.insert("x-blob-encryption-key", "00ff".parse().unwrap());
        map.insert("x-request-id", "r1".parse().unwrap());
        let redacted = headers(&map, Some(BearerKind::ApiKey));
        assert_eq!(redacted["authorization"], "Bearer <api key>");
        assert_eq!(
            redacted["x-blob-encryption-key"],
            "<4 characters, sha256 8909cde2>"
        );
        assert_eq!(redacted["x-request-id"], "r1");
        let redacted = body(serde_json::json!({"uuid": "u", "nested": [{"verifier": "v"}]}));
        assert_eq!(
            redacted["nested"][0]["verifier"],
            "<1 characters, sha256 4c94485e>"
        );
    }
}
