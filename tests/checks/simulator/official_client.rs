//! The official client with errors, faults, blobs and states across turns. `tests/whole` has its
//! successful conversations.
//!
//! Needs the driver with its packages (`npm ci` in `tests/official`, which `make test` runs).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use cursor_sim::{Http2, Options, RecordingHandle, ScenarioSource, Sim, VerdictOutcome};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

/// Concurrent client processes; few, because they are heavy and some scenarios have time limits.
const MAX_CLIENTS: usize = 2;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The driver's folder and its Node.
fn driver() -> (PathBuf, PathBuf) {
    let folder = root().join("tests/official");
    let node = folder.join("node_modules/.bin/node");
    assert!(
        node.exists(),
        "the official client is not installed: run `make test`, or `npm ci` in tests/official"
    );
    (folder, node)
}

/// How the official client reaches the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientTransport {
    TlsHttp2,
    PlainHttp2,
    PlainHttp1,
}

/// One conversation and its expected results.
struct ClientCase {
    /// The scenario file; empty for the built-in responder.
    scenario: &'static str,
    sends: Value,
    agent: Value,
    /// Status and text of each send.
    expected: &'static [(&'static str, &'static str)],
    outcomes: &'static [VerdictOutcome],
}

use VerdictOutcome::{CancelledByClient, Completed};

fn case(
    scenario: &'static str,
    expected: &'static [(&'static str, &'static str)],
    outcomes: &'static [VerdictOutcome],
) -> ClientCase {
    let sends = expected.iter().map(|_| json!({ "text": "go" })).collect();
    ClientCase {
        scenario,
        sends,
        agent: json!({}),
        expected,
        outcomes,
    }
}

/// Conversations that `tests/whole` does not have.
fn conversations() -> Vec<ClientCase> {
    let mut cancel_shell = case(
        "cancel-shell",
        &[("cancelled", "cancel me "), ("finished", "Hello, world!")],
        &[CancelledByClient, Completed],
    );
    cancel_shell.sends[0]["cancelOn"] = json!({ "text": "cancel me" });
    vec![
        case(
            "usage",
            &[("finished", "counted"), ("finished", "not counted")],
            &[Completed, Completed],
        ),
        case(
            "kv",
            &[("finished", "kv done"), ("finished", "still there")],
            &[Completed, Completed],
        ),
        case(
            "drop-no-checkpoint",
            &[("finished", "half whole")],
            &[Completed, Completed],
        ),
        case(
            "unknown",
            &[("finished", "still here"), ("finished", "unchanged")],
            &[Completed, Completed],
        ),
        case(
            "unknown-query",
            &[("finished", "after the unknown query")],
            &[Completed],
        ),
        cancel_shell,
    ]
}

fn failure_cases() -> Vec<ClientCase> {
    let recovers = |scenario| {
        case(
            scenario,
            &[("finished", "half whole")],
            &[Completed, Completed],
        )
    };
    vec![
        case("error-unauthenticated", &[("error", "")], &[Completed]),
        case("error-permission-denied", &[("error", "")], &[Completed]),
        case(
            "error-after-text",
            &[("error", "so far so good")],
            &[Completed],
        ),
        case("error-rate-limited", &[("error", "")], &[Completed]),
        case("error-user-aborted", &[("error", "")], &[Completed]),
        case(
            "error-retryable",
            &[("finished", "second attempt")],
            &[Completed, Completed],
        ),
        case("http-401", &[("error", "")], &[Completed]),
        case(
            "http-503",
            &[("finished", "recovered")],
            &[Completed, Completed],
        ),
        recovers("fault-reset-cancel"),
        recovers("fault-reset-internal"),
        recovers("fault-goaway"),
        recovers("fault-half-close"),
        recovers("fault-no-turn-ended"),
        recovers("fault-truncate"),
        recovers("fault-garbage"),
        recovers("fault-oversized"),
        recovers("fault-cut"),
        case(
            "fault-drip",
            &[("finished", "slow but whole")],
            &[Completed],
        ),
    ]
}

