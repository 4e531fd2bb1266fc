//! Compares us with the official client, on the same simulator, in the same run.
//!
//! `cargo bench --bench wire` prints a table and fails if a target is missed. Only ratios are
//! checked, because absolute numbers depend on the machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod report;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::run::{
    Action, Backend, BlobKey, MemoryBlobs, Model, RetriesUsed, RetryPolicy, RunEvent, RunSpec,
    Timing, ToolGates, UserMessage, start,
};
use agent_tools::rejection::Rejector;
use cursor_client::ClientOptions;
use cursor_proto::agent::v1::{
    AgentServerMessage, InteractionUpdate, TextDeltaUpdate, agent_server_message,
    interaction_update,
};
use cursor_proto::envelope::{self, Decoder, Encoding};
use cursor_sim::{Options, ScenarioSource, Sim};
use prost::Message as _;
use report::{Samples, sized};
use serde_json::{Value as Json, json};

const DELTAS: u32 = 5_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_cursor-sidecar")
}

/// One line of the table.
struct Comparison {
    what: &'static str,
    ours: Samples,
    theirs: Option<Samples>,
    unit: &'static str,
    /// The target: how many times smaller than theirs ours should be.
    aim: Option<f64>,
}

impl Comparison {
    fn ratio(&self) -> Option<f64> {
        let theirs = self.theirs.as_ref()?;
        Some(theirs.median() / self.ours.median())
    }

    fn missed(&self) -> bool {
        matches!((self.ratio(), self.aim), (Some(ratio), Some(aim)) if ratio < aim)
    }
}

fn main() {
    let rows = [decoding(), delta(), cold_start(), memory()];
    println!(
        "{:<44} {:>12} {:>12} {:>9} {:>8}",
        "", "ours", "official", "ratio", "aim"
    );
    for row in &rows {
        let number =
            |value: Option<&Samples>| value.map_or("-".into(), |v| format!("{:.1}", v.median()));
        println!(
            "{:<44} {:>12} {:>12} {:>9} {:>8} {}",
            format!("{} ({})", row.what, row.unit),
            number(Some(&row.ours)),
            number(row.theirs.as_ref()),
            row.ratio()
                .map_or("-".into(), |ratio| format!("{ratio:.1}x")),
            row.aim.map_or("-".into(), |aim| format!(">={aim}x")),
            if row.missed() { "MISSED" } else { "" },
        );
        let theirs = ("the official client", row.theirs.clone());
        report::record("The wire", row.what, row.unit, &row.ours, &[theirs]);
    }
    let is_full = sized(1, 0) == 1;
    if is_full && rows.iter().any(Comparison::missed) {
        std::process::exit(1);
    }
}

/// Decodes envelopes and messages from memory: nanoseconds per frame.
fn decoding() -> Comparison {
    let frames = sized(1_000_000, 100_000);
    let message = AgentServerMessage {
        message: Some(agent_server_message::Message::InteractionUpdate(
            InteractionUpdate {
                message: Some(interaction_update::Message::TextDelta(TextDeltaUpdate {
                    text: "some words ".into(),
                    is_server_notice: false,
                })),
                message_started_at_ms: None,
            },
        )),
        ttft_breakdown: None,
    };
    let frame = envelope::encode_message(&message);
    let wire = frame.repeat(frames);
    let times = (0..sized(5, 1))
        .map(|_| {
            let started = Instant::now();
            let mut decoder = Decoder::default();
            let mut decoded = 0;
            for piece in wire.chunks(16 * 1024) {
                decoder.push(piece);
                while let Some(envelope) = decoder.next_envelope().unwrap() {
                    let payload = envelope.into_payload(Encoding::Identity).unwrap();
                    decoded += usize::from(AgentServerMessage::decode(payload).is_ok());
                }
            }
            assert_eq!(decoded, frames);
            started.elapsed().as_nanos() as f64 / frames as f64
        })
        .collect();
    let nanoseconds: Samples = Samples::of(times);
    println!(
        "frames decoded per second: {:.1} million",
        1e3 / nanoseconds.median()
    );
    Comparison {
        what: "decoding one frame",
        ours: nanoseconds,
        theirs: None,
        unit: "ns",
        aim: None,
    }
}

