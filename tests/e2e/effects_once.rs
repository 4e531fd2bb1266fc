//! A command or a host tool that was executed is not executed again because a checkpoint, a stream
//! or a conversation is given up: it is answered from the record, or with the question whether it
//! may have run.

use std::io::Write as _;
use std::path::Path;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::confinement::unprivileged;
use crate::steering::INJECTED;
use test_support::in_process::said;
use test_support::rpc_session::{RpcSession, ToolCall, TurnOutcome, tool};
use test_support::scenario::{END, calls, script, text};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;

const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";
/// The client's response proves that it has read everything before it.
const READ: &str = r#"{ kv_set = { text = "read this far" } }"#;
const SAVED: &str = r#"{ checkpoint = "auto" }"#;
/// The server refuses the request, so the checkpoint is not used again.
const REFUSED: &str = r#"{ end = { code = "permission_denied", message = "no" } }"#;
const BROKEN: &str = r#"{ reset = "internal_error" }"#;
/// The run does not accept an injected message.
const REJECTED: &str = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { rejected = { reason = "no" } } } } }"#;
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
        .map(|request| said(&request["runRequest"]))
        .collect()
}

/// A command that appends its name to `log` and returns it.
fn command(name: &str, options: &str) -> String {
    format!(
        r#"{{ exec = {{ shellStreamArgs = {{ command = "echo {name} | tee -a log", workingDirectory = "$WS", toolCallId = "{name}", timeout = 10000 }} }}, {options} }}"#
    )
}

fn output(name: &str) -> String {
    format!(r#"expect = {{ shellStream = {{ stdout = "{name}\n" }} }}"#)
}

/// A command that is executed or answered from the record; the log decides which.
fn runs(name: &str) -> String {
    command(name, &output(name))
}

/// A command that runs until it is stopped.
fn endless(name: &str) -> String {
    let start = format!(
        r#"{{ send = {{ execServerMessage = {{ id = 77, shellStreamArgs = {{ command = "echo {name} | tee -a log; exec sleep 600", workingDirectory = "$WS", toolCallId = "{name}", timeout = 600000 }} }} }} }}"#
    );
    let begun = format!(
        r#"{{ expect_client = {{ execClientMessage = {{ id = 77, shellStream = {{ stdout = {{ data = "{name}\n" }} }} }} }} }}"#
    );
    format!("{start}, {begun}")
}

/// The same command again, which must be answered with an error.
fn endless_again(name: &str) -> String {
    let throws = r#"{ expect_client = { execClientControlMessage = { throw = { id = 77 } } } }"#;
    let (start, _) = endless(name)
        .rsplit_once(", { expect_client")
        .map(|(start, rest)| (start.to_owned(), rest.to_owned()))
        .unwrap();
    format!("{start}, {throws}")
}

struct Place {
    state: TempDir,
    workspace: TempDir,
}

impl Place {
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

    fn talk(&self, simulator: &Simulator) -> RpcSession {
        let mut talk = RpcSession::new(simulator, "s", &self.env());
        talk.workspace = self.workspace.path().to_str().unwrap().into();
        talk.tools = vec![tool("look"), tool("slow")];
        talk
    }

    /// Kills the sidecar and continues with another one.
    fn killed(&self, mut talk: RpcSession, simulator: &Simulator) -> RpcSession {
        talk.host.kill();
        let mut later = talk.moved_to(simulator, &self.env());
        later.cards.clone_from(&talk.cards);
        later
    }

    /// Returns the names of the commands that were executed, in order.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.workspace.path().join("log"));
        log.unwrap_or_default().replace('\n', " ")
    }
}

#[track_caller]
fn called(taken: &TurnOutcome) -> ToolCall {
    assert_eq!(
        (taken.stop.as_str(), taken.calls.len()),
        ("toolUse", 1),
        "{taken:?}"
    );
    taken.calls[0].clone()
}

