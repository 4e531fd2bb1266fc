//! Classification of failures: what the user can do, and whether to retry.
//!
//! Pure functions. Follows the official client's classification, except that
//! `resource_exhausted` is subdivided by the available evidence.

use super::connect_error::RemoteError;
use super::error::{TransportError, WireError};
use cursor_proto::aiserver::v1::error_details::Error as Cursor;
use cursor_proto::connect_code::Code;
use cursor_proto::envelope::EnvelopeError;

/// Metadata that names inference errors, which a retry does not fix.
const INFERENCE_ERROR: &str = "x-cursor-inference-request-error-type";

/// A classified failure. Every variant holds the text to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The user or the server cancelled the request; nothing to show.
    #[error("{0}")]
    Cancelled(String),
    /// Not logged in, or the key or token is no longer accepted.
    #[error("{0}")]
    Login(String),
    /// A plan or rate limit.
    #[error("{0}")]
    Upgrade(String),
    /// Usage-based pricing must be enabled.
    #[error("{0}")]
    Payment(String),
    /// This client is too old for the server.
    #[error("{0}")]
    Update(String),
    /// The API key is wrong in kind or content.
    #[error("{0}")]
    Key(String),
    /// The conversation does not fit; compaction would help.
    #[error("{0}")]
    ContextTooLong(String),
    /// Too many or too large tools.
    #[error("{0}")]
    TooManyTools(String),
    /// A tool schema the server refuses.
    #[error("{0}")]
    ToolSchema(String),
    /// Not offered in this region.
    #[error("{0}")]
    Region(String),
    /// The model does not exist, was retired or is not available to this account.
    #[error("{0}")]
    Model(String),
    /// No capacity right now.
    #[error("{0}")]
    Capacity(String),
    /// The user must do something else; the text says what.
    #[error("{0}")]
    ActionRequired(String),
    /// The server refuses the request; a retry would not help.
    #[error("{0}")]
    Refused(String),
    /// The server sent more than we accept; a retry would return the same.
    #[error("{0}")]
    TooLarge(String),
    /// A server error that may be temporary.
    #[error("{0}")]
    Server(String),
    /// The connection failed; the request may be retried.
    #[error("{0}")]
    Transport(String),
    /// The connection stayed open without output.
    #[error("{0}")]
    Idle(String),
    /// The connection failed for so long that it is not retried without the user.
    #[error("{0}")]
    Persistent(String),
    /// The server cannot use the checkpoint, because a part of it is missing.
    #[error("{0}")]
    StateLost(String),
}

/// Which retry budget a failure may draw on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// No retry.
    Never,
    /// The small budget for errors the server reported.
    Server,
    /// The larger budget for broken connections.
    Transport,
    /// The configured budget for open connections without output.
    Idle,
}

/// Facts about the failed request, for errors that are not specific enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Number of tools offered.
    pub tools: usize,
    /// Total size of all tool definitions in bytes.
    pub tool_bytes: usize,
    /// Whether a tool schema contains `oneOf`, `anyOf` or `allOf`.
    pub schema_combinators: Presence,
    /// Context occupancy of the last checkpoint.
    pub occupancy: Option<cursor_proto::state::ContextUsage>,
    /// Whether the stream sent output before it failed.
    pub output: Presence,
}

/// A fact that may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Presence {
    #[default]
    Unknown,
    Present,
    Absent,
}

/// Requests with more tools than this were observed to be refused.
const TOOL_COUNT_LIMIT: usize = 300;
const TOOL_BYTES_LIMIT: usize = 400 * 1024;

impl Failure {
    /// Returns whether the conversation's checkpoint may be the cause, so that it is not sent again.
    /// False for failures that do not depend on it, such as a login, a limit or a model.
    pub fn doubts_state(&self) -> bool {
        match self {
            Self::Login(_)
            | Self::Upgrade(_)
            | Self::Payment(_)
            | Self::Update(_)
            | Self::Key(_)
            | Self::TooManyTools(_)
            | Self::ToolSchema(_)
            | Self::Region(_)
            | Self::Model(_)
            | Self::Capacity(_)
            | Self::Persistent(_)
            | Self::Transport(_) => false,
            Self::Cancelled(_)
            | Self::ContextTooLong(_)
            | Self::ActionRequired(_)
            | Self::Refused(_)
            | Self::TooLarge(_)
            | Self::Server(_)
            | Self::StateLost(_)
            | Self::Idle(_) => true,
        }
    }

