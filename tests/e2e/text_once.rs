//! Text that the user has read is sent to the model until a checkpoint includes it, and text that
//! nobody has read yet is shown.

use serde_json::{Value as Json, json};

use crate::effects_once::{REJECTED, attempts, in_any_conversation, user_messages};
use crate::steering::INJECTED;
use test_support::debug_log::{logged, state};
use test_support::rpc_session::{CollectedTurn, OfferedCall, RpcSession};
use test_support::scenario::{END, Steps, inline};
use test_support::simulator::Simulator;
use test_support::wait::until;

/// The client's response proves that it has read everything before it.
const READ: &str = r#"{ kv_set = { text = "read this far" } }"#;
const CANCELLED: &str =
    r#"{ expect_client = { conversationAction = { cancelAction = {} } } }, { end = true }"#;
/// An error that no retry can fix and that says nothing about the checkpoint.
const LIMIT: &str = r#"{ end = { code = "resource_exhausted", message = "Error", error = "ERROR_FREE_USER_USAGE_LIMIT", title = "T", detail = "D", retryable = false } }"#;

/// A completed native tool call, which a host with cards displays as a tool call.
fn card(id: &str) -> String {
    let read = json!({"args": {"path": id}, "result": {"success": {"content": "c"}}});
    let completed = json!({"callId": id, "toolCall": {"readToolCall": read}});
    inline(&json!({"update": {"toolCallCompleted": completed}}))
}

/// A host that displays native tool calls as cards.
fn session(simulator: &Simulator, env: &[(&str, &str)]) -> RpcSession {
    let env = [&[("PI_CURSOR_HTTP", "2")], env].concat();
    let mut session = RpcSession::new(simulator, "s", &env);
    session.cards = vec!["read", "cursor"];
    session
}

#[track_caller]
fn displayed(outcome: &CollectedTurn) -> OfferedCall {
    assert_eq!(
        (outcome.stop.as_str(), outcome.calls.len()),
        ("toolUse", 1),
        "{outcome:?}"
    );
    assert!(outcome.calls[0].id.starts_with("cursor-replay-"));
    outcome.calls[0].clone()
}

fn returns(session: &mut RpcSession, card: &OfferedCall) {
    session.result(card, json!([{"type": "text", "text": "c"}]));
}

#[track_caller]
fn assert_sent(simulator: &Simulator, run: usize, parts: &[&str]) {
    let sent = user_messages(simulator);
    for part in parts {
        assert_eq!(
            sent[run].matches(part).count(),
            1,
            "{part:?} is not sent once: {:?}",
            sent[run]
        );
    }
}

/// Text from before and after the card, which no checkpoint includes.
fn before_and_after_a_card(end: &str) -> String {
    Steps::new()
        .text("One. ")
        .checkpoint()
        .text("Two. ")
        .then(card("a"))
        .then(READ)
        .text("Three. ")
        .then(end)
        .build()
}

#[test]
fn text_before_a_card_is_sent_after_the_user_stops_the_turn() {
    let next = Steps::new()
        .expect_state("last checkpoint")
        .text("Four.")
        .then(END)
        .build();
    let simulator = attempts(&[&before_and_after_a_card(CANCELLED), &next]);
    let mut session = session(&simulator, &[]);
    let outcome = session.prompt("go");
    assert_eq!(outcome.text, "One. Two. ");
    returns(&mut session, &displayed(&outcome));
    let turn = session.begin();
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    let cancel = json!({"turnId": turn});
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "stop", "method": "turn/cancel", "params": cancel}));
    assert_eq!(session.finish(&turn).stop, "aborted");
    session.messages.last_mut().unwrap()["content"][0]["text"] = json!(begun.text);
    let outcome = session.prompt("go on");
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Four.", "stop")
    );
    assert_sent(&simulator, 1, &["Two.", "Three.", "go on"]);
    assert!(
        !user_messages(&simulator)[1].contains("One."),
        "the checkpoint includes it"
    );
}

/// The host returns the card with a message that the run rejects, so the message gets its own run.
#[test]
fn text_before_a_card_is_sent_with_a_rejected_message() {
    let end = [INJECTED, REJECTED, CANCELLED].join(", ");
    let first = Steps::new()
        .text("One. ")
        .checkpoint()
        .text("Two. ")
        .then(card("a"))
        .then(READ)
        .then(&end)
        .build();
    let next = Steps::new()
        .expect_state("last checkpoint")
        .text("Three.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &next]);
    let mut session = session(&simulator, &[]);
    let outcome = session.prompt("go");
    assert_eq!(outcome.text, "One. Two. ");
    returns(&mut session, &displayed(&outcome));
    let outcome = session.prompt("hurry");
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Three.", "stop")
    );
    assert_sent(&simulator, 1, &["Two.", "hurry"]);
    assert!(
        !user_messages(&simulator)[1].contains("One."),
        "the checkpoint includes it"
    );
}

