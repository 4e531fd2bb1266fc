//! Compares our native tools with the usual command-line tools and with the official client, on
//! the same tree, in the same run.
//!
//! `cargo bench --bench native` creates a tree and prints a table. `NATIVE_BENCH_FILES` sets
//! the number of files (200,000). Rows "on the wire" are the real binary and the official client
//! answering the same simulator. Compare only ratios: absolute numbers depend on the machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

#[path = "host/clients.rs"]
mod clients;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use agent_tools::handlers;
use agent_tools::policy::ToolPolicy;
use agent_tools::request_context::RunContext;
use agent_tools::shell::ShellSession;
use agent_tools::{ExecOutput, ExecReply, ExecRequest, Executor, ReplySender};
use clients::Client;
use cursor_proto::agent::v1::{
    GrepArgs, LsArgs, ReadArgs, ShellArgs, grep_result, read_result, shell_stream,
};
use report::Samples;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 5;
/// The number of files in each folder.
const FOLDER: usize = 100;

/// Creates a tree like a project's: many small files, one in fifty with the needle.
fn plant(root: &Path, files: usize) {
    for number in 0..files {
        let folder = root.join(format!("d{}/e{}", number / (FOLDER * 10), number / FOLDER));
        if number % FOLDER == 0 {
            std::fs::create_dir_all(&folder).unwrap();
        }
        let needle = if number % 50 == 0 {
            "needle7f3a"
        } else {
            "straw"
        };
        let line = format!("fn function_{number}() {{ let value = \"{needle}\"; }}\n");
        let filler = "// a line of ordinary source text, neither short nor long\n".repeat(30);
        std::fs::write(folder.join(format!("f{number}.rs")), filler + &line).unwrap();
    }
}

fn timed(mut work: impl FnMut()) -> Samples {
    let times = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1000.0
    });
    Samples::of(times.collect())
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    executor: Arc<dyn Executor>,
}

impl Bench {
    fn ask(&self, request: ExecRequest) -> Vec<ExecReply> {
        self.runtime.block_on(async {
            let (queue, mut replies) = mpsc::channel(64);
            let abort = CancellationToken::new();
            let work =
                Arc::clone(&self.executor).execute(request, ReplySender::new(1, queue), abort);
            let done = tokio::spawn(work.done);
            let mut all = Vec::new();
            while let Some((_, output)) = replies.recv().await {
                if let ExecOutput::Reply(reply) = output {
                    all.push(*reply);
                }
            }
            done.await.unwrap().unwrap();
            all
        })
    }

    fn grep(&self, mode: &str) -> usize {
        let request = ExecRequest::GrepArgs(GrepArgs {
            pattern: "needle7f3a".into(),
            output_mode: Some(mode.into()),
            ..GrepArgs::default()
        });
        let ExecReply::GrepResult(result) = self.ask(request).remove(0) else {
            panic!("another kind");
        };
        match result.result {
            Some(grep_result::Result::Success(success)) => success.workspace_results.len(),
            other => panic!("{other:?}"),
        }
    }
}

