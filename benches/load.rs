//! Many runs at once: hundreds that wait for their hosts' tools, dozens that stream, on the
//! sidecars that a busy machine would have. How late are words, and what does it take?
//!
//! `cargo bench --bench load` prints a table. A word is late by the time between its bytes
//! passing a relay in front of the simulator and the host reading it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cursor_sidecar::sim::{Http2, Options, ScenarioSource, Sim};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PARKED: usize = 500;
const STREAMING: usize = 50;
/// A sidecar lets 64 runs wait at most.
const SIDECARS: usize = 8;
/// Words of a streaming run, and the time between two.
const WORDS: usize = 100;
const EVERY_MS: usize = 20;

/// When a word was first seen on the wire.
type Seen = Arc<Mutex<HashMap<String, Instant>>>;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let seen = Seen::default();
    let (_sim, relay) = runtime.block_on(simulator(Arc::clone(&seen)));
    let mut hosts: Vec<Host> = (0..SIDECARS).map(|_| Host::start(relay)).collect();
    let empty: u64 = hosts.iter().map(Host::rss_kib).sum();

    let alone = streaming(&mut hosts, 1, "alone", &seen);
    let many = streaming(&mut hosts, STREAMING, "many", &seen);
    let before: u64 = hosts.iter().map(Host::rss_kib).sum();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (at, host) in hosts.iter_mut().enumerate() {
            scope.spawn(move || host.park((at..PARKED).step_by(SIDECARS)));
        }
    });
    let parking = began.elapsed();
    let parked: u64 = hosts.iter().map(Host::rss_kib).sum();
    let all = streaming(&mut hosts, STREAMING, "all", &seen);
    let under_load: u64 = hosts.iter().map(Host::rss_kib).sum();

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
    }
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!(
        "{:<52} {:>9.1}",
        format!("RSS of {SIDECARS} sidecars, started (MiB)"),
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
    let each = parked.saturating_sub(before) as f64 / PARKED as f64;
    println!("{:<52} {:>9.1}", "a waiting run (KiB)", each);
    println!(
        "{:<52} {:>9.2}",
        format!("starting {PARKED} runs up to their calls (s)"),
        parking.as_secs_f64()
    );
}

/// Streams so many runs at once, spread over the sidecars; how late each word was, sorted.
fn streaming(hosts: &mut [Host], runs: usize, round: &str, seen: &Seen) -> Vec<f64> {
    seen.lock().unwrap().clear();
    let mut late: Vec<f64> = std::thread::scope(|scope| {
        let told: Vec<_> = hosts
            .iter_mut()
            .enumerate()
            .map(|(at, host)| {
                let names = (at..runs).step_by(SIDECARS);
                let names: Vec<String> = names.map(|n| format!("{round}{n}")).collect();
                scope.spawn(move || host.stream(&names, seen))
            })
            .collect();
        told.into_iter()
            .flat_map(|told| told.join().unwrap())
            .collect()
    });
    assert!(late.len() >= runs * WORDS * 9 / 10, "words were not seen");
    late.sort_by(f64::total_cmp);
    late
}

async fn simulator(seen: Seen) -> (Sim, SocketAddr) {
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
    let source = |label: &str, text: String| ScenarioSource::Toml {
        label: label.into(),
        text,
    };
    let sim = Sim::start(Options {
        scenarios: vec![
            source("streams.toml", streams),
            source("parks.toml", parks.into()),
        ],
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
            let (mut near_in, mut near_out) = near.into_split();
            let (mut far_in, mut far_out) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_in, &mut far_out).await });
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = far_in.read(&mut buffer).await {
                    note(&seen, &buffer[..length]);
                    if near_out.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (sim, relay)
}

/// Notes the words in a piece of the wire. One that is cut in two is not measured.
fn note(seen: &Seen, bytes: &[u8]) {
    let now = Instant::now();
    for word in words(&String::from_utf8_lossy(bytes)) {
        seen.lock().unwrap().entry(word).or_insert(now);
    }
}

/// `<words>` in a text.
fn words(text: &str) -> Vec<String> {
    let starts = text.split('<').skip(1);
    starts
        .filter_map(|rest| rest.split_once('>'))
        .map(|(word, _)| word.to_owned())
        .filter(|word| word.starts_with("@streams "))
        .collect()
}

struct Host {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _state: tempfile::TempDir,
}

impl Host {
    fn start(relay: SocketAddr) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_cursor-sidecar"))
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", state.path())
            .env("CURSOR_BACKEND_URL", format!("http://{relay}"))
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
        host.say("initialize", "i", &params);
        host.hear();
        host
    }

    fn rss_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    fn say(&mut self, method: &str, id: &str, params: &Json) {
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

    fn begin(&mut self, session: &str, text: &str) {
        let params = json!({"turnId": session, "sessionId": session, "workspace": "/workspace",
            "systemPrompt": "Be brief.",
            "messages": [{"role": "user", "content": text, "timestamp": 1}],
            "tools": [{"name": "look", "description": "looks", "parameters": {"type": "object"}}],
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
        self.say("turn/start", session, &params);
    }

    /// Starts runs that wait for this host's tools.
    fn park(&mut self, runs: impl Iterator<Item = usize>) {
        let mut waiting = 0;
        for run in runs {
            self.begin(&format!("parked{run}"), "@parks");
            waiting += 1;
        }
        while waiting > 0 {
            let message = self.hear();
            if message.get("id").is_some() {
                assert_eq!(message["result"]["stopReason"], "toolUse", "{message}");
                waiting -= 1;
            }
        }
    }

    /// Takes these turns at once; how late each word was, in milliseconds.
    fn stream(&mut self, names: &[String], seen: &Seen) -> Vec<f64> {
        for name in names {
            self.begin(name, &format!("@streams {name}"));
        }
        let (mut late, mut left) = (Vec::new(), names.len());
        while left > 0 {
            let message = self.hear();
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
        late
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
