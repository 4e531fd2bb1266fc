//! What the program has to do on every platform. `make platforms` runs these tests with the programs
//! of other platforms, through emulators; here they run with the one that was built with them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::gateway::{GatewayProcess, function};
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{CONTEXT, END, calls, exec, inline, playing, runs, text};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, TRANSPORTS, Transport};

/// The drive on which a program for Windows, executed by Wine, finds our files.
fn windows_drive() -> Option<String> {
    std::env::var("SIDECAR_UNDER_TEST_DRIVE").ok()
}

/// Returns a path as the program under test writes it.
fn path_there(path: &Path) -> String {
    let path = path.to_str().unwrap();
    match windows_drive() {
        Some(drive) => format!("{drive}{}", path.replace('/', "\\")),
        None => path.to_owned(),
    }
}

fn sidecar(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output();
    output.unwrap()
}

#[test]
fn the_version_is_printed() {
    let output = sidecar(&["--version"], &[]);
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        version.trim_end(),
        concat!("cursor-sidecar ", env!("CARGO_PKG_VERSION"))
    );
}

/// TLS with a certificate of the simulator, HTTP/2 without TLS, and HTTP/1.1.
#[test]
fn a_question_is_answered_over_every_transport() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        let mut env = vec![
            ("CURSOR_API_KEY", "crsr_test"),
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ];
        let ca = simulator.ca.as_deref().map(path_there);
        env.extend(ca.as_deref().map(|path| ("SSL_CERT_FILE", path)));
        let output = sidecar(&["ask", "@hello there"], &env);
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            answer.trim_end(),
            "Hello, world!",
            "{transport:?}: {errors}"
        );
    }
}

