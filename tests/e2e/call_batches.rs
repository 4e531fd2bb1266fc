//! Messages that arrive in one chunk, and which calls are offered together.

use serde_json::json;

use test_support::in_process::opened;
use test_support::rpc_session::{RpcSession, TurnOutcome, tool};
use test_support::scenario::{Steps, playing};
use test_support::simulator::{Simulator, Transport};

/// A host whose server sends everything in one chunk and then stalls.
fn told(said: &[String]) -> (Simulator, RpcSession, TurnOutcome) {
    let steps = Steps::new()
        .step(json!({"together": true}))
        .then(said.join(", "))
        .step(json!({"stall": true}))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    talk.tools = vec![tool("a"), tool("b"), tool("c")];
    let taken = talk.prompt("go");
    (simulator, talk, taken)
}

fn text(text: &str) -> String {
    Steps::new().text(text).build()
}

fn call(name: &str) -> String {
    opened(name, name)
}

fn offered(taken: &TurnOutcome) -> Vec<&str> {
    assert_eq!(taken.stop, "toolUse", "{taken:?}");
    taken.calls.iter().map(|call| call.name.as_str()).collect()
}

/// Both calls are offered; other implementations keep the second back (defect 7 of
/// `docs/recovery-tests.md`).
#[test]
fn calls_of_one_chunk_are_offered_in_one_answer() {
    let (_simulator, _, taken) = told(&[call("a"), call("b")]);
    assert_eq!(offered(&taken), ["a", "b"]);
}

/// Text between calls separates them: later calls are offered after it.
#[test]
fn text_between_calls_separates_them() {
    let (_simulator, mut talk, taken) = told(&[
        text("Before. "),
        call("a"),
        call("b"),
        text("Between. "),
        call("c"),
    ]);
    assert_eq!(taken.text, "Before. ");
    assert_eq!(offered(&taken), ["a", "b"]);
    for call in &taken.calls {
        talk.result(call, json!("done"));
    }
    let taken = talk.turn();
    assert_eq!(taken.text, "Between. ");
    assert_eq!(offered(&taken), ["c"]);
}
