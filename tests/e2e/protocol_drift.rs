//! Protocol drift: what a newer Cursor sends that this version does not know.

use std::process::Command;

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::scenario::playing;
use test_support::simulator::Transport;

/// An unknown request (field 99 of an exec message with id 5), an unknown query, and an unknown
/// field in a text message, twice.
const NEWER: &str = r#"{ send_hex = "1205 0805 9a0600" }, { expect_client = { execClientControlMessage = { throw = { id = 5 } } } }, { send_hex = "3a05 0809 e20300" }, { expect_client = { interactionResponse = { id = 9 } } }, { send_hex = "0a09 0a07 0a02 6f6b 900301" }, { send_hex = "0a09 0a07 0a02 6f6b 900301" }, { usage = {} }, { end = true }"#;

#[test]
fn drift_is_reported_by_the_report_the_command_and_the_doctor() {
    let simulator = playing(Transport::Http1, NEWER);
    let state = tempfile::tempdir().unwrap();
    let place = state.path().to_str().unwrap();
    let env = [
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
        ("PI_CURSOR_STATE_DIR", place),
    ];
    let mut session = RpcSession::new(&simulator, "s1", &env);
    assert_eq!(session.prompt("go").text, "okok");

    let report = session.host.call("diagnostics/report", json!({}));
    let counts = json!({
        "agent.v1.ExecServerMessage.99": 1,
        "agent.v1.InteractionQuery.60": 1,
        "agent.v1.TextDeltaUpdate.50": 2,
        "exec: unknown request": 1,
        "query: unknown question": 1,
    });
    assert_eq!(report["result"]["wireDrift"], counts);

    let doctor = json!({"command": "cursor-doctor"});
    let doctor_text = session.host.call("session/command", doctor);
    let doctor_text = doctor_text["result"]["message"].as_str().unwrap();
    let lines: Vec<&str> = doctor_text
        .lines()
        .filter(|line| line.contains("unknown"))
        .collect();
    assert_eq!(
        lines,
        [
            "unknown to us: agent.v1.ExecServerMessage.99 (1 times)",
            "unknown to us: agent.v1.InteractionQuery.60 (1 times)",
            "unknown to us: agent.v1.TextDeltaUpdate.50 (2 times)",
            "unknown to us: exec: unknown request (1 times)",
            "unknown to us: query: unknown question (1 times)",
        ]
    );

    // The log remains after the sidecar has exited.
    session.host.call("shutdown", json!(null));
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "method": "exit"}));
    assert_eq!(session.host.exits(), Some(0));
    let doctor = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", place)
            .env("HOME", place)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Json = serde_json::from_str(&doctor(&["doctor", "--offline", "--json"])).unwrap();
    assert_eq!(json["wireDrift"], counts);
    let json: Json = serde_json::from_str(&doctor(&["doctor", "--last", "--json"])).unwrap();
    assert_eq!(json["drift"], counts);
    for page in [
        doctor(&["doctor", "--offline"]),
        doctor(&["doctor", "--last"]),
    ] {
        for kind in counts.as_object().unwrap().keys() {
            assert!(page.contains(kind), "{kind} in {page}");
        }
    }
}
