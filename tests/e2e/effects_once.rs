//! A command or a host tool that was executed is not executed again because a checkpoint, a stream
//! or a conversation is abandoned: it is answered from the record, or with the question whether it
//! may have run.

use std::io::Write as _;
use std::path::Path;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::confinement::unprivileged;
use crate::steering::INJECTED;
use test_support::in_process::user_text;
use test_support::rpc_session::{CollectedTurn, OfferedCall, RpcSession, tool};
use test_support::scenario::{END, Steps, calls, inline, script, text, value};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;

/// The client's response proves that it has read everything before it.
const READ: &str = r#"{ kv_set = { text = "read this far" } }"#;
const SAVED: &str = r#"{ checkpoint = "auto" }"#;
/// The server refuses the request, so the checkpoint is not used again.
const REFUSED: &str = r#"{ end = { code = "permission_denied", message = "no" } }"#;
const BROKEN: &str = r#"{ reset = "internal_error" }"#;
/// The run does not accept an injected message.
pub const REJECTED: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { rejected = { reason = "no" } } } } }"#;
const NEXT_TURN: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { queuedForNextTurn = {} } } } }"#;
const CANCELLED: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }"#;
/// The result of a request that is answered from the record or with a question.
const NOT_EXECUTED: &str = r#"throws = "If you send the same request again, it will be executed""#;

/// A simulator with one script per run of a conversation.
pub fn attempts(runs: &[&str]) -> Simulator {
    script(runs)
}

/// The same for runs of any conversation.
pub fn in_any_conversation(runs: &[&str]) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(file, "name = \"script\"\nattempts = \"all\"").unwrap();
    for steps in runs {
        writeln!(file, "[[run]]\nsteps = [ {steps} ]").unwrap();
    }
    Simulator::with(Transport::H2c, file.path())
}

/// Returns the user message that each run starts with.
pub fn user_messages(simulator: &Simulator) -> Vec<String> {
    let recording = simulator.recorded();
    let requests = recording.client("runRequest").into_iter();
    requests
        .map(|request| user_text(&request["runRequest"]))
        .collect()
}

/// A command that appends its name to `log` and then prints it, so that it is in the log when the
/// output arrives.
fn command(name: &str, options: &str) -> String {
    let args = json!({"command": format!("echo {name} >> log; echo {name}"), "workingDirectory": "$WS",
        "toolCallId": name, "timeout": 10000});
    let mut step = value(format!("{{ {options} }}"));
    step["exec"] = json!({"shellStreamArgs": args});
    inline(&step)
}

fn output(name: &str) -> String {
    let expect = json!({"shellStream": {"stdout": format!("{name}\n")}});
    format!("expect = {}", inline(&expect))
}

/// A command that is executed or answered from the record; the log decides which.
fn runs(name: &str) -> String {
    command(name, &output(name))
}

/// Starts a command that runs until it is stopped.
fn start_endless(name: &str) -> Steps {
    let args = json!({"command": format!("echo {name} >> log; echo {name}; exec sleep 600"),
        "workingDirectory": "$WS", "toolCallId": name, "timeout": 600_000});
    Steps::new().step(json!({"send": {"execServerMessage": {"id": 77, "shellStreamArgs": args}}}))
}

/// A command that runs until it is stopped.
fn endless(name: &str) -> String {
    let output = json!({"stdout": {"data": format!("{name}\n")}});
    start_endless(name)
        .step(json!({"expect_client": {"execClientMessage": {"id": 77, "shellStream": output}}}))
        .build()
}

/// The same command again, which must be answered with an error.
fn endless_again(name: &str) -> String {
    let throws = json!({"execClientControlMessage": {"throw": {"id": 77}}});
    start_endless(name)
        .step(json!({"expect_client": throws}))
        .build()
}

struct TestFolders {
    state: TempDir,
    workspace: TempDir,
}

