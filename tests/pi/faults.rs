//! Faults in the middle of a turn with real pi: nothing is shown or executed twice, and nothing is
//! lost.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use test_support::pi_env::{PiEnv, PiVersion, conversation, user_text, written};
use test_support::pi_rpc::{PiRpc, text};
use test_support::pi_tools::TOOLS;
use test_support::scenario::{Steps, document};
use test_support::wait::until_named;

const END: &str = r#"{ checkpoint = "auto" }, { usage = {} }, { end = true }"#;

/// A run that sends text, calls a tool of pi, and continues with the result.
const WAITS: &str = r#"{ text = "Waiting. " }, { checkpoint = "auto" }, { exec = { mcpArgs = { name = "pi__wait", toolName = "pi__wait", providerIdentifier = "pi", toolCallId = "call-wait", args = {} } }, open = true, name = "wait" }, { expect_cancel = true, timeout_ms = 60000 }"#;

fn pi_env(version: PiVersion, runs: &[String]) -> PiEnv {
    let runs = runs
        .iter()
        .map(|steps| Steps::new().context().then(steps).build());
    let runs: Vec<String> = runs.collect();
    let pi_env = PiEnv::playing(version, &document("losses", &runs));
    std::fs::write(pi_env.home.path().join("tools.ts"), TOOLS).unwrap();
    pi_env
}

/// Starts pi with a tool that writes a file when it starts and then waits for another file.
fn pi(pi_env: &PiEnv, more: &[&str]) -> PiRpc {
    let tools = pi_env.home.path().join("tools.ts");
    let tools = tools.to_str().unwrap();
    let arguments = ["--model", "cursor/composer-2", "-e", tools];
    PiRpc::with(pi_env, &[&arguments[..], more].concat())
}

fn waits(pi_env: &PiEnv) {
    let sign = pi_env.home.path().join("waiting");
    until_named("pi runs the tool", || sign.exists().then_some(()));
}

fn kill(id: i32) {
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
}

/// Returns the messages of pi's session as role and text.
fn stored_messages(pi_env: &PiEnv) -> Vec<(String, String)> {
    let entries = written(pi_env).into_iter();
    let messages = entries.filter(|entry| entry["type"] == "message");
    let messages = messages.map(|entry| entry["message"].clone());
    let spoken = messages.filter(|message| message["role"] != "system");
    let words = |message: &Json| match &message["content"] {
        Json::String(text) => text.clone(),
        _ => text(message).to_owned(),
    };
    spoken
        .map(|message| (message["role"].as_str().unwrap().into(), words(&message)))
        .collect()
}

/// The connection is lost after text was shown; pi still shows one answer.
#[test]
fn a_cut_in_the_middle_of_the_text_is_not_visible() {
    let first = r#"{ text = "one " }, { checkpoint = "auto" }, { text = "two " }, { kv_set = { text = "read this far" } }, { cut = true }"#;
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("two ")
        .text("three")
        .then(END)
        .build();
    let pi_env = pi_env(PiVersion::V150, &[first.into(), second]);
    let mut pi = pi(&pi_env, &[]);
    let answer = pi.prompt("count");
    assert_eq!(
        (text(&answer), &answer["stopReason"]),
        ("one two three", &json!("stop"))
    );
    let one = |(role, words): &(String, String)| format!("{role}: {words}");
    let stored_messages: Vec<String> = stored_messages(&pi_env).iter().map(one).collect();
    assert_eq!(stored_messages, ["user: count", "assistant: one two three"]);
    let recording = pi_env.simulator.recorded();
    assert_eq!(recording.client("runRequest").len(), 2);
}

