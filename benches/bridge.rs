//! The cost of a host tool call: the real sidecar on its pipes, connected to the simulator
//! through a relay that records when bytes pass.
//!
//! `cargo bench --bench bridge` prints a table. The peer's figures are the published ones
//! (pi-cursor-sdk waits a fixed time for each batch of calls); they were not measured here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod host;
mod report;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cursor_sim::{Http2, Options, ScenarioSource, Sim};
use serde_json::{Value as Json, json};

use host::BenchHost;
use report::{Samples, sized};

const ROUNDS: usize = 20;
const PEER_CALL_MS: f64 = 206.0;
const PEER_ROUNDS_MS: f64 = 4_000.0;

/// When bytes passed, to the simulator and from it.
#[derive(Default)]
struct BenchTotals {
    to: Mutex<Vec<Instant>>,
    from: Mutex<Vec<Instant>>,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let passed = Arc::new(BenchTotals::default());
    let (_sim, relay) = runtime.block_on(simulator(Arc::clone(&passed)));
    let mut host = BenchHost::start(relay);
    let (mut to_host, mut to_wire, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for conversation in 0..sized(15, 3) {
        let times = converse(&mut host, conversation, &passed);
        // Skip the first one, because it opens connections and fetches a token.
        if conversation > 0 {
            to_host.extend(times.to_host);
            to_wire.extend(times.to_wire);
            whole.push(times.whole);
        }
    }
    println!("{:<60} {:>10} {:>12}", "", "ours (ms)", "peer (ms) *");
    let row = |what: &str, ours: Vec<f64>, peer: Option<f64>| {
        let ours = Samples::of(ours);
        let shown = peer.map_or("-".into(), |peer| format!("{peer:.0}"));
        println!("{what:<60} {:>10.2} {shown:>12}", ours.median());
        let peer = ("pi-cursor-sdk, as published", peer.map(Samples::one));
        report::record("Host tools", what, "ms", &ours, &[peer]);
    };
    row(
        "MCP exec on the wire to tool call at the host",
        to_host,
        Some(PEER_CALL_MS),
    );
    row(
        "tool result from the host to exec reply on the wire",
        to_wire,
        None,
    );
    row(
        "20 tool rounds one after the other, end to end",
        whole,
        Some(PEER_ROUNDS_MS),
    );
    println!("* as published by pi-cursor-sdk, not measured here");
}

async fn simulator(passed: Arc<BenchTotals>) -> (Sim, SocketAddr) {
    // As Cursor does, each call is announced before it is requested.
    let call = |round| {
        let args = format!(
            r#"{{ name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c{round}", args = {{ q = "it" }} }}"#
        );
        format!(
            r#"{{ update = {{ toolCallStarted = {{ callId = "c{round}", toolCall = {{ mcpToolCall = {{ args = {args} }} }} }} }} }}, {{ exec = {{ mcpArgs = {args} }}, expect = {{ mcpResult = {{ success = {{}} }} }} }}, "#
        )
    };
    let text = format!(
        "name = \"rounds\"\n[[run]]\nsteps = [ {}{{ text = \"done\" }}, {{ usage = {{}} }}, {{ end = true }} ]\n",
        (0..ROUNDS).map(call).collect::<String>()
    );
    let label = "rounds.toml".into();
    let sim = Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml { label, text }],
        http2: Http2::Force,
        ..Options::default()
    });
    let sim = sim.await.unwrap();
    let (there, back) = (Arc::clone(&passed), passed);
    let to = move |bytes: &[u8]| note(bytes, &there.to);
    let from = move |bytes: &[u8]| note(bytes, &back.from);
    let relay = host::relay(sim.address(), to, from).await;
    (sim, relay)
}

/// Records the time of a message; HTTP/2 control frames are ignored.
fn note(bytes: &[u8], times: &Mutex<Vec<Instant>>) {
    if has_data(bytes) {
        times.lock().unwrap().push(Instant::now());
    }
}

/// Whether a piece of HTTP/2 contains a DATA frame that is not empty.
fn has_data(bytes: &[u8]) -> bool {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut rest = bytes.strip_prefix(preface).unwrap_or(bytes);
    while let [a, b, c, kind, ..] = *rest {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind == 0 && length > 0 {
            return true;
        }
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}

/// The times of one conversation, in milliseconds.
struct ConversationTimes {
    to_host: Vec<f64>,
    to_wire: Vec<f64>,
    whole: f64,
}

/// Sends one user message and answers every tool call at once.
fn converse(host: &mut BenchHost, session: usize, passed: &BenchTotals) -> ConversationTimes {
    let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
    let mut messages = vec![json!({"role": "user", "content": "go", "timestamp": 1})];
    let mut times = ConversationTimes {
        to_host: Vec::new(),
        to_wire: Vec::new(),
        whole: 0.0,
    };
    let begun = Instant::now();
    for turn in 0.. {
        let id = format!("{session}-{turn}");
        let asked = Instant::now();
        host.send(
            "turn/start",
            &id,
            &json!({"turnId": id, "sessionId": format!("s{session}"),
            "workspace": "/workspace", "systemPrompt": "Be brief.", "messages": messages,
            "tools": [{"name": "look", "description": "looks", "parameters": {"type": "object"}}],
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}}),
        );
        let mut call = Json::Null;
        let result = loop {
            let message = host.receive();
            let events = message["params"]["events"].as_array();
            let called = events.and_then(|events| {
                events
                    .iter()
                    .find(|event| event["type"] == "toolCall")
                    .cloned()
            });
            if let Some(called) = called {
                let received_at = Instant::now();
                let from = passed.from.lock().unwrap();
                let sent = from.iter().rfind(|at| **at < received_at);
                times.to_host.push(ms(*sent.unwrap(), received_at));
                call = called;
            }
            if message["id"] == id.as_str() {
                break message["result"].clone();
            }
        };
        if turn > 0 {
            let to = passed.to.lock().unwrap();
            let replied = to.iter().find(|at| **at > asked);
            times.to_wire.push(ms(asked, *replied.unwrap()));
        }
        if result["stopReason"] != "toolUse" {
            assert_eq!(
                (result["stopReason"].as_str(), turn),
                (Some("stop"), ROUNDS)
            );
            break;
        }
        messages.push(
            json!({"role": "assistant", "timestamp": 2 * turn + 2, "stopReason": "toolUse",
            "content": [{"type": "toolCall", "id": call["id"], "name": "look", "arguments": {}}]}),
        );
        messages.push(
            json!({"role": "toolResult", "timestamp": 2 * turn + 3, "toolCallId": call["id"],
            "toolName": "look", "content": [{"type": "text", "text": "42"}], "isError": false}),
        );
    }
    times.whole = ms(begun, Instant::now());
    times
}