impl TestFolders {
    fn new() -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
            workspace: tempfile::tempdir().unwrap(),
        }
    }

    fn env(&self) -> [(&str, &str); 3] {
        [
            ("PI_CURSOR_STATE_DIR", self.state.path().to_str().unwrap()),
            ("PI_CURSOR_HTTP", "2"),
            ("PATH", "/usr/bin:/bin"),
        ]
    }

    fn session(&self, simulator: &Simulator) -> RpcSession {
        let mut session = RpcSession::new(simulator, "s", &self.env());
        session.workspace = self.workspace.path().to_str().unwrap().into();
        session.tools = vec![tool("look"), tool("slow")];
        session
    }

    /// Kills the sidecar and continues with another one.
    fn killed(&self, mut session: RpcSession, simulator: &Simulator) -> RpcSession {
        session.host.kill();
        let mut later = session.moved_to(simulator, &self.env());
        later.cards.clone_from(&session.cards);
        later
    }

    /// Returns the names of the commands that were executed, in order.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.workspace.path().join("log"));
        log.unwrap_or_default().replace('\n', " ")
    }
}

#[track_caller]
fn called(outcome: &CollectedTurn) -> OfferedCall {
    assert_eq!(
        (outcome.stop.as_str(), outcome.calls.len()),
        ("toolUse", 1),
        "{outcome:?}"
    );
    outcome.calls[0].clone()
}

#[track_caller]
fn finished(outcome: &CollectedTurn, text: &str) {
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        (text, "stop"),
        "{outcome:?}"
    );
}

