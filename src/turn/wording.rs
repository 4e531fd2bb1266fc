//! How a failure is told to a host, so that it compacts, tries again or leaves it.
//!
//! Hosts such as pi decide by the words of an error: these are the words.

use super::overflow;
use crate::wire::failure::{Failure, Retry};

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
            Retry::Never => text,
        },
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
