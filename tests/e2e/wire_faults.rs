//! Every fault on the wire results in a typed failure within a bounded time.

use serde_json::json;
use std::io::Write as _;
use std::time::Duration;

use agent::run::{Command, Outcome, RetryPolicy, RunEvent};
use cursor_client::failure::{Failure, Retry};

use test_support::run_client::{OnText, RunClient, RunOutcome};
use test_support::scenario::{Steps, inline, playing, value};
use test_support::simulator::{Simulator, Transport};

/// Runs a single attempt.
async fn once(transport: Transport, steps: &str) -> RunOutcome {
    // A long stall timeout, so that a slow machine does not turn another failure into a stall.
    within(Duration::from_secs(60), transport, steps).await
}

/// Runs a single attempt with the given stall timeout.
async fn within(stall: Duration, transport: Transport, steps: &str) -> RunOutcome {
    let simulator = playing(transport, steps);
    let mut ours = RunClient::new(&simulator, transport);
    ours.policy = RetryPolicy {
        server: 0,
        transport: 0,
        idle: 0,
        ..RetryPolicy::default()
    };
    ours.timing.stall = stall;
    ours.prompt("go").await
}

async fn failure(transport: Transport, steps: &str) -> Failure {
    failed(once(transport, steps).await, steps)
}

fn failed(reply: RunOutcome, steps: &str) -> Failure {
    match reply.ended.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{steps}: {other:?}"),
    }
}

