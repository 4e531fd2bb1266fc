//! Faults after which pi must show no text again, execute nothing again and lose no message: its own
//! retry, its steering messages and its cards.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use crate::tool_calls::session;
use test_support::pi_env::{PiEnv, PiVersion, conversation, user_text};
use test_support::pi_rpc::{PiRpc, text};
use test_support::pi_tools::{END, TOOLS, call, pi, says, text_of};
use test_support::scenario::{Steps, document, inline, value};
use test_support::simulator::Recording;
use test_support::wait::until_named;

/// Creates the tests of the versions in which the faults were found.
macro_rules! on_pi_079_and_087 {
    ($($test:ident)+) => {
        crate::on_every_pi!(@version v079 V079 $($test)+);
        crate::on_every_pi!(@version v087 V087 $($test)+);
    };
}

on_pi_079_and_087!(
    text_before_a_card_is_not_repeated_after_an_abort
    text_before_a_card_is_not_repeated_after_an_error
    text_before_a_card_is_not_repeated_after_a_lost_connection
    text_before_a_card_is_not_repeated_after_a_kill
    commands_are_executed_once_when_a_retry_starts_another_conversation
    results_precede_a_message_that_the_server_rejects
    results_precede_a_message_that_the_server_puts_off
    results_precede_a_message_that_is_followed_by_an_abort
);

/// The client's response proves that it has read everything before it.
const READ: &str = r#"{ kv_set = { text = "read this far" } }"#;
/// An error after which pi asks again.
const OVERLOADED: &str =
    r#"{ end = { code = "permission_denied", message = "overloaded, come back later" } }"#;
const CANCELLED: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }"#;
const INJECTED: &str = r#"{ expect_client = { conversationAction = { injectContextAction = {} } }, capture = { I = "/conversationAction/injectContextAction/injectionId" } }"#;

/// A completed native tool call, which pi displays as a card.
fn card() -> String {
    let read = json!({"args": {"path": "a"}, "result": {"success": {"content": "c"}}});
    let completed = json!({"callId": "a", "toolCall": {"readToolCall": read}});
    inline(&json!({"update": {"toolCallCompleted": completed}}))
}

/// Returns an environment whose simulator plays these runs, counted over all conversations.
fn pi_env(version: PiVersion, runs: &[Steps]) -> PiEnv {
    let runs: Vec<String> = runs.iter().map(|steps| steps.clone().build()).collect();
    let scenario = format!("attempts = \"all\"\n{}", document("once", &runs));
    let pi_env = PiEnv::playing(version, &scenario);
    std::fs::write(pi_env.home.path().join("tools.ts"), TOOLS).unwrap();
    pi_env
}

/// Waits until pi displays this text; versions differ in how they report it.
fn streams(pi: &mut PiRpc, text: &str) {
    pi.event(text, |event| {
        event["type"] == "message_update" && event.to_string().contains(text)
    });
}

