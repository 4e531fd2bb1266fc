//! One conversation with two tool rounds, something that goes wrong in it, and what must hold
//! all the same.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::host::{Host, Reach};
use super::place::{Once, Place};
use super::server::{LOOK, Server, Story, WORDS};
use super::sidecar::{Http, Seat, left_behind};
use crate::wire::{self, Break};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Reset,
    GoAway,
    HalfClose,
    Stall,
    Garbage,
    KillSidecar,
    KillHost,
    RestartServer,
    Unavailable,
}

/// A kind of trial: what goes wrong, in which story, over which transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub fault: Fault,
    pub story: Story,
    pub http: Http,
    pub places: Places,
}

/// Where it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Places {
    /// Wherever the server sends something.
    Wire,
    /// While the host works.
    Pauses,
}

const fn kind(fault: Fault) -> Kind {
    Kind {
        fault,
        story: Story::Prompt,
        http: Http::Two,
        places: Places::Wire,
    }
}

const fn bare(fault: Fault) -> Kind {
    Kind {
        story: Story::Bare,
        ..kind(fault)
    }
}

const fn late(fault: Fault) -> Kind {
    Kind {
        story: Story::Late,
        ..kind(fault)
    }
}

const fn busy(fault: Fault) -> Kind {
    Kind {
        story: Story::Busy,
        ..kind(fault)
    }
}

const fn busy_bare(fault: Fault) -> Kind {
    Kind {
        story: Story::BusyBare,
        ..kind(fault)
    }
}

const fn http1(fault: Fault) -> Kind {
    Kind {
        http: Http::One,
        ..kind(fault)
    }
}

const fn in_pauses(kind: Kind) -> Kind {
    Kind {
        places: Places::Pauses,
        ..kind
    }
}

pub const KINDS: [Kind; 37] = [
    kind(Fault::Reset),
    kind(Fault::GoAway),
    kind(Fault::HalfClose),
    kind(Fault::Stall),
    kind(Fault::Garbage),
    kind(Fault::KillSidecar),
    kind(Fault::KillHost),
    kind(Fault::RestartServer),
    kind(Fault::Unavailable),
    http1(Fault::Reset),
    http1(Fault::Stall),
    http1(Fault::Unavailable),
    bare(Fault::Reset),
    bare(Fault::Unavailable),
    bare(Fault::KillSidecar),
    late(Fault::Reset),
    late(Fault::HalfClose),
    late(Fault::Unavailable),
    late(Fault::KillSidecar),
    late(Fault::KillHost),
    in_pauses(kind(Fault::KillSidecar)),
    in_pauses(bare(Fault::KillSidecar)),
    busy(Fault::Reset),
    busy(Fault::GoAway),
    busy(Fault::HalfClose),
    busy(Fault::Stall),
    busy(Fault::Garbage),
    busy(Fault::KillSidecar),
    busy(Fault::KillHost),
    busy(Fault::RestartServer),
    busy(Fault::Unavailable),
    busy_bare(Fault::Reset),
    busy_bare(Fault::Unavailable),
    busy_bare(Fault::KillSidecar),
    busy_bare(Fault::KillHost),
    in_pauses(busy(Fault::KillSidecar)),
    in_pauses(busy_bare(Fault::KillSidecar)),
];

impl Kind {
    /// Its name in one word, for whoever looks for a mistake.
    pub fn word(self) -> String {
        let fault = format!("{:?}", self.fault);
        let story = format!("-{:?}", self.story);
        let http = format!("-Http{:?}", self.http);
        let pauses = match self.places {
            Places::Wire => "",
            Places::Pauses => "-Pauses",
        };
        fault + &story.replace("-Prompt", "") + &http.replace("-HttpTwo", "") + pauses
    }
}

/// How a turn came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The place was never reached.
    Untouched,
    /// The fault cost nothing.
    WentOn,
    /// On from a checkpoint, in the same turn.
    Resumed,
    /// Results told on a checkpoint.
    Recovered,
    /// Results told on the host's history.
    Rebuilt,
    /// Asked again: by the run before anything was shown, by the host after an error, or by
    /// the person whose host had been killed.
    Again,
    /// An error that needed a word of the person; then all was well.
    TypedError,
}

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happened in a trial.
#[derive(Debug)]
pub struct Told {
    pub outcome: Outcome,
    /// What must never happen, and did.
    pub wrongs: Vec<String>,
    pub frames: usize,
    pub bytes: usize,
    /// Errors the host was given, final or not.
    pub errors: usize,
    /// The last one that needed the person.
    pub final_error: Option<String>,
    /// How often the host asked again by itself after one.
    pub retries: usize,
    /// How long the sidecar of a killed host stayed.
    pub orphaned: Duration,
}

impl Fault {
    fn on_wire(self) -> Break {
        match self {
            Self::Reset => Break::Reset,
            Self::GoAway => Break::GoAway,
            Self::HalfClose => Break::HalfClose,
            Self::Stall => Break::Stall,
            Self::Garbage => Break::Garbage,
            Self::Unavailable => Break::ServerError,
            Self::KillSidecar | Self::KillHost | Self::RestartServer => Break::Aside,
        }
    }
}

