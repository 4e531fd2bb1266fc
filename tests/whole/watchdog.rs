//! Servers that live and do nothing, on a stopped clock.

use std::time::Duration;

use cursor_sidecar::diag::metrics;
use cursor_sidecar::run::{Backend, Patience as Waits};
use cursor_sidecar::turn::Stop;

use crate::clock::played;
use crate::inside::{END, Guest, Patience, Taken, opened, requests, said, simulating};

/// So long nothing but heartbeats.
fn lives(seconds: u32) -> String {
    let ms = seconds * 1000;
    format!("{{ delay_ms = {ms}, timeout_ms = {} }},", ms + 60_000)
}

const FOREVER: u32 = 100_000;

/// Not even heartbeats.
const MUTE: &str = "{ stall = true }";

/// So long not even heartbeats.
fn mute(seconds: u32) -> String {
    format!("{{ silence_ms = {} }},", seconds * 1000)
}

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

/// A server that waits for something this version cannot do will wait forever: the turn ends
/// sooner than after other silences, and says why.
#[tokio::test]
async fn a_server_that_waits_for_an_unknown_exec_is_named_after_45_seconds() {
    let unknown = r#"{ send_hex = "1205 0805 9a0600" }, { expect_client = { execClientControlMessage = { throw = { id = 5 } } } }"#;
    let waits = format!(r#"{unknown}, {} {{ text = "Never." }}"#, lives(FOREVER));
    let continues = format!(r#"{unknown}, {} {{ text = "Done." }}, {END}"#, lives(35));
    let (_sim, backend) = simulating(&[continues, waits]).await;
    let mut guest = Guest::new(&backend, None);
    guest.policy.idle_retries = 0;
    guest.user("go");
    let taken = fast(&mut guest).await;
    assert_eq!(taken.text, "Done.", "{:?}", taken.stop);
    guest.user("again");
    let taken = fast(&mut guest).await;
    idles(&taken, "does not know (request 5)");
    idles(&taken, "no work for 45000ms");
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
    played(&sim.recording()).await;
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
    idles(&taken, "Partial assistant output was already streamed");
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
    played(&sim.recording()).await;
}

/// However the next stream ends: words it was told of are in no state yet.
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
                let mut guest = Guest::new(&backend, None);
                guest.user("go");
                let taken = fast(&mut guest).await;
                let all = format!("Half. {known}The Seine.");
                assert_eq!((taken.stop, taken.text), (Stop::Finished, all));
                played(&sim.recording()).await;
            }
        }
    }
}

/// A state does not know what was said behind it: a model that is not told says it again in
/// other words, which no comparison finds.
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
    let mut guest = Guest::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    let all = "Half. The capital is Paris. The river is the Seine.";
    assert_eq!((taken.stop, taken.text.as_str()), (Stop::Finished, all));
    played(&sim.recording()).await;
    // After results, too.
    let resumed = format!(r#"{}, {{ await = ["a"] }}, {silent}"#, opened("look", "a"));
    let (sim, backend) = simulating(&[resumed, rest]).await;
    let mut guest = Guest::new(&backend, None);
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
    let mut guest = Guest::new(&backend, None);
    guest.policy.patience = Waits {
        first: None,
        resumed: None,
    };
    guest.user("go");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}

/// Whoever is wholly silent is given up on sooner, at the expense of the same restarts.
#[tokio::test]
async fn s39_a_mute_server_costs_the_restarts_of_an_idle_one() {
    for retries in [0, 2] {
        let (sim, backend) = simulating(&[MUTE.to_owned()]).await;
        let mut guest = Guest::new(&backend, None);
        guest.policy.idle_retries = retries;
        guest.user("go");
        let taken = fast(&mut guest).await;
        idles(&taken, "Cursor stream idle timeout after 30000ms");
        assert_eq!(requests(&sim).len(), 1 + retries as usize);
    }
}

