//! A command that the model repeats on purpose is not answered with an earlier result.

use serde_json::{Value as Json, json};

use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{END, Steps, calls, inline, script, text};

const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";
const CHECKPOINT: &str = r#"{ checkpoint = "auto" }"#;
/// The client answers this, so it has read everything sent before it.
const READ: &str = r#"{ kv_set = { text = "x" } }"#;
const BROKEN: &str = r#"{ reset = "internal_error" }"#;
/// A command whose output differs each time it runs.
fn asked() -> Json {
    json!({"command": "echo x >> log; wc -l < log", "workingDirectory": "$WS", "toolCallId": "c", "timeout": 10000})
}

fn gives(lines: u32) -> String {
    let expect = json!({"shellStream": {"stdout": format!("{lines}\n")}});
    inline(&json!({"exec": {"shellStreamArgs": asked()}, "expect": expect}))
}

fn known_output(lines: u32) -> String {
    let throws = format!("Its output was:\n\n{lines}\n");
    inline(&json!({"exec": {"shellStreamArgs": asked()}, "throws": throws}))
}

struct RepeatSession {
    session: RpcSession,
    state: tempfile::TempDir,
    workspace: tempfile::TempDir,
}

fn repeat_session(simulator: &test_support::simulator::Simulator) -> RepeatSession {
    let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut session = RpcSession::new(simulator, "repeated", &env(&state));
    session.tools = vec![tool("look")];
    session.workspace = workspace.path().to_str().unwrap().into();
    RepeatSession {
        session,
        state,
        workspace,
    }
}

fn env(state: &tempfile::TempDir) -> [(&'static str, &str); 3] {
    [
        ("PI_CURSOR_STATE_DIR", state.path().to_str().unwrap()),
        ("PI_CURSOR_HTTP", "2"),
        ("PATH", "/usr/bin:/bin"),
    ]
}

impl RepeatSession {
    fn runs(&self) -> usize {
        let log = std::fs::read_to_string(self.workspace.path().join("log")).unwrap();
        log.lines().count()
    }
}

/// The checkpoint was sent after output that followed the result, so it may include the result, and
/// the model may repeat the command on purpose.
#[test]
fn a_result_the_stream_may_have_is_sent_before_its_output_counts() {
    let first = Steps::new()
        .then(CONTEXT)
        .then(gives(1))
        .step(json!({"thinking": "Hm."}))
        .then(CHECKPOINT)
        .then(READ)
        .then(BROKEN)
        .build();
    let again = Steps::new()
        .then(CONTEXT)
        .then(known_output(1))
        .then(gives(2))
        .then(gives(3))
        .text("Done.")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let mut repeat_session = repeat_session(&simulator);
    let outcome = repeat_session.session.prompt("go");
    assert_eq!((outcome.text.as_str(), repeat_session.runs()), ("Done.", 3));
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

/// The new run receives the result of a later host tool call, so it is past the first command.
#[test]
fn a_run_that_requested_a_later_call_is_past_the_earlier_one() {
    for state in [r#"{ text = "Hm." }, { checkpoint = "auto" },"#, ""] {
        let first = format!(
            "{CONTEXT}, {}, {state} {}, {BROKEN}",
            gives(1),
            calls("look", "{}", "", &text("seen"))
        );
        let again = Steps::new()
            .then(CONTEXT)
            .then(known_output(1))
            .then(gives(2))
            .text("Done.")
            .then(END)
            .build();
        let simulator = script(&[&first, &again]);
        let mut repeat_session = repeat_session(&simulator);
        let outcome = repeat_session.session.prompt("go");
        assert_eq!(outcome.stop, "toolUse", "{state}: {outcome:?}");
        repeat_session
            .session
            .result(&outcome.calls[0], json!([{"type": "text", "text": "seen"}]));
        let outcome = repeat_session.session.turn();
        assert_eq!(
            (outcome.text.as_str(), repeat_session.runs()),
            ("Done.", 2),
            "{state}"
        );
    }
}

/// The same sidecar handles the next turn, so the result of the command is known.
#[test]
fn a_message_after_a_failed_turn_may_retry_it() {
    let first = Steps::new()
        .then(CONTEXT)
        .then(gives(1))
        .text("Hm.")
        .then(CHECKPOINT)
        .step(json!({
            "end": {"code": "resource_exhausted", "message": "You have reached your usage limit"},
        }))
        .build();
    let again = Steps::new()
        .then(CONTEXT)
        .then(known_output(1))
        .then(gives(2))
        .text("Done.")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let mut repeat_session = repeat_session(&simulator);
    assert_eq!(repeat_session.session.prompt("go").stop, "error");
    let outcome = repeat_session.session.prompt("run it again");
    assert_eq!((outcome.text.as_str(), repeat_session.runs()), ("Done.", 2));
}

/// If the sidecar exits or is killed in a pause, a repeated command that the checkpoint on disk
/// includes is executed.
#[test]
fn a_stored_checkpoint_that_has_the_results_is_continued() {
    for killed in [false, true] {
        let first = Steps::new()
            .then(CONTEXT)
            .then(gives(1))
            .text("Hm. ")
            .then(CHECKPOINT)
            .text("So.")
            .then(CHECKPOINT)
            .then(calls(
                "look",
                "{}",
                "open = true, name = \"a\",",
                &text("seen"),
            ))
            .step(json!({"expect_cancel": true}))
            .build();
        let again = Steps::new()
            .then(CONTEXT)
            .then(gives(2))
            .text("Done.")
            .then(END)
            .build();
        let (first, again) = (script(&[&first]), script(&[&again]));
        let RepeatSession {
            mut session,
            state,
            workspace,
        } = repeat_session(&first);
        let outcome = session.prompt("go");
        assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
        session.result(&outcome.calls[0], json!([{"type": "text", "text": "seen"}]));
        let later = session.moved_to(&again, &env(&state));
        if killed {
            session.host.kill();
        } else {
            session.host.exits();
        }
        let mut repeat_session = RepeatSession {
            session: later,
            state,
            workspace,
        };
        let outcome = repeat_session.session.turn();
        assert_eq!(
            (outcome.text.as_str(), repeat_session.runs()),
            ("Done.", 2),
            "{outcome:?}"
        );
        assert!(repeat_session.state.path().exists());
    }
}
