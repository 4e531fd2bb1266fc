//! Messages as other APIs spell them, and messages that nobody spells: the real binary.

use serde_json::{Value as Json, json};

use test_support::gateway::{ChatResponse, GatewayProcess};
use test_support::rpc_session::{OfferedCall, RpcSession, tool};
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::simulator::{Simulator, Transport};

/// A host that calls one tool; its run is parked. Returns the call.
fn parked() -> (Simulator, RpcSession, OfferedCall) {
    let steps = Steps::new()
        .text("Let me look. ")
        .then(calls("look", r#"{ q = "it" }"#, "", &text("42")))
        .text("It says 42.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let outcome = session.prompt("go");
    assert_eq!((outcome.stop.as_str(), outcome.calls.len()), ("toolUse", 1));
    let call = outcome.calls[0].clone();
    (simulator, session, call)
}

/// Regression: such a result was dropped, and the same call was offered again forever.
#[test]
fn a_tool_result_as_openai_or_anthropic_spell_it_resumes_the_parked_run() {
    type Spelling = fn(&OfferedCall) -> [Json; 2];
    let openai: Spelling = |call| {
        let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
        [
            json!({"role": "assistant", "content": "Let me look. ",
                   "tool_calls": [{"id": call.id, "type": "function", "function": function}]}),
            json!({"role": "tool", "tool_call_id": call.id, "content": "42"}),
        ]
    };
    let anthropic: Spelling = |call| {
        [
            json!({"role": "assistant", "content": [{"type": "text", "text": "Let me look. "},
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call.id,
                 "content": [{"type": "text", "text": "42"}]}]}),
        ]
    };
    for spelling in [openai, anthropic] {
        let (simulator, mut session, call) = parked();
        session.messages.pop();
        session.messages.extend(spelling(&call));
        let outcome = session.turn();
        assert_eq!(
            (outcome.stop.as_str(), outcome.text.as_str()),
            ("stop", "It says 42."),
            "{outcome:?}"
        );
        let recording = simulator.recorded();
        recording.assert_played(&["completed"]);
        assert_eq!(recording.client("runRequest").len(), 1, "one run");
    }
}

/// A message that was dropped instead would change the conversation without anybody noticing. The
/// parked run is untouched: the host may correct the request.
#[test]
fn an_unknown_message_over_rpc_is_an_error_with_its_path() {
    let (simulator, mut session, call) = parked();
    let cases = [
        (
            json!({"role": "function", "name": "look", "content": "42"}),
            "messages[2].role",
        ),
        (
            json!({"role": "toolResult", "tool_id": call.id, "content": "42"}),
            "messages[2].toolCallId",
        ),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}),
            "messages[2].content[1].type",
        ),
    ];
    for (message, path) in cases {
        session.messages.push(message);
        let params = session.params();
        session.messages.pop();
        let answer = session.host.call("turn/start", params);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let problem = answer["error"]["message"].as_str().unwrap();
        assert!(problem.starts_with(&format!("{path}: ")), "{problem}");
    }
    session.result(&call, json!([{"type": "text", "text": "42"}]));
    assert_eq!(session.turn().text, "It says 42.");
    simulator.recorded().assert_played(&["completed"]);
}

#[tokio::test]
async fn an_unknown_message_to_the_gateway_is_an_error_with_its_path() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let chat = gateway.chat();
    let user = json!({"role": "user", "content": "go"});
    let cases = [
        (
            json!({"role": "function", "content": "42"}),
            "messages[1].role",
        ),
        (
            json!({"role": "toolResult", "toolCallId": "c", "content": "42"}),
            "messages[1].role",
        ),
        (
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}),
            "messages[1].content[0].type",
        ),
    ];
    for (message, path) in cases {
        let mut body = chat.body();
        body["messages"] = json!([user, message]);
        let reply = ChatResponse::read(chat.send(&body).await).await;
        assert_eq!(
            (reply.status, &reply.error["param"]),
            (400, &json!(path)),
            "{reply:?}"
        );
    }
    assert!(simulator.recording().await.client("runRequest").is_empty());
}
