//! The events of a run in the debug log, with their names and fields.

use std::io::Write;
use std::sync::{Arc, Mutex};

use agent::turn::Stop;
use serde_json::{Value as Json, json};

use test_support::debug_log::{fields, logged, state};
use test_support::in_process::{CancelAfter, END, InProcessSession, opened, simulating};
use test_support::rpc_session::{OfferedCall, RpcSession, tool};
use test_support::scenario::{Steps, script};
use test_support::wait::until;

/// The first eight hex digits of sha256("bridge:s").
const PREFIX: &str = "a00a4c0d";

fn session(simulator: &test_support::simulator::Simulator, env: &[(&str, &str)]) -> RpcSession {
    let mut session = RpcSession::new(simulator, "s", env);
    session.tools = vec![tool("look")];
    session
}

/// A parked run that reached its time limit is logged.
#[test]
fn a_run_that_waited_too_long_is_logged() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new().text("It is 42.").then(END).build();
    let simulator = script(&[&first, &second]);
    let folder = tempfile::tempdir().unwrap();
    let [place, log] = state(&folder);
    let mut session = session(
        &simulator,
        &[place, log, ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "1000")],
    );
    let call: OfferedCall = session.prompt("go").calls[0].clone();
    let event = "bridge.active_ttl_expired";
    let events = until(|| logged(folder.path(), event).pop());
    assert_eq!(fields(&events), json!({"bridgeKeyPrefix": PREFIX}));
    session.result(&call, json!("42"));
    assert_eq!(session.turn().text, "It is 42.");
    session.host.exits();
    assert_eq!(logged(folder.path(), event).len(), 1);
}

/// A run that was lost with a checkpoint, and the turn that recovered it, are logged.
#[test]
fn a_run_lost_in_a_pause_and_its_recovery_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let parked = folder.path().join("parked");
    let first = Steps::new()
        .then(opened("look", "a"))
        .checkpoint()
        .step(json!({"expect_file": parked.display().to_string()}))
        .step(json!({"cut": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("It is 42.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = session(&simulator, &state(&folder));
    let call: OfferedCall = session.prompt("go").calls[0].clone();
    std::fs::write(&parked, "").unwrap();
    let event = "bridge.died_mid_pause_checkpoint_saved";
    let died = until(|| logged(folder.path(), event).pop());
    assert_eq!(fields(&died)["bridgeKeyPrefix"], PREFIX);
    assert_eq!(fields(&died)["class"], "transport");
    session.result(&call, json!("42"));
    assert_eq!(session.turn().text, "It is 42.");
    session.host.exits();
    let other = "bridge.died_mid_pause_no_checkpoint";
    assert_eq!(logged(folder.path(), other), [Json::Null; 0]);
    let events = logged(folder.path(), "bridge.recovered_via_checkpoint");
    assert_eq!(events.len(), 1);
    let wanted = json!({"bridgeKeyPrefix": PREFIX, "modelId": "composer-2",
        "recoveryPath": "stored_checkpoint", "pendingToolCallIds": call.id, "toolResultCount": 1,
        "sentinelInjectionDetected": false});
    assert_eq!(fields(&events[0]), wanted);
}

/// A stream that makes no progress for too long is logged.
#[test]
fn an_abandoned_stream_is_logged() {
    let nothing = r#"{ delay_ms = 200 }, { text = "" }, "#.repeat(30);
    let simulator = script(&[&format!("{nothing} {END}")]);
    let folder = tempfile::tempdir().unwrap();
    let [place, log] = state(&folder);
    let env = [
        place,
        log,
        ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1000"),
        ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "0"),
    ];
    let mut session = session(&simulator, &env);
    assert_eq!(session.prompt("go").stop, "error");
    session.host.exits();
    let events = logged(folder.path(), "native.stream.idle_timeout");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["bridgeKeyPrefix"], PREFIX);
    assert_eq!(
        (&events[0]["ms"], &events[0]["phase"]),
        (&json!(1000), &json!("First"))
    );
}

/// A log in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A stream that sends nothing at all times out sooner and is logged by the same event.
#[tokio::test]
async fn a_mute_stream_is_logged_as_an_idle_one() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .without_time()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _log = tracing::subscriber::set_default(log);
    let (_sim, backend) = simulating(&["{ stall = true }".to_owned()]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.policy.idle_retries = 1;
    guest.user("go");
    tokio::time::pause();
    let outcome = guest.turn(CancelAfter::Endless).await;
    tokio::time::resume();
    assert!(matches!(outcome.stop, Stop::Failed(_)), "{outcome:?}");
    let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let events = lines
        .lines()
        .filter(|line| line.contains("native.stream.idle_timeout"));
    let events: Vec<&str> = events.collect();
    assert_eq!(events.len(), 2, "once a stream");
    assert!(
        events
            .iter()
            .all(|line| line.contains("ms=30000 phase=First")),
        "{events:?}"
    );
}
