//! Aborts, errors, retries, context overflows, and a sidecar that keeps crashing.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use test_support::pi_env::{ECHO, PiEnv, PiVersion, conversation, user_text, written};
use test_support::pi_rpc::{PiRpc, text};
use test_support::scenario::{Steps, document};

crate::on_every_pi!(
    an_abort_ends_the_turn_at_once,
    an_overloaded_server_is_asked_again,
    an_overflow_makes_pi_compact_and_continue,
    after_an_abort_the_conversation_continues,
    a_quota_is_not_asked_for_again,
);

fn an_abort_ends_the_turn_at_once(version: PiVersion) {
    let pi_env = PiEnv::open(version);
    let mut pi = PiRpc::start(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "@cancel one"}));
    pi.event("a delta", |event| event["type"] == "message_update");
    pi.send(&json!({"type": "abort"}));
    let message = pi.answer();
    assert_eq!(message["stopReason"], "aborted", "{message}");
    pi.settle();
    assert_eq!(text(&pi.prompt("@hello two")), "Hello, world!");
    let recording = pi_env.recorded("both runs", |recording| recording.verdicts().len() == 2);
    recording.assert_played(&["cancelled by client", "completed"]);
}

fn a_quota_is_not_asked_for_again(version: PiVersion) {
    let scenario = r#"
name = "quota"
[[run]]
steps = [ { end = { code = "resource_exhausted", message = "Error", error = "ERROR_RATE_LIMITED", title = "Rate limit", detail = "429: too many requests. You are out of your 500 requests.", retryable = false } } ]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let mut pi = PiRpc::start(&pi_env);
    let message = pi.prompt("hi");
    let error = message["errorMessage"].as_str().unwrap();
    let next = "(quota exceeded). The plan and what is used of it: /cursor-usage.";
    assert!(error.ends_with(next), "{error}");
    // Idle, and no further request was sent: neither a retry nor a summary.
    pi.settle();
    assert_eq!(pi_env.simulator.recorded().client("runRequest").len(), 1);
    let message = pi.prompt("hi again");
    assert_eq!(message["stopReason"], "error");
    assert_eq!(pi_env.simulator.recorded().client("runRequest").len(), 2);
}

fn after_an_abort_the_conversation_continues(version: PiVersion) {
    let pi_env = PiEnv::open(version);
    let mut pi = PiRpc::start(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "@cancel one"}));
    pi.event("a delta", |event| event["type"] == "message_update");
    pi.send(&json!({"type": "abort"}));
    pi.answer();
    pi.settle();
    pi_env.recorded("the run is cancelled", |recording| {
        recording.verdicts().len() == 1
    });
    assert_eq!(text(&pi.prompt("@cancel two")), "Follow-up answer.");
    let recording = pi_env.recorded("both runs", |recording| recording.verdicts().len() == 2);
    recording.assert_played(&["cancelled by client", "completed"]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
}

fn an_overloaded_server_is_asked_again(version: PiVersion) {
    let scenario = r#"
name = "busy"
[[run]]
steps = [ { end = { code = "permission_denied", message = "overloaded, come back later" } } ]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let mut pi = PiRpc::start(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "hi"}));
    for _ in 0..2 {
        assert_eq!(pi.answer()["stopReason"], "error");
        pi.event("a retry", |event| event["type"] == "auto_retry_start");
    }
    let end = pi.event("the end", |event| event["type"] == "auto_retry_end");
    assert_eq!(end["success"], false, "{end}");
    let recording = pi_env.simulator.recorded();
    let requests = recording.client("runRequest");
    let texts: Vec<_> = requests.iter().map(|request| user_text(request)).collect();
    assert_eq!(texts, ["hi"; 3], "no text is sent twice in one request");
}

