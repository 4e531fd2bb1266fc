//! How many instructions the hot paths take. Counts do not depend on how busy the machine is, and
//! their ratios not on the compiler or on the processor.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};

/// The sidecar is some fifty times slower when its instructions are counted.
const LONGEST_END: Duration = Duration::from_secs(60);

/// Returns a command that runs the sidecar and writes the number of its instructions to a file.
fn counted(log: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--log-file={}", log.display()))
        .arg(binary());
    command
}

/// Returns the number that callgrind wrote.
fn count(log: &Path) -> u64 {
    let text = std::fs::read_to_string(log).unwrap();
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    let (_, number) = collected.unwrap_or_else(|| panic!("no count: {text}"));
    number.trim().parse().unwrap()
}

/// Returns the instructions of a sidecar that takes these turns after this history.
fn instructions(history: usize, turns: usize) -> u64 {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("count");
    let simulator = Simulator::responder(Transport::H2c);
    let env = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        // In memory: a stored conversation is written whole.
        ("HOME", ""),
        ("PI_CURSOR_STATE_DIR", ""),
        // Over HTTP/1.1, what the server asks for of the history is sent in JSON.
        ("PI_CURSOR_HTTP", "2"),
    ];
    let host = SidecarProcess::started_by(counted(&log), &env);
    let mut session = RpcSession::on(host, "s");
    // In the background it would be counted in one process and not in another.
    (session.host).call("models/list", json!({"refresh": true}));
    session.messages = (0..history).map(message).collect();
    for _ in 0..turns {
        assert_eq!(session.prompt("hello").stop, "stop");
    }
    assert!(session.host.exits_within(LONGEST_END).is_some());
    count(&log)
}

fn message(number: usize) -> Json {
    let text = format!("message {number} {}", "word ".repeat(30));
    if number.is_multiple_of(2) {
        json!({"role": "user", "content": text, "timestamp": number})
    } else {
        let content = json!([{"type": "text", "text": text}]);
        json!({"role": "assistant", "content": content, "timestamp": number})
    }
}

/// Returns the instructions of one turn after the first two, which send the history and start what
/// runs in the background.
fn of_a_turn(history: usize) -> u64 {
    const TURNS: u64 = 6;
    let first = instructions(history, 2);
    let all = instructions(history, 2 + TURNS as usize);
    all.saturating_sub(first) / TURNS
}

#[test]
#[ignore = "work in the background is counted too; run by make bench"]
fn a_turn_with_a_long_history_costs_little_more() {
    // It was fifteen times as much when all messages were read, and is two to three times now.
    let (short, long) = (of_a_turn(10), of_a_turn(1_000));
    eprintln!("instructions of a turn: {short} with 10 messages, {long} with 1,000");
    assert!(
        long < short * 5,
        "{short} instructions with 10 messages, {long} with 1,000"
    );
}
