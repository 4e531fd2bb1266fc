//! The official OpenAI client against the gateway.

use std::process::Stdio;

use serde_json::{Value as Json, json};

use test_support::gateway::GatewayProcess;
use test_support::official_client::OfficialClient;
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::simulator::Transport;

/// Lists the models, runs turns, executes tools, and receives an error as an error.
#[test]
fn the_official_client_chats_and_calls_tools() {
    let steps = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .text("Let me look. ")
        .then(calls("look", r#"{ q = "it" }"#, "", &text("42")))
        .text("It says 42.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let output = OfficialClient::new()
        .command("openai.mjs")
        .env("OPENAI_BASE_URL", &gateway.url)
        .env("OPENAI_API_KEY", &gateway.token)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        report["models"].to_string().contains("composer-2"),
        "{report}"
    );
    let wanted = json!({"text": "Let me look. It says 42.", "thinking": "Hm.",
        "calls": [{"name": "look", "arguments": {"q": "it"}}],
        "finish": ["tool_calls", "stop"], "completion_tokens": 5});
    assert_eq!(report["chat"], wanted);
    assert_eq!(
        report["unknown"],
        json!({"status": 404, "code": "model_not_found"})
    );
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
}
