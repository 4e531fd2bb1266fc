//! Servers that stay connected and send no output, on a paused clock.

use serde_json::json;
use std::time::Duration;

use agent::run::{Backend, IdleLimits};
use agent::turn::Stop;
use foundation::metrics;

use test_support::in_process::{
    CancelAfter, END, InProcessSession, InProcessTurn, opened, played, requests, simulating,
    user_text,
};
use test_support::run_client::client_options;
use test_support::scenario::{Steps, value};

/// Sends only heartbeats for this long.
fn lives(seconds: u32) -> String {
    let ms = seconds * 1000;
    Steps::new()
        .step(json!({"delay_ms": value(ms), "timeout_ms": value(ms + 60_000)}))
        .build()
}

const FOREVER: u32 = 100_000;

/// Sends not even heartbeats, until the client disconnects.
const MUTE: &str = "{ stall = true }";

/// Sends not even heartbeats for this long.
fn mute(seconds: u32) -> String {
    Steps::new()
        .step(json!({"silence_ms": value(seconds * 1000)}))
        .build()
}

/// Takes a turn on a paused clock, which advances whenever all tasks are idle.
async fn fast(guest: &mut InProcessSession) -> InProcessTurn {
    tokio::time::pause();
    let outcome = guest.turn(CancelAfter::Endless).await;
    tokio::time::resume();
    outcome
}

