//! Streams that break and are reopened: how often, with which ids, over which connection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::run::{Backend, Outcome, RunEvent};
use agent::turn::Stop;
use cursor_client::headers::HttpVersion;
use cursor_client::http_version::Preference;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use test_support::in_process::{END, InProcessSession};
use test_support::pi_retry_rules::is_retryable;
use test_support::rpc_session::RpcSession;
use test_support::run_client::{RunClient, client_options};
use test_support::scenario::{Steps, playing, script};
use test_support::simulator::{Recording, Transport};

/// The client answers this, so it has read everything sent before it.
const READ: &str = r#"{ kv_set = { text = "read this far" } }"#;
const FROM_CHECKPOINT: &str = r#"{ expect_state = "last checkpoint" }, { expect_request = { action = { resumeAction = {} } } }"#;

fn runs(recording: &Recording) -> Vec<&Json> {
    recording.requests("/agent.v1.AgentService/Run")
}

/// Returns how many different values a header has across the runs.
fn different(recording: &Recording, header: &str) -> usize {
    let values = runs(recording)
        .into_iter()
        .map(|run| run["headers"][header].as_str().unwrap());
    values.collect::<BTreeSet<_>>().len()
}

fn connections(recording: &Recording) -> BTreeSet<u64> {
    let connections = runs(recording)
        .into_iter()
        .map(|run| run["connection"].as_u64().unwrap());
    connections.collect()
}

#[tokio::test]
async fn a_transport_failure_is_retried_ten_times_with_new_request_ids() {
    let simulator = playing(
        Transport::H2c,
        &Steps::new().then(READ).reset("internal_error").build(),
    );
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt("go").await;
    assert!(reply.failure().contains("HTTP/2 error 2"));
    assert_eq!(reply.ended.attempts, 11);
    let recording = simulator.recording().await;
    assert_eq!(different(&recording, "x-request-id"), 11);
    assert_eq!(different(&recording, "x-original-request-id"), 1);
}