/// A simulator in its own process, used by both clients.
struct SimulatorProcess {
    child: Child,
    url: String,
}

impl SimulatorProcess {
    fn start(scenario: &Path) -> Self {
        let mut child = Command::new(binary())
            .args(["sim", "--exit-with-stdin", "--http2", "force", "--scenario"])
            .arg(scenario)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Json = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: ready["url"].as_str().unwrap().to_owned(),
        }
    }
}

impl Drop for SimulatorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scenario(steps: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(file, "name = \"bench\"\n[[run]]\nsteps = [ {steps} ]\n").unwrap();
    file
}

/// From the socket to the event: microseconds of wall time per text delta.
fn delta() -> Comparison {
    let file = scenario(&format!(
        "{{ deltas = {{ text = \"tok \", count = {DELTAS} }} }}, {{ usage = {{}} }}, {{ end = true }}"
    ));
    let simulator = SimulatorProcess::start(file.path());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let ours = runtime.block_on(async {
        let mut options = ClientOptions {
            api_key: Some("crsr_bench".into()),
            ..ClientOptions::default()
        };
        options.endpoints.backend = Some(simulator.url.clone());
        let backend = Backend::new(&options).unwrap();
        let mut times = Vec::new();
        for _ in 0..=sized(5, 1) {
            times.push(stream(&backend).await);
        }
        times.remove(0); // the first one warms up
        Samples::of(times)
    });
    let theirs = {
        let spec = json!({"text": "go", "warmText": "go", "deadlineMs": 110_000});
        let report = official("bench.mjs", &simulator.url, &spec);
        assert_eq!(report["deltas"], DELTAS, "{report}");
        report["wallMs"].as_f64().unwrap() * 1000.0 / f64::from(DELTAS)
    };
    Comparison {
        what: "one text delta, socket to event",
        ours,
        theirs: Some(Samples::one(theirs)),
        unit: "µs",
        aim: Some(20.0),
    }
}

async fn stream(backend: &Backend) -> f64 {
    let spec = RunSpec {
        conversation_id: "agent-bench".into(),
        state: None,
        action: Action::UserMessage(UserMessage {
            text: "go".into(),
            ..UserMessage::default()
        }),
        model: Model {
            id: "composer-2".into(),
            ..Model::default()
        },
        offers: Vec::new(),
        blob_key: BlobKey::random().unwrap(),
        gates: ToolGates::default(),
        shown: String::new(),
        spent: RetriesUsed::default(),
        delay: Duration::ZERO,
        effects: Default::default(),
    };
    let mut handle = start(
        backend.clone(),
        spec,
        Arc::new(Rejector::default()),
        Arc::new(MemoryBlobs::default()),
        RetryPolicy::default(),
        Timing::default(),
    );
    let mut first = None;
    let mut last = Instant::now();
    let mut deltas = 0;
    while let Some(event) = handle.events.recv().await {
        if let RunEvent::Text(_) = event {
            last = Instant::now();
            first.get_or_insert(last);
            deltas += 1;
        }
    }
    assert_eq!(deltas, DELTAS);
    (last - first.unwrap()).as_micros() as f64 / f64::from(DELTAS)
}

