//! A fault that stays ends soon and is reported once, and a process that gets a signal to end answers first.

use std::time::Duration;

use agent::turn::Stop;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::effects_once::{attempts, in_any_conversation};
use test_support::in_process::{InProcessSession, simulating};
use test_support::pi_retry_rules::is_retryable;
use test_support::rpc_session::{RpcSession, TurnOutcome};
use test_support::scenario::END;

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
        let taken = guest.prompt("go").await;
        let waited = started.elapsed();
        tokio::time::resume();
        let Stop::Failed(error) = &taken.stop else {
            panic!("{fault}: {taken:?}");
        };
        assert!(waited < Duration::from_secs(125), "{fault}: {waited:?}");
        assert!(!is_retryable(error), "the host retries on {error:?}");
        assert_eq!(taken.notices.len(), 1, "{fault}: {:?}", taken.notices);
    }
}

#[test]
fn a_checkpoint_without_its_blobs_is_not_sent_twice() {
    let first = format!(r#"{{ text = "One." }}, {END}"#);
    let lost = r#"{ end = { code = "internal", message = "Blob not found" } }"#;
    let third = format!(r#"{{ text = "Two." }}, {END}"#);
    let simulator = in_any_conversation(&[&first, lost, &third]);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    assert_eq!(talk.prompt("go").text, "One.");
    let taken = talk.prompt("on");
    assert_eq!(taken.stop, "error");
    assert!(is_retryable(&taken.error), "{}", taken.error);
    // The host retries with the same history, which is sent as such.
    talk.messages.pop();
    let taken = talk.turn();
    assert_eq!((taken.text.as_str(), taken.stop.as_str()), ("Two.", "stop"));
    assert_eq!(simulator.recorded().runs(), 3);
}

#[test]
fn an_open_turn_is_answered_when_a_signal_ends_the_process() {
    let simulator = attempts(&[r#"{ text = "Hm. " }, { stall = true }"#]);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    talk.user("go");
    let turn = talk.begin();
    let mut begun = TurnOutcome::default();
    while begun.text.is_empty() {
        begun.receive(&talk.host.receive());
    }
    let process = Pid::from_raw(i32::try_from(talk.host.id()).unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    let answer = loop {
        let message = talk.host.receive();
        if message["id"] == json!(turn) {
            break message;
        }
    };
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert_eq!(talk.host.exits(), Some(1));
}
