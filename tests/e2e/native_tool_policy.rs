//! Who executes native tools: what the host states, what it states for one turn, and how it answers
//! permission requests.

use serde_json::{Value as Json, json};

use test_support::official_client::OfficialClient;
use test_support::rpc_session::RpcSession;
use test_support::scenario::{CONTEXT, exec, inline, runs};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::Simulator;

/// A connection whose host states this policy for native tools.
fn session(
    simulator: &Simulator,
    sdk: &OfficialClient,
    stated: Json,
    env: &[(&str, &str)],
) -> RpcSession {
    let home = sdk.home.path().to_str().unwrap();
    let ours = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        ("HOME", home),
        ("PATH", env!("PATH")),
    ];
    let mut session = RpcSession::new(simulator, "s", &[]);
    session.host = SidecarProcess::start(&[&ours, env].concat());
    let mut params = json!({"protocolVersion": 1, "host": {"name": "test"}});
    if !stated.is_null() {
        params["nativeTools"] = stated;
    }
    let about = session.host.call("initialize", params);
    assert!(about.get("error").is_none(), "{about}");
    session.workspace = sdk.workspace.to_str().unwrap().into();
    session
}

fn host_tool(name: &str, arguments: &[&str]) -> Json {
    let properties: serde_json::Map<String, Json> = arguments
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    json!({"name": name, "description": name,
           "parameters": {"type": "object", "properties": properties}})
}

const TOUCH: &str = r#"{ shellArgs = { command = "touch made", workingDirectory = "$WS", toolCallId = "s", timeout = 20000, skipApproval = true, parsingResult = {} } }"#;
const EXECUTED: &str = r#"{ shellResult = { success = { command = "touch made" } } }"#;

fn rejected(reason: &str) -> String {
    inline(&json!({"shellResult": {"rejected": {"reason": {"$contains": reason.to_string()}}}}))
}

fn plays(steps: &[String]) -> Simulator {
    let mut all = vec![CONTEXT.to_owned()];
    all.extend_from_slice(steps);
    runs(&[all.join(", ")])
}

#[test]
fn a_host_that_states_nothing_has_nothing_executed_and_nothing_changed() {
    let sdk = OfficialClient::new();
    let before = std::fs::read(sdk.workspace.join("a.txt")).unwrap();
    let refused = json!({"rejected": {"reason": {"$contains": "host"}}});
    let steps = [
        exec(TOUCH, &rejected("available: read")),
        exec(
            r#"{ writeArgs = { path = "$WS/a.txt", fileText = "changed", toolCallId = "w" } }"#,
            &inline(&json!({"writeResult": refused})),
        ),
        exec(
            r#"{ deleteArgs = { path = "$WS/a.txt", toolCallId = "d" } }"#,
            &inline(&json!({"deleteResult": refused})),
        ),
        exec(
            r#"{ backgroundShellSpawnArgs = { command = "touch made", workingDirectory = "$WS", toolCallId = "b" } }"#,
            r#"{ backgroundShellSpawnResult = { rejected = { command = "touch made" } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "r" } }"#,
            r#"{ readResult = { success = { content = "by the host" } } }"#,
        ),
    ];
    let simulator = plays(&steps);
    let mut session = session(&simulator, &sdk, Json::Null, &[]);
    session.tools = vec![host_tool("read", &["path", "offset", "limit"])];
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    let call = outcome.calls[0].clone();
    assert_eq!(call.name, "read");
    session.result(&call, json!([{"type": "text", "text": "by the host"}]));
    assert_eq!(session.turn().stop, "stop");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!sdk.workspace.join("made").exists());
    assert_eq!(std::fs::read(sdk.workspace.join("a.txt")).unwrap(), before);
}

