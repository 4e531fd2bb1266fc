//! Errors in OpenAI's form: a status and an error object.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value as Json, json};

use agent::catalog::UnknownModel;
use agent::run::AssembleError;
use agent::turn::{Cause, Stop, TurnResult};
use agent_tools::loopback::admission::Refusal;
use agent_tools::loopback::{Answered, hints};
use cursor_client::account::KeyError;
use foundation::secrets;

const REQUEST: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    status: StatusCode,
    body: Json,
    retry: Retry,
    allow: Option<&'static str>,
}

/// Whether a client may retry automatically. Official clients do so for 409, 429 and 5xx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    Allowed,
    Pointless,
}

impl Fault {
    fn new(
        status: StatusCode,
        kind: &str,
        code: impl Into<Json>,
        message: impl Into<String>,
    ) -> Self {
        let message: String = message.into();
        // It may quote the server, which may repeat what it was sent.
        let message = secrets().hide_known(&message);
        Self {
            status,
            body: json!({"error": {"message": message, "type": kind, "param": null, "code": code.into()}}),
            retry: Retry::Allowed,
            allow: None,
        }
    }

    fn pointless(self) -> Self {
        Self {
            retry: Retry::Pointless,
            ..self
        }
    }

    /// Returns the error for an invalid field of the request.
    pub(super) fn field(param: &str, problem: &str) -> Self {
        let message = match param {
            "" => problem.to_owned(),
            param => format!("{param}: {problem}"),
        };
        let mut fault = Self::new(StatusCode::BAD_REQUEST, REQUEST, Json::Null, message);
        if !param.is_empty() {
            fault.body["error"]["param"] = param.into();
        }
        fault
    }

    /// Returns the error for an unknown path.
    pub(super) fn nowhere(path: &str) -> Self {
        let message = format!(
            "not found: {path:?}; the paths are /v1/chat/completions, /v1/models and /metrics"
        );
        Self::new(StatusCode::NOT_FOUND, REQUEST, "unknown_url", message)
    }

    /// Returns the error for a wrong HTTP method.
    pub(super) fn method(allow: &'static str) -> Self {
        let message = format!("this path takes {allow} only");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self {
            allow: Some(allow),
            ..Self::new(status, REQUEST, "method_not_allowed", message)
        }
    }

    /// Returns the error of a turn that failed; `None` if it did not.
    pub(super) fn of(result: &TurnResult) -> Option<Self> {
        let text = match &result.stop {
            Stop::Finished | Stop::ToolUse => return None,
            Stop::Aborted => {
                let message = "the gateway is shutting down and cancelled this turn";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Some(Self::new(status, SERVER, "shutting_down", message));
            }
            Stop::Failed(text) => text.as_str(),
        };
        let new = |status, kind, code: &str| Self::new(status, kind, code, text);
        Some(match &result.cause {
            Some(Cause::Request) => Self::field("", text),
            Some(Cause::Login) => new(
                StatusCode::UNAUTHORIZED,
                "authentication_error",
                "invalid_api_key",
            ),
            Some(Cause::Quota) => new(
                StatusCode::TOO_MANY_REQUESTS,
                "insufficient_quota",
                "insufficient_quota",
            )
            .pointless(),
            Some(Cause::Overflow) => {
                new(StatusCode::BAD_REQUEST, REQUEST, "context_length_exceeded")
            }
            Some(Cause::Model) => new(StatusCode::NOT_FOUND, REQUEST, "model_not_found"),
            Some(Cause::Capacity) => new(StatusCode::SERVICE_UNAVAILABLE, SERVER, "overloaded"),
            Some(Cause::Refused) => {
                new(StatusCode::BAD_GATEWAY, SERVER, "refused_by_cursor").pointless()
            }
            Some(Cause::Upstream) => new(StatusCode::BAD_GATEWAY, SERVER, "upstream_error"),
            Some(Cause::Silence) => new(StatusCode::GATEWAY_TIMEOUT, SERVER, "upstream_timeout"),
            Some(Cause::Lost(lost)) => Self {
                body: lost.body(),
                ..new(StatusCode::CONFLICT, "", "").pointless()
            },
            Some(Cause::Taken) => new(StatusCode::CONFLICT, REQUEST, "session_busy"),
            Some(Cause::Internal) | None => {
                new(StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error")
            }
        })
    }

    /// Returns the error for a turn that ended without a result.
    pub(super) fn inside() -> Self {
        let message = "the turn failed inside cursor-sidecar";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, SERVER, "internal_error", message)
    }

    /// Returns the error object.
    pub(super) fn body(&self) -> &Json {
        &self.body
    }

    /// Returns the HTTP response.
    pub(super) fn answer(&self) -> Answered {
        tracing::debug!(
            status = self.status.as_u16(),
            code = self.body["error"]["code"].as_str(),
            "gateway.refused"
        );
        let mut answer = json_answer(&self.body);
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        if self.retry == Retry::Pointless {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        answer
    }
}

/// Returns a JSON response.
pub(super) fn json_answer(body: &Json) -> Answered {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

/// Returns the response for a request that was not admitted.
pub(super) fn refused(refusal: Refusal) -> Answered {
    let (kind, code) = match refusal {
        Refusal::Unauthorized => ("authentication_error", Json::from("invalid_api_key")),
        Refusal::Busy => (SERVER, Json::from("overloaded")),
        _ => (REQUEST, Json::Null),
    };
    let mut answer = Fault::new(refusal.status(), kind, code, refusal.to_string()).answer();
    hints(refusal, answer.headers_mut());
    answer
}

impl From<AssembleError> for Fault {
    fn from(error: AssembleError) -> Self {
        let message = match &error {
            AssembleError::Key(KeyError::Missing) => {
                "there is no Cursor API key: start the gateway with CURSOR_API_KEY set, or run `cursor-sidecar login` once (keys are made in Cursor's dashboard, under Integrations)".to_owned()
            }
            AssembleError::Key(error) => error.to_string(),
            AssembleError::Endpoint(error) => {
                let message = error.to_string();
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Self::new(status, SERVER, "bad_settings", message).pointless();
            }
        };
        let status = StatusCode::UNAUTHORIZED;
        Self::new(status, "authentication_error", "no_cursor_key", message)
    }
}

impl From<UnknownModel> for Fault {
    fn from(unknown: UnknownModel) -> Self {
        let message = unknown.to_string();
        let mut fault = Self::new(StatusCode::NOT_FOUND, REQUEST, "model_not_found", message);
        fault.body["error"]["param"] = "model".into();
        fault.body["error"]["nearest"] = unknown.suggestions.into();
        fault
    }
}
