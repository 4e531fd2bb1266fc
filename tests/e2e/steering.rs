//! Injected user messages: a message that a run does not accept is not lost.

use std::io::Write as _;

use serde_json::{Value as Json, json};

use test_support::in_process::{opened, user_text};
use test_support::rpc_session::{CollectedTurn, RpcSession, tool};
use test_support::run_client::{OnText, RunClient};
use test_support::scenario::{END, Steps, calls, script, text};
use test_support::simulator::{Recording, Simulator, Transport};
use test_support::wait::until;

pub const INJECTED: &str = r#"{ expect_client = { conversationAction = { injectContextAction = {} } }, capture = { I = "/conversationAction/injectContextAction/injectionId" } }"#;
pub const REFUSED: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { rejected = { reason = "no" } } } } }"#;
pub const DELIVERED: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { delivered = { step = 1 } } } } }"#;
pub const QUEUED: &str =
    r#"{ update = { contextInjectionState = { injectionId = "$I", state = { queued = {} } } } }"#;
pub const GIVEN_UP: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }"#;

fn session(simulator: &Simulator) -> RpcSession {
    let mut session = RpcSession::new(simulator, "s", &[]);
    session.tools = vec![tool("look"), tool("slow")];
    session
}

/// Injects a message into a running turn and collects the other messages received meanwhile.
fn inject(session: &mut RpcSession, turn: &str, text: &str, outcome: &mut CollectedTurn) {
    let words = json!({"turnId": turn, "text": text});
    let ask = json!({"jsonrpc": "2.0", "id": "inject", "method": "turn/inject", "params": words});
    session.host.send(&ask);
    loop {
        let message = session.host.receive();
        if message["id"] != "inject" {
            outcome.receive(&message);
            continue;
        }
        if message["result"]["taken"] == true {
            return;
        }
        // The turn is not running yet, so retry.
        session.host.send(&ask);
    }
}

/// Takes a turn and injects a message as soon as the turn has emitted text.
pub fn interrupted(session: &mut RpcSession, words: &str) -> CollectedTurn {
    let turn = session.begin();
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    inject(session, &turn, words, &mut begun);
    let mut outcome = session.finish(&turn);
    outcome.text.insert_str(0, &begun.text);
    let answer = session.messages.last_mut().unwrap();
    answer["content"][0]["text"] = json!(outcome.text);
    outcome
}

/// A simulator with one script per run, in any conversation.
fn runs(steps: &[&str]) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(file, "name = \"script\"\nattempts = \"all\"").unwrap();
    for steps in steps {
        writeln!(file, "[[run]]\nsteps = [ {steps} ]").unwrap();
    }
    Simulator::with(Transport::H2c, file.path())
}

/// Returns the user message of each run.
fn asked(simulator: &Simulator) -> Vec<String> {
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    requests
        .into_iter()
        .map(|request: &Json| user_text(&request["runRequest"]))
        .collect()
}

