//! The fault matrix: two conversations, interrupted at every place by every kind of fault. One has
//! two rounds of host tools; one has concurrent calls and native tools.
//!
//! Every test run tries some places of each fault; `make faults` tries all of them and draws the
//! pictures in `docs/`. `FAULT_MATRIX` may also be a conversation (`rounds`, `tools`), a kind or
//! one place of it. Bytes are chosen at random: a failure prints the `FAULT_SEED` that reproduces
//! it.

mod host;
mod picture;
mod place;
mod server;
mod sidecar;
mod trial;

use std::collections::BTreeMap;
use std::sync::Mutex;

use place::FaultPosition;
use server::TrialScript;
use sidecar::SidecarHttp;
use trial::{FaultScope, KINDS, RecoveryKind, TrialKind, TrialResult, trial};

/// The number of concurrent trials.
const AT_ONCE: usize = 8;

/// Runs all trials of `plan`.
fn all(plan: &[(TrialKind, FaultPosition)]) -> Vec<((TrialKind, FaultPosition), TrialResult)> {
    let (next, results) = (Mutex::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let at = {
                        let mut next = next.lock().unwrap();
                        *next += 1;
                        *next - 1
                    };
                    let Some(one) = plan.get(at) else { return };
                    let result = trial(one.0, Some(one.1));
                    results.lock().unwrap().push((*one, result));
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[track_caller]
fn nothing_wrong(seed: u64, results: &[((TrialKind, FaultPosition), TrialResult)]) {
    let violations: Vec<String> = results
        .iter()
        .filter(|(_, results)| !results.violations.is_empty())
        .map(|(at, results)| {
            let ((kind, place), violations) = (at, results.violations.join("; "));
            format!(
                "{}@{place:?} ({:?}): {violations}",
                kind.word(),
                results.outcome
            )
        })
        .collect();
    assert!(
        violations.is_empty(),
        "{} of {} (FAULT_SEED={seed}; FAULT_MATRIX=<word>@<place> runs one again):\n{}",
        violations.len(),
        results.len(),
        violations.join("\n")
    );
}

/// Pseudo-random places; the same seed returns the same places.
fn scattered(seed: u64, count: usize, below: usize) -> impl Iterator<Item = usize> {
    // Xorshift never leaves zero.
    let mut seed = (seed ^ 0x9e37_79b9_7f4a_7c15).max(1);
    (0..count).map(move |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    })
}

#[test]
fn nothing_is_lost_wherever_it_breaks() {
    let wanted = std::env::var("FAULT_MATRIX").ok();
    // The seed is fixed in ordinary test runs and random when all places are tried.
    let seed = match (std::env::var("FAULT_SEED"), wanted.as_deref()) {
        (Ok(seed), _) => seed.parse().unwrap(),
        (Err(_), Some("all" | "rounds" | "tools")) => u64::from(getrandom::u32().unwrap()),
        (Err(_), _) => 0,
    };
    let mut plan = Vec::new();
    let mut smooth = BTreeMap::new();
    for (index, kind) in KINDS.into_iter().enumerate() {
        if kind.places == FaultScope::Pauses {
            plan.extend([0, 1].map(|round| (kind, FaultPosition::Pause(round))));
            continue;
        }
        let results = smooth.entry((kind.story, kind.http)).or_insert_with(|| {
            let results = trial(kind, None);
            assert_eq!(results.violations, [""; 0]);
            results
        });
        // HTTP/1.1 may carry several messages in one chunk.
        let least = match (kind.story, kind.http) {
            (TrialScript::Prompt | TrialScript::Busy, SidecarHttp::Two) => 60,
            _ => 40,
        };
        assert!(results.frames >= least, "{} frames", results.frames);
        let (frames, bytes): (Vec<usize>, _) = match (&wanted, index) {
            (Some(_), _) => ((0..results.frames).collect(), 20),
            // The first eight kinds are tried in more places than their variations.
            (None, 0..8) => (scattered(seed, 3, results.frames).collect(), 1),
            (None, _) if kind.story == TrialScript::Busy => {
                (scattered(seed, 2, results.frames).collect(), 0)
            }
            (None, _) => (scattered(seed, 2, results.frames).skip(1).collect(), 0),
        };
        let frames = frames.into_iter().map(FaultPosition::Frame);
        let places = frames.chain(scattered(seed, bytes, results.bytes).map(FaultPosition::Byte));
        plan.extend(places.map(|place| (kind, place)));
    }
    // Restrict the plan to one conversation, kind or place, for debugging.
    if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != "all") {
        plan.retain(|(kind, place)| {
            let word = kind.word();
            wanted == word || wanted == format!("{word}@{place:?}") || kind.story.is(wanted)
        });
        let words: Vec<String> = KINDS.iter().map(|kind| kind.word()).collect();
        assert!(!plan.is_empty(), "FAULT_MATRIX={wanted}: one of {words:?}");
    }
    let results = all(&plan);
    for conversation in ["rounds", "tools"] {
        if !matches!(&wanted, Some(wanted) if wanted == "all" || wanted == conversation) {
            continue;
        }
        let cells: BTreeMap<_, _> = results
            .iter()
            .filter(|((kind, _), _)| kind.story.is(conversation))
            .map(|((kind, place), results)| ((*kind, column(*place)), results))
            .collect();
        let file = format!("docs/fault-matrix-{conversation}.svg").replace("-rounds", "");
        std::fs::write(test_support::root().join(file), picture::draw(&cells)).unwrap();
    }
    if wanted.is_some() {
        eprintln!("FAULT_SEED={seed}");
        eprintln!("{}", picture::table(&results));
        for ((kind, place), results) in &results {
            if let Some(error) = &results.final_error {
                eprintln!("{}@{place:?} needs the person: {error}", kind.word());
            }
        }
    }
    nothing_wrong(seed, &results);
    let touched = results
        .iter()
        .filter(|(_, results)| results.outcome != RecoveryKind::Untouched);
    assert!(
        touched.count() * 10 >= results.len() * 9,
        "most faults must happen"
    );
    // A sidecar killed in a pause loses nothing, with a checkpoint or without.
    for ((kind, place), results) in &results {
        let wanted = match (kind.places, kind.story) {
            (FaultScope::Wire, _) => continue,
            (FaultScope::Pauses, TrialScript::Prompt | TrialScript::Busy) => {
                RecoveryKind::Recovered
            }
            // There is no checkpoint before the first call.
            (FaultScope::Pauses, TrialScript::Bare | TrialScript::Late | TrialScript::BusyBare) => {
                RecoveryKind::Rebuilt
            }
        };
        assert_eq!(results.outcome, wanted, "{}@{place:?}", kind.word());
    }
}

/// Orders frames first, then bytes, then pauses.
fn column(place: FaultPosition) -> (usize, usize) {
    match place {
        FaultPosition::Frame(frame) => (0, frame),
        FaultPosition::Byte(byte) => (1, byte),
        FaultPosition::Pause(round) => (2, round),
    }
}
