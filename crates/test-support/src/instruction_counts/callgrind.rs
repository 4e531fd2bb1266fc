//! Reads the output of callgrind.

use std::collections::HashMap;

/// Returns the instructions of each function together with those of all it called, by symbol.
/// Calls of a function by itself do not count again.
pub(super) fn inclusive_costs(output: &str) -> HashMap<String, u64> {
    let mut costs: HashMap<String, u64> = HashMap::new();
    let (mut caller, mut callee) = ("", "");
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=") {
            caller = name;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = name;
        } else if line.starts_with("calls=") {
            // The next line has the position and the cost of the calls.
            let cost = lines.next().and_then(|line| line.split(' ').nth(1));
            let cost: u64 = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
            if caller != callee {
                *costs.entry(callee.to_owned()).or_default() += cost;
            }
        }
    }
    costs
}

/// Returns whether a mangled symbol is that of a function whose path contains these names in this
/// order, the last at its end.
pub(super) fn is_named(symbol: &str, path: &[&str]) -> bool {
    let mut rest = symbol;
    let contains_all = path.iter().all(|name| {
        // A name is written after its length.
        let name = format!("{}{name}", name.len());
        match rest.find(&name) {
            Some(at) => {
                rest = &rest[at + name.len()..];
                true
            }
            None => false,
        }
    });
    // What follows is the hash of the older mangling, not a closure.
    contains_all && (rest.is_empty() || rest.starts_with("17h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_summed_by_callee() {
        let output = "events: Ir\n\nfn=main\n1 5\ncfn=work\ncalls=2 10\n1 300\n\
                      fn=work\n10 100\ncfn=work\ncalls=1 10\n11 50\nfn=other\n3 1\ncfn=work\n\
                      calls=1 10\n3 7\n";
        let costs = inclusive_costs(output);
        assert_eq!(costs, HashMap::from([("work".to_owned(), 307)]));
    }

    #[test]
    fn symbols_are_found_by_their_parts() {
        let symbol = "_ZN11agent_tools8handlers6search6Worker4file17h0123456789abcdefE";
        assert!(is_named(symbol, &["handlers", "search", "Worker", "file"]));
        assert!(is_named(
            "_RNvNtCs1_11agent_tools6search4file",
            &["search", "file"]
        ));
        for other in [&["Worker", "search"][..], &["handler", "file"], &["Worker"]] {
            assert!(!is_named(symbol, other), "{other:?}");
        }
        let closure = "_ZN5crate4file28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE";
        assert!(!is_named(closure, &["file"]));
    }
}