/// Runs one case; returns what is wrong with it.
async fn play(
    case: &ClientCase,
    transport: ClientTransport,
    driver: &Path,
    node: &Path,
) -> Result<(), String> {
    let scenarios = match case.scenario {
        "" => Vec::new(),
        name => {
            let file = root().join(format!("tests/scenarios/{name}.toml"));
            vec![ScenarioSource::Path(file)]
        }
    };
    let home = tempfile::tempdir().unwrap();
    let options = Options {
        tls: transport == ClientTransport::TlsHttp2,
        http2: match transport {
            ClientTransport::PlainHttp2 => Http2::Force,
            _ => Http2::Auto,
        },
        scenarios,
        ..Options::default()
    };
    let sim = Sim::start(options).await.unwrap();
    let workspace = home.path().join("ws");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(workspace.join("README.md"), "# Demo\n").unwrap();

    let mut command = tokio::process::Command::new(node);
    command
        .arg(driver.join("drive.mjs"))
        .current_dir(&workspace)
        .env_remove("CURSOR_SDK_LOCAL_MODEL_CATALOG_JSON")
        .env("HOME", home.path())
        .env("CURSOR_BACKEND_URL", sim.url())
        .env("CURSOR_API_KEY", "crsr_official")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if let Some(pem) = sim.ca_pem() {
        let path = home.path().join("ca.pem");
        std::fs::write(&path, pem).unwrap();
        command.env("NODE_EXTRA_CA_CERTS", path);
    }
    let mut child = command.spawn().unwrap();
    let spec = json!({ "agent": case.agent, "sends": case.sends, "deadlineMs": 60_000 });
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(spec.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    check_results(case, transport, &report, &sim.recording()).await
}

async fn check_results(
    case: &ClientCase,
    transport: ClientTransport,
    report: &Value,
    recording: &RecordingHandle,
) -> Result<(), String> {
    let got: Vec<(&str, &str)> = report["sends"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|send| {
            let text = |name: &str| send[name].as_str().unwrap_or_default();
            (text("status"), text("text"))
        })
        .collect();
    let expected = case.outcomes.len();
    let verdicts = tokio::time::timeout(
        std::time::Duration::from_secs(30),
        recording.wait_for(|recording| {
            let verdicts = recording.verdicts();
            (verdicts.len() >= expected).then_some(verdicts)
        }),
    )
    .await
    .unwrap_or_else(|_| recording.verdicts());
    let outcomes: Vec<VerdictOutcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
    if got != case.expected || outcomes != case.outcomes {
        return Err(format!("{got:?}, verdicts {verdicts:?}, report {report}"));
    }
    // The client must have used the intended transport.
    let (version, tls, path) = match transport {
        ClientTransport::TlsHttp2 => ("2", true, "/agent.v1.AgentService/Run"),
        ClientTransport::PlainHttp2 => ("2", false, "/agent.v1.AgentService/Run"),
        ClientTransport::PlainHttp1 => ("1.1", false, "/agent.v1.AgentService/RunSSE"),
    };
    let runs: Vec<_> = recording
        .requests()
        .into_iter()
        .filter(|request| request.path.starts_with("/agent.v1.AgentService/Run"))
        .map(|request| (request.version, request.tls, request.path))
        .collect();
    if runs.is_empty()
        || runs
            .iter()
            .any(|run| *run != (version, tls, path.to_owned()))
    {
        return Err(format!("unexpected transport of runs: {runs:?}"));
    }
    Ok(())
}

async fn play_all(cases: Vec<ClientCase>, transport: ClientTransport) {
    let (driver, node) = driver();
    let slots = Arc::new(Semaphore::new(MAX_CLIENTS));
    let mut running = tokio::task::JoinSet::new();
    for case in cases {
        let (slots, driver, node) = (Arc::clone(&slots), driver.clone(), node.clone());
        running.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            let result = play(&case, transport, &driver, &node).await;
            result.map_err(|reason| format!("{} ({transport:?}): {reason}", case.scenario))
        });
    }
    let failures: Vec<String> = running
        .join_all()
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_recovers_from_faults_over_tls() {
    let mut cases = conversations();
    cases.extend(failure_cases());
    play_all(cases, ClientTransport::TlsHttp2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_recovers_from_faults_over_http1() {
    let mut cases = conversations();
    cases.extend(failure_cases());
    play_all(cases, ClientTransport::PlainHttp1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_recovers_from_a_lost_connection_over_plain_http2() {
    let mut cases = failure_cases();
    cases.retain(|case| ["fault-cut", "fault-goaway"].contains(&case.scenario));
    play_all(cases, ClientTransport::PlainHttp2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_with_the_built_in_responder() {
    let mut chat = case(
        "",
        &[
            (
                "finished",
                "You said: \"my name is Ada\". I am a simulated assistant: ask me to read a file, to run a command, or to use one of your tools by its name.",
            ),
            (
                "finished",
                "Let me have a look. README.md begins like this:\n\n# Demo",
            ),
            (
                "finished",
                "Running `echo hi`. `echo hi` ended with code 0:\n\nhi",
            ),
            ("finished", "Calling add. The tool add answered: sum=5"),
            ("finished", "You first said: my name is Ada"),
        ],
        &[Completed; 5],
    );
    let messages = [
        "my name is Ada",
        "please look around",
        "run `echo hi`",
        "add 2 and 3",
        "what did I say first?",
    ];
    chat.sends = messages
        .iter()
        .map(|text| json!({ "text": text }))
        .collect();
    chat.agent = json!({ "customTools": ["add"] });
    play_all(vec![chat], ClientTransport::TlsHttp2).await;
}
