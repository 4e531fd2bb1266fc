//! What a checkpoint includes of an answer and what the host has been shown of it are tracked
//! separately.

use agent::conversation::store::Store;
use agent::turn::Stop;
use cursor_sim::Sim;
use serde_json::{Value as Json, json};

use test_support::in_process::{
    CancelAfter, END, InProcessSession, opened, played, requests, simulating, user_text,
};
use test_support::scenario::Steps;

/// The contents of the checkpoints that a simulator has sent.
fn checkpoints(sim: &Sim) -> Vec<Json> {
    let frames = sim.recording().frames().into_iter();
    frames
        .filter(|frame| frame.kind == "conversationCheckpointUpdate")
        .map(|frame| frame.json["conversationCheckpointUpdate"]["rootPromptMessagesJson"].clone())
        .collect()
}

fn brought(request: &Json) -> &Json {
    &request["conversationState"]["rootPromptMessagesJson"]
}

/// A cancel while the run is parked: text the run sends afterwards is not shown, so its last
/// checkpoint, which includes that text, is not used.
#[tokio::test]
async fn text_of_a_run_cancelled_in_a_pause_does_not_count_as_shown() {
    let first = Steps::new()
        .text("alpha ")
        .checkpoint()
        .then(opened("look", "a"))
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}, "timeout_ms": 60000}))
        .text("unseen ")
        .checkpoint()
        .end()
        .build();
    let next = Steps::new().text("beta").then(END).build();
    let (sim, backend) = simulating(&[first, next]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::ToolUse, "alpha ")
    );
    guest.session.release().await;
    assert_eq!(guest.prompt("next").await.text, "beta");
    played(&sim.recording()).await;
    let (states, requests) = (checkpoints(&sim), requests(&sim));
    assert_ne!(states[0], states[1], "the second state knows more");
    assert_eq!(brought(&requests[1]), &states[0]);
    assert_eq!(
        user_text(&requests[1]),
        "next",
        "there is nothing to explain"
    );
}

/// The same while the turn streams: text shown after the last checkpoint is sent with the next
/// turn.
#[tokio::test]
async fn text_after_the_last_checkpoint_is_sent_in_the_next_turn() {
    let first = r#"{ text = "alpha " }, { checkpoint = "auto" }, { text = "beta " }, { expect_cancel = true }"#;
    let next = Steps::new()
        .expect_state("last checkpoint")
        .text("gamma")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first.into(), next]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = || (Store::at(folder.path()), "s".to_owned());
    let mut guest = InProcessSession::new(&backend, Some(store()));
    guest.user("go");
    let outcome = guest.turn(CancelAfter::Events(2)).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Aborted, "alpha beta ")
    );
    // The text is stored, too: another sidecar sends it, once this one no longer waits for a last
    // checkpoint.
    tokio::time::pause();
    guest.session.release().await;
    tokio::time::resume();
    let mut guest = guest.moved(store());
    assert_eq!(guest.prompt("next").await.text, "gamma");
    played(&sim.recording()).await;
    insta::assert_snapshot!(user_text(&requests(&sim)[1]), @r"
    next

    [Your last answer continued after its last saved state. The user has also read this:]

    beta
    ");
}

/// Text that a resumed stream has not repeated is not in its checkpoints and is sent, too.
#[tokio::test]
async fn text_the_next_stream_did_not_repeat_is_sent_in_the_next_turn() {
    let saved = r#"{ checkpoint = { rootPromptMessagesJson = ["YmVmb3Jl"] } }"#;
    let first = Steps::new()
        .text("alpha ")
        .then(saved)
        .text("beta ")
        .step(json!({"kv_set": {"text": "read this far"}}))
        .reset("internal_error")
        .build();
    let again = Steps::new()
        .then(saved)
        .step(json!({"thinking": "hm"}))
        .step(json!({"expect_cancel": true}))
        .build();
    let next = Steps::new().text("gamma").then(END).build();
    let (sim, backend) = simulating(&[first, again, next]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = guest.turn(CancelAfter::Events(4)).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Aborted, "alpha beta ")
    );
    assert_eq!(guest.prompt("next").await.text, "gamma");
    played(&sim.recording()).await;
    let user_text = user_text(&requests(&sim)[2]);
    assert!(
        user_text.ends_with("has also read this:]\n\nbeta"),
        "{user_text}"
    );
}

/// A host that retries after an error has dropped the answer, so it is sent all of it: the part in
/// the checkpoint and the rest from the resumed run.
#[tokio::test]
async fn an_answer_asked_for_again_is_shown_from_its_beginning() {
    let breaks = r#"{ text = "beta " }, { cut = true }"#;
    let first = Steps::new()
        .text("alpha ")
        .checkpoint()
        .then(breaks)
        .build();
    let last = Steps::new()
        .expect_state("last checkpoint")
        .text("beta gamma")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, breaks.into(), breaks.into(), last]).await;
    let mut guest = InProcessSession::new(&backend, None);
    tokio::time::pause();
    let outcome = guest.prompt("go").await;
    assert!(matches!(outcome.stop, Stop::Failed(_)), "{outcome:?}");
    assert_eq!(outcome.text, "alpha beta ");
    guest.messages.pop();
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "alpha beta gamma")
    );
    played(&sim.recording()).await;
}
