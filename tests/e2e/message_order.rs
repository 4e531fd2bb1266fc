//! A request sees the effects of the request sent before it, even if both arrive at once.

use serde_json::{Value as Json, json};

use test_support::in_process::END;
use test_support::rpc_session::RpcSession;
use test_support::scenario::{Steps, playing, script};
use test_support::simulator::Transport;
use test_support::wait::until;

const WORDS: usize = 2 * 1024 * 1024;

fn request(id: &str, method: &str, params: &Json) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Adds a history that takes long to read to the session.
fn long(session: &mut RpcSession) {
    session.user(&"x".repeat(WORDS));
    let at = session.messages.len() + 1;
    session
        .messages
        .push(json!({"role": "assistant", "content": "ok", "timestamp": at}));
    session.user("go");
}

/// If a run has started anyway, it is drained for six more seconds and must execute nothing.
#[test]
fn a_cancel_reaches_the_turn_requested_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let [ghost, cancelled] = ["ghost", "cancelled"].map(|name| folder.path().join(name));
    let steps = Steps::new()
        .step(json!({"expect_file": cancelled.display().to_string()}))
        .step(json!({
            "exec": {
                "shellArgs": {
                    "command": format!("touch {}", ghost.display()),
                    "workingDirectory": (folder.path().display()).to_string(),
                    "timeout": 5000,
                    "toolCallId": "c",
                    "skipApproval": true,
                    "parsingResult": {},
                },
            },
            "may_throw": "",
        }))
        .text("done")
        .then(END)
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.workspace = folder.path().to_str().unwrap().into();
    long(&mut session);
    for round in 0..5 {
        session.id = format!("s{round}");
        let params = session.params();
        let cancel = json!({"turnId": params["turnId"]});
        session.host.send_all(&[
            request("start", "turn/start", &params),
            request("cancel", "turn/cancel", &cancel),
        ]);
        let answers = session.host.answers(2);
        assert_eq!(answers["cancel"]["result"]["found"], true, "{round}");
        assert_eq!(answers["start"]["result"]["stopReason"], "aborted");
    }
    std::fs::write(&cancelled, "").unwrap();
    until(|| {
        let recording = simulator.recorded();
        (recording.verdicts().len() == recording.runs()).then_some(())
    });
    assert!(!ghost.exists(), "a run that was cancelled did something");
    // In a turn that is not cancelled, the command does run.
    session.id = "last".into();
    assert_eq!(session.turn().stop, "stop");
    assert!(ghost.exists());
}

#[test]
fn a_message_reaches_the_turn_requested_before_it() {
    let steps = Steps::new().text("Heard.").delay_ms(300).then(END).build();
    let simulator = playing(Transport::Http1, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    long(&mut session);
    for round in 0..5 {
        session.id = format!("s{round}");
        let params = session.params();
        let words = json!({"turnId": params["turnId"], "text": "hurry"});
        session.host.send_all(&[
            request("start", "turn/start", &params),
            request("words", "turn/inject", &words),
        ]);
        let answers = session.host.answers(2);
        assert_eq!(answers["words"]["result"]["taken"], true, "{round}");
    }
}

/// The turn that accepted the message never started, so the next turn sends it.
#[test]
fn a_message_of_a_turn_that_fails_is_sent_in_the_next() {
    let simulator = script(&[&Steps::new().text("Heard.").delay_ms(300).then(END).build()]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.user("go");
    let mut params = session.params();
    params["model"]["id"] = json!("no-such-model");
    let words = json!({"turnId": params["turnId"], "text": "hurry"});
    session.host.send_all(&[
        request("start", "turn/start", &params),
        request("words", "turn/inject", &words),
    ]);
    let answers = session.host.answers(2);
    assert_eq!(answers["words"]["result"]["taken"], true, "{answers:?}");
    assert_eq!(answers["start"]["result"]["stopReason"], "error");
    assert_eq!(session.turn().stop, "stop");
    let recording = simulator.recorded();
    let sent: String = recording
        .frames(1, "client")
        .iter()
        .map(|frame| frame["json"].to_string())
        .collect();
    assert_eq!(sent.matches("hurry").count(), 1, "{sent}");
}

/// A turn, an invalidation of its session and the next turn are sent at once.
#[test]
fn an_invalidation_between_two_turns_lasts() {
    let steps = Steps::new().text("Heard.").then(END).build();
    let simulator = script(&[&steps]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    for round in 0..5 {
        session.id = format!("s{round}");
        session.messages.clear();
        session.user("one");
        let one = session.params();
        let at = session.messages.len() + 1;
        session
            .messages
            .push(json!({"role": "assistant", "content": "Heard.", "timestamp": at}));
        session.user("two");
        let two = session.params();
        let params = json!({"sessionId": session.id});
        session.host.send_all(&[
            request("one", "turn/start", &one),
            request("forget", "session/invalidate", &params),
            request("two", "turn/start", &two),
        ]);
        let answers = session.host.answers(3);
        for turn in ["one", "two"] {
            assert_eq!(answers[turn]["result"]["stopReason"], "stop", "{answers:?}");
        }
        let recording = simulator.recorded();
        let requests = recording.client("runRequest");
        let [.., one, two] = requests.as_slice() else {
            panic!("two runs")
        };
        let user_text = |request: &Json| {
            request["runRequest"]["action"]["userMessageAction"]["userMessage"]["text"].clone()
        };
        assert_eq!(
            (user_text(one), user_text(two)),
            (json!("one"), json!("two"))
        );
        let id = |request: &Json| request["runRequest"]["conversationId"].clone();
        assert_ne!(id(one), id(two), "sent again");
    }
}

/// The same for a session that this sidecar knows only from disk.
#[test]
fn an_invalidated_conversation_is_deleted_before_the_next_turn() {
    let steps = Steps::new().text("Heard.").then(END).build();
    let simulator = script(&[&steps]);
    let folder = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    for round in 0..3 {
        let mut session = RpcSession::new(&simulator, &format!("s{round}"), &env);
        session.prompt("one");
        session.user("two");
        let mut session = {
            let moved = session.moved_to(&simulator, &env);
            session.host.kill();
            moved
        };
        let two = session.params();
        let params = json!({"sessionId": session.id});
        session.host.send_all(&[
            request("forget", "session/invalidate", &params),
            request("two", "turn/start", &two),
        ]);
        let answers = session.host.answers(2);
        assert_eq!(
            answers["two"]["result"]["stopReason"], "stop",
            "{answers:?}"
        );
        let recording = simulator.recorded();
        let requests = recording.client("runRequest");
        let [.., one, two] = requests.as_slice() else {
            panic!("two runs")
        };
        let id = |request: &Json| request["runRequest"]["conversationId"].clone();
        assert_ne!(id(one), id(two), "sent again");
    }
}