#[track_caller]
fn finished(taken: &TurnOutcome, text: &str) {
    assert_eq!(
        (taken.text.as_str(), taken.stop.as_str()),
        (text, "stop"),
        "{taken:?}"
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
/// given up: another conversation knows neither.
#[test]
fn a_command_in_a_checkpoint_that_is_given_up_is_not_executed_again() {
    let between = [
        // The stream that is refused asks for the interrupted command, for another one, or for
        // nothing.
        endless_again("b"),
        runs("c"),
        READ.to_owned(),
    ];
    for saved in [SAVED.to_owned(), format!("{SAVED}, {SAVED}")] {
        for between in &between {
            let first = format!(
                r#"{CONTEXT}, {}, {{ text = "Did it. " }}, {saved}, {}, {{ end = {{ code = "unavailable", message = "later" }} }}"#,
                runs("a"),
                endless("b"),
            );
            let second = format!("{CONTEXT}, {between}, {REFUSED}");
            let third = format!(
                r#"{CONTEXT}, {}, {}, {{ text = "Done." }}, {END}"#,
                command("a", "may_throw = \"executed\""),
                endless_again("b"),
            );
            let simulator = in_any_conversation(&[&first, &second, &third]);
            let place = Place::new();
            let mut talk = place.talk(&simulator);
            assert_eq!(talk.prompt("go").stop, "error");
            for stop in ["error", "stop"] {
                talk.messages.pop();
                let taken = talk.turn();
                assert_eq!(taken.stop, stop, "{taken:?}");
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
    let first = format!(
        r#"{CONTEXT}, {}, {{ text = "Did it. " }}, {SAVED}, {SAVED}, {}, {{ stall = true }}"#,
        runs("a"),
        calls("look", "{}", r#"open = true, name = "l","#, "{}"),
    );
    let second = format!("{CONTEXT}, {REFUSED}");
    let third = format!(
        r#"{CONTEXT}, {}, {{ text = "Done." }}, {END}"#,
        command("a", NOT_EXECUTED),
    );
    let simulator = in_any_conversation(&[&first, &second, &third]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    let mut later = place.killed(talk, &simulator);
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
    let first = format!(
        r#"{CONTEXT}, {}, {{ text = "One. " }}, {SAVED}, {SAVED}, {}, {READ}, {BROKEN}"#,
        runs("a"),
        runs("b"),
    );
    let second = format!(
        r#"{CONTEXT}, {}, {}, {{ text = "Two." }}, {END}"#,
        runs("a"),
        runs("b"),
    );
    let simulator = attempts(&[&first, &second]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    finished(&talk.prompt("go"), "One. Two.");
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
            let first = format!(
                r#"{CONTEXT}, {SAVED}, {}, {}, {INJECTED}, {report}, {CANCELLED}, {late}{{ end = true }}"#,
                runs("a"),
                calls("look", "{}", "", &text("it says 42")),
            );
            let second = format!(
                r#"{CONTEXT}, {}, {}, {{ text = "Done." }}, {END}"#,
                command("a", "may_throw = \"executed\""),
                calls(
                    "look",
                    "{}",
                    "may_throw = \"executed\",",
                    &text("it says 42")
                ),
            );
            let simulator = attempts(&[&first, &second]);
            let place = Place::new();
            let mut talk = place.talk(&simulator);
            let call = called(&talk.prompt("go"));
            talk.result(&call, json!("it says 42"));
            finished(&talk.prompt("hurry"), "Done.");
            assert_eq!(place.log(), "a ", "{late}{report}");
            let sent = &user_messages(&simulator)[1];
            for part in ["it says 42", "hurry"] {
                assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
            }
            played(&simulator);
        }
    }
}

/// The same, but the user stops the turn before the run reports on the message.
#[test]
fn effects_are_known_after_results_a_message_and_a_stop() {
    let first = format!(
        r#"{CONTEXT}, {SAVED}, {}, {}, {INJECTED}, {CANCELLED}, {{ checkpoint = "late" }}, {{ end = true }}"#,
        runs("a"),
        calls("look", "{}", "", &text("it says 42")),
    );
    let second = format!(
        r#"{CONTEXT}, {}, {}, {{ text = "Done." }}, {END}"#,
        command("a", "may_throw = \"executed\""),
        calls(
            "look",
            "{}",
            "may_throw = \"executed\",",
            &text("it says 42")
        ),
    );
    let simulator = attempts(&[&first, &second]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    talk.result(&call, json!("it says 42"));
    talk.user("hurry");
    let turn = talk.begin();
    until(|| {
        let recording = simulator.recorded();
        let injected = recording.client("conversationAction.injectContextAction");
        (!injected.is_empty()).then_some(())
    });
    let cancel = json!({"turnId": turn});
    talk.host
        .send(&json!({"jsonrpc": "2.0", "id": "stop", "method": "turn/cancel", "params": cancel}));
    assert_eq!(talk.finish(&turn).stop, "aborted");
    finished(&talk.prompt("go on"), "Done.");
    assert_eq!(place.log(), "a ");
    let sent = &user_messages(&simulator)[1];
    for part in ["it says 42", "hurry", "go on"] {
        assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
    }
    played(&simulator);
}

/// The run puts the message off while the host executes the next call; the result is kept.
#[test]
fn a_result_that_returns_after_a_message_was_put_off_is_kept() {
    let place = Place::new();
    let parked = place.state.path().join("parked");
    let pending = r#"{ checkpoint = { pendingToolCalls = ["call-slow"] } }, { end = true }"#;
    let first = format!(
        r#"{CONTEXT}, {SAVED}, {}, {INJECTED}, {}, {{ expect_file = "{}" }}, {NEXT_TURN}, {READ}, {CANCELLED}, {pending}"#,
        calls("look", "{}", "", &text("it says 42")),
        calls("slow", "{}", r#"open = true, name = "s","#, "{}"),
        parked.display(),
    );
    let second = format!(
        r#"{CONTEXT}, {}, {{ text = "Done." }}, {END}"#,
        calls(
            "slow",
            "{}",
            "may_throw = \"executed\",",
            &text("slow result")
        ),
    );
    let simulator = attempts(&[&first, &second]);
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    talk.result(&call, json!("it says 42"));
    talk.user("hurry");
    let call = called(&talk.turn());
    assert_eq!(call.name, "slow");
    std::fs::write(&parked, "").unwrap();
    // The report has arrived when the client has answered what follows it.
    until(|| {
        let recording = simulator.recorded();
        (!recording.client("kvClientMessage.setBlobResult").is_empty()).then_some(())
    });
    talk.result(&call, json!("slow result"));
    finished(&talk.turn(), "Done.");
    let sent = &user_messages(&simulator)[1];
    for part in ["slow result", "hurry"] {
        assert_eq!(sent.matches(part).count(), 1, "{part}: {sent}");
    }
    played(&simulator);
}

/// The host compacts its history between two turns of one prompt, or closes the session.
#[test]
fn effects_are_remembered_when_the_session_is_invalidated_in_a_pause() {
    let first = format!(
        r#"{CONTEXT}, {}, {{ text = "Did it. " }}, {SAVED}, {SAVED}, {}, {{ stall = true }}"#,
        runs("a"),
        calls("look", "{}", r#"open = true, name = "l","#, "{}"),
    );
    let second = format!(
        r#"{CONTEXT}, {}, {{ text = "Done." }}, {END}"#,
        command("a", NOT_EXECUTED),
    );
    let third = format!(r#"{CONTEXT}, {}, {{ text = "Again." }}, {END}"#, runs("a"));
    let simulator = in_any_conversation(&[&first, &second, &third]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    let answer = talk
        .host
        .call("session/invalidate", json!({"sessionId": "s"}));
    assert!(answer.get("error").is_none(), "{answer}");
    talk.result(&call, json!("it says 42"));
    talk.messages[0] = json!({"role": "compactionSummary", "summary": "The user said go.", "tokensBefore": 1000, "timestamp": 9});
    finished(&talk.turn(), "Done.");
    assert_eq!(place.log(), "a ");
    // The prompt is answered: another one may want the same command.
    finished(&talk.prompt("again"), "Again.");
    assert_eq!(place.log(), "a a ");
    played(&simulator);
}

/// The same, and the sidecar is killed before the next turn.
#[test]
fn effects_are_remembered_when_the_sidecar_is_killed_after_an_invalidation() {
    let first = format!(
        r#"{CONTEXT}, {}, {}, {{ stall = true }}"#,
        runs("a"),
        calls("look", "{}", r#"open = true, name = "l","#, "{}"),
    );
    let second = format!(
        r#"{CONTEXT}, {}, {{ text = "Done." }}, {END}"#,
        command("a", NOT_EXECUTED),
    );
    let third = format!(r#"{CONTEXT}, {}, {{ text = "Again." }}, {END}"#, runs("a"));
    let simulator = in_any_conversation(&[&first, &second, &third]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    talk.host
        .call("session/invalidate", json!({"sessionId": "s"}));
    let mut later = place.killed(talk, &simulator);
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
    let first = format!(
        r#"{CONTEXT}, {}, {{ text = "Did it. " }}, {SAVED}, {SAVED}, {}, {{ stall = true }}"#,
        runs("a"),
        looks("l"),
    );
    let second = format!("{CONTEXT}, {REFUSED}");
    let third = format!(r#"{CONTEXT}, {SAVED}, {}, {{ stall = true }}"#, looks("m"));
    let fourth = format!(
        r#"{CONTEXT}, {}, {{ text = "Done." }}, {END}"#,
        command("a", NOT_EXECUTED),
    );
    let simulator = in_any_conversation(&[&first, &second, &third, &fourth]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    talk.result(&call, json!("it says 42"));
    let mut later = place.killed(talk, &simulator);
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
    let first = format!(
        r#"{CONTEXT}, {}, {}, {{ stall = true }}"#,
        runs("a"),
        calls("look", "{}", r#"open = true, name = "l","#, "{}"),
    );
    let second = format!(
        r#"{CONTEXT}, {}, {{ text = "Done." }}, {END}"#,
        command("a", NOT_EXECUTED),
    );
    let simulator = in_any_conversation(&[&first, &second]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let call = called(&talk.prompt("go"));
    let answer = talk.host.call("session/close", json!({"sessionId": "s"}));
    assert!(answer.get("error").is_none(), "{answer}");
    talk.result(&call, json!("it says 42"));
    finished(&talk.turn(), "Done.");
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
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    talk.cards = vec!["read"];
    let call = called(&talk.prompt("go"));
    talk.host.call(method, json!({"sessionId": "s"}));
    let params = json!({"sessionId": "s", "callId": call.id});
    let recorded = talk.host.call("replay/result", params);
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
        let first = format!("{CONTEXT}, {}, {{ stall = true }}", runs("a"));
        let second = format!(
            r#"{CONTEXT}, {}, {}, {{ text = "Done." }}, {END}"#,
            command("a", NOT_EXECUTED),
            runs("a"),
        );
        let third = format!(r#"{CONTEXT}, {}, {{ text = "Again." }}, {END}"#, runs("b"));
        let simulator = in_any_conversation(&[&first, &second, &third]);
        let place = Place::new();
        let mut talk = place.talk(&simulator);
        talk.user("go");
        talk.begin();
        until(|| (place.log() == "a ").then_some(()));
        let mut later = {
            talk.host.kill();
            damage(&intent_log(place.state.path()));
            talk.moved_to(&simulator, &place.env())
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
    let first = format!(
        r#"{CONTEXT}, {}, {{ text = "Did it. " }}, {SAVED}, {SAVED}, {}, {{ stall = true }}"#,
        runs("a"),
        calls("look", "{}", r#"open = true, name = "l","#, "{}"),
    );
    let second = format!(r#"{{ expect_state = "last checkpoint" }}, {{ text = "Done." }}, {END}"#);
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
        let mut talk = RpcSession::on(host, "s");
        talk.workspace = workspace.to_str().unwrap().into();
        talk.tools = vec![tool("look")];
        talk.messages = messages;
        talk
    };
    let mut talk = start(Vec::new());
    let call = called(&talk.prompt("go"));
    let messages = talk.messages.clone();
    talk.host.exits();
    let mut later = start(messages);
    set_writable(&state, false);
    later.result(&call, json!("it says 42"));
    let taken = later.turn();
    set_writable(&state, true);
    finished(&taken, "Done.");
    assert_eq!(taken.notices.len(), 1, "{:?}", taken.notices);
    played(&simulator);
}

/// An inline host: the stream falls silent after a checkpoint from before the result, and the
/// message that asks the model to continue has the result too.
#[test]
fn results_are_sent_with_the_text_when_a_silent_stream_is_restarted() {
    let first = format!(
        r#"{CONTEXT}, {{ text = "Looking. " }}, {}, {{ checkpoint = "late" }}, {{ text = "It says " }}, {{ stall = true }}"#,
        runs("a"),
    );
    let second = format!(r#"{CONTEXT}, {{ text = "42." }}, {END}"#);
    let simulator = attempts(&[&first, &second]);
    let place = Place::new();
    let mut talk = place.talk(&simulator);
    let env = [
        &[
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
            ("CURSOR_API_KEY", "crsr_test"),
            ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1000"),
        ],
        &place.env()[..],
    ];
    talk.host = SidecarProcess::start(&env.concat());
    let params = json!({"protocolVersion": 1, "nativeTools": {"default": "local"},
        "host": {"name": "test"}, "capabilities": {"tools": "inline"}});
    talk.host.call("initialize", params);
    finished(&talk.prompt("go"), "Looking. It says 42.");
    let sent = &user_messages(&simulator)[1];
    assert!(sent.contains("It says"), "{sent}");
    assert!(sent.contains("Result:\na\n"), "{sent}");
    assert_eq!(place.log(), "a ");
    played(&simulator);
}
