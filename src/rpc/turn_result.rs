//! The result of `turn/start`.

use super::protocol::*;
use agent::turn::Stop;
use agent::turn::usage::{Basis, Tokens};
use foundation::presentable;

/// Returns the result of a turn, with its cost at the host's rates.
pub(super) fn to_result(stop: Stop, tokens: Tokens, rates: Rates) -> TurnStartResult {
    let (stop_reason, error_message) = match stop {
        Stop::Finished => (StopReason::Stop, None),
        Stop::ToolUse => (StopReason::ToolUse, None),
        Stop::Aborted => (StopReason::Aborted, None),
        Stop::Failed(text) => (StopReason::Error, Some(presentable(&text))),
    };
    TurnStartResult {
        stop_reason,
        error_message,
        usage: TurnUsage {
            input: tokens.input,
            output: tokens.output,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_write,
            total_tokens: tokens.total,
            estimated: tokens.basis == Basis::Estimated,
            cost: cost(&tokens, rates),
        },
    }
}

/// Returns the result of a turn that ended before anything was sent.
pub(super) fn not_started(stop: Stop) -> TurnStartResult {
    to_result(stop, Tokens::default(), Rates::default())
}

fn cost(tokens: &Tokens, rates: Rates) -> TurnCost {
    let price = |tokens: u64, rate: f64| tokens as f64 * rate / 1e6;
    let mut cost = TurnCost {
        input: price(tokens.input, rates.input),
        output: price(tokens.output, rates.output),
        cache_read: price(tokens.cache_read, rates.cache_read),
        cache_write: price(tokens.cache_write, rates.cache_write),
        total: 0.0,
    };
    cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write;
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_follows_the_hosts_rates() {
        let tokens = Tokens {
            input: 1_000,
            output: 10,
            cache_read: 2_000_000,
            ..Tokens::default()
        };
        let rates = Rates {
            input: 2.0,
            output: 0.0,
            cache_read: 0.5,
            cache_write: 9.0,
        };
        let cost = to_result(Stop::Finished, tokens, rates).usage.cost;
        assert_eq!(
            (cost.input, cost.cache_read, cost.total),
            (0.002, 1.0, 1.002)
        );
        assert_eq!(not_started(Stop::Aborted).usage.cost, TurnCost::default());
    }
}
