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
fn long(talk: &mut RpcSession) {
    talk.user(&"x".repeat(WORDS));
    let at = talk.messages.len() + 1;
    talk.messages
        .push(json!({"role": "assistant", "content": "ok", "timestamp": at}));
    talk.user("go");
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
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    talk.workspace = folder.path().to_str().unwrap().into();
    long(&mut talk);
    for round in 0..5 {
        talk.session = format!("s{round}");
        let params = talk.params();
        let cancel = json!({"turnId": params["turnId"]});
        talk.host.send_all(&[
            request("start", "turn/start", &params),
            request("cancel", "turn/cancel", &cancel),
        ]);
        let answers = talk.host.answers(2);
        assert_eq!(answers["cancel"]["result"]["found"], true, "{round}");
        assert_eq!(answers["start"]["result"]["stopReason"], "aborted");
    }
    std::fs::write(&cancelled, "").unwrap();
    until(|| {
        let recording = simulator.recorded();
        (recording.verdicts().len() == recording.runs()).then_some(())
    });
    assert!(!ghost.exists(), "a run that was given up did something");
    // In a turn that is not cancelled, the command does run.
    talk.session = "last".into();
    assert_eq!(talk.turn().stop, "stop");
    assert!(ghost.exists());
}

#[test]
fn a_message_reaches_the_turn_requested_before_it() {
    let steps = Steps::new().text("Heard.").delay_ms(300).then(END).build();
    let simulator = playing(Transport::Http1, &steps);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    long(&mut talk);
    for round in 0..5 {
        talk.session = format!("s{round}");
        let params = talk.params();
        let words = json!({"turnId": params["turnId"], "text": "hurry"});
        talk.host.send_all(&[
            request("start", "turn/start", &params),
            request("words", "turn/inject", &words),
        ]);
        let answers = talk.host.answers(2);
        assert_eq!(answers["words"]["result"]["taken"], true, "{round}");
    }
}

/// The turn that accepted the message never started, so the next turn sends it.
#[test]
fn a_message_of_a_turn_that_fails_is_sent_in_the_next() {
    let simulator = script(&[&Steps::new().text("Heard.").delay_ms(300).then(END).build()]);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    talk.user("go");
    let mut params = talk.params();
    params["model"]["id"] = json!("no-such-model");
    let words = json!({"turnId": params["turnId"], "text": "hurry"});
    talk.host.send_all(&[
        request("start", "turn/start", &params),
        request("words", "turn/inject", &words),
    ]);
    let answers = talk.host.answers(2);
    assert_eq!(answers["words"]["result"]["taken"], true, "{answers:?}");
    assert_eq!(answers["start"]["result"]["stopReason"], "error");
    assert_eq!(talk.turn().stop, "stop");
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
fn what_is_forgotten_stays_between_two_turns() {
    let steps = Steps::new().text("Heard.").then(END).build();
    let simulator = script(&[&steps]);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    for round in 0..5 {
        talk.session = format!("s{round}");
        talk.messages.clear();
        talk.user("one");
        let one = talk.params();
        let at = talk.messages.len() + 1;
        talk.messages
            .push(json!({"role": "assistant", "content": "Heard.", "timestamp": at}));
        talk.user("two");
        let two = talk.params();
        let session = json!({"sessionId": talk.session});
        talk.host.send_all(&[
            request("one", "turn/start", &one),
            request("forget", "session/invalidate", &session),
            request("two", "turn/start", &two),
        ]);
        let answers = talk.host.answers(3);
        for turn in ["one", "two"] {
            assert_eq!(answers[turn]["result"]["stopReason"], "stop", "{answers:?}");
        }
        let recording = simulator.recorded();
        let requests = recording.client("runRequest");
        let [.., one, two] = requests.as_slice() else {
            panic!("two runs")
        };
        let said = |request: &Json| {
            request["runRequest"]["action"]["userMessageAction"]["userMessage"]["text"].clone()
        };
        assert_eq!((said(one), said(two)), (json!("one"), json!("two")));
        let id = |request: &Json| request["runRequest"]["conversationId"].clone();
        assert_ne!(id(one), id(two), "told anew");
    }
}

/// The same for a session that this sidecar knows only from disk.
#[test]
fn what_is_forgotten_on_disk_is_forgotten_before_the_next_turn() {
    let steps = Steps::new().text("Heard.").then(END).build();
    let simulator = script(&[&steps]);
    let folder = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    for round in 0..3 {
        let mut talk = RpcSession::new(&simulator, &format!("s{round}"), &env);
        talk.prompt("one");
        talk.user("two");
        let mut talk = {
            let moved = talk.moved_to(&simulator, &env);
            talk.host.kill();
            moved
        };
        let two = talk.params();
        let session = json!({"sessionId": talk.session});
        talk.host.send_all(&[
            request("forget", "session/invalidate", &session),
            request("two", "turn/start", &two),
        ]);
        let answers = talk.host.answers(2);
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
        assert_ne!(id(one), id(two), "told anew");
    }
}
