//! HTTP/2 and HTTP/1.1 against servers that support only one of them or fail once.

use serde_json::json;
use std::io::Write as _;
use std::time::Duration;

use agent::run::{Outcome, RunEvent};

use test_support::run_client::{RunClient, RunOutcome};
use test_support::scenario::Steps;
use test_support::simulator::{Simulator, Transport};

const RUN: &str = "/agent.v1.AgentService/Run";
const RUN_SSE: &str = "/agent.v1.AgentService/RunSSE";
const APPEND: &str = "/aiserver.v1.BidiService/BidiAppend";
const SERVER_CONFIG: &str = "/aiserver.v1.ServerConfigService/GetServerConfig";
const HELLO: &str =
    r#"{ text = "Hello." }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;

/// A server whose calls fail as `fates` says, and whose runs play `steps`.
fn serving(transport: Transport, fates: &[(&str, &str)], steps: &str) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(file, "name = \"serving\"").unwrap();
    for (path, fate) in fates {
        writeln!(file, "[server.unary.\"{path}\"]\n{fate}").unwrap();
    }
    writeln!(file, "[[run]]\nsteps = [ {steps} ]").unwrap();
    Simulator::with(transport, file.path())
}

/// How often the run was retried after a delay.
fn retries(reply: &RunOutcome) -> usize {
    let retrying = |event: &&RunEvent| matches!(event, RunEvent::Retrying(_));
    reply.events.iter().filter(retrying).count()
}

const NO_RUN_SSE: (&str, &str) = (RUN_SSE, "status = 404");

/// A server that resets a stream or sends GOAWAY supports HTTP/2: one failure must not cause a
/// fallback to a protocol that it may not support.
#[tokio::test]
async fn one_http2_failure_does_not_lead_to_http1() {
    for fate in [
        r#"reset = "internal_error""#,
        r#"goaway = "enhance_your_calm""#,
        "cut = true",
    ] {
        for transport in [Transport::H2c, Transport::Tls] {
            let first = format!("{fate}\ntimes = 1");
            let simulator = serving(transport, &[(RUN, &first), NO_RUN_SSE], HELLO);
            let mut ours = RunClient::new(&simulator, transport);
            for _ in 0..3 {
                let reply = ours.prompt("go").await;
                assert_eq!(
                    reply.ended.outcome,
                    Outcome::Finished,
                    "{fate} {transport:?}"
                );
            }
            let recording = simulator.recording().await;
            assert_eq!(recording.requests(RUN).len(), 4, "{fate} {transport:?}");
        }
    }
}

#[tokio::test]
async fn a_reset_does_not_lead_to_http1_where_that_is() {
    let fate = "reset = \"internal_error\"\ntimes = 1";
    let simulator = serving(Transport::Tls, &[(RUN, fate)], HELLO);
    let mut ours = RunClient::new(&simulator, Transport::Tls);
    ours.prompt("go").await.finished("Hello.");
    let recording = simulator.recording().await;
    assert_eq!(recording.requests(RUN_SSE).len(), 0);
}

/// The server has no configuration that names the version, and supports runs over HTTP/2 only.
#[tokio::test]
async fn a_plain_server_without_runs_over_http1_is_asked_over_http2() {
    for status in [404, 405, 415, 501, 505] {
        let fate = format!("status = {status}");
        let fates = [(SERVER_CONFIG, "status = 404"), (RUN_SSE, fate.as_str())];
        let simulator = serving(Transport::Http1, &fates, HELLO);
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        for _ in 0..2 {
            let reply = ours.prompt("go").await;
            reply.finished("Hello.");
            assert_eq!(retries(&reply), 0);
        }
        let recording = simulator.recording().await;
        assert_eq!(recording.requests(RUN_SSE).len(), 1, "{status}");
    }
}

/// A configuration request that is never answered must not use up the time for opening a stream.
#[tokio::test]
async fn a_run_starts_although_the_server_configuration_never_arrives() {
    let fates = [(SERVER_CONFIG, "late_ms = 60000")];
    let simulator = serving(Transport::Http1, &fates, HELLO);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    ours.timing.patience.first = Some(Duration::from_millis(2500));
    ours.prompt("go").await.finished("Hello.");
    let recording = simulator.recording().await;
    assert_eq!(recording.requests(SERVER_CONFIG).len(), 1);
}

/// A refused stream was not processed, so another connection is opened at once.
#[tokio::test]
async fn a_refused_stream_moves_on_at_once() {
    let fate = "reset = \"refused_stream\"\ntimes = 2";
    let simulator = serving(Transport::H2c, &[(RUN, fate)], HELLO);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt("go").await;
    reply.finished("Hello.");
    assert_eq!((reply.ended.attempts, retries(&reply)), (3, 0));
}

/// Appends are numbered, so one that may be lost is sent again and the run continues.
#[tokio::test]
async fn a_lost_append_is_sent_again() {
    let steps = Steps::new().context().then(HELLO).build();
    for fate in ["status = 503", "cut = true"] {
        for after in [0, 1] {
            let fate = format!("{fate}\nafter = {after}\ntimes = 2");
            let simulator = serving(Transport::Http1, &[(APPEND, &fate)], &steps);
            let reply = RunClient::new(&simulator, Transport::Http1)
                .prompt("go")
                .await;
            reply.finished("Hello.");
            assert_eq!(reply.ended.attempts, 1, "{fate}");
            simulator.recording().await.assert_played(&["completed"]);
        }
    }
}

/// An append that the server rejected for good is not sent again.
#[tokio::test]
async fn a_refused_append_is_not_sent_again() {
    let fate = r#"status = 400
body = { code = "invalid_argument", message = "no" }"#;
    let simulator = serving(Transport::Http1, &[(APPEND, fate)], HELLO);
    let mut ours = RunClient::new(&simulator, Transport::Http1);
    ours.policy.server = 0;
    assert_eq!(ours.prompt("go").await.failure(), "[invalid_argument] no");
    assert_eq!(simulator.recording().await.requests(APPEND).len(), 1);
}

/// Appends are ordered by number, so none waits for the response to another.
#[tokio::test]
async fn answers_do_not_wait_for_the_first_append() {
    let steps = Steps::new()
        .step(json!({"exec": {"requestContextArgs": {}}, "timeout_ms": 10000}))
        .then(HELLO)
        .build();
    let fate = "late_ms = 25000\ntimes = 1";
    let simulator = serving(Transport::Http1, &[(APPEND, fate)], &steps);
    let reply = RunClient::new(&simulator, Transport::Http1)
        .prompt("go")
        .await;
    reply.finished("Hello.");
    simulator.recording().await.assert_played(&["completed"]);
}