    /// Returns the kind as one word. For logs, because the text may repeat what was sent.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Cancelled(_) => "cancelled",
            Self::Login(_) => "login",
            Self::Upgrade(_) => "upgrade",
            Self::Payment(_) => "payment",
            Self::Update(_) => "update",
            Self::Key(_) => "key",
            Self::ContextTooLong(_) => "context_too_long",
            Self::TooManyTools(_) => "too_many_tools",
            Self::ToolSchema(_) => "tool_schema",
            Self::Region(_) => "region",
            Self::Model(_) => "model",
            Self::Capacity(_) => "capacity",
            Self::ActionRequired(_) => "action_required",
            Self::Refused(_) => "refused",
            Self::TooLarge(_) => "too_large",
            Self::Server(_) => "server",
            Self::Transport(_) => "transport",
            Self::Idle(_) => "idle",
            Self::Persistent(_) => "persistent",
            Self::StateLost(_) => "state_lost",
        }
    }

    /// Returns the failure of a connection that was retried for this long.
    pub fn persistent(after: std::time::Duration) -> Self {
        let seconds = after.as_secs();
        // Names no cause, because hosts retry by themselves on the words of most causes.
        Self::Persistent(format!(
            "Cursor's answers kept breaking off for {seconds} seconds, and asking again did not help. Try again later."
        ))
    }

    /// Returns the failure of a server that accepted none of this many streams.
    pub fn unreachable(cause: &Self, attempts: u32) -> Self {
        Self::Persistent(format!(
            "Cursor cannot be reached: {cause} ({attempts} attempts). Check that this computer is online (behind a proxy, set HTTPS_PROXY), then send the message again."
        ))
    }

    /// Classifies an error, with the same precedence as the official client.
    pub fn classify(error: &WireError, evidence: &Evidence) -> Self {
        match error {
            WireError::Transport(transport) => Self::from_transport(transport),
            WireError::Remote(remote) => Self::from_remote(remote, evidence),
        }
    }

    fn from_transport(error: &TransportError) -> Self {
        let text = error.to_string();
        match error {
            // Not retried, because an invalid certificate stays invalid.
            TransportError::Tls { .. } | TransportError::ContentType(_) => Self::Refused(text),
            TransportError::MessageTooLarge { .. }
            | TransportError::Envelope(EnvelopeError::UnpacksTooLarge { .. }) => {
                Self::TooLarge(text)
            }
            _ => Self::Transport(text),
        }
    }

    fn from_remote(error: &RemoteError, evidence: &Evidence) -> Self {
        let text = match error.text() {
            text if text.is_empty() => format!("[{}]", error.code),
            text if error.details.is_some() => text,
            text => format!("[{}] {text}", error.code),
        };
        if let Some(failure) = Self::from_details(error, &text) {
            return failure;
        }
        if let Some(failure) = Self::from_inference_error(error, &text) {
            return failure;
        }
        match error.code {
            Code::Canceled | Code::Aborted if error.details.is_some() => Self::Cancelled(text),
            // Without details, a proxy or load balancer dropped the stream.
            Code::Canceled | Code::Aborted => Self::Transport(text),
            Code::Unauthenticated => Self::Login(text),
            Code::PermissionDenied if !is_retryable(error) => Self::Refused(text),
            Code::ResourceExhausted => exhaustion(error, evidence, text),
            Code::Internal | Code::NotFound if is_missing_blob(error) => Self::StateLost(text),
            _ => Self::Server(text),
        }
    }

    fn from_details(error: &RemoteError, text: &str) -> Option<Self> {
        error.details.as_ref()?;
        let text = text.to_owned();
        let action = error
            .details
            .as_ref()
            .and_then(|d| d.details.as_ref()?.analytics_metadata.as_ref())
            .and_then(|metadata| metadata.action_required.as_ref())
            .is_some_and(|action| !action.is_empty());
        let Some(kind) = error.cursor_error() else {
            // An unknown kind still says whether it may be retried.
            return match () {
                () if action => Some(Self::ActionRequired(text)),
                () if refuses_retry(error) => Some(Self::Refused(text)),
                () => None,
            };
        };
        Some(match kind {
            Cursor::UserAbortedRequest | Cursor::Debounced => Self::Cancelled(text),
            Cursor::NotLoggedIn
            | Cursor::AgentRequiresLogin
            | Cursor::AuthTokenNotFound
            | Cursor::AuthTokenExpired
            | Cursor::InvalidAuthId
            | Cursor::Unauthorized
            | Cursor::GithubNoUserCredentials
            | Cursor::GithubUserNoAccess
            | Cursor::GithubAppNoAccess
            | Cursor::GithubMultipleOwners => Self::Login(text),
            Cursor::FreeUserUsageLimit
            | Cursor::FreeUserRateLimitExceeded
            | Cursor::ProUserRateLimitExceeded
            | Cursor::ProUserOnly
            | Cursor::ProUserUsageLimit
            | Cursor::RateLimited
            | Cursor::RateLimitedChangeable
            | Cursor::GenericRateLimitExceeded
            | Cursor::ApiKeyRateLimit => Self::Upgrade(text),
            Cursor::UsagePricingRequired | Cursor::UsagePricingRequiredChangeable => {
                Self::Payment(text)
            }
            Cursor::BadApiKey | Cursor::BadUserApiKey => Self::Key(text),
            Cursor::OutdatedClient => Self::Update(text),
            Cursor::ConversationTooLong | Cursor::MaxTokens => Self::ContextTooLong(text),
            Cursor::UnsupportedRegion => Self::Region(text),
            Cursor::BadModelName
            | Cursor::ModelBlocked
            | Cursor::ModelNoLongerSupported
            | Cursor::MaxModeRequired => Self::Model(text),
            Cursor::SlowPool => Self::Capacity(text),
            _ if action => Self::ActionRequired(text),
            Cursor::CustomMessage if !is_retryable(error) => Self::Refused(text),
            _ if refuses_retry(error) => Self::Refused(text),
            _ => return None,
        })
    }

    fn from_inference_error(error: &RemoteError, text: &str) -> Option<Self> {
        let text = text.to_owned();
        let name = error.metadata(INFERENCE_ERROR)?.to_ascii_uppercase();
        Some(match name.trim_start_matches("ERROR_") {
            "MAX_TOKENS" | "CONVERSATION_TOO_LONG" => Self::ContextTooLong(text),
            "DEPRECATED" | "MAX_MODE_REQUIRED" | "MODEL_NO_LONGER_SUPPORTED" => Self::Model(text),
            "UNSUPPORTED_REGION" => Self::Region(text),
            "OUTDATED_CLIENT" => Self::Update(text),
            "IMAGE_TOO_LARGE" | "CONTENT_POLICY" => Self::Refused(text),
            _ => return None,
        })
    }

    /// Returns which retry budget applies to this failure.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Server(_) | Self::Capacity(_) => Retry::Server,
            Self::Transport(_) => Retry::Transport,
            Self::Idle(_) => Retry::Idle,
            _ => Retry::Never,
        }
    }
}

