//! `pi -p` and `--mode json`: one answer, then all processes exit.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use test_support::pi_env::{ECHO, PiEnv, PiVersion, conversation, rules, user_text};

crate::on_every_pi!(
    print_gives_the_answer_and_ends,
    json_mode_prints_every_event,
    the_system_prompt_reaches_cursor,
    an_error_is_printed_to_stderr,
    an_overflow_is_printed_to_stderr,
    the_models_are_listed_without_a_key,
);

fn print_gives_the_answer_and_ends(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let ran = pi_env.print("good morning");
    assert_eq!(ran.stdout, "Heard: good morning\n", "{ran:?}");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    pi_env.no_sidecar_is_left();
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(user_text(recording.client("runRequest")[0]), "good morning");
}

fn json_mode_prints_every_event(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let ran = pi_env.pi(&["--model", "cursor/composer-2", "--mode", "json", "hi"]);
    let events: Vec<Json> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{ran:?}")))
        .collect();
    let answer = events
        .iter()
        .rfind(|event| event["type"] == "message_end" && event["message"]["role"] == "assistant")
        .unwrap_or_else(|| panic!("{ran:?}"));
    let message = &answer["message"];
    assert_eq!(message["content"][0]["text"], "Heard: hi");
    assert_eq!(message["stopReason"], "stop");
    // An estimate of the text, not the counters of the run, which are 100 and 10.
    assert_eq!(message["usage"]["output"], 3);
    assert_eq!(message["usage"]["cacheRead"], 0);
    let deltas = events.iter().filter(|event| {
        event["type"] == "message_update" && event["assistantMessageEvent"]["type"] == "text_delta"
    });
    assert_eq!(deltas.count(), 1);
    pi_env.no_sidecar_is_left();
}

fn the_system_prompt_reaches_cursor(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    std::fs::write(pi_env.workspace.join("AGENTS.md"), "Be kind to zebras.\n").unwrap();
    let more = ["--append-system-prompt", "Okapis are fine."];
    let mut arguments = vec!["--model", "cursor/composer-2", "-p", "hi"];
    arguments.extend(more);
    assert_eq!(pi_env.pi(&arguments).code, Some(0));
    let rules = rules(&pi_env.simulator.recorded());
    assert_eq!(rules.len(), 1);
    for wanted in ["coding", "Okapis are fine.", "Be kind to zebras."] {
        assert!(rules[0].contains(wanted), "{wanted}: {}", rules[0]);
    }
}

fn an_error_is_printed_to_stderr(version: PiVersion) {
    let error = r#"
name = "no"
[[run]]
steps = [ { end = { code = "permission_denied", message = "This model is not for you" } } ]
"#;
    let pi_env = PiEnv::playing(version, error);
    let ran = pi_env.print("hi");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("This model is not for you"), "{ran:?}");
    pi_env.no_sidecar_is_left();
}

/// There is nothing to summarise, so pi cannot shorten the conversation and try again.
fn an_overflow_is_printed_to_stderr(version: PiVersion) {
    let overflow = r#"
name = "overflow"
[[run]]
steps = [ { end = { code = "invalid_argument", message = "Error", error = "ERROR_CONVERSATION_TOO_LONG", title = "Too long", detail = "Shorten it.", retryable = false } } ]
"#;
    let pi_env = PiEnv::playing(version, overflow);
    let ran = pi_env.print("hi");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.contains("Too long. Shorten it."), "{ran:?}");
    pi_env.no_sidecar_is_left();
}

fn the_models_are_listed_without_a_key(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO).without_key();
    let ran = pi_env.pi(&["--list-models", "cursor"]);
    // Older versions list models on stderr.
    assert!(format!("{ran:?}").contains("composer-2"), "{ran:?}");
    assert_eq!(ran.code, Some(0));
    pi_env.no_sidecar_is_left();
}

#[test]
fn two_pis_with_the_same_prompts_share_nothing() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO);
    std::thread::scope(|scope| {
        let runs = [0, 1].map(|_| scope.spawn(|| pi_env.print("same words")));
        for run in runs {
            assert_eq!(run.join().unwrap().stdout, "Heard: same words\n");
        }
    });
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    assert_ne!(conversation(requests[0]), conversation(requests[1]));
}

#[test]
fn the_demo_answers_and_names_its_backend() {
    let output = std::process::Command::new(test_support::root().join(".ci/demo"))
        .current_dir(test_support::root())
        .env_remove("CURSOR_API_KEY")
        .env("PROMPT", "good day")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let ran = test_support::pi_env::PiOutput::from(output);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("built-in simulator at http"), "{ran:?}");
    assert!(ran.stdout.starts_with("> good day\n"), "{ran:?}");
    assert!(ran.stdout.contains("simulated assistant"), "{ran:?}");
}

/// The last message of the tour comes from the resumed run, after every tool of the first one.
#[test]
fn the_demo_is_a_tour_that_survives_a_broken_connection() {
    let output = std::process::Command::new(test_support::root().join(".ci/demo"))
        .current_dir(test_support::root())
        .env_remove("CURSOR_API_KEY")
        .env_remove("PROMPT")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let ran = test_support::pi_env::PiOutput::from(output);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let breaks = ran.stdout.find("The connection breaks");
    let resumed = ran.stdout.find("It was resumed from the checkpoint");
    assert!(breaks.is_some() && breaks < resumed, "{ran:?}");
}

/// Without a screen, notices and the path of the debug log are printed on stderr.
#[test]
fn notices_and_the_debug_log_are_printed_to_stderr() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO).with("PI_CURSOR_PROVIDER_DEBUG", "1");
    let ran = pi_env.print("one");
    assert_eq!(ran.stdout, "Heard: one\n", "{ran:?}");
    let path = ran.stderr.trim().strip_prefix("debug log: ");
    assert!(std::fs::exists(path.unwrap()).unwrap(), "{ran:?}");
    let journals = journals(pi_env.home.path());
    assert_eq!(journals.len(), 1);
    for journal in journals {
        std::fs::write(journal, "no journal").unwrap();
    }
    let more = ["--continue", "--model", "cursor/composer-2", "-p", "two"];
    let ran = pi_env.pi(&more);
    assert_eq!(ran.stdout, "Heard: two\n", "{ran:?}");
    assert!(ran.stderr.contains("was set aside as"), "{ran:?}");
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(journals(&entry.path())),
            _ if entry.file_name() == "journal" => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
