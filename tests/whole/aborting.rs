//! Turns that the user cancels, and what the next turn continues from.

use std::time::{Duration, Instant};

use agent::run::Outcome;
use agent::turn::Stop;
use agent_tools::policy::ToolPolicy;

use crate::backend::Transport;
use crate::clock::played;
use crate::faults::playing;
use crate::inside::{END, Guest, Patience, opened, requests, said, simulating, simulating_all};
use crate::ours::{Ours, When};

const CANCELLED: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }"#;

/// Cancels a turn after its first event.
async fn stopped(guest: &mut Guest, words: &str) {
    guest.user(words);
    let taken = guest.turn(Patience::Events(1)).await;
    assert_eq!((taken.stop, taken.text.as_str()), (Stop::Aborted, "Two. "));
}

/// The checkpoint that Cursor sends after the cancel includes the text up to then.
#[tokio::test]
async fn s26_an_aborted_turn_keeps_the_conversation() {
    let first = format!(
        r#"{{ text = "Two. " }}, {CANCELLED}, {{ checkpoint = "auto" }}, {{ expect_cancel = true }}"#
    );
    let second = format!(r#"{{ expect_state = "last checkpoint" }}, {{ text = "Three." }}, {END}"#);
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = Guest::new(&backend, None);
    stopped(&mut guest, "go").await;
    // Wait for the checkpoint here, because the next turn waits for it only for a limited time.
    played(&sim.recording()).await;
    assert_eq!(guest.say("go on").await.text, "Three.");
    played(&sim.recording()).await;
    let requests = requests(&sim);
    assert_eq!(requests[0]["conversationId"], requests[1]["conversationId"]);
    assert_eq!(said(&requests[1]), "go on");
}

/// If no checkpoint arrives after the cancel, the next turn uses the one the run started with and
/// sends what happened since.
#[tokio::test]
async fn s50_what_a_stopped_run_left_is_no_checkpoint() {
    let first = format!(r#"{{ text = "One." }}, {END}"#);
    let second = format!(r#"{{ text = "Two. " }}, {CANCELLED}, {{ end = true }}"#);
    let third = format!(r#"{{ expect_state = "last checkpoint" }}, {{ text = "Three." }}, {END}"#);
    let (sim, backend) = simulating(&[first, second, third]).await;
    let mut guest = Guest::new(&backend, None);
    guest.say("go").await;
    stopped(&mut guest, "and on").await;
    assert_eq!(guest.say("more").await.text, "Three.");
    played(&sim.recording()).await;
    let requests = requests(&sim);
    let (before, after) = (&requests[1], &requests[2]);
    assert_eq!(before["conversationId"], after["conversationId"]);
    assert_eq!(before["conversationState"], after["conversationState"]);
    let told = said(after);
    for part in ["User: and on", "Assistant: Two.", "more"] {
        assert_eq!(told.matches(part).count(), 1, "{part}: {told}");
    }
}

/// Exec requests that arrive after the cancel are rejected and nothing is executed. Blobs are still
/// stored, because the last checkpoint needs them.
#[tokio::test]
async fn nothing_is_done_for_a_run_that_was_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let thrown = r#"throws = "the run was given up""#;
    let steps = format!(
        r#"{{ exec = {{ requestContextArgs = {{}} }} }}, {{ text = "cancel me" }}, {CANCELLED},
           {{ exec = {{ shellStreamArgs = {{ command = "touch {at}/shell", workingDirectory = "{at}", timeout = 5000, toolCallId = "1", skipApproval = true }} }}, {thrown} }},
           {{ exec = {{ writeArgs = {{ path = "{at}/written", fileText = "x", toolCallId = "2" }} }}, {thrown} }},
           {{ exec = {{ mcpArgs = {{ name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "5", args = {{}} }} }}, expect = {{ mcpResult = {{ error = {{ error = "the run was given up" }} }} }} }},
           {{ query = {{ webSearchRequestQuery = {{ args = {{ searchTerm = "x", toolCallId = "3" }} }} }}, expect = {{ webSearchRequestResponse = {{ rejected = {{ reason = "the run was given up" }} }} }} }},
           {{ query = {{ createPlanRequestQuery = {{ args = {{ plan = "x" }}, toolCallId = "4" }} }}, expect = {{ createPlanRequestResponse = {{ result = {{ error = {{ error = "the run was given up" }} }} }} }} }},
           {{ checkpoint = "auto" }}, {{ end = true }}"#
    );
    for transport in [Transport::H2c, Transport::Http1] {
        let simulator = playing(transport, &steps);
        let mut ours = Ours::new(&simulator, transport);
        ours.native = ToolPolicy::default();
        ours.workspace = folder.path().into();
        let told = ours.say_and("go", When::Cancel("cancel me")).await;
        assert_eq!(told.ended.outcome, Outcome::Cancelled);
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
    let mut guest = Guest::new(&backend, None);
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
async fn a_server_that_talks_on_is_left() {
    let talk = r#"{ delay_ms = 200 }, { text = "on and on" }, "#.repeat(40);
    let steps = format!(r#"{{ text = "cancel me" }}, {talk} {{ expect_cancel = true }}"#);
    let simulator = playing(Transport::H2c, &steps);
    let mut ours = Ours::new(&simulator, Transport::H2c);
    let asked = Instant::now();
    let told = ours.say_and("go", When::Cancel("cancel me")).await;
    let waited = asked.elapsed();
    assert_eq!(told.ended.outcome, Outcome::Cancelled);
    assert!(waited < Duration::from_secs(7), "{waited:?}");
}

/// Parks a run, calls `then`, and continues with a different history.
async fn left(then: impl AsyncFnOnce(&mut Guest)) {
    let first = format!(
        r#"{}, {CANCELLED}, {{ checkpoint = "auto" }}, {{ end = true }}"#,
        opened("slow", "a")
    );
    let second = format!(r#"{{ text = "Elsewhere." }}, {END}"#);
    let (sim, backend) = simulating_all(&[first, second]).await;
    let mut guest = Guest::new(&backend, None);
    assert_eq!(guest.say("go").await.stop, Stop::ToolUse);
    then(&mut guest).await;
    guest.messages.clear();
    assert_eq!(guest.say("something else").await.text, "Elsewhere.");
    let recording = sim.recording();
    played(&recording).await;
    let requests = requests(&sim);
    assert_ne!(requests[0]["conversationId"], requests[1]["conversationId"]);
}

/// The parked run is cancelled on the server.
#[tokio::test]
async fn a_run_whose_history_is_forgotten_is_told_so() {
    left(async |guest| guest.session.invalidate().await).await;
}

#[tokio::test]
async fn a_run_whose_history_went_another_way_is_told_so() {
    left(async |_| {}).await;
}
