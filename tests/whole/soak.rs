//! The soak: many sessions on a few sidecars, over a wire that keeps breaking, sidecars that
//! are killed, people who change their mind. Nothing may be said or done twice, every turn
//! ends, and what a sidecar takes of the machine stays flat.
//!
//! Every test run does a little of it; `make soak` does ten thousand turns.

mod chance;
mod session;
mod station;
mod weather;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chance::Chance;
use session::{CHAPTERS, ROUNDS, Session, Tally, story};
use station::{Measure, Station, Wrongs};
use weather::{Odds, Storm};

use crate::backend::{Simulator, Transport};
use crate::wire;

/// How much of it.
struct Size {
    sessions: usize,
    /// Each session begins a new history so often.
    phases: usize,
    /// Chapters of a history.
    chapters: usize,
    stations: usize,
    /// Turns at once.
    hands: usize,
    odds: Odds,
    voice: Voice,
}

/// Whether progress is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    Quiet,
    Loud,
}

const SMALL: Size = Size {
    sessions: 20,
    phases: 2,
    chapters: 1,
    stations: 2,
    hands: 16,
    odds: Odds {
        stream: 150,
        connection: 1_000,
    },
    voice: Voice::Quiet,
};

/// Turns of a history in which nothing goes wrong.
const TURNS: usize = CHAPTERS * (ROUNDS + 1);

impl Size {
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
            stations: 4,
            hands: 32,
            odds: Odds {
                stream: 250,
                connection: 4_000,
            },
            voice: Voice::Loud,
        }
    }
}

#[test]
fn soak_nothing_twice_nothing_lost_nothing_left() {
    let size = Size::wanted();
    let seed = std::env::var("SOAK_SEED").map_or(1, |seed| seed.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("soak.toml");
    std::fs::write(&scenario, story()).unwrap();
    let record = folder.path().join("record");
    let simulator = Simulator::recording_at(Transport::H2c, &scenario, &record);
    let address = simulator.url.trim_start_matches("http://").parse().unwrap();
    let storm = Arc::new(Storm::new(size.odds, seed));
    let port = wire::open(address, Arc::clone(&storm));
    let wrongs = Wrongs::default();
    let stations: Vec<Arc<Station>> = (0..size.stations)
        .map(|n| {
            let url = format!("http://127.0.0.1:{port}");
            let state = folder.path().join(format!("station-{n}"));
            Arc::new(Station::new(url, &state, &wrongs))
        })
        .collect();
    // The first station is killed now and then; the others are measured.
    let mut sessions: Vec<Session> = (0..size.sessions)
        .map(|n| {
            let at = n % size.stations;
            Session::new(format!("s{n:03}"), &stations[at], at == 0, &wrongs)
        })
        .collect();

    let (done, tally) = (AtomicU64::new(0), Mutex::new(Tally::new()));
    let begun = Instant::now();
    let mut measures: Vec<Vec<Measure>> = Vec::new();
    for phase in 0..size.phases {
        storm.calm(false);
        sessions = play(sessions, &size, seed + phase as u64, &done, &tally);
        storm.calm(true);
        measures.push(
            stations[1..]
                .iter()
                .map(|station| settle(station, &size))
                .collect(),
        );
        if size.voice == Voice::Loud {
            eprintln!(
                "phase {} of {}: {} turns in {:.0} s, {} wrongs, {:?}",
                phase + 1,
                size.phases,
                done.load(Ordering::Relaxed),
                begun.elapsed().as_secs_f64(),
                wrongs.lock().unwrap().len(),
                measures.last().unwrap(),
            );
        }
    }
    let heard: Vec<String> = sessions
        .iter_mut()
        .flat_map(|s| s.heard.drain(..))
        .collect();
    drop(sessions);
    let kills = stations[0].kills.load(Ordering::Relaxed);
    for station in stations {
        Arc::into_inner(station).unwrap().leave();
    }

    drop(simulator);
    let mut recorded = String::new();
    for entry in std::fs::read_dir(&record).unwrap().flatten() {
        if entry.path().extension().is_some_and(|end| end == "jsonl") {
            recorded += &std::fs::read_to_string(entry.path()).unwrap();
        }
    }
    let lost = unheard(&heard, &recorded);
    if !lost.is_empty() {
        let lost = format!(
            "{} of {} words never reached Cursor: {lost:?}",
            lost.len(),
            heard.len()
        );
        wrongs.lock().unwrap().push(lost);
    }
    let tally = tally.into_inner().unwrap();
    let told = summary(&size, &done, begun, kills, &storm, &tally, &measures);
    if size.voice == Voice::Loud {
        eprintln!("{told}");
    }
    let wrongs = wrongs.lock().unwrap();
    assert!(wrongs.is_empty(), "{}\n{told}", wrongs.join("\n"));
    for (first, last) in measures[0].iter().zip(&measures[size.phases - 1]) {
        flat(first, last, &size, &told);
    }
    let ended = tally.get("stop").copied().unwrap_or(0);
    assert!(storm.seen().values().sum::<u64>() > 0, "nothing broke");
    assert!(ended > 0, "no chapter comes through\n{told}");
}

/// What a person has said and no request carries: as words, or in a history's blobs.
pub fn unheard<'a>(said: &'a [String], recorded: &str) -> Vec<&'a String> {
    let pieces: HashSet<&str> = recorded.split(['(', ')']).collect();
    let plain = |words: &str| {
        let mark = words.split(['(', ')']).nth(1).unwrap();
        pieces.contains(mark)
    };
    let in_blob = |words: &str| {
        (0..3).any(|shift| {
            let bytes = format!("{}{words}", " ".repeat(shift));
            let code = STANDARD.encode(bytes);
            // The ends depend on what stands before and behind.
            recorded.contains(&code[4..code.len() - 4])
        })
    };
    said.iter()
        .filter(|words| !plain(words) && !in_blob(words))
        .collect()
}

