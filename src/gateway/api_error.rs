//! Errors in OpenAI's form: a status and an error object.

use axum::Json as JsonBody;
use axum::response::{AppendHeaders, IntoResponse, Response};
use http::header::ALLOW;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value as Json, json};

use agent::catalog::UnknownModel;
use agent::run::AssembleError;
use agent::session_manager::ReserveError;
use agent::turn::{Cause, Stop, TurnResult};
use agent_tools::local_http::access::HttpError;
use cursor_client::account::KeyError;
use foundation::secrets;

const REQUEST: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiError {
    status: StatusCode,
    body: Json,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
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
            headers: Vec::new(),
        }
    }

    /// Tells clients not to retry automatically, which official ones do for 409, 429 and 5xx.
    fn without_retry(self) -> Self {
        self.with_header(HeaderName::from_static("x-should-retry"), "false")
    }

    fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Returns the error for an invalid field of the request.
    pub(super) fn field(param: &str, problem: &str) -> Self {
        let message = match param {
            "" => problem.to_owned(),
            param => format!("{param}: {problem}"),
        };
        let mut error = Self::new(StatusCode::BAD_REQUEST, REQUEST, Json::Null, message);
        if !param.is_empty() {
            error.body["error"]["param"] = param.into();
        }
        error
    }

    /// Returns the error for an unknown path.
    pub(super) fn unknown_path(path: &str) -> Self {
        let message = format!(
            "not found: {path:?}; the paths are /v1/chat/completions, /v1/models and /metrics"
        );
        Self::new(StatusCode::NOT_FOUND, REQUEST, "unknown_url", message)
    }

    /// Returns the error for a wrong HTTP method.
    pub(super) fn method_not_allowed(allow: &'static str) -> Self {
        let message = format!("this path takes {allow} only");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self::new(status, REQUEST, "method_not_allowed", message).with_header(ALLOW, allow)
    }

    /// Returns the error of a turn that failed; `None` if it did not.
    pub(super) fn from_result(result: &TurnResult) -> Option<Self> {
        let text = match &result.stop {
            Stop::Finished | Stop::ToolUse => return None,
            Stop::Aborted => return Some(Self::shutting_down()),
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
            .without_retry(),
            Some(Cause::Overflow) => {
                new(StatusCode::BAD_REQUEST, REQUEST, "context_length_exceeded")
            }
            Some(Cause::Model) => new(StatusCode::NOT_FOUND, REQUEST, "model_not_found"),
            Some(Cause::Capacity) => new(StatusCode::SERVICE_UNAVAILABLE, SERVER, "overloaded"),
            Some(Cause::Refused) => {
                new(StatusCode::BAD_GATEWAY, SERVER, "refused_by_cursor").without_retry()
            }
            Some(Cause::Upstream) => new(StatusCode::BAD_GATEWAY, SERVER, "upstream_error"),
            Some(Cause::Silence) => new(StatusCode::GATEWAY_TIMEOUT, SERVER, "upstream_timeout"),
            Some(Cause::ContinuationLost(lost)) => Self {
                body: lost.body(),
                ..new(StatusCode::CONFLICT, "", "").without_retry()
            },
            Some(Cause::Taken) => new(StatusCode::CONFLICT, REQUEST, "session_busy"),
            Some(Cause::Internal) | None => {
                new(StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error")
            }
        })
    }

    fn shutting_down() -> Self {
        let message = "the gateway is shutting down and cancelled this turn";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, SERVER, "shutting_down", message)
    }

    /// Returns the error for a turn that ended without a result.
    pub(super) fn internal() -> Self {
        let message = "the turn failed inside cursor-sidecar";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, SERVER, "internal_error", message)
    }

    /// Returns the error object.
    pub(super) fn body(&self) -> &Json {
        &self.body
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        tracing::debug!(
            status = self.status.as_u16(),
            code = self.body["error"]["code"].as_str(),
            "gateway.refused"
        );
        (
            self.status,
            AppendHeaders(self.headers),
            JsonBody(self.body),
        )
            .into_response()
    }
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> Self {
        let (kind, code) = match error {
            HttpError::Unauthorized => ("authentication_error", Json::from("invalid_api_key")),
            HttpError::Busy => (SERVER, Json::from("overloaded")),
            _ => (REQUEST, Json::Null),
        };
        Self {
            headers: error.header().into_iter().collect(),
            ..Self::new(error.status(), kind, code, error.to_string())
        }
    }
}

/// Turns have ids of ours, and are cancelled before they run only at shutdown.
impl From<ReserveError> for ApiError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Cancelled => Self::shutting_down(),
            ReserveError::AlreadyActive => Self::internal(),
        }
    }
}

impl From<AssembleError> for ApiError {
    fn from(error: AssembleError) -> Self {
        let message = match &error {
            AssembleError::Key(KeyError::Missing) => {
                "there is no Cursor API key: start the gateway with CURSOR_API_KEY set, or run `cursor-sidecar login` once (keys are made in Cursor's dashboard, under Integrations)".to_owned()
            }
            AssembleError::Key(error) => error.to_string(),
            AssembleError::Endpoint(error) => {
                let message = error.to_string();
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Self::new(status, SERVER, "bad_settings", message).without_retry();
            }
        };
        let status = StatusCode::UNAUTHORIZED;
        Self::new(status, "authentication_error", "no_cursor_key", message)
    }
}

impl From<UnknownModel> for ApiError {
    fn from(unknown: UnknownModel) -> Self {
        let message = unknown.to_string();
        let mut error = Self::new(StatusCode::NOT_FOUND, REQUEST, "model_not_found", message);
        error.body["error"]["param"] = "model".into();
        error.body["error"]["nearest"] = unknown.suggestions.into();
        error
    }
}
