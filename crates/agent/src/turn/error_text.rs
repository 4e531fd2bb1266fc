//! The text of a failed turn, from which a host decides whether to compact, retry or stop.
//!
//! Hosts such as pi match on the text of an error, so it is part of the contract.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::context_overflow;
use super::failure_cause::Cause;
use cursor_client::failure::{Failure, Retry};

/// The text of a turn whose tools had effects that no other run can be sent. No host retries
/// automatically on this text.
pub(super) const EFFECTS_LOST: &str = "Cursor's answer was interrupted after a local tool had run, and the tool's result cannot be sent again. Check what it changed, then say how to continue.";

/// Returns the text of a failed turn.
pub fn wording(failure: &Failure) -> String {
    let text = failure.to_string();
    let text = explained(&text).into_owned();
    if let Some(text) = context_overflow::reword(&text) {
        return text;
    }
    match failure {
        Failure::ContextTooLong(_) => too_long(&text),
        // "quota exceeded" stops hosts from retrying what no retry can fix.
        Failure::Upgrade(_) | Failure::Payment(_) => format!("{} (quota exceeded)", firm(&text)),
        Failure::Update(_) => with_sentence(&text, "Update cursor-sidecar and its extension."),
        Failure::TooManyTools(_) => with_sentence(&text, "Switch some tools off, then try again."),
        // We have retried it already, and the retries of a host would multiply ours.
        Failure::Persistent(_) => firm(&text),
        // A retry of the host sends the history instead of the checkpoint.
        Failure::StateLost(_) => format!("server error: {text}"),
        _ => match failure.retry() {
            Retry::Transport => format!("connection error: {text}"),
            Retry::Server => format!("server error: {text}"),
            Retry::Never | Retry::Idle => text,
        },
    }
}

/// Returns the text of an error. Servers also send `Error` alone, with or without its code, which
/// names no cause.
fn explained(text: &str) -> Cow<'_, str> {
    let code = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let reason = code.map_or(text, |(_, reason)| reason).trim();
    if !reason.is_empty() && !reason.eq_ignore_ascii_case("error") {
        return text.into();
    }
    let code = code
        .map(|(code, _)| format!(" [{code}]"))
        .unwrap_or_default();
    format!("Cursor reports an error without its reason{code}").into()
}

/// What a user of a front end can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserCommands {
    /// How to sign in.
    pub sign_in: &'static str,
    /// What shows the plan and its usage.
    pub usage: &'static str,
}

impl UserCommands {
    /// On the command line, and for hosts that have no commands of ours.
    pub const PROGRAM: Self = Self {
        sign_in: "`cursor-sidecar login`",
        usage: "`cursor-sidecar usage`",
    };
    /// In a host with slash commands.
    pub const SLASH: Self = Self {
        sign_in: "/login",
        usage: "/cursor-usage",
    };
}

/// Returns the text of an error with what the user can do next, unless it says that itself.
pub fn with_next_step(text: &str, cause: Option<&Cause>, commands: UserCommands) -> String {
    let UserCommands { sign_in, usage } = commands;
    let step = match cause {
        Some(Cause::Login) => format!("Sign in again with {sign_in}, or replace the key."),
        Some(Cause::Quota) => format!("The plan and what is used of it: {usage}."),
        Some(Cause::Overflow) => "Compact the conversation, or start a new one.".into(),
        Some(Cause::Model | Cause::Region) => "Choose another model.".into(),
        Some(Cause::Capacity | Cause::RateLimit | Cause::Upstream) => {
            "Send the message again in a minute.".into()
        }
        Some(Cause::Refused) => "The same request would be refused again: change the message \
             or the model, or start a new session."
            .into(),
        Some(
            Cause::Request
            | Cause::Silence
            | Cause::ContinuationLost(_)
            | Cause::Taken
            | Cause::Internal,
        )
        | None => return text.to_owned(),
    };
    // What was refused is a file or a certificate here, and its text says which.
    let lowered = text.to_lowercase();
    if cause == Some(&Cause::Refused) && (lowered.contains("cannot ") || lowered.contains("tls")) {
        return text.to_owned();
    }
    const STEPS: [&str; 7] = [
        "again",
        "sign in",
        "similar models",
        "set ",
        "create ",
        "check ",
        "update cursor-sidecar",
    ];
    if STEPS.iter().any(|step| lowered.contains(step)) {
        return text.to_owned();
    }
    with_sentence(text, &step)
}

/// Adds a sentence to a text that may lack its full stop.
fn with_sentence(text: &str, sentence: &str) -> String {
    match text.trim_end() {
        text if text.ends_with(['.', '!', '?']) => format!("{text} {sentence}"),
        text => format!("{text}. {sentence}"),
    }
}

/// Returns the text for a history that is too long.
pub fn too_long(problem: &str) -> String {
    format!("context_length_exceeded: {problem}")
}

/// Patterns on which old hosts retry or compact, whatever surrounds them, and what replaces them.
const FIRM: [(&str, &str); 14] = [
    (r"\brate.?limited\b", "limited"),
    (r"rate.?limit", "usage limit"),
    (r"too many requests", "more requests than allowed"),
    (r"too many tokens", "more tokens than allowed"),
    (r"token limit", "limit of tokens"),
    (r"\b429\b", "limit"),
    (r"\b500\b", "five hundred"),
    (r"exceeds the limit of", "is over the limit of"),
    (r"connection.?refused", "the connection was refused"),
    (r"connection.?(error|lost)", "the connection was lost"),
    (r"network.?error", "a problem of the network"),
    (r"timed? ?out", "took too long"),
    (r"other side closed|socket hang up|terminated", "closed"),
    (r"ended without", "had"),
];