/// Checks that no expectation of the simulator was missed.
#[track_caller]
fn assert_no_failures(recording: &Recording) {
    let verdicts = recording.verdicts().iter();
    let failures: Vec<String> = verdicts
        .flat_map(|verdict| verdict["failures"].as_array().unwrap())
        .map(Json::to_string)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[track_caller]
fn assert_once(whole: &str, parts: &[&str]) {
    for part in parts {
        assert_eq!(whole.matches(part).count(), 1, "{part:?} in {whole:?}");
    }
}

/// Text, a checkpoint, text, a card, and text after the card, which pi shows in its next turn.
fn before_and_after_a_card() -> Steps {
    Steps::new()
        .context()
        .text("One. ")
        .checkpoint()
        .text("Two. ")
        .then(card())
        .then(READ)
        .text("Three. ")
}

/// Plays a card and a fault after it, and checks that pi stores each text once. Returns the message
/// that the next run is started with.
fn card_and_fault(
    version: PiVersion,
    fault: &str,
    next: &str,
    cause: impl Fn(&PiEnv, &mut PiRpc),
) -> String {
    let home = tempfile::tempdir().unwrap();
    let displayed = home.path().join("displayed");
    let first = before_and_after_a_card()
        .step(json!({"expect_file": displayed}))
        .then(fault);
    let next = Steps::new()
        .expect_state("last checkpoint")
        .text(next)
        .then(END);
    let pi_env = pi_env(version, &[first, next]);
    let mut pi = PiRpc::start(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    assert_eq!(text(&pi.answer()), "One. Two. ");
    streams(&mut pi, "Three.");
    std::fs::write(&displayed, "").unwrap();
    cause(&pi_env, &mut pi);
    pi.event("the last answer", |event| {
        event["type"] == "message_end" && text_of(event).ends_with("Four.")
    });
    pi.settle();
    pi.quit();
    let recording = pi_env.simulator.recorded();
    assert_no_failures(&recording);
    let requests = recording.client("runRequest");
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_once(
        &session(&pi_env).join("\n"),
        &["One. ", "Two. ", "Three. ", "Four."],
    );
    let sent = user_text(requests[1]);
    assert!(!sent.contains("One."), "the checkpoint includes it: {sent}");
    sent.to_owned()
}

fn text_before_a_card_is_not_repeated_after_an_abort(version: PiVersion) {
    let fault = format!("{CANCELLED}, {{ end = true }}");
    let sent = card_and_fault(version, &fault, "Four.", |_, pi| {
        pi.send(&json!({"type": "abort"}));
        assert_eq!(pi.answer()["stopReason"], "aborted");
        pi.settle();
        pi.send(&json!({"type": "prompt", "message": "go on"}));
    });
    assert_once(&sent, &["Two.", "Three.", "go on"]);
}

fn text_before_a_card_is_not_repeated_after_an_error(version: PiVersion) {
    // The error says nothing about the checkpoint, and only the user can continue.
    let limit = r#"{ end = { code = "resource_exhausted", message = "Error", error = "ERROR_FREE_USER_USAGE_LIMIT", title = "T", detail = "D", retryable = false } }"#;
    let sent = card_and_fault(version, limit, "Four.", |_, pi| {
        assert_eq!(pi.answer()["stopReason"], "error");
        pi.settle();
        pi.send(&json!({"type": "prompt", "message": "go on"}));
    });
    assert_once(&sent, &["Two.", "Three.", "go on"]);
}

/// The sidecar resumes the run in the same turn of pi. The model generates the text since the
/// checkpoint again, and pi shows only what is new.
fn text_before_a_card_is_not_repeated_after_a_lost_connection(version: PiVersion) {
    let cut = format!("{READ}, {{ cut = true }}");
    let sent = card_and_fault(version, &cut, "Two. Three. Four.", |_, _| {});
    assert_eq!(sent, "");
}

/// pi notices that the sidecar is gone and asks another one. It drops the failed answer, so only the
/// text before the card is known.
fn text_before_a_card_is_not_repeated_after_a_kill(version: PiVersion) {
    let sent = card_and_fault(version, r#"{ stall = true }"#, "Four.", |pi_env, pi| {
        let sidecar = Pid::from_raw(*pi_env.sidecars().last().unwrap()).unwrap();
        kill_process(sidecar, Signal::KILL).unwrap();
        assert_eq!(pi.answer()["stopReason"], "error");
    });
    assert_once(&sent, &["Two."]);
}

/// A command that appends its name to a file in the workspace, with options of the step.
fn command(name: &str, then: &str, options: &str) -> String {
    let args = json!({"command": format!("echo {name} >> log; echo {name}{then}"),
        "workingDirectory": "$WS", "toolCallId": name, "timeout": 600_000});
    let mut step = value(format!("{{ {options} }}"));
    step["exec"] = json!({"shellStreamArgs": args});
    inline(&step)
}

fn executed(workspace: &Path) -> String {
    let log = std::fs::read_to_string(workspace.join("log"));
    log.unwrap_or_default().replace('\n', " ")
}

/// Command A, a checkpoint, command B; the server fails while B runs. pi asks again, the server
/// refuses the checkpoint, and the next attempt of pi is another conversation.
fn commands_are_executed_once_when_a_retry_starts_another_conversation(version: PiVersion) {
    let output = r#"expect = { shellStream = { stdout = "a\n" } }"#;
    let endless = "; exec sleep 600";
    let home = tempfile::tempdir().unwrap();
    let started = home.path().join("started");
    let first = Steps::new()
        .context()
        .then(command("a", "", output))
        .text("Did it. ")
        .checkpoint()
        .then(command("b", endless, r#"open = true, name = "b""#))
        .step(json!({"expect_file": started}))
        .then(r#"{ end = { code = "unavailable", message = "overloaded" } }"#);
    let second = Steps::new().context().then(READ).then(OVERLOADED);
    let third = Steps::new()
        .context()
        .then(command("a", "", r#"may_throw = "executed""#))
        .then(command("b", endless, r#"throws = """#))
        .text("Done.")
        .then(END);
    let pi_env = pi_env(version, &[first, second, third])
        .with("PI_CURSOR_NATIVE_TOOLS", "local")
        .with("PI_CURSOR_NATIVE_TOOL_DISPLAY", "0");
    let mut pi = PiRpc::start(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    until_named("both commands have run", || {
        (executed(&pi_env.workspace) == "a b ").then_some(())
    });
    std::fs::write(&started, "").unwrap();
    for _ in 0..2 {
        assert_eq!(pi.answer()["stopReason"], "error");
        pi.event("a retry", |event| event["type"] == "auto_retry_start");
    }
    let answer = pi.answer();
    assert_eq!(
        (text(&answer), &answer["stopReason"]),
        ("Done.", &json!("stop")),
        "{answer}"
    );
    pi.settle();
    assert_eq!(executed(&pi_env.workspace), "a b ");
    let recording = pi_env.simulator.recorded();
    assert_no_failures(&recording);
    let requests = recording.client("runRequest");
    assert_eq!(requests.len(), 3);
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_ne!(conversation(requests[1]), conversation(requests[2]));
}

/// A native command, a call of pi's tool, and a user message that arrives while the tool runs. The
/// message is not delivered to the run that asked for the tool, so the next run gets both.
fn results_and_message(
    version: PiVersion,
    report: &str,
    cause: impl Fn(&PiEnv, &mut PiRpc) -> bool,
) {
    let waited = says("\"waited\"");
    let first = Steps::new()
        .context()
        .checkpoint()
        .then(command("a", "", ""))
        .then(call("wait", &waited))
        .then(INJECTED)
        .then(report)
        .then(CANCELLED)
        .end();
    let second = Steps::new()
        .context()
        .then(command("a", "", r#"may_throw = "executed""#))
        .then(call(
            "wait",
            &format!(r#"may_throw = "executed", {waited}"#),
        ))
        .text("Done.")
        .then(END);
    let pi_env = pi_env(version, &[first, second]).with("PI_CURSOR_NATIVE_TOOLS", "local");
    let mut pi = pi(&pi_env, &pi_env.home.path().join("tools.ts"), &[]);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    pi.event("the tool", |event| event["type"] == "tool_execution_start");
    pi.ask(json!({"type": "steer", "message": "hurry"}));
    std::fs::write(pi_env.home.path().join("done"), "").unwrap();
    let is_aborted = cause(&pi_env, &mut pi);
    pi.event("the last answer", |event| {
        event["type"] == "message_end" && text_of(event) == "Done."
    });
    pi.settle();
    pi.quit();
    assert_eq!(executed(&pi_env.workspace), "a ");
    let recording = pi_env.simulator.recorded();
    assert_no_failures(&recording);
    let frames = recording.frames(1, "client");
    let at = |kind: &str| {
        let mut frames = frames.iter().enumerate();
        let found = frames.find(|(_, frame)| frame["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}")).0
    };
    let [result, message] = [
        "execClientMessage.mcpResult",
        "conversationAction.injectContextAction",
    ]
    .map(at);
    assert!(result < message, "{result} is after {message}");
    let requests = recording.client("runRequest");
    assert_eq!(requests.len(), 2);
    assert_once(user_text(requests[1]), &["waited", "hurry"]);
    let messages = session(&pi_env);
    let results = messages.iter().filter(|message| *message == "wait: waited");
    assert_eq!(results.count(), 1, "{messages:?}");
    let mut users = vec!["user: go", "user: hurry"];
    users.extend(is_aborted.then_some("user: go on"));
    let said: Vec<&String> = (messages.iter())
        .filter(|message| message.starts_with("user: "))
        .collect();
    assert_eq!(said, users);
}

fn results_precede_a_message_that_the_server_rejects(version: PiVersion) {
    let rejected = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { rejected = { reason = "no" } } } } }"#;
    results_and_message(version, rejected, |_, _| false);
}

fn results_precede_a_message_that_the_server_puts_off(version: PiVersion) {
    let next_turn = r#"{ update = { contextInjectionState = { injectionId = "$I", state = { queuedForNextTurn = {} } } } }"#;
    results_and_message(version, next_turn, |_, _| false);
}

fn results_precede_a_message_that_is_followed_by_an_abort(version: PiVersion) {
    results_and_message(version, "", |pi_env, pi| {
        pi_env.recorded("the message", |recording| {
            let injected = recording.client("conversationAction.injectContextAction");
            !injected.is_empty()
        });
        pi.send(&json!({"type": "abort"}));
        pi.event("the end of the turn", |event| {
            event["type"] == "message_end" && event["message"]["stopReason"] == "aborted"
        });
        pi.settle();
        pi.send(&json!({"type": "prompt", "message": "go on"}));
        true
    });
}