/// From spawn to the run request at the server: milliseconds.
fn cold_start() -> Comparison {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let file = scenario("{ text = \"hi\" }, { usage = {} }, { end = true }");
    let until_request = |spawn: &dyn Fn(&str) -> (Child, Option<BenchHome>)| {
        runtime.block_on(async {
            let sim = Sim::start(Options {
                scenarios: vec![ScenarioSource::Path(file.path().to_owned())],
                ..Options::default()
            })
            .await
            .unwrap();
            let started = Instant::now();
            let (mut child, _home) = spawn(&sim.url());
            let recording = sim.recording();
            let look = recording.wait_for(|recording| {
                recording
                    .frames()
                    .iter()
                    .any(|frame| frame.kind == "runRequest")
                    .then_some(())
            });
            tokio::time::timeout(Duration::from_secs(30), look)
                .await
                .expect("a run request");
            let elapsed = started.elapsed().as_secs_f64() * 1000.0;
            child.wait().unwrap();
            elapsed
        })
    };
    let ours = |url: &str| {
        let child = Command::new(binary())
            .args(["ask", "go"])
            .env_clear()
            .env("CURSOR_BACKEND_URL", url)
            .env("CURSOR_API_KEY", "crsr_bench")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        (child, None)
    };
    let spec = json!({"agent": {}, "sends": [{"text": "go"}]});
    let theirs = |url: &str| {
        let (child, home) = spawn_official("drive.mjs", url, &spec, Stdio::null());
        (child, Some(home))
    };
    Comparison {
        what: "cold start to run request",
        ours: Samples::of((0..sized(5, 1)).map(|_| until_request(&ours)).collect()),
        theirs: Some(Samples::of(
            (0..sized(3, 1)).map(|_| until_request(&theirs)).collect(),
        )),
        unit: "ms",
        aim: Some(10.0),
    }
}

/// Memory after a run's text was received: megabytes.
fn memory() -> Comparison {
    let steps = "{ deltas = { text = \"tok \", count = 1000 } }, { text = \"END\" }, \
                 { expect_cancel = true }";
    let file = scenario(steps);
    let simulator = SimulatorProcess::start(file.path());
    let mut child = Command::new(binary())
        .args(["ask", "--json", "go"])
        .env_clear()
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .env("CURSOR_API_KEY", "crsr_bench")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reached = lines.map_while(Result::ok).any(|line| line.contains("END"));
    assert!(reached);
    let ours = resident(child.id());
    child.kill().unwrap();
    child.wait().unwrap();

    let file =
        scenario("{ deltas = { text = \"tok \", count = 1000 } }, { usage = {} }, { end = true }");
    let simulator = SimulatorProcess::start(file.path());
    let spec = json!({"agent": {}, "sends": [{"text": "go"}]});
    let report = official("drive.mjs", &simulator.url, &spec);
    Comparison {
        what: "resident memory after 1000 deltas",
        ours: Samples::one(ours),
        theirs: report["rssMb"].as_f64().map(Samples::one),
        unit: "MB",
        aim: Some(5.0),
    }
}

fn resident(pid: u32) -> f64 {
    let output = Command::new("ps")
        .args(["-o", "rss=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let kilobytes: f64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kilobytes * 1024.0 / 1e6
}

/// Runs a script with the official client and returns its report.
fn official(script: &str, url: &str, spec: &Json) -> Json {
    let (child, _home) = spawn_official(script, url, spec, Stdio::piped());
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn spawn_official(script: &str, url: &str, spec: &Json, stdout: Stdio) -> (Child, BenchHome) {
    let home = BenchHome(tempfile::tempdir().unwrap().keep());
    let folder = root().join("tests/official");
    let mut child = Command::new(folder.join("node_modules/.bin/node"))
        .arg(folder.join(script))
        .current_dir(&home.0)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", &home.0)
        .env("CURSOR_API_KEY", "crsr_bench")
        .env("CURSOR_BACKEND_URL", url)
        .env("NODE_NO_WARNINGS", "1")
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .expect("the official client is not installed: run `npm ci` in tests/official");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(spec.to_string().as_bytes())
        .unwrap();
    (child, home)
}

/// A temporary home, removed on drop; the official client may write to it until then.
struct BenchHome(PathBuf);

impl Drop for BenchHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
