//! Checkpoints that were already in flight when text or an effect was sent, and do not include it.

use serde_json::{Value as Json, json};

use test_support::rpc_session::{CollectedTurn, OfferedCall, RpcSession, tool};
use test_support::run_client::RunClient;
use test_support::scenario::{END, Steps, script, text, value};
use test_support::simulator::{Simulator, Transport};

const LATE: &str = r#"{ checkpoint = "late" }"#;
/// The client's response proves that it has read everything before it.
const READ: &str = r#"{ kv_set = { text = "read this far" } }"#;
const BROKEN: &str = r#"{ reset = "internal_error" }"#;
/// Expects a user message.
const USER_MESSAGE: &str = "{ expect_request = { action = { userMessageAction = {} } } }";

fn look(call: &str, found: &str) -> String {
    Steps::new()
        .step(json!({
            "exec": {
                "mcpArgs": {
                    "name": "pi__look",
                    "providerIdentifier": "pi",
                    "toolName": "pi__look",
                    "toolCallId": call.to_string(),
                    "args": {"q": call.to_string()},
                },
            },
            "expect": {"mcpResult": value(text(found))},
        }))
        .build()
}

fn guest(simulator: &Simulator, env: &[(&str, &str)]) -> RpcSession {
    let env = [&[("PI_CURSOR_HTTP", "2")], env].concat();
    let mut session = RpcSession::new(simulator, "late", &env);
    session.tools = vec![tool("look")];
    session
}

#[track_caller]
fn called(outcome: &CollectedTurn) -> OfferedCall {
    assert_eq!(
        (outcome.stop.as_str(), outcome.calls.len()),
        ("toolUse", 1),
        "{outcome:?}"
    );
    outcome.calls[0].clone()
}

fn result(session: &mut RpcSession, call: &OfferedCall, found: &str) {
    session.result(call, json!([{"type": "text", "text": found}]));
}

fn requests(simulator: &Simulator) -> Vec<String> {
    let recording = simulator.recorded();
    let requests = recording.client("runRequest").into_iter();
    requests.map(Json::to_string).collect()
}

