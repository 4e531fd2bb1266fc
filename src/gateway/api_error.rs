//! Errors: a status and an error object, in the form of the API that the request used.

use axum::Json as JsonBody;
use axum::response::{AppendHeaders, IntoResponse, Response};
use http::header::{ALLOW, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use serde_json::{Value as Json, json};

use agent::catalog::UnknownModel;
use agent::run::AssembleError;
use agent::session_manager::ReserveError;
use agent::turn::{Cause, Stop, TurnResult, UserCommands, with_next_step};
use agent_tools::local_http::access::{HttpError, RejectionResponse};
use cursor_client::account::KeyError;
use foundation::secrets;

const REQUEST: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const OVERFLOW: &str = "context_length_exceeded";
const OVERLOADED: &str = "overloaded";
/// After how many seconds a client may retry what Cursor refuses for now; it does not say.
const LATER: &str = "30";

/// The form of an error object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ErrorForm {
    /// Of chat completions and responses.
    #[default]
    OpenAi,
    /// Of messages.
    Anthropic,
}

impl ErrorForm {
    /// Returns the form for a path.
    pub(super) fn of_path(path: &str) -> Self {
        if path.starts_with("/v1/messages") {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<Box<str>>,
    message: Box<str>,
    param: Option<Box<str>>,
    /// Further fields of the error object.
    more: Vec<(String, Json)>,
    headers: Vec<(HeaderName, HeaderValue)>,
    form: ErrorForm,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self {
            status,
            kind,
            code: Some(code).filter(|code| !code.is_empty()).map(Box::from),
            // It may quote the server, which may repeat what it was sent.
            message: secrets().hide_known(&message).into(),
            param: None,
            more: Vec::new(),
            headers: Vec::new(),
            form: ErrorForm::default(),
        }
    }

    /// Sets the form of the error object.
    pub(super) fn in_form(self, form: ErrorForm) -> Self {
        Self { form, ..self }
    }

    /// Adds the header against automatic retries, which official clients send after 409, 429 and 5xx.
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
        Self {
            param: Some(param).filter(|param| !param.is_empty()).map(Box::from),
            ..Self::new(StatusCode::BAD_REQUEST, REQUEST, "", message)
        }
    }

    /// Returns the error for a `previous_response_id` that is not known.
    pub(super) fn unknown_response(id: &str) -> Self {
        let message = format!(
            "the gateway has no response {id:?} (they are kept in memory, and not with store: false); send the whole conversation as input instead"
        );
        let code = "previous_response_not_found";
        Self {
            param: Some("previous_response_id".into()),
            ..Self::new(StatusCode::BAD_REQUEST, REQUEST, code, message)
        }
    }

    /// Returns the error for an answer that is not the JSON that the client asked for.
    pub(super) fn wrong_format(problem: &str) -> Self {
        let message = format!("the model's answer is not what response_format asks for: {problem}");
        Self::new(
            StatusCode::BAD_GATEWAY,
            SERVER,
            "invalid_json_answer",
            message,
        )
        .without_retry()
    }

