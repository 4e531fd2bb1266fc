//! What the gateway adds to a request and to a chunk of an answer, and what a waiting session
//! takes. LiteLLM's proxy is measured in the same run, in front of a server that answers at once,
//! if `make bench` could install it.
//!
//! `cargo bench --bench gateway` prints a table. A request is timed from the client to the server
//! after the gateway, a chunk from that server to the client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    // Other benches use all of it.
    dead_code
)]

mod host;
mod report;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::post;
use cursor_sim::{Http2, Options, ScenarioSource, Sim};
use futures_util::{StreamExt as _, stream};
use regex::Regex;
use serde_json::{Value as Json, json};

use report::{Samples, sized};

const STREAMS: usize = 200;
/// The number of chunks of a stream, and the time between two.
const CHUNKS: usize = 40;
const EVERY: Duration = Duration::from_millis(50);
const AREA: &str = "The gateway";
/// How long LiteLLM may take to start.
const START_LIMIT: Duration = Duration::from_secs(120);

/// When a token was at the server. The token of a request is there when the request is.
type ArrivalTimes = Arc<Mutex<HashMap<String, Instant>>>;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ours = runtime.block_on(ours());
    let theirs = runtime.block_on(litellm());
    let direct = runtime.block_on(direct());
    let beside = |figure: fn(&Figures) -> &Samples| {
        let theirs = theirs.as_ref().map(|theirs| figure(theirs).clone());
        [
            ("no gateway", Some(figure(&direct).clone())),
            ("LiteLLM", theirs),
        ]
    };
    row(
        "request to the server",
        "ms",
        &ours.request,
        &beside(|all| &all.request),
    );
    row(
        "chunk to the client",
        "ms",
        &ours.chunk,
        &beside(|all| &all.chunk),
    );
    let many = format!("chunk to the client, {STREAMS} streams at once");
    row(&many, "ms", &ours.many, &beside(|all| &all.many));
    let worst = format!("the same, p99 of all chunks of {STREAMS} streams");
    row(&worst, "ms", &ours.worst, &beside(|all| &all.worst));
    let [_, theirs] = beside(|all| &all.memory);
    row("resident memory after that", "MB", &ours.memory, &[theirs]);
    if let Some(parked) = ours.parked {
        row(
            "memory of a session that waits for a tool",
            "KiB",
            &parked,
            &[],
        );
    }
}

fn row(what: &str, unit: &str, ours: &Samples, beside: &[(&str, Option<Samples>)]) {
    let theirs = beside.iter().filter_map(|(name, theirs)| {
        let median = theirs.as_ref()?.median();
        Some(format!("{name} {median:.3} {unit}"))
    });
    let theirs: Vec<String> = theirs.collect();
    let median = ours.median();
    println!("{what:<56} {median:>9.3} {unit:<4} {}", theirs.join(", "));
    report::record(AREA, what, unit, ours, beside);
}

/// What is measured of a gateway.
struct Figures {
    request: Samples,
    chunk: Samples,
    many: Samples,
    worst: Samples,
    memory: Samples,
    parked: Option<Samples>,
}

/// A gateway, and the tokens that its server has seen.
struct BenchedGateway {
    /// `None` if the server itself is asked.
    child: Option<Child>,
    url: String,
    token: String,
    seen: ArrivalTimes,
    client: reqwest::Client,
}

