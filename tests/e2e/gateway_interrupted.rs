//! Turns of OpenAI clients that end early: silence, disconnects, lost runs, signals.

use std::sync::Arc;
use std::time::Instant;

use cursor_sidecar::config::Config;
use cursor_sidecar::gateway;
use cursor_sim::{Http2, Options, ScenarioSource, Sim};
use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};

use test_support::debug_log::{fields, logged};
use test_support::gateway::{ChatClient, ChatResponse, GatewayProcess, function};
use test_support::in_process::{END, opened};
use test_support::scenario::{Steps, playing, script};
use test_support::simulator::{Simulator, Transport};

/// A server that expects the cancel and then sends a checkpoint.
const CANCELLED: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }, { checkpoint = "auto" }, { expect_cancel = true }"#;

/// Returns what the stream sends up to and including this text.
async fn received_until(answer: &mut reqwest::Response, words: &str) -> String {
    let mut received = String::new();
    while !received.contains(words) {
        let chunk = answer.chunk().await.unwrap().expect("more to come");
        received.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    received
}

/// The gateway inside this process, where the clock can be paused.
async fn inside(steps: &str, env: &'static [(&str, &str)]) -> (Sim, gateway::Gateway) {
    let text = format!("name = \"inside\"\n[[run]]\nsteps = [ {steps} ]\n");
    let label = "inside.toml".into();
    let sim = Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml { label, text }],
        http2: Http2::Force,
        ..Options::default()
    });
    let sim = sim.await.unwrap();
    let url = sim.url();
    let own = [
        ("CURSOR_BACKEND_URL", url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        ("CURSOR_SIDECAR_GATEWAY_TOKEN", "a-token-of-my-own"),
    ];
    let env = own.iter().chain(env);
    let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let config = Arc::new(Config::load(&env.collect(), None));
    let gateway = gateway::Gateway::open(0, config).await.unwrap();
    (sim, gateway)
}

/// A server that sends nothing: the client receives a comment every ten seconds to keep the stream
/// alive, and the watchdog ends the turn as it does for any other host.
#[tokio::test]
async fn a_silent_server_ends_the_stream_and_comments_keep_it_alive() {
    let cases: [(&str, &str, &str, usize); 2] = [
        // No output yet: the run is retried once, then cancelled.
        ("", "1", "in 2 of 2 attempts", 23),
        // Text was shown, so the run is not retried.
        (
            r#"{ text = "Half. " },"#,
            "3",
            "Part of the answer is displayed",
            11,
        ),
    ];
    for (says, retries, ends, comments) in cases {
        let steps = Steps::new()
            .then(says)
            .step(json!({"delay_ms": 100000000, "timeout_ms": 200000000}))
            .text("Never.")
            .build();
        let env: &'static [(&str, &str)] = match retries {
            "1" => &[("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "1")],
            _ => &[],
        };
        let (sim, gateway) = inside(&steps, env).await;
        let mut chat = ChatClient::new(&gateway.url(), gateway.token().secret.expose_secret());
        // Fetch what is requested only once before the clock is paused.
        assert_eq!(chat.get("/v1/models").await.0, 200);
        chat.user("go");
        tokio::time::pause();
        let started = tokio::time::Instant::now();
        let reply = ChatResponse::read(chat.send(&chat.body()).await).await;
        let took = started.elapsed().as_secs();
        tokio::time::resume();
        assert_eq!(
            (reply.status, &reply.error["code"]),
            (200, &json!("upstream_timeout"))
        );
        let message = reply.error["message"].as_str().unwrap();
        assert!(
            message.contains("idle timeout after 120000ms") && message.contains(ends),
            "{message}"
        );
        assert!(!reply.text.contains("Never"));
        assert_eq!(
            (reply.finish.as_str(), reply.last.as_str()),
            ("", "data: [DONE]")
        );
        let budget = 120
            * (sim
                .recording()
                .frames()
                .iter()
                .filter(|f| f.kind == "runRequest")
                .count() as u64);
        assert!(
            (budget..budget + 15).contains(&took),
            "{took} s of {budget}"
        );
        assert!(
            (comments..=comments + 2).contains(&reply.comments),
            "{}",
            reply.comments
        );
        gateway.close().await;
    }
}

/// Checks the same with the real binary and the shortest timeout.
#[tokio::test]
async fn the_watchdog_follows_the_users_setting() {
    let steps = r#"{ delay_ms = 600000, timeout_ms = 700000 }, { text = "Never." }"#;
    let simulator = playing(Transport::H2c, steps);
    let env = [
        ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1"),
        ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "0"),
    ];
    let gateway = GatewayProcess::start(&simulator, &env);
    let mut chat = gateway.chat();
    let reply = chat.prompt("go").await;
    assert_eq!(
        (reply.status, &reply.error["code"]),
        (504, &json!("upstream_timeout")),
        "{reply:?}"
    );
    let message = reply.error["message"].as_str().unwrap();
    assert!(message.contains("idle timeout after 1000ms"), "{message}");
}

