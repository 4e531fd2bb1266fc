//! The fault matrix: a conversation with two tool rounds, cut off everywhere in every way.
//!
//! Every test run tries some places of each fault; `make faults` tries all of them and draws
//! the table in `docs/`.

mod host;
mod picture;
mod place;
mod server;
mod sidecar;
mod trial;

use std::collections::BTreeMap;
use std::sync::Mutex;

use place::Place;
use server::Story;
use trial::{FAULTS, Fault, Outcome, Told, trial};

/// Trials mostly wait for each other's pauses.
const AT_ONCE: usize = 8;

/// Tries all of `plan`.
fn all(story: Story, plan: &[(Fault, Place)]) -> Vec<((Fault, Place), Told)> {
    let (next, told) = (Mutex::new(0), Mutex::new(Vec::new()));
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
                    let result = trial(story, Some(*one));
                    told.lock().unwrap().push((*one, result));
                }
            });
        }
    });
    told.into_inner().unwrap()
}

#[track_caller]
fn nothing_wrong(told: &[((Fault, Place), Told)]) {
    let wrongs: Vec<String> = told
        .iter()
        .filter(|(_, told)| !told.wrongs.is_empty())
        .map(|(at, told)| format!("{at:?} ({:?}): {}", told.outcome, told.wrongs.join("; ")))
        .collect();
    assert!(
        wrongs.is_empty(),
        "{} of {}:\n{}",
        wrongs.len(),
        told.len(),
        wrongs.join("\n")
    );
}

/// The same places every time, spread like chance.
fn scattered(count: usize, below: usize) -> impl Iterator<Item = usize> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    })
}

#[test]
fn nothing_is_lost_wherever_it_breaks() {
    wherever_it_breaks(Story::Prompt);
}

#[test]
fn nothing_is_lost_wherever_it_breaks_among_late_checkpoints() {
    wherever_it_breaks(Story::Late);
}

fn wherever_it_breaks(story: Story) {
    let smooth = trial(story, None);
    assert_eq!(smooth.wrongs, [""; 0]);
    assert!(smooth.frames >= 60, "{} frames", smooth.frames);
    let wanted = std::env::var("FAULT_MATRIX").ok();
    let (frames, bytes, some) = match &wanted {
        Some(_) => ((0..smooth.frames).collect(), 20, "all"),
        None => (scattered(3, smooth.frames).collect::<Vec<_>>(), 1, ""),
    };
    let mut plan = Vec::new();
    for fault in FAULTS {
        let frames = frames.iter().map(|frame| Place::Frame(*frame));
        let places = frames.chain(scattered(bytes, smooth.bytes).map(Place::Byte));
        plan.extend(places.map(|place| (fault, place)));
    }
    // One fault, or one place of it, for whoever looks for a mistake.
    if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != some) {
        plan.retain(|(fault, place)| {
            let name = format!("{fault:?}");
            wanted == name || wanted == format!("{name}@{place:?}")
        });
    }
    let told = all(story, &plan);
    if wanted.as_deref() == Some("all") && story == Story::Prompt {
        let root = crate::backend::root().join("docs");
        let cells: BTreeMap<_, _> = told
            .iter()
            .map(|((fault, place), told)| ((*fault, column(*place)), told))
            .collect();
        std::fs::write(root.join("fault-matrix.svg"), picture::draw(&cells)).unwrap();
    }
    if wanted.is_some() {
        eprintln!("{story:?}\n{}", picture::table(&told));
        let killed = |fault| fault == Fault::KillSidecar;
        for ((fault, place), told) in told.iter().filter(|((fault, _), _)| !killed(*fault)) {
            if let Some(error) = &told.final_error {
                eprintln!("{fault:?}@{place:?} needs the person: {error}");
            }
        }
    }
    nothing_wrong(&told);
    let touched = told
        .iter()
        .filter(|(_, told)| told.outcome != Outcome::Untouched);
    assert!(
        touched.count() * 10 >= told.len() * 9,
        "most faults must happen"
    );
}

/// Frames first, then bytes, both in order.
fn column(place: Place) -> (usize, usize) {
    match place {
        Place::Frame(frame) => (0, frame),
        Place::Byte(byte) => (1, byte),
    }
}
