//! Every message of the user reaches the model, after the tool results that came before it.

use serde_json::{Value as Json, json};

use crate::effects_once::{attempts, in_any_conversation, user_messages};
use crate::steering::{INJECTED, QUEUED};
use test_support::debug_log::state;
use test_support::rpc_session::{CollectedTurn, RpcSession, tool};
use test_support::scenario::{END, Steps, calls, text};
use test_support::simulator::{Recording, Simulator};
use test_support::wait::until;

const DELIVERED: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { delivered = { step = 1 } } } } }"#;

fn session(simulator: &Simulator, env: &[(&str, &str)]) -> RpcSession {
    let mut session = RpcSession::new(simulator, "s", env);
    session.tools = vec![tool("look"), tool("slow")];
    session
}

/// Returns the messages that were injected into all runs, in order.
fn injected(recording: &Recording) -> Vec<String> {
    let actions = recording.client("conversationAction.injectContextAction");
    let user_text = "/conversationAction/injectContextAction/userContext/userMessage/text";
    let texts = actions
        .into_iter()
        .filter_map(|sent| sent.pointer(user_text));
    texts.filter_map(Json::as_str).map(str::to_owned).collect()
}

/// Returns the place of the first message of that kind among those the client sent to a run.
fn place_of(recording: &Recording, run: u64, kind: &str) -> usize {
    let frames = recording.frames(run, "client");
    let found = frames.iter().position(|frame| frame["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in run {run}"))
}

#[test]
fn results_are_sent_before_the_message_of_the_same_turn() {
    for _ in 0..4 {
        let first = Steps::new()
            .then(calls("look", "{}", "", &text("it says 42")))
            .then(INJECTED)
            .then(DELIVERED)
            .text("Both.")
            .then(END)
            .build();
        let simulator = attempts(&[&first]);
        let mut session = session(&simulator, &[]);
        let outcome = session.prompt("go");
        session.result(&outcome.calls[0], json!("it says 42"));
        assert_eq!(session.prompt("hurry").text, "Both.");
        let recording = simulator.recorded();
        let result = place_of(&recording, 1, "execClientMessage.mcpResult");
        let message = place_of(&recording, 1, "conversationAction.injectContextAction");
        assert!(result < message, "result {result}, message {message}");
    }
}

/// A turn with results and a message ends before it reaches the run; the next one has a second
/// message.
#[test]
fn a_message_of_a_turn_that_was_refused_is_sent_with_the_next_one() {
    let first = Steps::new()
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(DELIVERED)
        .text("Both.")
        .then(END)
        .build();
    let simulator = attempts(&[&first]);
    let mut session = session(&simulator, &[]);
    let outcome = session.prompt("go");
    session.result(&outcome.calls[0], json!("it says 42"));
    session.user("first message");
    let mut params = session.params();
    params["kept"] = json!({"flags": {"cursor-mode": "no such mode"}});
    let refused = session.take(params);
    assert_eq!(
        (refused.stop.as_str(), refused.text.as_str()),
        ("error", "")
    );
    let outcome = session.prompt("second message");
    assert_eq!(outcome.text, "Both.", "{outcome:?}");
    let sent = injected(&simulator.recorded()).join("|");
    for part in ["first message", "second message"] {
        assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
    }
}

/// The same, stopped by the user right after it was requested.
#[test]
fn a_message_of_a_turn_that_was_stopped_at_once_is_sent_with_the_next_one() {
    for _ in 0..4 {
        let first = Steps::new()
            .then(calls("look", "{}", "", &text("it says 42")))
            .then(INJECTED)
            .then(DELIVERED)
            .text("Both.")
            .then(END)
            .build();
        let next = Steps::new().text("Both.").then(END).build();
        let simulator = in_any_conversation(&[&first, &next]);
        let mut session = session(&simulator, &[]);
        let outcome = session.prompt("go");
        session.result(&outcome.calls[0], json!("it says 42"));
        session.user("first message");
        let params = session.params();
        let turn = params["turnId"].as_str().unwrap().to_owned();
        let ask = |id: &str, method: &str, params: Json| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        session.host.send_all(&[
            ask(&turn, "turn/start", params),
            ask("c", "turn/cancel", json!({"turnId": turn})),
        ]);
        let refused = session.finish(&turn);
        assert_eq!(refused.stop, "aborted");
        let outcome = session.prompt("second message");
        assert_eq!(outcome.text, "Both.", "{outcome:?}");
        let recording = simulator.recorded();
        let all = [injected(&recording), user_messages(&simulator)]
            .concat()
            .join("|");
        for part in ["first message", "second message"] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}

/// Injects a message as soon as the turn has emitted text.
fn inject(session: &mut RpcSession, turn: &str, words: &str) {
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    let words = json!({"turnId": turn, "text": words});
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "inject", "method": "turn/inject", "params": words}));
    loop {
        let message = session.host.receive();
        if message["id"] == "inject" {
            assert_eq!(message["result"]["taken"], true);
            return;
        }
    }
}