/// The stream is lost and the next one resumes from a checkpoint without the result: its call is
/// answered from the effect log, also under another call id, and the host is not asked again.
#[test]
fn a_result_that_a_late_checkpoint_lacks_is_sent_again_unasked() {
    for late in [LATE.to_owned(), format!("{LATE}, {LATE}")] {
        for (name, user_text) in [("c1", ""), ("c2", "Well, ")] {
            let first = Steps::new()
                .text("Looking. ")
                .then(look("c1", "found 41"))
                .then(&late)
                .text(user_text)
                .then(READ)
                .then(BROKEN)
                .build();
            let second = Steps::new()
                .expect_state("last checkpoint")
                .then(look(name, "found 41").replace(r#"q = "c2""#, r#"q = "c1""#))
                .text(format!("{user_text}it is 41."))
                .then(END)
                .build();
            let simulator = script(&[&first, &second]);
            let mut session = guest(&simulator, &[]);
            let outcome = session.prompt("go");
            let call = called(&outcome);
            result(&mut session, &call, "found 41");
            let outcome = session.turn();
            assert_eq!(
                (outcome.text, outcome.stop.as_str()),
                (format!("{user_text}it is 41."), "stop"),
                "{name}: {}",
                outcome.error
            );
            simulator
                .recorded()
                .assert_played(&["completed", "completed"]);
        }
    }
}

#[test]
fn a_late_checkpoint_on_disk_is_sent_everything_it_lacks() {
    let first = Steps::new()
        .then(look("c1", "found 41"))
        .then(LATE)
        .then(look("c2", "found 42"))
        .step(json!({"stall": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .then(USER_MESSAGE)
        .text("83.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let state = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", state.path().to_str().unwrap())];
    let mut session = guest(&simulator, &env);
    let outcome = session.prompt("go");
    let call = called(&outcome);
    result(&mut session, &call, "found 41");
    let outcome = session.turn();
    let call = called(&outcome);
    session.host.kill();
    let env = [&[("PI_CURSOR_HTTP", "2")], &env[..]].concat();
    let mut session = session.moved_to(&simulator, &env);
    result(&mut session, &call, "found 42");
    let outcome = session.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("83.", "stop")
    );
    let reply = &requests(&simulator)[1];
    assert!(
        reply.contains("found 41") && reply.contains("found 42"),
        "{reply}"
    );
}

/// Plays two rounds of calls with a checkpoint between them, kills the sidecar while the host
/// executes the second call, and returns what the run after that is sent.
fn sent_after_a_kill(between: &str) -> String {
    let first = Steps::new()
        .then(look("c1", "found 41"))
        .text("It is 41, now the other one. ")
        .then(between)
        .then(look("c2", "found 42"))
        .step(json!({"stall": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .then(USER_MESSAGE)
        .text("83.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let state = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", state.path().to_str().unwrap())];
    let mut session = guest(&simulator, &env);
    let outcome = session.prompt("go");
    let call = called(&outcome);
    result(&mut session, &call, "found 41");
    let outcome = session.turn();
    let call = called(&outcome);
    session.host.kill();
    let env = [&[("PI_CURSOR_HTTP", "2")], &env[..]].concat();
    let mut session = session.moved_to(&simulator, &env);
    result(&mut session, &call, "found 42");
    let outcome = session.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("83.", "stop")
    );
    let requests = requests(&simulator);
    assert_eq!(requests.len(), 2, "{requests:?}");
    requests[1].clone()
}

/// Regression: text after the result counted as proof that the checkpoint contained it.
#[test]
fn a_late_checkpoint_after_more_text_is_sent_everything_it_lacks() {
    for late in [LATE, r#"{ checkpoint = { turns = ["AAAA"] } }"#] {
        let sent = sent_after_a_kill(late);
        for result in ["found 41", "found 42"] {
            assert_eq!(sent.matches(result).count(), 1, "{late} {result}: {sent}");
        }
    }
}

#[test]
fn a_checkpoint_that_names_a_call_with_its_result_is_not_sent_it_again() {
    let sent = sent_after_a_kill(r#"{ checkpoint = "auto" }"#);
    assert!(sent.contains("found 42"), "{sent}");
    assert!(!sent.contains("found 41"), "{sent}");
}

#[test]
fn a_call_by_the_same_name_is_answered_from_the_record() {
    let first = Steps::new()
        .then(look("c1", "found 41"))
        .text("I see. ")
        .checkpoint()
        .then(READ)
        .then(BROKEN)
        .build();
    let second = Steps::new()
        .then(look("c1", "found 41"))
        .text("It is 41.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = guest(&simulator, &[]);
    let outcome = session.prompt("go");
    let call = called(&outcome);
    result(&mut session, &call, "found 41");
    let outcome = session.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("I see. It is 41.", "stop"),
        "{outcome:?}"
    );
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

/// The resumed stream does not ask for the pending call: none of its checkpoints includes the
/// result, so the next turn sends the history.
#[test]
fn a_result_that_is_not_requested_again_is_sent_in_the_next_turn() {
    let waits = r#"{ checkpoint = { pendingToolCalls = ["c1"] } }"#;
    let first = format!(r#"{}, {waits}, {READ}, {BROKEN}"#, look("c1", "found 41"));
    let second = Steps::new().text("Well.").then(END).build();
    let simulator = script(&[&first, &second]);
    let mut session = guest(&simulator, &[]);
    let outcome = session.prompt("go");
    let call = called(&outcome);
    result(&mut session, &call, "found 41");
    assert_eq!(session.turn().text, "Well.");
    // In a new conversation, which plays the scenario from its start.
    called(&session.prompt("next"));
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let runs: Vec<&Json> = (requests.iter().map(|sent| &sent["runRequest"])).collect();
    assert!(runs[1]["action"]["resumeAction"].is_object(), "{}", runs[1]);
    assert_ne!(runs[1]["conversationId"], runs[2]["conversationId"]);
    let reply = &runs[2]["conversationState"]["rootPromptMessagesJson"];
    assert!(
        reply.as_array().is_some_and(|reply| reply.len() > 1),
        "{reply}"
    );
}

#[tokio::test]
async fn text_that_a_late_checkpoint_lacks_is_shown_once() {
    let saved = r#"{ checkpoint = { rootPromptMessagesJson = ["YmVmb3Jl"] } }"#;
    let first = Steps::new()
        .text("One and two and three")
        .then(saved)
        .text(" and four")
        .then(READ)
        .then(BROKEN)
        .build();
    let again = Steps::new()
        .text("One and two ")
        .text("and three and four and five")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt("go").await;
    reply.finished("One and two and three and four and five");
}