    /// Returns the error for an unknown path.
    pub(super) fn unknown_path(path: &str) -> Self {
        let message = format!(
            "not found: {path:?}; the paths are /v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/models, /health, /metrics and / (the status page)"
        );
        Self::new(StatusCode::NOT_FOUND, REQUEST, "unknown_url", message)
            .in_form(ErrorForm::of_path(path))
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
            Stop::Failed(text) => {
                with_next_step(text, result.cause.as_ref(), UserCommands::PROGRAM)
            }
        };
        let text = text.as_str();
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
            Some(Cause::RateLimit) => Self::rate_limit(text),
            Some(Cause::Region) => new(
                StatusCode::FORBIDDEN,
                "permission_error",
                "unsupported_region",
            )
            .without_retry(),
            Some(Cause::Overflow) => new(StatusCode::BAD_REQUEST, REQUEST, OVERFLOW),
            Some(Cause::Model) => new(StatusCode::NOT_FOUND, REQUEST, "model_not_found"),
            Some(Cause::Capacity) => new(StatusCode::SERVICE_UNAVAILABLE, SERVER, OVERLOADED)
                .with_header(RETRY_AFTER, LATER),
            Some(Cause::Refused) => {
                new(StatusCode::BAD_GATEWAY, SERVER, "refused_by_cursor").without_retry()
            }
            Some(Cause::Upstream) => new(StatusCode::BAD_GATEWAY, SERVER, "upstream_error"),
            Some(Cause::Silence) => new(StatusCode::GATEWAY_TIMEOUT, SERVER, "upstream_timeout"),
            Some(Cause::ContinuationLost(lost)) => Self::lost(&lost.body()),
            Some(Cause::Taken) => new(StatusCode::CONFLICT, REQUEST, "session_busy"),
            Some(Cause::Internal) | None => {
                new(StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error")
            }
        })
    }

    /// Returns the error for a limit that Cursor does not explain.
    pub(super) fn rate_limit(text: &str) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(status, "rate_limit_error", "rate_limit_exceeded", text)
            .with_header(RETRY_AFTER, LATER)
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

    /// Returns the error of a turn whose run is gone, with the fields that describe it.
    fn lost(body: &Json) -> Self {
        let error = &body["error"];
        let text = |field: &str| error[field].as_str().unwrap_or_default();
        let mut lost = Self::new(StatusCode::CONFLICT, REQUEST, text("code"), text("message"));
        let fields = error.as_object().into_iter().flatten();
        let more = fields.filter(|(name, _)| !matches!(name.as_str(), "code" | "message"));
        lost.more = more
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        lost.without_retry()
    }

    /// Returns the code and the message on one line.
    pub(super) fn summary(&self) -> String {
        match self.code() {
            Some(code) => format!("{code}: {}", self.message),
            None => self.message.to_string(),
        }
    }

    pub(super) fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    #[cfg(test)]
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    #[cfg(test)]
    pub(super) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// Returns the error object of a response that has failed.
    pub(super) fn response_error(&self) -> Json {
        let code = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
            // Codex compacts on this code.
            _ if self.code() == Some(OVERFLOW) => OVERFLOW,
            _ => "server_error",
        };
        json!({"code": code, "message": self.message})
    }

    /// Returns the body.
    pub(super) fn body(&self) -> Json {
        match self.form {
            ErrorForm::OpenAi => {
                let mut error = json!({"message": self.message, "type": self.kind,
                    "param": self.param, "code": self.code});
                for (name, value) in &self.more {
                    error[name] = value.clone();
                }
                json!({ "error": error })
            }
            ErrorForm::Anthropic => {
                // Claude Code compacts on these words.
                let message = match self.code() {
                    Some(OVERFLOW) => format!("prompt is too long: {}", self.message),
                    _ => self.message.to_string(),
                };
                let error = json!({"type": self.anthropic_kind(), "message": message});
                json!({"type": "error", "error": error, "request_id": null})
            }
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            _ if self.code() == Some(OVERLOADED) => "overloaded_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            504 => "timeout_error",
            400..500 => REQUEST,
            _ => "api_error",
        }
    }

    fn http_status(&self) -> StatusCode {
        match self.form {
            ErrorForm::Anthropic if self.code() == Some(OVERLOADED) => {
                StatusCode::from_u16(529).unwrap_or(self.status)
            }
            _ => self.status,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.http_status();
        let code = self.code();
        tracing::debug!(status = status.as_u16(), code, "gateway.refused");
        let body = self.body();
        (status, AppendHeaders(self.headers), JsonBody(body)).into_response()
    }
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> Self {
        let (kind, code) = match error {
            HttpError::Unauthorized => ("authentication_error", "invalid_api_key"),
            HttpError::Busy => (SERVER, OVERLOADED),
            _ => (REQUEST, ""),
        };
        Self {
            headers: error.header().into_iter().collect(),
            ..Self::new(error.status(), kind, code, error.to_string())
        }
    }
}

impl RejectionResponse for ApiError {
    fn reject(error: HttpError, uri: &Uri) -> Self {
        Self::from(error).in_form(ErrorForm::of_path(uri.path()))
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
        error.param = Some("model".into());
        error
            .more
            .push(("nearest".into(), unknown.suggestions.into()));
        error
    }
}