/// The simulator of the program under test; the other tests use our own.
#[test]
fn its_simulator_answers() {
    let mut simulator = Command::new(binary())
        .args(["sim", "--exit-with-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(simulator.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let ready: Json = serde_json::from_str(&line).unwrap();
    let backend = ("CURSOR_BACKEND_URL", ready["url"].as_str().unwrap());
    let output = sidecar(
        &["ask", "Good day"],
        &[("CURSOR_API_KEY", "crsr_test"), backend],
    );
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("Good day"), "{output:?}");
    drop(simulator.stdin.take());
    simulator.wait().unwrap();
}

#[test]
fn a_host_tool_is_called_within_one_run_and_the_next_turn_continues() {
    let call = calls("echo", r#"{ q = "one" }"#, "", &text("ONE"));
    let first = format!(r#"{CONTEXT}, {call}, {{ text = "Echoed." }}"#);
    let second = r#"{ expect_state = "last checkpoint" }, { text = "Again." }"#.to_owned();
    let simulator = runs(&[first, second]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("echo")];
    let outcome = session.prompt("go");
    assert_eq!(outcome.calls.len(), 1, "{outcome:?}");
    assert_eq!(outcome.calls[0].arguments, json!({"q": "one"}));
    session.result(&outcome.calls[0], json!("ONE"));
    let outcome = session.turn();
    assert_eq!(outcome.text, "Echoed.", "{outcome:?}");
    let outcome = session.prompt("and again");
    assert_eq!(outcome.text, "Again.", "{outcome:?}");
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

/// Plays one run in a new workspace, which `check` inspects afterwards.
fn native_tools(steps: &[String], check: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "alpha\nbeta needle\n").unwrap();
    let all = [&[CONTEXT.to_owned()], steps].concat().join(", ");
    let simulator = runs(&[all]);
    let mut session = RpcSession::new(&simulator, "s", &[("PATH", env!("PATH"))]);
    session.workspace = path_there(folder.path());
    let outcome = session.prompt("go");
    assert_eq!(outcome.error, "", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    check(folder.path());
}

#[test]
fn files_are_read_searched_written_and_deleted() {
    let steps = [
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "r" } }"#,
            r#"{ readResult = { success = { content = "alpha\nbeta needle\n", totalLines = 3 } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "$WS/new/b.txt", fileText = "one\ntwo\n", toolCallId = "w" } }"#,
            "{ writeResult = { success = { fileSize = 8 } } }",
        ),
        exec(
            r#"{ writeArgs = { path = "$WS/new/b.txt", fileText = "one\nneedle\n", toolCallId = "o" } }"#,
            "{ writeResult = { success = { fileSize = 11 } } }",
        ),
        exec(
            r#"{ lsArgs = { path = "$WS/new", toolCallId = "l" } }"#,
            r#"{ lsResult = { success = { directoryTreeRoot = { childrenFiles = [ { name = "b.txt" } ] } } } }"#,
        ),
        exec(
            r#"{ grepArgs = { pattern = "needle", path = "$WS", outputMode = "count", toolCallId = "g" } }"#,
            r#"{ grepResult = { success = { workspaceResults = { "$WS" = { count = { totalFiles = 2, totalMatches = 2 } } } } } }"#,
        ),
        exec(
            r#"{ deleteArgs = { path = "$WS/a.txt", toolCallId = "d" } }"#,
            r#"{ deleteResult = { success = { prevContent = "alpha\nbeta needle\n" } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "n" } }"#,
            "{ readResult = { fileNotFound = {} } }",
        ),
    ];
    native_tools(&steps, |folder| {
        let written = std::fs::read_to_string(folder.join("new/b.txt")).unwrap();
        assert_eq!(written, "one\nneedle\n");
        assert!(!folder.join("a.txt").exists());
    });
}

fn command(command: &str, timeout: u64, expect: &Json) -> String {
    let args = json!({"command": command, "workingDirectory": "$WS", "timeout": timeout,
        "toolCallId": "c", "skipApproval": true});
    exec(
        &inline(&json!({"shellStreamArgs": args})),
        &inline(&json!({"shellStream": expect})),
    )
}

/// The commands are written so that `sh` and `cmd` understand them.
#[test]
fn commands_are_executed_and_ended() {
    let waits = match windows_drive() {
        Some(_) => "ping -n 60 127.0.0.1",
        None => "sleep 60",
    };
    let steps = [
        command(
            "echo out && exit 3",
            20_000,
            &json!({"stdout": {"$contains": "out"}, "exit": {"code": 3}}),
        ),
        command(
            "echo made>made.txt",
            20_000,
            &json!({"exit": {"code": 0, "aborted": false}}),
        ),
        command(
            &format!("echo started && {waits}"),
            3_000,
            &json!({"exit": {"aborted": true, "abortReason": "SHELL_ABORT_REASON_TIMEOUT"}}),
        ),
    ];
    native_tools(&steps, |folder| {
        let made = std::fs::read_to_string(folder.join("made.txt")).unwrap();
        assert_eq!(made.trim_end(), "made");
    });
}

/// Outside the workspace, and through a name that leads there.
#[test]
fn nothing_outside_the_workspace_is_written() {
    let outside = tempfile::tempdir().unwrap();
    let absolute = path_there(&outside.path().join("b.txt"));
    let write = |path: &str| {
        exec(
            &inline(&json!({"writeArgs": {"path": path, "fileText": "x", "toolCallId": "w"}})),
            "{ writeResult = { rejected = {} } }",
        )
    };
    let steps = [write(&absolute), write("$WS/../b.txt"), write("../b.txt")];
    native_tools(&steps, |folder| {
        assert!(!folder.parent().unwrap().join("b.txt").exists());
    });
    assert!(!outside.path().join("b.txt").exists());
}

#[tokio::test]
async fn the_gateway_answers_and_calls_tools() {
    let call = calls("echo", r#"{ q = "one" }"#, "", &text("ONE"));
    let steps = format!(r#"{CONTEXT}, {call}, {{ text = "Echoed." }}, {END}"#);
    let simulator = playing(Transport::H2c, &steps);
    let token = ("CURSOR_SIDECAR_GATEWAY_TOKEN", "a-token-of-the-tests");
    let gateway = GatewayProcess::start(&simulator, &[token]);
    let mut chat = gateway.chat();
    chat.tools = vec![function("echo", &["q"])];
    let reply = chat.prompt("go").await;
    assert_eq!(reply.calls.len(), 1, "{reply:?}");
    chat.result(&reply.calls[0], "ONE");
    assert_eq!(chat.turn().await.text, "Echoed.");
}

#[test]
fn it_ends_with_its_input() {
    let mut host = SidecarProcess::start(&[]);
    assert_eq!(host.initialize()["result"]["name"], "cursor-sidecar");
    // One second is guaranteed; an emulator gets more. No `shutdown` was sent.
    assert_eq!(host.exits_within(Duration::from_secs(10)), Some(1));
}
