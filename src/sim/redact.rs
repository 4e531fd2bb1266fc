//! What a recording may show: facts about secrets, never the secrets.

use http::HeaderMap;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::schema::hex;

/// Headers whose value is shown as length and fingerprint only.
const SECRET_HEADERS: [&str; 4] = [
    "x-blob-encryption-key",
    "x-inference-authentication-jwt",
    "cookie",
    "proxy-authorization",
];

/// JSON members that carry secrets in the small unary calls.
const SECRET_MEMBERS: [&str; 6] = [
    "accessToken",
    "refreshToken",
    "apiKey",
    "verifier",
    "secretKey",
    "accessKey",
];

/// Who a bearer token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bearer {
    /// A token this simulator issued.
    AccessToken,
    /// Anything else that looks like an API key.
    ApiKey,
}

/// The headers as a recording shows them; repeated ones joined by a comma.
pub(super) fn headers(headers: &HeaderMap, bearer: Option<Bearer>) -> Map<String, Value> {
    let mut shown = Map::new();
    for name in headers.keys() {
        let text = if name == http::header::AUTHORIZATION {
            match bearer {
                Some(Bearer::AccessToken) => "Bearer <access token>".to_owned(),
                Some(Bearer::ApiKey) => "Bearer <api key>".to_owned(),
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
        shown.insert(name.as_str().to_owned(), Value::String(text));
    }
    shown
}

/// Length and a few digits of a hash: enough to see whether two secrets are the same one.
fn fingerprint(secret: &str) -> String {
    let digest = hex(&Sha256::digest(secret.as_bytes()));
    format!("<{} characters, sha256 {}>", secret.len(), &digest[..8])
}

/// A JSON body without its secrets.
pub(super) fn body(mut json: Value) -> Value {
    hide(&mut json);
    json
}

fn hide(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(secret) if SECRET_MEMBERS.contains(&name.as_str()) => {
                        *value = Value::String(fingerprint(secret));
                    }
                    other => hide(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_named_and_not_shown() {
        let mut map = HeaderMap::new();
        map.insert("authorization", "Bearer crsr_secret".parse().unwrap());
        map.insert("x-blob-encryption-key", "00ff".parse().unwrap());
        map.insert("x-request-id", "r1".parse().unwrap());
        let shown = headers(&map, Some(Bearer::ApiKey));
        assert_eq!(shown["authorization"], "Bearer <api key>");
        assert_eq!(
            shown["x-blob-encryption-key"],
            "<4 characters, sha256 8909cde2>"
        );
        assert_eq!(shown["x-request-id"], "r1");
        let shown = body(serde_json::json!({"uuid": "u", "nested": [{"verifier": "v"}]}));
        assert_eq!(
            shown["nested"][0]["verifier"],
            "<1 characters, sha256 4c94485e>"
        );
    }
}