/// After results, too: brought back once, and then the restarts.
#[tokio::test]
async fn s38_s39_a_mute_resume_is_brought_back_once() {
    let first = format!(r#"{}, {{ await = ["a"] }}, {MUTE}"#, opened("look", "a"));
    let (sim, backend) = simulating(&[first, MUTE.to_owned()]).await;
    let mut guest = Guest::new(&backend, None);
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
    let mut guest = Guest::new(&backend, None);
    guest.policy.patience = Waits {
        first: None,
        resumed: None,
    };
    guest.user("go");
    let taken = fast(&mut guest).await;
    guest.result(&taken.calls[0], "42");
    assert_eq!(fast(&mut guest).await.text, "At last.");
    assert_eq!(requests(&sim).len(), 1);
}

/// While the host works, the server has nothing to say.
#[tokio::test]
async fn s37_a_mute_server_is_not_watched_in_a_pause() {
    let steps = format!(
        r#"{}, {} {{ await = ["a"] }}, {{ text = "It says 42." }}, {END}"#,
        opened("look", "a"),
        mute(500)
    );
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = Guest::new(&backend, None);
    let taken = guest.say("go").await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(490)).await;
    tokio::time::resume();
    guest.result(&taken.calls[0], "42");
    assert_eq!(fast(&mut guest).await.text, "It says 42.");
    assert_eq!(requests(&sim).len(), 1, "the same run");
}

/// What comes before a stream is watched as well.
#[tokio::test]
async fn s39_an_exchange_that_hangs_is_given_up_on() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let env = |name: &str| match name {
        "CURSOR_BACKEND_URL" => Some(url.clone()),
        "CURSOR_API_KEY" => Some("crsr_test".into()),
        _ => None,
    };
    let (backend, _) = Backend::from_env(&env, None).unwrap();
    for (seconds, waited) in [(5, "5000ms"), (120, "30000ms")] {
        let mut guest = Guest::new(&backend, None);
        guest.policy.idle_retries = 1;
        guest.policy.patience.first = Some(Duration::from_secs(seconds));
        guest.user("go");
        let taken = fast(&mut guest).await;
        idles(&taken, &format!("idle timeout after {waited} "));
        idles(&taken, "over 2 attempts (1 retry)");
    }
}

/// After its turn's end a server may be at its last checkpoint; whatever it says that nobody is
/// shown, it is waited for no longer than if it beat.
#[tokio::test]
async fn a_turn_that_has_ended_is_not_kept_by_a_server_that_says_nothing() {
    let token = "{ update = { tokenDelta = { tokens = 1 } } }";
    for nothing in ["{ text = \"\" }", token, "{ usage = {} }"] {
        let steps = format!(
            r#"{{ text = "Done." }}, {{ usage = {{}} }}, {} {END}"#,
            format!("{{ delay_ms = 3000 }}, {nothing}, ").repeat(100)
        );
        let (_sim, backend) = simulating(&[steps]).await;
        let mut guest = Guest::new(&backend, None);
        guest.user("go");
        let asked = tokio::time::Instant::now();
        let taken = fast(&mut guest).await;
        assert_eq!((taken.stop, taken.text.as_str()), (Stop::Finished, "Done."));
        let waited = asked.elapsed();
        assert!(waited < Duration::from_secs(20), "{waited:?} of {nothing}");
    }
}

/// Words behind the end are heard out.
#[tokio::test]
async fn words_behind_a_turns_end_are_shown() {
    let word = r#"{ delay_ms = 4000 }, { text = "more " }, "#.repeat(5);
    let steps = format!(r#"{{ text = "Done. " }}, {{ usage = {{}} }}, {word} {END}"#);
    let (_sim, backend) = simulating(&[steps]).await;
    let mut guest = Guest::new(&backend, None);
    guest.user("go");
    let taken = fast(&mut guest).await;
    assert_eq!(taken.text, "Done. more more more more more ");
}
