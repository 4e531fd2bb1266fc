//! What a call of the host's tools costs: the real sidecar on its pipes, the simulator behind
//! a relay that notes when bytes pass.
//!
//! `cargo bench --bench bridge` prints a table. The peer's figures are those it published
//! (pi-cursor-sdk waits a fixed time for each batch of calls); they were not measured here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cursor_sidecar::sim::{Http2, Options, ScenarioSource, Sim};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 20;
const CONVERSATIONS: usize = 15;
const PEER_CALL_MS: f64 = 206.0;
const PEER_ROUNDS_MS: f64 = 4_000.0;

/// When bytes went by, to the simulator and from it.
#[derive(Default)]
struct Passed {
    to: Mutex<Vec<Instant>>,
    from: Mutex<Vec<Instant>>,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let passed = Arc::new(Passed::default());
    let (_sim, relay) = runtime.block_on(simulator(Arc::clone(&passed)));
    let mut host = Host::start(&format!("http://{relay}"));
    let (mut to_host, mut to_wire, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for conversation in 0..CONVERSATIONS {
        let taken = host.converse(conversation, &passed);
        // The first one opens connections and fetches a token.
        if conversation > 0 {
            to_host.extend(taken.to_host);
            to_wire.extend(taken.to_wire);
            whole.push(taken.whole);
        }
    }
    println!("{:<56} {:>10} {:>12}", "", "ours (ms)", "peer (ms) *");
    let row = |what: &str, ours: f64, peer: Option<f64>| {
        let peer = peer.map_or("-".into(), |peer| format!("{peer:.0}"));
        println!("{what:<56} {ours:>10.2} {peer:>12}");
    };
    row(
        "MCP exec on the wire to tool call at the host, p50",
        median(to_host),
        Some(PEER_CALL_MS),
    );
    row(
        "tool result from the host to exec reply on the wire, p50",
        median(to_wire),
        None,
    );
    row(
        "20 tool rounds one after the other, end to end, median",
        median(whole),
        Some(PEER_ROUNDS_MS),
    );
    println!("* as published by pi-cursor-sdk, not measured here");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn simulator(passed: Arc<Passed>) -> (Sim, SocketAddr) {
    let call = r#"{ exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = { q = "it" } } }, expect = { mcpResult = { success = {} } } }, "#;
    let text = format!(
        "name = \"rounds\"\n[[run]]\nsteps = [ {}{{ text = \"done\" }}, {{ usage = {{}} }}, {{ end = true }} ]\n",
        call.repeat(ROUNDS)
    );
    let label = "rounds.toml".into();
    let sim = Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml { label, text }],
        http2: Http2::Force,
        ..Options::default()
    });
    let sim = sim.await.unwrap();
    let address = sim.address();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(address).await.unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            let (there, back) = (Arc::clone(&passed), Arc::clone(&passed));
            tokio::spawn(pass(near_in, far_out, move || note(&there.to)));
            tokio::spawn(pass(far_in, near_out, move || note(&back.from)));
        }
    });
    (sim, relay)
}

fn note(times: &Mutex<Vec<Instant>>) {
    times.lock().unwrap().push(Instant::now());
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    note: impl Fn(),
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        note();
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

struct Host {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _state: tempfile::TempDir,
}

/// What one conversation took, in milliseconds.
struct Taken {
    to_host: Vec<f64>,
    to_wire: Vec<f64>,
    whole: f64,
}

impl Host {
    fn start(url: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_cursor-sidecar"))
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", state.path())
            .env("CURSOR_BACKEND_URL", url)
            .env("CURSOR_API_KEY", "crsr_test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut host = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            _state: state,
        };
        let params = json!({"protocolVersion": 1, "host": {"name": "bench"}});
        host.say("initialize", "i", params);
        host.hear();
        host
    }

    fn say(&mut self, method: &str, id: &str, params: Json) {
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.stdin.write_all(frame.as_bytes()).unwrap();
        self.stdin.flush().unwrap();
    }

    fn hear(&mut self) -> Json {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "gone");
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.stdout.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Says one thing and answers every call at once.
    fn converse(&mut self, session: usize, passed: &Passed) -> Taken {
        let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        let mut messages = vec![json!({"role": "user", "content": "go", "timestamp": 1})];
        let mut taken = Taken {
            to_host: Vec::new(),
            to_wire: Vec::new(),
            whole: 0.0,
        };
        let begun = Instant::now();
        for turn in 0.. {
            let id = format!("{session}-{turn}");
            let asked = Instant::now();
            self.say("turn/start", &id, json!({"turnId": id, "sessionId": format!("s{session}"),
                "workspace": "/workspace", "systemPrompt": "Be brief.", "messages": messages,
                "tools": [{"name": "look", "description": "looks", "parameters": {"type": "object"}}],
                "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}}));
            let mut call = Json::Null;
            let result = loop {
                let message = self.hear();
                let events = message["params"]["events"].as_array();
                let called = events.and_then(|events| {
                    events
                        .iter()
                        .find(|event| event["type"] == "toolCall")
                        .cloned()
                });
                if let Some(called) = called {
                    let heard = Instant::now();
                    let from = passed.from.lock().unwrap();
                    let sent = from.iter().rfind(|at| **at < heard);
                    taken.to_host.push(ms(*sent.unwrap(), heard));
                    call = called;
                }
                if message["id"] == id.as_str() {
                    break message["result"].clone();
                }
            };
            if turn > 0 {
                let to = passed.to.lock().unwrap();
                let replied = to.iter().find(|at| **at > asked);
                taken.to_wire.push(ms(asked, *replied.unwrap()));
            }
            if result["stopReason"] != "toolUse" {
                assert_eq!(
                    (result["stopReason"].as_str(), turn),
                    (Some("stop"), ROUNDS)
                );
                break;
            }
            messages.push(json!({"role": "assistant", "timestamp": 2 * turn + 2, "stopReason": "toolUse",
                "content": [{"type": "toolCall", "id": call["id"], "name": "look", "arguments": {}}]}));
            messages.push(
                json!({"role": "toolResult", "timestamp": 2 * turn + 3, "toolCallId": call["id"],
                "toolName": "look", "content": [{"type": "text", "text": "42"}], "isError": false}),
            );
        }
        taken.whole = ms(begun, Instant::now());
        taken
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