#[tokio::test]
async fn broken_streams() {
    let cases = [
        (
            r#"{ text = "a" }, { reset = "cancel" }"#,
            "stream reset by the server (HTTP/2 error 8)",
        ),
        (
            r#"{ reset = "internal_error" }"#,
            "stream reset by the server (HTTP/2 error 2)",
        ),
        // Streams up to a GOAWAY's last id may continue; the client only observes that the
        // connection then closes.
        (
            r#"{ text = "a" }, { goaway = "enhance_your_calm" }"#,
            "connection ",
        ),
        (r#"{ text = "a" }, { goaway = "no_error" }"#, "connection "),
        (
            r#"{ text = "a" }, { half_close = true }"#,
            "stream ended without an end-of-stream message",
        ),
        (
            r#"{ text = "a" }, { truncate = 7 }"#,
            "malformed stream: stream ended inside an envelope: 7 of",
        ),
        (
            r#"{ garbage = "48656c6c6f" }"#,
            "malformed stream: envelope with unknown flags 0x48",
        ),
        (
            r#"{ garbage = "0000000003ffffff" }"#,
            "malformed message from the server",
        ),
        (
            r#"{ garbage = "02000000026e6f" }"#,
            "malformed end-of-stream message",
        ),
        (
            r#"{ garbage = "0100000001ff" }"#,
            "malformed stream: compressed envelope",
        ),
        (
            r#"{ oversized = 67108865 }"#,
            "malformed stream: envelope of 67108865 bytes is over the limit",
        ),
        (
            r#"{ text = "a" }, { end = true }"#,
            "the server ended the stream before the turn was over",
        ),
    ];
    for (steps, wanted) in cases {
        let failure = failure(Transport::H2c, steps).await;
        assert_eq!(failure.retry(), Retry::Transport, "{steps}: {failure}");
        assert!(
            failure.to_string().starts_with(wanted),
            "{steps}: {failure}"
        );
    }
}

#[tokio::test]
async fn broken_streams_over_http1() {
    for steps in [
        r#"{ text = "a" }, { cut = true }"#,
        r#"{ text = "a" }, { half_close = true }"#,
        r#"{ text = "a" }, { truncate = 7 }"#,
        r#"{ text = "a" }, { reset = "cancel" }"#,
        r#"{ garbage = "48656c6c6f" }"#,
    ] {
        let failure = failure(Transport::Http1, steps).await;
        assert_eq!(failure.retry(), Retry::Transport, "{steps}: {failure}");
    }
}

#[tokio::test]
async fn silence_is_a_failure_of_its_own() {
    for transport in [Transport::H2c, Transport::Http1] {
        let steps = r#"{ text = "a" }, { stall = true }"#;
        let reply = within(Duration::from_secs(1), transport, steps).await;
        let failure = failed(reply, steps);
        assert_eq!(failure.retry(), Retry::Idle, "{failure}");
        let wanted = "Cursor stream idle timeout after 1000ms";
        assert!(failure.to_string().starts_with(wanted), "{failure}");
    }
}

#[tokio::test]
async fn a_cut_connection_over_tls() {
    let failure = failure(Transport::Tls, r#"{ text = "a" }, { cut = true }"#).await;
    assert_eq!(failure.retry(), Retry::Transport, "{failure}");
}

#[tokio::test]
async fn http_statuses() {
    let cases = [
        (401, Retry::Never, "login"),
        (403, Retry::Never, "refused"),
        (404, Retry::Server, "server"),
        (429, Retry::Server, "server"),
        (500, Retry::Server, "server"),
        (502, Retry::Server, "server"),
        (503, Retry::Server, "server"),
    ];
    for (status, retry, class) in cases {
        for transport in [Transport::H2c, Transport::Http1] {
            let failure = failure(transport, &inline(&json!({"status": value(status)}))).await;
            assert_eq!(
                (failure.retry(), failure.class()),
                (retry, class),
                "{failure}"
            );
            assert!(
                failure.to_string().contains(&status.to_string()),
                "{failure}"
            );
        }
    }
}

#[tokio::test]
async fn a_trailers_only_error_is_read() {
    let steps = r#"{ status = 200, trailers_only = true, headers = { grpc-status = "16", grpc-message = "who%20are you: caf%C3%A9" } }"#;
    let failure = failure(Transport::H2c, steps).await;
    assert_eq!(
        failure,
        Failure::Login("[unauthenticated] who are you: café".into())
    );
}

#[tokio::test]
async fn status_464_falls_back_to_http1_and_is_remembered() {
    let simulator = playing(Transport::Tls, r#"{ status = 464 }"#);
    let mut ours = RunClient::new(&simulator, Transport::Tls);
    ours.policy = RetryPolicy {
        server: 0,
        transport: 0,
        ..RetryPolicy::default()
    };
    for _ in 0..2 {
        ours.prompt("go").await;
    }
    let recording = simulator.recording().await;
    assert_eq!(recording.requests("/agent.v1.AgentService/Run").len(), 1);
    assert_eq!(recording.requests("/agent.v1.AgentService/RunSSE").len(), 2);
}

#[tokio::test]
async fn typed_errors_are_classified() {
    let cases = [
        ("ERROR_NOT_LOGGED_IN", "login"),
        ("ERROR_FREE_USER_USAGE_LIMIT", "upgrade"),
        ("ERROR_USAGE_PRICING_REQUIRED", "payment"),
        ("ERROR_OUTDATED_CLIENT", "update"),
        ("ERROR_CONVERSATION_TOO_LONG", "context_too_long"),
        ("ERROR_CUSTOM_MESSAGE", "refused"),
    ];
    for (error, class) in cases {
        let steps = Steps::new()
            .text("a")
            .step(json!({
                "end": {
                    "code": "internal",
                    "message": "Error",
                    "error": error.to_string(),
                    "title": "Title",
                    "detail": "detail.",
                    "retryable": false,
                },
            }))
            .build();
        let failure = failure(Transport::H2c, &steps).await;
        assert_eq!(
            (failure.retry(), failure.class()),
            (Retry::Never, class),
            "{error}"
        );
        assert_eq!(failure.to_string(), "Title. detail.");
    }
}

#[tokio::test]
async fn text_that_arrived_before_the_failure_is_kept() {
    let reply = once(
        Transport::H2c,
        r#"{ text = "half " }, { reset = "cancel" }"#,
    )
    .await;
    assert_eq!(reply.text, "half ");
}

#[tokio::test]
async fn retries_are_counted_like_the_official_clients() {
    let simulator = playing(
        Transport::H2c,
        r#"{ end = { code = "internal", message = "boom" } }"#,
    );
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt("go").await;
    assert_eq!(reply.failure(), "[internal] boom");
    assert_eq!(reply.ended.attempts, 4);
    let recording = simulator.recording().await;
    let runs = recording.requests("/agent.v1.AgentService/Run");
    let ids: std::collections::BTreeSet<_> = runs
        .iter()
        .map(|run| run["headers"]["x-request-id"].to_string())
        .collect();
    let originals: std::collections::BTreeSet<_> = runs
        .iter()
        .map(|run| run["headers"]["x-original-request-id"].to_string())
        .collect();
    assert_eq!((runs.len(), ids.len(), originals.len()), (4, 4, 1));
}

#[tokio::test]
async fn unauthenticated_with_a_fresh_token_is_final() {
    let simulator = playing(
        Transport::H2c,
        r#"{ end = { code = "unauthenticated", message = "no" } }"#,
    );
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt("go").await;
    assert_eq!(reply.failure(), "[unauthenticated] no");
    assert_eq!(simulator.recording().await.runs(), 1);
    // The next run has discarded that token and requests a new one.
    ours.prompt("go").await;
    let exchanges = simulator.recording().await;
    assert_eq!(exchanges.requests("/auth/exchange_user_api_key").len(), 2);
}

#[tokio::test]
async fn a_stalled_window_stops_nothing_but_sending() {
    // The server's flow-control window is exhausted, but what it sends must still arrive.
    let steps =
        r#"{ hold_window = true }, { text = "still talking" }, { usage = {} }, { end = true }"#;
    once(Transport::H2c, steps).await.finished("still talking");
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused() {
    let simulator = playing(Transport::Tls, "{ end = true }");
    let mut ours = RunClient::with(&simulator, Transport::Tls, |options| {
        options.trust.extra = None;
    });
    let failure = ours.prompt("go").await.failure();
    assert!(failure.contains("TLS with 127.0.0.1"), "{failure}");
    assert!(failure.contains("SSL_CERT_FILE"), "{failure}");
    assert_eq!(simulator.recording().await.runs(), 0);
}

#[tokio::test]
async fn no_server_listens() {
    let simulator = playing(Transport::H2c, "{ end = true }");
    let mut ours = RunClient::with(&simulator, Transport::H2c, |options| {
        options.endpoints.backend = Some("http://127.0.0.1:9".into());
    });
    let failure = ours.prompt("go").await.failure();
    assert!(
        failure.contains("cannot connect to 127.0.0.1:9"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_message_that_arrives_byte_by_byte_is_assembled() {
    let steps = r#"{ drip = { text = "drop by drop", bytes = 1, every_ms = 1 } }, { usage = {} }, { end = true }"#;
    for transport in [Transport::H2c, Transport::Http1] {
        once(transport, steps).await.finished("drop by drop");
    }
}

/// Cancelling does not wait for a server that accepts the connection and never responds.
#[tokio::test]
async fn cancelling_works_while_the_stream_is_being_opened() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let simulator = playing(Transport::Http1, "{ end = true }");
    let mut ours = RunClient::with(&simulator, Transport::Http1, |options| {
        options.endpoints.backend = Some(url.clone());
    });
    let mut handle = ours.begin("go");
    let (_socket, _) = silent.accept().await.unwrap();
    handle.commands.send(Command::Cancel).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(5), handle.events.recv()).await;
    let Ok(Some(RunEvent::Ended(ended))) = event else {
        panic!("{event:?}");
    };
    assert_eq!(ended.outcome, Outcome::Cancelled);
}

/// The last checkpoint of a cancelled run is kept for the next turn.
#[tokio::test]
async fn a_cancelled_run_brings_its_last_checkpoint() {
    let steps = r#"{ text = "cancel me" }, { expect_client = { conversationAction = { cancelAction = {} } } }, { checkpoint = "auto" }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt_and("go", OnText::Cancel("cancel me")).await;
    assert_eq!(reply.ended.outcome, Outcome::Cancelled);
    let checkpoints = reply
        .events
        .iter()
        .filter(|e| matches!(e, RunEvent::Checkpoint(_)));
    assert_eq!(checkpoints.count(), 1, "{:?}", reply.events);
}

/// The cancel is sent even while checkpoints keep arriving.
#[tokio::test]
async fn a_cancellation_is_sent_whatever_arrives_meanwhile() {
    let flood = r#"{ checkpoint = { rootPromptMessagesJson = ["bW9yZQ=="] } }, "#.repeat(2_000);
    let steps = Steps::new()
        .text("cancel me")
        .then(flood)
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .step(json!({"checkpoint": {"rootPromptMessagesJson": ["bGFzdA=="]}}))
        .end()
        .build();
    let simulator = playing(Transport::H2c, &steps);
    for times in 1..=8 {
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        let reply = ours.prompt_and("go", OnText::Cancel("cancel me")).await;
        assert_eq!(reply.ended.outcome, Outcome::Cancelled);
        // The server has finished the run once it has a verdict on it.
        let recording = loop {
            let recording = simulator.recording().await;
            if recording.verdicts().len() == times {
                break recording;
            }
        };
        let cancels = recording.client("conversationAction.cancelAction");
        assert_eq!(cancels.len(), times);
    }
}

/// An undeclared request: field 99 of an exec message with id 5.
#[tokio::test]
async fn an_unknown_request_is_thrown_closed_and_counted() {
    let steps = r#"{ send_hex = "1205 0805 9a0600" }, { expect_client = { execClientControlMessage = { throw = { id = 5 } } } }, { expect_client = { execClientControlMessage = { streamClose = { id = 5 } } } }, { text = "on we go" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    ours.prompt("go").await.finished("on we go");
    simulator.recording().await.assert_played(&["completed"]);
    let counts = ours.backend.drift.counts();
    assert_eq!(counts.get("exec: unknown request"), Some(&1), "{counts:?}");
    assert_eq!(
        counts.get("agent.v1.ExecServerMessage.99"),
        Some(&1),
        "{counts:?}"
    );
}

/// A fault after the end of the turn does not change its result.
#[tokio::test]
async fn a_connection_lost_after_the_turn_changes_nothing() {
    for fault in [
        json!({"reset": "internal_error"}),
        json!({"goaway": "enhance_your_calm"}),
        json!({"half_close": true}),
        json!({"truncate": 7}),
        json!({"cut": true}),
    ] {
        let steps = Steps::new()
            .text("all of it")
            .usage()
            .step(json!({"kv_set": {"text": "read this far"}}))
            .step(fault)
            .build();
        once(Transport::H2c, &steps).await.finished("all of it");
    }
}

/// A server that sends heartbeats after the turn may still be preparing its last checkpoint.
#[tokio::test]
async fn heartbeats_after_the_turn_keep_the_stream_for_the_last_checkpoint() {
    let steps = r#"{ text = "all of it" }, { usage = {} }, { delay_ms = 4000 }, { heartbeat = true }, { delay_ms = 4000 }, { checkpoint = "auto" }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    ours.timing.after_turn = Duration::from_secs(6);
    let reply = ours.prompt("go").await;
    reply.finished("all of it");
    let checkpoint = |event: &RunEvent| matches!(event, RunEvent::Checkpoint(_));
    assert!(reply.events.iter().any(checkpoint), "{:?}", reply.events);
}

/// Heartbeats do not keep the stream open forever, nor do checkpoints or tool calls that are never
/// completed.
#[tokio::test]
async fn work_after_the_answer_does_not_keep_the_turn_open() {
    let read = json!({"readToolCall": {"args": {"path": "/a"}}});
    let beats = [
        json!({"heartbeat": true}),
        json!({"checkpoint": "auto"}),
        json!({"send_hex": "1a00"}),
        json!({"update": {"toolCallStarted": {"callId": "c", "toolCall": read}}}),
    ];
    for beat in beats {
        let step = Steps::new().step(beat.clone()).delay_ms(100).build() + ", ";
        let beats = step.repeat(600);
        let steps = Steps::new()
            .text("all of it")
            .usage()
            .then(beats)
            .step(json!({"expect_cancel": true}))
            .build();
        let simulator = playing(Transport::H2c, &steps);
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        ours.timing.after_turn = Duration::from_millis(500);
        let started = std::time::Instant::now();
        ours.prompt("go").await.finished("all of it");
        assert!(started.elapsed() < Duration::from_secs(15), "{beat}");
    }
}

/// The key exchange accepts any success status, reports the message of a refusal, and rejects a
/// token that cannot be sent in a header.
#[tokio::test]
async fn answers_of_the_key_exchange() {
    let token = r#"{ accessToken = "tok" }"#;
    let cases = [
        (
            format!("status = 201, body = {token}"),
            "[unauthenticated] ",
        ),
        (
            r#"status = 401, body = { error = { message = "Key was revoked" } }"#.into(),
            "Cursor did not accept the API key (Key was revoked)",
        ),
        (
            r#"status = 401, body = { message = "Key was revoked" }"#.into(),
            "Cursor did not accept the API key (Key was revoked)",
        ),
        (
            r#"status = 401, body = "<html>no</html>""#.into(),
            "Cursor did not accept the API key (HTTP 401)",
        ),
        (
            r#"status = 200, body = { accessToken = "t\nk" }"#.into(),
            "Cursor sent a token that cannot be sent in a header",
        ),
    ];
    for (exchange, wanted) in cases {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        write!(
            file,
            "name = \"exchange\"\n[server]\nexchange = {{ {exchange} }}\n[[run]]\nsteps = []\n"
        )
        .unwrap();
        let simulator = Simulator::with(Transport::H2c, file.path());
        let failure = RunClient::new(&simulator, Transport::H2c)
            .prompt("go")
            .await
            .failure();
        assert!(failure.starts_with(wanted), "{exchange}: {failure}");
    }
}
