//! Turns the person stops: what the next one goes on with.

use cursor_sidecar::turn::Stop;
use serde_json::Value as Json;

use crate::clock::played;
use crate::inside::{END, Guest, Patience, opened, requests, said, simulating, simulating_all};

const CANCELLED: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }"#;

/// Stops a turn at its first word.
async fn stopped(guest: &mut Guest, words: &str) {
    guest.user(words);
    let taken = guest.turn(Patience::Events(1)).await;
    assert_eq!((taken.stop, taken.text.as_str()), (Stop::Aborted, "Two. "));
}

fn roots(request: &Json) -> usize {
    let roots = &request["conversationState"]["rootPromptMessagesJson"];
    roots.as_array().map_or(0, Vec::len)
}

/// The state Cursor gives when it hears of the stop stands for what was said until then.
#[tokio::test]
async fn s26_an_aborted_turn_keeps_the_conversation() {
    let first = format!(
        r#"{{ text = "Two. " }}, {CANCELLED}, {{ checkpoint = "auto" }}, {{ expect_cancel = true }}"#
    );
    let second = format!(r#"{{ expect_state = "last checkpoint" }}, {{ text = "Three." }}, {END}"#);
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = Guest::new(&backend, None);
    stopped(&mut guest, "go").await;
    assert_eq!(guest.say("go on").await.text, "Three.");
    played(&sim.recording());
    let requests = requests(&sim);
    assert_eq!(requests[0]["conversationId"], requests[1]["conversationId"]);
    assert_eq!(said(&requests[1]), "go on");
}

/// Without such a state nothing passes for one: neither what the run began with, which knows
/// nothing of the turn, nor what it left.
#[tokio::test]
async fn s50_what_a_stopped_run_left_is_no_checkpoint() {
    let answer = format!(r#"{{ text = "One." }}, {END}"#);
    let second = format!(r#"{{ text = "Two. " }}, {CANCELLED}, {{ end = true }}"#);
    let (sim, backend) = simulating(&[answer, second]).await;
    let mut guest = Guest::new(&backend, None);
    guest.say("go").await;
    stopped(&mut guest, "and on").await;
    // In a new conversation the scenario begins anew.
    assert_eq!(guest.say("more").await.text, "One.");
    let requests = requests(&sim);
    let (before, after) = (&requests[1], &requests[2]);
    assert_ne!(before["conversationId"], after["conversationId"]);
    assert_eq!((roots(after), said(after).as_str()), (4, "more"));
}

/// A run that waits for its host, whose history then goes another way.
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
    while recording.verdicts().len() < 2 {
        tokio::task::yield_now().await;
    }
    played(&recording);
    let requests = requests(&sim);
    assert_ne!(requests[0]["conversationId"], requests[1]["conversationId"]);
}

/// Cursor hears that nobody waits for the run any more.
#[tokio::test]
async fn a_run_whose_history_is_forgotten_is_told_so() {
    left(async |guest| guest.session.invalidate().await).await;
}

#[tokio::test]
async fn a_run_whose_history_went_another_way_is_told_so() {
    left(async |_| {}).await;
}
