//! Context windows: learned from successful runs, and configured by the user.

use super::*;

use test_support::scenario::{Steps, simulate};

const SERVER: &str = r#"name = "windows"
[server]
models = [ { id = "plain" }, { id = "mine" }, { id = "ctx", parameters = [ { id = "context", values = [ { value = "1m" } ] } ] } ]
"#;

/// A run that reports a context window, followed by the steps `rest`.
fn reporting(window: u32, rest: &str) -> Simulator {
    let steps = Steps::new()
        .text("ok")
        .step(json!({"token_details": {"usedTokens": 10, "maxTokens": window}}))
        .checkpoint()
        .then(rest)
        .build();
    let scenario = SERVER.to_owned() + "[[run]]\nsteps = [ " + &steps + " ]\n";
    simulate(Transport::Http1, &scenario)
}

const SUCCESS: &str = "{ usage = {} }, { end = true }";

fn learned(state: &Path) -> Json {
    let text = std::fs::read_to_string(state.join("learned-windows.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn windows(result: &Json) -> Vec<(&str, u64)> {
    let rows = result["models"].as_array().unwrap().iter();
    rows.map(|row| {
        let window = row["contextWindow"].as_u64().unwrap();
        (row["id"].as_str().unwrap(), window)
    })
    .collect()
}

#[test]
fn a_window_is_learned_from_a_successful_run() {
    let simulator = reporting(333_000, SUCCESS);
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    let before = list(&mut host, json!({}));
    let usual = [("ctx@1m", 1_000_000), ("mine", 200_000), ("plain", 200_000)];
    assert_eq!(windows(&before), usual);
    // A context size in the id takes precedence.
    assert_eq!(
        turn(&mut host, json!({"id": "ctx@1m"}))["stopReason"],
        "stop"
    );
    assert_eq!(learned(test.state.path()), Json::Null);
    assert_eq!(
        turn(&mut host, json!({"id": "plain"}))["stopReason"],
        "stop"
    );
    let entry = json!({"contextWindows": {"plain": 333_000}});
    assert_eq!(learned(test.state.path()), entry);
    let news = host.call("session/command", json!({"model": "plain"}))["result"].clone();
    let now = [("ctx@1m", 1_000_000), ("mine", 200_000), ("plain", 333_000)];
    assert_eq!(windows(&news), now);
    let next = list(&mut test.host(WITH_MAX), json!({}));
    assert_eq!(windows(&next), now, "it is stored");
}

#[test]
fn nothing_is_learned_from_a_failed_run() {
    let simulator = reporting(
        444_000,
        r#"{ end = { code = "permission_denied", message = "no" } }"#,
    );
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    assert_eq!(
        turn(&mut host, json!({"id": "plain"}))["stopReason"],
        "error"
    );
    assert_eq!(learned(test.state.path()), Json::Null);
}

#[test]
fn nothing_is_learned_from_a_cancelled_run() {
    let simulator = reporting(444_000, "{ expect_cancel = true }");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    let params = json!({"turnId": "t", "sessionId": "s", "workspace": "/workspace", "kind": "main",
        "messages": [{"role": "user", "content": "go", "timestamp": 1}], "model": {"id": "plain"}});
    host.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": params}));
    while host.receive()["method"] != "turn/event" {}
    host.send(
        &json!({"jsonrpc": "2.0", "id": 8, "method": "turn/cancel", "params": {"turnId": "t"}}),
    );
    let stopped = loop {
        let message = host.receive();
        if message["id"] == 7 {
            break message;
        }
    };
    assert_eq!(stopped["result"]["stopReason"], "aborted");
    assert_eq!(learned(test.state.path()), Json::Null);
}

#[test]
fn user_values_are_used_and_never_overwritten() {
    let simulator = reporting(333_000, SUCCESS);
    let test = TestEnv::new(&simulator.url, &[]);
    let file = test.state.path().join("context-windows.json");
    let written = r#"{"note": "my own", "contextWindows": {"plain": 150000, "ctx@1m": 900000}}"#;
    std::fs::write(&file, written).unwrap();
    let mut host = test.host(WITH_MAX);
    turn(&mut host, json!({"id": "plain"}));
    let configured = [("ctx@1m", 900_000), ("mine", 200_000), ("plain", 150_000)];
    assert_eq!(windows(&list(&mut host, json!({}))), configured);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);

    let damaged = r#"{"contextWindows": {"plain": 150000,}}"#;
    std::fs::write(&file, damaged).unwrap();
    let output = host.call("session/command", json!({"model": "plain"}))["result"].clone();
    let message = output["message"].as_str().unwrap();
    assert!(
        message.contains("context-windows.json is damaged"),
        "{message}"
    );
    let now = [("ctx@1m", 1_000_000), ("mine", 200_000), ("plain", 333_000)];
    assert_eq!(windows(&output), now);
    let quiet = host.call("session/command", json!({"model": "plain"}));
    assert_eq!(quiet["result"], json!({}), "the warning is not repeated");
    turn(&mut host, json!({"id": "mine"}));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), damaged);
    let listed = list(&mut host, json!({}));
    assert_eq!(listed["warnings"], json!([message]));
}