#[track_caller]
fn idles(outcome: &InProcessTurn, says: &str) {
    match &outcome.stop {
        Stop::Failed(text) => assert!(text.contains(says), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tokens_are_work_and_heartbeats_are_not() {
    let token = r#"{ update = { tokenDelta = { tokens = 1 } } },"#;
    let thinks = Steps::new()
        .then(lives(100))
        .then(token)
        .then(lives(100))
        .then(token)
        .then(lives(100))
        .text("Thought it over.")
        .then(END)
        .build();
    let sleeps = Steps::new()
        .then(lives(130))
        .text("Too late.")
        .then(END)
        .build();
    let again = Steps::new().text("Awake.").then(END).build();
    let (sim, backend) = simulating(&[thinks, sleeps, again]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("think");
    assert_eq!(fast(&mut guest).await.text, "Thought it over.");
    assert_eq!(requests(&sim).len(), 1);
    guest.user("and again");
    let outcome = fast(&mut guest).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "Awake.")
    );
    assert_eq!(requests(&sim).len(), 3);
}

/// A server that waits for a reply to a request this version does not know waits forever, so the
/// turn fails sooner than after other silences, and the error states the cause.
#[tokio::test]
async fn a_server_that_waits_for_an_unknown_exec_is_named_after_45_seconds() {
    let unknown = r#"{ send_hex = "1205 0805 9a0600" }, { expect_client = { execClientControlMessage = { throw = { id = 5 } } } }"#;
    let waits = Steps::new()
        .then(unknown)
        .then(lives(FOREVER))
        .text("Never.")
        .build();
    let continues = Steps::new()
        .then(unknown)
        .then(lives(35))
        .text("Done.")
        .then(END)
        .build();
    let (_sim, backend) = simulating(&[continues, waits]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 0;
    guest.user("go");
    let outcome = fast(&mut guest).await;
    assert_eq!(outcome.text, "Done.", "{:?}", outcome.stop);
    guest.user("again");
    let outcome = fast(&mut guest).await;
    idles(&outcome, "does not know (request 5)");
    idles(&outcome, "no work for 45000ms");
}

/// A resumed stream with only heartbeats is rebuilt once before any retry is used; no more streams
/// are opened than the rebuild and the retries allow.
#[tokio::test]
async fn a_silent_resume_is_rebuilt_once() {
    for (retries, wanted) in [(0, 2), (1, 3)] {
        let first = Steps::new()
            .then(opened("look", "a"))
            .step(json!({"await": ["a"], "timeout_ms": 900000}))
            .then(lives(FOREVER))
            .text("Never.")
            .build();
        let silent = Steps::new().then(lives(FOREVER)).text("Never.").build();
        let (sim, backend) = simulating(&[first, silent]).await;
        let mut guest = InProcessSession::new(&backend, None);
        guest.policy.idle_retries = retries;
        let outcome = guest.prompt("go").await;
        assert_eq!(outcome.stop, Stop::ToolUse);
        // There is no idle timeout while the host executes a tool, however long it takes.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(500)).await;
        tokio::time::resume();
        guest.result(&outcome.calls[0], "42");
        let outcome = fast(&mut guest).await;
        idles(&outcome, "Cursor stream idle timeout after 120000ms");
        assert_eq!(outcome.text, "");
        let requests = requests(&sim);
        assert_eq!(requests.len(), wanted, "with {retries} retries");
        assert!(user_text(&requests[1]).contains("Result:\n42\n"));
    }
    let counted = r#"cursor_provider.rebuild_full_history{reason="synthesized_after_idle",model="composer-2"}"#;
    assert_eq!(metrics::counters().counts()[counted], 2);
}

#[tokio::test]
async fn a_silent_resume_continues_from_the_checkpoint_after_it() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .text("It says ")
        .checkpoint()
        .then(lives(FOREVER))
        .text("Never.")
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .step(json!({"expect_request": {"action": {"resumeAction": {}}}}))
        .text("42.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 0;
    let outcome = guest.prompt("go").await;
    guest.result(&outcome.calls[0], "42");
    let outcome = fast(&mut guest).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "It says 42.")
    );
    played(&sim.recording()).await;
}

#[tokio::test]
async fn no_text_is_shown_twice() {
    let half = Steps::new()
        .text("Half. ")
        .then(lives(FOREVER))
        .text("Never.")
        .build();
    // Without a checkpoint, text that was shown ends the turn with an error.
    let (sim, backend) = simulating(std::slice::from_ref(&half)).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = fast(&mut guest).await;
    idles(&outcome, "Part of the answer is displayed already");
    assert_eq!((outcome.text.as_str(), requests(&sim).len()), ("Half. ", 1));
    // The same after results.
    let resumed = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .then(&half)
        .build();
    let (sim, backend) = simulating(&[resumed]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let outcome = guest.prompt("go").await;
    guest.result(&outcome.calls[0], "42");
    let outcome = fast(&mut guest).await;
    idles(&outcome, "idle timeout after 240000ms");
    idles(&outcome, "Part of the answer is displayed already");
    assert_eq!((outcome.text.as_str(), requests(&sim).len()), ("Half. ", 1));
    // With a checkpoint, the run resumes from it.
    let saved = half.replace("\"Half. \" },", "\"Half. \" }, { checkpoint = \"auto\" },");
    let rest = Steps::new()
        .expect_state("last checkpoint")
        .step(json!({"expect_request": {"action": {"resumeAction": {}}}}))
        .text("Rest.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[saved, rest]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = fast(&mut guest).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "Half. Rest.")
    );
    played(&sim.recording()).await;
}

/// The text shown after the checkpoint is sent again with every attempt until a checkpoint includes
/// it, however the attempts end.
#[tokio::test]
async fn text_is_sent_until_a_checkpoint_includes_it() {
    let expect_text = |words: &str| {
        Steps::new()
            .expect_state("last checkpoint")
            .step(json!({
                "expect_request": {
                    "action": {
                        "userMessageAction": {"userMessage": {"text": {"$contains": words.to_string()}}},
                    },
                },
            }))
            .build()
    };
    let silent = Steps::new()
        .text("Half. ")
        .checkpoint()
        .text("The capital is Paris. ")
        .then(lives(FOREVER))
        .build();
    let broken = r#"{ kv_set = { text = "read this far" } }, { reset = "internal_error" }"#;
    for end in [lives(FOREVER), broken.into()] {
        for more in ["It has a river. ", ""] {
            let again = Steps::new()
                .then(expect_text("The capital is Paris."))
                .text(more)
                .then(&end)
                .build();
            let known = format!("The capital is Paris. {more}");
            for repeats in ["", known.as_str()] {
                let rest = Steps::new()
                    .then(expect_text(known.trim()))
                    .text(repeats)
                    .text("The Seine.")
                    .then(END)
                    .build();
                let (sim, backend) = simulating(&[silent.clone(), again.clone(), rest]).await;
                let mut guest = InProcessSession::new(&backend, None);
                guest.user("go");
                let outcome = fast(&mut guest).await;
                let all = format!("Half. {known}The Seine.");
                assert_eq!((outcome.stop, outcome.text), (Stop::Finished, all));
                played(&sim.recording()).await;
            }
        }
    }
}

/// A checkpoint does not include text sent after it. A model that does not receive that text
/// repeats it in a different wording, which no comparison detects.
#[tokio::test]
async fn text_after_the_checkpoint_is_sent_from_the_first_restart() {
    let silent = Steps::new()
        .text("Half. ")
        .checkpoint()
        .text("The capital is Paris. ")
        .then(lives(FOREVER))
        .build();
    let rest = Steps::new()
        .expect_state("last checkpoint")
        .step(json!({
            "expect_request": {
                "action": {
                    "userMessageAction": {"userMessage": {"text": {"$contains": "The capital is Paris."}}},
                },
            },
        }))
        .text("The river is the Seine.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[silent.clone(), rest.clone()]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = fast(&mut guest).await;
    let all = "Half. The capital is Paris. The river is the Seine.";
    assert_eq!((outcome.stop, outcome.text.as_str()), (Stop::Finished, all));
    played(&sim.recording()).await;
    // The same after results.
    let resumed = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .then(silent)
        .build();
    let (sim, backend) = simulating(&[resumed, rest]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let outcome = guest.prompt("go").await;
    guest.result(&outcome.calls[0], "42");
    let outcome = fast(&mut guest).await;
    assert_eq!((outcome.stop, outcome.text.as_str()), (Stop::Finished, all));
    played(&sim.recording()).await;
}

#[tokio::test]
async fn zero_switches_the_watchdogs_off() {
    let steps = Steps::new()
        .then(lives(2_000))
        .text("At last.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.patience = IdleLimits {
        first: None,
        resumed: None,
    };
    guest.user("go");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}

/// A server without heartbeats times out sooner, and uses the same retries.
#[tokio::test]
async fn a_mute_server_costs_the_restarts_of_an_idle_one() {
    for retries in [0, 2] {
        let (sim, backend) = simulating(&[MUTE.to_owned()]).await;
        let mut guest = InProcessSession::new(&backend, None);
        guest.policy.idle_retries = retries;
        guest.user("go");
        let outcome = fast(&mut guest).await;
        idles(&outcome, "Cursor stream idle timeout after 30000ms");
        assert_eq!(requests(&sim).len(), 1 + retries as usize);
    }
}

/// The same after results: rebuilt once, and then the retries.
#[tokio::test]
async fn a_mute_resume_is_recovered_once() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .then(MUTE)
        .build();
    let (sim, backend) = simulating(&[first, MUTE.to_owned()]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 1;
    let outcome = guest.prompt("go").await;
    guest.result(&outcome.calls[0], "42");
    let outcome = fast(&mut guest).await;
    idles(&outcome, "Cursor stream idle timeout after 30000ms");
    let requests = requests(&sim);
    assert_eq!(requests.len(), 3);
    assert!(user_text(&requests[1]).contains("Result:\n42\n"));
}

#[tokio::test]
async fn without_watchdogs_a_mute_server_may_take_any_time() {
    let steps = Steps::new()
        .then(mute(600))
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .then(mute(600))
        .text("At last.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.patience = IdleLimits {
        first: None,
        resumed: None,
    };
    guest.user("go");
    let outcome = fast(&mut guest).await;
    guest.result(&outcome.calls[0], "42");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}

/// While the run is parked, the server need not send anything.
#[tokio::test]
async fn a_mute_server_is_not_watched_in_a_pause() {
    let steps = Steps::new()
        .then(opened("look", "a"))
        .then(mute(500))
        .wait_for(&["a"])
        .text("It says 42.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let outcome = guest.prompt("go").await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(490)).await;
    tokio::time::resume();
    guest.result(&outcome.calls[0], "42");
    assert_eq!(fast(&mut guest).await.text, "It says 42.");
    assert_eq!(requests(&sim).len(), 1, "the same run");
}

/// Requests before the stream have an idle timeout as well.
#[tokio::test]
async fn a_key_exchange_that_hangs_is_abandoned() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let backend = Backend::new(&client_options(&url)).unwrap();
    for (seconds, waited) in [(5, "5000ms"), (120, "30000ms")] {
        let mut guest = InProcessSession::new(&backend, None);
        guest.policy.idle_retries = 1;
        guest.policy.patience.first = Some(Duration::from_secs(seconds));
        guest.user("go");
        let outcome = fast(&mut guest).await;
        idles(&outcome, &format!("idle timeout after {waited} "));
        idles(&outcome, "in 2 of 2 attempts");
    }
}

/// After the end of its turn a server may still send its last checkpoint. Messages without visible
/// output do not extend the wait for it.
#[tokio::test]
async fn a_finished_turn_is_not_kept_open_by_a_silent_server() {
    let token = "{ update = { tokenDelta = { tokens = 1 } } }";
    for nothing in ["{ text = \"\" }", token, "{ usage = {} }"] {
        let steps = Steps::new()
            .text("Done.")
            .usage()
            .then((Steps::new().delay_ms(3000).then(nothing).build() + ", ").repeat(100))
            .then(END)
            .build();
        let (_sim, backend) = simulating(&[steps]).await;
        let mut guest = InProcessSession::new(&backend, None);
        guest.user("go");
        let asked = tokio::time::Instant::now();
        let outcome = fast(&mut guest).await;
        assert_eq!(
            (outcome.stop, outcome.text.as_str()),
            (Stop::Finished, "Done.")
        );
        let waited = asked.elapsed();
        assert!(waited < Duration::from_secs(20), "{waited:?} of {nothing}");
    }
}

/// Text after the end of a turn is still read and shown.
#[tokio::test]
async fn text_after_a_turns_end_is_shown() {
    let word = r#"{ delay_ms = 4000 }, { text = "more " }, "#.repeat(5);
    let steps = Steps::new()
        .text("Done. ")
        .usage()
        .then(word)
        .then(END)
        .build();
    let (_sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = fast(&mut guest).await;
    assert_eq!(outcome.text, "Done. more more more more more ");
}
