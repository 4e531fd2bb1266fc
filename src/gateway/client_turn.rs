//! A client's request for one turn, independent of the API it came through.

use std::path::PathBuf;

use http::HeaderMap;
use http::header::USER_AGENT;

use super::answer_format::AnswerFormat;
use super::answer_limits::AnswerLimits;
use super::session_key::SessionHints;
use agent::catalog::ThinkingLevel;
use agent::conversation::transcript::Transcript;

use super::api_error::ApiError;

/// A request for one turn.
#[derive(Debug)]
pub(super) struct ClientTurn {
    /// The model id from the client.
    pub(super) model: String,
    pub(super) level: Option<ThinkingLevel>,
    /// The history, with the client's ids of calls.
    pub(super) transcript: Transcript,
    pub(super) session: SessionHints,
    pub(super) limits: AnswerLimits,
    pub(super) format: AnswerFormat,
    /// Whether an answer may have at most one call.
    pub(super) is_one_call: bool,
    /// The program that sent it.
    pub(super) client: Option<String>,
    /// The folder that the client works in; the gateway's own if absent.
    pub(super) workspace: Option<PathBuf>,
}

/// Returns the name of the program that sent a request.
pub(super) fn client_name(headers: &HeaderMap) -> Option<String> {
    let name = headers.get(USER_AGENT)?.to_str().ok()?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Reads a reasoning effort; `at` names the field.
pub(super) fn thinking_level(text: &str, at: &str) -> Result<ThinkingLevel, ApiError> {
    let name = match text {
        "none" => ThinkingLevel::Off.name(),
        other => other,
    };
    ThinkingLevel::parse(name).ok_or_else(|| {
        let problem = format!("{text:?} is none of none, minimal, low, medium, high, xhigh, max");
        ApiError::field(at, &problem)
    })
}
