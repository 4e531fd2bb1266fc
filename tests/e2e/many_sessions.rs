//! Many sessions on one sidecar: the limits of a connection and of a sidecar, and what happens
//! beyond them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::debug_log::logged;
use test_support::in_process::{END, opened, user_text};
use test_support::rpc_session::{CollectedTurn, OfferedCall, RpcSession, tool};
use test_support::scenario::{Steps, script};
use test_support::simulator::{Simulator, Transport};

/// A server with the settings `server`, whose runs call the host and continue with `steps`.
fn waiting(server: &str, steps: &str) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let call = opened("look", "a");
    write!(
        file,
        "name = \"crowd\"\n[server]\n{server}\n[[run]]\nsteps = [ {call}, {steps} ]\n"
    )
    .unwrap();
    Simulator::with(Transport::H2c, file.path())
}

/// Runs the turns of several sessions on one sidecar concurrently.
fn all_at_once(session: &mut RpcSession, turns: &[(String, Vec<Json>)]) -> Vec<CollectedTurn> {
    let mut outcome: Vec<CollectedTurn> = turns.iter().map(|_| CollectedTurn::default()).collect();
    for (at, (name, messages)) in turns.iter().enumerate() {
        session.id.clone_from(name);
        session.messages.clone_from(messages);
        let mut params = session.params();
        params["turnId"] = json!(format!("{}-{at}", params["turnId"].as_str().unwrap()));
        session
            .host
            .send(&json!({"jsonrpc": "2.0", "id": at, "method": "turn/start", "params": params}));
    }
    let mut left = turns.len();
    while left > 0 {
        let message = session.host.receive();
        if let Some(at) = message["id"].as_u64() {
            let outcome = &mut outcome[at as usize];
            outcome.stop = message["result"]["stopReason"].as_str().unwrap().into();
            left -= 1;
        } else if let Some(turn) = message["params"]["turnId"].as_str() {
            let at: usize = turn.rsplit('-').next().unwrap().parse().unwrap();
            outcome[at].receive(&message);
        }
    }
    outcome
}

fn sessions(count: usize) -> Vec<(String, Vec<Json>)> {
    let words = json!({"role": "user", "content": "go", "timestamp": 1});
    (0..count)
        .map(|n| (format!("s{n}"), vec![words.clone()]))
        .collect()
}

