//! The headers of each call, as Cursor's clients send them.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::checksum::checksum;
use cursor_proto::tool_gates::ToolGates;

/// The official client's default `x-cursor-client-type`.
pub const CLIENT_TYPE: &str = "sdk";
/// The version of the official client whose messages we send.
pub const CLIENT_VERSION: &str = "sdk-1.0.32";
/// The Connect library the official client uses.
const LIBRARY: &str = "connect-es/1.6.1";
/// The trace id the official client sends when OpenTelemetry is not in use.
const NO_TRACE: &str = "00-00000000000000000000000000000000-0000000000000000-00";

/// How the client identifies itself. Configurable, because the account is the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `x-cursor-client-type`.
    pub client_type: HeaderValue,
    /// `x-cursor-client-version`.
    pub client_version: HeaderValue,
    /// `x-ghost-mode`: whether Cursor must not keep what it is sent. The official client sends
    /// `true` unless the account allows more.
    pub is_ghost: bool,
    /// Whether `x-cursor-checksum` is sent, derived from the access token and the current half
    /// hour. The official SDK does not send it.
    pub sends_checksum: bool,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            client_type: HeaderValue::from_static(CLIENT_TYPE),
            client_version: HeaderValue::from_static(CLIENT_VERSION),
            is_ghost: true,
            sends_checksum: false,
        }
    }
}

/// The ids of one attempt at a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestIds {
    /// The id of this attempt.
    pub request: Uuid,
    /// The id of the run's first attempt; also its `run_id`.
    pub original: Uuid,
}

impl RequestIds {
    /// Returns ids for the first attempt of a run.
    pub fn first() -> Self {
        let id = Uuid::new_v4();
        Self {
            request: id,
            original: id,
        }
    }

    /// Returns ids for the next attempt of the same run.
    pub fn again(self) -> Self {
        Self {
            request: Uuid::new_v4(),
            original: self.original,
        }
    }
}

/// A key with which the server may encrypt a conversation's blobs; stored with the conversation.
#[derive(Debug, Clone)]
pub struct BlobKey(SecretString);

impl BlobKey {
    /// Returns a new random key.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes)?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(hex.into()))
    }

    /// Parses a stored key: 64 lowercase hex digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let valid = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(hex.into()))
    }

    /// Returns the key as hex digits, for storing it.
    pub fn expose_hex(&self) -> &str {
        self.0.expose_secret()
    }
}

/// HTTP/1.1 or HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum HttpVersion {
    Http1,
    Http2,
}

impl Identity {
    /// Returns the headers of a run's stream.
    pub fn run(
        &self,
        token: &SecretString,
        ids: &RequestIds,
        blob_key: &BlobKey,
        gates: &ToolGates,
        version: HttpVersion,
    ) -> HeaderMap {
        let mut headers = self.attempt(token, ids, blob_key, version);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/connect+proto"),
        );
        // Unlike the official client, we do not offer Brotli.
        put(
            &mut headers,
            "connect-accept-encoding",
            HeaderValue::from_static("gzip"),
        );
        if let Some(allowed) = &gates.allowed {
            put_text(
                &mut headers,
                "x-cursor-agent-allowed-tools",
                &allowed.join(","),
            );
        }
        if !gates.excluded.is_empty() {
            put_text(
                &mut headers,
                "x-cursor-agent-exclude-tools",
                &gates.excluded.join(","),
            );
        }
        headers
    }

    /// Returns the headers of one appended message in HTTP/1.1 mode.
    pub fn append(
        &self,
        token: &SecretString,
        ids: &RequestIds,
        blob_key: &BlobKey,
        deadline_ms: u64,
    ) -> HeaderMap {
        let mut headers = self.attempt(token, ids, blob_key, HttpVersion::Http1);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/proto"));
        put(
            &mut headers,
            "connect-timeout-ms",
            HeaderValue::from(deadline_ms),
        );
        headers
    }

    fn attempt(
        &self,
        token: &SecretString,
        ids: &RequestIds,
        blob_key: &BlobKey,
        version: HttpVersion,
    ) -> HeaderMap {
        let mut headers = self.identified(token);
        for name in ["traceparent", "backend-traceparent"] {
            put(&mut headers, name, HeaderValue::from_static(NO_TRACE));
        }
        put_text(&mut headers, "x-request-id", &ids.request.to_string());
        put_text(
            &mut headers,
            "x-original-request-id",
            &ids.original.to_string(),
        );
        put_secret(&mut headers, "x-blob-encryption-key", blob_key.expose_hex());
        if version == HttpVersion::Http1 {
            put(
                &mut headers,
                "x-cursor-streaming",
                HeaderValue::from_static("true"),
            );
        }
        headers
    }

    /// Returns the headers of a unary call that identifies its client.
    pub fn unary(&self, token: &SecretString) -> HeaderMap {
        let mut headers = self.identified(token);
        put_text(&mut headers, "x-request-id", &Uuid::new_v4().to_string());
        headers
    }

    fn identified(&self, token: &SecretString) -> HeaderMap {
        let mut headers = anonymous(token);
        self.name(&mut headers);
        if self.sends_checksum {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64);
            put_secret(
                &mut headers,
                "x-cursor-checksum",
                &checksum(token.expose_secret(), now),
            );
        }
        headers
    }

    /// Returns the headers of a REST call, which is authorized with the raw API key.
    pub fn rest(&self, api_key: &SecretString) -> HeaderMap {
        let mut headers = fetched();
        put_bearer(&mut headers, api_key);
        self.name(&mut headers);
        headers
    }

    fn name(&self, headers: &mut HeaderMap) {
        put(headers, "x-cursor-client-type", self.client_type.clone());
        put(
            headers,
            "x-cursor-client-version",
            self.client_version.clone(),
        );
        let ghost = if self.is_ghost { "true" } else { "false" };
        put(headers, "x-ghost-mode", HeaderValue::from_static(ghost));
    }
}

