//! Whether a project's own settings may execute commands: decided by folder and by content.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::official_client::OfficialClient;
use test_support::rpc_session::{CollectedTurn, RpcSession};
use test_support::scenario::{CONTEXT, exec, inline, runs, value};
use test_support::workspace::{session, write};

/// Creates a named pipe; reading it blocks until something is written to it.
fn pipe(sdk: &OfficialClient, name: &str) -> String {
    let path = sdk.home.path().join(name);
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    path.to_str().unwrap().to_owned()
}

/// Configures a project MCP server that reports its start on a pipe.
fn name_server(sdk: &OfficialClient, pipe: &str) {
    let script = format!("echo started > '{pipe}'; echo {pipe} >> '{pipe}.log'");
    let servers = json!({"mcpServers": {"theirs": {"command": "sh", "args": ["-c", script]}}});
    write(&sdk.workspace, ".cursor/mcp.json", &servers.to_string());
}

fn starts(pipe: &str) {
    assert_eq!(fs::read_to_string(pipe).unwrap(), "started\n");
}

fn notice_count(outcome: &CollectedTurn, part: &str) -> usize {
    let notices = outcome.notices.iter();
    notices.filter(|notice| notice.contains(part)).count()
}

const CHANGED: &str = "is not what was accepted";

fn shell(expect: &str) -> String {
    exec(
        r#"{ shellStreamArgs = { command = "true", toolCallId = "a" } }"#,
        &inline(&json!({"shellStream": value(expect)})),
    )
}

#[test]
fn commands_changed_since_they_were_accepted_are_not_started() {
    let sdk = OfficialClient::new();
    let (first, second) = (pipe(&sdk, "first"), pipe(&sdk, "second"));
    name_server(&sdk, &first);
    let hooks = |command: &str| {
        let hook = json!([{"command": command}]);
        let hooks = json!({"version": 1, "hooks": {"beforeShellExecution": hook}});
        write(&sdk.workspace, ".cursor/hooks.json", &hooks.to_string());
    };
    hooks("true");
    let refused = inline(&json!({"rejected": {"reason": {"$contains": CHANGED.to_string()}}}));
    let done = "{ exit = { code = 0 } }";
    let simulator = runs(&[
        format!("{CONTEXT}, {}", shell(done)),
        shell(&refused),
        shell(done),
        shell(&refused),
    ]);
    let state = sdk.home.path().join("state");
    let state = state.to_str().unwrap();
    let env = [
        ("PI_CURSOR_TRUST_PROJECT", "1"),
        ("PI_CURSOR_STATE_DIR", state),
    ];
    let mut session = session(&simulator, &sdk, &env);
    let outcome = session.prompt("go");
    assert_eq!(
        (outcome.stop.as_str(), notice_count(&outcome, CHANGED)),
        ("stop", 0)
    );
    starts(&first);

    // As a `git pull` would.
    name_server(&sdk, &second);
    hooks("touch ran; true");
    let outcome = session.prompt("on");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(notice_count(&outcome, CHANGED), 2, "{outcome:?}");
    assert_eq!(notice_count(&outcome, "/cursor-trust"), 2, "{outcome:?}");
    assert!(!sdk.workspace.join("ran").exists());

    let params = json!({"command": "cursor-trust", "workspace": sdk.workspace});
    let accepted = session.host.call("session/command", params);
    let message = accepted["result"]["message"].as_str().unwrap();
    assert!(message.starts_with("Accepted .cursor/mcp.json and .cursor/hooks.json"));
    let outcome = session.prompt("now");
    assert_eq!(
        (outcome.stop.as_str(), notice_count(&outcome, CHANGED)),
        ("stop", 0)
    );
    starts(&second);
    assert!(sdk.workspace.join("ran").exists());

    let revoked = Command::new(binary())
        .args(["trust", "--revoke"])
        .arg(&sdk.workspace)
        .env_clear()
        .env("PI_CURSOR_STATE_DIR", state)
        .status();
    assert!(revoked.unwrap().success());
    assert_eq!(session.prompt("and now").stop, "stop");
    simulator.recorded().assert_played(&["completed"; 4]);
}

/// Takes a turn of a host that states whether its user trusts the workspace.
fn say_trusted(session: &mut RpcSession, text: &str, is_trusted: bool) -> CollectedTurn {
    session.user(text);
    let mut params = session.params();
    params["projectTrusted"] = is_trusted.into();
    let id = params["turnId"].as_str().unwrap().to_owned();
    let request = json!({"jsonrpc": "2.0", "id": id, "method": "turn/start", "params": params});
    session.host.send(&request);
    session.finish(&id)
}

#[test]
fn a_hosts_trust_accepts_the_present_content() {
    let sdk = OfficialClient::new();
    let (first, second) = (pipe(&sdk, "first"), pipe(&sdk, "second"));
    name_server(&sdk, &first);
    let simulator = runs(&["", "", ""].map(|_| CONTEXT.to_owned()));
    let mut session = session(&simulator, &sdk, &[]);
    let outcome = say_trusted(&mut session, "go", false);
    assert_eq!(
        notice_count(&outcome, "the project is not trusted"),
        1,
        "{outcome:?}"
    );
    let outcome = say_trusted(&mut session, "trust it", true);
    assert_eq!(
        (outcome.stop.as_str(), notice_count(&outcome, "accepted")),
        ("stop", 0)
    );
    starts(&first);
    name_server(&sdk, &second);
    let outcome = say_trusted(&mut session, "on", true);
    assert_eq!(notice_count(&outcome, CHANGED), 1, "{outcome:?}");
    drop(session);
    assert!(!Path::new(&format!("{second}.log")).exists());
    let runs: Vec<Json> = simulator.recorded().verdicts().to_vec();
    assert_eq!(runs.len(), 3);
}
