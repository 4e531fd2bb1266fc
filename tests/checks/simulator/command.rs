//! `cursor-sidecar sim` as a process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use serde_json::Value;

fn sim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cursor-sidecar"));
    command
        .arg("sim")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn prints_its_url_and_exits_when_stdin_closes() {
    let mut child = sim(&["--tls", "--exit-with-stdin"]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert!(
        ready["url"]
            .as_str()
            .unwrap()
            .starts_with("https://127.0.0.1:")
    );
    assert_eq!(ready["pid"], child.id());
    let ca = ready["ca"].as_str().unwrap().to_owned();
    assert!(
        std::fs::read_to_string(&ca)
            .unwrap()
            .contains("BEGIN CERTIFICATE")
    );
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(!std::path::Path::new(&ca).exists());
}

#[test]
fn a_start_error_is_one_line_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    std::fs::write(
        &path,
        "name = \"bad\"\n[[run]]\nsteps = [{ reset = true }]\n",
    )
    .unwrap();
    let cases = [
        (
            vec!["--scenario", path.to_str().unwrap()],
            format!(
                "{}:3: \"reset\" takes a number or one of no_error, ",
                path.display()
            ),
        ),
        (
            vec!["--listen", "0.0.0.0:0"],
            "0.0.0.0:0 is not a loopback address".to_owned(),
        ),
    ];
    for (arguments, expected) in cases {
        let output = sim(&arguments).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(output.stdout, b"");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(&expected), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
