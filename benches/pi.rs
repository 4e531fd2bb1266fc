//! What a host notices: startup, the first delta, many deltas, an idle process. Compared with
//! Node and the official client, in the same run.
//!
//! `cargo bench --bench pi` prints a table. Only ratios are comparable between machines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod report;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value as Json, json};

use report::{Samples, sized};

const DELTAS: u32 = 20_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_cursor-sidecar")
}

fn node() -> PathBuf {
    root().join("tests/official/node_modules/.bin/node")
}

fn main() {
    let (ours, floor, theirs) = start();
    row(
        "spawn to `initialize` answered",
        "ms",
        &ours,
        &[
            ("a static program that answers", floor),
            ("an empty Node script", Some(theirs)),
        ],
    );
    row("idle resident memory", "MB", &resident(), &[]);
    let [ours, none, empty, starting] = pi_start();
    row(
        "CPU of `pi --list-models`",
        "ms",
        &ours,
        &[
            ("pi without extensions", Some(none)),
            ("pi with an empty extension", Some(empty)),
            ("pi with one that only starts `cat`", Some(starting)),
        ],
    );
    let (first, rate) = words();
    row(
        "send to first delta, warm",
        "ms",
        &first.0,
        &[("the official client", Some(first.1))],
    );
    row(
        "deltas into Node",
        "thousands/s",
        &rate.0,
        &[("the official client", Some(rate.1))],
    );
}

fn row(what: &str, unit: &str, ours: &Samples, beside: &[(&str, Option<Samples>)]) {
    let median = ours.median();
    println!("{what:<36} {median:>10.1} {unit}");
    for (name, theirs) in beside {
        if let Some(theirs) = theirs {
            println!("{:<36} {:>10.1} {unit}  {name}", "", theirs.median());
        }
    }
    report::record("Start, latency and memory", what, unit, ours, beside);
}

/// Starts a program, sends it a request, and returns it when it has answered.
fn start_program(program: &Path) -> Child {
    let mut child = Command::new(program)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let params = json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "bench", "mode": "print"}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
    let stdin = child.stdin.as_mut().unwrap();
    write!(stdin, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = [0; 64];
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut answer).unwrap();
    child
}

/// Milliseconds until our first answer, until that of the least program, and until Node runs a
/// script.
fn start() -> (Samples, Option<Samples>, Samples) {
    let [mut ours, mut floor, mut theirs] = [const { Vec::new() }; 3];
    let folder = tempfile::tempdir().unwrap();
    let least = least_program(folder.path());
    for _ in 0..sized(41, 3) {
        ours.push(until_answer(Path::new(binary())));
        floor.extend(least.as_deref().map(until_answer));
        let started = Instant::now();
        let output = Command::new(node()).args(["-p", "1"]).output().unwrap();
        assert!(output.status.success());
        theirs.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    let floor = least.map(|_| Samples::of(floor));
    (Samples::of(ours), floor, Samples::of(theirs))
}

/// Builds a static program that reads a request and answers it, and does nothing else: the least
/// that a start takes. `None` if it cannot be built here.
fn least_program(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("least.rs"), folder.join("least"));
    let text = "use std::io::{Read, Write};
        fn main() {
            let read = std::io::stdin().read(&mut [0; 4096]).unwrap();
            assert!(read > 0);
            std::io::stdout().write_all(&[b'x'; 64]).unwrap();
            std::io::stdout().flush().unwrap();
        }";
    std::fs::write(&source, text).unwrap();
    let built = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args([
            "-O",
            "-C",
            "target-feature=+crt-static",
            "-C",
            "panic=abort",
            "-o",
        ])
        .args([&program, &source])
        .status();
    built
        .is_ok_and(|status| status.success())
        .then_some(program)
}

/// Returns the milliseconds from the start of a program to its first answer.
fn until_answer(program: &Path) -> f64 {
    let started = Instant::now();
    let mut child = start_program(program);
    let elapsed = started.elapsed().as_secs_f64() * 1000.0;
    child.kill().unwrap();
    child.wait().unwrap();
    elapsed
}

fn resident() -> Samples {
    let mut child = start_program(Path::new(binary()));
    let output = Command::new("ps")
        .args(["-o", "rss=", "-p", &child.id().to_string()])
        .output()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Samples::one(text.trim().parse::<f64>().unwrap() * 1024.0 / 1e6)
}

