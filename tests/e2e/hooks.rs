//! Hooks that deny in different formats, and requests whose responses have no field for a denial.

use std::fs;
use std::process::Command;

use serde_json::json;

use test_support::official_client::OfficialClient;
use test_support::scenario::{CONTEXT, exec, inline, runs, value};
use test_support::workspace::{session, write};

#[test]
fn a_denial_is_obeyed_in_every_format_and_its_reason_returned() {
    let sdk = OfficialClient::new();
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
    let no = |part: &str| inline(&json!({"$contains": format!("blocked by a hook: {part}")}));
    let shell = |file: &str, why: &str| {
        exec(
            &inline(&json!({
                "shellArgs": {
                    "command": format!("touch {file}"),
                    "workingDirectory": "$WS",
                    "toolCallId": "a",
                },
            })),
            &inline(&json!({"shellResult": {"rejected": {"reason": value(no(why))}}})),
        )
    };
    let none = no("none of it");
    let steps = [
        CONTEXT.to_owned(),
        shell("log-behind", "not that"),
        shell("in-claude", "nor that"),
        exec(
            "{ listMcpResourcesExecArgs = {} }",
            &inline(&json!({"listMcpResourcesExecResult": {"rejected": {"reason": value(&none)}}})),
        ),
        exec(
            r#"{ readMcpResourceExecArgs = { server = "s", uri = "u:1" } }"#,
            &inline(&json!({
                "readMcpResourceExecResult": {"rejected": {"uri": "u:1", "reason": value(&none)}},
            })),
        ),
        r#"{ exec = { gitDiffRequest = { baseRef = "HEAD" } }, throws = "blocked by a hook: none of it" }"#
            .to_owned(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let outcome = session(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    for ran in ["log-behind", "in-claude"] {
        assert!(!sdk.workspace.join(ran).exists(), "{ran}");
    }
}

const SECRET: &str = "CLASSIFIED-42";

/// A workspace whose `.env` has a committed and a changed line, and a link to it.
fn workspace_with_secret() -> OfficialClient {
    let sdk = OfficialClient::new();
    write(&sdk.workspace, ".env", "TOKEN=none\n");
    for args in [
        &["add", "."][..],
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=b",
            "commit",
            "-qm",
            "x",
        ],
    ] {
        let status = Command::new("git")
            .args(args)
            .current_dir(&sdk.workspace)
            .env("HOME", sdk.home.path())
            .status();
        assert!(status.unwrap().success());
    }
    write(&sdk.workspace, ".env", &format!("TOKEN={SECRET}\n"));
    write(&sdk.workspace, "a.txt", "TOKEN=public\n");
    std::os::unix::fs::symlink(".env", sdk.workspace.join("link")).unwrap();
    sdk
}

/// Hooks that deny commands with `forbidden`, reading `.env` by its absolute path, and writing
/// `evil`; every input is appended to `log`.
fn deny_by_content(sdk: &OfficialClient) {
    let env = sdk.workspace.join(".env");
    let script = r#"input=$(cat); printf '%s\n' "$input" >> ./log
case "$input" in
  *forbidden*'"hook_event_name":"beforeShellExecution"'*) echo '{"permission":"deny","agent_message":"no such command"}' ;;
  *'"file_path":"ENV_FILE"'*'"hook_event_name":"beforeReadFile"'*) echo '{"permission":"deny","agent_message":"no such file"}' ;;
  *'"tool_name":"Write"'*evil*'"hook_event_name":"preToolUse"'*) echo '{"permission":"deny","agent_message":"no such text"}' ;;
  *) echo '{"permission":"allow"}' ;;
esac
"#
    .replace("ENV_FILE", env.to_str().unwrap());
    write(sdk.home.path(), ".cursor/guard.sh", &script);
    let hook = json!([{"command": "sh ./guard.sh"}]);
    let hooks = json!({
        "version": 1,
        "hooks": {"preToolUse": hook, "beforeShellExecution": hook, "beforeReadFile": hook},
    });
    write(sdk.home.path(), ".cursor/hooks.json", &hooks.to_string());
}

