//! Many runs on one sidecar: hundreds parked on their host's tools, dozens streaming. Measures
//! the latency of text and the memory used.
//!
//! `cargo bench --bench load` prints a table. Latency is the time between the bytes of a token
//! passing a relay in front of the simulator and the host reading it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod host;
mod report;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cursor_sim::{Http2, Options, ScenarioSource, Sim};
use serde_json::json;

use host::BenchHost;
use report::{Samples, sized};

const PARKED: usize = 500;
const STREAMING: usize = 50;
/// The number of tokens of a streaming run, and the time between two.
const WORDS: usize = 100;
const EVERY_MS: usize = 20;

/// When a token was first seen on the wire.
type FirstSeenTimes = Arc<Mutex<HashMap<String, Instant>>>;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let seen = FirstSeenTimes::default();
    let (_sim, relay) = runtime.block_on(simulator(Arc::clone(&seen)));
    let mut host = BenchHost::start(relay);
    let empty = rss_kib(&host);

    let streams = sized(STREAMING, 10);
    let alone = streaming(&mut host, 1, "alone", &seen);
    let many = streaming(&mut host, streams, "many", &seen);
    let before = rss_kib(&host);
    let began = Instant::now();
    let runs = sized(PARKED, 50);
    park(&mut host, runs);
    let parking = began.elapsed();
    let parked = rss_kib(&host);
    let all = streaming(&mut host, streams, "all", &seen);
    let under_load = rss_kib(&host);
    // In a process of their own, so that they do not get the memory of runs that have ended.
    let idle = idle_session_kib(relay);
    let evicted = evictions(&mut host);
    assert_eq!(evicted, 0, "all of them still wait");

    println!(
        "{:<52} {:>9} {:>9} {:>9}",
        "delay of words, from wire to host (ms)", "p50", "p99", "max"
    );
    for (what, late) in [
        ("1 run streams".into(), alone),
        (format!("{STREAMING} runs stream"), many),
        (
            format!("{STREAMING} runs stream, {PARKED} wait for their hosts"),
            all,
        ),
    ] {
        let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
        println!(
            "{what:<52} {:>9.2} {:>9.2} {:>9.2}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            figure(
                &format!("delay from wire to host, {what}, {name}"),
                "ms",
                at(share),
            );
        }
    }
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!(
        "{:<52} {:>9.1}",
        "RSS of the sidecar, started (MiB)",
        mib(empty)
    );
    println!(
        "{:<52} {:>9.1}",
        format!("with {PARKED} waiting runs (MiB)"),
        mib(parked)
    );
    println!(
        "{:<52} {:>9.1}",
        format!("and {STREAMING} streaming ones (MiB)"),
        mib(under_load)
    );
    let each = parked.saturating_sub(before) as f64 / runs as f64;
    println!("{:<52} {:>9.1}", "a waiting run (KiB)", each);
    figure("memory of a waiting run", "KiB", each);
    println!("{:<52} {idle:>9.1}", "an idle session (KiB)");
    figure("memory of an idle session", "KiB", idle);
    println!(
        "{:<52} {:>9.2}",
        format!("starting {PARKED} runs up to their calls (s)"),
        parking.as_secs_f64()
    );
}

fn figure(what: &str, unit: &str, value: f64) {
    report::record("Many runs at once", what, unit, &Samples::one(value), &[]);
}

/// Streams `runs` runs at once; returns the latency of each token in milliseconds, sorted.
fn streaming(host: &mut BenchHost, runs: usize, round: &str, seen: &FirstSeenTimes) -> Vec<f64> {
    seen.lock().unwrap().clear();
    for run in 0..runs {
        let name = format!("{round}{run}");
        begin(host, &name, &format!("@streams {name}"));
    }
    let (mut late, mut left) = (Vec::new(), runs);
    while left > 0 {
        let message = host.receive();
        let now = Instant::now();
        if message.get("id").is_some() {
            assert_eq!(message["result"]["stopReason"], "stop", "{message}");
            left -= 1;
        }
        for event in message["params"]["events"].as_array().into_iter().flatten() {
            for word in words(event["text"].as_str().unwrap_or_default()) {
                if let Some(sent) = seen.lock().unwrap().get(&word) {
                    late.push((now - *sent).as_secs_f64() * 1e3);
                }
            }
        }
    }
    assert!(late.len() >= runs * WORDS * 9 / 10, "words were not seen");
    late.sort_by(f64::total_cmp);
    late
}

