//! Why a turn failed, for hosts that need more than the error text.

use super::TurnEvent;
use super::error_text::{ContinuationLost, wording};
use cursor_client::failure::{Failure, Retry};

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The host's request cannot be answered as it is.
    Request,
    /// Cursor does not accept the key or the login.
    Login,
    /// The account's plan, or a limit of it, does not allow the request.
    Quota,
    /// The conversation does not fit into the context window.
    Overflow,
    /// The model does not exist or is not available to this account.
    Model,
    /// Cursor has no capacity now.
    Capacity,
    /// Cursor refuses more requests for now, without saying which limit was reached.
    RateLimit,
    /// Cursor does not offer the model in this region.
    Region,
    /// Cursor refuses the request.
    Refused,
    /// Cursor failed, or the connection to it.
    Upstream,
    /// Cursor sent nothing for too long.
    Silence,
    /// The run that called tools is gone and could not be recovered.
    ContinuationLost(Box<ContinuationLost>),
    /// Another process uses the session.
    Taken,
    /// An internal error.
    Internal,
}

/// Returns whether a failure is a limit without an explanation.
fn is_rate_limit(failure: &Failure) -> bool {
    const ENDS: [&str; 3] = [
        "[resource_exhausted]",
        "[resource_exhausted] Error",
        "(HTTP 429)",
    ];
    let text = failure.to_string();
    match failure {
        Failure::Server(text) if text.starts_with("[resource_exhausted]") => true,
        // By the text, because the exchange of the key reports the same in another class.
        _ => ENDS.iter().any(|end| text.ends_with(end)),
    }
}

impl TurnEvent {
    /// Returns the event for a failure that is retried.
    pub(super) fn retrying(failure: &Failure) -> Self {
        Self::Retrying {
            reason: failure.to_string(),
            is_limit: is_rate_limit(failure),
        }
    }
}

impl Cause {
    /// Returns the cause of a failed run.
    pub fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Login(_) | Failure::Key(_) => Self::Login,
            Failure::Upgrade(_) | Failure::Payment(_) => Self::Quota,
            Failure::Model(_) => Self::Model,
            Failure::Capacity(_) => Self::Capacity,
            Failure::Region(_) => Self::Region,
            Failure::Server(_) if is_rate_limit(failure) => Self::RateLimit,
            Failure::TooLarge(_) | Failure::Persistent(_) | Failure::StateLost(_) => Self::Upstream,
            // By the text of the error, because an overflow arrives in many classes.
            _ if wording(failure).starts_with("context_length_exceeded") => Self::Overflow,
            _ => match failure.retry() {
                Retry::Never => Self::Refused,
                Retry::Server | Retry::Transport => Self::Upstream,
                Retry::Idle => Self::Silence,
            },
        }
    }
}