impl Drop for BenchedGateway {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

async fn ours() -> Figures {
    let seen = ArrivalTimes::default();
    let state = tempfile::tempdir().unwrap();
    let (_sim, relay) = simulator(Arc::clone(&seen)).await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_cursor-sidecar"))
        .arg("gateway")
        .env_clear()
        .env("PI_CURSOR_STATE_DIR", state.path())
        .env("HOME", state.path())
        .env("CURSOR_BACKEND_URL", format!("http://{relay}"))
        .env("CURSOR_API_KEY", "crsr_test")
        .current_dir(state.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let ready: Json = serde_json::from_str(&line).unwrap();
    let token = std::fs::read_to_string(ready["tokenFile"].as_str().unwrap()).unwrap();
    let gateway = BenchedGateway {
        child: Some(child),
        url: ready["url"].as_str().unwrap().to_owned(),
        token: token.trim().to_owned(),
        seen,
        client: reqwest::Client::new(),
    };
    let mut figures = gateway.measure().await;
    let before = gateway.resident_kib();
    let parked = sized(200, 20);
    let parking = (0..parked).map(|number| gateway.read(format!("@parks park-{number}")));
    futures_util::future::join_all(parking).await;
    let each = gateway.resident_kib().saturating_sub(before) as f64 / parked as f64;
    figures.parked = Some(Samples::one(each));
    figures
}

/// Measures LiteLLM's proxy; `None` if it is not installed or does not start.
async fn litellm() -> Option<Figures> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/litellm/bin/litellm");
    if !program.exists() {
        println!("LiteLLM is not installed below target/litellm: its figures are left out");
        return None;
    }
    let seen = ArrivalTimes::default();
    let server = immediate_server(Arc::clone(&seen)).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let model = json!({"model_list": [{"model_name": "composer-2", "litellm_params": {
        "model": "openai/composer-2", "api_base": format!("http://{server}/v1"),
        "api_key": "none"}}]});
    std::fs::write(&config, model.to_string()).unwrap(); // JSON is YAML
    let errors = folder.path().join("errors");
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let child = Command::new(program)
        .args(["--host", "127.0.0.1", "--port", &port, "--config"])
        .arg(&config)
        .env_clear()
        .env("PATH", std::env::var_os("PATH")?)
        .env("HOME", folder.path())
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("LITELLM_TELEMETRY", "False")
        // It listens on loopback only, so it needs no key.
        .env(
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
            "true",
        )
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn()
        .ok()?;
    let gateway = BenchedGateway {
        child: Some(child),
        url: format!("http://127.0.0.1:{port}/v1"),
        token: "none".into(),
        seen,
        client: reqwest::Client::new(),
    };
    let began = Instant::now();
    while gateway
        .client
        .get(format!("{}/models", gateway.url))
        .send()
        .await
        .is_err()
    {
        if began.elapsed() > START_LIMIT {
            let errors = std::fs::read_to_string(&errors).unwrap_or_default();
            let last = errors.lines().rfind(|line| !line.trim().is_empty());
            let last = last.unwrap_or("it printed no error");
            println!("LiteLLM does not start ({last}): its figures are left out");
            return None;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Some(gateway.measure().await)
}

/// Measures the server that LiteLLM is in front of, asked by the client itself.
async fn direct() -> Figures {
    let seen = ArrivalTimes::default();
    let server = immediate_server(Arc::clone(&seen)).await;
    let gateway = BenchedGateway {
        child: None,
        url: format!("http://{server}/v1"),
        token: "none".into(),
        seen,
        client: reqwest::Client::new(),
    };
    gateway.measure().await
}

impl BenchedGateway {
    async fn measure(&self) -> Figures {
        self.read("@streams warm-0".into()).await;
        let mut requests = Vec::new();
        for number in 0..sized(50, 5) {
            let text = format!("@short request-{number}");
            let sent = Instant::now();
            self.read(text.clone()).await;
            let seen = self.seen.lock().unwrap();
            requests.push((seen[&text] - sent).as_secs_f64() * 1e3);
        }
        let alone = self.read("@streams alone-0".into()).await;
        let streams =
            (0..sized(STREAMS, 20)).map(|number| self.read(format!("@streams many-{number}")));
        let many: Vec<f64> = futures_util::future::join_all(streams).await.concat();
        let mut sorted = many.clone();
        sorted.sort_by(f64::total_cmp);
        Figures {
            request: Samples::of(requests),
            chunk: Samples::of(alone),
            worst: Samples::one(sorted[(sorted.len() - 1) * 99 / 100]),
            many: Samples::of(many),
            memory: Samples::one(self.resident_kib() as f64 * 1024.0 / 1e6),
            parked: None,
        }
    }

    /// Sends a request and reads its answer; returns how late each token of it was, in
    /// milliseconds.
    async fn read(&self, text: String) -> Vec<f64> {
        let request = json!({"model": "composer-2", "stream": true,
            "messages": [{"role": "user", "content": text}],
            "tools": [{"type": "function", "function": {"name": "look", "description": "looks",
                "parameters": {"type": "object", "properties": {}}}}]});
        let answer = self.client.post(format!("{}/chat/completions", self.url));
        let answer = answer.bearer_auth(&self.token).json(&request).send().await;
        let answer = answer.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        let (mut pieces, mut late) = (answer.bytes_stream(), Vec::new());
        while let Some(piece) = pieces.next().await {
            let (piece, now) = (piece.unwrap(), Instant::now());
            let seen = self.seen.lock().unwrap();
            for token in tokens(&String::from_utf8_lossy(&piece)) {
                if let Some(sent) = seen.get(&token) {
                    late.push((now - *sent).as_secs_f64() * 1e3);
                }
            }
        }
        late
    }

    fn resident_kib(&self) -> u64 {
        let Some(child) = &self.child else {
            return 0;
        };
        let path = format!("/proc/{}/status", child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

/// Returns the tokens of a text: `@short request-1` of a request, `@streams alone-0 7` of a chunk.
fn tokens(text: &str) -> Vec<String> {
    static TOKEN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"@[a-z]+ [a-z]+-[0-9]+(?: [0-9]+)?").unwrap());
    let found = TOKEN.find_iter(text);
    found.map(|token| token.as_str().to_owned()).collect()
}

fn note(seen: &ArrivalTimes, bytes: &[u8]) {
    let now = Instant::now();
    for token in tokens(&String::from_utf8_lossy(bytes)) {
        seen.lock().unwrap().entry(token).or_insert(now);
    }
}

async fn simulator(seen: ArrivalTimes) -> (Sim, SocketAddr) {
    let every = EVERY.as_millis();
    let chunks: String = (0..CHUNKS)
        .map(|number| format!("{{ text = \"$USER_TEXT {number};\" }}, {{ delay_ms = {every} }},\n"))
        .collect();
    let end = "{ usage = {} }, { end = true } ]";
    let call = r#"{ exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = {} } }, timeout_ms = 600000 }"#;
    let scenario = |name: &str, steps: &str| ScenarioSource::Toml {
        label: format!("{name}.toml"),
        text: format!("name = \"{name}\"\n[[run]]\nsteps = [ {steps} {end}\n"),
    };
    let sim = Sim::start(Options {
        scenarios: vec![
            scenario("streams", &chunks),
            scenario("short", "{ text = \"done\" },"),
            scenario("parks", &format!("{call},")),
        ],
        http2: Http2::Force,
        ..Options::default()
    });
    let sim = sim.await.unwrap();
    let back = Arc::clone(&seen);
    let to = move |bytes: &[u8]| note(&seen, bytes);
    let from = move |bytes: &[u8]| note(&back, bytes);
    let relay = host::relay(sim.address(), to, from).await;
    (sim, relay)
}

/// Starts an OpenAI-compatible server that answers at once, as the simulator does.
async fn immediate_server(seen: ArrivalTimes) -> SocketAddr {
    let answer = async move |request: Bytes| {
        note(&seen, &request);
        let text = String::from_utf8_lossy(&request).into_owned();
        let name = tokens(&text).first().cloned().unwrap_or_default();
        let count = if text.contains("@streams") { CHUNKS } else { 1 };
        let chunks = stream::unfold(0, move |number| {
            let (seen, name) = (Arc::clone(&seen), name.clone());
            async move {
                if number > count {
                    return None;
                }
                if number == count {
                    return Some(("data: [DONE]\n\n".to_owned(), number + 1));
                }
                if number > 0 {
                    tokio::time::sleep(EVERY).await;
                }
                let token = format!("{name} {number}");
                seen.lock().unwrap().insert(token.clone(), Instant::now());
                let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
                    "model": "composer-2", "choices": [{"index": 0, "finish_reason": null,
                    "delta": {"role": "assistant", "content": format!("{token};")}}]});
                Some((format!("data: {chunk}\n\n"), number + 1))
            }
        });
        let body = Body::from_stream(chunks.map(Ok::<_, std::convert::Infallible>));
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(body)
            .unwrap()
    };
    let app = axum::Router::new().route("/v1/chat/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
