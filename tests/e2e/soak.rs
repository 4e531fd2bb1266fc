//! The soak test: many sessions on a few sidecars, over a connection that keeps breaking, with
//! sidecars that are killed and users who abort. It checks that nothing is sent or executed twice,
//! that every turn ends, and that the resource use of a sidecar stays flat.
//!
//! Every test run does a small version; `make soak` does ten thousand turns.

mod random;
mod random_faults;
mod session;
mod shared_sidecar;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use random::RandomNumbers;
use random_faults::{FaultRates, RandomFaults};
use session::{CHAPTERS, ROUNDS, SoakSession, TurnEndCounts, story};
use shared_sidecar::{Measure, SharedSidecar, Violations};

use test_support::fault_proxy;
use test_support::simulator::{Simulator, Transport};

/// How much to run.
struct SoakSize {
    sessions: usize,
    /// How often each session starts a new history.
    phases: usize,
    /// Chapters per history.
    chapters: usize,
    sidecars: usize,
    /// Concurrent turns.
    workers: usize,
    rates: FaultRates,
    prints_progress: bool,
}

const SMALL: SoakSize = SoakSize {
    sessions: 20,
    phases: 2,
    chapters: 1,
    sidecars: 2,
    workers: 16,
    rates: FaultRates {
        stream: 150,
        connection: 1_000,
    },
    prints_progress: false,
};

/// Number of turns of a history without faults.
const TURNS: usize = CHAPTERS * (ROUNDS + 1);

impl SoakSize {
    fn wanted() -> Self {
        let turns = std::env::var("SOAK_TURNS").ok();
        let Some(turns) = turns.map(|turns| turns.parse::<usize>().unwrap()) else {
            return SMALL;
        };
        let sessions = 200.min(turns / TURNS).max(1);
        Self {
            sessions,
            phases: turns.div_ceil(sessions * TURNS).max(2),
            chapters: CHAPTERS,
            sidecars: 4,
            workers: 32,
            rates: FaultRates {
                stream: 250,
                connection: 4_000,
            },
            prints_progress: true,
        }
    }
}

#[test]
fn soak_nothing_is_repeated_lost_or_left_running() {
    let size = SoakSize::wanted();
    let seed = std::env::var("SOAK_SEED").map_or(1, |seed| seed.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("soak.toml");
    std::fs::write(&scenario, story()).unwrap();
    let record = folder.path().join("record");
    let simulator = Simulator::recording_at(Transport::H2c, &scenario, &record);
    let address = simulator.url.trim_start_matches("http://").parse().unwrap();
    let faults = Arc::new(RandomFaults::new(size.rates, seed));
    let port = fault_proxy::open(address, Arc::clone(&faults));
    let violations = Violations::default();
    let sidecars: Vec<Arc<SharedSidecar>> = (0..size.sidecars)
        .map(|n| {
            let url = format!("http://127.0.0.1:{port}");
            let state = folder.path().join(format!("shared_sidecar-{n}"));
            Arc::new(SharedSidecar::new(url, &state, &violations))
        })
        .collect();
    // The sidecar of the first shared_sidecar is killed now and then; only the others are measured.
    let mut sessions: Vec<SoakSession> = (0..size.sessions)
        .map(|n| {
            let at = n % size.sidecars;
            SoakSession::new(format!("s{n:03}"), &sidecars[at], at == 0, &violations)
        })
        .collect();

    let (done, endings) = (AtomicU64::new(0), Mutex::new(TurnEndCounts::new()));
    let begun = Instant::now();
    let mut measures: Vec<Vec<Measure>> = Vec::new();
    for phase in 0..size.phases {
        faults.set_paused(false);
        sessions = play(sessions, &size, seed + phase as u64, &done, &endings);
        faults.set_paused(true);
        measures.push(
            sidecars[1..]
                .iter()
                .map(|shared_sidecar| settle(shared_sidecar, &size))
                .collect(),
        );
        if size.prints_progress {
            eprintln!(
                "phase {} of {}: {} turns in {:.0} s, {} violations, {:?}",
                phase + 1,
                size.phases,
                done.load(Ordering::Relaxed),
                begun.elapsed().as_secs_f64(),
                violations.lock().unwrap().len(),
                measures.last().unwrap(),
            );
        }
    }
    let delivered: Vec<String> = sessions
        .iter_mut()
        .flat_map(|s| s.delivered.drain(..))
        .collect();
    drop(sessions);
    let kills = sidecars[0].kills.load(Ordering::Relaxed);
    for shared_sidecar in sidecars {
        Arc::into_inner(shared_sidecar).unwrap().shut_down();
    }

    drop(simulator);
    let mut recorded = String::new();
    for entry in std::fs::read_dir(&record).unwrap().flatten() {
        if entry.path().extension().is_some_and(|end| end == "jsonl") {
            recorded += &std::fs::read_to_string(entry.path()).unwrap();
        }
    }
    let lost = undelivered(&delivered, &recorded);
    if !lost.is_empty() {
        let lost = format!(
            "{} of {} words never reached Cursor: {lost:?}",
            lost.len(),
            delivered.len()
        );
        violations.lock().unwrap().push(lost);
    }
    let endings = endings.into_inner().unwrap();
    let report = summary(&size, &done, begun, kills, &faults, &endings, &measures);
    if size.prints_progress {
        eprintln!("{report}");
    }
    let violations = violations.lock().unwrap();
    assert!(violations.is_empty(), "{}\n{report}", violations.join("\n"));
    for (first, last) in measures[0].iter().zip(&measures[size.phases - 1]) {
        flat(first, last, &size, &report);
    }
    let ended = endings.get("stop").copied().unwrap_or(0);
    assert!(faults.seen().values().sum::<u64>() > 0, "nothing broke");
    assert!(ended > 0, "no chapter comes through\n{report}");
}

/// Returns the user messages that no request contains, neither as text nor in a blob.
pub fn undelivered<'a>(sent: &'a [String], recorded: &str) -> Vec<&'a String> {
    let pieces: HashSet<&str> = recorded.split(['(', ')']).collect();
    let plain = |words: &str| {
        let mark = words.split(['(', ')']).nth(1).unwrap();
        pieces.contains(mark)
    };
    let in_blob = |words: &str| {
        (0..3).any(|shift| {
            let bytes = format!("{}{words}", " ".repeat(shift));
            let code = STANDARD.encode(bytes);
            // Base64 at both ends depends on the adjacent bytes.
            recorded.contains(&code[4..code.len() - 4])
        })
    };
    sent.iter()
        .filter(|words| !plain(words) && !in_blob(words))
        .collect()
}

