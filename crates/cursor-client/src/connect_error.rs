//! Errors that the server returns: Connect error JSON, typed details, metadata.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;
use serde_json::Value as Json;

use cursor_proto::aiserver::v1::{ErrorDetails, error_details};
use cursor_proto::connect_code::Code;

/// Header-like values sent with the end of a stream.
pub type Metadata = BTreeMap<String, Vec<String>>;

/// Base64 with or without padding, because Connect allows both in details.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const DETAILS_TYPE: &str = "aiserver.v1.ErrorDetails";

/// Maximum number of characters kept of a REST error.
const MAX_REST_TEXT: usize = 500;
/// Maximum number of characters shown of Cursor's own error.
const MAX_TEXT: usize = 4000;
/// Maximum number of bytes searched for secrets. Redaction comes before the text is cut,
/// because a secret that is cut in two would not be found.
const MAX_RAW: usize = 64 * 1024;

/// An error returned by the server.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteError {
    /// Connect's code.
    pub code: Code,
    /// The server's own message; may be empty.
    pub message: String,
    /// Cursor's typed details, if it sent any.
    pub details: Option<ErrorDetails>,
    /// Metadata sent with the error.
    pub metadata: Metadata,
    /// The HTTP status, if the error was an HTTP response.
    pub status: Option<u16>,
}

impl RemoteError {
    /// Returns an error known only by its HTTP status.
    pub fn from_status(status: u16) -> Self {
        Self {
            code: Code::from_http(status),
            message: format!("HTTP {status}"),
            details: None,
            metadata: Metadata::new(),
            status: Some(status),
        }
    }

    /// Returns the error of an HTTP response. The body is used if it is Connect's JSON or has the
    /// message of a REST error.
    pub fn from_response(status: u16, body: &[u8]) -> Self {
        let json: Json = serde_json::from_slice(body).unwrap_or_default();
        if json["code"].is_null() {
            let plain = Self::from_status(status);
            return Self {
                message: rest_message(&json).unwrap_or_else(|| plain.message.clone()),
                ..plain
            };
        }
        let error = read_error(&json, Metadata::new());
        Self {
            // The status is more specific than "unknown".
            code: match error.code {
                Code::Unknown => Code::from_http(status),
                code => code,
            },
            status: Some(status),
            ..error
        }
    }

    /// Returns which of Cursor's errors this is, if it is a known one.
    pub fn cursor_error(&self) -> Option<error_details::Error> {
        let details = self.details.as_ref()?;
        (details.error != 0)
            .then(|| error_details::Error::try_from(details.error).ok())
            .flatten()
    }

    /// Returns Cursor's title and detail, or the Connect message. Secrets are redacted, because a
    /// server may repeat what it was sent.
    pub fn text(&self) -> String {
        let details = self.details.as_ref().and_then(|d| d.details.as_ref());
        let details = details.map(|d| two_sentences(d.title.trim(), d.detail.trim()));
        let text = match details.as_deref() {
            Some(text) if text.eq_ignore_ascii_case("error") => {
                return format!("Cursor reports an error without its reason [{}]", self.code);
            }
            Some(text) if !text.is_empty() => text,
            _ => &self.message,
        };
        without_secrets(text, MAX_TEXT)
    }

    /// Returns the first metadata value of `name`, ignoring case.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .and_then(|(_, values)| values.first())
            .map(String::as_str)
    }
}

/// Joins a title and its detail.
fn two_sentences(title: &str, detail: &str) -> String {
    match (title, detail) {
        ("", text) | (text, "") => text.to_owned(),
        _ if title.ends_with(['.', '!', '?', ':']) => format!("{title} {detail}"),
        _ => format!("{title}. {detail}"),
    }
}

/// The envelope that ends a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct EndStream {
    /// The error; `None` if the stream ended successfully.
    pub error: Option<RemoteError>,
    /// Metadata of a successful end (an error has its own).
    pub metadata: Metadata,
}

