//! The debug log of the bridge, and what must never be in it.

use serde_json::{Value as Json, json};

use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::playing;
use test_support::simulator::Transport;
use test_support::wait::until;

const STEPS: &str = r#"{ exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "call-canary", args = { q = "argument-canary" } } }, expect = { mcpResult = { success = {} } } }, { text = "ok" }, { usage = {} }, { end = true }"#;

fn log_lines(file: &std::path::Path) -> Vec<Json> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn events(log_lines: &[Json]) -> Vec<&str> {
    log_lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect()
}

#[test]
fn a_call_is_logged_from_offer_to_result_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bridge.jsonl");
    let simulator = playing(Transport::H2c, STEPS);
    let env = [
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1"),
        (
            "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
            file.to_str().unwrap(),
        ),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.tools = vec![tool("look")];
    let outcome = session.prompt("prompt-canary");
    session.result(
        &outcome.calls[0],
        json!([{"type": "text", "text": "result-canary"}]),
    );
    assert_eq!(session.turn().text, "ok");
    // The same session, without tools to offer.
    session.tools.clear();
    session.prompt("again");
    let lines = log_lines(&file);
    let mut seen = events(&lines);
    seen.truncate(6);
    assert_eq!(
        seen[..4],
        [
            "run_created",
            "tools_exposed",
            "request_queued",
            "request_resolved"
        ]
    );
    let pairs = json!([{"piToolName": "look", "mcpToolName": "pi__look"}]);
    assert_eq!(lines[1]["pairs"], pairs);
    assert_eq!(lines[1]["exposedToolCount"], 1);
    let queued = &lines[2];
    assert_eq!(queued["pendingCount"], 1);
    assert_eq!(queued["piToolCallId"], outcome.calls[0].id);
    assert_eq!(queued["mcpToolName"], "pi__look");
    let hash = queued["cursorMcpCallId"].as_str().unwrap();
    assert_eq!(
        (hash.len(), hash.starts_with("cursor-mcp-call-")),
        (24, true),
        "{hash}"
    );
    assert_eq!(lines[3]["isError"], false);
    assert_eq!(lines[3]["pendingCount"], 0);
    assert!(
        events(&lines).contains(&"run_skipped"),
        "{:?}",
        events(&lines)
    );
    let skipped = lines
        .iter()
        .find(|line| line["event"] == "run_skipped")
        .unwrap();
    assert_eq!(skipped["reason"], "no_exposed_tools");
    let all = std::fs::read_to_string(&file).unwrap();
    for canary in ["canary", "http", "/workspace", "crsr_"] {
        assert!(!all.contains(canary), "{canary} in {all}");
    }
}

#[test]
fn a_cancelled_pause_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bridge.jsonl");
    let steps = STEPS.replace(
        "expect = { mcpResult = { success = {} } }",
        "open = true, name = \"a\"",
    );
    let steps = steps.replace("{ text = \"ok\" }", "{ expect_cancel = true }");
    let steps = steps.replace(", { usage = {} }, { end = true }", "");
    let simulator = playing(Transport::H2c, &steps);
    let env = [
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "yes"),
        (
            "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
            file.to_str().unwrap(),
        ),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.tools = vec![tool("look")];
    session.user("go");
    let turn = session.begin();
    assert_eq!(session.finish(&turn).stop, "toolUse");
    session.host.call("turn/cancel", json!({"turnId": turn}));
    // The run's task releases it last, shortly after its end is reported.
    let lines = until(|| {
        let lines = log_lines(&file);
        events(&lines).contains(&"run_disposed").then_some(lines)
    });
    assert_eq!(
        events(&lines)[3..],
        ["run_cancelled", "request_rejected", "run_disposed"],
        "{lines:?}"
    );
    assert_eq!(lines[3]["cancelledRequestCount"], 1);
    assert_eq!(lines[4]["rejectionKind"], "cancelled");
    assert_eq!(lines[5]["pendingCount"], 0);
}

#[test]
fn the_bridge_logs_that_it_is_off_and_nothing_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bridge.jsonl");
    let name = file.to_str().unwrap();
    let simulator = playing(Transport::H2c, r#"{ text = "ok" }"#);
    let mut session = RpcSession::new(
        &simulator,
        "s",
        &[("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE", name)],
    );
    session.tools = vec![tool("look")];
    session.prompt("go");
    assert!(!file.exists());
    let env = [
        ("PI_CURSOR_PI_TOOL_BRIDGE", "0"),
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1"),
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE", name),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.tools = vec![tool("look")];
    session.prompt("go");
    let lines = log_lines(&file);
    assert_eq!(events(&lines), ["run_skipped"]);
    assert_eq!(lines[0]["reason"], "disabled");
    assert_eq!(lines[0]["enabled"], false);
}
