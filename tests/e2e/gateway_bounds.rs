//! Large requests of a client of the gateway.

use std::io::Write as _;
use std::time::{Duration, Instant};

use test_support::gateway::GatewayProcess;
use test_support::simulator::{Simulator, Transport};

const MIB: usize = 1024 * 1024;
/// The most memory the gateway may use for one request.
const MAX_MIB: u64 = 200;

/// A run that answers briefly.
const BRIEF: &str = r#"
name = "brief"
[[run]]
steps = [ { text = "ok" }, { usage = {} }, { end = true } ]
"#;

/// Returns a request of this many messages with texts of this length.
fn body(count: usize, text: usize) -> String {
    let message = format!(r#"{{"role":"user","content":"{}"}}"#, "a".repeat(text));
    let messages = vec![message; count].join(",");
    format!(r#"{{"model":"composer-2","messages":[{messages}]}}"#)
}

/// Sends a request; returns the status, the response and the time it took.
async fn send(gateway: &GatewayProcess, body: String) -> (u16, String, Duration) {
    let started = Instant::now();
    let sent = reqwest::Client::new()
        .post(format!("{}/chat/completions", gateway.url))
        .bearer_auth(&gateway.token)
        .header("content-type", "application/json")
        .body(body)
        .send();
    let answer = sent.await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.text().await.unwrap(), started.elapsed())
}

#[track_caller]
fn assert_small(case: &str, gateway: &GatewayProcess, took: Duration) {
    let peak = gateway.peak_kib();
    assert!(
        peak.is_some() || !cfg!(target_os = "linux"),
        "{case}: not measured"
    );
    let peak = peak.unwrap_or_default() / 1024;
    eprintln!("{case}: {peak} MiB, {took:?}");
    assert!(peak <= MAX_MIB, "{case}: {peak} MiB");
}

/// Without a limit a million short messages took 24 s and 1.15 GB.
#[tokio::test]
async fn a_million_messages_are_refused_before_they_take_memory() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let body = body(1_000_000, 0);
    assert!(body.len() < 32 * MIB, "within the limit of bytes");
    let (status, answer, took) = send(&gateway, body).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("20000 messages at most"), "{answer}");
    assert_small("a million messages", &gateway, took);
    let (status, answer, _) = send(&gateway, self::body(1, 1)).await;
    assert_eq!(status, 200, "{answer}");
}

/// The most messages that a request may have, and each takes many times its bytes.
#[tokio::test]
async fn the_largest_number_of_messages_costs_a_bounded_amount() {
    let mut scenario = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    scenario.write_all(BRIEF.as_bytes()).unwrap();
    let simulator = Simulator::with(Transport::H2c, scenario.path());
    let gateway = GatewayProcess::start(&simulator, &[]);
    let (status, answer, took) = send(&gateway, body(20_000, 40)).await;
    assert_eq!(status, 200, "{answer}");
    assert_small("20,000 messages of 40 bytes", &gateway, took);
}
