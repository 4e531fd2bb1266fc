//! Workspaces with hostile content.

use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use test_support::official_client::OfficialClient;
use test_support::scenario::{CONTEXT, exec, inline, runs};
use test_support::workspace::{session, write};

/// Creates a pipe without a writer: opening it blocks forever, as reading `/dev/zero` would.
fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn endless_files_do_not_delay_a_turn() {
    let sdk = OfficialClient::new();
    let endless = sdk.home.path().join("endless");
    pipe(&endless);
    for name in [".gitignore", ".ignore", ".rgignore"] {
        symlink(&endless, sdk.workspace.join(name)).unwrap();
        write(&sdk.workspace, &format!("in{name}/hidden.txt"), "alpha\n");
        symlink(&endless, sdk.workspace.join(format!("in{name}/{name}"))).unwrap();
    }
    write(&sdk.workspace, "kept/hidden.txt", "alpha\n");
    symlink(&endless, sdk.workspace.join("kept/.cursorignore")).unwrap();
    let server = r#"{"mcpServers": {"s": {"command": "true", "envFile": "ENDLESS"}}}"#;
    let server = server.replace("ENDLESS", endless.to_str().unwrap());
    write(&sdk.workspace, ".cursor/mcp.json", &server);
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ lsArgs = { path = "$WS", toolCallId = "a" } }"#,
            "{ lsResult = { success = {} } }",
        ),
        exec(
            r#"{ grepArgs = { pattern = "alpha", path = "$WS", outputMode = "count", toolCallId = "b" } }"#,
            "{ grepResult = { success = {} } }",
        ),
        exec(
            r#"{ piFindArgs = { pattern = "*.txt" } }"#,
            r#"{ piFindResult = { success = { output = "a.txt" } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "$WS/kept/hidden.txt", toolCallId = "d" } }"#,
            "{ readResult = { permissionDenied = {} } }",
        ),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let outcome = session(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(
        outcome.notices.len(),
        1,
        "only that it is not trusted: {outcome:?}"
    );
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    for reply in ["lsResult", "grepResult"] {
        let replied = recording.client(&format!("execClientMessage.{reply}"))[0].to_string();
        assert!(
            replied.contains("a.txt") && !replied.contains("hidden.txt"),
            "{replied}"
        );
    }
}

/// The model cannot write hooks or MCP settings, because they would be executed in the next turn or
/// disable hooks.
#[test]
fn the_model_does_not_change_what_is_run() {
    let sdk = OfficialClient::new();
    let hooks = r#"{"version": 1, "hooks": {"beforeShellExecution": [{"command": "exit 2"}]}}"#;
    write(&sdk.workspace, ".cursor/hooks.json", hooks);
    let change = |name: &str| {
        exec(
            &inline(&json!({
                "writeArgs": {
                    "path": format!("$WS/.cursor/{name}"),
                    "fileText": "{}",
                    "toolCallId": "a",
                },
            })),
            r#"{ writeResult = { permissionDenied = { error = { "$contains" = "only the user may change it" } } } }"#,
        )
    };
    let delete = exec(
        r#"{ deleteArgs = { path = "$WS/.cursor/hooks.json", toolCallId = "b" } }"#,
        r#"{ deleteResult = { permissionDenied = { clientVisibleError = { "$contains" = "only the user may change it" } } } }"#,
    );
    let steps = [
        CONTEXT.to_owned(),
        change("hooks.json"),
        change("mcp.json"),
        delete,
    ];
    let guarded = exec(
        r#"{ shellArgs = { command = "touch ran", workingDirectory = "$WS", toolCallId = "c" } }"#,
        "{ shellResult = { rejected = {} } }",
    );
    let simulator = runs(&[steps.join(", "), guarded]);
    let mut session = session(&simulator, &sdk, &[("PI_CURSOR_TRUST_PROJECT", "1")]);
    for text in ["go", "on"] {
        let outcome = session.prompt(text);
        assert_eq!(outcome.stop, "stop", "{outcome:?}");
    }
    simulator.recorded().assert_played(&["completed"; 2]);
    assert!(!sdk.workspace.join("ran").exists());
    assert!(!sdk.workspace.join(".cursor/mcp.json").exists());
}
