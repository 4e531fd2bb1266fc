//! Token usage. Cursor reports counters once per run, summed over all model calls of the run: they
//! say what a run cost, not what one message of a session contains. Hosts with sessions therefore
//! get the activity of each turn as an estimate, API clients get Cursor's counters, and a session
//! keeps their sums.

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
    /// The current size of the context.
    pub total: u64,
    /// The source of `total`.
    pub basis: Basis,
}

impl Tokens {
    /// Returns what the model read, from the cache or not.
    pub fn prompt(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

/// The source of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Basis {
    /// Reported by Cursor.
    Reported,
    /// Estimated by us, at four characters per token.
    #[default]
    Estimated,
}

/// Token usage of one request of an API client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestTokens {
    /// The tokens; `total` is their sum.
    pub tokens: Tokens,
    /// How many of the written ones were thinking, if Cursor reported it.
    pub reasoning: Option<u64>,
}

/// Cursor's counters of a session: the sums over its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionUsage {
    /// How many runs reported counters.
    pub runs: u64,
    /// The sums.
    pub counters: Usage,
    /// What the models read, from the cache or not.
    pub prompt: u64,
}

impl SessionUsage {
    /// Adds the counters of a run.
    pub fn add(&mut self, usage: Usage) {
        self.runs += 1;
        self.counters = self.counters.plus(usage);
        self.prompt += prompt(usage).unwrap_or_default();
    }
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
pub fn image_tokens(count: usize) -> u64 {
    count as u64 * 1200
}

/// Estimates the tokens of messages without their images.
pub fn message_tokens(messages: &[Message]) -> u64 {
    messages.iter().map(Message::text_tokens).sum()
}

/// Estimates the tokens of a message's text.
pub(crate) fn text_tokens(message: &Message) -> u64 {
    flat_message::flatten(message).map_or(0, |flat| estimate(&flat.text))
}

/// Estimates the tokens of a system prompt and of messages, with the images that are sent.
pub fn context(system: &str, messages: &[Message]) -> u64 {
    estimate(system) + message_tokens(messages) + image_tokens(image::count_latest(messages))
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

/// Returns the size of the context: Cursor's own count from the checkpoint, else our estimate.
fn context_size(limits: Limits, seen: Seen) -> (u64, Basis) {
    let occupied = seen
        .occupied
        .filter(|used| *used > 0 && *used <= limits.window);
    match occupied {
        Some(used) => (used, Basis::Reported),
        None => {
            let estimate = (seen.input + seen.output).max(seen.context);
            (estimate, Basis::Estimated)
        }
    }
}

/// Returns the activity of a turn: what was newly sent and written, each counted in one turn only,
/// and the size of the context.
pub fn activity(limits: Limits, seen: Seen) -> Tokens {
    let (total, basis) = context_size(limits, seen);
    Tokens {
        input: seen.input,
        output: seen.output,
        total,
        basis,
        ..Tokens::default()
    }
}

/// Returns the usage of one request of an API client: Cursor's counters, which the server reports
/// with the end of the run. Without them, as for an answer that ends with tool calls, and if they
/// cannot be of one request, it is an estimate of the whole prompt.
pub fn of_request(reported: Option<Usage>, limits: Limits, seen: Seen) -> RequestTokens {
    let counted = reported.and_then(counted);
    if let Some(request) = counted.filter(|request| request.tokens.total <= limits.window) {
        return request;
    }
    let (context, _) = context_size(limits, seen);
    let input = context.saturating_sub(seen.output).max(seen.input);
    let tokens = Tokens {
        input,
        output: seen.output,
        total: input + seen.output,
        ..Tokens::default()
    };
    RequestTokens {
        tokens,
        reasoning: None,
    }
}

fn count(value: Option<i64>) -> Option<u64> {
    value.and_then(|value| u64::try_from(value).ok())
}

/// Returns what the model read, from the cache or not. Clients of Cursor found the cached tokens
/// included in the input; a smaller input cannot include them.
fn prompt(usage: Usage) -> Option<u64> {
    let input = count(usage.input)?;
    let cached = count(usage.cache_read)?.checked_add(count(usage.cache_write)?)?;
    if input >= cached {
        Some(input)
    } else {
        input.checked_add(cached)
    }
}

fn counted(usage: Usage) -> Option<RequestTokens> {
    let (prompt, output) = (prompt(usage)?, count(usage.output)?);
    let cache_read = count(usage.cache_read)?;
    let cached = cache_read.checked_add(count(usage.cache_write)?)?;
    let tokens = Tokens {
        input: prompt - cached,
        output,
        cache_read,
        cache_write: cached - cache_read,
        total: prompt.checked_add(output)?,
        basis: Basis::Reported,
    };
    let reasoning = count(usage.reasoning).map(|reasoning| reasoning.min(output));
    Some(RequestTokens { tokens, reasoning })
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

    fn of(reported: Option<Usage>) -> Tokens {
        of_request(reported, LIMITS, SEEN).tokens
    }

    #[test]
    fn activity_is_never_cursors_counters() {
        let tokens = activity(LIMITS, SEEN);
        assert_eq!((tokens.input, tokens.output, tokens.total), (2, 3, 5));
        assert_eq!((tokens.cache_read, tokens.basis), (0, Basis::Estimated));
        let long = Seen {
            context: 77,
            ..SEEN
        };
        assert_eq!(activity(LIMITS, long).total, 77);
    }

    #[test]
    fn a_request_returns_the_counters_of_its_run() {
        let included = of(report(100, 20, 30));
        assert_eq!((included.input, included.cache_read), (70, 30));
        assert_eq!((included.total, included.basis), (120, Basis::Reported));
        let besides = of(report(10, 20, 30));
        assert_eq!((besides.input, besides.cache_read), (10, 30));
    }

    #[test]
    fn an_implausible_report_is_replaced_by_an_estimate() {
        for reported in [None, report(1100, 20, 200), report(-1, 1, 1)] {
            let tokens = of(reported);
            assert_eq!((tokens.input, tokens.output), (2, 3), "{reported:?}");
            assert_eq!(tokens.basis, Basis::Estimated);
        }
        let long = Seen {
            context: 77,
            ..SEEN
        };
        let tokens = of_request(None, LIMITS, long).tokens;
        assert_eq!((tokens.input, tokens.total), (74, 77), "the whole prompt");
    }

    #[test]
    fn the_context_size_is_cursors_own_count() {
        let counted = |used| Seen {
            occupied: Some(used),
            ..SEEN
        };
        let tokens = activity(LIMITS, counted(80));
        assert_eq!((tokens.total, tokens.basis), (80, Basis::Reported));
        for impossible in [0, 1001] {
            assert_eq!(activity(LIMITS, counted(impossible)).total, 5);
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
        let sent = context("four", &messages) - message_tokens(&messages);
        assert_eq!(sent, 2 * 1200 + 1, "those of the latest turn");
    }

    #[test]
    fn lengths_are_utf16_units() {
        assert_eq!(estimate("😀😀"), 1);
        assert_eq!(estimate(""), 0);
    }
}