#[test]
fn text_before_a_card_is_sent_when_the_host_asks_again_after_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().join("shown");
    let fails = Steps::new()
        .step(json!({"expect_file": shown}))
        .then(LIMIT)
        .build();
    let next = Steps::new()
        .expect_state("last checkpoint")
        .text("Three.")
        .then(END)
        .build();
    let simulator = attempts(&[&before_and_after_a_card(&fails), &next]);
    let mut session = session(&simulator, &[]);
    let outcome = session.prompt("go");
    returns(&mut session, &displayed(&outcome));
    let turn = session.begin();
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    std::fs::write(&shown, "").unwrap();
    assert_eq!(session.finish(&turn).stop, "error");
    // The host drops the failed answer and asks again.
    session.messages.pop();
    assert_eq!(session.turn().text, "Three.");
    assert_sent(&simulator, 1, &["Two."]);
}

#[test]
fn text_before_a_card_is_sent_after_a_kill() {
    let first = Steps::new()
        .then(before_and_after_a_card(READ))
        .then(card("b"))
        .stall()
        .build();
    let next = Steps::new()
        .expect_state("last checkpoint")
        .text("Four.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &next]);
    let folder = tempfile::tempdir().unwrap();
    let place = state(&folder);
    let mut session = session(&simulator, &place);
    let outcome = session.prompt("go");
    returns(&mut session, &displayed(&outcome));
    let outcome = session.turn();
    assert_eq!(outcome.text, "Three. ");
    let second = displayed(&outcome);
    session.host.kill();
    let env = [&[("PI_CURSOR_HTTP", "2")], &place[..]].concat();
    let mut later = session.moved_to(&simulator, &env);
    later.cards.clone_from(&session.cards);
    returns(&mut later, &second);
    let outcome = later.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Four.", "stop")
    );
    assert_sent(&simulator, 1, &["Two.", "Three."]);
}

/// A checkpoint that a resumed stream sends before it has repeated anything includes neither text.
#[test]
fn text_before_a_card_is_sent_after_a_checkpoint_that_lacks_it() {
    let again = Steps::new()
        .then(r#"{ checkpoint = { rootPromptMessagesJson = ["YmVmb3Jl"] } }"#)
        .then(READ)
        .then(LIMIT)
        .build();
    let first = before_and_after_a_card(&Steps::new().then(READ).reset("internal_error").build());
    let next = Steps::new().text("Four.").then(END).build();
    let simulator = attempts(&[&first, &again, &next]);
    let mut session = session(&simulator, &[]);
    let outcome = session.prompt("go");
    returns(&mut session, &displayed(&outcome));
    assert_eq!(session.turn().stop, "error");
    let outcome = session.prompt("go on");
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Four.", "stop")
    );
    assert_sent(&simulator, 2, &["Two.", "Three."]);
}

/// The run ends while the host displays a card, and the host returns when the run is released.
#[test]
fn an_unread_answer_is_shown_after_the_parked_run_is_released() {
    let first = Steps::new()
        .text("Looking. ")
        .then(card("a"))
        .then(READ)
        .text("It says 42.")
        .then(END)
        .build();
    let simulator = attempts(&[
        &first,
        &Steps::new().text("Something else.").then(END).build(),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let [place, log] = state(&folder);
    let env = [place, log, ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "1000")];
    let mut session = session(&simulator, &env);
    let outcome = session.prompt("go");
    let shown = displayed(&outcome);
    until(|| logged(folder.path(), "bridge.active_ttl_expired").pop());
    returns(&mut session, &shown);
    let length = session.messages.len();
    // The second time, the host repeats its request.
    for _ in 0..2 {
        session.messages.truncate(length);
        let outcome = session.turn();
        assert_eq!(
            (outcome.text.as_str(), outcome.stop.as_str()),
            ("It says 42.", "stop")
        );
        assert_eq!(simulator.recorded().runs(), 1, "the answer was complete");
    }
    let outcome = session.prompt("and now");
    assert_eq!(outcome.text, "Something else.");
    assert_eq!(user_messages(&simulator)[1], "and now");
}

/// The same after a kill: the text is shown before anything else.
#[test]
fn an_unread_answer_is_shown_after_a_kill() {
    let first = Steps::new()
        .text("Looking. ")
        .then(card("a"))
        .then(READ)
        .text("It says 42.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &Steps::new().text(" More.").then(END).build()]);
    let folder = tempfile::tempdir().unwrap();
    let place = state(&folder);
    let mut session = session(&simulator, &place);
    let outcome = session.prompt("go");
    let shown = displayed(&outcome);
    // The last checkpoint is on disk.
    until(|| {
        let written = logged(folder.path(), "journal.written");
        let sizes: Vec<&Json> = written.iter().map(|line| &line["bytes"]).collect();
        sizes
            .iter()
            .any(|bytes| bytes.as_u64() > Some(0))
            .then_some(())
    });
    session.host.kill();
    let mut later = session.moved_to(&simulator, &place);
    later.cards.clone_from(&session.cards);
    returns(&mut later, &shown);
    let outcome = later.turn();
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert!(
        outcome.text.trim().starts_with("It says 42."),
        "{outcome:?}"
    );
}