/// Tries it at one place, or nowhere.
pub fn trial(kind: Kind, place: Option<Place>) -> Told {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::new(Mutex::new(Server::new(folder.path(), kind.story)));
    let address = server.lock().unwrap().address;
    let seat = Arc::new(Seat::default());
    let (victim, restarted) = (Arc::clone(&seat), Arc::clone(&server));
    let aside = move || match kind.fault {
        Fault::RestartServer => restarted.lock().unwrap().restart(),
        Fault::KillHost => victim.kill_host(),
        _ => victim.kill_sidecar(),
    };
    let on_wire = place.map(|place| (place, kind.fault.on_wire()));
    let weather = Arc::new(Once::new(on_wire, aside));
    let port = wire::open(address, Arc::clone(&weather));
    let reach = Reach {
        port,
        http: kind.http,
    };
    let state = folder.path().to_owned();
    let tools = kind.story.calls();
    let mut host = Host::new(reach, state, Arc::clone(&seat), Arc::clone(&weather), tools);

    // A trial that hangs is ended by taking the sidecar away.
    let (over, wait) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hung = wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if hung {
            seat.kill_sidecar();
        }
        hung
    });
    let ended = host.says("tell me");
    let (frames, bytes) = weather.carried();
    let first = host.words();
    let after = host.says("and-then");
    drop(over);
    let hung = watchdog.join().unwrap();
    let recording = {
        let mut server = server.lock().unwrap();
        let recording = server.recording();
        server.stop();
        recording
    };
    let left = match host.leave() {
        true => left_behind(folder.path()),
        false => vec!["the sidecar".into()],
    };
    let log = std::fs::read_to_string(folder.path().join("debug.jsonl")).unwrap_or_default();
    if let Some(keep) = std::env::var_os("FAULT_LOG") {
        std::fs::write(keep, &log).unwrap();
    }

    let mut wrongs = Vec::new();
    let mut check = |wrong: bool, what: &dyn Fn() -> String| {
        if wrong {
            wrongs.push(what());
        }
    };
    check(hung, &|| "it hangs".into());
    check(!ended, &|| "the answer never comes to its end".into());
    check(!after, &|| "the next message is never answered".into());
    let whole: Vec<String> = (1..=WORDS).map(|n| format!("w-{n:02}")).collect();
    check(first != whole, &|| format!("it tells {}", first.join(" ")));
    let last = host.words();
    check(last != first, &|| {
        format!("later it tells {}", last.join(" "))
    });
    for (name, times) in &host.executed {
        check(*times > 1, &|| format!("{name} was executed {times} times"));
    }
    check(host.executed.len() != tools.len(), &|| {
        "a tool was never executed".into()
    });
    // What was broken off before it had begun, the server is told to look at.
    let throws = recording.client("execClientControlMessage.throw");
    let told_to_look = throws
        .iter()
        .any(|control| control.to_string().contains(LOOK));
    let lines = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    for line in kind.story.lines() {
        let times = lines.lines().filter(|left| left == line).count();
        check(times > 1, &|| format!("{line} {times} times"));
        check(times == 0 && !told_to_look, &|| {
            format!("{line} was never run")
        });
    }
    // Writing twice leaves nothing to count.
    let written = |line: &&str| {
        ["\"exec.answered\"", "\"WriteArgs\"", "\"done\""]
            .iter()
            .all(|part| line.contains(part))
    };
    let writes = log.lines().filter(written).count();
    check(writes > 1, &|| format!("written {writes} times"));
    let requests: String = recording
        .client("runRequest")
        .iter()
        .map(|request| request.to_string())
        .collect();
    // A server that was restarted remembers what came after.
    let remembered = usize::from(place.is_some() && kind.fault == Fault::RestartServer);
    for words in &host.said[remembered..] {
        check(!requests.contains(words.as_str()), &|| {
            format!("{words:?} never reached Cursor")
        });
    }
    let orphaned = host.orphaned.unwrap_or(Ok(Duration::ZERO));
    check(orphaned.is_err(), &|| {
        "the sidecar outlives its host".into()
    });
    check(!left.is_empty(), &|| {
        format!("left behind: {}", left.join(" "))
    });
    if !wrongs.is_empty() {
        let (errors, deaths) = (&host.errors, host.deaths);
        wrongs.push(format!("errors: {errors:?}; deaths: {deaths}"));
    }
    let outcome = judge(&host, place.is_some() && weather.broke(), &log);
    Told {
        outcome,
        wrongs,
        frames,
        bytes,
        errors: host.errors.len(),
        final_error: host.final_errors.pop(),
        retries: host.retries,
        orphaned: orphaned.unwrap_or_default(),
    }
}

fn judge(host: &Host, broke: bool, log: &str) -> Outcome {
    let said = |event: &str| log.contains(&format!("\"event\":\"{event}\""));
    if !broke {
        Outcome::Untouched
    } else if !host.final_errors.is_empty() {
        Outcome::TypedError
    } else if said("native.rebuild_full_history") {
        Outcome::Rebuilt
    } else if said("bridge.recovered_via_checkpoint") {
        Outcome::Recovered
    } else if log.contains("\"from\":\"checkpoint\"") {
        Outcome::Resumed
    } else if said("run.retry") || host.deaths > 0 || host.retries > 0 {
        Outcome::Again
    } else {
        Outcome::WentOn
    }
}
