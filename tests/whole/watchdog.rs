//! Servers that live and do nothing, on a stopped clock.

use std::time::Duration;

use cursor_sidecar::diag::metrics;
use cursor_sidecar::run::Patience as Waits;
use cursor_sidecar::turn::Stop;

use crate::clock::played;
use crate::inside::{END, Guest, Patience, Taken, opened, requests, said, simulating};

/// So long nothing but heartbeats.
fn lives(seconds: u32) -> String {
    let ms = seconds * 1000;
    format!("{{ delay_ms = {ms}, timeout_ms = {} }},", ms + 60_000)
}

const FOREVER: u32 = 100_000;

/// A turn on a clock that runs as fast as it can.
async fn fast(guest: &mut Guest) -> Taken {
    tokio::time::pause();
    let taken = guest.turn(Patience::Endless).await;
    tokio::time::resume();
    taken
}

#[track_caller]
fn idles(taken: &Taken, says: &str) {
    match &taken.stop {
        Stop::Failed(text) => assert!(text.contains(says), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s35_s36_tokens_are_work_and_heartbeats_are_not() {
    let token = r#"{ update = { tokenDelta = { tokens = 1 } } },"#;
    let thinks = format!(
        r#"{0} {token} {0} {token} {0} {{ text = "Thought it over." }}, {END}"#,
        lives(100)
    );
    let sleeps = format!(r#"{} {{ text = "Too late." }}, {END}"#, lives(130));
    let again = format!(r#"{{ text = "Awake." }}, {END}"#);
    let (sim, backend) = simulating(&[thinks, sleeps, again]).await;
    let mut guest = Guest::new(&backend, None);
    guest.user("think");
    assert_eq!(fast(&mut guest).await.text, "Thought it over.");
    assert_eq!(requests(&sim).len(), 1);
    guest.user("and again");
    let taken = fast(&mut guest).await;
    assert_eq!(
        (taken.stop, taken.text.as_str()),
        (Stop::Finished, "Awake.")
    );
    assert_eq!(requests(&sim).len(), 3);
}

/// A resumed stream that only lives is brought back once, before any retry is spent; all in
/// all no more streams are opened than that and the retries allow.
#[tokio::test]
async fn s37_s38_s39_a_silent_resume_is_rebuilt_once() {
    for (retries, wanted) in [(0, 2), (1, 3)] {
        let first = format!(
            r#"{}, {{ await = ["a"], timeout_ms = 900000 }}, {} {{ text = "Never." }}"#,
            opened("look", "a"),
            lives(FOREVER)
        );
        let silent = format!(r#"{} {{ text = "Never." }}"#, lives(FOREVER));
        let (sim, backend) = simulating(&[first, silent]).await;
        let mut guest = Guest::new(&backend, None);
        guest.policy.idle_retries = retries;
        let taken = guest.say("go").await;
        assert_eq!(taken.stop, Stop::ToolUse);
        // However long the tool takes, nobody is watched.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(500)).await;
        tokio::time::resume();
        guest.result(&taken.calls[0], "42");
        let taken = fast(&mut guest).await;
        idles(&taken, "Cursor stream idle timeout after 120000ms");
        assert_eq!(taken.text, "");
        let requests = requests(&sim);
        assert_eq!(requests.len(), wanted, "with {retries} retries");
        assert!(said(&requests[1]).contains("Result:\n42\n"));
    }
    let counted = r#"cursor_provider.rebuild_full_history{reason="synthesized_after_idle",model="composer-2"}"#;
    assert_eq!(metrics::counters().counts()[counted], 2);
}

#[tokio::test]
async fn s38_a_silent_resume_goes_on_from_the_checkpoint_after_it() {
    let first = format!(
        r#"{}, {{ await = ["a"] }}, {{ text = "It says " }}, {{ checkpoint = "auto" }}, {} {{ text = "Never." }}"#,
        opened("look", "a"),
        lives(FOREVER)
    );
    let second = format!(
        r#"{{ expect_state = "last checkpoint" }}, {{ expect_request = {{ action = {{ resumeAction = {{}} }} }} }}, {{ text = "42." }}, {END}"#
    );
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = Guest::new(&backend, None);
    guest.policy.idle_retries = 0;
    let taken = guest.say("go").await;
    guest.result(&taken.calls[0], "42");
    let taken = fast(&mut guest).await;
    assert_eq!(
        (taken.stop, taken.text.as_str()),
        (Stop::Finished, "It says 42.")
    );
    played(&sim.recording());
}

#[tokio::test]
async fn s40_no_text_is_shown_twice() {
    let half = format!(
        r#"{{ text = "Half. " }}, {} {{ text = "Never." }}"#,
        lives(FOREVER)
    );
    // Words without a checkpoint are the end.
    let (sim, backend) = simulating(std::slice::from_ref(&half)).await;
    let mut guest = Guest::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    idles(&taken, "Partial assistant output was already streamed");
    assert_eq!((taken.text.as_str(), requests(&sim).len()), ("Half. ", 1));
    // After results, too.
    let resumed = format!(r#"{}, {{ await = ["a"] }}, {half}"#, opened("look", "a"));
    let (sim, backend) = simulating(&[resumed]).await;
    let mut guest = Guest::new(&backend, None);
    let taken = guest.say("go").await;
    guest.result(&taken.calls[0], "42");
    let taken = fast(&mut guest).await;
    idles(&taken, "idle timeout after 240000ms");
    assert_eq!((taken.text.as_str(), requests(&sim).len()), ("Half. ", 1));
    // With one, the run goes on from it, and says so from the first restart on.
    let saved = half.replace("\"Half. \" },", "\"Half. \" }, { checkpoint = \"auto\" },");
    let rest = format!(
        r#"{{ expect_state = "last checkpoint" }}, {{ expect_request = {{ action = {{ resumeAction = {{}} }} }} }}, {{ text = "Rest." }}, {END}"#
    );
    let (sim, backend) = simulating(&[saved, rest]).await;
    let mut guest = Guest::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    assert_eq!(
        (taken.stop, taken.text.as_str()),
        (Stop::Finished, "Half. Rest.")
    );
    played(&sim.recording());
}

#[tokio::test]
async fn s41_zero_switches_the_watchdogs_off() {
    let steps = format!(r#"{} {{ text = "At last." }}, {END}"#, lives(2_000));
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = Guest::new(&backend, None);
    guest.policy.patience = Waits {
        first: None,
        resumed: None,
    };
    guest.user("go");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}
