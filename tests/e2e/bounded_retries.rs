//! A fault that stays ends soon and is reported once, and a process that gets a signal to end answers first.

use std::time::Duration;

use agent::turn::Stop;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::effects_once::{attempts, in_any_conversation};
use crate::steering::{GIVEN_UP, INJECTED, REFUSED};
use test_support::in_process::{InProcessSession, requests, simulating, simulating_all};
use test_support::pi_retry_rules::is_retryable;
use test_support::rpc_session::{CollectedTurn, RpcSession};
use test_support::scenario::{END, Steps};

/// Each stream is accepted and then breaks, in several ways.
#[tokio::test]
async fn a_fault_that_stays_ends_within_two_minutes_and_is_reported_once() {
    for fault in [
        r#"{ heartbeat = true }, { garbage = "ffffffffff" }"#,
        r#"{ heartbeat = true }, { half_close = true }"#,
        r#"{ heartbeat = true }, { end = { code = "aborted", message = "no" } }"#,
    ] {
        let (_sim, backend) = simulating(&[fault.to_owned()]).await;
        let mut guest = InProcessSession::new(&backend, None);
        tokio::time::pause();
        let started = tokio::time::Instant::now();
        let outcome = guest.prompt("go").await;
        let waited = started.elapsed();
        tokio::time::resume();
        let Stop::Failed(error) = &outcome.stop else {
            panic!("{fault}: {outcome:?}");
        };
        assert!(waited < Duration::from_secs(125), "{fault}: {waited:?}");
        assert!(!is_retryable(error), "the host retries on {error:?}");
        assert_eq!(outcome.notices.len(), 1, "{fault}: {:?}", outcome.notices);
        let named: Option<u64> = error.split(' ').find_map(|word| word.parse().ok());
        let is_right = named.is_some_and(|named| named.abs_diff(waited.as_secs()) <= 2);
        assert!(is_right, "{error}: {waited:?}");
    }
}

/// The message is sent in a run of its own, which has the retries that the first run left.
#[tokio::test]
async fn a_rejected_message_brings_no_more_retries() {
    let error = r#"{ end = { code = "internal", message = "no" } }"#.to_owned();
    let rejecting = Steps::new()
        .then(INJECTED)
        .then(REFUSED)
        .then(GIVEN_UP)
        .step(json!({"expect_cancel": true}))
        .build();
    let runs = [error.clone(), error.clone(), rejecting, error];
    let (sim, backend) = simulating_all(&runs).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.interjection = Some("hurry".into());
    tokio::time::pause();
    let outcome = guest.prompt("go").await;
    tokio::time::resume();
    assert!(matches!(outcome.stop, Stop::Failed(_)), "{outcome:?}");
    assert_eq!(
        requests(&sim).len(),
        5,
        "two retries, and one of the second run"
    );
}

#[test]
fn a_checkpoint_without_its_blobs_is_not_sent_twice() {
    let first = Steps::new().text("One.").then(END).build();
    let lost = r#"{ end = { code = "internal", message = "Blob not found" } }"#;
    let third = Steps::new().text("Two.").then(END).build();
    let simulator = in_any_conversation(&[&first, lost, &third]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    assert_eq!(session.prompt("go").text, "One.");
    let outcome = session.prompt("on");
    assert_eq!(outcome.stop, "error");
    assert!(is_retryable(&outcome.error), "{}", outcome.error);
    // The host retries with the same history, which is sent as such.
    session.messages.pop();
    let outcome = session.turn();
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("Two.", "stop")
    );
    assert_eq!(simulator.recorded().runs(), 3);
}

#[test]
fn an_open_turn_is_answered_when_a_signal_ends_the_process() {
    let simulator = attempts(&[r#"{ text = "Hm. " }, { stall = true }"#]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.user("go");
    let turn = session.begin();
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    let process = Pid::from_raw(i32::try_from(session.host.id()).unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    let answer = loop {
        let message = session.host.receive();
        if message["id"] == json!(turn) {
            break message;
        }
    };
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert_eq!(session.host.exits(), Some(1));
}
