//! Tests of the executor through its interface: requests in, replies out.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::*;
use crate::ExecOutput;
use crate::policy::ExecutedBy;
use crate::tool_definition::ToolDefinition;
use crate::workspace::repository_cache::RepositoryCache;

struct TestDir {
    _home: tempfile::TempDir,
    workspace: PathBuf,
    shell_session: Arc<ShellSession>,
    policy: ToolPolicy,
    offers: Vec<ToolDefinition>,
}

fn scratch() -> TestDir {
    let home = tempfile::tempdir().unwrap();
    let workspace = home.path().canonicalize().unwrap().join("ws");
    fs::create_dir(&workspace).unwrap();
    TestDir {
        _home: home,
        workspace,
        shell_session: Arc::default(),
        policy: ToolPolicy::default(),
        offers: Vec::new(),
    }
}

/// One request that is being executed.
struct SentRequest {
    replies: mpsc::Receiver<(u32, ExecOutput)>,
    abort: CancellationToken,
    done: tokio::task::JoinHandle<Result<(), ExecError>>,
}

impl SentRequest {
    async fn next(&mut self) -> Option<ExecReply> {
        match self.replies.recv().await?.1 {
            ExecOutput::Reply(reply) => Some(*reply),
            ExecOutput::Call(call) => panic!("unexpected call: {call:?}"),
        }
    }

    /// Returns all replies.
    async fn all(mut self) -> Vec<ExecReply> {
        let mut all = Vec::new();
        while let Some(reply) = self.next().await {
            all.push(reply);
        }
        assert_eq!(self.done.await.unwrap(), Ok(()));
        all
    }
}

impl TestDir {
    fn ask(&self, request: ExecRequest) -> SentRequest {
        let facts = RunContext {
            workspace: self.workspace.clone(),
            home: self.workspace.parent().map(Path::to_owned),
            offers: self.offers.clone(),
            repositories: Arc::new(RepositoryCache::waiting(Duration::from_secs(60))),
            ..RunContext::default()
        };
        let (executor, _) = executor_without_host(facts, &self.policy, &self.shell_session, false);
        let (queue, replies) = mpsc::channel(64);
        let abort = CancellationToken::new();
        let work = executor.execute(request, ReplySender::new(1, queue), abort.clone());
        SentRequest {
            replies,
            abort,
            done: tokio::spawn(work.done),
        }
    }

    async fn one(&self, request: ExecRequest) -> ExecReply {
        let mut all = self.ask(request).all().await;
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// Creates a pipe that stays open as long as a command that writes to it lives.
    fn lifeline(&self) -> PathBuf {
        self.pipe("lifeline")
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.workspace.join(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        path
    }
}

/// Returns a task that waits until no process holds the pipe open.
async fn cut(lifeline: PathBuf) -> tokio::task::JoinHandle<()> {
    let (opened, is_open) = tokio::sync::oneshot::channel();
    let end = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        let mut pipe = fs::File::open(lifeline).unwrap();
        opened.send(()).unwrap();
        pipe.read_to_end(&mut Vec::new()).unwrap();
    });
    is_open.await.unwrap();
    end
}

fn stream(command: &str, call: &str) -> ExecRequest {
    ExecRequest::ShellStreamArgs(ShellArgs {
        command: command.into(),
        tool_call_id: call.into(),
        ..ShellArgs::default()
    })
}

fn event(reply: &ExecReply) -> &shell_stream::Event {
    match reply {
        ExecReply::ShellStream(stream) => stream.event.as_ref().unwrap(),
        other => panic!("no event: {other:?}"),
    }
}

