//! Rejects bodies that rmcp answers misleadingly: it answers invalid JSON with 415 and a
//! malformed tool call with "method not found".

use std::collections::BTreeMap;

use axum::Json as JsonBody;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

/// What is wrong with a body.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body is not a JSON-RPC 2.0 message")]
    NoMessage,
    #[error("{what}")]
    Params { id: Json, what: &'static str },
}

type Object<'a> = BTreeMap<String, &'a RawValue>;

/// Returns whether the content type is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// Checks a body for errors that rmcp would report misleadingly.
pub(super) fn check(body: &[u8]) -> Result<(), BodyError> {
    let message: Object<'_> = serde_json::from_slice(body).map_err(|error| {
        if error.is_syntax() || error.is_eof() {
            BodyError::NotJson
        } else {
            BodyError::NoMessage
        }
    })?;
    let method = message.get("method").map(|method| method.get());
    let (Some(id), Some("\"tools/call\"")) = (message.get("id"), method) else {
        return Ok(());
    };
    let Some(what) = invalid_params(message.get("params").copied()) else {
        return Ok(());
    };
    let id = serde_json::from_str(id.get()).unwrap_or(Json::Null);
    Err(BodyError::Params { id, what })
}

/// Returns what is wrong with the parameters of a tool call, if anything.
fn invalid_params(params: Option<&RawValue>) -> Option<&'static str> {
    let params: Option<Object<'_>> = params.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let Some(params) = params else {
        return Some("params: expected an object");
    };
    let first_char = |key: &str| params.get(key).and_then(|value| value.get().chars().next());
    match (first_char("name"), first_char("arguments")) {
        (Some('"'), None | Some('{' | 'n')) => None,
        (Some('"'), Some(_)) => Some("arguments: expected an object"),
        _ => Some("name: expected a string"),
    }
}

impl BodyError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotJson => ErrorCode::PARSE_ERROR,
            Self::NoMessage => ErrorCode::INVALID_REQUEST,
            Self::Params { .. } => ErrorCode::INVALID_PARAMS,
        }
    }
}

/// Invalid parameters are a JSON-RPC error with status 200, like any other error of a call.
impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let error = json!({"code": self.code().0, "message": self.to_string()});
        let (status, id) = match self {
            Self::NotJson | Self::NoMessage => (StatusCode::BAD_REQUEST, Json::Null),
            Self::Params { id, .. } => (StatusCode::OK, id),
        };
        let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
        (status, JsonBody(body)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(params: &str) -> Result<(), BodyError> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        check(body.as_bytes())
    }

    #[test]
    fn malformed_calls_name_the_wrong_parameter() {
        for good in [
            r#"{"name":"a"}"#,
            r#"{"name":"a","arguments":null}"#,
            r#"{"arguments": {} ,"name":"a"}"#,
        ] {
            assert_eq!(call(good), Ok(()), "{good}");
        }
        for (bad, what) in [
            ("[]", "params: expected an object"),
            (r#"{"arguments":{}}"#, "name: expected a string"),
            (r#"{"name":1}"#, "name: expected a string"),
            (
                r#"{"name":"a","arguments":[1]}"#,
                "arguments: expected an object",
            ),
            (
                r#"{"name":"a","arguments":"x"}"#,
                "arguments: expected an object",
            ),
        ] {
            let id = json!(7);
            assert_eq!(call(bad), Err(BodyError::Params { id, what }), "{bad}");
        }
    }

    #[test]
    fn invalid_messages_differ_from_invalid_json() {
        for body in ["", "{", "what?"] {
            assert_eq!(check(body.as_bytes()), Err(BodyError::NotJson), "{body}");
        }
        for body in ["[]", "1", "[{}]"] {
            assert_eq!(check(body.as_bytes()), Err(BodyError::NoMessage), "{body}");
        }
        for other in [
            "{}",
            r#"{"id":1,"method":"ping"}"#,
            r#"{"method":"tools/call"}"#,
        ] {
            assert_eq!(check(other.as_bytes()), Ok(()), "{other}");
        }
    }
}
