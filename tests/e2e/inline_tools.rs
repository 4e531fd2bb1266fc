//! Hosts that execute their tools during the turn.

use serde_json::{Value as Json, json};

use test_support::pi_retry_rules::is_retryable;
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{END, Steps, calls, inline, playing, script, text, value};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};

fn session(simulator: &Simulator) -> RpcSession {
    kept(simulator, &[])
}

fn kept(simulator: &Simulator, env: &[(&str, &str)]) -> RpcSession {
    let mut session = RpcSession::new(simulator, "s", &[]);
    session.host = host(simulator, env);
    session.tools = vec![tool("a"), tool("b"), tool("c")];
    session
}

fn host(simulator: &Simulator, env: &[(&str, &str)]) -> SidecarProcess {
    let ours = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
    ];
    let mut host = SidecarProcess::start(&[&ours, env].concat());
    let params = json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "test"},
                        "capabilities": {"tools": "inline"}});
    host.call("initialize", params);
    host
}

/// Returns the next call the host is asked to execute.
fn called(session: &mut RpcSession) -> Json {
    loop {
        let message = session.host.receive();
        if message["method"] == "tool/call" {
            return message;
        }
    }
}

fn answer(session: &mut RpcSession, call: &Json, text: &str) {
    let result = json!({"content": [{"type": "text", "text": text}]});
    let answer = json!({"jsonrpc": "2.0", "id": call["id"], "result": result});
    session.host.send(&answer);
}

