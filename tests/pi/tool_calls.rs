//! Parallel and consecutive calls of pi's tools: all of them belong to one run.

use serde_json::{Value as Json, json};

use test_support::pi_env::{PiEnv, PiVersion, written};
use test_support::pi_rpc::text;
use test_support::pi_tools::{END, call, pi, pi_env, says, text_of};
use test_support::simulator::Recording;

crate::on_every_pi!(
    calls_at_once_are_one_message_of_one_run,
    calls_in_three_rounds_are_one_run,
);

/// Checks that each of `calls` calls has one result and one close, all in one run that was started
/// once.
#[track_caller]
pub fn one_run(recording: &Recording, calls: usize) {
    assert_eq!(recording.runs(), 1, "one stream");
    assert_eq!(recording.client("runRequest").len(), 1, "one run");
    let ids = |frames: Vec<&Json>, kind: &str| {
        let ids = frames.iter().map(|frame| match kind.split_once('.') {
            Some((outer, inner)) => &frame[outer][inner]["id"],
            None => &frame[kind]["id"],
        });
        let mut ids: Vec<u64> = ids.map(|id| id.as_u64().unwrap_or_default()).collect();
        ids.sort_unstable();
        ids
    };
    let asked: Vec<&Json> = recording
        .frames(1, "server")
        .into_iter()
        .filter(|frame| frame["kind"] == "execServerMessage.mcpArgs")
        .map(|frame| &frame["json"])
        .collect();
    let asked = ids(asked, "execServerMessage");
    assert_eq!(asked.len(), calls);
    let answers = recording.client("execClientMessage.mcpResult");
    assert_eq!(
        ids(answers, "execClientMessage"),
        asked,
        "one result a call"
    );
    let kind = "execClientControlMessage.streamClose";
    let mut closes = ids(recording.client(kind), kind);
    assert_eq!(closes.len(), calls + 1, "one is of the context");
    closes.retain(|id| asked.contains(id));
    assert_eq!(closes, asked, "one close a call");
}

/// Returns the messages of a finished session from pi's session file.
pub fn session(pi_env: &PiEnv) -> Vec<String> {
    let entries = written(pi_env);
    let messages = entries.iter().map(|entry| &entry["message"]);
    let wanted = messages
        .filter(|message| message.is_object() && message["role"] != "system")
        .map(|message| {
            let blocks = message["content"].as_array().cloned().unwrap_or_default();
            let parts = blocks.iter().map(|block| match block["type"].as_str() {
                Some("toolCall") => format!("call {}", block["name"].as_str().unwrap()),
                Some("text") => block["text"].as_str().unwrap().to_owned(),
                Some("thinking") => format!("thinks {}", block["thinking"].as_str().unwrap()),
                other => format!("{other:?}"),
            });
            let parts = parts.collect::<Vec<_>>().join(", ");
            let who = message["role"].as_str().unwrap();
            match message["toolName"].as_str() {
                Some(tool) => format!("{tool}: {parts}"),
                None => format!("{who}: {parts}"),
            }
        });
    wanted.collect()
}

/// Returns one of several calls of `echo`.
fn echo(name: &str, options: &str) -> String {
    call("echo", options)
        .replace("text = \"echo\" } }", &format!("text = \"{name}\" }} }}"))
        .replace("call-echo", &format!("call-{name}"))
}

fn calls_at_once_are_one_message_of_one_run(version: PiVersion) {
    let open = |name: &str| {
        let expect = says(&format!("\"echo {name}\""));
        echo(name, &format!(r#"open = true, name = "{name}", {expect}"#))
    };
    let steps = [
        "{ together = true }",
        r#"{ thinking = "Hm." }"#,
        r#"{ text = "Three things:" }"#,
        r#"{ thinking = "So." }"#,
        r#"{ text = "a, b, c." }"#,
        &open("a"),
        &open("b"),
        &open("c"),
        r#"{ await = ["a", "b", "c"] }"#,
        r#"{ text = "All done." }"#,
        END,
    ];
    let (pi_env, tools) = pi_env(version, &[steps.join(", ")]);
    let mut pi = pi(&pi_env, &tools, &[]);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    // Each block ends before the next starts, and all end before the calls.
    let mut order = Vec::new();
    let answer = loop {
        let event = pi.event("a message", |_| true);
        let kind = event["assistantMessageEvent"]["type"].as_str();
        let kind = kind.filter(|kind| !kind.ends_with("_delta") && *kind != "start");
        order.extend(kind.map(str::to_owned));
        if event["type"] == "message_end" && event["message"]["role"] == "assistant" {
            break event["message"].clone();
        }
    };
    let kinds = ["thinking", "text", "thinking", "text"];
    let kinds = kinds.into_iter().chain(["toolcall"; 3]);
    let expected = kinds.flat_map(|kind| [format!("{kind}_start"), format!("{kind}_end")]);
    assert_eq!(order, expected.collect::<Vec<_>>());
    assert_eq!(answer["stopReason"], "toolUse", "{answer}");
    assert_eq!(text(&pi.answer()), "All done.");
    pi.settle();
    pi.quit();
    let wanted = [
        "user: go",
        "assistant: thinks Hm., Three things:, thinks So., a, b, c., call echo, call echo, call echo",
        "echo: echo a",
        "echo: echo b",
        "echo: echo c",
        "assistant: All done.",
    ];
    assert_eq!(session(&pi_env), wanted);
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"]);
    one_run(&recording, 3);
}

/// The second call takes a while, during which the run sends heartbeats.
fn calls_in_three_rounds_are_one_run(version: PiVersion) {
    let steps = [
        &echo("a", &says("\"echo a\"")),
        r#"{ text = "One." }"#,
        &call("wait", &says("\"waited\"")),
        r#"{ text = "Two." }"#,
        &echo("c", &says("\"echo c\"")),
        r#"{ text = "Three." }"#,
        END,
    ];
    let (pi_env, tools) = pi_env(version, &[steps.join(", ")]);
    let mut pi = pi(&pi_env, &tools, &[]);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    pi.event("the tool", |event| {
        event["type"] == "tool_execution_start" && event["toolName"] == "wait"
    });
    pi_env.recorded("signs of life", |recording| {
        let beats = recording.client("execClientControlMessage.heartbeat");
        beats.len() > 1 && !recording.client("clientHeartbeat").is_empty()
    });
    std::fs::write(pi_env.home.path().join("done"), "").unwrap();
    pi.event("the end", |event| {
        event["type"] == "message_end" && text_of(event) == "Three."
    });
    pi.settle();
    pi.quit();
    let wanted = [
        "user: go",
        "assistant: call echo",
        "echo: echo a",
        "assistant: One., call wait",
        "wait: waited",
        "assistant: Two., call echo",
        "echo: echo c",
        "assistant: Three.",
    ];
    assert_eq!(session(&pi_env), wanted);
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"]);
    one_run(&recording, 3);
}