/// Adds a call's result.
fn answered(turn: &mut (String, Vec<Json>), call: &OfferedCall) {
    let asked =
        json!({"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments});
    turn.1.push(
        json!({"role": "assistant", "content": [asked], "stopReason": "toolUse", "timestamp": 2}),
    );
    turn.1.push(
        json!({"role": "toolResult", "toolCallId": call.id, "toolName": call.name,
        "content": "42", "isError": false, "timestamp": 3}),
    );
}

/// The third stream does not wait on a connection that allows two, because a parked run would block
/// it.
#[test]
fn streams_beyond_what_a_connection_takes_open_another() {
    let simulator = waiting(
        "max_streams = 2",
        &Steps::new()
            .step(json!({"await": ["a"], "timeout_ms": 60000}))
            .text("It is 42.")
            .then(END)
            .build(),
    );
    let mut session = RpcSession::new(&simulator, "", &[]);
    session.tools = vec![tool("look")];
    let mut turns = sessions(7);
    // The third run arrives when the server's limit is known; the last four arrive at once when
    // every connection is full.
    let mut paused = Vec::new();
    for wave in [&turns[..1], &turns[1..2], &turns[2..3], &turns[3..]] {
        paused.extend(all_at_once(&mut session, wave));
    }
    for (turn, outcome) in turns.iter_mut().zip(&paused) {
        assert_eq!((outcome.stop.as_str(), outcome.calls.len()), ("toolUse", 1));
        answered(turn, &outcome.calls[0]);
    }
    let recording = simulator.recorded();
    let runs = recording.requests("/agent.v1.AgentService/Run");
    assert_eq!(runs.len(), 7, "no message was delivered twice");
    let headers = &runs[2]["headers"];
    let ids = ["x-request-id", "x-original-request-id"].map(|name| &headers[name]);
    assert_eq!(ids[0], ids[1], "moved on at the first attempt");
    let connections: BTreeSet<u64> = runs
        .iter()
        .map(|run| run["connection"].as_u64().unwrap())
        .collect();
    assert!(connections.len() >= 4, "{connections:?}");
    for outcome in all_at_once(&mut session, &turns) {
        assert_eq!(
            (outcome.stop.as_str(), outcome.text.as_str()),
            ("stop", "It is 42.")
        );
    }
    assert_eq!(simulator.recorded().client("runRequest").len(), 7);
}

/// Beyond the limit, the run parked longest is evicted and logged, and its turn is recovered with
/// its results.
#[test]
fn the_longest_waiting_run_is_evicted_and_its_turn_recovered() {
    let waits = Steps::new()
        .then(opened("look", "a"))
        .step(json!({"await": ["a"], "timeout_ms": 60000}))
        .text("Still here.")
        .then(END)
        .build();
    let rebuilt = Steps::new().text("It is 42.").then(END).build();
    let simulator = script(&[&waits, &rebuilt]);
    let folder = tempfile::tempdir().unwrap();
    let env = [
        ("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
        ("PI_CURSOR_MAX_PARKED_RUNS", "2"),
    ];
    let mut session = RpcSession::new(&simulator, "", &env);
    session.tools = vec![tool("look")];
    let mut turns = sessions(3);
    for turn in &mut turns {
        let paused = all_at_once(&mut session, std::slice::from_ref(turn));
        answered(turn, &paused[0].calls[0]);
    }
    let report = session.host.call("diagnostics/report", json!({}));
    let counters = &report["result"]["counters"];
    assert_eq!(counters["cursor_provider.parked_run_evicted"], 1);
    for (turn, words) in turns
        .iter()
        .zip(["It is 42.", "Still here.", "Still here."])
    {
        let outcome = all_at_once(&mut session, std::slice::from_ref(turn));
        assert_eq!(
            (outcome[0].stop.as_str(), outcome[0].text.as_str()),
            ("stop", words)
        );
    }
    let recording = simulator.recorded();
    recording.assert_played(&["completed"; 4]);
    let given_up = recording.client("conversationAction.cancelAction");
    assert_eq!(given_up.len(), 1);
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!((requests.len(), id(0)), (4, id(3)), "the same conversation");
    assert!(user_text(&requests[3]["runRequest"]).contains("Result:\n42\n"));
    session.host.exits();
    let events = logged(folder.path(), "bridge.evicted");
    assert_eq!((events.len(), &events[0]["most"]), (1, &json!(2)));
}

/// A turn does not wait until the run it evicts has ended.
#[test]
fn a_turn_does_not_wait_for_the_run_it_displaces() {
    let simulator = waiting("", "{ stall = true }");
    let env = [("PI_CURSOR_MAX_PARKED_RUNS", "1")];
    let mut session = RpcSession::new(&simulator, "", &env);
    session.tools = vec![tool("look")];
    for turn in sessions(2) {
        let outcome = all_at_once(&mut session, &[turn]);
        assert_eq!(outcome[0].stop, "toolUse");
    }
    let recording = simulator.recorded();
    // No verdict yet: the evicted run still has seconds to send its last checkpoint.
    assert_eq!(recording.verdicts().len(), 0, "{:?}", recording.verdicts());
}

/// Of two concurrent turns of one session, the second waits for the first and continues from its
/// state.
#[test]
fn turns_of_a_session_run_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let taken_in = folder.path().join("taken in");
    let first = Steps::new()
        .text("One.")
        .step(json!({"expect_file": taken_in.display().to_string()}))
        .then(END)
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Two.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = RpcSession::new(&simulator, "", &[]);
    session.id = "s".into();
    session.user("one");
    let one = session.begin();
    let mut outcome = CollectedTurn::default();
    while outcome.text.is_empty() {
        outcome.receive(&session.host.receive());
    }
    session.user("two");
    let two = session.begin();
    // The report is answered at once and after `turn/start`, so the second turn is waiting by now.
    let report =
        json!({"jsonrpc": "2.0", "id": "report", "method": "diagnostics/report", "params": {}});
    session.host.send(&report);
    while session.host.receive()["id"] != "report" {}
    std::fs::write(&taken_in, "").unwrap();
    let mut answered = Vec::new();
    while answered.len() < 2 {
        let message = session.host.receive();
        outcome.receive(&message);
        answered.extend(message["id"].as_str().map(str::to_owned));
    }
    assert_eq!(
        (answered, outcome.text.as_str()),
        (vec![one, two], "One.Two.")
    );
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    assert_eq!(user_text(&requests[1]["runRequest"]), "two");
}

/// Every parked run uses file descriptors, so the sidecar raises the soft limit of its shell.
#[test]
fn there_is_room_for_the_files_of_many_runs() {
    let script = r#"ulimit -Sn 256; exec "$0""#;
    let mut child = Command::new("/bin/sh")
        .args(["-c", script, binary()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"host":{"name":"test"}}}"#;
    let mut stdin = child.stdin.take().unwrap();
    write!(stdin, "Content-Length: {}\r\n\r\n{hello}", hello.len()).unwrap();
    let mut answer = [0; 1];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut answer)
        .unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<u64> = files
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let most = numbers.get(1).copied().unwrap_or(u64::MAX);
    assert_eq!(numbers[0], most.min(16 * 1024), "{files}");
    drop(stdin);
    child.wait().unwrap();
}