#[test]
fn parallel_calls_are_asked_for_at_once_and_answered_in_any_order() {
    let open = |name: &str| {
        let options = format!(r#"open = true, name = "{name}","#);
        calls(name, "{}", &options, &text(&name.to_uppercase()))
    };
    let steps = Steps::new()
        .then(open("a"))
        .then(open("b"))
        .then(open("c"))
        .wait_for(&["a", "b", "c"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = session(&simulator);
    session.user("go");
    let turn = session.begin();
    let asked: Vec<Json> = (0..3).map(|_| called(&mut session)).collect();
    for call in asked.iter().rev() {
        let name = call["params"]["name"].as_str().unwrap().to_uppercase();
        answer(&mut session, call, &name);
    }
    assert_eq!(session.finish(&turn).text, "Done.");
    simulator.recorded().assert_played(&["completed"]);
}

/// An error or a malformed result from the host is returned to Cursor as a tool error.
#[test]
fn errors_of_the_host_are_failures_of_the_tool() {
    let failed = |words: &str| {
        inline(&json!({
            "success": {
                "isError": true,
                "content": [{"text": {"text": {"$contains": words.to_string()}}}],
            },
        }))
    };
    let steps = Steps::new()
        .then(calls("a", "{}", "", &failed("it broke")))
        .then(calls("b", "{}", "", &failed("is not a tool result")))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = session(&simulator);
    session.user("go");
    let turn = session.begin();
    let call = called(&mut session);
    let error = json!({"code": -32000, "message": "it broke"});
    let id = &call["id"];
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    let call = called(&mut session);
    let id = &call["id"];
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": id, "result": "what?"}));
    assert_eq!(session.finish(&turn).text, "Done.");
    simulator.recorded().assert_played(&["completed"]);
}

/// Cancelling the turn cancels the host's open call and ends the turn.
#[test]
fn a_call_of_a_cancelled_turn_is_withdrawn() {
    let steps = Steps::new()
        .then(calls("a", "{}", r#"open = true, name = "a","#, "{}"))
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .checkpoint()
        .end()
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = session(&simulator);
    session.user("go");
    let turn = session.begin();
    let call = called(&mut session);
    let cancel = json!({"jsonrpc": "2.0", "id": "cancel", "method": "turn/cancel",
                        "params": {"turnId": turn}});
    session.host.send(&cancel);
    let (mut taken_back, mut stop) = (false, Json::Null);
    while !taken_back || stop.is_null() {
        let message = session.host.receive();
        taken_back |=
            message["method"] == "$/cancelRequest" && message["params"]["id"] == call["id"];
        if message["id"] == turn.as_str() {
            stop = message["result"]["stopReason"].clone();
        }
    }
    assert_eq!(stop, "aborted");
}

/// A message injected while the host executes reaches the run before the result.
#[test]
fn a_message_is_delivered_while_the_host_executes() {
    let steps = Steps::new()
        .then(calls("a", "{}", r#"open = true, name = "a","#, &text("A")))
        .step(json!({
            "expect_client": {
                "conversationAction": {"injectContextAction": {"userContext": {"userMessage": {"text": "hurry"}}}},
            },
            "capture": {"I": "/conversationAction/injectContextAction/injectionId"},
        }))
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .wait_for(&["a"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = session(&simulator);
    session.user("go");
    let turn = session.begin();
    let call = called(&mut session);
    let words = json!({"turnId": turn, "text": "hurry"});
    let outcome = session.host.call("turn/inject", words);
    assert_eq!(outcome["result"]["taken"], true, "{outcome}");
    answer(&mut session, &call, "A");
    assert_eq!(session.finish(&turn).text, "Done.");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1);
}

/// A call that is left open and one that is answered, followed by `then`.
fn broken_off(then: &str) -> String {
    Steps::new()
        .context()
        .checkpoint()
        .then(calls("a", "{}", r#"open = true, name = "a","#, "{}"))
        .then(calls("b", "{}", "", &text("B")))
        .then(then)
        .build()
}

fn asked(name: &str, expect: &str) -> String {
    let call = calls(name, "{}", "", "{}").replace("call-", "again-");
    let (call, _) = call.split_once("expect =").unwrap();
    format!("{call} {expect} }}")
}

fn answers(words: &str) -> String {
    let result = json!({"mcpResult": value(text(words))});
    format!("expect = {}", inline(&result))
}

const WARNED: &str = r#"throws = "Check its effects first""#;

/// Starts a turn, leaves its first call open, and answers the second.
fn begun(session: &mut RpcSession) -> String {
    session.user("go");
    let turn = session.begin();
    let (a, b) = (called(session), called(session));
    assert_eq!(
        (&a["params"]["name"], &b["params"]["name"]),
        (&json!("a"), &json!("b"))
    );
    answer(session, &b, "B");
    turn
}

/// The host's history does not contain these calls, so the run that replaces a lost one is answered
/// from the effect log: with the result, or with the notice that the outcome is unknown.
#[test]
fn a_call_that_was_open_when_the_stream_broke_is_not_made_twice_unasked() {
    let first = broken_off(r#"{ reset = "internal_error" }"#);
    let again = Steps::new()
        .then(asked("a", WARNED))
        .then(asked("b", &answers("B")))
        .then(asked("a", &answers("A")))
        .text("Looked.")
        .then(END)
        .build();
    let simulator = script(&[&first, &again]);
    let mut session = session(&simulator);
    let turn = begun(&mut session);
    let outcome = session.finish(&turn);
    assert!(is_retryable(&outcome.error), "{outcome:?}");
    session.messages.pop();
    let turn = session.begin();
    let call = called(&mut session);
    assert_eq!(call["params"]["name"], "a", "asked for once more");
    answer(&mut session, &call, "A");
    assert_eq!(session.finish(&turn).text, "Looked.");
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

/// The results are lost with the killed sidecar, so both calls are reported with an unknown
/// outcome.
#[test]
fn a_call_of_a_killed_sidecar_is_not_made_twice_unasked() {
    let state = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", state.path().to_str().unwrap())];
    let read = r#"{ kv_set = { text = "x" } }, { text = "Read." }, { expect_cancel = true }"#;
    let first = script(&[&broken_off(read)]);
    let mut session = kept(&first, &env);
    begun(&mut session);
    while session.host.receive()["params"]["events"][0]["text"] != "Read." {}
    session.host.kill();
    let again = Steps::new()
        .then(asked("a", WARNED))
        .then(asked("b", WARNED))
        .then(asked("a", &answers("A")))
        .text("Looked.")
        .then(END)
        .build();
    let second = script(&[&again]);
    session.host = host(&second, &env);
    let turn = session.begin();
    let call = called(&mut session);
    assert_eq!(call["params"]["name"], "a", "asked for once more");
    answer(&mut session, &call, "A");
    assert_eq!(session.finish(&turn).text, "Looked.");
    second.recorded().assert_played(&["completed"]);
}