#[test]
fn a_server_that_recovers_answers_what_pi_asks_again() {
    // pi does not send a failed turn again, so each attempt may be a separate conversation.
    let scenario = r#"
name = "recovers"
attempts = "all"
[[run]]
steps = [ { end = { code = "permission_denied", message = "overloaded, come back later" } } ]
[[run]]
steps = [ { text = "Heard: $USER_TEXT" }, { checkpoint = "auto" }, { usage = {} }, { end = true } ]
"#;
    for version in [PiVersion::V087, PiVersion::V150] {
        let pi_env = PiEnv::playing(version, scenario);
        let mut pi = PiRpc::start(&pi_env);
        pi.send(&json!({"type": "prompt", "message": "hi"}));
        assert_eq!(pi.answer()["stopReason"], "error");
        pi.event("a retry", |event| event["type"] == "auto_retry_start");
        let answer = pi.answer();
        assert_eq!(
            (text(&answer), &answer["stopReason"]),
            ("Heard: hi", &json!("stop"))
        );
        pi.settle();
        assert_eq!(text(&pi.prompt("more")), "Heard: more");
        let recording = pi_env.simulator.recorded();
        recording.assert_played(&["completed"; 3]);
        let requests = recording.client("runRequest");
        let texts: Vec<_> = requests.iter().map(|request| user_text(request)).collect();
        assert_eq!(texts, ["hi", "hi", "more"]);
        assert_eq!(conversation(requests[1]), conversation(requests[2]));
    }
}

fn an_overflow_makes_pi_compact_and_continue(version: PiVersion) {
    // A request with a history that was never summarised is rejected as too long.
    let scenario = r#"
name = "overflow"
[[run]]
steps = [
  { text = "Heard: $USER_TEXT" },
  { checkpoint = "auto" },
  { usage = { inputTokens = 100, outputTokens = 10, cacheReadTokens = 0, cacheWriteTokens = 0 } },
  { end = true },
]
[[run]]
steps = [ { end = { code = "invalid_argument", message = "Error", error = "ERROR_CONVERSATION_TOO_LONG", title = "Too long", detail = "Shorten it.", retryable = false } } ]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("one");
    pi.send(&json!({"type": "prompt", "message": "two"}));
    let failed = pi.answer();
    let error = failed["errorMessage"].as_str().unwrap();
    assert!(error.starts_with("context_length_exceeded"), "{error}");
    pi.event("a compaction", |event| event["type"] == "compaction_end");
    let answer = pi.answer();
    assert!(text(&answer).starts_with("Heard: "), "{answer}");
    assert!(text(&answer).contains("two"), "{answer}");
    let recording = pi_env.simulator.recorded();
    let requests = recording.client("runRequest");
    let summaries = requests
        .iter()
        .filter(|request| user_text(request).contains("<conversation>"));
    assert!(summaries.count() >= 1);
}

/// Images and the details of tool results exceed the sidecar's limit long before they fill the
/// model's context window.
#[test]
fn a_history_over_the_sidecars_limit_makes_pi_compact_and_continue() {
    const HOARD: &str = r#"
export default (pi) => pi.registerTool({
  name: "hoard", label: "Hoard", description: "Keeps things", parameters: { type: "object", properties: {} },
  execute: async () => ({ content: [{ type: "text", text: "kept" }], details: "x".repeat(35 << 20) }),
});
"#;
    let call = |id: &str| {
        Steps::new()
            .step(json!({
                "exec": {
                    "mcpArgs": {
                        "name": "pi__hoard",
                        "providerIdentifier": "pi",
                        "toolName": "pi__hoard",
                        "toolCallId": id.to_string(),
                        "args": {},
                    },
                },
            }))
            .build()
    };
    let first = Steps::new()
        .then(call("one"))
        .then(call("two"))
        .text("Never sent.")
        .build();
    let kept = Steps::new().text("All is kept.");
    let second = kept.checkpoint().usage().end().build();
    let scenario = "attempts = \"all\"\n".to_owned() + &document("hoard", &[first, second]);
    let pi_env = PiEnv::playing(PiVersion::V150, &scenario);
    let tool = pi_env.home.path().join("hoard.mjs");
    std::fs::write(&tool, HOARD).unwrap();
    let tool = tool.to_str().unwrap();
    let ran = pi_env.pi(&["-e", tool, "--model", "cursor/composer-2", "-p", "go"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "All is kept.\n"),
        "{}",
        ran.stderr
    );
    let failed = written(&pi_env).into_iter().find_map(|entry| {
        let error = entry["message"]["errorMessage"].as_str();
        error.map(str::to_owned)
    });
    let failed = failed.unwrap();
    assert!(failed.starts_with("context_length_exceeded: "), "{failed}");
    assert!(failed.contains("64 MiB at most"), "{failed}");
}

