//! A full disk.

use serde_json::json;
use std::fs;
use std::process::Command;

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::scenario::{CONTEXT, exec, inline, runs};
use test_support::sidecar::SidecarProcess;

#[test]
fn a_write_that_does_not_fit_leaves_the_old_file_as_it_was() {
    let workspace = tempfile::tempdir().unwrap();
    let file = workspace.path().join("precious.txt");
    fs::write(&file, "old\n").unwrap();
    let write = inline(&json!({
        "writeArgs": {
            "path": "$WS/precious.txt",
            "fileText": ("new ".repeat(200_000)).to_string(),
            "toolCallId": "a",
        },
    }));
    let refused = r#"{ writeResult = { error = { error = { "$contains" = "EFBIG" } } } }"#;
    let simulator = runs(&[format!("{CONTEXT}, {}", exec(&write, refused))]);
    // Limits files to 200 KiB; writes beyond that fail with EFBIG because the signal is ignored.
    let mut command = Command::new("/bin/sh");
    let script = "trap '' XFSZ; ulimit -f 200; exec \"$0\"";
    command.args(["-c", script, binary()]);
    let env = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let mut session = RpcSession::on(SidecarProcess::started_by(command, &env), "full");
    session.workspace = workspace.path().to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");
    let left: Vec<_> = fs::read_dir(workspace.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// A user must not sign in for nothing.
#[test]
fn a_login_that_cannot_be_stored_is_not_begun() {
    let home = tempfile::tempdir().unwrap();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" login";
    let output = Command::new("/bin/sh")
        .args(["-c", script, binary()])
        .env_clear()
        .env("HOME", home.path())
        .env("CURSOR_BACKEND_URL", "http://127.0.0.1:9")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(!printed.contains("Sign in here"), "{printed}");
    let problem = String::from_utf8(output.stderr).unwrap();
    assert!(problem.contains("cannot write "), "{problem}");
}