impl EndStream {
    /// Parses the payload of an end-of-stream envelope. An empty payload is treated as `{}`.
    pub fn parse(payload: &[u8]) -> Result<Self, serde_json::Error> {
        if payload.is_empty() {
            return Ok(Self {
                error: None,
                metadata: Metadata::new(),
            });
        }
        let end: Json = serde_json::from_slice(payload)?;
        let metadata = read_metadata(&end["metadata"]);
        Ok(match &end["error"] {
            Json::Null => Self {
                error: None,
                metadata,
            },
            error => Self {
                error: Some(read_error(error, metadata)),
                metadata: Metadata::new(),
            },
        })
    }
}

/// Parses Connect's error JSON. Malformed parts are ignored, because the rest is more useful
/// than reporting "malformed".
fn read_error(error: &Json, metadata: Metadata) -> RemoteError {
    let code = match &error["code"] {
        Json::String(name) => Code::from_name(name),
        Json::Number(number) => number
            .as_u64()
            .and_then(|number| Code::from_grpc(u32::try_from(number).ok()?))
            .unwrap_or(Code::Unknown),
        _ => Code::Unknown,
    };
    let message = error["message"].as_str().or(error.as_str());
    let details = error["details"].as_array();
    let details = details.into_iter().flatten().find_map(|detail| {
        let kind = detail["type"].as_str()?;
        let bytes = LENIENT.decode(detail["value"].as_str()?).ok()?;
        (kind.rsplit('/').next() == Some(DETAILS_TYPE))
            .then(|| ErrorDetails::decode(&bytes[..]).ok())
            .flatten()
    });
    RemoteError {
        code,
        message: message.unwrap_or_default().to_owned(),
        details,
        metadata,
        status: None,
    }
}

fn read_metadata(metadata: &Json) -> Metadata {
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let entries = metadata.as_object().into_iter().flatten();
    entries
        .map(|(name, values)| {
            let values = match values {
                Json::Array(values) => values.iter().filter_map(text).collect(),
                value => text(value).into_iter().collect(),
            };
            (name.clone(), values)
        })
        .collect()
}

/// Returns the message of a REST error: `{"error":{"message":…}}`, `{"message":…}` or
/// `{"error":…}`.
fn rest_message(json: &Json) -> Option<String> {
    let error = &json["error"];
    let places = [&error["message"], &json["message"], error];
    let message = places.into_iter().find_map(Json::as_str)?.trim();
    (!message.is_empty()).then(|| without_secrets(message, MAX_REST_TEXT))
}

