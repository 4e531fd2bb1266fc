//! Tests of what commands leave for later ones: exports, a directory, and running processes.

use super::*;

fn shell(command: &str) -> ExecRequest {
    ExecRequest::ShellArgs(ShellArgs {
        command: command.into(),
        parsing_result: Some(ShellCommandParsingResult::default()),
        ..ShellArgs::default()
    })
}

fn printed(reply: &ExecReply) -> &str {
    match reply {
        ExecReply::ShellResult(ShellResult {
            result: Some(shell_result::Result::Success(success)),
            ..
        }) => &success.stdout,
        other => panic!("no success: {other:?}"),
    }
}

impl TestDir {
    /// Returns the output of a command that succeeds.
    async fn run(&self, command: &str) -> String {
        printed(&self.one(shell(command)).await).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_lose_no_exports() {
    let scratch = scratch();
    scratch.run("export FOO=bar").await;
    for _ in 0..4 {
        let crowd: Vec<SentRequest> = (0..16).map(|_| scratch.ask(shell("echo $FOO"))).collect();
        for asked in crowd {
            assert_eq!(printed(&asked.all().await[0]), "bar\n");
        }
    }
    assert_eq!(scratch.run("echo $FOO").await, "bar\n");
    let folder = scratch.shell_session.terminals().unwrap();
    let names = fs::read_dir(folder.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let states: Vec<String> = names.filter(|name| name.starts_with("state")).collect();
    assert_eq!(
        states.len(),
        1,
        "no command needs the other state files: {states:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_directory_is_not_executed() {
    let scratch = scratch();
    fs::create_dir(scratch.workspace.join("odd\ntouch made; #")).unwrap();
    scratch.run("export FOO=bar; cd odd*").await;
    let expected = format!("{}/odd\ntouch made; #\nbar\n", scratch.workspace.display());
    assert_eq!(scratch.run("pwd; echo $FOO").await, expected);
    let made = ["made", "odd\ntouch made; #/made"];
    assert!(
        made.iter()
            .all(|name| !scratch.workspace.join(name).exists())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn aliases_options_and_the_last_directory_carry_over() {
    let scratch = scratch();
    fs::create_dir(scratch.workspace.join("sub")).unwrap();
    let left = [
        "shopt -s expand_aliases extglob",
        "alias q='echo \"it is\"' '#odd=touch made' '*=touch made' '{a,b}=touch made'",
        "alias alias='touch made' declare='touch made' shopt='touch made' for='touch made'",
        "export FOO=bar",
        "eval 'f() { case $1 in +(x)) echo many;; esac; }'",
        "cd sub",
    ];
    scratch.run(&left.join("\n")).await;
    let expected = format!("it is bar\nmany\n{}\n", scratch.workspace.display());
    for _ in 0..2 {
        assert_eq!(scratch.run("q $FOO; f xx; cd sub; cd -").await, expected);
    }
    assert!(!scratch.workspace.join("made").exists());
    assert!(!scratch.workspace.join("sub/made").exists());
    // Shells with strict options save their state too.
    scratch.run("set -eux; unalias -a; export FOO=baz").await;
    assert_eq!(scratch.run("alias; echo $FOO").await, "baz\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_resolved_as_file_paths_are() {
    let scratch = scratch();
    let home = scratch.workspace.parent().unwrap().display();
    let workspace = scratch.workspace.display();
    for (given, real) in [
        ("~".to_owned(), home.to_string()),
        ("~/ws".to_owned(), workspace.to_string()),
        (format!("file://{workspace}"), workspace.to_string()),
    ] {
        let ExecRequest::ShellArgs(mut named) = shell("pwd") else {
            panic!("another kind");
        };
        named.working_directory = given;
        let reply = scratch.one(ExecRequest::ShellArgs(named)).await;
        assert_eq!(printed(&reply), format!("{real}\n"));
    }
}

/// Other systems do not allow such names.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_not_utf8_carry_over() {
    let scratch = scratch();
    use std::os::unix::ffi::OsStrExt as _;
    let name = std::ffi::OsStr::from_bytes(b"lat\xe9");
    fs::create_dir(scratch.workspace.join(name)).unwrap();
    let define = r#"cd lat*; export FOO=$'\351'; eval "$(printf 'f() { echo \351; }')""#;
    scratch.run(define).await;
    let check =
        r#"[ "$PWD" -ef ../lat* ] && [ "$FOO" = $'\351' ] && [ "$(f)" = $'\351' ] && echo yes"#;
    assert_eq!(scratch.run(check).await, "yes\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_whose_directory_was_removed_continues_in_the_workspace() {
    let scratch = scratch();
    fs::create_dir(scratch.workspace.join("sub")).unwrap();
    scratch.run("export FOO=bar; cd sub && rmdir ../sub").await;
    let here = format!("{} bar\n", scratch.workspace.display());
    assert_eq!(scratch.run("echo $PWD $FOO").await, here);
    let all = scratch
        .ask(stream("pwd; mkdir sub; cd sub; rmdir ../sub", "call"))
        .all()
        .await;
    let shell_stream::Event::Exit(exit) = event(all.last().unwrap()) else {
        panic!("no exit: {all:?}");
    };
    // The result names the directory of the next command.
    assert_eq!(Path::new(&exit.cwd), scratch.workspace);
    // A directory named by the request is not replaced by another.
    let ExecRequest::ShellArgs(mut named) = shell("pwd") else {
        panic!("another kind");
    };
    named.working_directory = "sub".into();
    let ExecReply::ShellResult(result) = scratch.one(ExecRequest::ShellArgs(named)).await else {
        panic!("another kind");
    };
    assert!(matches!(
        result.result,
        Some(shell_result::Result::SpawnError(_))
    ));
}

fn in_background(command: &str) -> ExecRequest {
    ExecRequest::BackgroundShellSpawnArgs(BackgroundShellSpawnArgs {
        command: command.into(),
        ..BackgroundShellSpawnArgs::default()
    })
}

impl TestDir {
    /// Waits until a background command has ended, and returns its file.
    async fn ended(&self, id: u32) -> String {
        let never_cancelled = CancellationToken::new();
        while !matches!(
            self.shell_session
                .write_stdin(id, "", &never_cancelled)
                .await,
            Err(crate::shell::session::StdinError::NotFound)
        ) {
            // A paused clock advances only while every task is idle.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let file = self
            .shell_session
            .terminals()
            .unwrap()
            .join(format!("{id}.txt"));
        fs::read_to_string(file).unwrap()
    }
}

/// Returns the number of a command that was started in the background or moved there.
fn number(reply: &ExecReply) -> u32 {
    match reply {
        ExecReply::BackgroundShellSpawnResult(BackgroundShellSpawnResult {
            result: Some(background_shell_spawn_result::Result::Success(started)),
        }) => started.shell_id,
        ExecReply::ShellStream(ShellStream {
            event: Some(shell_stream::Event::Backgrounded(moved)),
        }) => moved.shell_id,
        other => panic!("not in the background: {other:?}"),
    }
}

/// Writes a line into a pipe without waiting for a reader. The line stays there until the returned
/// file is dropped.
fn write_line(pipe: PathBuf) -> fs::File {
    let mut pipe = fs::File::options()
        .read(true)
        .write(true)
        .open(pipe)
        .unwrap();
    std::io::Write::write_all(&mut pipe, b"go\n").unwrap();
    pipe
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_left_by_a_background_command_run_until_the_session_ends() {
    // It ends after a line through the pipe, because before that it may still be in the
    // foreground.
    const LEAVES: &str = "(exec 9>lifeline; exec >/dev/null 2>&1; read x < go; touch on; sleep 600) \
         & read x < leave; exit 7";
    let ExecRequest::ShellStreamArgs(mut sent) = stream(LEAVES, "call") else {
        panic!("another kind");
    };
    sent.timeout_behavior = TimeoutBehavior::Background as i32;
    for request in [in_background(LEAVES), ExecRequest::ShellStreamArgs(sent)] {
        let scratch = scratch();
        let (lifeline, go) = (scratch.lifeline(), scratch.pipe("go"));
        let leave = scratch.pipe("leave");
        let asked = scratch.ask(request);
        let gone = cut(lifeline).await;
        let id = number(asked.all().await.last().unwrap());
        let _leaving = write_line(leave);
        let text = scratch.ended(id).await;
        assert!(text.contains("exit_code: 7"), "{text}");
        let _going = write_line(go);
        while !scratch.workspace.join("on").exists() {
            assert!(!gone.is_finished(), "it was ended");
            tokio::task::yield_now().await;
        }
        drop(scratch);
        gone.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_background_command_is_recorded_while_another_process_prints() {
    let scratch = scratch();
    let go = scratch.pipe("go");
    let leaves = "(read x < go; echo $x) & echo first; exit 7";
    let id = number(&scratch.one(in_background(leaves)).await);
    let text = scratch.ended(id).await;
    assert!(
        text.contains("first\n") && text.contains("exit_code: 7"),
        "{text}"
    );
    // Its later output is kept.
    fs::write(go, "later\n").unwrap();
    let file = scratch
        .shell_session
        .terminals()
        .unwrap()
        .join(format!("{id}.txt"));
    while !fs::read_to_string(&file).unwrap().ends_with("---\nlater\n") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_command_that_times_out_leaves_no_processes() {
    let scratch = scratch();
    let lifeline = scratch.lifeline();
    let holds = "(trap '' TERM; exec 9>lifeline; exec >/dev/null 2>&1; sleep 600) & sleep 600";
    let ExecRequest::ShellStreamArgs(mut sent) = stream(holds, "call") else {
        panic!("another kind");
    };
    sent.timeout_behavior = TimeoutBehavior::Background as i32;
    sent.hard_timeout = Some(10_000);
    let asked = scratch.ask(ExecRequest::ShellStreamArgs(sent));
    let gone = cut(lifeline).await;
    let id = number(asked.all().await.last().unwrap());
    let text = scratch.ended(id).await;
    assert!(text.contains("exit_code: unknown"), "{text}");
    gone.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn processes_left_by_a_finished_command_can_continue_to_print() {
    let scratch = scratch();
    let (lifeline, go) = (scratch.lifeline(), scratch.pipe("go"));
    let leaves = "(exec 9<>lifeline; read x < go; echo $x; echo $x > printed) & echo up";
    // The only kind of command without a default timeout, which this paused clock would skip to.
    let bash = ExecRequest::PiBashArgs(PiBashExecArgs {
        command: leaves.into(),
        ..PiBashExecArgs::default()
    });
    let ExecReply::PiBashResult(PiBashExecResult {
        result: Some(pi_bash_exec_result::Result::Success(success)),
    }) = scratch.one(bash).await
    else {
        panic!("no success");
    };
    assert_eq!(success.output, "up\n");
    let gone = cut(lifeline).await;
    fs::write(go, "later\n").unwrap();
    gone.await.unwrap();
    let printed = fs::read_to_string(scratch.workspace.join("printed"));
    assert_eq!(printed.unwrap(), "later\n");
}