#[test]
fn a_crashing_sidecar_is_restarted_a_limited_number_of_times() {
    let scenario = "name = \"stall\"\n[[run]]\nsteps = [ { text = \"Hm\" }, { stall = true } ]\n";
    let pi_env = PiEnv::playing(PiVersion::V087, scenario);
    let mut pi = PiRpc::start(&pi_env);
    let mut killed = Vec::new();
    for round in 0..5 {
        // pi retries a turn twice.
        if round % 3 == 0 {
            pi.send(&json!({"type": "prompt", "message": "hi"}));
        }
        pi.event("a delta", |event| event["type"] == "message_update");
        let sidecar = Pid::from_raw(*pi_env.sidecars().last().unwrap()).unwrap();
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        killed.push(now.as_millis());
        kill_process(sidecar, Signal::KILL).unwrap();
        let message = pi.answer();
        let error = message["errorMessage"].as_str().unwrap();
        let lost = "connection lost: cursor-sidecar ended with SIGKILL";
        assert_eq!(error, lost, "{round}");
        if round == 2 {
            pi.settle();
        }
    }
    let message = pi.answer();
    let error = message["errorMessage"].as_str().unwrap();
    assert!(
        error.contains("cursor-sidecar failed 5 times within three minutes"),
        "{error}"
    );
    assert!(error.contains("/reload"), "{error}");
    assert_eq!(pi_env.sidecars().len(), 5);
    // The first restart is immediate; the delays of the others grow. A loaded machine only makes
    // them longer.
    let restarts = pi_env.started().into_iter().skip(1);
    let pauses: Vec<u128> = restarts
        .zip(killed)
        .map(|(start, end)| start - end)
        .collect();
    assert_eq!(pauses.len(), 4);
    for (pause, least) in pauses.iter().zip([0, 250, 500, 1000]) {
        assert!(*pause >= least, "{pauses:?}");
    }
}

#[test]
fn commands_report_what_they_did() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO);
    let mut pi = PiRpc::start(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "/cursor-doctor"}));
    let shown = pi.event("the report", |event| event["method"] == "notify");
    let report = shown["message"].as_str().unwrap();
    assert!(report.starts_with("✓ cursor-sidecar "), "{report}");
    assert!(report.contains(&pi_env.simulator.url), "{report}");
    assert!(!report.contains("crsr_test"), "{report}");
    pi.send(&json!({"type": "prompt", "message": "/cursor-refresh-models"}));
    let shown = pi.event("the models", |event| event["method"] == "notify");
    let models = shown["message"].as_str().unwrap();
    assert!(models.contains("Cursor model"), "{models}");
}

/// The extension as a package manager installs it: without the repository around it.
fn installed_alone(pi_env: &PiEnv) -> String {
    let folder = pi_env.home.path().join("extension");
    let shim = test_support::root().join("js-shim");
    for part in ["bin", "cursor-sidecar", "src"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
        for file in std::fs::read_dir(shim.join(part)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.join(part).join(file.file_name())).unwrap();
        }
    }
    std::fs::copy(shim.join("package.json"), folder.join("package.json")).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_missing_program_is_reported_at_the_start_and_found_on_the_path() {
    for version in [PiVersion::V079, PiVersion::V087] {
        let pi_env = PiEnv::playing(version, ECHO).with("PI_CURSOR_SIDECAR", "");
        let extension = installed_alone(&pi_env);
        let run = |path: &str| {
            let mut arguments = pi_env.arguments(&["--model", "cursor/composer-2", "-p", "hi"]);
            let ours = arguments
                .iter()
                .position(|argument| argument == "-e")
                .unwrap()
                + 1;
            arguments[ours].clone_from(&extension);
            let output = std::process::Command::new(&arguments[0])
                .args(&arguments[1..])
                .current_dir(&pi_env.workspace)
                .env_clear()
                .envs(pi_env.environment())
                .env("PATH", path)
                .stdin(std::process::Stdio::null())
                .output()
                .unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&output.stdout), text(&output.stderr))
        };
        let (_, errors) = run("/usr/bin:/bin");
        assert_eq!(
            errors.matches("no cursor-sidecar 0.").count(),
            1,
            "{errors}"
        );
        assert!(errors.contains("--omit=optional"), "{errors}");
        assert!(errors.contains("cargo build --release"), "{errors}");
        assert!(!errors.contains("failed 5 times"), "{errors}");
        let folder = test_support::binary();
        let folder = std::path::Path::new(folder).parent().unwrap().display();
        let (answer, errors) = run(&format!("/usr/bin:/bin:{folder}"));
        assert_eq!(answer, "Heard: hi\n", "{errors}");
    }
}
