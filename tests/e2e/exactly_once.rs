//! Native tools run once, even if the connection is lost.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use test_support::fault_proxy;
use test_support::fault_proxy::{FaultPlan, WireFault};
use test_support::pi_retry_rules::is_retryable;
use test_support::processes::{children, exists, is_running};
use test_support::rpc_session::{CollectedTurn, RpcSession};
use test_support::scenario::{END, Steps, inline, script};
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;

/// A command that appends a line to `log` each time it runs.
const COMMAND: &str = r#"{ exec = { shellStreamArgs = { command = "echo line >> log; echo line", workingDirectory = "$WS", toolCallId = "ID", timeout = 10000 } }, expect = { shellStream = { stdout = "line\n" } } }"#;
const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";
const LATE: &str = "{ checkpoint = \"late\" },";
/// The client answers this, so it has read everything sent before it.
const READ: &str = r#"{ kv_set = { text = "x" } }"#;

fn played(runs: &[String]) -> (String, CollectedTurn, Simulator) {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(file, "name = \"once\"").unwrap();
    for steps in runs {
        writeln!(file, "[[run]]\nsteps = [ {steps} ]").unwrap();
    }
    let simulator = Simulator::with(Transport::H2c, file.path());
    let workspace = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(
        &simulator,
        "once",
        &[("PI_CURSOR_HTTP", "2"), ("PATH", "/usr/bin:/bin")],
    );
    session.user("go");
    let mut params = session.params();
    params["workspace"] = json!(workspace.path());
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "turn", "method": "turn/start", "params": params}));
    let outcome = session.finish("turn");
    let log = std::fs::read_to_string(workspace.path().join("log")).unwrap();
    (log, outcome, simulator)
}

/// The request is sent twice on one stream: while it is executing, and after its reply.
#[test]
fn the_same_request_is_worked_on_once() {
    let command = |line: &str| {
        json!({"command": format!("echo {line} >> log; echo {line}"), "workingDirectory": "$WS",
            "toolCallId": "c", "timeout": 10_000})
    };
    let sent = |line: &str, name: &str| {
        let exec = json!({"id": 77, "execId": name, "shellStreamArgs": command(line)});
        inline(&json!({"send": {"execServerMessage": exec}}))
    };
    let first = json!({"exec": {"shellStreamArgs": command("line")}, "id": 77, "name": "a",
        "open": true});
    let first = inline(&first);
    let again = sent("line", "exec-77");
    let waited = r#"{ await = ["a"] }"#;
    for (steps, wanted) in [
        (format!("{first}, {again}, {waited}"), "line\n"),
        (format!("{first}, {waited}, {again}"), "line\n"),
        // An id may be reused for another request.
        (
            format!("{first}, {waited}, {}", sent("other", "exec-77")),
            "line\nother\n",
        ),
        (
            format!("{first}, {waited}, {}", sent("line", "exec-78")),
            "line\nline\n",
        ),
    ] {
        let run = Steps::new()
            .then(CONTEXT)
            .then(&steps)
            .then(READ)
            .delay_ms(1000)
            .text("done")
            .then(END)
            .build();
        let (log, outcome, _) = played(&[run]);
        assert_eq!(
            (outcome.text.as_str(), outcome.stop.as_str()),
            ("done", "stop"),
            "{steps}"
        );
        assert_eq!(log, wanted, "{steps}");
    }
}

#[test]
fn a_command_that_was_answered_is_not_run_again() {
    let asked = |id: &str| COMMAND.replace("ID", id);
    // With a checkpoint from before the command, with checkpoints that were sent too early to
    // include its result, and with none.
    for before in ["{ checkpoint = \"auto\" },", ""] {
        for after in [LATE, &LATE.repeat(2), ""] {
            let first = Steps::new()
                .then(CONTEXT)
                .then(before)
                .then(asked("call-1"))
                .then(after)
                .then(READ)
                .reset("internal_error")
                .build();
            let again = Steps::new()
                .then(CONTEXT)
                .then(asked("call-2"))
                .text("done")
                .usage()
                .end()
                .build();
            let (log, outcome, simulator) = played(&[first, again]);
            let at = format!("{before}/{after}");
            assert_eq!(
                (outcome.text.as_str(), outcome.stop.as_str()),
                ("done", "stop"),
                "{at}"
            );
            assert_eq!(log, "line\n", "{at}");
            simulator
                .recorded()
                .assert_played(&["completed", "completed"]);
        }
    }
}

#[test]
fn another_command_is_run_and_so_is_the_same_after_it() {
    let other = COMMAND
        .replace("echo line", "echo other")
        .replace("line\\n", "other\\n")
        .replace("ID", "b");
    let first = Steps::new()
        .then(CONTEXT)
        .checkpoint()
        .then(COMMAND.replace("ID", "a"))
        .then(READ)
        .reset("internal_error")
        .build();
    let again = Steps::new()
        .then(CONTEXT)
        .then(other)
        .then(COMMAND.replace("ID", "c"))
        .text("done")
        .usage()
        .end()
        .build();
    let (log, outcome, _simulator) = played(&[first, again]);
    assert_eq!(
        (outcome.stop.as_str(), log.as_str()),
        ("stop", "line\nother\nline\n")
    );
}

