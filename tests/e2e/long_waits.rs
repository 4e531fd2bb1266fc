//! Long waits, on a clock that is paused once a run waits for its host.

use serde_json::json;
use std::time::Duration;

use agent::conversation::store::Store;
use agent::turn::Stop;
use cursor_sim::RecordingHandle;

use test_support::in_process::{
    CancelAfter, END, InProcessSession, opened, played, sent, simulating,
};
use test_support::rpc_session::OfferedCall;
use test_support::scenario::Steps;

/// Returns the contents of all files below a folder, sorted.
fn contents(folder: &std::path::Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path))
        } else {
            all.push(std::fs::read(&path).unwrap())
        }
    }
    all.sort();
    all
}

/// Sends the late result and asserts that the turn finishes with this text and every run matched
/// its script.
async fn assert_finishes(
    guest: &mut InProcessSession,
    call: &OfferedCall,
    result: &str,
    words: &str,
    recording: &RecordingHandle,
) {
    tokio::time::resume();
    guest.result(call, result);
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.calls.len(), outcome.text.as_str()),
        (Stop::Finished, 0, words)
    );
    played(recording).await;
}

#[tokio::test]
async fn a_tool_may_take_half_an_hour() {
    let steps = Steps::new()
        .text("Looking. ")
        .then(opened("look", "a"))
        .step(json!({"delay_ms": 900000, "timeout_ms": 1000000}))
        .checkpoint()
        .step(json!({"await": ["a"], "timeout_ms": 2400000}))
        .text("It says 42.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = (Store::at(folder.path()), "s".to_owned());
    let mut guest = InProcessSession::new(&backend, Some(store));
    let outcome = guest.prompt("go").await;
    assert_eq!(
        (outcome.stop, outcome.calls.len(), outcome.text.as_str()),
        (Stop::ToolUse, 1, "Looking. ")
    );
    let recording = sim.recording();
    let before = contents(folder.path());
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    // The run sends a heartbeat every 5 s, the open call every 3 s.
    let beats = sent(&recording, "clientHeartbeat");
    assert!((359..=390).contains(&beats), "{beats} heartbeats");
    let beats = sent(&recording, "execClientControlMessage.heartbeat");
    assert!((599..=645).contains(&beats), "{beats} exec heartbeats");
    assert_ne!(
        before,
        contents(folder.path()),
        "the checkpoint is on the disk"
    );
    assert_finishes(
        &mut guest,
        &outcome.calls[0],
        "42",
        "It says 42.",
        &recording,
    )
    .await;
    assert_eq!(sent(&recording, "runRequest"), 1, "the same run");
}

#[tokio::test]
async fn a_call_has_a_deadline() {
    let call = opened("slow", "a").replace(
        "open = true, name = \"a\"",
        r#"timeout_ms = 100000, expect = { mcpResult = { error = { error = "the host did not answer within 60 s" } } }"#,
    );
    let steps = Steps::new().then(call).text("No answer.").then(END).build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.call_deadline = Duration::from_secs(60);
    let outcome = guest.prompt("go").await;
    assert_eq!(outcome.stop, Stop::ToolUse);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(55)).await;
    let recording = sim.recording();
    assert_eq!(sent(&recording, "execClientMessage.mcpResult"), 0);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(sent(&recording, "execClientMessage.mcpResult"), 1);
    // The host is late; text the run sent meanwhile is shown all the same.
    let call = &outcome.calls[0];
    assert_finishes(&mut guest, call, "at last", "No answer.", &recording).await;
}

#[tokio::test]
async fn a_run_does_not_wait_forever() {
    let first = Steps::new()
        .checkpoint()
        .then(opened("slow", "a"))
        .step(json!({
            "expect_client": {"conversationAction": {"cancelAction": {}}},
            "timeout_ms": 100000,
        }))
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Still here.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.park = Duration::from_secs(60);
    let outcome = guest.prompt("go").await;
    assert_eq!(outcome.stop, Stop::ToolUse);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(55)).await;
    let recording = sim.recording();
    assert_eq!(sent(&recording, "conversationAction.cancelAction"), 0);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(sent(&recording, "conversationAction.cancelAction"), 1);
    assert_eq!(sent(&recording, "execClientMessage.mcpResult"), 1);
    // The late result continues the conversation in a new run.
    let call = &outcome.calls[0];
    assert_finishes(&mut guest, call, "at last", "Still here.", &recording).await;
}

