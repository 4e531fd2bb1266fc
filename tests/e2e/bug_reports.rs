//! What `doctor` reports of the last error, and the file it writes for a bug report.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::scenario::{Steps, playing};
use test_support::simulator::Transport;

/// Chosen so that no pattern of the scrubber matches them.
const PROMPT: &str = "canary prompt about pelicans";
const ANSWER: &str = "canary answer about ostriches";
const FILE: &str = "canary file about badgers";
const QUOTED: &str = "canary error about walruses";
const KEY: &str = "plainkey-canary-otters";

fn doctor(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(binary())
        .args(["doctor", "--offline"])
        .args(arguments)
        .env_clear()
        .env("HOME", folder)
        .env("CURSOR_API_KEY", KEY)
        .env("PI_CURSOR_STATE_DIR", folder.join("state"))
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn the_last_error_is_reported_and_a_bundle_contains_no_text_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.txt"), FILE).unwrap();
    let page = String::from_utf8(doctor(folder, &[]).stdout).unwrap();
    assert!(!page.contains("last error"), "{page}");
    let steps = Steps::new()
        .context()
        .text(ANSWER)
        .step(json!({"exec": {"readArgs": {"path": "$WS/a.txt", "toolCallId": "r"}}}))
        .step(json!({"end": {"code": "permission_denied", "message": QUOTED}}))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let state = folder.join("state");
    let env = [
        ("CURSOR_API_KEY", KEY),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.workspace = folder.to_str().unwrap().into();
    let failed = session.prompt(PROMPT);
    assert_eq!(failed.stop, "error", "{failed:?}");
    assert!(failed.error.contains(QUOTED), "{failed:?}");
    session.host.call("shutdown", json!({}));
    drop(session);

    let page = String::from_utf8(doctor(folder, &[]).stdout).unwrap();
    let line = page.lines().find(|line| line.contains("last error"));
    let line = line.unwrap_or_else(|| panic!("{page}"));
    assert!(
        line.contains(" ago, in rpc: ") && line.contains(QUOTED),
        "{line}"
    );

    let written = doctor(folder, &["--bundle", "report.json"]);
    assert!(written.status.success(), "{written:?}");
    let path = folder.join("report.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for canary in [PROMPT, ANSWER, FILE, QUOTED, KEY, folder.to_str().unwrap()] {
        assert!(!text.contains(canary), "{canary}: {text}");
    }
    let report: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(report["doctor"]["version"], env!("CARGO_PKG_VERSION"));
    for part in ["findings", "settings"] {
        let items = report["doctor"][part].as_array().unwrap();
        assert!(!items.is_empty(), "{part}");
    }
    assert!(report["doctor"]["wireDrift"].is_object());
    assert!(report["lastError"].as_str().unwrap().contains("in rpc"));
    let events = report["log"].as_array().unwrap();
    let logged = |name: &str| events.iter().any(|line| line["event"] == name);
    assert!(logged("turn.started") && logged("turn.answered"), "{text}");
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = doctor(folder, &["--bundle", "report.json"]);
    assert!(!again.status.success(), "another report is not overwritten");
    let default = doctor(folder, &["--bundle"]);
    let named = String::from_utf8(default.stdout).unwrap();
    assert!(named.contains("cursor-sidecar-report-"), "{named}");
}

/// A pipe gets the text as the model wrote it; only a terminal gets formatted text.
#[test]
fn a_pipe_gets_the_answer_without_formatting() {
    const MARKDOWN: &str = "# Title\n- **bold** and `code`\n";
    let steps = Steps::new().text(MARKDOWN).end().build();
    let simulator = playing(Transport::H2c, &steps);
    let ask = |stdout: std::process::Stdio| {
        let home = tempfile::tempdir().unwrap();
        Command::new(binary())
            .args(["ask", "go"])
            .env_clear()
            .env("HOME", home.path())
            .env("CURSOR_API_KEY", KEY)
            .env("CURSOR_BACKEND_URL", &simulator.url)
            .current_dir(home.path())
            .stdout(stdout)
            .output()
            .unwrap()
    };
    let printed = ask(std::process::Stdio::piped());
    let text = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(text, format!("{MARKDOWN}\n"), "{:?}", printed.stderr);
    // `ask | head` ends quietly when the reader is gone.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = ask(writer.into());
    let stderr = String::from_utf8(closed.stderr).unwrap();
    assert!(closed.status.success(), "{stderr}");
    assert!(
        !stderr.contains("pipe") && !stderr.contains("panic"),
        "{stderr}"
    );
}
