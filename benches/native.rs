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
use report::{Samples, sized};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

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

fn rounds() -> usize {
    sized(5, 2)
}

/// Returns the milliseconds that something takes.
fn timed(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1000.0
}

/// A command that is measured beside us; its output is discarded.
struct ComparedCommand<'a> {
    name: &'a str,
    program: &'a Path,
    args: &'a [&'a str],
}

impl ComparedCommand<'_> {
    fn run(&self, folder: &Path) -> std::io::Result<()> {
        let mut command = Command::new(self.program);
        command.args(self.args).current_dir(folder);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().map(drop)
    }
}

/// The times of ours and of each command, `None` if it is not installed.
type ComparedTimes<'a> = (Samples, Vec<(&'a str, Option<Samples>)>);

/// Times us and commands in a folder, one after the other in each round, so that whatever else the
/// machine does slows all of them.
fn in_turns<'a>(
    folder: &Path,
    mut ours: impl FnMut(),
    beside: &[ComparedCommand<'a>],
) -> ComparedTimes<'a> {
    // The first run fills caches, and shows what is installed.
    ours();
    let installed: Vec<bool> = beside.iter().map(|one| one.run(folder).is_ok()).collect();
    let mut times = Vec::new();
    let mut theirs = vec![Vec::new(); beside.len()];
    for _ in 0..rounds() {
        times.push(timed(&mut ours));
        for ((one, is_installed), theirs) in beside.iter().zip(&installed).zip(&mut theirs) {
            if *is_installed {
                theirs.push(timed(|| drop(one.run(folder))));
            }
        }
    }
    let samples = |times: Vec<f64>| (!times.is_empty()).then(|| Samples::of(times));
    let named = beside.iter().map(|one| one.name);
    (
        Samples::of(times),
        named.zip(theirs.into_iter().map(samples)).collect(),
    )
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
        vec![step; rounds()]
    };
    let read = |path: &String| {
        format!(
            r#"{{ exec = {{ readArgs = {{ path = "$WS/{path}", toolCallId = "r" }} }}, expect = {{ readResult = {{ success = {{}} }} }} }}"#
        )
    };
    let reads: Vec<String> = some.iter().map(read).collect();
    let rows = [
        ("grep, lines, on the wire", grep("content"), rounds()),
        ("grep, counts, on the wire", grep("count"), rounds()),
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
        .unwrap_or_else(|| sized(200_000, 2_000));
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
    println!(
        "{files} files, median of {}; × is our time over theirs",
        rounds()
    );

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
    let (lines, counts) = (count("-n"), count("-c"));
    let command = |name, program, args| ComparedCommand {
        name,
        program,
        args,
    };
    let compare = |what: &str, ours: &mut dyn FnMut(), beside: &[ComparedCommand<'_>]| {
        let (ours, theirs) = in_turns(&root, ours, beside);
        row(what, &ours, "ms", &theirs);
    };
    compare(
        "grep, lines",
        &mut || assert_eq!(bench.grep("content"), 1),
        &[
            command("rg as the official client", &rg, &lines),
            command("rg", &rg, &["--no-config", "needle7f3a", "."]),
            command("grep -r", Path::new("grep"), &["-rn", "needle7f3a", "."]),
        ],
    );
    compare(
        "grep, counts",
        &mut || assert_eq!(bench.grep("count"), 1),
        &[command("rg as the official client", &rg, &counts)],
    );
    compare(
        "ls of the tree",
        &mut || {
            let request = ExecRequest::LsArgs(LsArgs::default());
            assert_eq!(bench.ask(request).len(), 1);
        },
        &[command(
            "rg --files",
            &rg,
            &["--files", "--hidden", "--no-config"],
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
    compare(
        "read of 1,000 files",
        &mut || {
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
        },
        &[command("one cat of all", Path::new("cat"), &names)],
    );
    on_the_wire(&bench.runtime, &root, &some);
    let megabytes = u32::try_from(sized(200, 20)).unwrap();
    let output = format!("head -c {megabytes}000000 /dev/zero | tr '\\0' x");
    let pipe = format!("{output} | cat");
    let pipe = ["-c", &pipe];
    let rate = |samples: Samples| samples.map(|ms| f64::from(megabytes) / (ms / 1000.0));
    let (ours, theirs) = in_turns(
        &root,
        || {
            let all = bench.ask(ExecRequest::ShellStreamArgs(ShellArgs {
                command: output.clone(),
                ..ShellArgs::default()
            }));
            let Some(ExecReply::ShellStream(last)) = all.last() else {
                panic!("another kind");
            };
            assert!(matches!(last.event, Some(shell_stream::Event::Exit(_))));
        },
        &[command("a pipe of the shell", Path::new("sh"), &pipe)],
    );
    let theirs = theirs
        .into_iter()
        .map(|(name, times)| (name, times.map(rate)));
    let theirs: Vec<_> = theirs.collect();
    row("shell stream", &rate(ours), "MB/s", &theirs);
}