/// A message that was injected but not acknowledged when its run is released is injected into the
/// next run.
#[tokio::test]
async fn a_message_is_not_lost_with_a_run_that_waited_too_long() {
    let injected = r#"{ expect_client = { conversationAction = { injectContextAction = {} } }, capture = { I = "/conversationAction/injectContextAction/injectionId" } }"#;
    let first = Steps::new()
        .text("Hm. ")
        .then(injected)
        .checkpoint()
        .then(opened("slow", "a"))
        .step(json!({
            "expect_client": {"conversationAction": {"cancelAction": {}}},
            "timeout_ms": 100000,
        }))
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .text("Well. ")
        .then(injected)
        .then(DELIVERED)
        .text("Heard.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.park = Duration::from_secs(60);
    guest.interjection = Some("hurry".into());
    let outcome = guest.prompt("go").await;
    assert_eq!(outcome.stop, Stop::ToolUse);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(70)).await;
    let call = &outcome.calls[0];
    assert_finishes(
        &mut guest,
        call,
        "at last",
        "Well. Heard.",
        &sim.recording(),
    )
    .await;
}

/// The connection is lost while the tool runs: the result is sent with the last checkpoint, and no
/// run is started before the result arrives.
#[tokio::test]
async fn a_connection_lost_in_a_pause_costs_no_result() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .checkpoint()
        .delay_ms(60_000)
        .step(json!({"cut": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .step(json!({
            "expect_request": {
                "action": {
                    "userMessageAction": {"userMessage": {"text": {"$contains": "it says 42"}}},
                },
            },
        }))
        .text("Went on.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let outcome = guest.prompt("go").await;
    assert_eq!((outcome.stop, outcome.calls.len()), (Stop::ToolUse, 1));
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let recording = sim.recording();
    assert_eq!(
        sent(&recording, "runRequest"),
        1,
        "nothing is asked for twice"
    );
    let call = &outcome.calls[0];
    assert_finishes(&mut guest, call, "it says 42", "Went on.", &recording).await;
}

/// Injects a message before a tool call that takes longer than a message may stay unacknowledged.
/// The server acknowledges it before (`before`) or after (`after`) the result.
async fn stays_alive_in_a_long_pause(before: &str, after: &str) {
    let steps = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .checkpoint()
        .step(json!({
            "expect_client": {"conversationAction": {"injectContextAction": {}}},
            "capture": {"I": "/conversationAction/injectContextAction/injectionId"},
        }))
        .then(opened("slow", "b"))
        .then(before)
        .step(json!({"await": ["b"], "timeout_ms": 60000}))
        .then(after)
        .text("Went on.")
        .then(END)
        .build();
    let second = Steps::new()
        .text("Said again: $USER_TEXT")
        .then(END)
        .build();
    // Repeated, because the order of events that are ready at the same time may be random.
    for _ in 0..4 {
        let (sim, backend) = simulating(&[steps.clone(), second.clone()]).await;
        let mut guest = InProcessSession::new(&backend, None);
        let outcome = guest.prompt("go").await;
        guest.result(&outcome.calls[0], "42");
        let outcome = guest.prompt("hurry").await;
        assert_eq!((outcome.stop, outcome.calls.len()), (Stop::ToolUse, 1));
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(17)).await;
        let recording = sim.recording();
        assert_finishes(
            &mut guest,
            &outcome.calls[0],
            "done",
            "Went on.",
            &recording,
        )
        .await;
        assert_eq!(sent(&recording, "runRequest"), 1, "the same run");
        assert_eq!(sent(&recording, "conversationAction.cancelAction"), 0);
    }
}

const QUEUED: &str =
    r#"{ update = { contextInjectionState = { injectionId = "$I", state = { queued = {} } } } },"#;
const DELIVERED: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { delivered = { step = 1 } } } } },"#;

#[tokio::test]
async fn a_message_delivered_while_the_host_works_costs_no_run() {
    let reports = Steps::new()
        .delay_ms(5000)
        .then(QUEUED)
        .then(DELIVERED)
        .build();
    stays_alive_in_a_long_pause(&reports, "").await;
}

#[tokio::test]
async fn a_message_does_not_time_out_while_the_host_works() {
    stays_alive_in_a_long_pause("", DELIVERED).await;
}
