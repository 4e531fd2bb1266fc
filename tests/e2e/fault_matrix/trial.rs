//! One conversation with two tool rounds, a fault in it, and the checks that must hold anyway.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::host::{HostProgress, TrialHost};
use super::place::{FaultPosition, SingleFault};
use super::server::{LOOK, ScriptSimulator, TrialScript, WORDS};
use super::sidecar::{SidecarControl, SidecarHttp, leftovers};

use test_support::fault_proxy;
use test_support::fault_proxy::WireFault;

/// The fault.
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

/// A kind of trial: which fault, in which story, over which transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialKind {
    pub fault: Fault,
    pub story: TrialScript,
    pub http: SidecarHttp,
    pub places: FaultScope,
}

/// Where the fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultScope {
    /// At any frame or byte the server sends.
    Wire,
    /// While the host executes tools.
    Pauses,
}

const fn kind(fault: Fault) -> TrialKind {
    TrialKind {
        fault,
        story: TrialScript::Prompt,
        http: SidecarHttp::Two,
        places: FaultScope::Wire,
    }
}

const fn bare(fault: Fault) -> TrialKind {
    TrialKind {
        story: TrialScript::Bare,
        ..kind(fault)
    }
}

const fn late(fault: Fault) -> TrialKind {
    TrialKind {
        story: TrialScript::Late,
        ..kind(fault)
    }
}

const fn busy(fault: Fault) -> TrialKind {
    TrialKind {
        story: TrialScript::Busy,
        ..kind(fault)
    }
}

const fn busy_bare(fault: Fault) -> TrialKind {
    TrialKind {
        story: TrialScript::BusyBare,
        ..kind(fault)
    }
}

const fn http1(fault: Fault) -> TrialKind {
    TrialKind {
        http: SidecarHttp::One,
        ..kind(fault)
    }
}

const fn in_pauses(kind: TrialKind) -> TrialKind {
    TrialKind {
        places: FaultScope::Pauses,
        ..kind
    }
}

pub const KINDS: [TrialKind; 37] = [
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

impl TrialKind {
    /// Returns a short name for logs.
    pub fn word(self) -> String {
        let fault = format!("{:?}", self.fault);
        let story = format!("-{:?}", self.story);
        let http = format!("-Http{:?}", self.http);
        let pauses = match self.places {
            FaultScope::Wire => "",
            FaultScope::Pauses => "-Pauses",
        };
        fault + &story.replace("-Prompt", "") + &http.replace("-HttpTwo", "") + pauses
    }
}

/// How a turn recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecoveryKind {
    /// The fault did not occur.
    Untouched,
    /// No recovery was needed.
    WentOn,
    /// Resumed from a checkpoint, in the same turn.
    Resumed,
    /// Results sent with a checkpoint.
    Recovered,
    /// Results sent with the host's transcript.
    Rebuilt,
    /// Retried: by the run before any output, by the host after an error, or by the user of a
    /// killed host.
    Again,
    /// An error that needed another user message; then the turn succeeded.
    TypedError,
}

/// Time limit of a trial; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    pub outcome: RecoveryKind,
    /// Violations found.
    pub violations: Vec<String>,
    pub frames: usize,
    pub bytes: usize,
    /// Errors the host received, final or not.
    pub errors: usize,
    /// The last error that needed the user.
    pub final_error: Option<String>,
    /// How often the host retried after an error by itself.
    pub retries: usize,
    /// How long the sidecar of a killed host kept running.
    pub orphaned: Duration,
}

impl Fault {
    fn on_wire(self) -> WireFault {
        match self {
            Self::Reset => WireFault::Reset,
            Self::GoAway => WireFault::GoAway,
            Self::HalfClose => WireFault::HalfClose,
            Self::Stall => WireFault::Stall,
            Self::Garbage => WireFault::Garbage,
            Self::Unavailable => WireFault::ServerError,
            Self::KillSidecar | Self::KillHost | Self::RestartServer => WireFault::Elsewhere,
        }
    }
}

