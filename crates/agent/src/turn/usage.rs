//! Token usage: what Cursor reported where that is plausible, else an estimate that is marked as
//! one.

use crate::conversation::{flat_message, image};
use crate::message::Message;
use crate::run::Usage;

/// Token usage of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Read by the model, without what came from the cache.
    pub input: u64,
    /// Written by the model.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
    /// The sum: the current size of the context.
    pub total: u64,
    /// Whether the numbers are reported or estimated.
    pub basis: Basis,
}

/// The source of usage numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Basis {
    /// Reported by Cursor.
    Reported,
    /// Estimated by us, at four characters per token.
    #[default]
    Estimated,
}

/// Limits that a plausible report does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The model's context window.
    pub window: u64,
    /// The most tokens the model may write.
    pub max_output: u64,
}

/// Estimates the tokens of a text from its length in UTF-16 units.
pub fn estimate(text: &str) -> u64 {
    tokens(units(text))
}

/// Returns the length of a text in UTF-16 units.
pub fn units(text: &str) -> u64 {
    text.encode_utf16().count() as u64
}

/// Estimates the tokens of a text of this many UTF-16 units.
pub fn tokens(units: u64) -> u64 {
    units.div_ceil(4)
}

/// Estimates the tokens of images.
pub fn pictures(count: usize) -> u64 {
    count as u64 * 1200
}

/// Estimates the tokens of messages without their images.
pub fn words(messages: &[Message]) -> u64 {
    let spoken = messages.iter().filter_map(flat_message::flatten);
    spoken.map(|spoken| estimate(&spoken.text)).sum()
}

/// Estimates the tokens of a system prompt and of messages, with the images that are sent.
pub fn context(system: &str, messages: &[Message]) -> u64 {
    estimate(system) + words(messages) + pictures(image::count_latest(messages))
}

/// What a turn sent and received, for an estimate where Cursor reports nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Tokens that were sent to the model in this turn.
    pub input: u64,
    /// Tokens the model wrote.
    pub output: u64,
    /// Tokens of the whole conversation by our estimate.
    pub context: u64,
    /// Tokens of the context as reported in the last checkpoint.
    pub occupied: Option<u64>,
}

/// Returns the usage of a turn. Counters that are cumulative over a whole run can exceed the
/// window; such a report is ignored, because a host would compact for nothing. The context size is
/// the checkpoint's where it has one.
pub fn account(reported: Option<Usage>, limits: Limits, seen: Seen) -> Tokens {
    let occupied = seen
        .occupied
        .filter(|used| *used > 0 && *used <= limits.window);
    if let Some(tokens) = reported.and_then(believed)
        && tokens.output <= limits.max_output
        && tokens.total <= limits.window
    {
        return Tokens {
            total: occupied.unwrap_or(tokens.total),
            ..tokens
        };
    }
    Tokens {
        input: seen.input,
        output: seen.output,
        total: occupied.unwrap_or((seen.input + seen.output).max(seen.context)),
        ..Tokens::default()
    }
}

fn believed(usage: Usage) -> Option<Tokens> {
    let count = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let tokens = Tokens {
        input: count(usage.input)?,
        output: count(usage.output)?,
        cache_read: count(usage.cache_read)?,
        cache_write: count(usage.cache_write)?,
        total: 0,
        basis: Basis::Reported,
    };
    let total = [
        tokens.input,
        tokens.output,
        tokens.cache_read,
        tokens.cache_write,
    ]
    .into_iter()
    .try_fold(0_u64, u64::checked_add)?;
    Some(Tokens { total, ..tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Content, MessageKind};

    const LIMITS: Limits = Limits {
        window: 1000,
        max_output: 100,
    };

    fn report(input: i64, output: i64, cache_read: i64) -> Option<Usage> {
        Some(Usage {
            input: Some(input),
            output: Some(output),
            cache_read: Some(cache_read),
            cache_write: Some(0),
            reasoning: None,
        })
    }

    const SEEN: Seen = Seen {
        input: 2,
        output: 3,
        context: 4,
        occupied: None,
    };

    #[test]
    fn a_plausible_report_is_used() {
        let tokens = account(report(100, 20, 30), LIMITS, SEEN);
        assert_eq!((tokens.total, tokens.basis), (150, Basis::Reported));
    }

    #[test]
    fn an_implausible_report_is_replaced_by_an_estimate() {
        for reported in [
            None,
            report(900, 20, 200),
            report(10, 101, 0),
            report(-1, 1, 1),
        ] {
            let tokens = account(reported, LIMITS, SEEN);
            assert_eq!(
                (tokens.input, tokens.output, tokens.total),
                (2, 3, 5),
                "{reported:?}"
            );
            assert_eq!(tokens.basis, Basis::Estimated);
        }
        let long = Seen {
            context: 77,
            ..SEEN
        };
        assert_eq!(account(None, LIMITS, long).total, 77);
    }

    #[test]
    fn the_context_size_is_cursors_own_count() {
        let counted = |used| Seen {
            occupied: Some(used),
            ..SEEN
        };
        assert_eq!(account(report(100, 20, 30), LIMITS, counted(80)).total, 80);
        assert_eq!(account(None, LIMITS, counted(80)).total, 80);
        for impossible in [0, 1001] {
            assert_eq!(account(None, LIMITS, counted(impossible)).total, 5);
        }
    }

    #[test]
    fn sent_images_are_counted() {
        let message = |text: &str| {
            let image = Content::Image {
                data: "AA".into(),
                mime_type: "image/png".into(),
            };
            Message::new(MessageKind::User(vec![Content::Text(text.into()), image]))
        };
        let answer = Message::assistant("ok");
        let messages = [message("one"), answer, message("two"), message("three")];
        let sent = context("four", &messages) - words(&messages);
        assert_eq!(sent, 2 * 1200 + 1, "those of the latest turn");
    }

    #[test]
    fn lengths_are_utf16_units() {
        assert_eq!(estimate("😀😀"), 1);
        assert_eq!(estimate(""), 0);
    }
}