static FIRMER: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let made = FIRM.iter().filter_map(|(soft, firm)| {
        let soft = Regex::new(&format!("(?i){soft}")).ok()?;
        Some((soft, *firm))
    });
    made.collect()
});

/// Rewords a limit that a retry does not lift.
fn firm(text: &str) -> String {
    FIRMER.iter().fold(text.to_owned(), |text, (soft, firm)| {
        soft.replace_all(&text, *firm).into_owned()
    })
}

/// A turn that cannot be recovered: the run that called tools is gone, and their results have no
/// receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {LOST} {}", Self::CODE, self.diagnostic())]
pub struct ContinuationLost {
    /// Whether a checkpoint was stored.
    pub had_checkpoint: bool,
    /// The session's key; only its prefix is shown.
    pub bridge_key: String,
    /// Why recovery was skipped.
    pub skip: Option<&'static str>,
}

/// What the user can do about it.
pub const LOST: &str = "Cursor tool continuation was lost because the live upstream bridge is no longer available. Retry from before the tool call or start a new turn.";

impl ContinuationLost {
    /// The error code for programs.
    pub const CODE: &'static str = "tool_continuation_lost";

    /// Returns the first eight digits of the session's key.
    pub fn prefix(&self) -> &str {
        self.bridge_key.get(..8).unwrap_or(&self.bridge_key)
    }

    /// Returns details that help to find the failure in a log.
    pub fn diagnostic(&self) -> String {
        let skip = self.skip.map(|skip| format!(" skipReason={skip}"));
        format!(
            "[diagnostic: hadStoredCheckpoint={} bridgeKeyPrefix={}{}]",
            self.had_checkpoint,
            self.prefix(),
            skip.unwrap_or_default()
        )
    }

    /// Returns the body of the HTTP error.
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
    fn an_error_without_a_reason_says_so() {
        for (text, wanted) in [
            ("Error", "Cursor reports an error without its reason"),
            (
                "[canceled] error",
                "Cursor reports an error without its reason [canceled]",
            ),
            (
                "[internal]",
                "Cursor reports an error without its reason [internal]",
            ),
            ("[internal] disk", "[internal] disk"),
        ] {
            let failure = Failure::Cancelled(text.into());
            assert_eq!(wording(&failure), wanted);
        }
    }

    #[test]
    fn an_error_says_what_to_do_next() {
        let step = |text, cause| with_next_step(text, Some(&cause), UserCommands::SLASH);
        assert_eq!(
            step("[unauthenticated] no", Cause::Login),
            "[unauthenticated] no. Sign in again with /login, or replace the key."
        );
        assert_eq!(
            step("Not here. Sorry.", Cause::Region),
            "Not here. Sorry. Choose another model."
        );
        let setup = "cannot read CA file x.pem";
        assert_eq!(step(setup, Cause::Refused), setup);
        let told = "Cursor cannot be reached. Check that this computer is online.";
        assert_eq!(step(told, Cause::Upstream), told);
        assert_eq!(with_next_step("x", None, UserCommands::PROGRAM), "x");
    }

    #[test]
    fn each_failure_has_the_text_hosts_match() {
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
                Failure::Update("too old".into()),
                "too old. Update cursor-sidecar and its extension.",
            ),
            (
                Failure::Persistent("cannot connect: Connection refused".into()),
                "cannot connect: the connection was refused",
            ),
            (
                Failure::Refused("maximum context length is 200k".into()),
                "context_length_exceeded: maximum context length is 200k",
            ),
        ];
        for (failure, wanted) in cases {
            assert_eq!(wording(&failure), wanted);
        }
    }

    /// pi 0.74 does not know "quota exceeded": these patterns alone make it retry or compact.
    #[test]
    fn no_host_retries_what_a_quota_refuses() {
        let retries = Regex::new(
            r"(?i)overloaded|rate.?limit|too many requests|429|500|502|503|504|service.?unavailable|server.?error|timed? out|timeout|retry delay",
        );
        let compacts =
            Regex::new(r"(?i)too many tokens|token limit exceeded|exceeds the limit of \d+");
        let (retries, compacts) = (retries.unwrap(), compacts.unwrap());
        let mut texts = Vec::new();
        for text in [
            "You are rate limited.",
            "Rate limit exceeded: 429 Too Many Requests",
            "rate_limit: ratelimit and RATE-LIMIT",
            "You have used all of your 500 fast requests",
            "Rate limit: too many tokens, token limit exceeded, exceeds the limit of 100",
        ] {
            assert!(
                retries.is_match(text),
                "the test knows what it is about: {text}"
            );
            for failure in [Failure::Upgrade(text.into()), Failure::Payment(text.into())] {
                let text = wording(&failure);
                assert!(
                    !retries.is_match(&text) && !compacts.is_match(&text),
                    "{text}"
                );
                texts.push(text);
            }
        }
        texts.dedup();
        insta::assert_snapshot!(texts.join("\n"), @r"
        You are limited. (quota exceeded)
        usage limit exceeded: limit more requests than allowed (quota exceeded)
        usage limit: usage limit and usage limit (quota exceeded)
        You have used all of your five hundred fast requests (quota exceeded)
        usage limit: more tokens than allowed, limit of tokens exceeded, is over the limit of 100 (quota exceeded)
        ");
        let busy = Failure::Server("rate limit".into());
        assert_eq!(wording(&busy), "server error: rate limit");
    }
}