/// Another sidecar receives the result; the tool has run once.
#[test]
fn a_sidecar_killed_while_pi_runs_a_tool_loses_nothing() {
    let last = Steps::new()
        .expect_state("last checkpoint")
        .text("Done.")
        .then(END)
        .build();
    let pi_env = pi_env(PiVersion::V087, &[WAITS.into(), last]);
    let mut pi = pi(&pi_env, &[]);
    pi.send(&json!({"type": "prompt", "message": "wait for it"}));
    assert_eq!(pi.answer()["stopReason"], "toolUse");
    waits(&pi_env);
    let sidecar = *pi_env.sidecars().last().unwrap();
    kill(sidecar);
    // The process entry exists until its parent has reaped it.
    let process = Path::new("/proc").join(sidecar.to_string());
    until_named("pi has noticed", || (!process.exists()).then_some(()));
    std::fs::write(pi_env.home.path().join("done"), "").unwrap();
    let answer = pi.answer();
    assert_eq!(
        (text(&answer), &answer["stopReason"]),
        ("Done.", &json!("stop")),
        "{answer}"
    );
    pi.settle();
    let stored_messages = stored_messages(&pi_env);
    let results = stored_messages
        .iter()
        .filter(|(role, _)| role == "toolResult");
    assert_eq!(results.count(), 1, "{stored_messages:?}");
    let recording = pi_env.simulator.recorded();
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert!(user_text(requests[1]).contains("\nwaited\n"));
    assert_eq!(pi_env.sidecars().len(), 2);
}

/// pi is killed with its tool. Another pi continues the saved session, and no process of the first
/// one is left.
#[test]
fn another_pi_continues_when_one_is_killed_while_it_runs_a_tool() {
    let last = Steps::new()
        .expect_state("last checkpoint")
        .text("Went on.")
        .then(END)
        .build();
    let pi_env = pi_env(PiVersion::V150, &[WAITS.into(), last]);
    let mut first = pi(&pi_env, &[]);
    first.send(&json!({"type": "prompt", "message": "wait for it"}));
    assert_eq!(first.answer()["stopReason"], "toolUse");
    waits(&pi_env);
    drop(first); // with SIGKILL
    pi_env.no_sidecar_is_left();
    let mut second = pi(&pi_env, &["--continue"]);
    let answer = second.prompt("go on");
    assert_eq!(text(&answer), "Went on.", "{answer}");
    let recording = pi_env.simulator.recorded();
    let requests = recording.client("runRequest");
    assert_eq!(requests.len(), 2);
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert!(
        user_text(requests[1]).starts_with("go on"),
        "{}",
        requests[1]
    );
    let words: Vec<String> = stored_messages(&pi_env)
        .into_iter()
        .map(|(_, words)| words)
        .collect();
    for word in ["wait for it", "Waiting. ", "go on", "Went on."] {
        let times = words.iter().filter(|text| *text == word).count();
        assert_eq!(times, 1, "{word}: {words:?}");
    }
}

/// A native tool that ran for the first pi is not executed again for the second one.
#[test]
fn a_command_is_not_run_twice_when_pi_is_killed_after_it() {
    let command = json!({"shellStreamArgs": {"command": "echo line >> log; echo line",
        "workingDirectory": "$WS", "toolCallId": "c", "timeout": 10000}});
    let hello = Steps::new().text("Hello.").then(END).build();
    let first = Steps::new()
        .step(json!({"exec": command}))
        .step(json!({"expect_cancel": true, "timeout_ms": 60000}))
        .build();
    let second = Steps::new()
        .step(json!({"exec": command, "throws": "Check its effects first"}))
        .text("Looked.")
        .then(END)
        .build();
    let runs = [hello, first, second].map(|steps| Steps::new().context().then(steps).build());
    let scenario = "attempts = \"all\"\n".to_owned() + &document("losses", &runs);
    let pi_env = PiEnv::playing(PiVersion::V150, &scenario).with("PI_CURSOR_NATIVE_TOOLS", "local");
    std::fs::write(pi_env.home.path().join("tools.ts"), TOOLS).unwrap();
    let mut first = pi(&pi_env, &[]);
    assert_eq!(text(&first.prompt("hello")), "Hello.");
    first.send(&json!({"type": "prompt", "message": "do it"}));
    let log = pi_env.home.path().join("workspace/log");
    until_named("the command has run", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text == "line\n").then_some(())
    });
    drop(first); // with SIGKILL
    pi_env.no_sidecar_is_left();
    let mut second = pi(&pi_env, &["--continue"]);
    let answer = second.prompt("go on");
    assert_eq!(text(&answer), "Looked.", "{answer}");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "line\n");
}