/// Has every session tell its story from the beginning, a few turns at once: a session whose
/// turn is over waits until the others have had theirs.
fn play(
    sessions: Vec<Session>,
    size: &Size,
    seed: u64,
    done: &AtomicU64,
    tally: &Mutex<Tally>,
) -> Vec<Session> {
    let waiting: Mutex<VecDeque<Session>> = Mutex::new(
        sessions
            .into_iter()
            .map(|mut session| {
                session.begin_anew();
                session
            })
            .collect(),
    );
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for hand in 0..size.hands {
            let (waiting, told) = (&waiting, &told);
            scope.spawn(move || {
                let mut chance = Chance::new(seed * 1_000 + hand as u64 + 1);
                loop {
                    let next = waiting.lock().unwrap().pop_front();
                    let Some(mut session) = next else { return };
                    let how = session.step(&mut chance);
                    *tally.lock().unwrap().entry(how).or_default() += 1;
                    let turns = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if size.voice == Voice::Loud && turns.is_multiple_of(500) {
                        eprintln!("{turns} turns");
                    }
                    match session.has_told(size.chapters) {
                        true => told.lock().unwrap().push(session),
                        false => waiting.lock().unwrap().push_back(session),
                    }
                }
            });
        }
    });
    told.into_inner().unwrap()
}

impl Size {
    /// What an idle sidecar may have: its sessions, its doors, its connections.
    fn idle_tasks(&self) -> u64 {
        (self.sessions / self.stations) as u64 + 16
    }
}

/// The main one, two workers, and those that watch over the process.
const IDLE_THREADS: u64 = 8;
/// Runs that were given up have some seconds for their last checkpoint.
const SETTLED_WITHIN: Duration = Duration::from_secs(15);

/// What a sidecar takes once nothing is under way.
fn settle(station: &Station, size: &Size) -> Measure {
    let begun = Instant::now();
    let busy = || station.threads() > IDLE_THREADS || station.tasks() > size.idle_tasks();
    while busy() && begun.elapsed() < SETTLED_WITHIN {
        std::thread::yield_now();
    }
    station.measure()
}

/// Whether the last measure is as the one after the first phase.
#[track_caller]
fn flat(first: &Measure, last: &Measure, size: &Size, told: &str) {
    let check = |what: &str, holds: bool| {
        assert!(holds, "{what} grew from {first:?} to {last:?}\n{told}");
    };
    check("memory", last.rss_kib <= first.rss_kib * 5 / 4 + 16 * 1024);
    check("the number of files", last.fds <= first.fds + 8);
    check("the number of threads", last.threads <= IDLE_THREADS);
    check("the number of tasks", last.tasks <= size.idle_tasks());
    check("the disk", last.disk <= first.disk * 5 / 4 + 64 * 1024);
}

fn summary(
    size: &Size,
    done: &AtomicU64,
    begun: Instant,
    kills: u64,
    storm: &Storm,
    tally: &Tally,
    measures: &[Vec<Measure>],
) -> String {
    let turns = done.load(Ordering::Relaxed);
    let mut told = format!(
        "{turns} turns over {} sessions on {} sidecars in {:.0} s; {kills} sidecars killed\nbroken: {:?}\n",
        size.sessions,
        size.stations,
        begun.elapsed().as_secs_f64(),
        storm.seen(),
    );
    for (how, times) in tally {
        told += &format!("{times:>7}  {how}\n");
    }
    told += "phase  sidecar   RSS KiB    fds  threads  tasks  disk KiB\n";
    for (phase, stations) in measures.iter().enumerate() {
        for (station, measure) in stations.iter().enumerate() {
            told += &format!(
                "{:>5}  {:>7}  {:>8}  {:>5}  {:>7}  {:>5}  {:>8}\n",
                phase + 1,
                station + 2,
                measure.rss_kib,
                measure.fds,
                measure.threads,
                measure.tasks,
                measure.disk / 1024,
            );
        }
    }
    told
}