async fn ended(simulator: &Simulator, runs: usize) {
    let started = Instant::now();
    while simulator.recording().await.verdicts().len() < runs {
        assert!(started.elapsed().as_secs() < 60, "it does not come");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_run() {
    let first = Steps::new().text("Half. ").then(CANCELLED).build();
    let second = Steps::new().text("Whole.").then(END).build();
    let simulator = script(&[&first, &second]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.user("go");
    let mut answer = chat.send(&chat.body()).await;
    received_until(&mut answer, "Half. ").await;
    drop(answer);
    ended(&simulator, 1).await;
    let recording = simulator.recording().await;
    recording.assert_played(&["cancelled by client"]);
}

/// Checks the same for a client that does not stream.
#[tokio::test]
async fn a_disconnected_client_ends_its_run() {
    let steps = Steps::new().text("Half. ").then(CANCELLED).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.stream = false;
    chat.user("go");
    let body = chat.body();
    tokio::select! {
        _ = chat.send(&body) => panic!("there is no answer"),
        () = async { while simulator.recording().await.client("runRequest").is_empty() {} } => {}
    }
    ended(&simulator, 1).await;
    let recording = simulator.recording().await;
    recording.assert_played(&["cancelled by client"]);
}

/// Turns beyond the limit are rejected until one of the active ones has ended.
#[tokio::test]
async fn turns_over_the_limit_are_refused_with_a_retry_hint() {
    let steps = r#"{ text = "Half. " }, { expect_cancel = true, timeout_ms = 600000 }"#;
    let simulator = playing(Transport::H2c, steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.user("go");
    let body = chat.body();
    let begin = async |_| {
        let mut answer = chat.send(&body).await;
        received_until(&mut answer, "Half. ").await;
        answer
    };
    let mut under_way = futures_util::future::join_all((0..256).map(begin)).await;
    let answer = chat.send(&body).await;
    assert_eq!(answer.headers()["retry-after"], "1");
    let reply = ChatResponse::read(answer).await;
    assert_eq!(
        (reply.status, &reply.error["code"]),
        (503, &json!("overloaded"))
    );
    drop(under_way.pop());
    while chat.send(&body).await.status() != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A run that is lost while the client executes is rebuilt from the history; its log events and
/// metrics have the gateway's names.
#[tokio::test]
async fn a_lost_run_is_rebuilt_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let parked = folder.path().join("parked");
    let first = Steps::new()
        .then(opened("look", "a"))
        .step(json!({"expect_file": parked.display().to_string()}))
        .step(json!({"cut": true}))
        .build();
    let second = Steps::new().text("It says 42.").then(END).build();
    let simulator = script(&[&first, &second]);
    let gateway = GatewayProcess::start(&simulator, &[("PI_CURSOR_PROVIDER_DEBUG", "1")]);
    let mut chat = gateway.chat();
    chat.tools = vec![function("look", &["asked"])];
    let words = "canary words about herons";
    let reply = chat.prompt(words).await;
    std::fs::write(&parked, "").unwrap();
    ended(&simulator, 1).await;
    let died = "bridge.died_mid_pause_no_checkpoint";
    test_support::wait::until(|| (!logged(gateway.folder(), died).is_empty()).then_some(()));
    chat.result(&reply.calls[0], "42");
    let reply = chat.turn().await;
    assert_eq!(
        (reply.finish.as_str(), reply.text.as_str()),
        ("stop", "It says 42.")
    );
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    let user_text =
        &requests[1]["runRequest"]["action"]["userMessageAction"]["userMessage"]["text"];
    assert!(
        user_text.as_str().unwrap().contains("Result:\n42\n"),
        "{user_text}"
    );
    let event = "chat.rebuild_full_history";
    let line = test_support::wait::until(|| logged(gateway.folder(), event).pop());
    let mut reply = fields(&line);
    // A client without a session id gets a new key each time.
    let prefix = reply["bridgeKeyPrefix"].take();
    let prefix = prefix.as_str().unwrap();
    assert!(prefix.len() == 8 && prefix.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let wanted = json!({"bridgeKeyPrefix": null, "modelId": "composer-2",
        "rebuildReason": "no_checkpoint", "completedTurnCount": 0, "inFlightTurnHasImages": false,
        "toolResultCount": 1, "sentinelInjectionDetected": false});
    assert_eq!(reply, wanted, "these and no others");
    assert!(logged(gateway.folder(), "native.rebuild_full_history").is_empty());
    let (status, metrics) = chat.get("/metrics").await;
    assert_eq!(status, 200);
    let counted =
        r#"cursor_provider_rebuild_full_history{reason="no_checkpoint",model="composer-2"} 1"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    assert!(metrics.contains("# TYPE cursor_provider_rebuild_full_history counter"));
    // Neither the prompt nor the token appears in the logs or on stderr.
    let logs = std::fs::read_dir(gateway.folder().join("debug")).unwrap();
    let logs = logs.map(|log| log.unwrap().path());
    for file in logs.chain([gateway.folder().join("stderr")]) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains(words) && !text.contains(&gateway.token),
            "{}",
            file.display()
        );
    }
}

/// On a signal, open streams end with an error event, parked runs are cancelled, and the process
/// exits within a bounded time.
#[tokio::test]
async fn a_signal_leaves_no_process() {
    let speaks = Steps::new().text("Half. ").then(CANCELLED).build();
    let waits = format!("{}, {CANCELLED}", opened("look", "look"));
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let text = format!(
        "name = \"both\"\nattempts = \"all\"\n[[run]]\nsteps = [ {waits} ]\n[[run]]\nsteps = [ {speaks} ]\n"
    );
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    let simulator = Simulator::with(Transport::H2c, file.path());
    let mut gateway = GatewayProcess::start(&simulator, &[]);
    let mut waiting = gateway.chat();
    waiting.tools = vec![function("look", &["asked"])];
    assert_eq!(waiting.prompt("look").await.finish, "tool_calls");
    let mut chat = gateway.chat();
    chat.user("go");
    let mut answer = chat.send(&chat.body()).await;
    let mut received = received_until(&mut answer, "Half. ").await;
    let started = Instant::now();
    let end = tokio::task::spawn_blocking(move || gateway.end());
    received.push_str(&answer.text().await.unwrap());
    let mut reply = ChatResponse::default();
    reply.stream(&received);
    assert_eq!(
        (&reply.error["code"], reply.last.as_str()),
        (&json!("shutting_down"), "data: [DONE]")
    );
    assert!(end.await.unwrap().success());
    assert!(started.elapsed().as_secs() < 15, "{:?}", started.elapsed());
    ended(&simulator, 2).await;
    let recording = simulator.recording().await;
    recording.assert_played(&["cancelled by client", "cancelled by client"]);
    let cancels: Vec<&Json> = recording.client("conversationAction.cancelAction");
    assert_eq!(cancels.len(), 2, "both were cancelled");
}
