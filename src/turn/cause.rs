//! Why a turn failed, for hosts that tell causes apart by more than words.

use super::wording::{Lost, wording};
use crate::wire::failure::{Failure, Retry};

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// What the host asks for cannot be answered as it is.
    Request,
    /// The key or the login is not accepted.
    Login,
    /// A plan or a limit of it.
    Quota,
    /// The conversation does not fit.
    Overflow,
    /// The model does not exist or is not for this account.
    Model,
    /// Cursor has no capacity now.
    Capacity,
    /// Cursor will not do this.
    Refused,
    /// Cursor failed, or the way to it.
    Upstream,
    /// Cursor did nothing for too long.
    Silence,
    /// The run that asked for tools is gone, and nothing could bring it back.
    Lost(Box<Lost>),
    /// Another process is at work on the session.
    Taken,
    /// We failed.
    Internal,
}

impl Cause {
    /// The cause of a failed run.
    pub(super) fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Login(_) | Failure::Key(_) => Self::Login,
            Failure::Upgrade(_) | Failure::Payment(_) => Self::Quota,
            Failure::Model(_) => Self::Model,
            Failure::Capacity(_) => Self::Capacity,
            Failure::TooLarge(_) => Self::Upstream,
            // By the words the host is told: texts of an overflow come in many classes.
            _ if wording(failure).starts_with("context_length_exceeded") => Self::Overflow,
            _ => match failure.retry() {
                Retry::Never => Self::Refused,
                Retry::Server | Retry::Transport => Self::Upstream,
                Retry::Idle => Self::Silence,
            },
        }
    }
}
