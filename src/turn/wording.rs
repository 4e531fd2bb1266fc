//! How a failure is told to a host, so that it compacts, tries again or leaves it.
//!
//! Hosts such as pi decide by the words of an error: these are the words.

use super::overflow;
use crate::wire::failure::{Failure, Retry};

/// Of a turn whose tools did what no other run can be told of: words no host takes for a reason
/// to ask again by itself.
pub(super) const UNTOLD: &str = "Cursor's answer broke off after a tool had been at work here, and what it did cannot be told again. Look at what was done, then say how to go on.";

/// The text of a failed turn.
pub fn wording(failure: &Failure) -> String {
    let text = failure.to_string();
    if let Some(text) = overflow::reword(&text) {
        return text;
    }
    match failure {
        Failure::ContextTooLong(_) => format!("context_length_exceeded: {text}"),
        // "quota exceeded" keeps hosts from trying again what no retry will mend.
        Failure::Upgrade(_) | Failure::Payment(_) => format!("{text} (quota exceeded)"),
        _ => match failure.retry() {
            Retry::Transport => format!("connection error: {text}"),
            Retry::Server => format!("server error: {text}"),
            Retry::Never | Retry::Idle => text,
        },
    }
}

/// A turn that cannot come back: the run that asked for tools is gone, and with it the place
/// their results belong to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {LOST} {}", Self::CODE, self.diagnostic())]
pub struct Lost {
    /// Whether a checkpoint was kept.
    pub had_checkpoint: bool,
    /// The session's key; only its beginning is told.
    pub bridge_key: String,
    /// Why there was no recovery.
    pub skip: Option<&'static str>,
}

/// What a person can do about it.
pub const LOST: &str = "Cursor tool continuation was lost because the live upstream bridge is no longer available. Retry from before the tool call or start a new turn.";

impl Lost {
    /// Its name for programs.
    pub const CODE: &'static str = "tool_continuation_lost";

    /// The first eight digits of the session's key.
    pub fn prefix(&self) -> &str {
        self.bridge_key.get(..8).unwrap_or(&self.bridge_key)
    }

    /// What helps to find it in a log.
    pub fn diagnostic(&self) -> String {
        let skip = self.skip.map(|skip| format!(" skipReason={skip}"));
        format!(
            "[diagnostic: hadStoredCheckpoint={} bridgeKeyPrefix={}{}]",
            self.had_checkpoint,
            self.prefix(),
            skip.unwrap_or_default()
        )
    }

    /// The body of an HTTP error.
    pub fn body(&self) -> serde_json::Value {
        let mut error = serde_json::json!({
            "message": LOST,
            "type": "invalid_state_error",
            "code": Self::CODE,
            "hadStoredCheckpoint": self.had_checkpoint,
            "bridgeKeyPrefix": self.prefix(),
        });
        if let Some(skip) = self.skip {
            error["skipReason"] = skip.into();
        }
        serde_json::json!({ "error": error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_in_the_words_hosts_look_for() {
        let cases = [
            (
                Failure::ContextTooLong("too long".into()),
                "context_length_exceeded: too long",
            ),
            (Failure::Upgrade("limit".into()), "limit (quota exceeded)"),
            (
                Failure::Transport("reset".into()),
                "connection error: reset",
            ),
            (
                Failure::Server("[internal] x".into()),
                "server error: [internal] x",
            ),
            (Failure::Login("who?".into()), "who?"),
            (
                Failure::Refused("maximum context length is 200k".into()),
                "context_length_exceeded: maximum context length is 200k",
            ),
        ];
        for (failure, wanted) in cases {
            assert_eq!(wording(&failure), wanted);
        }
    }
}