#[track_caller]
fn played(simulator: &Simulator) {
    let recording = simulator.recorded();
    let failures: Vec<String> = (recording.verdicts().iter())
        .flat_map(|verdict| verdict["failures"].as_array().unwrap())
        .map(Json::to_string)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A checkpoint includes the first command, the second one is interrupted, and the checkpoint is
/// abandoned: another conversation knows neither.
#[test]
fn a_command_in_an_abandoned_checkpoint_is_not_executed_again() {
    let between = [
        // The stream that is refused asks for the interrupted command, for another one, or for
        // nothing.
        endless_again("b"),
        runs("c"),
        READ.to_owned(),
    ];
    for saved in [SAVED.to_owned(), format!("{SAVED}, {SAVED}")] {
        for between in &between {
            let first = Steps::new()
                .context()
                .then(runs("a"))
                .text("Did it. ")
                .then(&saved)
                .then(endless("b"))
                .then(r#"{ end = { code = "unavailable", message = "later" } }"#)
                .build();
            let second = Steps::new().context().then(between).then(REFUSED).build();
            let third = Steps::new()
                .context()
                .then(command("a", "may_throw = \"executed\""))
                .then(endless_again("b"))
                .text("Done.")
                .then(END)
                .build();
            let simulator = in_any_conversation(&[&first, &second, &third]);
            let place = TestFolders::new();
            let mut session = place.session(&simulator);
            assert_eq!(session.prompt("go").stop, "error");
            for stop in ["error", "stop"] {
                session.messages.pop();
                let outcome = session.turn();
                assert_eq!(outcome.stop, stop, "{outcome:?}");
            }
            let others = if between.contains("echo c") { "c " } else { "" };
            assert_eq!(place.log(), format!("a b {others}"), "{saved}: {between}");
            played(&simulator);
        }
    }
}

/// The same after a kill: the checkpoint that is on disk includes the command, and the server
/// refuses it.
#[test]
fn a_command_in_a_stored_checkpoint_that_is_refused_is_not_executed_again() {
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .text("Did it. ")
        .then(SAVED)
        .then(SAVED)
        .then(calls("look", "{}", r#"open = true, name = "l","#, "{}"))
        .stall()
        .build();
    let second = Steps::new().context().then(REFUSED).build();
    let third = Steps::new()
        .context()
        .then(command("a", NOT_EXECUTED))
        .text("Done.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second, &third]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    let mut later = place.killed(session, &simulator);
    later.result(&call, json!("it says 42"));
    assert_eq!(later.turn().stop, "error");
    later.messages.pop();
    finished(&later.turn(), "Done.");
    assert_eq!(place.log(), "a ");
    played(&simulator);
}

/// A stream resumes from a checkpoint and asks again for what the checkpoint should include.
#[test]
fn a_call_in_two_checkpoints_is_answered_from_the_record_under_its_own_id() {
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .text("One. ")
        .then(SAVED)
        .then(SAVED)
        .then(runs("b"))
        .then(READ)
        .then(BROKEN)
        .build();
    let second = Steps::new()
        .context()
        .then(runs("a"))
        .then(runs("b"))
        .text("Two.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &second]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    finished(&session.prompt("go"), "One. Two.");
    assert_eq!(place.log(), "a b ");
    played(&simulator);
}

/// Results and a message arrive together; the run rejects the message, which gets a run of its own.
#[test]
fn effects_are_known_to_the_run_of_a_rejected_message() {
    for late in [
        "",
        r#"{ checkpoint = "late" }, "#,
        r#"{ checkpoint = { pendingToolCalls = ["call-look"] } }, "#,
    ] {
        for report in [REJECTED, NEXT_TURN] {
            let first = Steps::new()
                .context()
                .then(SAVED)
                .then(runs("a"))
                .then(calls("look", "{}", "", &text("it says 42")))
                .then(INJECTED)
                .then(report)
                .then(CANCELLED)
                .then(late)
                .end()
                .build();
            let second = Steps::new()
                .context()
                .then(command("a", "may_throw = \"executed\""))
                .then(calls(
                    "look",
                    "{}",
                    "may_throw = \"executed\",",
                    &text("it says 42"),
                ))
                .text("Done.")
                .then(END)
                .build();
            let simulator = attempts(&[&first, &second]);
            let place = TestFolders::new();
            let mut session = place.session(&simulator);
            let call = called(&session.prompt("go"));
            session.result(&call, json!("it says 42"));
            finished(&session.prompt("hurry"), "Done.");
            assert_eq!(place.log(), "a ", "{late}{report}");
            let sent = &user_messages(&simulator)[1];
            for part in ["it says 42", "hurry"] {
                assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
            }
            played(&simulator);
        }
    }
}

/// The server reports the end of the turn that it was asked to cancel. Its last checkpoint is older than
/// the command, although the model had continued when it arrived.
#[test]
fn effects_are_known_after_a_cancelled_turn_that_ends() {
    let first = Steps::new()
        .context()
        .then(SAVED)
        .then(runs("a"))
        .text("Hm. ")
        .then(r#"{ checkpoint = "late" }"#)
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(REJECTED)
        .then(CANCELLED)
        .usage()
        .end()
        .build();
    let again = command("a", "may_throw = \"executed\"")
        .replace(r#"toolCallId = "a""#, r#"toolCallId = "another""#);
    let second = Steps::new()
        .context()
        .then(again)
        .text("Done.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &second]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    session.result(&call, json!("it says 42"));
    finished(&session.prompt("hurry"), "Done.");
    assert_eq!(place.log(), "a ");
    played(&simulator);
}

/// The same, but the user stops the turn before the run reports on the message.
#[test]
fn effects_are_known_after_results_a_message_and_a_stop() {
    let first = Steps::new()
        .context()
        .then(SAVED)
        .then(runs("a"))
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(CANCELLED)
        .then(r#"{ checkpoint = "late" }"#)
        .end()
        .build();
    let second = Steps::new()
        .context()
        .then(command("a", "may_throw = \"executed\""))
        .then(calls(
            "look",
            "{}",
            "may_throw = \"executed\",",
            &text("it says 42"),
        ))
        .text("Done.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &second]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    session.result(&call, json!("it says 42"));
    session.user("hurry");
    let turn = session.begin();
    until(|| {
        let recording = simulator.recorded();
        let injected = recording.client("conversationAction.injectContextAction");
        (!injected.is_empty()).then_some(())
    });
    let cancel = json!({"turnId": turn});
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "stop", "method": "turn/cancel", "params": cancel}));
    assert_eq!(session.finish(&turn).stop, "aborted");
    finished(&session.prompt("go on"), "Done.");
    assert_eq!(place.log(), "a ");
    let sent = &user_messages(&simulator)[1];
    for part in ["it says 42", "hurry", "go on"] {
        assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
    }
    played(&simulator);
}

/// The run puts the message off while the host executes the next call; the result is kept.
#[test]
fn a_result_that_returns_after_a_queued_message_is_kept() {
    let place = TestFolders::new();
    let parked = place.state.path().join("parked");
    let pending = r#"{ checkpoint = { pendingToolCalls = ["call-slow"] } }, { end = true }"#;
    let first = Steps::new()
        .context()
        .then(SAVED)
        .then(calls("look", "{}", "", &text("it says 42")))
        .then(INJECTED)
        .then(calls("slow", "{}", r#"open = true, name = "s","#, "{}"))
        .step(json!({"expect_file": parked}))
        .then(NEXT_TURN)
        .then(READ)
        .then(CANCELLED)
        .then(pending)
        .build();
    let second = Steps::new()
        .context()
        .then(calls(
            "slow",
            "{}",
            "may_throw = \"executed\",",
            &text("slow result"),
        ))
        .text("Done.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &second]);
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    session.result(&call, json!("it says 42"));
    session.user("hurry");
    let call = called(&session.turn());
    assert_eq!(call.name, "slow");
    std::fs::write(&parked, "").unwrap();
    // The report has arrived when the client has answered what follows it.
    until(|| {
        let recording = simulator.recorded();
        (!recording.client("kvClientMessage.setBlobResult").is_empty()).then_some(())
    });
    session.result(&call, json!("slow result"));
    finished(&session.turn(), "Done.");
    let sent = &user_messages(&simulator)[1];
    for part in ["slow result", "hurry"] {
        assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
    }
    played(&simulator);
}

/// The host compacts its history between two turns of one prompt, or closes the session.
#[test]
fn effects_are_remembered_when_the_session_is_invalidated_in_a_pause() {
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .text("Did it. ")
        .then(SAVED)
        .then(SAVED)
        .then(calls("look", "{}", r#"open = true, name = "l","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .context()
        .then(command("a", NOT_EXECUTED))
        .text("Done.")
        .then(END)
        .build();
    let third = Steps::new()
        .context()
        .then(runs("a"))
        .text("Again.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second, &third]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    let answer = session
        .host
        .call("session/invalidate", json!({"sessionId": "s"}));
    assert!(answer.get("error").is_none(), "{answer}");
    session.result(&call, json!("it says 42"));
    session.messages[0] = json!({"role": "compactionSummary", "summary": "The user said go.", "tokensBefore": 1000, "timestamp": 9});
    finished(&session.turn(), "Done.");
    assert_eq!(place.log(), "a ");
    // The prompt is answered: another one may want the same command.
    finished(&session.prompt("again"), "Again.");
    assert_eq!(place.log(), "a a ");
    played(&simulator);
}

/// The same, and the sidecar is killed before the next turn.
#[test]
fn effects_are_remembered_when_the_sidecar_is_killed_after_an_invalidation() {
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .then(calls("look", "{}", r#"open = true, name = "l","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .context()
        .then(command("a", NOT_EXECUTED))
        .text("Done.")
        .then(END)
        .build();
    let third = Steps::new()
        .context()
        .then(runs("a"))
        .text("Again.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second, &third]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    session
        .host
        .call("session/invalidate", json!({"sessionId": "s"}));
    let mut later = place.killed(session, &simulator);
    later.result(&call, json!("it says 42"));
    later.messages[0] = json!({"role": "compactionSummary", "summary": "The user said go.", "tokensBefore": 1000, "timestamp": 9});
    finished(&later.turn(), "Done.");
    assert_eq!(place.log(), "a ");
    finished(&later.prompt("again"), "Again.");
    assert_eq!(place.log(), "a a ");
    played(&simulator);
}

/// The checkpoint on disk includes the command, the server refuses it, the next conversation stores
/// a checkpoint of its own, and the sidecar is killed: that checkpoint does not include the command.
#[test]
fn effects_are_remembered_when_another_conversation_has_stored_its_checkpoint() {
    let looks = |name: &str| {
        calls(
            "look",
            "{}",
            &format!(r#"open = true, name = "{name}","#),
            "{}",
        )
    };
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .text("Did it. ")
        .then(SAVED)
        .then(SAVED)
        .then(looks("l"))
        .stall()
        .build();
    let second = Steps::new().context().then(REFUSED).build();
    let third = Steps::new()
        .context()
        .then(SAVED)
        .then(looks("m"))
        .stall()
        .build();
    let fourth = Steps::new()
        .context()
        .then(command("a", NOT_EXECUTED))
        .text("Done.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second, &third, &fourth]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    session.result(&call, json!("it says 42"));
    let mut later = place.killed(session, &simulator);
    assert_eq!(later.turn().stop, "error");
    later.messages.pop();
    let call = called(&later.turn());
    let mut last = place.killed(later, &simulator);
    last.result(&call, json!("it says 43"));
    finished(&last.turn(), "Done.");
    assert_eq!(place.log(), "a ");
    played(&simulator);
}

#[test]
fn effects_are_remembered_when_the_session_is_closed_in_a_pause() {
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .then(calls("look", "{}", r#"open = true, name = "l","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .context()
        .then(command("a", NOT_EXECUTED))
        .text("Done.")
        .then(END)
        .build();
    let simulator = in_any_conversation(&[&first, &second]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let call = called(&session.prompt("go"));
    let answer = session
        .host
        .call("session/close", json!({"sessionId": "s"}));
    assert!(answer.get("error").is_none(), "{answer}");
    session.result(&call, json!("it says 42"));
    finished(&session.turn(), "Done.");
    assert_eq!(place.log(), "a ");
    played(&simulator);
}

#[test]
fn a_displayed_card_keeps_its_result_when_the_session_is_invalidated_or_closed() {
    for method in ["session/invalidate", "session/close"] {
        card_keeps_its_result(method);
    }
}

fn card_keeps_its_result(method: &str) {
    let card = r#"{ update = { toolCallCompleted = { callId = "r", toolCall = { readToolCall = { args = { path = "r" }, result = { success = { content = "recorded" } } } } } } }"#;
    let simulator = attempts(&[&format!("{card}, {READ}, {{ stall = true }}")]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    session.cards = vec!["read"];
    let call = called(&session.prompt("go"));
    session.host.call(method, json!({"sessionId": "s"}));
    let params = json!({"sessionId": "s", "callId": call.id});
    let recorded = session.host.call("replay/result", params);
    let content = &recorded["result"]["content"][0]["text"];
    assert_eq!(content, "recorded", "{recorded}");
}

/// Returns the log of started commands of the only session.
fn intent_log(state: &Path) -> std::path::PathBuf {
    let mut sessions = std::fs::read_dir(state.join("conversations")).unwrap();
    sessions.next().unwrap().unwrap().path().join("begun")
}

/// A log that cannot be read may have named anything.
#[test]
fn with_an_unreadable_log_every_command_may_have_run() {
    let damages: [fn(&Path); 3] = [
        |path| std::fs::write(path, "").unwrap(),
        |path| std::fs::write(path, b"\xff\xfe damaged").unwrap(),
        |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let first = Steps::new().context().then(runs("a")).stall().build();
        let second = Steps::new()
            .context()
            .then(command("a", NOT_EXECUTED))
            .then(runs("a"))
            .text("Done.")
            .then(END)
            .build();
        let third = Steps::new()
            .context()
            .then(runs("b"))
            .text("Again.")
            .then(END)
            .build();
        let simulator = in_any_conversation(&[&first, &second, &third]);
        let place = TestFolders::new();
        let mut session = place.session(&simulator);
        session.user("go");
        session.begin();
        until(|| (place.log() == "a ").then_some(()));
        let mut later = {
            session.host.kill();
            damage(&intent_log(place.state.path()));
            session.moved_to(&simulator, &place.env())
        };
        finished(&later.turn(), "Done.");
        assert_eq!(place.log(), "a a ", "asked once: {number}");
        finished(&later.prompt("more"), "Again.");
        played(&simulator);
    }
}

/// Takes the write permission of a folder and everything in it, or returns it.
fn set_writable(path: &Path, writable: bool) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = path.is_dir();
    let mode = match (folder, writable) {
        (true, true) => 0o700,
        (true, false) => 0o500,
        (false, true) => 0o600,
        (false, false) => 0o400,
    };
    let set = || std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    if writable {
        set();
    }
    if folder {
        for entry in std::fs::read_dir(path).unwrap() {
            set_writable(&entry.unwrap().path(), writable);
        }
    }
    if !writable {
        set();
    }
}

/// The sidecar ends in a pause, and its folder cannot be written when the next one starts.
#[test]
fn a_state_folder_that_cannot_be_written_is_read() {
    let first = Steps::new()
        .context()
        .then(runs("a"))
        .text("Did it. ")
        .then(SAVED)
        .then(SAVED)
        .then(calls("look", "{}", r#"open = true, name = "l","#, "{}"))
        .stall()
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Done.")
        .then(END)
        .build();
    let simulator = attempts(&[&first, &second]);
    let folder = tempfile::tempdir().unwrap();
    let (state, workspace) = (folder.path().join("state"), folder.path().join("work"));
    for made in [&state, &workspace] {
        std::fs::create_dir(made).unwrap();
    }
    set_writable(&state, true);
    let env = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
        ("PI_CURSOR_HTTP", "2"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let start = |messages: Vec<Json>| {
        let host = SidecarProcess::started_by(unprivileged(folder.path()), &env);
        let mut session = RpcSession::on(host, "s");
        session.workspace = workspace.to_str().unwrap().into();
        session.tools = vec![tool("look")];
        session.messages = messages;
        session
    };
    let mut session = start(Vec::new());
    let call = called(&session.prompt("go"));
    let messages = session.messages.clone();
    session.host.exits();
    let mut later = start(messages);
    set_writable(&state, false);
    later.result(&call, json!("it says 42"));
    let outcome = later.turn();
    set_writable(&state, true);
    finished(&outcome, "Done.");
    assert_eq!(outcome.notices.len(), 1, "{:?}", outcome.notices);
    played(&simulator);
}

/// An inline host: the stream falls silent after a checkpoint from before the result, and the
/// message that asks the model to continue has the result too.
#[test]
fn results_are_sent_with_the_text_when_a_silent_stream_is_restarted() {
    let first = Steps::new()
        .context()
        .text("Looking. ")
        .then(runs("a"))
        .then(r#"{ checkpoint = "late" }"#)
        .text("It says ")
        .stall()
        .build();
    let second = Steps::new().context().text("42.").then(END).build();
    let simulator = attempts(&[&first, &second]);
    let place = TestFolders::new();
    let mut session = place.session(&simulator);
    let env = [
        &[
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
            ("CURSOR_API_KEY", "crsr_test"),
            ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1000"),
        ],
        &place.env()[..],
    ];
    session.host = SidecarProcess::start(&env.concat());
    let params = json!({"protocolVersion": 1, "nativeTools": {"default": "local"},
        "host": {"name": "test"}, "capabilities": {"tools": "inline"}});
    session.host.call("initialize", params);
    finished(&session.prompt("go"), "Looking. It says 42.");
    let sent = &user_messages(&simulator)[1];
    assert!(sent.contains("It says"), "{sent}");
    assert!(sent.contains("Result:\na\n"), "{sent}");
    assert_eq!(place.log(), "a ");
    played(&simulator);
}
