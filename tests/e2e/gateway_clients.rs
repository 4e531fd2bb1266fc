//! Client libraries from npm, unmodified, against the gateway: each runs a conversation in which
//! its tools read a file, run a command and edit a file, all in one run of Cursor's.

use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use test_support::gateway::GatewayProcess;
use test_support::official_client::OfficialClient;
use test_support::root;
use test_support::scenario::{END, Steps, playing};
use test_support::simulator::Transport;

/// A call of one of the tools in `tests/clients/tools.mjs`, and the text that must come back.
fn call(id: &str, tool: &str, args: Json, result: &str) -> Json {
    let name = format!("pi__{tool}");
    let call = json!({"name": name, "providerIdentifier": "pi", "toolName": name,
                      "toolCallId": id, "args": args});
    json!({"exec": {"mcpArgs": call},
           "expect": {"mcpResult": {"success": {"content": [{"text": {"text": result}}]}}}})
}

/// Runs a script of `tests/clients` and returns its report.
fn run(script: &str, env: &[(&str, &str)]) -> Json {
    let steps = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .step(json!({"thinking_done": 10}))
        .text("Let me look. ")
        .step(call(
            "toolu_1",
            "view_file",
            json!({"file": "a.txt"}),
            "alpha\nbeta\ngamma\n",
        ))
        .step(call(
            "call_2\nfc_2",
            "execute",
            json!({"script": "wc -l < a.txt | tr -d ' '"}),
            "3\n",
        ))
        .step(call(
            "toolu_3",
            "replace",
            json!({"file": "a.txt", "from": "beta", "to": "delta"}),
            "replaced",
        ))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let place = OfficialClient::new();
    let folder = root().join("tests/clients");
    assert!(
        folder.join("node_modules").exists(),
        "the clients are not installed: run `make test`, or `npm ci` in tests/clients"
    );
    let output = Command::new(place.command(script).get_program())
        .arg(folder.join(script))
        .current_dir(&place.workspace)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", place.home.path())
        .env("OPENAI_BASE_URL", &gateway.url)
        .env("OPENAI_API_KEY", &gateway.token)
        .env(
            "ANTHROPIC_BASE_URL",
            gateway.url.strip_suffix("/v1").unwrap(),
        )
        .env("ANTHROPIC_API_KEY", &gateway.token)
        .envs(env.iter().copied())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}");
    let edited = std::fs::read_to_string(place.workspace.join("a.txt")).unwrap();
    assert_eq!(edited, "alpha\ndelta\ngamma\n");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(
        recording.client("runRequest").len(),
        1,
        "three tools, one run"
    );
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["text"], "Let me look. Done.", "{report}");
    assert_eq!(report["thinking"], "Hm.", "{report}");
    assert_eq!(
        report["calls"],
        json!(["view_file", "execute", "replace"]),
        "{report}"
    );
    assert_eq!(report["output"], 5, "{report}");
    report
}

#[test]
fn openai_chat_completions() {
    let report = run("openai-chat.mjs", &[]);
    let finish = json!(["tool_calls", "tool_calls", "tool_calls", "stop"]);
    assert_eq!(
        (&report["finish"], &report["model"]),
        (&finish, &json!("composer-2"))
    );
}

#[test]
fn openai_responses_with_the_whole_history() {
    let report = run("openai-responses.mjs", &[("CONTINUE", "history")]);
    assert_eq!(report["finish"][3], "completed");
}

#[test]
fn openai_responses_by_the_id_of_the_last_one() {
    let report = run("openai-responses.mjs", &[("CONTINUE", "id")]);
    assert_eq!(report["finish"][3], "completed");
}

#[test]
fn anthropic_messages() {
    let report = run("anthropic.mjs", &[]);
    assert_eq!(
        report["finish"],
        json!(["tool_use", "tool_use", "tool_use", "end_turn"])
    );
    assert!(report["counted"].as_u64().unwrap() > 50, "{report}");
    assert_eq!(
        report["unknown"],
        json!({"status": 404, "type": "not_found_error"})
    );
}

#[test]
fn vercel_ai_sdk() {
    let report = run("ai-sdk.mjs", &[]);
    assert_eq!(
        report["finish"],
        json!(["tool-calls", "tool-calls", "tool-calls", "stop"])
    );
}