/// Returns whether the server misses a blob that the checkpoint refers to.
fn is_missing_blob(error: &RemoteError) -> bool {
    error.text().to_ascii_lowercase().contains("blob not found")
}

fn retryable_flag(error: &RemoteError) -> Option<bool> {
    error.details.as_ref()?.details.as_ref()?.is_retryable
}

fn is_retryable(error: &RemoteError) -> bool {
    retryable_flag(error) == Some(true)
}

fn refuses_retry(error: &RemoteError) -> bool {
    retryable_flag(error) == Some(false)
}

/// Classifies `resource_exhausted`, which has eight meanings: first by the text of the error,
/// then by what was sent.
fn exhaustion(error: &RemoteError, evidence: &Evidence, text: String) -> Failure {
    let message = error.text().to_lowercase();
    let says = |cues: &[&str]| cues.iter().any(|cue| message.contains(cue));

    if says(&["region", "country", "territory"]) {
        return Failure::Region(text);
    }
    if says(&[
        "please update",
        "update cursor",
        "outdated",
        "newer version",
        "upgrade your client",
    ]) {
        return Failure::Update(text);
    }
    if says(&[
        "context length",
        "context window",
        "conversation is too long",
        "conversation too long",
        "prompt is too long",
        "maximum context",
        "too many tokens",
        "exceeds the model context",
    ]) {
        return Failure::ContextTooLong(text);
    }
    if says(&["too many tools", "tool definitions", "tools are too large"]) {
        return Failure::TooManyTools(text);
    }
    if says(&[
        "usage limit",
        "rate limit",
        "quota",
        "too many requests",
        "limit reached",
        "hit your",
        "upgrade to",
        "spend limit",
        "out of credits",
        "billing",
    ]) {
        return Failure::Upgrade(text);
    }
    if says(&[
        "capacity",
        "overloaded",
        "high demand",
        "try again later",
        "temporarily",
    ]) {
        return Failure::Capacity(text);
    }

    // The text is unspecific ("Error"), so decide by what was sent.
    let at_once = evidence.output != Presence::Present;
    let half_full = evidence
        .occupancy
        .is_some_and(|o| o.limit > 0 && u64::from(o.used) * 2 >= u64::from(o.limit));
    if at_once && (evidence.tools > TOOL_COUNT_LIMIT || evidence.tool_bytes > TOOL_BYTES_LIMIT) {
        return Failure::TooManyTools(format!(
            "{text}: {} tools of {} KB were offered, more than the server accepts",
            evidence.tools,
            evidence.tool_bytes / 1024
        ));
    }
    if at_once && evidence.schema_combinators == Presence::Present {
        return Failure::ToolSchema(format!(
            "{text}: a tool schema uses oneOf, anyOf or allOf, which the server may refuse"
        ));
    }
    if half_full {
        return Failure::ContextTooLong(text);
    }
    Failure::Server(text)
}

#[cfg(test)]
mod tests;