/// The turn fails before the model has read the message, and the sidecar is killed.
#[test]
fn an_injected_message_of_a_failed_turn_survives_a_kill() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(r#"{ end = { code = "permission_denied", message = "no more" } }"#)
        .build();
    let second = Steps::new()
        .text("Well. ")
        .then(INJECTED)
        .then(DELIVERED)
        .text("Read.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&simulator, &state(&folder));
    session.user("go");
    let turn = session.begin();
    inject(&mut session, &turn, "hurry");
    assert_eq!(session.finish(&turn).stop, "error");
    session.host.kill();
    let mut later = session.moved_to(&simulator, &state(&folder));
    let outcome = later.prompt("and now");
    assert_eq!(outcome.text, "Well. Read.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// The session is invalidated in a pause, before a checkpoint includes the message; another sidecar
/// may take over.
#[test]
fn an_injected_message_survives_an_invalidation() {
    for is_killed in [false, true] {
        let first = Steps::new()
            .text("Hm. ")
            .then(INJECTED)
            .then(DELIVERED)
            .then(calls("look", "{}", r#"open = true, name = "a","#, "{}"))
            .stall()
            .build();
        let second = Steps::new()
            .text("Well. ")
            .then(INJECTED)
            .then(DELIVERED)
            .text("Read.")
            .then(END)
            .build();
        let simulator = in_any_conversation(&[&first, &second]);
        let folder = tempfile::tempdir().unwrap();
        let mut session = session(&simulator, &state(&folder));
        session.user("go");
        let turn = session.begin();
        inject(&mut session, &turn, "hurry");
        let outcome = session.finish(&turn);
        assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
        session
            .host
            .call("session/invalidate", json!({"sessionId": "s"}));
        if is_killed {
            let later = session.moved_to(&simulator, &state(&folder));
            session.host.kill();
            session = later;
        }
        session.messages.truncate(1);
        let outcome = session.turn();
        assert_eq!(outcome.text, "Well. Read.", "{outcome:?}");
        assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
    }
}

/// The host rewrites its history in a pause, before a checkpoint includes the message.
#[test]
fn an_injected_message_survives_a_rewritten_history() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(DELIVERED)
        .then(calls("look", "{}", r#"open = true, name = "a","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .text("Well. ")
        .then(INJECTED)
        .then(DELIVERED)
        .text("Read.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let mut session = session(&simulator, &[]);
    session.user("go");
    let turn = session.begin();
    inject(&mut session, &turn, "hurry");
    assert_eq!(session.finish(&turn).stop, "toolUse");
    session.messages.clear();
    let outcome = session.prompt("go another way");
    assert_eq!(outcome.text, "Well. Read.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// The server never sends a checkpoint, and the sidecar is killed during the run.
#[test]
fn an_injected_message_that_no_checkpoint_includes_survives_a_kill() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(DELIVERED)
        .stall()
        .build();
    let second = Steps::new()
        .text("Well. ")
        .then(INJECTED)
        .then(DELIVERED)
        .text("Read.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&simulator, &state(&folder));
    session.user("go");
    let turn = session.begin();
    inject(&mut session, &turn, "hurry");
    until(|| (!injected(&simulator.recorded()).is_empty()).then_some(()));
    session.host.kill();
    let mut later = session.moved_to(&simulator, &state(&folder));
    let outcome = later.prompt("and now");
    assert_eq!(outcome.text, "Well. Read.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// A checkpoint includes the message, but the server misses a blob of it, so the history is sent, which
/// does not contain the message.
#[test]
fn an_injected_message_in_an_abandoned_checkpoint_is_sent_again() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(DELIVERED)
        .text("Read. ")
        .checkpoint()
        .text("More. ")
        .checkpoint()
        .step(json!({"end": {"code": "internal", "message": "Blob not found"}}))
        .build();
    let second = Steps::new()
        .then(INJECTED)
        .then(DELIVERED)
        .text("Again.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let mut session = session(&simulator, &[]);
    session.user("go");
    let turn = session.begin();
    inject(&mut session, &turn, "hurry");
    let outcome = session.finish(&turn);
    assert_eq!(outcome.stop, "error", "{outcome:?}");
    // The host drops the failed answer and asks again.
    session.messages.pop();
    let outcome = session.turn();
    assert_eq!(outcome.text, "Again.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// The host changes its history in a pause, so the run that has the message is not continued.
#[test]
fn an_injected_message_survives_another_history() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(DELIVERED)
        .then(calls("look", "{}", r#"open = true, name = "a","#, "{}"))
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .then(INJECTED)
        .then(DELIVERED)
        .text("Again.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let mut session = session(&simulator, &[]);
    session.user("go");
    let turn = session.begin();
    inject(&mut session, &turn, "hurry");
    let outcome = session.finish(&turn);
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    session.messages.clear();
    assert_eq!(session.prompt("something else").text, "Again.");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// A server that only queues a message which came with results, and the run that continues from the
/// last checkpoint, which includes the results but not the message.
fn queued_with_results() -> Simulator {
    let first = Steps::new()
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(QUEUED)
        .text("Hm. ")
        .checkpoint()
        .text("Well. ")
        .checkpoint()
        .then(calls("slow", "{}", r#"open = true, name = "a","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .then(INJECTED)
        .then(DELIVERED)
        .text("Heard.")
        .then(END)
        .build();
    in_any_conversation(&[&first, &second])
}

/// Plays the first run until its last call is offered, and kills the sidecar.
fn killed_with_a_queued_message(
    simulator: &Simulator,
    folder: &tempfile::TempDir,
) -> (RpcSession, CollectedTurn) {
    let mut session = session(simulator, &state(folder));
    let outcome = session.prompt("go");
    session.result(&outcome.calls[0], json!("it says 42"));
    let outcome = session.prompt("hurry");
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("toolUse", "Hm. Well. "),
        "{outcome:?}"
    );
    session.host.kill();
    (session.moved_to(simulator, &state(folder)), outcome)
}

#[test]
fn a_queued_message_of_the_history_survives_a_kill_in_a_pause() {
    let (simulator, folder) = (queued_with_results(), tempfile::tempdir().unwrap());
    let (mut later, outcome) = killed_with_a_queued_message(&simulator, &folder);
    later.result(&outcome.calls[0], json!("done"));
    let outcome = later.turn();
    assert_eq!(outcome.text, "Heard.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// The host has lost the answer and asks again. Its history ends with the message, which the stored
/// checkpoint is taken to cover.
#[test]
fn a_queued_message_survives_a_kill_after_which_the_host_asks_again() {
    let (simulator, folder) = (queued_with_results(), tempfile::tempdir().unwrap());
    let (mut later, _) = killed_with_a_queued_message(&simulator, &folder);
    later.messages.pop();
    let outcome = later.turn();
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert!(outcome.text.ends_with("Heard."), "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry", "hurry"]);
}

/// A checkpoint on disk includes the message, so it is not sent again after a kill.
#[test]
fn an_injected_message_in_a_checkpoint_is_not_sent_again_after_a_kill() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(DELIVERED)
        .text("Read. ")
        .checkpoint()
        .then(calls("look", "{}", r#"open = true, name = "a","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("42.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&simulator, &state(&folder));
    session.user("go");
    let turn = session.begin();
    inject(&mut session, &turn, "hurry");
    let outcome = session.finish(&turn);
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    session.messages.last_mut().unwrap()["content"][0]["text"] = json!("Hm. Read. ");
    session.host.kill();
    let mut later = session.moved_to(&simulator, &state(&folder));
    later.result(&outcome.calls[0], json!("it says 42"));
    let outcome = later.turn();
    assert_eq!(outcome.text, "42.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded()), ["hurry"]);
}