/// Returns what the official client's `fetch` adds to a REST call, as far as it says something
/// about the call. Some firewalls refuse a request without these.
pub(crate) fn fetched() -> HeaderMap {
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("*/*")),
        (USER_AGENT, HeaderValue::from_static("node")),
    ])
}

/// Returns the headers of calls that send authorization but no client identity.
pub fn anonymous(token: &SecretString) -> HeaderMap {
    let mut headers = HeaderMap::new();
    put_bearer(&mut headers, token);
    put(
        &mut headers,
        "connect-protocol-version",
        HeaderValue::from_static("1"),
    );
    headers.insert(USER_AGENT, HeaderValue::from_static(LIBRARY));
    headers
}

fn put_bearer(headers: &mut HeaderMap, secret: &SecretString) {
    put_secret(
        headers,
        AUTHORIZATION.as_str(),
        &format!("Bearer {}", secret.expose_secret()),
    );
}

fn put(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    headers.insert(HeaderName::from_static(name), value);
}

/// Inserts an external value; a value that is not valid in a header is omitted.
fn put_text(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        put(headers, name, value);
    }
}

/// Inserts a secret, marked as sensitive so that `Debug` does not print it.
fn put_secret(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(mut value) = HeaderValue::from_str(value) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_run_sends_what_the_official_client_sends() {
        let token = SecretString::from("secret-token");
        let key = BlobKey::random().unwrap();
        let gates = ToolGates::default();
        let identity = Identity::default();
        let headers = identity.run(
            &token,
            &RequestIds::first(),
            &key,
            &gates,
            HttpVersion::Http2,
        );
        assert_eq!(
            names(&headers),
            [
                "authorization",
                "backend-traceparent",
                "connect-accept-encoding",
                "connect-protocol-version",
                "content-type",
                "traceparent",
                "user-agent",
                "x-blob-encryption-key",
                "x-cursor-client-type",
                "x-cursor-client-version",
                "x-ghost-mode",
                "x-original-request-id",
                "x-request-id",
            ]
        );
        assert!(!format!("{headers:?}").contains("secret-token"));
        assert!(!format!("{headers:?} {key:?}").contains(key.expose_hex()));
    }

    #[test]
    fn http1_gates_and_checksum_are_added_only_when_asked_for() {
        let token = SecretString::from("a.b.c");
        let key = BlobKey::random().unwrap();
        let gates = ToolGates {
            allowed: Some(vec![]),
            excluded: vec!["task_tool_call".into()],
        };
        let identity = Identity {
            sends_checksum: true,
            ..Identity::default()
        };
        let headers = identity.run(
            &token,
            &RequestIds::first(),
            &key,
            &gates,
            HttpVersion::Http1,
        );
        assert_eq!(headers["x-cursor-agent-allowed-tools"], "");
        assert_eq!(headers["x-cursor-agent-exclude-tools"], "task_tool_call");
        assert_eq!(headers["x-cursor-streaming"], "true");
        assert!(headers.contains_key("x-cursor-checksum"));
    }

    #[test]
    fn a_blob_key_has_64_lowercase_hex_digits() {
        assert!(BlobKey::from_hex(&"0f".repeat(32)).is_some());
        assert!(BlobKey::from_hex(&"0F".repeat(32)).is_none());
        assert!(BlobKey::from_hex("0f").is_none());
    }
}