/// A command that runs until it is stopped.
const ENDLESS: &str = r#"{ send = { execServerMessage = { id = 77, shellStreamArgs = { command = "echo begun >> log; echo begun; exec sleep 600", workingDirectory = "$WS", toolCallId = "ID", timeout = 600000 } } } }"#;
const BEGUN: &str = r#"{ expect_client = { execClientMessage = { id = 77, shellStream = { stdout = { data = "begun\n" } } } } }"#;

/// When the host retries, the new run receives the recorded result of the completed command and an
/// error for the interrupted one.
#[test]
fn a_host_that_repeats_its_request_repeats_no_effect() {
    let first = Steps::new()
        .then(CONTEXT)
        .checkpoint()
        .then(COMMAND.replace("ID", "call-1"))
        .then(ENDLESS.replace("ID", "call-2"))
        .then(BEGUN)
        .reset("internal_error")
        .build();
    let throw = r#"{ expect_client = { execClientControlMessage = { throw = { id = 77 } } } }"#;
    let again = Steps::new()
        .then(CONTEXT)
        .then(COMMAND.replace("ID", "call-3"))
        .then(ENDLESS.replace("ID", "call-4"))
        .then(throw)
        .text("Looked.")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let workspace = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_HTTP", "2"), ("PATH", "/usr/bin:/bin")];
    let mut session = RpcSession::new(&simulator, "once", &env);
    session.workspace = workspace.path().to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert!(is_retryable(&outcome.error), "{outcome:?}");
    session.messages.pop();
    let outcome = session.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Looked.", "stop")
    );
    let log = std::fs::read_to_string(workspace.path().join("log")).unwrap();
    assert_eq!(log, "line\nbegun\n");
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

/// Breaks the stream once, before a given frame.
struct FaultAfterFrames(AtomicUsize);

impl FaultPlan for FaultAfterFrames {
    fn fault_at(&self, _bytes: usize) -> Option<(usize, WireFault)> {
        (self.0.fetch_sub(1, Ordering::SeqCst) == 0).then_some((0, WireFault::HalfClose))
    }
}

/// Without a checkpoint, a retry by the host starts another conversation from the beginning.
#[test]
fn no_effect_is_repeated_in_another_conversation() {
    let steps = Steps::new()
        .then(CONTEXT)
        .then(COMMAND.replace("ID", "call-1"))
        .text("Did it.")
        .then(END)
        .build();
    let simulator = script(&[&steps]);
    let address = simulator.url.trim_start_matches("http://").parse().unwrap();
    // After the context, the command and the text.
    let port = fault_proxy::open(address, Arc::new(FaultAfterFrames(AtomicUsize::new(3))));
    let url = format!("http://127.0.0.1:{port}");
    let env = [
        ("PI_CURSOR_HTTP", "2"),
        ("PATH", "/usr/bin:/bin"),
        ("CURSOR_BACKEND_URL", url.as_str()),
    ];
    let workspace = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "once", &env);
    session.workspace = workspace.path().to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.text, "Did it.");
    assert!(is_retryable(&outcome.error), "{outcome:?}");
    session.messages.pop();
    let outcome = session.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Did it.", "stop")
    );
    let log = || std::fs::read_to_string(workspace.path().join("log")).unwrap();
    assert_eq!(log(), "line\n");
    // A new user message may ask for the command again.
    let outcome = session.prompt("and again");
    assert_eq!(outcome.stop, "stop");
    assert_eq!(log(), "line\nline\n");
}

#[test]
fn a_call_that_cannot_be_repeated_is_not_retried_by_the_host() {
    let first = Steps::new()
        .then(CONTEXT)
        .step(json!({"exec": {"subagentArgs": {"prompt": "look"}}}))
        .then(READ)
        .reset("internal_error")
        .build();
    let simulator = script(&[&first]);
    let mut session = RpcSession::new(&simulator, "once", &[("PI_CURSOR_HTTP", "2")]);
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "error", "{outcome:?}");
    assert!(!is_retryable(&outcome.error), "{}", outcome.error);
}

/// A sidecar with a foreground command, a background command and an MCP server, all of which ignore
/// `SIGTERM`, and the ids of their processes.
struct RestartedSidecar {
    session: RpcSession,
    processes: Vec<i32>,
    /// A process that left its group, session and environment.
    away: i32,
    scratch: PathBuf,
    _simulator: Simulator,
    _folder: tempfile::TempDir,
}

