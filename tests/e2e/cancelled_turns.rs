//! Turns that the user cancels, and what the next turn continues from.

use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

use agent::run::Outcome;
use agent::turn::Stop;
use agent_tools::policy::ToolPolicy;

use test_support::in_process::{
    CancelAfter, END, InProcessSession, opened, played, requests, simulating, simulating_all,
    user_text,
};
use test_support::run_client::{OnText, RunClient};
use test_support::scenario::{Steps, playing};
use test_support::simulator::Transport;

const CANCELLED: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }"#;

/// Cancels a turn after its first event.
async fn stopped(guest: &mut InProcessSession, words: &str) {
    guest.user(words);
    let turn_outcome = guest.turn(CancelAfter::Events(1)).await;
    assert_eq!(
        (turn_outcome.stop, turn_outcome.text.as_str()),
        (Stop::Aborted, "Two. ")
    );
}

/// The checkpoint that Cursor sends after the cancel includes the text up to then.
#[tokio::test]
async fn an_aborted_turn_keeps_the_conversation() {
    let first = Steps::new()
        .text("Two. ")
        .then(CANCELLED)
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Three.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    stopped(&mut guest, "go").await;
    // Wait for the checkpoint here, because the next turn waits for it only for a limited time.
    played(&sim.recording()).await;
    assert_eq!(guest.prompt("go on").await.text, "Three.");
    played(&sim.recording()).await;
    let requests = requests(&sim);
    assert_eq!(requests[0]["conversationId"], requests[1]["conversationId"]);
    assert_eq!(user_text(&requests[1]), "go on");
}

/// If no checkpoint arrives after the cancel, the next turn uses the one the run started with and
/// sends what happened since.
#[tokio::test]
async fn the_rest_of_a_cancelled_run_is_not_a_checkpoint() {
    let first = Steps::new().text("One.").then(END).build();
    let second = Steps::new().text("Two. ").then(CANCELLED).end().build();
    let third = Steps::new()
        .expect_state("last checkpoint")
        .text("Three.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second, third]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.prompt("go").await;
    stopped(&mut guest, "and on").await;
    assert_eq!(guest.prompt("more").await.text, "Three.");
    played(&sim.recording()).await;
    let requests = requests(&sim);
    let (before, after) = (&requests[1], &requests[2]);
    assert_eq!(before["conversationId"], after["conversationId"]);
    assert_eq!(before["conversationState"], after["conversationState"]);
    let reply = user_text(after);
    for part in ["User: and on", "Assistant: Two.", "more"] {
        assert_eq!(reply.matches(part).count(), 1, "{part}: {reply}");
    }
}

/// Exec requests that arrive after the cancel are rejected and nothing is executed. Blobs are still
/// stored, because the last checkpoint needs them.
#[tokio::test]
async fn nothing_is_executed_for_a_cancelled_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let reason = "the run was cancelled";
    let exec = |args: Json| json!({"exec": args, "throws": reason});
    let command = json!({"command": format!("touch {at}/shell"), "workingDirectory": at.to_string(),
        "timeout": 5000, "toolCallId": "1", "skipApproval": true});
    let write = json!({"path": format!("{at}/written"), "fileText": "x", "toolCallId": "2"});
    let call = json!({"name": "pi__look", "providerIdentifier": "pi", "toolName": "pi__look",
        "toolCallId": "5", "args": {}});
    let search = json!({"args": {"searchTerm": "x", "toolCallId": "3"}});
    let plan = json!({"args": {"plan": "x"}, "toolCallId": "4"});
    let steps = Steps::new()
        .context()
        .text("cancel me")
        .then(CANCELLED)
        .step(exec(json!({"shellStreamArgs": command})))
        .step(exec(json!({"writeArgs": write})))
        .step(json!({
            "exec": {"mcpArgs": call},
            "expect": {"mcpResult": {"error": {"error": reason}}},
        }))
        .step(json!({
            "query": {"webSearchRequestQuery": search},
            "expect": {"webSearchRequestResponse": {"rejected": {"reason": reason}}},
        }))
        .step(json!({
            "query": {"createPlanRequestQuery": plan},
            "expect": {"createPlanRequestResponse": {"result": {"error": {"error": reason}}}},
        }))
        .checkpoint()
        .end()
        .build();
    for transport in [Transport::H2c, Transport::Http1] {
        let simulator = playing(transport, &steps);
        let mut ours = RunClient::new(&simulator, transport);
        ours.native = ToolPolicy::default();
        ours.workspace = folder.path().into();
        let reply = ours.prompt_and("go", OnText::Cancel("cancel me")).await;
        assert_eq!(reply.ended.outcome, Outcome::Cancelled);
        simulator.recording().await.assert_played(&["completed"]);
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The next turn does not wait for a server that ignores the cancel.
#[tokio::test]
async fn the_next_turn_does_not_wait_for_a_server_that_does_not_stop() {
    let deaf = r#"{ text = "Two. " }, { expect_cancel = true }"#.to_owned();
    let (_sim, backend) = simulating(&[deaf]).await;
    let mut guest = InProcessSession::new(&backend, None);
    stopped(&mut guest, "go").await;
    let asked = Instant::now();
    // A new conversation plays the scenario from its start, so this turn is cancelled like the
    // first.
    stopped(&mut guest, "go on").await;
    let waited = asked.elapsed();
    assert!(waited < Duration::from_secs(7), "{waited:?}");
}

/// A server that keeps sending text after the cancel is not waited for, because it will not send a
/// last checkpoint.
#[tokio::test]
async fn a_server_that_keeps_sending_is_disconnected() {
    let session = r#"{ delay_ms = 200 }, { text = "on and on" }, "#.repeat(40);
    let steps = Steps::new()
        .text("cancel me")
        .then(session)
        .step(json!({"expect_cancel": true}))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let asked = Instant::now();
    let reply = ours.prompt_and("go", OnText::Cancel("cancel me")).await;
    let waited = asked.elapsed();
    assert_eq!(reply.ended.outcome, Outcome::Cancelled);
    assert!(waited < Duration::from_secs(7), "{waited:?}");
}

/// Parks a run, calls `then`, and continues with a different history.
async fn left(then: impl AsyncFnOnce(&mut InProcessSession)) {
    let first = Steps::new()
        .then(opened("slow", "a"))
        .then(CANCELLED)
        .checkpoint()
        .end()
        .build();
    let second = Steps::new().text("Elsewhere.").then(END).build();
    let (sim, backend) = simulating_all(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    assert_eq!(guest.prompt("go").await.stop, Stop::ToolUse);
    then(&mut guest).await;
    guest.messages.clear();
    assert_eq!(guest.prompt("something else").await.text, "Elsewhere.");
    let recording = sim.recording();
    played(&recording).await;
    let requests = requests(&sim);
    assert_ne!(requests[0]["conversationId"], requests[1]["conversationId"]);
}

/// The parked run is cancelled on the server.
#[tokio::test]
async fn a_run_whose_history_was_forgotten_is_logged() {
    left(async |guest| guest.session.invalidate().await).await;
}

#[tokio::test]
async fn a_run_whose_history_was_rewritten_is_logged() {
    left(async |_| {}).await;
}