#[tokio::test]
async fn after_a_goaway_a_run_continues_over_another_connection() {
    for code in ["no_error", "enhance_your_calm"] {
        let first = Steps::new()
            .text("Before. ")
            .checkpoint()
            .then(READ)
            .step(json!({"goaway": code.to_string()}))
            .build();
        let second = Steps::new()
            .then(FROM_CHECKPOINT)
            .text("After.")
            .then(END)
            .build();
        let simulator = script(&[&first, &second]);
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        ours.prompt("go").await.finished("Before. After.");
        let recording = simulator.recording().await;
        assert_eq!(connections(&recording).len(), 2, "{code}");
        assert_eq!(recording.verdicts()[1]["failures"], serde_json::json!([]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_abandoned_soon_and_reported() {
    // Bound, so that no other process uses the port, and not listened on.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let backend = Backend::new(&client_options(&url)).unwrap();
    let started = tokio::time::Instant::now();
    let turn_outcome = InProcessSession::new(&backend, None).prompt("go").await;
    let seconds = started.elapsed().as_secs();
    assert!((14..60).contains(&seconds), "{seconds} s");
    let Stop::Failed(error) = turn_outcome.stop else {
        panic!("{:?}", turn_outcome.stop);
    };
    assert!(error.starts_with("Cursor cannot be reached"), "{error}");
    assert!(
        !is_retryable(&error),
        "retries of the host would multiply ours"
    );
    let tokens = turn_outcome.tokens;
    assert_eq!((tokens.input, tokens.output), (0, 0), "nothing was sent");
    assert_eq!(turn_outcome.notices.len(), 1, "{:?}", turn_outcome.notices);
    for notice in &turn_outcome.notices {
        assert!(
            notice.starts_with("No answer from Cursor yet, trying again: "),
            "{notice}"
        );
        assert!(!notice.contains("crsr_test"));
    }
}

/// A relay to the simulator whose existing connections can be made to carry nothing, silently, as
/// after a machine has slept.
async fn relay(to: String, asleep: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&to).await.unwrap();
            let slept = asleep.load(Ordering::SeqCst);
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            for (mut from, mut to) in [(near_in, far_out), (far_in, near_out)] {
                let asleep = Arc::clone(&asleep);
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = from.read(&mut buffer).await {
                        // Opened before the sleep: carries nothing from now on.
                        let lost = !slept && asleep.load(Ordering::SeqCst);
                        if !lost && to.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    url
}

#[tokio::test]
async fn after_a_sleep_a_run_continues_over_another_connection() {
    let first = Steps::new()
        .text("Before. ")
        .checkpoint()
        .then(READ)
        .step(json!({"stall": true}))
        .build();
    let second = Steps::new()
        .then(FROM_CHECKPOINT)
        .text("After.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let asleep = Arc::new(AtomicBool::new(false));
    let address = simulator.url.trim_start_matches("http://").to_owned();
    let url = relay(address, Arc::clone(&asleep)).await;
    let mut ours = RunClient::with(&simulator, Transport::H2c, |options| {
        options.endpoints.pi_agent = Some(url.clone());
        options.http_version = Preference::Always(HttpVersion::Http2);
    });
    ours.timing.stall = Duration::from_secs(5);
    let mut handle = ours.begin("go");
    let mut text = String::new();
    let ended = loop {
        match handle
            .events
            .recv()
            .await
            .expect("the last event is the end")
        {
            RunEvent::Text(more) => text.push_str(&more),
            RunEvent::Checkpoint(_) => asleep.store(true, Ordering::SeqCst),
            RunEvent::Ended(ended) => break ended,
            _ => {}
        }
    };
    assert_eq!((ended.outcome, ended.attempts), (Outcome::Finished, 2));
    assert_eq!(text, "Before. After.");
    assert_eq!(connections(&simulator.recording().await).len(), 2);
}

/// A resumed stream may phrase its text differently; the two texts are not joined into one
/// sentence.
#[tokio::test]
async fn text_the_next_stream_words_differently_is_a_new_paragraph() {
    let first = Steps::new()
        .text("Well. ")
        .checkpoint()
        .text("I will ")
        .text("read.")
        .then(READ)
        .reset("internal_error")
        .build();
    let resumed = |pieces: &str| format!(r#"{FROM_CHECKPOINT}, {pieces}, {END}"#);
    for (pieces, all) in [
        (
            r#"{ text = "I " }, { text = "can write." }"#,
            "Well. I will read.\n\nI can write.",
        ),
        (
            r#"{ text = "I " }, { text = "will read. Done." }"#,
            "Well. I will read. Done.",
        ),
        // It ends in the middle, after everything has been read.
        (r#"{ text = "I will " }"#, "Well. I will read."),
        (
            r#"{ text = "I will " }, { thinking = "hm" }, { text = "read. Done." }"#,
            "Well. I will read. Done.",
        ),
    ] {
        let simulator = script(&[&first, &resumed(pieces)]);
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        ours.prompt("go").await.finished(all);
        simulator
            .recording()
            .await
            .assert_played(&["completed", "completed"]);
    }
}

#[tokio::test]
async fn an_empty_text_block_is_ignored() {
    let first = Steps::new()
        .text("")
        .then(READ)
        .reset("internal_error")
        .build();
    let simulator = script(&[&first, &Steps::new().text("All of it.").then(END).build()]);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    ours.prompt("go").await.finished("All of it.");
}

/// Checkpoints on the wire: an invalid message, and one without a field.
const UNUSABLE: [&str; 2] = ["1a03 ffffff", "1a00"];

#[tokio::test]
async fn an_invalid_checkpoint_does_not_replace_the_one_before() {
    for bad in UNUSABLE {
        let first = Steps::new()
            .text("Before. ")
            .checkpoint()
            .step(json!({"send_hex": bad.to_string()}))
            .then(READ)
            .reset("internal_error")
            .build();
        let second = Steps::new()
            .step(json!({"expect_request": {"action": {"resumeAction": {}}}}))
            .step(json!({"expect_request": {"conversationState": {"mode": "AGENT_MODE_AGENT"}}}))
            .text("After.")
            .then(END)
            .build();
        let simulator = script(&[&first, &second]);
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        ours.prompt("go").await.finished("Before. After.");
        simulator
            .recording()
            .await
            .assert_played(&["completed", "completed"]);
        let counts = ours.backend.drift.counts();
        let counted = counts
            .iter()
            .find(|(what, _)| what.starts_with("checkpoint: "));
        assert_eq!(counted.map(|(_, times)| *times), Some(1), "{counts:?}");
    }
}

#[test]
fn a_turn_that_ends_with_an_invalid_checkpoint_does_not_affect_later_ones() {
    for bad in UNUSABLE {
        // Without a checkpoint the next turn is another conversation, which starts like this one.
        let steps = Steps::new()
            .text("Well.")
            .usage()
            .step(json!({"send_hex": bad.to_string()}))
            .end()
            .build();
        let simulator = script(&[&steps]);
        let mut session = RpcSession::new(&simulator, "none", &[("PI_CURSOR_HTTP", "2")]);
        assert_eq!(session.prompt("one").text, "Well.");
        let turn_outcome = session.prompt("two");
        assert_eq!(
            (turn_outcome.text.as_str(), turn_outcome.stop.as_str()),
            ("Well.", "stop"),
            "{bad}: {}",
            turn_outcome.error
        );
    }
}
