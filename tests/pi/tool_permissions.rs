//! pi decides what is executed: its tool switches, its permission gates, and its own display of
//! what they allow.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use test_support::pi_env::{PiEnv, PiOutput, PiVersion};
use test_support::pi_screen::PiScreen;
use test_support::scenario::{Steps, document, inline};
use test_support::simulator::Recording;

/// The versions that support this.
const VERSIONS: [PiVersion; 3] = [PiVersion::V079, PiVersion::V087, PiVersion::V150];

/// A scenario that executes these steps and then ends its answer.
fn scenario(steps: &str) -> String {
    let steps = Steps::new()
        .context()
        .then(steps)
        .text("Done.")
        .checkpoint()
        .usage()
        .end()
        .build();
    document("switches", &[steps])
}

const REMOVE: &str = r#"{ exec = { shellArgs = { command = "rm -rf victim", workingDirectory = "$WS", toolCallId = "a", skipApproval = true, parsingResult = {} } } }"#;

/// Reading is executed by the sidecar, so that only the switch of pi's `read` can refuse it.
const READ: &str = r#"{ exec = { readArgs = { path = "$WS/victim/file", toolCallId = "r" } } }"#;

/// pi's command-line switches, whether they allow a command, and whether they allow reading.
const COMMAND_LINES: [(&[&str], bool, bool); 5] = [
    (&["--no-tools"], false, false),
    (&["--tools", "read,grep,find,ls"], false, true),
    (&["--no-builtin-tools"], false, false),
    (&["--exclude-tools", "bash,write,edit"], false, true),
    (&[], true, true),
];

fn pi_env_with_victim(version: PiVersion, steps: &str) -> PiEnv {
    let pi_env = PiEnv::playing(version, &scenario(steps));
    fs::create_dir(pi_env.workspace.join("victim")).unwrap();
    fs::write(pi_env.workspace.join("victim/file"), "precious").unwrap();
    pi_env
}

fn print(pi_env: &PiEnv, more: &[&str]) -> PiOutput {
    let ran = pi_env.pi(&[&["--model", "cursor/composer-2"], more, &["-p", "go"]].concat());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "Done.\n"),
        "{ran:?}"
    );
    ran
}

fn excluded(recording: &Recording) -> String {
    let requests = [
        recording.requests("/agent.v1.AgentService/RunSSE"),
        recording.requests("/agent.v1.AgentService/Run"),
    ]
    .concat();
    let header = &requests[0]["headers"]["x-cursor-agent-exclude-tools"];
    header.as_str().unwrap_or_default().to_owned()
}

fn switches_decide_whether_a_command_runs(version: PiVersion) {
    for (switches, may_run, may_read) in COMMAND_LINES {
        let pi_env = pi_env_with_victim(version, &[READ, REMOVE].join(",\n  "));
        print(&pi_env, switches);
        let exists = pi_env.workspace.join("victim/file").exists();
        assert_eq!(exists, !may_run, "{version:?} {switches:?}");
        let recording = pi_env.simulator.recorded();
        let excluded = excluded(&recording);
        assert_eq!(
            excluded.contains("shell_tool_call"),
            !may_run,
            "{version:?} {switches:?}: {excluded}"
        );
        let reply = recording.client("execClientMessage.readResult")[0].to_string();
        assert_eq!(
            reply.contains("precious"),
            may_read,
            "{version:?} {switches:?}: {reply}"
        );
    }
}

fn switches_decide_also_when_settings_say_local(version: PiVersion) {
    let delete = r#"{ exec = { deleteArgs = { path = "$WS/victim/file", toolCallId = "a" } } }"#;
    for steps in [REMOVE, delete] {
        let pi_env = pi_env_with_victim(version, steps).with("PI_CURSOR_NATIVE_TOOLS", "local");
        print(&pi_env, &["--exclude-tools", "bash,write,edit"]);
        assert!(
            pi_env.workspace.join("victim/file").exists(),
            "{version:?} {steps}"
        );
        print(&pi_env, &[]);
        assert!(
            !pi_env.workspace.join("victim/file").exists(),
            "{version:?} {steps}"
        );
    }
}

fn gate(pi_env: &PiEnv) -> PathBuf {
    let program = PathBuf::from(pi_env.program());
    let package = program
        .ancestors()
        .find(|folder| folder.join("examples").is_dir());
    package
        .unwrap()
        .join("examples/extensions/permission-gate.ts")
}

