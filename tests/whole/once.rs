//! What Cursor's own tools did is done once, whatever becomes of the connection.

use std::io::Write as _;

use serde_json::json;

use crate::backend::{Simulator, Transport};
use crate::talk::{Taken, Talk};

/// A command that leaves a line each time it runs.
const COMMAND: &str = r#"{ exec = { shellStreamArgs = { command = "echo line | tee -a log", workingDirectory = "$WS", toolCallId = "ID", timeout = 10000 } }, expect = { shellStream = { stdout = "line\n" } } }"#;
const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";
/// Answered: the client has read all that came before it.
const READ: &str = r#"{ kv_set = { text = "x" } }"#;

fn played(runs: &[String]) -> (String, Taken, Simulator) {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(file, "name = \"once\"").unwrap();
    for steps in runs {
        writeln!(file, "[[run]]\nsteps = [ {steps} ]").unwrap();
    }
    let simulator = Simulator::with(Transport::H2c, file.path());
    let workspace = tempfile::tempdir().unwrap();
    let mut talk = Talk::new(
        &simulator,
        "once",
        &[("PI_CURSOR_HTTP", "2"), ("PATH", "/usr/bin:/bin")],
    );
    talk.user("go");
    let mut params = talk.params();
    params["workspace"] = json!(workspace.path());
    talk.host
        .say(&json!({"jsonrpc": "2.0", "id": "turn", "method": "turn/start", "params": params}));
    let taken = talk.finish("turn");
    let log = std::fs::read_to_string(workspace.path().join("log")).unwrap();
    (log, taken, simulator)
}

#[test]
fn a_command_that_was_answered_is_not_run_again() {
    let asked = |id: &str| COMMAND.replace("ID", id);
    // With a checkpoint from before it, with one that came too early to know its answer, and
    // with none at all.
    for before in ["{ checkpoint = \"auto\" },", ""] {
        for after in ["{ checkpoint = \"auto\" },", ""] {
            let first = format!(
                "{CONTEXT}, {before} {}, {after} {READ}, {{ reset = \"internal_error\" }}",
                asked("call-1")
            );
            let again = format!(
                "{CONTEXT}, {}, {{ text = \"done\" }}, {{ usage = {{}} }}, {{ end = true }}",
                asked("call-2")
            );
            let (log, taken, simulator) = played(&[first, again]);
            let at = format!("{before}/{after}");
            assert_eq!(
                (taken.text.as_str(), taken.stop.as_str()),
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
    let first = format!(
        "{CONTEXT}, {{ checkpoint = \"auto\" }}, {}, {READ}, {{ reset = \"internal_error\" }}",
        COMMAND.replace("ID", "a")
    );
    let again = format!(
        "{CONTEXT}, {other}, {}, {{ text = \"done\" }}, {{ usage = {{}} }}, {{ end = true }}",
        COMMAND.replace("ID", "c")
    );
    let (log, taken, _simulator) = played(&[first, again]);
    assert_eq!(
        (taken.stop.as_str(), log.as_str()),
        ("stop", "line\nother\nline\n")
    );
}

/// Waits until something is there.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed().as_secs() < 20, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_the_sidecar_and_its_commands() {
    use rustix::process::{Pid, Signal, kill_process};
    let command = r#"{ exec = { shellStreamArgs = { command = "echo $$$$ > pid.new; mv pid.new pid; exec sleep 600", workingDirectory = "$WS", toolCallId = "c", timeout = 600000 } } }"#;
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(
        file,
        "name = \"signal\"\n[[run]]\nsteps = [ {CONTEXT}, {command} ]"
    )
    .unwrap();
    let simulator = Simulator::with(Transport::Http1, file.path());
    let workspace = tempfile::tempdir().unwrap();
    let mut talk = Talk::new(&simulator, "signal", &[("PATH", "/usr/bin:/bin")]);
    talk.user("go");
    let mut params = talk.params();
    params["workspace"] = json!(workspace.path());
    talk.host
        .say(&json!({"jsonrpc": "2.0", "id": "turn", "method": "turn/start", "params": params}));
    let command = until(|| {
        let id = std::fs::read_to_string(workspace.path().join("pid")).ok()?;
        Pid::from_raw(id.trim().parse().unwrap())
    });
    let sidecar = Pid::from_raw(talk.host.id().try_into().unwrap()).unwrap();
    kill_process(sidecar, Signal::TERM).unwrap();
    assert_eq!(talk.host.exits(), Some(1));
    until(|| (!lives(command)).then_some(()));
}

/// Whether a process does anything still; one that ended may wait for ever to be reaped by a
/// container's first process.
fn lives(id: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
    let ended = stat.is_ok_and(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    });
    !ended && rustix::process::test_kill_process(id).is_ok()
}
