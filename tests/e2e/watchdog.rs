//! Servers that stay connected and send no output, on a paused clock.

use std::time::Duration;

use agent::run::{Backend, Patience};
use agent::turn::Stop;
use foundation::metrics;

use test_support::in_process::{
    CancelAfter, END, InProcessSession, InProcessTurn, opened, played, requests, said, simulating,
};
use test_support::run_client::client_options;

/// Sends only heartbeats for this long.
fn lives(seconds: u32) -> String {
    let ms = seconds * 1000;
    format!("{{ delay_ms = {ms}, timeout_ms = {} }},", ms + 60_000)
}

const FOREVER: u32 = 100_000;

/// Sends not even heartbeats, until the client disconnects.
const MUTE: &str = "{ stall = true }";

/// Sends not even heartbeats for this long.
fn mute(seconds: u32) -> String {
    format!("{{ silence_ms = {} }},", seconds * 1000)
}

/// Takes a turn on a paused clock, which advances whenever all tasks are idle.
async fn fast(guest: &mut InProcessSession) -> InProcessTurn {
    tokio::time::pause();
    let taken = guest.turn(CancelAfter::Endless).await;
    tokio::time::resume();
    taken
}

#[track_caller]
fn idles(taken: &InProcessTurn, says: &str) {
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
    let mut guest = InProcessSession::new(&backend, None);
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

/// A server that waits for a reply to a request this version does not know waits forever, so the
/// turn fails sooner than after other silences, and the error states the cause.
#[tokio::test]
async fn a_server_that_waits_for_an_unknown_exec_is_named_after_45_seconds() {
    let unknown = r#"{ send_hex = "1205 0805 9a0600" }, { expect_client = { execClientControlMessage = { throw = { id = 5 } } } }"#;
    let waits = format!(r#"{unknown}, {} {{ text = "Never." }}"#, lives(FOREVER));
    let continues = format!(r#"{unknown}, {} {{ text = "Done." }}, {END}"#, lives(35));
    let (_sim, backend) = simulating(&[continues, waits]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 0;
    guest.user("go");
    let taken = fast(&mut guest).await;
    assert_eq!(taken.text, "Done.", "{:?}", taken.stop);
    guest.user("again");
    let taken = fast(&mut guest).await;
    idles(&taken, "does not know (request 5)");
    idles(&taken, "no work for 45000ms");
}

/// A resumed stream with only heartbeats is rebuilt once before any retry is used; no more streams
/// are opened than the rebuild and the retries allow.
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
        let mut guest = InProcessSession::new(&backend, None);
        guest.policy.idle_retries = retries;
        let taken = guest.say("go").await;
        assert_eq!(taken.stop, Stop::ToolUse);
        // There is no idle timeout while the host executes a tool, however long it takes.
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
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 0;
    let taken = guest.say("go").await;
    guest.result(&taken.calls[0], "42");
    let taken = fast(&mut guest).await;
    assert_eq!(
        (taken.stop, taken.text.as_str()),
        (Stop::Finished, "It says 42.")
    );
    played(&sim.recording()).await;
}

#[tokio::test]
async fn s40_no_text_is_shown_twice() {
    let half = format!(
        r#"{{ text = "Half. " }}, {} {{ text = "Never." }}"#,
        lives(FOREVER)
    );
    // Without a checkpoint, text that was shown ends the turn with an error.
    let (sim, backend) = simulating(std::slice::from_ref(&half)).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    idles(&taken, "Partial assistant output was already streamed");
    assert_eq!((taken.text.as_str(), requests(&sim).len()), ("Half. ", 1));
    // The same after results.
    let resumed = format!(r#"{}, {{ await = ["a"] }}, {half}"#, opened("look", "a"));
    let (sim, backend) = simulating(&[resumed]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let taken = guest.say("go").await;
    guest.result(&taken.calls[0], "42");
    let taken = fast(&mut guest).await;
    idles(&taken, "idle timeout after 240000ms");
    idles(&taken, "Partial assistant output was already streamed");
    assert_eq!((taken.text.as_str(), requests(&sim).len()), ("Half. ", 1));
    // With a checkpoint, the run resumes from it.
    let saved = half.replace("\"Half. \" },", "\"Half. \" }, { checkpoint = \"auto\" },");
    let rest = format!(
        r#"{{ expect_state = "last checkpoint" }}, {{ expect_request = {{ action = {{ resumeAction = {{}} }} }} }}, {{ text = "Rest." }}, {END}"#
    );
    let (sim, backend) = simulating(&[saved, rest]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    assert_eq!(
        (taken.stop, taken.text.as_str()),
        (Stop::Finished, "Half. Rest.")
    );
    played(&sim.recording()).await;
}

/// The text shown after the checkpoint is sent again with every attempt until a checkpoint includes
/// it, however the attempts end.
#[tokio::test]
async fn s40_words_are_told_until_a_state_knows_them() {
    let told = |words: &str| {
        format!(
            r#"{{ expect_state = "last checkpoint" }}, {{ expect_request = {{ action = {{ userMessageAction = {{ userMessage = {{ text = {{ "$contains" = "{words}" }} }} }} }} }} }},"#
        )
    };
    let silent = format!(
        r#"{{ text = "Half. " }}, {{ checkpoint = "auto" }}, {{ text = "The capital is Paris. " }}, {}"#,
        lives(FOREVER)
    );
    let broken = r#"{ kv_set = { text = "read this far" } }, { reset = "internal_error" }"#;
    for end in [lives(FOREVER), broken.into()] {
        for more in ["It has a river. ", ""] {
            let again = format!(
                r#"{} {{ text = "{more}" }}, {end}"#,
                told("The capital is Paris.")
            );
            let known = format!("The capital is Paris. {more}");
            for repeats in ["", known.as_str()] {
                let rest = format!(
                    r#"{} {{ text = "{repeats}" }}, {{ text = "The Seine." }}, {END}"#,
                    told(known.trim())
                );
                let (sim, backend) = simulating(&[silent.clone(), again.clone(), rest]).await;
                let mut guest = InProcessSession::new(&backend, None);
                guest.user("go");
                let taken = fast(&mut guest).await;
                let all = format!("Half. {known}The Seine.");
                assert_eq!((taken.stop, taken.text), (Stop::Finished, all));
                played(&sim.recording()).await;
            }
        }
    }
}

/// A checkpoint does not include text sent after it. A model that does not receive that text
/// repeats it in a different wording, which no comparison detects.
#[tokio::test]
async fn s40_words_behind_the_checkpoint_are_told_from_the_first_restart() {
    let silent = format!(
        r#"{{ text = "Half. " }}, {{ checkpoint = "auto" }}, {{ text = "The capital is Paris. " }}, {}"#,
        lives(FOREVER)
    );
    let rest = format!(
        r#"{{ expect_state = "last checkpoint" }}, {{ expect_request = {{ action = {{ userMessageAction = {{ userMessage = {{ text = {{ "$contains" = "The capital is Paris." }} }} }} }} }} }}, {{ text = "The river is the Seine." }}, {END}"#
    );
    let (sim, backend) = simulating(&[silent.clone(), rest.clone()]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    let all = "Half. The capital is Paris. The river is the Seine.";
    assert_eq!((taken.stop, taken.text.as_str()), (Stop::Finished, all));
    played(&sim.recording()).await;
    // The same after results.
    let resumed = format!(r#"{}, {{ await = ["a"] }}, {silent}"#, opened("look", "a"));
    let (sim, backend) = simulating(&[resumed, rest]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let taken = guest.say("go").await;
    guest.result(&taken.calls[0], "42");
    let taken = fast(&mut guest).await;
    assert_eq!((taken.stop, taken.text.as_str()), (Stop::Finished, all));
    played(&sim.recording()).await;
}

#[tokio::test]
async fn s41_zero_switches_the_watchdogs_off() {
    let steps = format!(r#"{} {{ text = "At last." }}, {END}"#, lives(2_000));
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.patience = Patience {
        first: None,
        resumed: None,
    };
    guest.user("go");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}

/// A server without heartbeats times out sooner, and uses the same retries.
#[tokio::test]
async fn s39_a_mute_server_costs_the_restarts_of_an_idle_one() {
    for retries in [0, 2] {
        let (sim, backend) = simulating(&[MUTE.to_owned()]).await;
        let mut guest = InProcessSession::new(&backend, None);
        guest.policy.idle_retries = retries;
        guest.user("go");
        let taken = fast(&mut guest).await;
        idles(&taken, "Cursor stream idle timeout after 30000ms");
        assert_eq!(requests(&sim).len(), 1 + retries as usize);
    }
}

/// The same after results: rebuilt once, and then the retries.
#[tokio::test]
async fn s38_s39_a_mute_resume_is_brought_back_once() {
    let first = format!(r#"{}, {{ await = ["a"] }}, {MUTE}"#, opened("look", "a"));
    let (sim, backend) = simulating(&[first, MUTE.to_owned()]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 1;
    let taken = guest.say("go").await;
    guest.result(&taken.calls[0], "42");
    let taken = fast(&mut guest).await;
    idles(&taken, "Cursor stream idle timeout after 30000ms");
    let requests = requests(&sim);
    assert_eq!(requests.len(), 3);
    assert!(said(&requests[1]).contains("Result:\n42\n"));
}

#[tokio::test]
async fn s41_without_watchdogs_a_mute_server_has_all_the_time() {
    let steps = format!(
        r#"{} {}, {{ await = ["a"] }}, {} {{ text = "At last." }}, {END}"#,
        mute(600),
        opened("look", "a"),
        mute(600)
    );
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.patience = Patience {
        first: None,
        resumed: None,
    };
    guest.user("go");
    let taken = fast(&mut guest).await;
    guest.result(&taken.calls[0], "42");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}

/// While the run is parked, the server need not send anything.
#[tokio::test]
async fn s37_a_mute_server_is_not_watched_in_a_pause() {
    let steps = format!(
        r#"{}, {} {{ await = ["a"] }}, {{ text = "It says 42." }}, {END}"#,
        opened("look", "a"),
        mute(500)
    );
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let taken = guest.say("go").await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(490)).await;
    tokio::time::resume();
    guest.result(&taken.calls[0], "42");
    assert_eq!(fast(&mut guest).await.text, "It says 42.");
    assert_eq!(requests(&sim).len(), 1, "the same run");
}

/// Requests before the stream have an idle timeout as well.
#[tokio::test]
async fn s39_an_exchange_that_hangs_is_given_up_on() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let backend = Backend::new(&client_options(&url)).unwrap();
    for (seconds, waited) in [(5, "5000ms"), (120, "30000ms")] {
        let mut guest = InProcessSession::new(&backend, None);
        guest.policy.idle_retries = 1;
        guest.policy.patience.first = Some(Duration::from_secs(seconds));
        guest.user("go");
        let taken = fast(&mut guest).await;
        idles(&taken, &format!("idle timeout after {waited} "));
        idles(&taken, "over 2 attempts (1 retry)");
    }
}

/// After the end of its turn a server may still send its last checkpoint. Messages without visible
/// output do not extend the wait for it.
#[tokio::test]
async fn a_turn_that_has_ended_is_not_kept_by_a_server_that_says_nothing() {
    let token = "{ update = { tokenDelta = { tokens = 1 } } }";
    for nothing in ["{ text = \"\" }", token, "{ usage = {} }"] {
        let steps = format!(
            r#"{{ text = "Done." }}, {{ usage = {{}} }}, {} {END}"#,
            format!("{{ delay_ms = 3000 }}, {nothing}, ").repeat(100)
        );
        let (_sim, backend) = simulating(&[steps]).await;
        let mut guest = InProcessSession::new(&backend, None);
        guest.user("go");
        let asked = tokio::time::Instant::now();
        let taken = fast(&mut guest).await;
        assert_eq!((taken.stop, taken.text.as_str()), (Stop::Finished, "Done."));
        let waited = asked.elapsed();
        assert!(waited < Duration::from_secs(20), "{waited:?} of {nothing}");
    }
}

/// Text after the end of a turn is still read and shown.
#[tokio::test]
async fn words_behind_a_turns_end_are_shown() {
    let word = r#"{ delay_ms = 4000 }, { text = "more " }, "#.repeat(5);
    let steps = format!(r#"{{ text = "Done. " }}, {{ usage = {{}} }}, {word} {END}"#);
    let (_sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    assert_eq!(taken.text, "Done. more more more more more ");
}
