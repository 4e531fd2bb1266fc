//! How a turn grows with the workspace and with the history, as ratios within one run.
//!
//! `cargo bench --bench scale` prints a table: a git repository of 60,000 files in 20,000 folders
//! beside an empty folder, and 10,000 messages of history beside 10.

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

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cursor_sim::{Http2, Options, Sim};
use serde_json::{Value as Json, json};

use host::BenchHost;
use report::Samples;

const TURNS: usize = 15;
/// A user reads the answer before the next prompt.
const PAUSE: Duration = Duration::from_millis(300);

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sim = runtime.block_on(Sim::start(Options {
        http2: Http2::Force,
        ..Options::default()
    }));
    let sim = sim.unwrap();
    let empty = tempfile::tempdir().unwrap();
    let large = tempfile::tempdir().unwrap();
    fill(large.path());

    let first_delta = |workspace: &Path| {
        let mut host = BenchHost::start(sim.address());
        let mut messages = Vec::new();
        let times = (0..TURNS).map(|_| {
            std::thread::sleep(PAUSE);
            turn(&mut host, workspace, &mut messages)
        });
        Samples::of(times.collect())
    };
    let (small, big) = (first_delta(empty.path()), first_delta(large.path()));
    row(
        "send to first delta, git repository of 60,000 files in 20,000 folders",
        &big,
        ("an empty folder", small),
    );

    let processor = |count: usize| {
        let mut host = BenchHost::start(sim.address());
        let mut messages = history(count);
        turn(&mut host, empty.path(), &mut messages); // sends the whole history
        let before = cpu_ms(&host);
        for _ in 0..TURNS {
            turn(&mut host, empty.path(), &mut messages);
        }
        Samples::one((cpu_ms(&host) - before) / TURNS as f64)
    };
    let few = processor(10);
    let text = Json::Array(history(10_000)).to_string();
    let parse = || {
        let began = Instant::now();
        let parsed: Json = serde_json::from_str(&text).unwrap();
        let parsing = began.elapsed().as_secs_f64() * 1e3;
        assert_eq!(parsed.as_array().map(Vec::len), Some(10_000));
        parsing
    };
    let parsing = Samples::of((0..TURNS).map(|_| parse()).collect());
    let short = |samples: &Samples| ("10 messages", samples.clone());
    row(
        "CPU of a turn, 1,000 messages of history",
        &processor(1_000),
        short(&few),
    );
    let many = processor(10_000);
    row("CPU of a turn, 10,000 messages", &many, short(&few));
    row(
        "CPU of a turn, 10,000 messages",
        &many,
        ("parsing their JSON once", parsing),
    );
}

fn row(what: &str, ours: &Samples, (name, beside): (&str, Samples)) {
    let (ms, other) = (ours.median(), beside.median());
    println!("{what:<72} {ms:>9.2} ms  {name} {other:.2} ms");
    report::record(
        "Large workspaces, long sessions",
        what,
        "ms",
        ours,
        &[(name, Some(beside))],
    );
}

/// Takes a turn and returns the milliseconds to its first text.
fn turn(host: &mut BenchHost, workspace: &Path, messages: &mut Vec<Json>) -> f64 {
    let number = messages.len();
    messages.push(json!({"role": "user", "content": "hello", "timestamp": number}));
    let id = format!("t{number}");
    let params = json!({"turnId": id, "sessionId": "s", "workspace": workspace,
        "systemPrompt": "Be brief.", "messages": messages, "tools": [],
        "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
    let began = Instant::now();
    host.send("turn/start", &id, &params);
    let (mut first, mut answer) = (None, String::new());
    loop {
        let message = host.receive();
        for event in message["params"]["events"].as_array().into_iter().flatten() {
            if event["type"] == "text" {
                first.get_or_insert_with(|| began.elapsed());
                answer.push_str(event["text"].as_str().unwrap());
            }
        }
        if message["id"] == id.as_str() {
            assert_eq!(message["result"]["stopReason"], "stop", "{message}");
            break;
        }
    }
    let content = json!([{"type": "text", "text": answer}]);
    messages.push(json!({"role": "assistant", "content": content, "timestamp": number + 1}));
    first.unwrap().as_secs_f64() * 1e3
}

fn history(count: usize) -> Vec<Json> {
    let message = |number: usize| {
        let text = format!("message {number} {}", "word ".repeat(30));
        if number.is_multiple_of(2) {
            json!({"role": "user", "content": text, "timestamp": number})
        } else {
            let content = json!([{"type": "text", "text": text}]);
            json!({"role": "assistant", "content": content, "timestamp": number})
        }
    };
    (0..count).map(message).collect()
}

/// Creates a repository of 60,000 files in 20,000 folders.
fn fill(root: &Path) {
    for folder in 0..20_000 {
        let folder = root.join(format!("d{}/s{folder}", folder % 100));
        std::fs::create_dir_all(&folder).unwrap();
        for file in 0..3 {
            std::fs::write(folder.join(format!("f{file}.txt")), "text\n").unwrap();
        }
    }
    let me = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    for args in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["commit", "--quiet", "-m", "x"],
    ] {
        let mut git = Command::new("git");
        let done = git.args(me).args(args).current_dir(root).status();
        assert!(done.unwrap().success());
    }
}

/// The CPU time of all threads that still run, in milliseconds.
fn cpu_ms(host: &BenchHost) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", host.child.id())).unwrap();
    let times = threads.flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    times.sum::<f64>() / 1e6
}
