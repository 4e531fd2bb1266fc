//! Native tool calls that were started before the sidecar was killed are not executed again unless
//! they are requested once more.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use test_support::rpc_session::{CollectedTurn, RpcSession};
use test_support::scenario::{END, Steps, script};
use test_support::wait::until;

const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";
/// A command that appends a line each time it runs.
const COMMAND: &str = r#"{ exec = { shellStreamArgs = { command = "echo line >> log; echo line", workingDirectory = "$WS", toolCallId = "c", timeout = 10000 } }, "#;
const RUN: &str = r#"expect = { shellStream = { stdout = "line\n" } } }"#;
const OPEN: &str = r#"open = true, name = "a" }"#;
const KNOWN: &str = r#"throws = "was not executed again" }"#;
const WARNED: &str = r#"throws = "Check its effects first" }"#;

fn env(state: &TempDir) -> [(&'static str, &str); 3] {
    [
        ("PI_CURSOR_STATE_DIR", state.path().to_str().unwrap()),
        ("PI_CURSOR_HTTP", "2"),
        ("PATH", "/usr/bin:/bin"),
    ]
}

fn log(workspace: &TempDir) -> String {
    std::fs::read_to_string(workspace.path().join("log")).unwrap_or_default()
}

/// Returns the records of started calls of all sessions.
fn begun(state: &Path) -> Vec<String> {
    let sessions = std::fs::read_dir(state.join("conversations")).unwrap();
    sessions
        .filter_map(|session| std::fs::read_to_string(session.unwrap().path().join("begun")).ok())
        .collect()
}

#[test]
fn a_command_of_a_killed_sidecar_is_run_again_only_if_asked_for_once_more() {
    let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // One command that has ended, and one that is running.
    let endless = COMMAND.replace("echo line\"", "exec sleep 600\"");
    let first = script(&[&Steps::new()
        .context()
        .then(COMMAND)
        .then(RUN)
        .then(&endless)
        .then(OPEN)
        .step(json!({"expect_cancel": true}))
        .build()]);
    let mut session = RpcSession::new(&first, "killed", &env(&state));
    session.workspace = workspace.path().to_str().unwrap().into();
    session.user("go");
    session.begin();
    until(|| (log(&workspace) == "line\nline\n").then_some(()));
    let written = begun(state.path());
    assert_eq!(written.len(), 1);
    assert!(!written[0].contains("echo"), "{written:?}");

    // Another command before it does not matter.
    let (other, run) = (
        COMMAND.replace("line", "other"),
        RUN.replace("line", "other"),
    );
    let second = script(&[&Steps::new()
        .then(CONTEXT)
        .then(other)
        .then(run)
        .then(endless)
        .then(WARNED)
        .then(COMMAND)
        .then(WARNED)
        .then(COMMAND)
        .then(RUN)
        .text("Looked.")
        .then(END)
        .build()]);
    let mut later = session.moved_to(&second, &env(&state));
    session.host.kill();
    later.messages.push(
        json!({"role": "assistant", "stopReason": "error", "timestamp": 2,
        "content": [{"type": "text", "text": "I'll"}]}),
    );
    let outcome = later.prompt("go on");
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Looked.", "stop"),
        "{outcome:?}"
    );
    assert_eq!(log(&workspace), "line\nline\nother\nline\n");
    assert_eq!(begun(state.path()), [""; 0], "the turn has come to its end");

    let third = script(&[&Steps::new()
        .then(CONTEXT)
        .then(COMMAND)
        .then(RUN)
        .text("Again.")
        .then(END)
        .build()]);
    let mut last = later.moved_to(&third, &env(&state));
    later.host.kill();
    let outcome = last.prompt("and again");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(log(&workspace), "line\nline\nother\nline\nline\n");
}

/// After two kills in one turn, the third sidecar still has the record of the first.
#[test]
fn a_second_kill_forgets_nothing() {
    let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = COMMAND.replace("line", "other");
    let stay = "{ expect_cancel = true }";
    let first = script(&[&format!("{CONTEXT}, {COMMAND} {RUN}, {stay}")]);
    let mut session = RpcSession::new(&first, "killed", &env(&state));
    session.workspace = workspace.path().to_str().unwrap().into();
    session.user("go");
    session.begin();
    until(|| (log(&workspace) == "line\n").then_some(()));
    let run = RUN.replace("line", "other");
    let second = script(&[&format!(
        "{CONTEXT}, {COMMAND} {WARNED}, {other} {run}, {stay}"
    )]);
    let mut later = session.moved_to(&second, &env(&state));
    session.host.kill();
    later.user("go on");
    later.begin();
    until(|| (log(&workspace) == "line\nother\n").then_some(()));
    let third = script(&[&Steps::new()
        .then(CONTEXT)
        .then(COMMAND)
        .then(WARNED)
        .then(other)
        .then(WARNED)
        .text("Looked.")
        .then(END)
        .build()]);
    let mut last = later.moved_to(&third, &env(&state));
    later.host.kill();
    let outcome = last.prompt("go on");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(log(&workspace), "line\nother\n");
}

#[test]
fn a_command_the_user_stopped_is_run_again_when_requested() {
    let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let endless = COMMAND.replace("echo line\"", "exec sleep 600\"");
    let first = Steps::new()
        .context()
        .checkpoint()
        .then(&endless)
        .then(OPEN)
        .step(json!({"expect_cancel": true}))
        .build();
    let ran = r#"expect = { shellStream = { exit = { aborted = true } } } }"#;
    let brief = endless.replace("timeout = 10000", "timeout = 500");
    let again = Steps::new()
        .then(CONTEXT)
        .then(brief)
        .then(ran)
        .text("Again.")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let mut session = RpcSession::new(&simulator, "killed", &env(&state));
    session.workspace = workspace.path().to_str().unwrap().into();
    session.user("go");
    let turn = session.begin();
    until(|| (log(&workspace) == "line\n").then_some(()));
    session.host.send(&json!({
        "jsonrpc": "2.0",
        "id": "stop",
        "method": "turn/cancel",
        "params": {"turnId": turn},
    }));
    assert_eq!(session.finish(&turn).stop, "aborted");
    let outcome = session.prompt("once more");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(log(&workspace), "line\nline\n");
}

/// After a cancel, a command that had ended is reported, and executed again only if it is requested
/// once more.
#[test]
fn a_command_that_had_ended_is_not_run_again_after_a_stop() {
    let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Steps::new()
        .then(CONTEXT)
        .checkpoint()
        .then(COMMAND)
        .then(RUN)
        .text("Done.")
        .step(json!({"expect_cancel": true}))
        .build();
    let again = Steps::new()
        .then(CONTEXT)
        .then(COMMAND)
        .then(KNOWN)
        .text("Known.")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let mut session = RpcSession::new(&simulator, "killed", &env(&state));
    session.workspace = workspace.path().to_str().unwrap().into();
    session.user("go");
    let turn = session.begin();
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    session.host.send(&json!({
        "jsonrpc": "2.0",
        "id": "stop",
        "method": "turn/cancel",
        "params": {"turnId": turn},
    }));
    assert_eq!(session.finish(&turn).stop, "aborted");
    let outcome = session.prompt("go on");
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "Known.")
    );
    assert_eq!(log(&workspace), "line\n");
}
