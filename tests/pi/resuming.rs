//! Resuming: a session by hand, after a summary, in a project with its own rules.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::sessions::FOLLOWED;
use test_support::pi_env::{ECHO, PiEnv, PiVersion, conversation, rules, user_text};
use test_support::pi_rpc::PiRpc;
use test_support::pi_screen::PiScreen;

crate::on_every_pi!(
    the_rules_of_a_project_are_sent_once,
    a_session_of_an_older_extension_is_drawn_with_neutral_labels,
);

/// The names of its cards are no tools here, so pi would print them with their arguments.
fn a_session_of_an_older_extension_is_drawn_with_neutral_labels(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("about okapis");
    pi.quit();
    pi_env.no_sidecar_is_left();
    let [file] = &session_files(&pi_env.home.path().join("agent/sessions"))[..] else {
        panic!("one session");
    };
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let answer = lines
        .iter()
        .rposition(|line| line["message"]["role"] == "assistant");
    let answer = &mut lines[answer.unwrap()];
    answer["message"]["content"] = json!([{"type": "toolCall", "id": "old-1",
        "name": "cursor_edit", "arguments": {"path": "src/okapi.rs"}}]);
    answer["message"]["stopReason"] = json!("toolUse");
    let parent = answer["id"].clone();
    let at = answer["timestamp"].clone();
    let result = json!({"role": "toolResult", "toolCallId": "old-1", "toolName": "cursor_edit",
        "content": [{"type": "text", "text": "edited the okapi"}], "isError": false,
        "timestamp": 1_700_000_000_000_u64});
    let entry = |id: &str, parent: &Json, rest: Json| {
        let mut entry = json!({"id": id, "parentId": parent, "timestamp": at});
        entry
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        entry
    };
    lines.push(entry(
        "0000000a",
        &parent,
        json!({"type": "message", "message": result}),
    ));
    lines.push(entry(
        "0000000b",
        &json!("0000000a"),
        json!({"type": "custom",
        "customType": "cursor-fast-state", "data": {"fast": {"gpt-5.5": true}}}),
    ));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(file, text).unwrap();

    let pi = PiScreen::with(&pi_env, &["--continue", "--model", "cursor/gpt-5.5"]);
    let screen = pi.shows("edited the okapi");
    assert!(screen.contains("Cursor activity"), "{screen}");
    assert!(!screen.contains("cursor_edit"), "{screen}");
    pi.shows("cursor fast");
    pi.enter("go on");
    let recording = pi_env.recorded("two turns", |recording| recording.verdicts().len() == 2);
    let request = recording.client("runRequest")[1].to_string();
    assert!(!request.contains("cursor_edit"), "{request}");
}

fn session_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                session_files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

fn the_rules_of_a_project_are_sent_once(version: PiVersion) {
    const CANARY: &str = "Write dates as in 1 May 2031.";
    let pi_env = PiEnv::playing(version, FOLLOWED);
    std::fs::write(pi_env.workspace.join("AGENTS.md"), CANARY).unwrap();
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("one");
    let recording = pi_env.simulator.recorded();
    let known = rules(&recording)[0].matches(CANARY).count();
    assert_eq!(known, 1);
    let request = recording.client("runRequest")[0].to_string();
    assert!(!request.contains(CANARY), "and nowhere else");
}

/// Another pi and another sidecar; the user picks the old session from pi's list.
#[test]
fn a_session_picked_from_the_list_continues() {
    for version in [
        PiVersion::V074,
        PiVersion::V079,
        PiVersion::V087,
        PiVersion::V150,
    ] {
        let pi_env = PiEnv::playing(version, FOLLOWED);
        let pi = PiScreen::start(&pi_env, "about okapis", "First answer.");
        pi.shows("↓4"); // the turn is over, not only its text here
        pi.quit();
        pi_env.no_sidecar_is_left();
        drop(pi);
        let pi = PiScreen::start(&pi_env, "about zebras", "First answer.");
        pi.shows("↓4");
        pi.enter("/resume");
        pi.shows("about okapis");
        pi.type_in("okapis");
        pi.keys(&["Enter"]);
        pi.shows("Resumed session");
        pi.enter("go on");
        pi.shows("Follow-up to: go on");
        let recording = pi_env.recorded("three turns", |recording| recording.verdicts().len() == 3);
        recording.assert_played(&["completed"; 3]);
        let requests = recording.client("runRequest");
        assert_eq!(conversation(requests[0]), conversation(requests[2]));
        assert_ne!(conversation(requests[0]), conversation(requests[1]));
    }
}

#[test]
fn a_compaction_on_the_screen_is_used_by_the_next_turn() {
    for version in [
        PiVersion::V074,
        PiVersion::V079,
        PiVersion::V087,
        PiVersion::V150,
    ] {
        let pi_env = PiEnv::playing(version, ECHO);
        let pi = PiScreen::start(&pi_env, "about okapis", "Heard: about okapis");
        pi.enter("about zebras");
        pi.shows("Heard: about zebras");
        // The turn is over once its usage is displayed; before that, `/compact` would abort it.
        pi.shows("↓10");
        pi.enter("/compact");
        let summarized = pi_env.recorded("a summary", |recording| recording.verdicts().len() >= 3);
        let requests = summarized.client("runRequest");
        assert!(user_text(requests[2]).contains("<conversation>"));
        assert_ne!(conversation(requests[2]), conversation(requests[1]));
        pi.shows("ompacted");
        pi.enter("go on");
        pi.shows("Heard: go on");
    }
}