/// Plays one command and answers the permission requests of the turn with these decisions.
fn asked(steps: &[String], decisions: &[Json]) -> (OfficialClient, Vec<Json>) {
    let sdk = OfficialClient::new();
    let simulator = plays(steps);
    let mut session = session(
        &simulator,
        &sdk,
        json!({"default": "local", "shell": "ask"}),
        &[],
    );
    session.user("go");
    let turn = session.begin();
    let mut questions = Vec::new();
    for decision in decisions {
        let question = loop {
            let message = session.host.receive();
            if message["method"] == "permission/request" {
                break message;
            }
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": question["id"]});
        match decision {
            Json::Null => answer["error"] = json!({"code": -32601, "message": "no such method"}),
            decision => answer["result"] = json!({"decision": decision}),
        }
        session.host.send(&answer);
        questions.push(question["params"].clone());
    }
    assert_eq!(session.finish(&turn).stop, "stop");
    simulator.recorded().assert_played(&["completed"]);
    (sdk, questions)
}

#[test]
fn a_permitted_command_is_executed_and_the_request_names_it() {
    let (sdk, questions) = asked(&[exec(TOUCH, EXECUTED)], &[json!("allowOnce")]);
    assert!(sdk.workspace.join("made").exists());
    assert_eq!(questions[0]["tool"], "shell");
    assert_eq!(questions[0]["subject"], "touch made");
    assert_eq!(questions[0]["turnId"], "turn-1");
}

#[test]
fn a_denied_command_is_not_executed() {
    for decision in [json!("deny"), json!("whatever"), Json::Null] {
        let (sdk, _) = asked(&[exec(TOUCH, &rejected("declined"))], &[decision]);
        assert!(!sdk.workspace.join("made").exists());
    }
}

#[test]
fn a_permission_for_the_session_is_asked_for_once() {
    let again = TOUCH.replace("made", "again").replace("\"s\"", "\"t\"");
    let executed = EXECUTED.replace("made", "again");
    let steps = [exec(TOUCH, EXECUTED), exec(&again, &executed)];
    let (sdk, questions) = asked(&steps, &[json!("allowSession")]);
    assert!(sdk.workspace.join("again").exists());
    assert_eq!(questions.len(), 1);
    let (sdk, questions) = asked(&steps, &[json!("allowOnce"), json!("allowOnce")]);
    assert!(sdk.workspace.join("again").exists());
    assert_eq!(questions.len(), 2);
}

#[test]
fn a_turn_states_a_policy_of_its_own() {
    let sdk = OfficialClient::new();
    let simulator = plays(&[exec(TOUCH, &rejected("does not allow"))]);
    let mut session = session(&simulator, &sdk, json!({"default": "local"}), &[]);
    session.user("go");
    let mut params = session.params();
    params["nativeTools"] = json!({"shell": "off"});
    assert_eq!(session.take(params).stop, "stop");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!sdk.workspace.join("made").exists());
}

#[test]
fn settings_cannot_turn_on_what_the_host_turns_off() {
    let sdk = OfficialClient::new();
    let simulator = plays(&[exec(TOUCH, &rejected("does not allow"))]);
    let env = [("PI_CURSOR_NATIVE_TOOLS", "local")];
    let mut session = session(&simulator, &sdk, json!({"default": "off"}), &env);
    assert_eq!(session.prompt("go").stop, "stop");
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn plan_mode_changes_nothing() {
    let sdk = OfficialClient::new();
    let steps = [
        exec(TOUCH, &rejected("plan mode")),
        exec(
            r#"{ writeArgs = { path = "$WS/made", fileText = "x", toolCallId = "w" } }"#,
            r#"{ writeResult = { rejected = { reason = { "$contains" = "plan mode" } } } }"#,
        ),
        exec(
            r#"{ deleteArgs = { path = "$WS/a.txt", toolCallId = "d" } }"#,
            r#"{ deleteResult = { rejected = { reason = { "$contains" = "plan mode" } } } }"#,
        ),
    ];
    let simulator = plays(&steps);
    let mut session = session(&simulator, &sdk, json!({"default": "local"}), &[]);
    session.user("go");
    let mut params = session.params();
    params["mode"] = json!("plan");
    let outcome = session.take(params);
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!sdk.workspace.join("made").exists());
    assert!(sdk.workspace.join("a.txt").exists());
}

/// A run may span several turns; a tool that the user disables in between is disabled.
#[test]
fn switches_count_in_later_turns_of_the_same_run() {
    let sdk = OfficialClient::new();
    let look = r#"{ mcpArgs = { name = "pi__look", toolName = "pi__look", providerIdentifier = "pi", toolCallId = "l", args = {} } }"#;
    let steps = [
        exec(look, r#"{ mcpResult = { success = {} } }"#),
        exec(TOUCH, &rejected("switched off")),
    ];
    let simulator = plays(&steps);
    let stated = json!({"default": "local", "requireHostTool": true});
    let mut session = session(&simulator, &sdk, stated, &[]);
    let look = host_tool("look", &[]);
    session.tools = vec![look.clone(), host_tool("bash", &["command", "timeout"])];
    let outcome = session.prompt("go");
    let call = outcome.calls[0].clone();
    session.tools = vec![look];
    session.result(&call, json!([{"type": "text", "text": "seen"}]));
    let outcome = session.turn();
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!sdk.workspace.join("made").exists());
}
