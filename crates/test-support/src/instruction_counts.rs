//! Compares how many instructions functions take with stored counts, as callgrind counts them.
//!
//! A counted path runs on one thread and in memory, so the counts of one program hardly differ
//! between two runs, folders or environments: by less than 0.1 %, those of files by up to 2 %, because
//! their paths are longer or shorter. The margin is for changes of other code, which moves what is
//! allocated. Between compilers counts differ, so with another one than the stored counts are of the
//! margin is wide.

mod callgrind;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value as Json, json};

/// By how many percent a count may grow with the same compiler, and with another one.
const SAME_COMPILER: u64 = 10;
const OTHER_COMPILER: u64 = 100;
/// The variable that accepts new counts.
const UPDATE: &str = "UPDATE_COUNTS";

/// A function whose instructions are counted, together with those of all it calls.
pub struct CountedFunction {
    /// The name of the count.
    pub name: &'static str,
    /// Parts of the function's path, in order.
    pub path: &'static [&'static str],
}

/// Runs an ignored test of the current test program in callgrind, and fails if a function takes
/// more instructions than are stored for it in `tests/instruction_counts`.
pub fn assert_not_grown(program: &str, test: &str, functions: &[CountedFunction]) {
    let now = count(test, functions);
    let file = stored_counts(program);
    let build = build();
    if std::env::var_os(UPDATE).is_some() {
        let stored = json!({"build": build, "counts": now});
        let text = serde_json::to_string_pretty(&stored).unwrap();
        return std::fs::write(file, text + "\n").unwrap();
    }
    let stored: Json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let percent = if stored["build"] == build.as_str() {
        SAME_COMPILER
    } else {
        OTHER_COMPILER
    };
    let grown = grown(&stored["counts"], &now, percent);
    assert!(
        grown.is_empty(),
        "more than {percent} % more instructions (`make counts` accepts them):\n{}",
        grown.join("\n")
    );
}

fn stored_counts(program: &str) -> PathBuf {
    super::root().join(format!("tests/instruction_counts/{program}.json"))
}

/// Returns what decides which instructions are executed.
fn build() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let version = Command::new(rustc).arg("--version").output().unwrap();
    // The search for bytes has code of its own for it.
    #[cfg(target_arch = "x86_64")]
    let has_avx2 = is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let has_avx2 = false;
    format!(
        "{}, {}, AVX2: {has_avx2}, debug assertions: {}",
        String::from_utf8_lossy(&version.stdout).trim(),
        std::env::consts::ARCH,
        cfg!(debug_assertions)
    )
}

fn count(test: &str, functions: &[CountedFunction]) -> BTreeMap<&'static str, u64> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("callgrind.out");
    let program = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--demangle=no"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--test-threads=1"])
        .output()
        .expect("valgrind is needed: ./.ci/install valgrind");
    assert!(
        String::from_utf8_lossy(&program.stdout).contains("1 passed"),
        "{program:?}"
    );
    let costs = callgrind::inclusive_costs(&std::fs::read_to_string(output).unwrap());
    let count = |function: &CountedFunction| {
        let matching = costs
            .iter()
            .filter(|(symbol, _)| callgrind::is_named(symbol, function.path));
        let cost: u64 = matching.map(|(_, cost)| cost).sum();
        assert_ne!(cost, 0, "{} did not run", function.name);
        (function.name, cost)
    };
    functions.iter().map(count).collect()
}

/// Returns the lines about counts that grew by more than `percent`.
fn grown(stored: &Json, now: &BTreeMap<&str, u64>, percent: u64) -> Vec<String> {
    let line = |(name, now): (&&str, &u64)| match stored[*name].as_u64() {
        Some(before) if *now <= before + before * percent / 100 => None,
        Some(before) => Some(format!("{name}: {now}, was {before}")),
        None => Some(format!("{name}: {now}, was not counted")),
    };
    now.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_grow_within_its_margin() {
        let stored = json!({"decode": 1000, "plan": 1000});
        let grown = |counts: &[(&'static str, u64)]| {
            super::grown(&stored, &counts.iter().copied().collect(), 10)
        };
        assert!(grown(&[("decode", 1100), ("plan", 10)]).is_empty());
        assert_eq!(grown(&[("decode", 1101)]), ["decode: 1101, was 1000"]);
        assert_eq!(grown(&[("new", 1)]), ["new: 1, was not counted"]);
    }
}