/// Times a command and discards its output; `None` if it is not installed.
fn beside(program: &Path, args: &[&str], folder: &Path) -> Option<Samples> {
    let run = || {
        Command::new(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
    };
    run().ok()?;
    Some(timed(|| drop(run())))
}

fn row(what: &str, ours: &Samples, unit: &str, others: &[(&str, Option<Samples>)]) {
    let median = ours.median();
    let beside: Vec<String> = others
        .iter()
        .filter_map(|(name, other)| other.as_ref().map(|other| (name, other.median())))
        .map(|(name, other)| format!("{name} {other:.1} {unit} (× {:.2})", median / other))
        .collect();
    println!("{what:<28} {median:>9.1} {unit:<5} {}", beside.join(", "));
    report::record("Native tools", what, unit, ours, others);
}

/// Sends the same requests to both clients, one after the other.
fn on_the_wire(runtime: &tokio::runtime::Runtime, root: &Path, some: &[String]) {
    let grep = |mode: &str| {
        let step = format!(
            r#"{{ exec = {{ grepArgs = {{ pattern = "needle7f3a", path = "$WS", outputMode = "{mode}", toolCallId = "g" }} }}, expect = {{ grepResult = {{ success = {{}} }} }} }}"#
        );
        vec![step; ROUNDS]
    };
    let read = |path: &String| {
        format!(
            r#"{{ exec = {{ readArgs = {{ path = "$WS/{path}", toolCallId = "r" }} }}, expect = {{ readResult = {{ success = {{}} }} }} }}"#
        )
    };
    let reads: Vec<String> = some.iter().map(read).collect();
    let rows = [
        ("grep, lines, on the wire", grep("content"), ROUNDS),
        ("grep, counts, on the wire", grep("count"), ROUNDS),
        ("read of 1,000, on the wire", reads, 1),
    ];
    for (what, steps, rounds) in rows {
        let took = |client| {
            let took = clients::took(runtime, client, root, &steps)?;
            Some(Samples::one(
                took / f64::from(u32::try_from(rounds).unwrap()),
            ))
        };
        let ours = took(Client::Ours).unwrap();
        let theirs = took(Client::Official);
        row(what, &ours, "ms", &[("the official client", theirs)]);
    }
}

/// Returns the ripgrep of the official client, or else the installed one.
fn ripgrep() -> PathBuf {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/official/node_modules/@cursor/sdk-linux-x64/bin/rg");
    if bundled.exists() {
        bundled
    } else {
        "rg".into()
    }
}

fn main() {
    let files = std::env::var("NATIVE_BENCH_FILES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(200_000);
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    plant(&root, files);
    let facts = RunContext {
        workspace: root.clone(),
        ..RunContext::default()
    };
    let shell_session = Arc::new(ShellSession::default());
    let (executor, _) =
        handlers::executor_without_host(facts, &ToolPolicy::default(), &shell_session, false);
    let bench = Bench {
        runtime: tokio::runtime::Runtime::new().unwrap(),
        executor,
    };
    println!("{files} files, median of {ROUNDS}; × is our time over theirs");

    let rg = ripgrep();
    let theirs = [
        "--hidden",
        "--follow",
        "--sortr",
        "modified",
        "--no-config",
        "needle7f3a",
        ".",
    ];
    let count = |flag: &'static str| -> Vec<&str> { std::iter::once(flag).chain(theirs).collect() };
    row(
        "grep, lines",
        &timed(|| assert_eq!(bench.grep("content"), 1)),
        "ms",
        &[
            (
                "rg as the official client",
                beside(&rg, &count("-n"), &root),
            ),
            (
                "rg",
                beside(&rg, &["--no-config", "needle7f3a", "."], &root),
            ),
            (
                "grep -r",
                beside(Path::new("grep"), &["-rn", "needle7f3a", "."], &root),
            ),
        ],
    );
    row(
        "grep, counts",
        &timed(|| assert_eq!(bench.grep("count"), 1)),
        "ms",
        &[(
            "rg as the official client",
            beside(&rg, &count("-c"), &root),
        )],
    );
    row(
        "ls of the tree",
        &timed(|| {
            let request = ExecRequest::LsArgs(LsArgs::default());
            assert_eq!(bench.ask(request).len(), 1);
        }),
        "ms",
        &[(
            "rg --files",
            beside(&rg, &["--files", "--hidden", "--no-config"], &root),
        )],
    );
    let some: Vec<String> = (0..1000)
        .map(|at| at * (files / 1000).max(1))
        .map(|number| {
            format!(
                "d{}/e{}/f{number}.rs",
                number / (FOLDER * 10),
                number / FOLDER
            )
        })
        .filter(|path| root.join(path).exists())
        .collect();
    let names: Vec<&str> = some.iter().map(String::as_str).collect();
    row(
        "read of 1,000 files",
        &timed(|| {
            for path in &some {
                let request = ExecRequest::ReadArgs(ReadArgs {
                    path: path.clone(),
                    ..ReadArgs::default()
                });
                let ExecReply::ReadResult(result) = bench.ask(request).remove(0) else {
                    panic!("another kind");
                };
                assert!(matches!(
                    result.result,
                    Some(read_result::Result::Success(_))
                ));
            }
        }),
        "ms",
        &[("one cat of all", beside(Path::new("cat"), &names, &root))],
    );
    on_the_wire(&bench.runtime, &root, &some);
    let megabytes = 200;
    let rate = |samples: Samples| samples.map(|ms| f64::from(megabytes) / (ms / 1000.0));
    let ours = timed(|| {
        let all = bench.ask(ExecRequest::ShellStreamArgs(ShellArgs {
            command: format!("head -c {megabytes}000000 /dev/zero | tr '\\0' x"),
            ..ShellArgs::default()
        }));
        let Some(ExecReply::ShellStream(last)) = all.last() else {
            panic!("another kind");
        };
        assert!(matches!(last.event, Some(shell_stream::Event::Exit(_))));
    });
    let pipe = beside(
        Path::new("sh"),
        &["-c", "head -c 200000000 /dev/zero | tr '\\0' x | cat"],
        &root,
    );
    row(
        "shell stream",
        &rate(ours),
        "MB/s",
        &[("a pipe of the shell", pipe.map(rate))],
    );
}
