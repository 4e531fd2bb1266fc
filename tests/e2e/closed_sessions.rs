//! Sessions that are closed while a turn or a run is active.

use serde_json::json;

use test_support::debug_log::logged;
use test_support::in_process::{END, opened};
use test_support::rpc_session::{OfferedCall, RpcSession, tool};
use test_support::scenario::{Steps, script};
use test_support::wait::until;

/// A server that takes 300 ms to end a cancelled run.
const LETS_GO: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }, { delay_ms = 300 }, { checkpoint = "auto" }, { expect_cancel = true }"#;

fn closed_and_opened(session: &mut RpcSession) -> test_support::rpc_session::CollectedTurn {
    session
        .host
        .call("session/close", json!({"sessionId": session.id}));
    session.turn()
}

/// A session has one owner at a time: the next turn waits until the closed session is released.
#[test]
fn a_session_closed_in_a_pause_is_opened_again() {
    let first = format!("{}, {LETS_GO}", opened("look", "a"));
    let last = Steps::new().text("Went on.").then(END).build();
    let simulator = script(&[&first, &last]);
    let folder = tempfile::tempdir().unwrap();
    let state = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    let mut session = RpcSession::new(&simulator, "s", &state);
    session.tools = vec![tool("look")];
    let call: OfferedCall = session.prompt("go").calls[0].clone();
    session.result(&call, json!("42"));
    let outcome = closed_and_opened(&mut session);
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "Went on."),
        "{outcome:?}"
    );
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(id(0), id(1), "with what was kept of it");
}

#[test]
fn a_session_closed_after_an_abort_is_opened_again() {
    let first = Steps::new().text("Half").then(LETS_GO).build();
    let last = Steps::new().text("Went on.").then(END).build();
    let simulator = script(&[&first, &last]);
    let folder = tempfile::tempdir().unwrap();
    let state = [
        ("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
    ];
    let mut session = RpcSession::new(&simulator, "s", &state);
    session.user("go");
    let turn = session.begin();
    let mut outcome = test_support::rpc_session::CollectedTurn::default();
    while outcome.text.is_empty() {
        let message = session.host.receive();
        outcome.receive(&message);
    }
    let cancel = json!({"jsonrpc": "2.0", "id": "cancel", "method": "turn/cancel", "params": {"turnId": turn}});
    session.host.send(&cancel);
    assert_eq!(session.finish(&turn).stop, "aborted");
    session.user("next");
    let outcome = closed_and_opened(&mut session);
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "Went on."),
        "{outcome:?}"
    );
    session.host.exits();
    let events = logged(folder.path(), "native.stream.abort");
    assert_eq!(events[0]["bridgeKeyPrefix"], "a00a4c0d");
}

#[test]
fn a_session_closed_during_a_turn_cancels_it() {
    let open = Steps::new()
        .text("Half")
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .step(json!({"checkpoint": "auto"}))
        .step(json!({"expect_cancel": true}))
        .build();
    let simulator = script(&[&open]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.user("go");
    let turn = session.begin();
    let mut outcome = test_support::rpc_session::CollectedTurn::default();
    while outcome.text.is_empty() {
        let message = session.host.receive();
        outcome.receive(&message);
    }
    let close = json!({"jsonrpc": "2.0", "id": "close", "method": "session/close", "params": {"sessionId": session.id}});
    session.host.send(&close);
    assert_eq!(session.finish(&turn).stop, "aborted");
    until(|| (simulator.recorded().verdicts().len() == 1).then_some(()));
    let recording = simulator.recorded();
    let cancels = recording.client("conversationAction.cancelAction");
    assert_eq!(cancels.len(), 1);
}

/// Log events of a session's runs contain the prefix of its key.
#[test]
fn the_end_of_a_run_is_logged_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let parked = folder.path().join("parked");
    let first = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .then(opened("look", "b"))
        .step(json!({"expect_file": parked.display().to_string()}))
        .step(json!({"cut": true}))
        .build();
    let last = Steps::new().text("Went on.").then(END).build();
    let simulator = script(&[&first, &last]);
    let state = [
        ("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
    ];
    let mut session = RpcSession::new(&simulator, "s", &state);
    session.tools = vec![tool("look")];
    let calls = session.prompt("go").calls;
    // Without its result, the call is offered again.
    assert_eq!(session.turn().calls, calls);
    session.messages.pop();
    session.result(&calls[0], json!("42"));
    let calls = session.turn().calls;
    std::fs::write(&parked, "").unwrap();
    until(|| {
        let events = logged(folder.path(), "bridge.died_mid_pause_no_checkpoint");
        events.first().cloned()
    });
    session.result(&calls[0], json!("43"));
    assert_eq!(session.turn().text, "Went on.");
    session.host.exits();
    for event in [
        "native.tool_resume.start",
        "native.tool_resume.sent_result",
        "native.tool_resume.partial_wait",
        "native.stream.tool_call_snapshot_saved",
        "bridge.died_mid_pause_no_checkpoint",
        "native.rebuild_full_history",
        "run.started",
    ] {
        let events = logged(folder.path(), event);
        assert!(!events.is_empty(), "{event} is not logged");
        // The first eight hex digits of sha256("bridge:s").
        assert!(
            events
                .iter()
                .all(|line| line["bridgeKeyPrefix"] == "a00a4c0d"),
            "{events:?}"
        );
    }
}

/// If the host died and lost an answer, another sidecar returns that answer from its beginning.
#[test]
fn an_answer_the_host_lost_is_shown_by_another_sidecar() {
    let first = Steps::new().text("One. ").then(END).build();
    let last = Steps::new()
        .step(json!({"expect_request": {"action": {"resumeAction": {}}}}))
        .text("Two.")
        .then(END)
        .build();
    let simulator = script(&[&first, &last]);
    let folder = tempfile::tempdir().unwrap();
    let state = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    let mut session = RpcSession::new(&simulator, "s", &state);
    assert_eq!(session.prompt("go").text, "One. ");
    session.messages.pop();
    let mut later = session.moved_to(&simulator, &state);
    session.host.kill();
    assert_eq!(later.turn().text, "One. Two.");
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}