/// CPU of a pi start in milliseconds: with our extension, with none, with one that does nothing, and
/// with one that only starts a program, which is the least that any extension with a sidecar takes.
/// The sidecar's CPU is not included, because pi does not wait for it to end.
fn pi_start() -> [Samples; 4] {
    let home = tempfile::tempdir().unwrap();
    let pi = root().join("tests/pi/node_modules/pi-087/dist/bundle/cli.js");
    let run = |extension: &str| {
        let output = Command::new("bash")
            .args([
                "-c",
                "TIMEFORMAT='%U %S'; time \"$@\" >/dev/null 2>&1",
                "time",
            ])
            .arg(node())
            .arg(&pi)
            .args(["--no-extensions", "--list-models", "cursor"])
            .args(extension.split_whitespace())
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("PI_CODING_AGENT_DIR", home.path().join("agent"))
            .env("PI_OFFLINE", "1")
            .env("PI_CURSOR_SIDECAR", binary())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let seconds = text.split_whitespace().map(|number| number.parse::<f64>());
        seconds.map(Result::unwrap).sum::<f64>() * 1000.0
    };
    let file = home.path().join("empty.ts");
    std::fs::write(&file, "export default () => {};\n").unwrap();
    let starting = home.path().join("starting.ts");
    let text = "import { spawn } from \"node:child_process\";
        export default () => {
            spawn(\"cat\", [], { stdio: \"pipe\" }).stdin.end();
        };\n";
    std::fs::write(&starting, text).unwrap();
    let extension = |path: &Path| format!("-e {}", path.to_str().unwrap());
    let kinds = [
        extension(&root().join("js-shim")),
        String::new(),
        extension(&file),
        extension(&starting),
    ];
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=sized(9, 1) {
        for (kind, times) in kinds.iter().zip(&mut times) {
            let time = run(kind);
            // Skip the first round, because it fills pi's caches.
            if round > 0 {
                times.push(time);
            }
        }
    }
    times.map(Samples::of)
}

/// Measures the time to the first delta of a short answer, and the rate of a long one.
fn words() -> ((Samples, Samples), (Samples, Samples)) {
    let (first, _) = words_of(1);
    let (_, rate) = words_of(DELTAS);
    (first, rate)
}

/// Returns ours and the official client's time to the first delta, and deltas in a millisecond, of
/// an answer of this many deltas.
fn words_of(deltas: u32) -> ((Samples, Samples), (Samples, Samples)) {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(
        file,
        "name = \"bench\"\n[[run]]\nsteps = [ {{ deltas = {{ text = \"tok \", count = {deltas} }} }}, {{ checkpoint = \"auto\" }}, {{ usage = {{}} }}, {{ end = true }} ]\n"
    )
    .unwrap();
    let mut simulator = Command::new(binary())
        .args(["sim", "--exit-with-stdin", "--http2", "force", "--scenario"])
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(simulator.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let ready: Json = serde_json::from_str(&line).unwrap();
    let measure = |script: &str, stdin: &str| {
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(node())
            .arg(root().join(script))
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("CURSOR_API_KEY", "crsr_bench")
            .env("CURSOR_BACKEND_URL", ready["url"].as_str().unwrap())
            .env("PI_CURSOR_SIDECAR", binary())
            .env("NODE_NO_WARNINGS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        let report: Json = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["deltas"], deltas, "{report}");
        let number = |name: &str| report[name].as_f64().unwrap();
        (
            number("sendToFirstDeltaMs"),
            f64::from(deltas) / number("wallMs"),
        )
    };
    let spec = json!({"text": "go", "warmText": "go", "deadlineMs": 110_000}).to_string();
    let mut ours = Vec::new();
    for _ in 0..sized(5, 1) {
        ours.push(measure("benches/client.mts", ""));
    }
    let theirs = measure("tests/official/bench.mjs", &spec);
    simulator.kill().unwrap();
    simulator.wait().unwrap();
    let (first, rate): (Vec<f64>, Vec<f64>) = ours.into_iter().unzip();
    (
        (Samples::of(first), Samples::one(theirs.0)),
        (Samples::of(rate), Samples::one(theirs.1)),
    )
}
