//! Limits of MCP tools and background commands: long results, floods of notifications, too many
//! commands.

use serde_json::json;

use test_support::official_client::OfficialClient;
use test_support::root;
use test_support::scenario::{CONTEXT, call, exec, inline, runs, text, value};
use test_support::workspace::{talk, write};

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
    let mut talk = talk(&simulator, &sdk, &env);
    let taken = talk.prompt("go");
    assert_eq!(taken.stop, "stop", "{taken:?}");
    simulator.recorded().assert_played(&["completed"]);
    if let Some(peak) = talk.host.peak_kib() {
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
    let taken = talk(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(taken.stop, "stop", "{taken:?}");
    simulator.recorded().assert_played(&["completed"]);
}
