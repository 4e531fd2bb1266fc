//! The examples for JSON-RPC hosts, each run against the simulator.

use std::process::Command;

use test_support::scenario::{CONTEXT, Steps, exec, runs};
use test_support::{binary, root};

/// Runs an example with its interpreter, which `make test` installs.
fn converses(interpreter: &std::path::Path, example: &str) {
    let steps = [
        CONTEXT.to_owned(),
        Steps::new().text("Let me look. ").build(),
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "a" } }"#,
            r#"{ readResult = { success = { content = "one\n" } } }"#,
        ),
        Steps::new().text("It is short.").build(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("a.txt"), "one\n").unwrap();
    let output = Command::new(interpreter)
        .arg(root().join("examples").join(example))
        .arg("What is in a.txt?")
        .arg(binary())
        .env("HOME", home.path())
        .env("PI_CURSOR_STATE_DIR", home.path().join("state"))
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .env("CURSOR_API_KEY", "crsr_test")
        .current_dir(home.path())
        .env("PWD", home.path())
        .output()
        .unwrap_or_else(|error| panic!("{} is needed: {error}", interpreter.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answer, "Let me look. It is short.\n", "{stderr}");
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn the_python_host_reads_a_file_for_the_model() {
    converses("python3".as_ref(), "host.py");
}

#[test]
fn the_typescript_host_reads_a_file_for_the_model() {
    converses(
        &root().join("tests/official/node_modules/.bin/node"),
        "host.ts",
    );
}

#[test]
fn the_lua_host_reads_a_file_for_the_model() {
    converses("lua5.4".as_ref(), "host.lua");
}
