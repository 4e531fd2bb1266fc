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

use cursor_sim::{Http2, Options, ScenarioSource, Sim};
use serde_json::{Value as Json, json};

use host::BenchHost;
use report::{Samples, sized};

/// Every turn has this answer, which is sent at once.
const ANSWER: &str = r#"
name = "brief"
[[run]]
steps = [ { text = "done" }, { checkpoint = "auto" }, { usage = {} }, { end = true } ]
"#;
/// A user reads the answer before the next prompt.
const PAUSE: Duration = Duration::from_millis(300);

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sim = runtime.block_on(Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml {
            label: "brief.toml".into(),
            text: ANSWER.into(),
        }],
        http2: Http2::Force,
        ..Options::default()
    }));
    let sim = sim.unwrap();
    let empty = tempfile::tempdir().unwrap();
    let large = tempfile::tempdir().unwrap();
    fill(large.path());

    let [small, big] = first_deltas(&sim, [empty.path(), large.path()]);
    row(
        "send to first delta, git repository of 60,000 files in 20,000 folders",
        &big,
        &[("an empty folder", Some(small))],
    );

    let processor = |count: usize| {
        let mut host = BenchHost::start(sim.address());
        let mut messages = history(count);
        turn(&mut host, empty.path(), &mut messages); // sends the whole history
        let times = (0..sized(15, 3)).map(|_| {
            let before = cpu_ms(&host);
            turn(&mut host, empty.path(), &mut messages);
            cpu_ms(&host) - before
        });
        Samples::of(times.collect())
    };
    let few = processor(10);
    row("CPU of a turn, 10 messages of history", &few, &[]);
    let beside = |samples: &Samples| [("10 messages", Some(samples.clone()))];
    row(
        "CPU of a turn, 1,000 messages of history",
        &processor(sized(1_000, 100)),
        &beside(&few),
    );
    let long = sized(10_000, 1_000);
    let text = Json::Array(history(long)).to_string();
    let parse = || {
        let began = Instant::now();
        let parsed: Json = serde_json::from_str(&text).unwrap();
        let parsing = began.elapsed().as_secs_f64() * 1e3;
        assert_eq!(parsed.as_array().map(Vec::len), Some(long));
        parsing
    };
    let parsing = Samples::of((0..sized(15, 3)).map(|_| parse()).collect());
    let [few] = beside(&few);
    row(
        "CPU of a turn, 10,000 messages of history",
        &processor(long),
        &[few, ("parsing their JSON once", Some(parsing))],
    );
}

/// Returns the times to the first text in two workspaces, in turns that alternate.
fn first_deltas(sim: &Sim, workspaces: [&Path; 2]) -> [Samples; 2] {
    let mut sides = workspaces.map(|workspace| {
        let host = BenchHost::start(sim.address());
        (host, workspace, Vec::new(), Vec::new())
    });
    for _ in 0..sized(15, 3) {
        for (host, workspace, messages, times) in &mut sides {
            std::thread::sleep(PAUSE);
            times.push(turn(host, workspace, messages));
        }
    }
    sides.map(|(.., times)| Samples::of(times))
}

fn row(what: &str, ours: &Samples, beside: &[(&str, Option<Samples>)]) {
    println!("{what:<72} {:>9.2} ms", ours.median());
    for (name, theirs) in beside {
        if let Some(theirs) = theirs {
            println!("{name:>72} {:>9.2} ms", theirs.median());
        }
    }
    report::record("Large workspaces, long sessions", what, "ms", ours, beside);
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
    for folder in 0..sized(20_000, 200) {
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