/// Runs one trial with the fault at `place`, or without a fault.
pub fn trial(kind: TrialKind, place: Option<FaultPosition>) -> TrialResult {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::new(Mutex::new(ScriptSimulator::new(folder.path(), kind.story)));
    let address = server.lock().unwrap().address;
    let control = Arc::new(SidecarControl::default());
    let (victim, restarted) = (Arc::clone(&control), Arc::clone(&server));
    let aside = move || match kind.fault {
        Fault::RestartServer => restarted.lock().unwrap().restart(),
        Fault::KillHost => victim.kill_host(),
        _ => victim.kill_sidecar(),
    };
    let on_wire = place.map(|place| (place, kind.fault.on_wire()));
    let faults = Arc::new(SingleFault::new(on_wire, aside));
    let port = fault_proxy::open(address, Arc::clone(&faults));
    let reach = HostProgress {
        port,
        http: kind.http,
    };
    let state = folder.path().to_owned();
    let tools = kind.story.calls();
    let mut host = TrialHost::new(
        reach,
        state,
        Arc::clone(&control),
        Arc::clone(&faults),
        tools,
    );

    // If a trial hangs, killing the sidecar ends it.
    let (over, wait) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hung = wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if hung {
            control.kill_sidecar();
        }
        hung
    });
    let ended = host.says("tell me");
    let (frames, bytes) = faults.carried();
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
    let left = if host.shut_down() {
        leftovers(folder.path())
    } else {
        vec!["the sidecar".into()]
    };
    let log = std::fs::read_to_string(folder.path().join("debug.jsonl")).unwrap_or_default();
    if let Some(keep) = std::env::var_os("FAULT_LOG") {
        std::fs::write(keep, &log).unwrap();
    }

    let mut violations = Vec::new();
    let mut check = |wrong: bool, what: &dyn Fn() -> String| {
        if wrong {
            violations.push(what());
        }
    };
    check(hung, &|| "it hangs".into());
    check(!ended, &|| "the answer never comes to its end".into());
    check(!after, &|| "the next message is never answered".into());
    let whole: Vec<String> = (1..=WORDS).map(|n| format!("w-{n:02}")).collect();
    check(first != whole, &|| {
        format!("its text is {}", first.join(" "))
    });
    let last = host.words();
    check(last != first, &|| {
        format!("later its text is {}", last.join(" "))
    });
    for (name, times) in &host.executed {
        check(*times > 1, &|| format!("{name} was executed {times} times"));
    }
    check(host.executed.len() != tools.len(), &|| {
        "a tool was never executed".into()
    });
    // A command that was interrupted before it started is reported to the server as unknown.
    let throws = recording.client("execClientControlMessage.throw");
    let warned = throws
        .iter()
        .any(|control| control.to_string().contains(LOOK));
    let lines = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    for line in kind.story.lines() {
        let times = lines.lines().filter(|left| left == line).count();
        check(times > 1, &|| format!("{line} {times} times"));
        check(times == 0 && !warned, &|| format!("{line} was never run"));
    }
    // Counted in the log, because a second write leaves no trace in the file.
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
    // A restarted server has recorded only what was sent after the restart.
    let remembered = usize::from(place.is_some() && kind.fault == Fault::RestartServer);
    for words in &host.sent_texts[remembered..] {
        check(!requests.contains(words.as_str()), &|| {
            format!("{words:?} never reached Cursor")
        });
    }
    let orphaned = host.orphaned.unwrap_or(Ok(Duration::ZERO));
    check(orphaned.is_err(), &|| {
        "the sidecar outlives its host".into()
    });
    check(!left.is_empty(), &|| {
        format!("leftovers: {}", left.join(" "))
    });
    if !violations.is_empty() {
        let (errors, deaths) = (&host.errors, host.deaths);
        violations.push(format!("errors: {errors:?}; deaths: {deaths}"));
    }
    let outcome = check_outcome(&host, place.is_some() && faults.broke(), &log);
    TrialResult {
        outcome,
        violations,
        frames,
        bytes,
        errors: host.errors.len(),
        final_error: host.final_errors.pop(),
        retries: host.retries,
        orphaned: orphaned.unwrap_or_default(),
    }
}

fn check_outcome(host: &TrialHost, broke: bool, log: &str) -> RecoveryKind {
    let sent_texts = |event: &str| log.contains(&format!("\"event\":\"{event}\""));
    if !broke {
        RecoveryKind::Untouched
    } else if !host.final_errors.is_empty() {
        RecoveryKind::TypedError
    } else if sent_texts("native.rebuild_full_history") {
        RecoveryKind::Rebuilt
    } else if sent_texts("bridge.recovered_via_checkpoint") {
        RecoveryKind::Recovered
    } else if log.contains("\"from\":\"checkpoint\"") {
        RecoveryKind::Resumed
    } else if sent_texts("run.retry") || host.deaths > 0 || host.retries > 0 {
        RecoveryKind::Again
    } else {
        RecoveryKind::WentOn
    }
}