/// pi's own example of a permission gate is asked before the command runs, and its answer
/// reaches the model.
fn a_permission_gate_decides_before_the_command_runs(version: PiVersion) {
    let pi_env = pi_env_with_victim(version, REMOVE);
    let gate = gate(&pi_env);
    print(&pi_env, &["-e", gate.to_str().unwrap()]);
    assert!(pi_env.workspace.join("victim/file").exists(), "{version:?}");
    let recording = pi_env.simulator.recorded();
    let reply = recording.client("execClientMessage.shellResult")[0].to_string();
    assert!(reply.contains("Dangerous command blocked"), "{reply}");
}

/// If commands are executed by the sidecar, a gate cannot decide about them, so the card has a name
/// of ours and no gate is asked.
fn a_gate_is_not_asked_about_what_has_already_run(version: PiVersion) {
    let shown = [
        REMOVE,
        r#"{ update = { toolCallStarted = { callId = "a", toolCall = { shellToolCall = { args = { command = "rm -rf victim" } } } } } }"#,
        r#"{ update = { toolCallCompleted = { callId = "a", toolCall = { shellToolCall = { args = { command = "rm -rf victim" }, result = { success = { command = "rm -rf victim", stdout = "gone" } } } } } } }"#,
    ];
    let shown = shown.join(",\n  ");
    let pi_env = pi_env_with_victim(version, &shown).with("PI_CURSOR_NATIVE_TOOLS", "local");
    let gate = gate(&pi_env);
    let more = ["--mode", "json", "-e", gate.to_str().unwrap(), "go"];
    let ran = pi_env.pi(&[&["--model", "cursor/composer-2"], &more[..]].concat());
    assert!(!pi_env.workspace.join("victim/file").exists(), "{ran:?}");
    assert!(!ran.stdout.contains("blocked"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains(r#""toolName":"cursor""#),
        "{}",
        ran.stdout
    );
}

/// A command of ten seconds that prints a line in each of them.
const TEN_SECONDS: &str = "for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n; sleep 1; done";

/// Returns the seconds that pi shows for a running command.
fn elapsed(screen: &str) -> Option<f64> {
    let (_, rest) = screen.split_once("Elapsed ")?;
    rest.split_once('s')?.0.parse().ok()
}

/// Returns whether the screen shows this line of the command's output.
fn has_line(screen: &str, number: u32) -> bool {
    let line = format!("line {number}");
    screen.lines().any(|shown| shown.trim() == line)
}

fn a_running_command_is_visible_and_stopping_it_names_it(version: PiVersion) {
    let command = TEN_SECONDS.replace('$', "$$");
    let args = json!({"command": command, "workingDirectory": "$WS", "toolCallId": "a",
        "skipApproval": true, "parsingResult": {}});
    let step = inline(&json!({"exec": {"shellArgs": args}}));
    let pi_env = pi_env_with_victim(version, &step).with("COLORTERM", "truecolor");
    let pi = PiScreen::with(&pi_env, &["--model", "cursor/composer-2", "Run it."]);
    // While it runs: what runs, what it has printed so far, and for how long it has been running.
    let screen = pi.becomes("some output and the seconds", |screen| {
        has_line(screen, 4) && elapsed(screen).is_some_and(|seconds| seconds >= 3.0)
    });
    assert!(screen.contains(&format!("$ {TEN_SECONDS}")), "{screen}");
    assert!(has_line(&screen, 1), "{screen}");
    assert!(
        elapsed(&screen).is_some_and(|seconds| seconds < 10.0),
        "{screen}"
    );
    assert!(!has_line(&screen, 10), "{screen}");
    pi.keep("running-command");
    pi.keys(&["Escape"]);
    let screen = pi.becomes("what was stopped", |screen| {
        screen.to_lowercase().contains("aborted")
    });
    // After Escape: what was stopped and what it had printed.
    assert!(screen.contains(&format!("$ {TEN_SECONDS}")), "{screen}");
    assert!(has_line(&screen, 4), "{screen}");
    assert!(!has_line(&screen, 10), "{screen}");
    pi.keep("stopped-command");
}

/// An extension that registers a tool of the same name while a turn runs must not get the
/// recorded call to execute.
fn a_card_is_never_executed_by_another_extension(version: PiVersion) {
    let steps = [
        r#"{ exec = { shellArgs = { command = "until [ -e ../registered ]; do sleep 0.01; done", workingDirectory = "$WS", timeout = 40000, toolCallId = "a", skipApproval = true, parsingResult = {} } } }"#,
        r#"{ update = { toolCallCompleted = { callId = "r", toolCall = { readToolCall = { args = { path = "$WS/note" }, result = { success = { content = "recorded" } } } } } } }"#,
    ];
    let scenario = scenario(&steps.join(",\n  "));
    let pi_env = PiEnv::playing(version, &scenario).with("PI_CURSOR_NATIVE_TOOLS", "local");
    fs::write(pi_env.workspace.join("note"), "on disk").unwrap();
    let other = pi_env.home.path().join("other.ts");
    fs::write(
        &other,
        r#"
import { writeFileSync } from "node:fs";
export default (pi) => {
  let registered = false;
  pi.on("message_start", ({ message }) => {
    if (registered || message.role !== "assistant") return;
    registered = true;
    pi.registerTool({
      name: "read", label: "read", description: "another read",
      parameters: { type: "object", properties: { path: { type: "string" } } },
      execute: async () => { writeFileSync(`${process.env.HOME}/executed`, ""); return { content: [{ type: "text", text: "executed" }], details: {} }; },
    });
    writeFileSync(`${process.env.HOME}/registered`, "");
  });
};
"#,
    )
    .unwrap();
    // Before ours, because the first extension that registers a name keeps it.
    let mut arguments = pi_env.arguments(&["--model", "cursor/composer-2", "--mode", "json", "go"]);
    let ours = arguments.iter().position(|word| word == "-e").unwrap();
    arguments.splice(
        ours..ours,
        ["-e".to_owned(), other.to_str().unwrap().to_owned()],
    );
    let mut command = std::process::Command::new(&arguments[0]);
    command
        .args(&arguments[1..])
        .current_dir(&pi_env.workspace)
        .env_clear()
        .envs(pi_env.environment())
        .stdin(std::process::Stdio::null());
    let ran = PiOutput::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        !pi_env.home.path().join("executed").exists(),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("cursor-replay-"), "{}", ran.stdout);
    assert!(
        !ran.stdout.contains(r#""toolName":"read""#),
        "{}",
        ran.stdout
    );
}

/// A file change by Cursor's agent is an `edit` of pi, with its diff.
fn a_change_of_a_file_is_an_edit_of_pi(version: PiVersion) {
    let step = r#"{ exec = { writeArgs = { path = "$WS/a.txt", fileText = "one\nTWO\nthree\n", toolCallId = "b" } }, expect = { writeResult = { success = { fileSize = 14 } } } }"#;
    let pi_env = PiEnv::playing(version, &scenario(step));
    fs::write(pi_env.workspace.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    let ran = pi_env.pi(&["--model", "cursor/composer-2", "--mode", "json", "go"]);
    assert!(
        ran.stdout.contains(r#""toolName":"edit""#),
        "{}",
        ran.stdout
    );
    pi_env.simulator.recorded().assert_played(&["completed"]);
    let now = fs::read_to_string(pi_env.workspace.join("a.txt")).unwrap();
    assert_eq!(now, "one\nTWO\nthree\n");
}

/// A delete by Cursor's agent is a command of pi's shell, for one file.
fn a_delete_is_a_command_of_pi(version: PiVersion) {
    let step = r#"{ exec = { deleteArgs = { path = "$WS/victim/file", toolCallId = "b" } }, expect = { deleteResult = { success = { path = "$WS/victim/file" } } } }"#;
    let pi_env = pi_env_with_victim(version, step);
    print(&pi_env, &[]);
    pi_env.simulator.recorded().assert_played(&["completed"]);
    assert!(!pi_env.workspace.join("victim/file").exists());
    assert!(pi_env.workspace.join("victim").exists());
}

macro_rules! on_promised_versions {
    ($($test:ident),+ $(,)?) => {
        mod v079 { $(#[test] fn $test() { super::$test(super::VERSIONS[0]); })+ }
        mod v087 { $(#[test] fn $test() { super::$test(super::VERSIONS[1]); })+ }
        mod v150 { $(#[test] fn $test() { super::$test(super::VERSIONS[2]); })+ }
    };
}

on_promised_versions!(
    switches_decide_whether_a_command_runs,
    switches_decide_also_when_settings_say_local,
    a_permission_gate_decides_before_the_command_runs,
    a_gate_is_not_asked_about_what_has_already_run,
    a_running_command_is_visible_and_stopping_it_names_it,
    a_card_is_never_executed_by_another_extension,
    a_change_of_a_file_is_an_edit_of_pi,
    a_delete_is_a_command_of_pi,
);