/// The host does not see a call of a run that was cancelled.
#[test]
fn a_call_of_a_cancelled_run_is_not_offered() {
    let first = Steps::new()
        .text("Hm. ")
        .checkpoint()
        .then(INJECTED)
        .step(json!({"together": true}))
        .then(opened("look", "a"))
        .then(REFUSED)
        .then(GIVEN_UP)
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .then(calls("slow", "{}", "", &text("done")))
        .text("Heard.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = session(&simulator);
    session.user("go");
    let outcome = interrupted(&mut session, "hurry");
    // The host does see the calls of the next run.
    let names: Vec<&str> = outcome
        .calls
        .iter()
        .map(|call| call.name.as_str())
        .collect();
    assert_eq!((outcome.stop.as_str(), names), ("toolUse", vec!["slow"]));
    session.result(&outcome.calls[0], json!("done"));
    assert_eq!(session.turn().text, "Heard.");
    assert_eq!(asked(&simulator), ["go", "hurry"]);
}

/// The run repeats its request with another token, which its owner does not notice.
#[tokio::test]
async fn a_message_is_sent_again_if_the_token_of_its_stream_is_refused() {
    let first = Steps::new().text("One.").then(END).build();
    let refused = Steps::new()
        .then(r#"{ thinking = "Hm. " }"#)
        .then(INJECTED)
        .then(r#"{ end = { code = "unauthenticated", message = "token expired" } }"#)
        .build();
    let third = Steps::new()
        .then(INJECTED)
        .then(DELIVERED)
        .text("Read.")
        .then(END)
        .build();
    let simulator = runs(&[&first, &refused, &third]);
    let mut client = RunClient::new(&simulator, Transport::H2c);
    client.prompt("go").await.finished("One.");
    let steer = OnText::Steer("", "hurry");
    client.prompt_and("on", steer).await.finished("Read.");
}

/// The checkpoint includes everything except this message.
#[test]
fn a_rejected_message_is_sent_alone_to_a_checkpoint_that_has_the_rest() {
    let first = Steps::new()
        .text("Hm. ")
        .checkpoint()
        .then(INJECTED)
        .then(REFUSED)
        .then(GIVEN_UP)
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Heard.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = session(&simulator);
    session.user("please go");
    let outcome = interrupted(&mut session, "go");
    assert_eq!(outcome.text, "Hm. \n\nHeard.", "answers to two things");
    assert_eq!(asked(&simulator), ["please go", "go"]);
}

/// The checkpoint does not include a result either, so both are sent.
#[test]
fn a_rejected_message_is_sent_with_a_result_the_checkpoint_lacks() {
    let first = Steps::new()
        .checkpoint()
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(REFUSED)
        .then(GIVEN_UP)
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Heard.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = session(&simulator);
    let outcome = session.prompt("go");
    session.result(&outcome.calls[0], json!("it says 42"));
    let turn = session.begin();
    inject(&mut session, &turn, "hurry", &mut CollectedTurn::default());
    let outcome = session.finish(&turn);
    assert_eq!(outcome.text, "Heard.", "{outcome:?}");
    let asked = asked(&simulator);
    for part in ["it says 42", "hurry"] {
        assert_eq!(asked[1].matches(part).count(), 1, "{part}: {asked:?}");
    }
}

/// There is no checkpoint: the history is sent again, then the message, although it is a substring
/// of an earlier one.
#[test]
fn a_rejected_message_is_sent_after_a_rebuilt_history() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(REFUSED)
        .then(GIVEN_UP)
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new().text("Heard.").then(END).build();
    let simulator = runs(&[&first, &second]);
    let mut session = session(&simulator);
    session.user("please go");
    let outcome = interrupted(&mut session, "go");
    assert_eq!(outcome.text, "Hm. \n\nHeard.", "answers to two things");
    assert_eq!(asked(&simulator), ["please go", "go"]);
}

/// A message that was accepted but not delivered when the turn failed is sent in the next turn.
#[test]
fn a_message_a_failed_turn_did_not_receive_is_sent_in_the_next() {
    let fails = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .step(json!({"end": {"code": "permission_denied", "message": "no more"}}))
        .build();
    let second = Steps::new()
        .text("Well. ")
        .then(INJECTED)
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .text("Heard.")
        .then(END)
        .build();
    let simulator = runs(&[&fails, &second]);
    let mut session = session(&simulator);
    session.user("go");
    let outcome = interrupted(&mut session, "hurry");
    assert_eq!(outcome.stop, "error", "{outcome:?}");
    let outcome = session.prompt("and now");
    assert_eq!(outcome.text, "Well. Heard.", "{outcome:?}");
    assert_eq!(injected(&simulator.recorded(), 1), ["hurry"]);
    assert_eq!(injected(&simulator.recorded(), 2), ["hurry"]);
}

/// Returns the messages that were injected into a run.
fn injected(recording: &Recording, run: u64) -> Vec<String> {
    let frames = recording.frames(run, "client").into_iter();
    let user_text = "/json/conversationAction/injectContextAction/userContext/userMessage/text";
    frames
        .filter_map(|frame| frame.pointer(user_text)?.as_str().map(str::to_owned))
        .collect()
}

/// A message that was accepted before the user stopped the turn is not lost, whether or not it had
/// been sent to the run.
#[test]
fn a_message_a_cancelled_turn_did_not_receive_is_sent_in_the_next() {
    let first = r#"{ text = "Hm. " }, { expect_cancel = true }"#;
    let second = Steps::new()
        .text("Well. ")
        .then(INJECTED)
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .text("Heard.")
        .then(END)
        .build();
    // Whether the message is sent before the cancel is a race, so try several times.
    for _ in 0..4 {
        let simulator = runs(&[first, &second]);
        let mut session = session(&simulator);
        session.user("go");
        let turn = session.begin();
        let mut begun = CollectedTurn::default();
        while begun.text.is_empty() {
            begun.receive(&session.host.receive());
        }
        let ask = |id: &str, method: &str, params: Json| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        session.host.send_all(&[
            ask("i", "turn/inject", json!({"turnId": turn, "text": "hurry"})),
            ask("c", "turn/cancel", json!({"turnId": turn})),
        ]);
        let answers = session.host.answers(3);
        assert_eq!(answers["i"]["result"]["taken"], true);
        assert_eq!(answers[&turn]["result"]["stopReason"], "aborted");
        assert_eq!(session.prompt("and now").text, "Well. Heard.");
        assert_eq!(injected(&simulator.recorded(), 2), ["hurry"]);
    }
}

/// The message was delivered, but no checkpoint includes it and the stream is lost.
#[test]
fn text_in_no_checkpoint_is_sent_to_the_next_stream() {
    let breaks = [
        r#"{ checkpoint = "auto" }, { text = "Hm. " }"#,
        r#"{ text = "Hm. " }"#,
    ];
    let ends = [
        r#"{ reset = "internal_error" }"#,
        r#"{ end = { code = "unavailable", message = "later" } }"#,
    ];
    for (begins, breaks) in breaks.into_iter().zip(ends) {
        let first = format!("{begins}, {INJECTED}, {DELIVERED}, {breaks}");
        let second = Steps::new()
            .then(INJECTED)
            .then(DELIVERED)
            .text("Heard.")
            .then(END)
            .build();
        let simulator = runs(&[&first, &second]);
        let mut session = session(&simulator);
        session.user("go");
        let outcome = interrupted(&mut session, "hurry");
        // Without a checkpoint, text that was shown is not requested again.
        if outcome.stop == "error" {
            assert_eq!(session.prompt("and now").stop, "stop");
        }
        assert_eq!(injected(&simulator.recorded(), 2), ["hurry"], "{breaks}");
    }
}

/// A checkpoint after the delivery may still be older than it, unless it names the message or another
/// one follows.
#[test]
fn text_in_a_checkpoint_is_not_sent_again() {
    let opaque = r#"{ checkpoint = { rootPromptMessagesJson = ["YQ=="] } }"#;
    for (state, sent_again) in [
        (r#"{ checkpoint = "auto" }"#, &[][..]),
        (opaque, &["hurry"]),
        (&format!("{opaque}, {opaque}"), &[]),
    ] {
        let first = Steps::new()
            .text("Hm. ")
            .then(INJECTED)
            .then(DELIVERED)
            .then(state)
            .reset("internal_error")
            .build();
        let second = Steps::new().expect_state("last checkpoint");
        let second = match sent_again {
            [] => second,
            _ => second.then(INJECTED).then(DELIVERED),
        };
        let second = second.text("Heard.").then(END).build();
        let simulator = runs(&[&first, &second]);
        let mut session = session(&simulator);
        session.user("go");
        let outcome = interrupted(&mut session, "hurry");
        assert_eq!(outcome.stop, "stop", "{outcome:?}");
        assert_eq!(injected(&simulator.recorded(), 2), sent_again, "{state}");
    }
}

/// The message got its own run, which fails before any checkpoint includes it.
#[test]
fn a_message_whose_own_run_fails_is_sent_in_the_next_turn() {
    let first = Steps::new()
        .text("Hm. ")
        .checkpoint()
        .then(INJECTED)
        .then(REFUSED)
        .then(GIVEN_UP)
        .step(json!({"expect_cancel": true}))
        .build();
    let own = r#"{ text = "So. " }, { end = { code = "permission_denied", message = "no" } }"#;
    let next = Steps::new()
        .then(INJECTED)
        .then(DELIVERED)
        .text("Heard.")
        .then(END)
        .build();
    let simulator = runs(&[&first, own, &next]);
    let mut session = session(&simulator);
    session.user("go");
    let outcome = interrupted(&mut session, "hurry");
    assert_eq!(outcome.stop, "error", "{outcome:?}");
    assert_eq!(session.prompt("and now").stop, "stop");
    assert_eq!(asked(&simulator)[1], "hurry");
    assert_eq!(injected(&simulator.recorded(), 3), ["hurry"]);
}

/// The message was only queued, so a checkpoint that was sent after it need not include it, although
/// it includes the result.
#[test]
fn a_queued_message_survives_a_loss_after_a_later_result() {
    let first = Steps::new()
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(QUEUED)
        .text("Hm. ")
        .checkpoint()
        .then(calls("slow", "{}", "", &text("done")))
        .step(json!({"end": {"code": "unavailable", "message": "later"}}))
        .build();
    let second = Steps::new()
        .then(INJECTED)
        .then(DELIVERED)
        .text("Heard.")
        .then(END)
        .build();
    let simulator = runs(&[&first, &second]);
    let mut session = session(&simulator);
    let outcome = session.prompt("go");
    session.result(&outcome.calls[0], json!("it says 42"));
    session.user("hurry");
    let outcome = session.turn();
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    session.result(&outcome.calls[0], json!("done"));
    assert_eq!(session.turn().text, "Heard.");
    assert_eq!(injected(&simulator.recorded(), 2), ["hurry"]);
}

/// The usage of both runs is added up.
#[test]
fn usage_of_two_runs_of_a_turn_is_added() {
    let first = Steps::new()
        .text("Hm. ")
        .then(INJECTED)
        .then(QUEUED)
        .then(END)
        .build();
    let second = Steps::new().text("Heard.").then(END).build();
    let simulator = runs(&[&first, &second]);
    let mut session = session(&simulator);
    session.user("go");
    let outcome = interrupted(&mut session, "hurry");
    assert_eq!(outcome.text, "Hm. \n\nHeard.");
    // Both runs reported counters, which are not the activity of the turn.
    let count = |name: &str| outcome.usage[name].as_u64().unwrap();
    assert_eq!(count("output"), 3);
    assert!(count("input") < 100, "{}", outcome.usage);
}

/// Token counts that Cursor sent while the run was parked are reported with the next turn.
#[test]
fn a_checkpoint_in_a_pause_updates_the_context_usage() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .step(json!({"token_details": {"usedTokens": 12345, "maxTokens": 200000}}))
        .checkpoint()
        .wait_for(&["a"])
        .then(opened("slow", "b"))
        .step(json!({"expect_cancel": true}))
        .build();
    let simulator = script(&[&first]);
    let mut session = session(&simulator);
    let outcome = session.prompt("go");
    until(|| {
        let recording = simulator.recorded();
        let frames = recording.frames(1, "server");
        let state = |frame: &&&Json| frame["kind"] == "conversationCheckpointUpdate";
        frames.iter().find(state).map(|_| ())
    });
    session.result(&outcome.calls[0], json!("it says 42"));
    let outcome = session.turn();
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    assert_eq!(outcome.usage["totalTokens"], 12345);
}
