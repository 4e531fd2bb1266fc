//! Times the real binary and the official client on the same simulator: how long each takes for
//! the same requests, from the first to the last.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use cursor_sim::{Http2, Options, ScenarioSource, Sim};
use serde_json::json;

/// The client that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    Ours,
    Official,
}

/// Milliseconds between a command before these steps and one after them; `None` if the client
/// is not installed. The commands create the marker files, so nothing else is timed.
pub(crate) fn took(
    runtime: &tokio::runtime::Runtime,
    client: Client,
    workspace: &Path,
    steps: &[String],
) -> Option<f64> {
    let home = tempfile::tempdir().unwrap();
    let mark = |name: &str| {
        let file = home.path().join(name);
        let step = format!(
            r#"{{ exec = {{ shellArgs = {{ command = "touch '{}'", workingDirectory = "$WS", toolCallId = "{name}", skipApproval = true, parsingResult = {{}} }} }}, expect = {{ shellResult = {{ success = {{}} }} }} }}"#,
            file.display()
        );
        (file, step)
    };
    let ((begin, first), (end, last)) = (mark("begin"), mark("end"));
    let text = format!(
        "name = \"bench\"\n[[run]]\nsteps = [ {{ exec = {{ requestContextArgs = {{}} }} }}, {first}, {}, {last}, {{ text = \"done\" }}, {{ usage = {{}} }}, {{ end = true }} ]\n",
        steps.join(", ")
    );
    let label = "bench.toml".into();
    let sim = runtime.block_on(Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml { label, text }],
        http2: Http2::Force,
        ..Options::default()
    }));
    let sim = sim.unwrap();
    let mut command = command(client, workspace)?;
    let mut child = command
        .current_dir(workspace)
        .env_clear()
        .env("PATH", std::env::var_os("PATH")?)
        .env("HOME", home.path())
        .env("CURSOR_API_KEY", "crsr_test")
        .env("CURSOR_BACKEND_URL", sim.url())
        .env("NODE_NO_WARNINGS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let spec =
        json!({"agent": {"cwd": workspace}, "sends": [{"text": "go"}], "deadlineMs": 600_000});
    // Only the official client reads it.
    let _ = write!(child.stdin.take().unwrap(), "{spec}");
    child.wait().unwrap();
    let verdicts = runtime.block_on(sim.recording().wait_for(|recording| {
        let verdicts = recording.verdicts();
        (!verdicts.is_empty()).then_some(verdicts)
    }));
    assert!(
        format!("{verdicts:?}").contains("Completed"),
        "{verdicts:?}"
    );
    let at = |file: &Path| -> SystemTime { file.metadata().unwrap().modified().unwrap() };
    let took = at(&end).duration_since(at(&begin)).unwrap();
    Some(took.as_secs_f64() * 1000.0)
}

fn command(client: Client, workspace: &Path) -> Option<Command> {
    let official = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/official");
    match client {
        Client::Ours => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cursor-sidecar"));
            command.args(["ask", "--tools", "--workspace"]);
            command.arg(workspace).arg("go");
            Some(command)
        }
        Client::Official => {
            let node = official.join("node_modules/.bin/node");
            node.exists().then(|| {
                let mut command = Command::new(node);
                command.arg(official.join("drive.mjs"));
                command
            })
        }
    }
}
