//! The JSON-RPC front end through the real binary and real pipes.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::scenario::playing;
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};

#[test]
fn a_session_from_initialize_to_exit() {
    let mut host = SidecarProcess::start(&[]);
    let early = host.call("diagnostics/report", json!({}));
    assert_eq!(early["error"]["code"], -32002);
    let answer = host.initialize();
    assert_eq!(answer["result"]["name"], "cursor-sidecar");
    assert_eq!(answer["result"]["protocolVersion"], 1);
    assert_eq!(host.call("shutdown", json!({}))["result"], Json::Null);
    host.send(&json!({"jsonrpc": "2.0", "method": "exit"}));
    // One second is guaranteed; a loaded machine gets three.
    assert_eq!(host.exits_within(Duration::from_secs(3)), Some(0));
}

#[test]
fn invalid_messages_are_reported_and_survived() {
    let mut host = SidecarProcess::start(&[]);
    host.write(b"what?\n");
    assert_eq!(host.receive()["error"]["code"], -32700);
    host.write(b"Content-Length: 1\r\n\r\n{");
    assert_eq!(host.receive()["error"]["code"], -32700);
    host.write(b"Foo: 1\r\n\r\n");
    assert_eq!(host.receive()["error"]["code"], -32700);
    host.send(&json!({"jsonrpc": "2.0", "id": null, "method": "prefs/get"}));
    let anonymous = host.receive();
    assert_eq!(
        (&anonymous["id"], &anonymous["error"]["code"]),
        (&Json::Null, &json!(-32600))
    );
    let wrong = host.call(
        "initialize",
        json!({"protocolVersion": "1", "host": {"name": "x"}}),
    );
    assert_eq!(wrong["error"]["code"], -32602);
    insta::assert_snapshot!(wrong["error"]["message"].as_str().unwrap(), @r#"protocolVersion: invalid type: string "1", expected u32"#);
    let missing = host.call("initialize", json!({"protocolVersion": 1, "host": {}}));
    insta::assert_snapshot!(missing["error"]["message"].as_str().unwrap(), @"host: missing field `name`");
    let other = host.call(
        "initialize",
        json!({"protocolVersion": 9, "host": {"name": "x"}}),
    );
    insta::assert_snapshot!(other["error"]["message"].as_str().unwrap(), @"protocolVersion: this sidecar speaks version 1, the host 9; install matching versions");
    assert_eq!(host.initialize()["result"]["name"], "cursor-sidecar");
    let unknown = host.call("turn/strat", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

/// Every request gets a response, even one that is too long to be read.
#[test]
fn a_request_over_the_limit_is_answered_by_its_id() {
    const LIMIT: usize = 64 << 20;
    let mut host = SidecarProcess::start(&[]);
    host.initialize();
    let mut refused = |beginning: &str| {
        let head = format!("Content-Length: {}\r\n\r\n{beginning}", LIMIT + 1);
        host.write(head.as_bytes());
        // Before the rest is sent, because it may never be sent.
        let answer = host.receive();
        host.write(&vec![b' '; LIMIT + 1 - beginning.len()]);
        answer
    };
    let turn = refused(r#"{"jsonrpc":"2.0","id":7,"method":"turn/start","params":{"#);
    assert_eq!(turn["id"], 7);
    assert_eq!(turn["error"]["code"], -32700);
    insta::assert_snapshot!(turn["error"]["message"].as_str().unwrap(), @"context_length_exceeded: the session takes 64.0 MiB with its pictures and what tools left in it, and cursor-sidecar reads 64 MiB at most; compact it, or go back to before they came");
    let other = refused(r#"{"id":"x","method":"prefs/set","params":{"#);
    assert_eq!(
        (&other["id"], &other["error"]["code"]),
        (&json!("x"), &json!(-32700))
    );
    let anonymous = refused(&format!(r#"{{"params":"{}""#, "x".repeat(5000)));
    assert_eq!(
        (&anonymous["id"], &anonymous["error"]["code"]),
        (&Json::Null, &json!(-32700))
    );
    let report = host.call("diagnostics/report", json!({}));
    assert!(report["result"].is_object(), "the next message is read");
}

#[test]
fn the_report_has_settings_and_no_secrets() {
    let env = [
        ("CURSOR_API_KEY", "crsr_0123456789"),
        ("HTTPS_PROXY", "http://user:pa55word@127.0.0.1:1"),
        ("PI_CURSOR_HTTP", "9"),
        ("PI_CURSOR_HTPP", "1"),
    ];
    let mut host = SidecarProcess::start(&env);
    host.initialize();
    let report = host.call("diagnostics/report", json!({}));
    let text = report.to_string();
    assert!(
        !text.contains("0123456789") && !text.contains("pa55word"),
        "{text}"
    );
    let result = &report["result"];
    assert_eq!(result["endpoint"], "https://agentn.us.api5.cursor.sh");
    let warnings = result["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let key = result["settings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "CURSOR_API_KEY");
    assert_eq!(key.unwrap()["value"], "(set)");
    assert_eq!(key.unwrap()["source"], "environment");
}

#[test]
fn it_ends_with_its_input() {
    let mut host = SidecarProcess::start(&[]);
    host.initialize();
    assert_eq!(host.exits(), Some(1));
}

/// The host dies, but another process keeps the pipe open.
#[test]
fn it_ends_with_its_host() {
    let mut pretended_host = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut host = SidecarProcess::start(&[]);
    let answer = host.call(
        "initialize",
        json!({
            "protocolVersion": 1,
            "nativeTools": {"default": "local"},
            "host": {"name": "test", "processId": pretended_host.id()},
        }),
    );
    assert!(answer.get("result").is_some(), "{answer}");
    pretended_host.kill().unwrap();
    pretended_host.wait().unwrap();
    let kept_open = host.keep_open();
    assert_eq!(host.exits(), Some(1));
    drop(kept_open);
}

#[test]
fn the_schema_is_printed() {
    let output = Command::new(binary()).arg("schema").output().unwrap();
    let schema: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["methods"]["initialize"]["params"]["properties"]["host"].is_object());
}

mod turns {
    use super::*;

    fn host(simulator: &Simulator) -> SidecarProcess {
        let mut host = SidecarProcess::start(&[
            ("CURSOR_BACKEND_URL", &simulator.url),
            ("CURSOR_API_KEY", "crsr_test"),
        ]);
        host.initialize();
        host
    }

    fn user(text: &str, at: u64) -> Json {
        json!({"role": "user", "content": text, "timestamp": at})
    }

    fn assistant(text: &str, at: u64) -> Json {
        json!({"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": at})
    }

    fn params(turn: &str, session: &str, messages: &[Json]) -> Json {
        json!({"turnId": turn, "sessionId": session, "workspace": "/workspace",
               "systemPrompt": "Be brief.", "messages": messages,
               "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}})
    }

    /// Takes a turn; returns its text and its result.
    fn turn(host: &mut SidecarProcess, params: Json) -> (String, Json) {
        host.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": params}));
        let mut text = String::new();
        loop {
            let message = host.receive();
            if message["id"] == 7 {
                assert!(message.get("error").is_none(), "{message}");
                return (text, message["result"].clone());
            }
            assert_eq!(message["method"], "turn/event");
            for event in message["params"]["events"].as_array().unwrap() {
                if event["type"] == "text" {
                    text.push_str(event["text"].as_str().unwrap());
                }
            }
        }
    }

    #[test]
    fn a_follow_up_carries_one_new_message_and_the_checkpoint() {
        let simulator = Simulator::start(Transport::Http1);
        let mut host = host(&simulator);
        let first = [user("@followup one", 1)];
        let (text, result) = turn(&mut host, params("t1", "s1", &first));
        assert_eq!(text, "First answer.");
        assert_eq!(result["stopReason"], "stop");
        assert_eq!(
            result["usage"]["estimated"], false,
            "the checkpoint has the size of the context"
        );
        let second = [
            user("@followup one", 1),
            assistant("First answer.", 2),
            user("@followup two", 3),
        ];
        let (text, _) = turn(&mut host, params("t2", "s1", &second));
        assert_eq!(text, "Follow-up answer.");
        let recording = simulator.recorded();
        recording.assert_played(&["completed", "completed"]);
        let requests = recording.client("runRequest");
        let message = &requests[1]["runRequest"]["action"]["userMessageAction"]["userMessage"];
        assert_eq!(message["text"], "@followup two");
        assert_eq!(
            requests[0]["runRequest"]["conversationId"],
            requests[1]["runRequest"]["conversationId"]
        );
    }

    #[test]
    fn the_system_prompt_and_a_rewritten_history_reach_cursor() {
        let steps = r#"{ exec = { requestContextArgs = {} } }, { text = "ok" }, { usage = {} }, { end = true }"#;
        let simulator = playing(Transport::Http1, steps);
        let mut host = host(&simulator);
        turn(&mut host, params("t1", "s1", &[user("one", 1)]));
        let rewritten = [user("uno", 5), assistant("due", 6), user("tre", 7)];
        turn(&mut host, params("t2", "s1", &rewritten));
        let recording = simulator.recorded();
        let contexts = recording.client("execClientMessage.requestContextResult");
        let rules = &contexts[0]["execClientMessage"]["requestContextResult"]["success"]["requestContext"]
            ["rules"];
        assert_eq!(rules[0]["content"], "Be brief.");
        let requests = recording.client("runRequest");
        let id = |n: usize| requests[n]["runRequest"]["conversationId"].clone();
        assert_ne!(id(0), id(1), "another history is another conversation");
        let roots = &requests[1]["runRequest"]["conversationState"]["rootPromptMessagesJson"];
        assert_eq!(roots.as_array().unwrap().len(), 2);
        let message = &requests[1]["runRequest"]["action"]["userMessageAction"]["userMessage"];
        assert_eq!(message["text"], "tre");
    }

    /// JavaScript can cut a string within a surrogate pair, as pi's summaries do. The session must
    /// not fail because of it.
    #[test]
    fn half_a_surrogate_pair_does_not_break_a_session() {
        let simulator = playing(
            Transport::Http1,
            r#"{ text = "Heard." }, { usage = {} }, { end = true }"#,
        );
        let mut host = host(&simulator);
        let params = params(
            "t1",
            "s1",
            &[user("cut HALF, whole \u{1f600}, a \\ud83d", 1)],
        );
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": params});
        let body = request.to_string().replace("HALF", "\\ud83d");
        host.write(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        while host.receive()["id"] != 7 {}
        let recording = simulator.recorded();
        let request = &recording.client("runRequest")[0]["runRequest"];
        assert_eq!(
            request["action"]["userMessageAction"]["userMessage"]["text"],
            "cut \u{fffd}, whole \u{1f600}, a \\ud83d"
        );
    }

    /// An invalid value of a restrictive setting is reported, and the restriction applies.
    #[test]
    fn invalid_settings_are_reported_with_the_first_turn() {
        let steps = r#"{ exec = { shellStreamArgs = { command = "touch ghost", workingDirectory = "$WS", toolCallId = "c", timeout = 10000 } } }, { text = "ok" }, { usage = {} }, { end = true }"#;
        let context = "{ exec = { requestContextArgs = {} } }";
        let simulator = playing(Transport::Http1, &format!("{context}, {steps}"));
        let env = [
            ("PI_CURSOR_NATIVE_TOOLS", "of"),
            ("PI_CURSOR_NATIVE_TOOL", "off"),
            ("PI_CURSOR_HTTP", "9"),
            ("PI_CURSOR_NATIVE_TOOL_DISPLAY", "perhaps"),
        ];
        let mut session = RpcSession::new(&simulator, "s", &env);
        let workspace = tempfile::tempdir().unwrap();
        session.workspace = workspace.path().to_str().unwrap().into();
        let outcome = session.prompt("one");
        assert_eq!(outcome.text, "ok");
        insta::assert_snapshot!(outcome.notices.join("\n"), @r#"
        PI_CURSOR_NATIVE_TOOL is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them; did you mean PI_CURSOR_NATIVE_TOOLS?
        PI_CURSOR_HTTP: "9" is not one of auto, 1, 2; using auto
        PI_CURSOR_NATIVE_TOOLS: "of" is not one of local, host, ask, off; of single tools tool=local, tool=host, tool=ask, tool=off; several with commas; until it is, every tool without a word of its own is refused
        PI_CURSOR_NATIVE_TOOL_DISPLAY: "perhaps" is not one of auto, 0, 1; using auto
        "#);
        assert!(!workspace.path().join("ghost").exists());
        assert_eq!(session.prompt("two").notices, [""; 0], "once is enough");
        let report = session.host.call("diagnostics/report", json!({}));
        let warnings = report["result"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 4, "{warnings:?}");
    }

    #[test]
    fn cancelling_ends_the_turn_at_once() {
        let simulator = Simulator::start(Transport::Http1);
        let mut host = host(&simulator);
        let start = params("t1", "s1", &[user("@cancel go", 1)]);
        host.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": start}));
        assert_eq!(host.receive()["method"], "turn/event");
        host.send(&json!({"jsonrpc": "2.0", "id": 8, "method": "turn/cancel", "params": {"turnId": "t1"}}));
        let mut answers = std::collections::BTreeMap::new();
        while answers.len() < 2 {
            let message = host.receive();
            if let Some(id) = message["id"].as_u64() {
                answers.insert(id, message["result"].clone());
            }
        }
        assert_eq!(answers[&7]["stopReason"], "aborted");
        assert_eq!(answers[&8]["found"], true);
    }

    #[test]
    fn sessions_with_equal_messages_share_nothing() {
        let simulator = Simulator::start(Transport::Http1);
        let mut host = host(&simulator);
        turn(&mut host, params("t1", "s1", &[user("@hello a", 1)]));
        turn(&mut host, params("t2", "s2", &[user("@hello a", 1)]));
        let recording = simulator.recorded();
        let requests = recording.client("runRequest");
        assert_ne!(
            requests[0]["runRequest"]["conversationId"],
            requests[1]["runRequest"]["conversationId"]
        );
    }

    #[test]
    fn without_a_key_the_turn_explains_what_to_do() {
        let mut host = SidecarProcess::start(&[]);
        host.initialize();
        let (_, result) = turn(&mut host, params("t1", "s1", &[user("hi", 1)]));
        assert_eq!(result["stopReason"], "error");
        let text = result["errorMessage"].as_str().unwrap();
        assert!(
            ["no Cursor API key", "/login", "--api-key", "CURSOR_API_KEY"]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
    }

    #[test]
    fn failures_are_worded_for_the_host() {
        let steps = r#"{ end = { code = "resource_exhausted", message = "Error", error = "ERROR_CONVERSATION_TOO_LONG", title = "Too long", detail = "", retryable = false } }"#;
        let simulator = playing(Transport::Http1, steps);
        let mut host = host(&simulator);
        let (_, result) = turn(&mut host, params("t1", "s1", &[user("hi", 1)]));
        let error = result["errorMessage"].as_str().unwrap();
        assert_eq!(
            error,
            "context_length_exceeded: Too long. Compact the conversation, or start a new one."
        );
    }
}