fn busy(between: impl FnOnce(i32)) -> RestartedSidecar {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str| {
        format!(
            "trap '' TERM; echo $$$$ > $WS/{name}.new; mv $WS/{name}.new $WS/{name}; exec sleep 600"
        )
    };
    // Leaves its process group and clears its environment.
    let away = "echo $$ > away.new; mv away.new away; exec sleep 600";
    std::fs::write(folder.path().join("away.sh"), away).unwrap();
    let background = Steps::new()
        .step(json!({
            "exec": {
                "backgroundShellSpawnArgs": {
                    "command": format!("env -i setsid sh away.sh < /dev/null > /dev/null 2>&1 & {}", script("behind")),
                    "workingDirectory": "$WS",
                    "toolCallId": "b",
                    "skipApproval": true,
                },
            },
        }))
        .build();
    let front = Steps::new()
        .step(json!({
            "exec": {
                "shellStreamArgs": {
                    "command": script("front").to_string(),
                    "workingDirectory": "$WS",
                    "toolCallId": "f",
                    "timeout": 600000,
                },
            },
        }))
        .build();
    let scenario = folder.path().join("busy.toml");
    let steps = format!(
        "name = \"busy\"\n[[run]]\nsteps = [ {CONTEXT}, {background}, {END} ]\n[[run]]\nsteps = [ {front} ]"
    );
    std::fs::write(&scenario, steps).unwrap();
    let simulator = Simulator::with(Transport::Http1, &scenario);
    let here = folder.path().to_str().unwrap();
    let server = script("server").replace("$WS", here).replace("$$$$", "$$");
    let servers = json!({"mcpServers": {"s": {"command": "sh", "args": ["-c", server]}}});
    std::fs::create_dir(folder.path().join(".cursor")).unwrap();
    std::fs::write(folder.path().join(".cursor/mcp.json"), servers.to_string()).unwrap();
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", here),
        ("TMPDIR", scratch.to_str().unwrap()),
    ];
    let mut session = RpcSession::new(&simulator, "busy", &env);
    let id = i32::try_from(session.host.id()).unwrap();
    assert_eq!(
        children(id),
        [0; 0],
        "nothing is started before it is needed"
    );
    session.workspace = here.into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    between(id);
    session.user("on");
    session.begin();
    let [away, started @ ..] = ["away", "behind", "front", "server"].map(|name| {
        until(|| {
            let id = std::fs::read_to_string(folder.path().join(name)).ok()?;
            id.trim().parse::<i32>().ok()
        })
    });
    // A `git` process may still be running.
    let processes = until(|| Some(children(id)).filter(|all| all.len() == 4));
    for process in started {
        assert!(processes.contains(&process), "{started:?} of {processes:?}");
    }
    assert!(std::fs::read_dir(&scratch).unwrap().next().is_some());
    RestartedSidecar {
        session,
        processes,
        away,
        scratch,
        _simulator: simulator,
        _folder: folder,
    }
}

/// Whether a folder is empty.
fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

fn signal(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Returns the id of the process that ends the others when the sidecar dies.
fn reaper(sidecar: i32) -> i32 {
    let is_reaper = |id: &i32| {
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline"));
        line.is_ok_and(|line| line.starts_with("cursor-reaper\0"))
    };
    children(sidecar).into_iter().find(is_reaper).unwrap()
}

#[test]
fn commands_of_a_killed_sidecar_end_with_it() {
    let mut busy = busy(|sidecar| {
        let environment = std::fs::read(format!("/proc/{}/environ", reaper(sidecar)));
        assert_eq!(environment.unwrap(), b"", "it needs no secrets");
    });
    busy.session.host.kill();
    for process in busy.processes.into_iter().chain([busy.away]) {
        until(|| (!is_running(process)).then_some(()));
    }
    until(|| is_empty(&busy.scratch).then_some(()));
}

#[test]
fn a_lost_reaper_is_replaced_and_sent_everything() {
    let mut busy = busy(|sidecar| {
        let lost = reaper(sidecar);
        signal(lost, Signal::KILL);
        until(|| (!is_running(lost)).then_some(()));
    });
    busy.session.host.kill();
    for process in busy.processes.into_iter().chain([busy.away]) {
        until(|| (!is_running(process)).then_some(()));
    }
    until(|| is_empty(&busy.scratch).then_some(()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_the_sidecar_and_all_it_started() {
    // Processes that the sidecar does not reap become ours and stay visible.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let busy = busy(|_| ());
    signal(busy.session.host.id().try_into().unwrap(), Signal::TERM);
    assert_eq!(busy.session.host.exits(), Some(1));
    let left: Vec<i32> = busy
        .processes
        .into_iter()
        .filter(|id| exists(*id))
        .collect();
    assert_eq!(left, [0; 0]);
    // Its parent is gone, so it may remain as a zombie that we would have to reap.
    assert!(!is_running(busy.away));
    assert!(is_empty(&busy.scratch));
}

/// The folder is there before the first command is.
#[test]
fn a_sidecar_killed_before_its_first_command_leaves_no_folder() {
    let simulator = script(&[CONTEXT]);
    let folder = tempfile::tempdir().unwrap();
    let env = [("TMPDIR", folder.path().to_str().unwrap())];
    let mut session = RpcSession::new(&simulator, "killed", &env);
    session.user("go");
    session.begin();
    while is_empty(folder.path()) {
        std::thread::yield_now();
    }
    session.host.kill();
    until(|| is_empty(folder.path()).then_some(()));
}
