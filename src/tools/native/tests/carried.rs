//! What commands leave for those after them: exports, a folder, and what goes on running.

use super::*;

fn shell(command: &str) -> Request {
    Request::ShellArgs(ShellArgs {
        command: command.into(),
        parsing_result: Some(ShellCommandParsingResult::default()),
        ..ShellArgs::default()
    })
}

fn printed(reply: &Reply) -> &str {
    match reply {
        Reply::ShellResult(ShellResult {
            result: Some(shell_result::Result::Success(success)),
            ..
        }) => &success.stdout,
        other => panic!("no success: {other:?}"),
    }
}

impl Scratch {
    /// What a command prints that succeeds.
    async fn run(&self, command: &str) -> String {
        printed(&self.one(shell(command)).await).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_at_once_lose_no_exports() {
    let scratch = scratch();
    scratch.run("export FOO=bar").await;
    for _ in 0..4 {
        let crowd: Vec<Asked> = (0..16).map(|_| scratch.ask(shell("echo $FOO"))).collect();
        for asked in crowd {
            assert_eq!(printed(&asked.all().await[0]), "bar\n");
        }
    }
    assert_eq!(scratch.run("echo $FOO").await, "bar\n");
    let folder = scratch.bench.terminals().unwrap();
    let names = fs::read_dir(folder.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let states: Vec<String> = names.filter(|name| name.starts_with("state")).collect();
    assert_eq!(states.len(), 1, "nobody needs the others: {states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folders_name_is_no_command() {
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
async fn aliases_options_and_the_last_folder_are_carried() {
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
    // Strict shells leave their state too.
    scratch.run("set -eux; unalias -a; export FOO=baz").await;
    assert_eq!(scratch.run("alias; echo $FOO").await, "baz\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_named_as_files_are() {
    let scratch = scratch();
    let home = scratch.workspace.parent().unwrap().display();
    let workspace = scratch.workspace.display();
    for (given, real) in [
        ("~".to_owned(), home.to_string()),
        ("~/ws".to_owned(), workspace.to_string()),
        (format!("file://{workspace}"), workspace.to_string()),
    ] {
        let Request::ShellArgs(mut named) = shell("pwd") else {
            panic!("another kind");
        };
        named.working_directory = given;
        let reply = scratch.one(Request::ShellArgs(named)).await;
        assert_eq!(printed(&reply), format!("{real}\n"));
    }
}

/// Elsewhere such names are not possible.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_utf8_is_carried_too() {
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
async fn a_shell_whose_folder_is_gone_is_back_in_the_workspace() {
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
    // The next one is told where it will be.
    assert_eq!(Path::new(&exit.cwd), scratch.workspace);
    // A folder that was named is not replaced by another.
    let Request::ShellArgs(mut named) = shell("pwd") else {
        panic!("another kind");
    };
    named.working_directory = "sub".into();
    let Reply::ShellResult(result) = scratch.one(Request::ShellArgs(named)).await else {
        panic!("another kind");
    };
    assert!(matches!(
        result.result,
        Some(shell_result::Result::SpawnError(_))
    ));
}

fn behind(command: &str) -> Request {
    Request::BackgroundShellSpawnArgs(BackgroundShellSpawnArgs {
        command: command.into(),
        ..BackgroundShellSpawnArgs::default()
    })
}

impl Scratch {
    /// Waits until a command behind is over; gives what its file says.
    async fn ended(&self, id: u32) -> String {
        let nobody = CancellationToken::new();
        while !matches!(
            self.bench.write_stdin(id, "", &nobody).await,
            Err(workbench::StdinError::NotFound)
        ) {
            // A clock that stands still goes on only while nothing else is to be done.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let file = self.bench.terminals().unwrap().join(format!("{id}.txt"));
        fs::read_to_string(file).unwrap()
    }
}

/// The number of a command that was started behind, or sent there.
fn number(reply: &Reply) -> u32 {
    match reply {
        Reply::BackgroundShellSpawnResult(BackgroundShellSpawnResult {
            result: Some(background_shell_spawn_result::Result::Success(started)),
        }) => started.shell_id,
        Reply::ShellStream(ShellStream {
            event: Some(shell_stream::Event::Backgrounded(behind)),
        }) => behind.shell_id,
        other => panic!("not behind: {other:?}"),
    }
}

/// Writes a line into a pipe, though nobody reads it yet; it stays there while this is kept.
fn told(pipe: PathBuf) -> fs::File {
    let mut pipe = fs::File::options()
        .read(true)
        .write(true)
        .open(pipe)
        .unwrap();
    std::io::Write::write_all(&mut pipe, b"go\n").unwrap();
    pipe
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_behind_left_running_goes_on_until_the_session_ends() {
    // It ends once it is told to: before that it might not be behind yet.
    const LEAVES: &str = "(exec 9>lifeline; exec >/dev/null 2>&1; read x < go; touch on; sleep 600) \
         & read x < leave; exit 7";
    let Request::ShellStreamArgs(mut sent) = stream(LEAVES, "call") else {
        panic!("another kind");
    };
    sent.timeout_behavior = TimeoutBehavior::Background as i32;
    for request in [behind(LEAVES), Request::ShellStreamArgs(sent)] {
        let scratch = scratch();
        let (lifeline, go) = (scratch.lifeline(), scratch.pipe("go"));
        let leave = scratch.pipe("leave");
        let asked = scratch.ask(request);
        let gone = cut(lifeline).await;
        let id = number(asked.all().await.last().unwrap());
        let _leaving = told(leave);
        let text = scratch.ended(id).await;
        assert!(text.contains("exit_code: 7"), "{text}");
        let _going = told(go);
        while !scratch.workspace.join("on").exists() {
            assert!(!gone.is_finished(), "it was ended");
            tokio::task::yield_now().await;
        }
        drop(scratch);
        gone.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_command_behind_is_told_though_something_prints_on() {
    let scratch = scratch();
    let go = scratch.pipe("go");
    let leaves = "(read x < go; echo $x) & echo first; exit 7";
    let id = number(&scratch.one(behind(leaves)).await);
    let text = scratch.ended(id).await;
    assert!(
        text.contains("first\n") && text.contains("exit_code: 7"),
        "{text}"
    );
    // It can still print, and that is kept.
    fs::write(go, "later\n").unwrap();
    let file = scratch.bench.terminals().unwrap().join(format!("{id}.txt"));
    while !fs::read_to_string(&file).unwrap().ends_with("---\nlater\n") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_behind_whose_time_is_over_leaves_nothing() {
    let scratch = scratch();
    let lifeline = scratch.lifeline();
    let holds = "(trap '' TERM; exec 9>lifeline; exec >/dev/null 2>&1; sleep 600) & sleep 600";
    let Request::ShellStreamArgs(mut sent) = stream(holds, "call") else {
        panic!("another kind");
    };
    sent.timeout_behavior = TimeoutBehavior::Background as i32;
    sent.hard_timeout = Some(10_000);
    let asked = scratch.ask(Request::ShellStreamArgs(sent));
    let gone = cut(lifeline).await;
    let id = number(asked.all().await.last().unwrap());
    let text = scratch.ended(id).await;
    assert!(text.contains("exit_code: unknown"), "{text}");
    gone.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_finished_command_left_running_may_print_on() {
    let scratch = scratch();
    let (lifeline, go) = (scratch.lifeline(), scratch.pipe("go"));
    let leaves = "(exec 9<>lifeline; read x < go; echo $x; echo $x > printed) & echo up";
    // The one kind of command that has all the time of this clock.
    let bash = Request::PiBashArgs(PiBashExecArgs {
        command: leaves.into(),
        ..PiBashExecArgs::default()
    });
    let Reply::PiBashResult(PiBashExecResult {
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
