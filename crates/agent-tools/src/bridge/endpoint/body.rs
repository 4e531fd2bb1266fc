//! Rejects bodies that rmcp answers misleadingly: it answers invalid JSON with 415 and a
//! malformed tool call with "method not found".

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use super::Answered;

const JSON: &str = "application/json";

/// What is wrong with a body.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body is not a JSON-RPC 2.0 message")]
    NoMessage,
    #[error("{what}")]
    Params { id: Json, what: &'static str },
}

type Object<'a> = BTreeMap<String, &'a RawValue>;

/// Returns whether the content type is JSON.
pub(super) fn says_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with(JSON))
}

/// Checks a body for errors that rmcp would report misleadingly.
pub(super) fn check(body: &[u8]) -> Result<(), Fault> {
    let message: Object<'_> = serde_json::from_slice(body).map_err(|error| {
        if error.is_syntax() || error.is_eof() {
            Fault::NotJson
        } else {
            Fault::NoMessage
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
    Err(Fault::Params { id, what })
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

impl Fault {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotJson => ErrorCode::PARSE_ERROR,
            Self::NoMessage => ErrorCode::INVALID_REQUEST,
            Self::Params { .. } => ErrorCode::INVALID_PARAMS,
        }
    }

    /// Returns the HTTP response. Invalid parameters are a JSON-RPC error with status 200, like
    /// any other error of a call.
    pub(super) fn answer(&self) -> Answered {
        let (status, id) = match self {
            Self::NotJson | Self::NoMessage => (StatusCode::BAD_REQUEST, &Json::Null),
            Self::Params { id, .. } => (StatusCode::OK, id),
        };
        let error = json!({"code": self.code().0, "message": self.to_string()});
        let body = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
        let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
        *answer.status_mut() = status;
        let kind = HeaderValue::from_static(JSON);
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(params: &str) -> Result<(), Fault> {
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
            assert_eq!(call(bad), Err(Fault::Params { id, what }), "{bad}");
        }
    }

    #[test]
    fn invalid_messages_differ_from_invalid_json() {
        for body in ["", "{", "what?"] {
            assert_eq!(check(body.as_bytes()), Err(Fault::NotJson), "{body}");
        }
        for body in ["[]", "1", "[{}]"] {
            assert_eq!(check(body.as_bytes()), Err(Fault::NoMessage), "{body}");
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
