//! Messages that arrive in one chunk, and which calls are offered together.

use serde_json::json;

use test_support::in_process::opened;
use test_support::rpc_session::{CollectedTurn, RpcSession, tool};
use test_support::scenario::{END, Steps, playing};
use test_support::simulator::{Simulator, Transport};

/// A host whose server sends everything in one chunk and then stalls.
fn first_turn(calls: &[String]) -> (Simulator, RpcSession, CollectedTurn) {
    let steps = Steps::new()
        .step(json!({"together": true}))
        .then(calls.join(", "))
        .step(json!({"stall": true}))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("a"), tool("b"), tool("c")];
    let outcome = session.prompt("go");
    (simulator, session, outcome)
}

fn text(text: &str) -> String {
    Steps::new().text(text).build()
}

fn call(name: &str) -> String {
    opened(name, name)
}

fn offered(outcome: &CollectedTurn) -> Vec<&str> {
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    outcome
        .calls
        .iter()
        .map(|call| call.name.as_str())
        .collect()
}

/// Both calls are offered; other implementations keep the second back (defect 7 of
/// `docs/recovery-tests.md`).
#[test]
fn calls_of_one_chunk_are_offered_in_one_answer() {
    let (_simulator, _, outcome) = first_turn(&[call("a"), call("b")]);
    assert_eq!(offered(&outcome), ["a", "b"]);
}

/// Text between calls separates them: later calls are offered after it.
#[test]
fn text_between_calls_separates_them() {
    let (_simulator, mut session, outcome) = first_turn(&[
        text("Before. "),
        call("a"),
        call("b"),
        text("Between. "),
        call("c"),
    ]);
    assert_eq!(outcome.text, "Before. ");
    assert_eq!(offered(&outcome), ["a", "b"]);
    for call in &outcome.calls {
        session.result(call, json!("done"));
    }
    let outcome = session.turn();
    assert_eq!(outcome.text, "Between. ");
    assert_eq!(offered(&outcome), ["c"]);
}

/// Cursor announces calls before it requests them. Those that are requested later than others are
/// waited for, so that all are in one answer however busy the machine is.
#[test]
fn announced_calls_are_offered_in_one_answer() {
    let announced = |name: &str, id: &str| {
        let tool = format!("pi__{name}");
        let args = json!({"name": tool, "providerIdentifier": "pi", "toolName": tool,
            "toolCallId": id});
        json!({"update": {"toolCallStarted": {"callId": id,
            "toolCall": {"mcpToolCall": {"args": args}}}}})
    };
    // The ids of the calls that `opened` requests are their names.
    let steps = Steps::new()
        .step(announced("a", "a"))
        .step(announced("b", "b"))
        .step(announced("c", "c"))
        .then(call("a"))
        .step(json!({"delay_ms": 100}))
        .then(call("b"))
        .step(json!({"delay_ms": 100}))
        .then(call("c"))
        .wait_for(&["a", "b", "c"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("a"), tool("b"), tool("c")];
    let outcome = session.prompt("go");
    assert_eq!(offered(&outcome), ["a", "b", "c"]);
    for call in &outcome.calls {
        session.result(call, json!([{"type": "text", "text": "done"}]));
    }
    assert_eq!(session.turn().text, "Done.");
}

/// A call that was announced and is never requested delays the others for a bounded time.
#[test]
fn a_call_that_is_never_requested_does_not_hold_back_the_others() {
    let args = json!({"name": "pi__b", "providerIdentifier": "pi", "toolName": "pi__b"});
    let steps = Steps::new()
        .step(json!({"update": {"toolCallStarted": {"callId": "b",
            "toolCall": {"mcpToolCall": {"args": args}}}}}))
        .then(call("a"))
        .wait_for(&["a"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("a"), tool("b")];
    let outcome = session.prompt("go");
    assert_eq!(offered(&outcome), ["a"]);
    session.result(&outcome.calls[0], json!([{"type": "text", "text": "done"}]));
    assert_eq!(session.turn().text, "Done.");
}