/// Plays every session's story from the beginning, a few turns at a time. After a turn, a session
/// waits until the others have had theirs.
fn play(
    sessions: Vec<SoakSession>,
    size: &SoakSize,
    seed: u64,
    done: &AtomicU64,
    endings: &Mutex<TurnEndCounts>,
) -> Vec<SoakSession> {
    let waiting: Mutex<VecDeque<SoakSession>> = Mutex::new(
        sessions
            .into_iter()
            .map(|mut session| {
                session.start_conversation();
                session
            })
            .collect(),
    );
    let report = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for hand in 0..size.workers {
            let (waiting, report) = (&waiting, &report);
            scope.spawn(move || {
                let mut random = RandomNumbers::new(seed * 1_000 + hand as u64 + 1);
                loop {
                    let next = waiting.lock().unwrap().pop_front();
                    let Some(mut session) = next else { return };
                    let how = session.step(&mut random);
                    *endings.lock().unwrap().entry(how).or_default() += 1;
                    let turns = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if size.prints_progress && turns.is_multiple_of(500) {
                        eprintln!("{turns} turns");
                    }
                    if session.has_finished(size.chapters) {
                        report.lock().unwrap().push(session)
                    } else {
                        waiting.lock().unwrap().push_back(session)
                    }
                }
            });
        }
    });
    report.into_inner().unwrap()
}

impl SoakSize {
    /// Upper limit of tasks in an idle sidecar: its sessions, front ends and connections.
    fn idle_tasks(&self) -> u64 {
        (self.sessions / self.sidecars) as u64 + 16
    }
}

/// The main thread, two workers, and those that monitor the process.
const IDLE_THREADS: u64 = 8;
/// Cancelled runs are drained for some seconds to receive their last checkpoint.
const SETTLED_WITHIN: Duration = Duration::from_secs(15);

/// Waits until a sidecar is idle and returns its resource use.
fn settle(shared_sidecar: &SharedSidecar, size: &SoakSize) -> Measure {
    let begun = Instant::now();
    let busy =
        || shared_sidecar.threads() > IDLE_THREADS || shared_sidecar.tasks() > size.idle_tasks();
    while busy() && begun.elapsed() < SETTLED_WITHIN {
        std::thread::yield_now();
    }
    shared_sidecar.measure()
}

/// Checks that the last measurement is about the same as the one after the first phase.
#[track_caller]
fn flat(first: &Measure, last: &Measure, size: &SoakSize, report: &str) {
    let check = |what: &str, holds: bool| {
        assert!(holds, "{what} grew from {first:?} to {last:?}\n{report}");
    };
    check("memory", last.rss_kib <= first.rss_kib * 5 / 4 + 16 * 1024);
    check("the number of files", last.fds <= first.fds + 8);
    check("the number of threads", last.threads <= IDLE_THREADS);
    check("the number of tasks", last.tasks <= size.idle_tasks());
    check("the disk", last.disk <= first.disk * 5 / 4 + 64 * 1024);
}

fn summary(
    size: &SoakSize,
    done: &AtomicU64,
    begun: Instant,
    kills: u64,
    faults: &RandomFaults,
    endings: &TurnEndCounts,
    measures: &[Vec<Measure>],
) -> String {
    let turns = done.load(Ordering::Relaxed);
    let mut report = format!(
        "{turns} turns over {} sessions on {} sidecars in {:.0} s; {kills} sidecars killed\nbroken: {:?}\n",
        size.sessions,
        size.sidecars,
        begun.elapsed().as_secs_f64(),
        faults.seen(),
    );
    for (how, times) in endings {
        report += &format!("{times:>7}  {how}\n");
    }
    report += "phase  sidecar   RSS KiB    fds  threads  tasks  disk KiB\n";
    for (phase, sidecars) in measures.iter().enumerate() {
        for (shared_sidecar, measure) in sidecars.iter().enumerate() {
            report += &format!(
                "{:>5}  {:>7}  {:>8}  {:>5}  {:>7}  {:>5}  {:>8}\n",
                phase + 1,
                shared_sidecar + 2,
                measure.rss_kib,
                measure.fds,
                measure.threads,
                measure.tasks,
                measure.disk / 1024,
            );
        }
    }
    report
}
