//! Hooks that say no in other words, and requests that have no words for a no.

use serde_json::json;

use crate::sdk::Sdk;
use crate::settings::{CONTEXT, exec, runs, talk, write};

#[test]
fn a_no_is_obeyed_however_it_is_said_and_its_reason_told() {
    let sdk = Sdk::new();
    let script = r#"input=$(cat)
case "$input" in
  *log-behind*) echo '{"permission":"deny","agent_message":"not that"}'; echo '{"log":"done"}' ;;
  *in-claude*) echo '{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"nor that"}}' ;;
  *'"tool_name":"Shell"'*) echo '{"permission":"allow"}' ;;
  *) echo '{"permission":"deny","agent_message":"none of it"}' ;;
esac
"#;
    write(sdk.home.path(), ".cursor/guard.sh", script);
    let hook = json!([{"command": "sh ./guard.sh", "matcher": "Shell|Mcp|GitDiff"}]);
    let hooks = json!({"version": 1, "hooks": {"preToolUse": hook}});
    write(sdk.home.path(), ".cursor/hooks.json", &hooks.to_string());
    let no = |part: &str| format!(r#"{{ "$contains" = "blocked by a hook: {part}" }}"#);
    let shell = |file: &str, why: &str| {
        exec(
            &format!(
                r#"{{ shellArgs = {{ command = "touch {file}", workingDirectory = "$WS", toolCallId = "a" }} }}"#
            ),
            &format!(
                "{{ shellResult = {{ rejected = {{ reason = {} }} }} }}",
                no(why)
            ),
        )
    };
    let none = no("none of it");
    let steps = [
        CONTEXT.to_owned(),
        shell("log-behind", "not that"),
        shell("in-claude", "nor that"),
        exec(
            "{ listMcpResourcesExecArgs = {} }",
            &format!("{{ listMcpResourcesExecResult = {{ rejected = {{ reason = {none} }} }} }}"),
        ),
        exec(
            r#"{ readMcpResourceExecArgs = { server = "s", uri = "u:1" } }"#,
            &format!(
                r#"{{ readMcpResourceExecResult = {{ rejected = {{ uri = "u:1", reason = {none} }} }} }}"#
            ),
        ),
        r#"{ exec = { gitDiffRequest = { baseRef = "HEAD" } }, throws = "blocked by a hook: none of it" }"#
            .to_owned(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let taken = talk(&simulator, &sdk, &[]).say("go");
    assert_eq!(taken.stop, "stop", "{taken:?}");
    simulator.recorded().assert_played(&["completed"]);
    for ran in ["log-behind", "in-claude"] {
        assert!(!sdk.workspace.join(ran).exists(), "{ran}");
    }
}
