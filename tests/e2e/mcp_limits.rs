//! Limits of MCP tools and background commands: long results, floods of notifications, too many
//! commands.

use serde_json::json;

use test_support::official_client::{McpHttpServer, OfficialClient};
use test_support::root;
use test_support::scenario::{CONTEXT, call, exec, inline, runs, text, value};
use test_support::workspace::{session, write};

#[test]
fn a_long_answer_is_an_error_at_once_and_a_flood_of_changes_costs_nothing() {
    let sdk = OfficialClient::new();
    let script = root().join("tests/official/mcp-giant.mjs");
    let servers = json!({"mcpServers": {"giant": {"command": "node", "args": [script]}}});
    write(sdk.home.path(), ".cursor/mcp.json", &servers.to_string());
    let refused = r#"{ error = { error = { "$contains" = "longer than 16 MiB" } } }"#;
    let steps = [
        CONTEXT.to_owned(),
        call("giant", "giant", "{}", refused),
        call("giant", "flood", "{}", &text("flooded")),
        call("giant", "few", "{}", &text("few")),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let env = [("PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS", "60")];
    let mut session = session(&simulator, &sdk, &env);
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    if let Some(peak) = session.host.peak_kib() {
        assert!(peak / 1024 <= 120, "{} MiB", peak / 1024);
    }
}

/// Over HTTP an answer is a JSON body or an event of a stream. Both are bounded, whether their
/// length is announced or they never end.
#[test]
fn long_answers_over_http_are_errors_at_once_and_cost_little() {
    let sdk = OfficialClient::new();
    let server = McpHttpServer::giant(&sdk);
    let servers = json!({"mcpServers": {"giant": {"url": server.url}}});
    write(sdk.home.path(), ".cursor/mcp.json", &servers.to_string());
    let refused = r#"{ error = { error = { "$contains" = "longer than 16 MiB" } } }"#;
    let mut steps = vec![CONTEXT.to_owned()];
    for tool in [
        "body",
        "endless_body",
        "event",
        "endless_event",
        "error_body",
    ] {
        steps.push(call("giant", tool, "{}", refused));
        steps.push(call("giant", "fine", "{}", &text("fine")));
    }
    let simulator = runs(&[steps.join(", ")]);
    let env = [("PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS", "60")];
    let mut session = session(&simulator, &sdk, &env);
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    if let Some(peak) = session.host.peak_kib() {
        eprintln!("long MCP answers over HTTP: {} MiB", peak / 1024);
        assert!(peak / 1024 <= 120, "{} MiB", peak / 1024);
    }
}

#[test]
fn one_command_too_many_is_refused() {
    let sdk = OfficialClient::new();
    let spawn = |expect: &str| {
        exec(
            r#"{ backgroundShellSpawnArgs = { command = "exec sleep 600", workingDirectory = "$WS", toolCallId = "a", parsingResult = {} } }"#,
            &inline(&json!({"backgroundShellSpawnResult": value(expect)})),
        )
    };
    let mut steps = vec![CONTEXT.to_owned()];
    steps.extend((0..64).map(|_| spawn("{ success = {} }")));
    steps.push(spawn(
        r#"{ error = { error = { "$contains" = "64 commands are being executed, which is the limit" } } }"#,
    ));
    let simulator = runs(&[steps.join(", ")]);
    let outcome = session(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
}