/// Returns at most `most` characters of a server's text, with secrets redacted.
fn without_secrets(text: &str, most: usize) -> String {
    let end = text.len().min(MAX_RAW);
    let end = (0..=end).rev().find(|at| text.is_char_boundary(*at));
    let text = foundation::secrets().scrub(&text[..end.unwrap_or(0)]);
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_proto::aiserver::v1::CustomErrorDetails;

    #[test]
    fn reads_typed_details_with_and_without_padding() {
        let details = ErrorDetails {
            error: error_details::Error::ConversationTooLong as i32,
            details: Some(CustomErrorDetails {
                title: "Too long".into(),
                detail: "Start a new one.".into(),
                is_retryable: Some(false),
                ..Default::default()
            }),
            is_expected: Some(true),
        };
        let padded = base64::engine::general_purpose::STANDARD.encode(details.encode_to_vec());
        for value in [padded.clone(), padded.trim_end_matches('=').to_owned()] {
            let json = serde_json::json!({
                "error": {"code": "resource_exhausted", "message": "Error",
                          "details": [{"type": DETAILS_TYPE, "value": value}]},
                "metadata": {"X-Kind": ["a", "b"]},
            });
            let end = EndStream::parse(json.to_string().as_bytes()).unwrap();
            let error = end.error.unwrap();
            assert_eq!(error.code, Code::ResourceExhausted);
            assert_eq!(
                error.cursor_error(),
                Some(error_details::Error::ConversationTooLong)
            );
            assert_eq!(error.text(), "Too long. Start a new one.");
            assert_eq!(error.metadata("x-kind"), Some("a"));
        }
    }

    #[test]
    fn an_http_error_keeps_what_its_body_says() {
        let error =
            RemoteError::from_response(429, br#"{"code":"resource_exhausted","message":"slow"}"#);
        assert_eq!(
            (error.code, error.status),
            (Code::ResourceExhausted, Some(429))
        );
        let error = RemoteError::from_response(503, b"<html>gateway</html>");
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::Unavailable, "HTTP 503")
        );
    }

    #[test]
    fn the_message_of_a_rest_error_is_kept() {
        for body in [
            r#"{"error":{"message":"Invalid User API key"}}"#,
            r#"{"message":" Invalid User API key "}"#,
            r#"{"error":"Invalid User API key"}"#,
        ] {
            let error = RemoteError::from_response(401, body.as_bytes());
            assert_eq!(error.text(), "Invalid User API key", "{body}");
            assert_eq!(
                (error.code, error.status),
                (Code::Unauthenticated, Some(401))
            );
        }
        for body in ["", "[]", "<html>", r#"{"message":""}"#, r#"{"error":{}}"#] {
            let error = RemoteError::from_response(401, body.as_bytes());
            assert_eq!(error.text(), "HTTP 401", "{body}");
        }
        let secret = "crsr_0123456789abcdef0123456789abcdef";
        let long = serde_json::json!({"message": format!("{secret} {}", "x ".repeat(9_000))});
        let error = RemoteError::from_response(401, long.to_string().as_bytes());
        assert!(!error.text().contains(secret), "{}", error.text());
        assert!(error.text().len() < 600);
    }

    #[test]
    fn a_connect_error_repeats_no_secret() {
        let secret = "plain-secret-of-the-connect-error";
        foundation::secrets().learn(&secret.into());
        let title = format!("No {secret}");
        let details = ErrorDetails {
            details: Some(CustomErrorDetails {
                title,
                detail: "key crsr_0123456789abcdef".into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let value = LENIENT.encode(details.encode_to_vec());
        for error in [
            serde_json::json!({"code": "internal", "message": format!("Bearer {secret} is odd")}),
            serde_json::json!({"code": "internal", "message": "crsr_0123456789abcdef"}),
            serde_json::json!({"code": "internal", "details": [{"type": DETAILS_TYPE, "value": value}]}),
        ] {
            let end = serde_json::json!({ "error": error }).to_string();
            let remote = EndStream::parse(end.as_bytes()).unwrap().error.unwrap();
            let from_status = RemoteError::from_response(400, error.to_string().as_bytes());
            for error in [remote, from_status] {
                let text = crate::error::WireError::from(error).to_string();
                assert!(text.contains("[redacted]"), "{text}");
                assert!(!text.contains(secret) && !text.contains("crsr_"), "{text}");
            }
        }
        // Cutting a text leaves no part of a secret.
        let long = format!("{}{secret}", "x ".repeat(MAX_TEXT / 2 - 4));
        let end = serde_json::json!({"error": {"message": long}}).to_string();
        let error = EndStream::parse(end.as_bytes()).unwrap().error.unwrap();
        assert!(!error.text().contains("plain"), "{}", error.text());
    }

    #[test]
    fn the_readable_parts_of_a_malformed_end_are_kept() {
        let read = |json: &str| EndStream::parse(json.as_bytes()).unwrap().error.unwrap();
        for (json, code, message) in [
            (
                r#"{"error":{"code":"internal","message":"boom","details":null}}"#,
                Code::Internal,
                "boom",
            ),
            (
                r#"{"error":{"code":8,"message":"slow down","details":[7,{"type":null}]}}"#,
                Code::ResourceExhausted,
                "slow down",
            ),
            (
                r#"{"error":{"code":"internal","message":null},"metadata":null}"#,
                Code::Internal,
                "",
            ),
            (
                r#"{"error":"just words","metadata":{"k":"v","n":[1]}}"#,
                Code::Unknown,
                "just words",
            ),
        ] {
            let error = read(json);
            assert_eq!(
                (error.code, error.text().as_str()),
                (code, message),
                "{json}"
            );
        }
        let error = read(r#"{"error":{},"metadata":{"k":"v"}}"#);
        assert_eq!(error.metadata("k"), Some("v"));
    }

    #[test]
    fn a_successful_end_may_be_empty_or_have_metadata() {
        assert_eq!(EndStream::parse(b"{}").unwrap().error, None);
        assert_eq!(EndStream::parse(b"").unwrap().error, None);
        assert!(EndStream::parse(b"not json").is_err());
        let end = EndStream::parse(br#"{"metadata":{"k":["v"]}}"#).unwrap();
        assert_eq!(end.metadata["k"], ["v"]);
    }
}