#[tokio::test]
async fn a_command_that_must_run_read_only_is_refused() {
    let scratch = scratch();
    let policy = SandboxPolicy {
        r#type: sandbox_policy::Type::WorkspaceReadonly as i32,
        ..SandboxPolicy::default()
    };
    let args = ShellArgs {
        command: "touch made".into(),
        parsing_result: Some(ShellCommandParsingResult::default()),
        requested_sandbox_policy: Some(policy.clone()),
        skip_approval: true,
        ..ShellArgs::default()
    };
    for request in [
        ExecRequest::ShellArgs(args.clone()),
        ExecRequest::MiniSweAgentBashArgs(args.clone()),
        ExecRequest::ShellStreamArgs(args),
        ExecRequest::BackgroundShellSpawnArgs(BackgroundShellSpawnArgs {
            command: "touch made".into(),
            sandbox_policy: Some(policy),
            ..BackgroundShellSpawnArgs::default()
        }),
    ] {
        let all = scratch.ask(request).all().await;
        let result = format!("{:?}", all.last());
        assert!(
            result.contains("SpawnError") || result.contains("SandboxUnsupported"),
            "{result}"
        );
    }
    assert!(!scratch.workspace.join("made").exists());
}

const HOLD: &str = "exec 9>lifeline; trap '' TERM; echo up; (trap '' TERM; sleep 600); sleep 600";

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_command_ends_with_its_child_processes() {
    let scratch = scratch();
    let lifeline = scratch.lifeline();
    let mut asked = scratch.ask(stream(HOLD, "call"));
    let gone = cut(lifeline).await;
    while !matches!(
        event(&asked.next().await.unwrap()),
        shell_stream::Event::Stdout(_)
    ) {}
    asked.abort.cancel();
    let all = asked.all().await;
    let shell_stream::Event::Exit(exit) = event(all.last().unwrap()) else {
        panic!("no exit: {all:?}");
    };
    assert_eq!((exit.code, exit.aborted), (u32::MAX, true));
    assert_eq!(exit.abort_reason, Some(ShellAbortReason::UserAbort as i32));
    gone.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_request_ends_its_command() {
    let scratch = scratch();
    let lifeline = scratch.lifeline();
    let asked = scratch.ask(stream(HOLD, "call"));
    let gone = cut(lifeline).await;
    asked.done.abort();
    gone.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn background_commands_end_with_the_session() {
    let scratch = scratch();
    let lifeline = scratch.lifeline();
    let spawn = ExecRequest::BackgroundShellSpawnArgs(BackgroundShellSpawnArgs {
        command: HOLD.into(),
        ..BackgroundShellSpawnArgs::default()
    });
    let ExecReply::BackgroundShellSpawnResult(result) = scratch.one(spawn).await else {
        panic!("another kind");
    };
    assert!(matches!(
        result.result,
        Some(background_shell_spawn_result::Result::Success(_))
    ));
    let gone = cut(lifeline).await;
    let folder = scratch.shell_session.terminals().unwrap();
    assert!(folder.exists());
    drop(scratch);
    gone.await.unwrap();
    assert!(!folder.exists(), "its files go too");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_left_by_a_finished_command_end_with_the_session() {
    let scratch = scratch();
    let lifeline = scratch.lifeline();
    let command = "(exec 9>lifeline; exec >/dev/null 2>&1; sleep 600) & echo started";
    let asked = scratch.ask(stream(command, "call"));
    let gone = cut(lifeline).await;
    let all = asked.all().await;
    assert!(
        matches!(event(all.last().unwrap()), shell_stream::Event::Exit(exit) if exit.code == 0)
    );
    assert!(!gone.is_finished(), "it runs until then");
    drop(scratch);
    gone.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_moved_to_the_background_continues_and_its_output_is_kept() {
    let scratch = scratch();
    let go = scratch.lifeline();
    let mut asked = scratch.ask(stream(
        "echo before; read x < lifeline; echo $x; exit 4",
        "call",
    ));
    while !matches!(
        event(&asked.next().await.unwrap()),
        shell_stream::Event::Stdout(_)
    ) {}
    let force = ExecRequest::ForceBackgroundShellArgs(ForceBackgroundShellArgs {
        tool_call_id: "call".into(),
    });
    let ExecReply::ForceBackgroundShellResult(forced) = scratch.one(force).await else {
        panic!("another kind");
    };
    assert_eq!(forced.status, ForceBackgroundShellStatus::Accepted as i32);
    let all = asked.all().await;
    let shell_stream::Event::Backgrounded(moved) = event(all.last().unwrap()) else {
        panic!("not in the background: {all:?}");
    };
    let file = scratch
        .shell_session
        .terminals()
        .unwrap()
        .join(format!("{}.txt", moved.shell_id));
    tokio::task::spawn_blocking(move || fs::write(go, "after\n").unwrap())
        .await
        .unwrap();
    // The number is removed when the command has ended and its file is complete.
    while scratch
        .shell_session
        .write_stdin(moved.shell_id, "", &CancellationToken::new())
        .await
        .is_err_and(|error| matches!(error, crate::shell::session::StdinError::Unavailable))
    {
        tokio::task::yield_now().await;
    }
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("before\nafter\n"), "{text}");
    assert!(text.contains("exit_code: 4"), "{text}");
}

/// A process that left the group and continues to print must not delay the abort.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_does_not_wait_for_processes_that_left_the_group() {
    let scratch = scratch();
    let mut asked = scratch.ask(stream("setsid yes & echo up; wait", "call"));
    while !matches!(
        event(&asked.next().await.unwrap()),
        shell_stream::Event::Stdout(_)
    ) {}
    asked.abort.cancel();
    let all = tokio::time::timeout(std::time::Duration::from_secs(20), asked.all())
        .await
        .expect("it ends");
    assert!(matches!(
        event(all.last().unwrap()),
        shell_stream::Event::Exit(exit) if exit.aborted
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_is_not_read_can_be_cancelled() {
    let scratch = scratch();
    let spawn = ExecRequest::BackgroundShellSpawnArgs(BackgroundShellSpawnArgs {
        command: "exec sleep 600".into(),
        enable_write_shell_stdin_tool: true,
        ..BackgroundShellSpawnArgs::default()
    });
    let ExecReply::BackgroundShellSpawnResult(BackgroundShellSpawnResult {
        result: Some(background_shell_spawn_result::Result::Success(started)),
    }) = scratch.one(spawn).await
    else {
        panic!("not started");
    };
    // The second write needs the input pipe that the first one returned.
    for _ in 0..2 {
        let asked = scratch.ask(ExecRequest::WriteShellStdinArgs(WriteShellStdinArgs {
            shell_id: started.shell_id,
            chars: "x".repeat(1024 * 1024),
        }));
        asked.abort.cancel();
        let all = asked.all().await;
        let ExecReply::WriteShellStdinResult(WriteShellStdinResult {
            result: Some(write_shell_stdin_result::Result::Error(error)),
        }) = &all[0]
        else {
            panic!("taken: {all:?}");
        };
        assert!(error.error.contains("cancelled"), "{}", error.error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_foreground_time_starts_in_the_background() {
    let scratch = scratch();
    let ExecRequest::ShellStreamArgs(mut args) = stream("read x; echo $x; exit 4", "call") else {
        panic!("another kind");
    };
    args.timeout_behavior = TimeoutBehavior::Background as i32;
    let all = scratch.ask(ExecRequest::ShellStreamArgs(args)).all().await;
    let shell_stream::Event::Backgrounded(moved) = event(all.last().unwrap()) else {
        panic!("not in the background: {all:?}");
    };
    assert_eq!(moved.ms_to_wait, Some(0));
    let feed = ExecRequest::WriteShellStdinArgs(WriteShellStdinArgs {
        shell_id: moved.shell_id,
        chars: "answer\n".into(),
    });
    assert!(matches!(
        scratch.one(feed).await,
        ExecReply::WriteShellStdinResult(WriteShellStdinResult {
            result: Some(write_shell_stdin_result::Result::Success(_))
        })
    ));
}

#[tokio::test]
async fn denied_tools_are_refused_and_others_are_not() {
    let mut scratch = scratch();
    scratch.policy.denied.insert(NativeTool::Shell);
    let all = scratch.ask(stream("echo x > made", "call")).all().await;
    let shell_stream::Event::Rejected(no) = event(&all[0]) else {
        panic!("not refused: {all:?}");
    };
    assert!(
        no.reason.contains("deny") && no.reason.contains("shell"),
        "{}",
        no.reason
    );
    assert!(!scratch.workspace.join("made").exists());
    fs::write(scratch.workspace.join("f"), "text").unwrap();
    let read = ExecRequest::ReadArgs(ReadArgs {
        path: "f".into(),
        ..ReadArgs::default()
    });
    assert!(matches!(
        scratch.one(read).await,
        ExecReply::ReadResult(ReadResult {
            result: Some(read_result::Result::Success(_))
        })
    ));
}

#[tokio::test]
async fn off_names_the_hosts_tool() {
    let mut scratch = scratch();
    scratch.policy.mode = Some(ExecutedBy::Off);
    scratch.offers.push(ToolDefinition {
        name: "pi__bash".into(),
        description: String::new(),
        schema: serde_json::json!({"type": "object"}),
        provider: "pi".into(),
        tool: "bash".into(),
    });
    let all = scratch.ask(stream("ls", "call")).all().await;
    let shell_stream::Event::Rejected(no) = event(&all[0]) else {
        panic!("not refused: {all:?}");
    };
    assert!(
        no.reason.ends_with("use the tool pi__bash instead"),
        "{}",
        no.reason
    );
}

#[tokio::test]
async fn the_context_names_machine_tools_and_repositories() {
    let mut scratch = scratch();
    scratch.policy.mode = Some(ExecutedBy::Local);
    let context = ExecRequest::RequestContextArgs(RequestContextArgs::default());
    let ExecReply::RequestContextResult(result) = scratch.one(context).await else {
        panic!("another kind");
    };
    let Some(request_context_result::Result::Success(success)) = result.result else {
        panic!("no context");
    };
    let context = success.request_context.unwrap();
    let env = context.env.unwrap();
    assert_eq!(env.workspace_paths, [scratch.workspace.to_string_lossy()]);
    assert!(Path::new(&env.terminals_folder).is_dir());
    assert_eq!(context.git_repo_info_complete, Some(true));
}

/// Permissions do not restrict root, so as root the test only prints that it was skipped.
#[tokio::test]
async fn missing_permissions_are_reported_as_such() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = scratch();
    let file = scratch.workspace.join("closed");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&file).is_ok() {
        let mut stderr = std::io::stderr();
        let _ = std::io::Write::write_all(&mut stderr, b"skipped: root may read everything\n");
        return;
    }
    let guard = PathGuard::new(&scratch.workspace, None, false);
    let args = ReadArgs {
        path: "closed".into(),
        ..ReadArgs::default()
    };
    let result = read::read(&guard, &args, &CancellationToken::new()).result;
    assert!(matches!(
        result,
        Some(read_result::Result::PermissionDenied(_))
    ));
}

/// Memory is bounded: of a large file only the requested lines are kept.
#[tokio::test]
async fn only_the_requested_lines_of_a_large_file_are_returned() {
    let scratch = scratch();
    let file = fs::File::create(scratch.workspace.join("large.txt")).unwrap();
    let mut writer = std::io::BufWriter::new(file);
    for number in 0..500_000 {
        use std::io::Write as _;
        writeln!(writer, "line number {number:>40}").unwrap();
    }
    drop(writer);
    let read = ExecRequest::ReadArgs(ReadArgs {
        path: "large.txt".into(),
        offset: Some(-2),
        ..ReadArgs::default()
    });
    let ExecReply::ReadResult(ReadResult {
        result: Some(read_result::Result::Success(success)),
    }) = scratch.one(read).await
    else {
        panic!("not read");
    };
    assert_eq!(success.total_lines, 500_001);
    let Some(read_success::Output::Content(text)) = success.output else {
        panic!("no text");
    };
    assert!(text.ends_with("499999\n"), "{text}");
}

mod shell_state;