/// Starts runs and waits until all are parked on this host's tools.
fn park(host: &mut BenchHost, runs: usize) {
    for run in 0..runs {
        begin(host, &format!("parked{run}"), "@parks");
    }
    let mut waiting = 0;
    while waiting < runs {
        let message = host.receive();
        if message.get("id").is_some() {
            assert_eq!(message["result"]["stopReason"], "toolUse", "{message}");
            waiting += 1;
        }
    }
}

/// Returns the memory of a session that has answered a turn and waits for the next.
fn idle_session_kib(backend: SocketAddr) -> f64 {
    let mut host = BenchHost::start(backend);
    let mut open = |range: std::ops::Range<usize>| {
        for session in range {
            let name = format!("idle{session}");
            begin(&mut host, &name, "@answers");
            while host.receive()["id"] != name.as_str() {}
        }
        rss_kib(&host)
    };
    let count = sized(200, 20);
    let before = open(0..count);
    let after = open(count..2 * count);
    after.saturating_sub(before) as f64 / count as f64
}

fn begin(host: &mut BenchHost, session: &str, text: &str) {
    let params = json!({"turnId": session, "sessionId": session, "workspace": "/workspace",
        "systemPrompt": "Be brief.",
        "messages": [{"role": "user", "content": text, "timestamp": 1}],
        "tools": [{"name": "look", "description": "looks", "parameters": {"type": "object"}}],
        "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
    host.send("turn/start", session, &params);
}

/// Returns how many runs the sidecar has evicted.
fn evictions(host: &mut BenchHost) -> u64 {
    host.send("diagnostics/report", "report", &json!({}));
    loop {
        let message = host.receive();
        if message["id"] == "report" {
            let counters = &message["result"]["counters"];
            let evicted = &counters["cursor_provider.parked_run_evicted"];
            return evicted.as_u64().unwrap_or(0);
        }
    }
}

fn rss_kib(host: &BenchHost) -> u64 {
    let path = format!("/proc/{}/status", host.child.id());
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

async fn simulator(seen: FirstSeenTimes) -> (Sim, SocketAddr) {
    let words: String = (0..WORDS)
        .map(|n| format!("{{ text = \"<$USER_TEXT-{n}>\" }}, {{ delay_ms = {EVERY_MS} }},\n"))
        .collect();
    let streams = format!(
        "name = \"streams\"\n[[run]]\nsteps = [ {words} {{ usage = {{}} }}, {{ end = true }} ]\n"
    );
    let parks = r#"name = "parks"
[[run]]
steps = [ { exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = { q = "it" } } }, timeout_ms = 600000 }, { usage = {} }, { end = true } ]
"#;
    let answers = r#"name = "answers"
[[run]]
steps = [ { text = "Done." }, { checkpoint = "auto" }, { usage = {} }, { end = true } ]
"#;
    let source = |label: &str, text: String| ScenarioSource::Toml {
        label: label.into(),
        text,
    };
    let sim = Sim::start(Options {
        scenarios: vec![
            source("streams.toml", streams),
            source("parks.toml", parks.into()),
            source("answers.toml", answers.into()),
        ],
        http2: Http2::Force,
        ..Options::default()
    });
    let sim = sim.await.unwrap();
    let from = move |bytes: &[u8]| note(&seen, bytes);
    let relay = host::relay(sim.address(), |_: &[u8]| {}, from).await;
    (sim, relay)
}

/// Records the tokens in a piece of the wire. A token that is split between pieces is skipped.
fn note(seen: &FirstSeenTimes, bytes: &[u8]) {
    let now = Instant::now();
    for word in words(&String::from_utf8_lossy(bytes)) {
        seen.lock().unwrap().entry(word).or_insert(now);
    }
}

/// Returns the `<…>` tokens in a text.
fn words(text: &str) -> Vec<String> {
    let starts = text.split('<').skip(1);
    starts
        .filter_map(|rest| rest.split_once('>'))
        .map(|(word, _)| word.to_owned())
        .filter(|word| word.starts_with("@streams "))
        .collect()
}
