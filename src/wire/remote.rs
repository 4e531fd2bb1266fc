//! What a server says when a call fails: Connect error JSON, typed details, metadata.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;
use serde::Deserialize;

use super::code::Code;
use super::proto::aiserver::v1::{ErrorDetails, error_details};

/// Header-like values that ride on the end of a stream.
pub type Metadata = BTreeMap<String, Vec<String>>;

/// Connect allows details with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const DETAILS_TYPE: &str = "aiserver.v1.ErrorDetails";

/// An error the server answered with.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteError {
    /// Connect's code.
    pub code: Code,
    /// The server's own message; may be empty.
    pub message: String,
    /// Cursor's typed details, if it sent any.
    pub details: Option<ErrorDetails>,
    /// Metadata that came along.
    pub metadata: Metadata,
    /// The HTTP status, where the error was one.
    pub status: Option<u16>,
}

impl RemoteError {
    /// An error known only by its HTTP status.
    pub fn from_status(status: u16) -> Self {
        Self {
            code: Code::from_http(status),
            message: format!("HTTP {status}"),
            details: None,
            metadata: Metadata::new(),
            status: Some(status),
        }
    }

    /// An error that came as an HTTP response: the body counts if it is Connect's JSON.
    pub fn from_response(status: u16, body: &[u8]) -> Self {
        let Some(json) = serde_json::from_slice::<ErrorJson>(body)
            .ok()
            .filter(|json| json.code.is_some())
        else {
            return Self::from_status(status);
        };
        let told = json.into_error(Metadata::new());
        Self {
            // "unknown" says less than the status does.
            code: match told.code {
                Code::Unknown => Code::from_http(status),
                code => code,
            },
            status: Some(status),
            ..told
        }
    }

    /// Which of Cursor's errors this is.
    pub fn cursor_error(&self) -> Option<error_details::Error> {
        let details = self.details.as_ref()?;
        (details.error != 0)
            .then(|| error_details::Error::try_from(details.error).ok())
            .flatten()
    }

    /// Cursor's title and detail, or the Connect message.
    pub fn text(&self) -> String {
        let told = self.details.as_ref().and_then(|d| d.details.as_ref());
        let told = told.map(|d| format!("{} {}", d.title.trim(), d.detail.trim()));
        match told.map(|text| text.trim().to_owned()) {
            Some(text) if !text.is_empty() => text,
            _ => self.message.clone(),
        }
    }

    /// The first metadata value under `name`.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .and_then(|(_, values)| values.first())
            .map(String::as_str)
    }
}

/// The envelope that ends a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct EndStream {
    /// The error, unless the stream ended well.
    pub error: Option<RemoteError>,
    /// Metadata of a good end (an error carries its own).
    pub metadata: Metadata,
}

impl EndStream {
    /// Reads the payload of an end-of-stream envelope. Empty counts as `{}`.
    pub fn parse(payload: &[u8]) -> Result<Self, serde_json::Error> {
        if payload.is_empty() {
            return Ok(Self {
                error: None,
                metadata: Metadata::new(),
            });
        }
        let end: EndJson = serde_json::from_slice(payload)?;
        Ok(match end.error {
            Some(error) => Self {
                error: Some(error.into_error(end.metadata)),
                metadata: Metadata::new(),
            },
            None => Self {
                error: None,
                metadata: end.metadata,
            },
        })
    }
}

#[derive(Deserialize)]
struct EndJson {
    error: Option<ErrorJson>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct ErrorJson {
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    details: Vec<DetailJson>,
}

#[derive(Deserialize)]
struct DetailJson {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    value: String,
}

impl ErrorJson {
    fn into_error(self, metadata: Metadata) -> RemoteError {
        let details = self
            .details
            .iter()
            .filter(|detail| detail.kind.rsplit('/').next() == Some(DETAILS_TYPE))
            .find_map(|detail| {
                let bytes = LENIENT.decode(&detail.value).ok()?;
                ErrorDetails::decode(&bytes[..]).ok()
            });
        RemoteError {
            code: self.code.as_deref().map_or(Code::Unknown, Code::from_name),
            message: self.message.unwrap_or_default(),
            details,
            metadata,
            status: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::aiserver::v1::CustomErrorDetails;

    #[test]
    fn reads_typed_details_with_and_without_padding() {
        let details = ErrorDetails {
            error: error_details::Error::ConversationTooLong as i32,
            details: Some(CustomErrorDetails {
                title: "Too long".into(),
                detail: "Start anew.".into(),
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
            assert_eq!(error.text(), "Too long Start anew.");
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
    fn a_good_end_may_be_empty_or_carry_metadata() {
        assert_eq!(EndStream::parse(b"{}").unwrap().error, None);
        assert_eq!(EndStream::parse(b"").unwrap().error, None);
        assert!(EndStream::parse(b"not json").is_err());
        let end = EndStream::parse(br#"{"metadata":{"k":["v"]}}"#).unwrap();
        assert_eq!(end.metadata["k"], ["v"]);
    }
}