#[test]
fn hooks_are_asked_about_what_is_done() {
    let sdk = workspace_with_secret();
    deny_by_content(&sdk);
    let no = |part: &str| inline(&json!({"$contains": format!("blocked by a hook: {part}")}));
    let read = |path: &str| {
        exec(
            &inline(&json!({"readArgs": {"path": path.to_string(), "toolCallId": "a"}})),
            &inline(&json!({"readResult": {"rejected": {"reason": value(no("no such file"))}}})),
        )
    };
    let pi_read = |path: &str| {
        exec(
            &inline(&json!({"piReadArgs": {"path": path.to_string()}})),
            &inline(&json!({"piReadResult": {"error": {"error": value(no("no such file"))}}})),
        )
    };
    let stdin = |chars: &str, expect: &str| {
        exec(
            &inline(
                &json!({"writeShellStdinArgs": {"shellId": "$SHELL", "chars": chars.to_string()}}),
            ),
            &inline(&json!({"writeShellStdinResult": value(expect)})),
        )
    };
    let command = |command: &str| {
        exec(
            &inline(
                &json!({"shellStreamArgs": {"command": command.to_string(), "toolCallId": "s"}}),
            ),
            r#"{ shellStream = { exit = { code = 0 } } }"#,
        )
    };
    let steps = [
        CONTEXT.to_owned(),
        read("$WS/.env"),
        read(".env"),
        read("$WS/./sub/../.env"),
        read("file://$WS/.env"),
        read("link"),
        pi_read("@.env"),
        pi_read("link"),
        exec(
            r#"{ grepArgs = { pattern = "TOKEN", toolCallId = "g" } }"#,
            r#"{ grepResult = { success = { pattern = "TOKEN" } } }"#,
        ),
        exec(
            r#"{ piGrepArgs = { pattern = "TOKEN" } }"#,
            r#"{ piGrepResult = { success = { output = { "$contains" = "1 file(s) omitted" } } } }"#,
        ),
        exec(
            r#"{ gitDiffRequest = { baseRef = "HEAD" } }"#,
            r#"{ gitDiffResponse = { diff = { diffs = [ { from = "a.txt" } ] } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "new.txt", fileBytes = "ZXZpbAo=", toolCallId = "w" } }"#,
            &inline(&json!({"writeResult": {"rejected": {"reason": value(no("no such text"))}}})),
        ),
        exec(
            r#"{ piEditArgs = { path = "a.txt", edits = [ { oldText = "public", newText = "evil" } ] } }"#,
            &inline(&json!({"piEditResult": {"error": {"error": value(no("no such text"))}}})),
        ),
        r#"{ exec = { backgroundShellSpawnArgs = { command = "bash", workingDirectory = "$WS", toolCallId = "b", enableWriteShellStdinTool = true } }, expect = { backgroundShellSpawnResult = { success = { command = "bash" } } }, capture = { SHELL = "/backgroundShellSpawnResult/success/shellId" } }"#.into(),
        stdin("touch for", "{ success = {} }"),
        stdin(r"bidden\n", &inline(&json!({"error": {"error": value(no("no such command"))}}))),
        command("ls() { f=forbid; touch $${f}den; }; export KEPT=yes"),
        command("ls && test \"$$KEPT\" = yes"),
        exec(
            r#"{ deleteArgs = { path = ".env", toolCallId = "d" } }"#,
            r#"{ deleteResult = { success = { fileSize = { "$any" = true } } } }"#,
        ),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let outcome = session(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let sent = format!("{:?}", recording.frames(1, "client"));
    assert!(sent.contains("TOKEN=public"), "other files are searched");
    assert!(!sent.contains(SECRET), "{sent}");
    for made in ["forbidden", "new.txt", ".env"] {
        assert!(!sdk.workspace.join(made).exists(), "{made}");
    }
    let unchanged = fs::read_to_string(sdk.workspace.join("a.txt")).unwrap();
    assert_eq!(unchanged, "TOKEN=public\n");
    let log = fs::read_to_string(sdk.home.path().join(".cursor/log")).unwrap();
    let workspace = sdk.workspace.to_str().unwrap();
    assert!(log.contains(&format!(r#""file_path":"{workspace}/link""#)));
    assert!(log.contains(&format!(
        r#""command":"ls && test \"$KEPT\" = yes","cwd":"{workspace}""#
    )));
    assert!(log.contains(r#""edits":[{"old_string":"public","new_string":"evil"}]"#));
}
