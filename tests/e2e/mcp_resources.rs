//! Resources of MCP servers: where they are saved, and servers that do not respond.

use std::fs;

use serde_json::json;

use test_support::official_client::{OfficialClient, mcp_stdio, mcp_that_exits};
use test_support::scenario::{CONTEXT, Steps, exec, inline, runs, value};
use test_support::workspace::{session, write};

/// Configures two MCP servers; `silent` never answers a request for its resources.
fn with_servers(sdk: &OfficialClient) {
    let silent = mcp_that_exits(&sdk.home.path().join("lives"));
    let servers = json!({"mcpServers": {"local": mcp_stdio(), "silent": silent}});
    write(sdk.home.path(), ".cursor/mcp.json", &servers.to_string());
}

#[test]
fn an_mcp_call_ends_when_cursor_cancels_it() {
    let sdk = OfficialClient::new();
    with_servers(&sdk);
    let lives = r#"{ exec = { mcpArgs = { name = "silent-lives", providerIdentifier = "silent", toolName = "lives", toolCallId = "c", args = {} } }, expect = { mcpResult = { success = {} } } }"#;
    let aborted = |name: &str, args: &str, expect: &str| {
        Steps::new()
            .step(json!({
                "exec": value(args),
                "expect": value(expect),
                "open": true,
                "name": name.to_string(),
            }))
            .step(json!({"abort": name.to_string()}))
            .step(json!({"await": [name.to_string()], "timeout_ms": 20000}))
            .build()
    };
    let steps = [
        // Wait until it is connected.
        lives.to_owned(),
        aborted(
            "list",
            r#"{ listMcpResourcesExecArgs = { server = "silent" } }"#,
            r#"{ listMcpResourcesExecResult = { error = { error = "the request was cancelled" } } }"#,
        ),
        aborted(
            "read",
            r#"{ readMcpResourceExecArgs = { server = "silent", uri = "u:1" } }"#,
            r#"{ readMcpResourceExecResult = { error = { uri = "u:1", error = "the request was cancelled" } } }"#,
        ),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let env = [("PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS", "60")];
    let outcome = session(&simulator, &sdk, &env).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
}

fn saved(path: &str, expect: &str) -> String {
    exec(
        &inline(&json!({
            "readMcpResourceExecArgs": {"server": "local", "uri": "oracle://one", "downloadPath": path.to_string()},
        })),
        &inline(&json!({"readMcpResourceExecResult": value(expect)})),
    )
}

#[test]
fn a_resource_is_saved_inside_the_workspace() {
    let sdk = OfficialClient::new();
    with_servers(&sdk);
    let done = r#"{ success = { uri = "oracle://one", mimeType = "text/plain", text = { "$absent" = true } } }"#;
    let refused =
        |part: &str| inline(&json!({"error": {"error": {"$contains": part.to_string()}}}));
    let steps = [
        CONTEXT.to_owned(),
        saved("new/one.txt", done),
        saved("$WS/a.txt", done),
        saved("../outside.txt", &refused("outside the workspace")),
        saved(".cursorignore", &refused("permissions configuration")),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let outcome = session(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    for name in ["new/one.txt", "a.txt"] {
        let text = fs::read_to_string(sdk.workspace.join(name)).unwrap();
        assert_eq!(text, "resource one", "{name}");
    }
    assert!(!sdk.home.path().join("outside.txt").exists());
    assert!(!sdk.workspace.join(".cursorignore").exists());
    // If writing is denied, nothing is saved.
    let steps = saved("two.txt", &refused("does not save"));
    let simulator = runs(&[steps]);
    let env = [("PI_CURSOR_NATIVE_TOOLS_DENY", "write")];
    assert_eq!(session(&simulator, &sdk, &env).prompt("go").stop, "stop");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!sdk.workspace.join("two.txt").exists());
}
