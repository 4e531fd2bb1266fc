//! Activity of native tools as tool cards of pi: they look like pi's own, and nothing is executed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value as Json, json};

use crate::activity::{DOT, actions, as_cursor_did, furnish, greeted, scenario};
use test_support::pi_env::{PiEnv, PiOutput, PiVersion, conversation, user_text, written};
use test_support::pi_rpc::PiRpc;
use test_support::pi_screen::PiScreen;
use test_support::root;

/// Installs the programs that pi's grep and find start; each start is recorded in a file.
fn search_programs(pi_env: &PiEnv) {
    let found = json!({"type": "match", "data": {"path": {"text": pi_env.workspace.join("src/main.rs")},
        "lines": {"text": "fn main() {\n"}, "line_number": 1}});
    let files = "printf '%s\\n' \"$PWD/src/lib.rs\" \"$PWD/src/main.rs\"";
    let programs = [
        ("rg", format!("printf '%s\\n' '{found}'")),
        ("fd", files.to_owned()),
    ];
    let folder = pi_env.home.path().join("agent/bin");
    std::fs::create_dir(&folder).unwrap();
    for (name, script) in programs {
        let script = format!("#!/bin/sh\necho {name} >> \"$HOME/ran\"\n{script}\n");
        std::fs::write(folder.join(name), script).unwrap();
        std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o755)).unwrap();
    }
}

/// Returns the lines between a question and its answer, without durations.
fn between(question: &str, screen: &str, answer: &str) -> Vec<String> {
    let lines: Vec<&str> = screen.lines().collect();
    let at = |wanted: &str| {
        let found = lines.iter().position(|line| line.contains(wanted));
        found.unwrap_or_else(|| panic!("no {wanted:?} in\n{screen}"))
    };
    let lines_shown = lines[at(question) + 1..at(answer)].iter();
    lines_shown
        .map(|line| match line.split_once("Took ") {
            Some((before, _)) => format!("{before}Took"),
            None => (*line).to_owned(),
        })
        .collect()
}

/// Returns the cards of the actions on a screen, collapsed and expanded.
fn both(pi: &PiScreen<'_>) -> [Vec<String>; 2] {
    pi.shows("Done.");
    pi.shows("... (6 more lines");
    let collapsed = between("Show me.", &pi.coloured(), "Done.");
    pi.keys(&["C-o"]);
    pi.shows("- item 14");
    let expanded = between("Show me.", &pi.coloured(), "Done.");
    [collapsed, expanded]
}

/// Returns the cards without the edit, which pi frames differently.
fn without_edit(mut lines: Vec<String>) -> Vec<String> {
    let header = |path: &str| {
        let found = lines.iter().position(|line| line.contains(path));
        found.unwrap_or_else(|| panic!("no {path} in {lines:#?}"))
    };
    // Each header has a line of padding above it.
    let edit = header("msrc/lib.rs") - 1..header("mnotes.md") - 1;
    lines.drain(edit);
    lines
}

fn pi_alone(pi_env: &PiEnv) -> Vec<String> {
    std::fs::write(pi_env.home.path().join("calls.json"), actions().to_string()).unwrap();
    let mut arguments = pi_env.arguments(&["--tools", "read,bash,grep,find,ls,edit,write"]);
    let extension = arguments.iter().position(|word| word == "-e").unwrap() + 1;
    let own_tools = root().join("tests/pi/own-tools.mjs");
    arguments[extension] = own_tools.to_str().unwrap().into();
    arguments.extend(["--model", "own/own", "Show me."].map(Into::into));
    arguments
}

/// Returns every file in a folder with its content and modification time.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let changed = path.metadata().unwrap().modified().unwrap();
        if path.is_dir() {
            files.extend(snapshot(&path))
        } else {
            drop(files.insert(path.clone(), (std::fs::read(&path).unwrap(), changed)))
        }
    }
    files
}

/// A desk where executing the actions again would have other results or leave traces.
fn pi_env_with_traps(version: PiVersion) -> PiEnv {
    trapped(PiEnv::playing(version, &scenario(&as_cursor_did())))
}

fn trapped(pi_env: PiEnv) -> PiEnv {
    furnish(&pi_env.workspace);
    search_programs(&pi_env);
    let main = pi_env.workspace.join("src/main.rs");
    std::fs::write(main, "fn main() { other() }\n").unwrap();
    std::fs::write(pi_env.workspace.join("more.rs"), "").unwrap();
    std::fs::write(pi_env.workspace.join("dot.png"), DOT).unwrap();
    pi_env
        .with("COLORTERM", "truecolor")
        .with("PI_CURSOR_NATIVE_TOOLS", "local")
}

fn start(pi_env: &PiEnv) -> PiScreen<'_> {
    let arguments = pi_env.arguments(&["--model", "cursor/composer-2", "Show me."]);
    PiScreen::run(pi_env, arguments, "150")
}

/// Starts another pi, which renders the cards of the last session from its session file.
fn resume(pi_env: &PiEnv, mut arguments: Vec<String>) -> (PiScreen<'_>, Vec<String>) {
    arguments.pop();
    arguments.extend(["--continue", "Again."].map(Into::into));
    let pi = PiScreen::run(pi_env, arguments, "150");
    pi.shows("Heard: Again.");
    let redrawn = between("Show me.", &pi.coloured(), "Done.");
    (pi, redrawn)
}

#[test]
fn each_card_looks_like_pis_own() {
    let own = PiEnv::playing(PiVersion::V087, &scenario(&[])).with("COLORTERM", "truecolor");
    furnish(&own.workspace);
    search_programs(&own);
    let pi = PiScreen::run(&own, pi_alone(&own), "150");
    let of_pi = both(&pi);
    drop(pi);
    let ran = std::fs::read_to_string(own.home.path().join("ran")).unwrap();
    assert!(ran.contains("rg") && ran.contains("fd"), "{ran}");

    let pi_env = pi_env_with_traps(PiVersion::V087);
    let before = snapshot(&pi_env.workspace);
    let pi = start(&pi_env);
    pretty_assertions::assert_eq!(both(&pi).map(without_edit), of_pi.map(without_edit));
    pi.quit();
    pi_env.no_sidecar_is_left();
    drop(pi);
    as_written(&pi_env);

    let (_, of_pi) = resume(&own, pi_alone(&own));
    let arguments = pi_env.arguments(&["--model", "cursor/composer-2", ""]);
    let (pi, of_cursor) = resume(&pi_env, arguments);
    pretty_assertions::assert_eq!(without_edit(of_cursor), without_edit(of_pi));
    let neutral = || {
        let lines = between(" Again.", &pi.text(), " Heard: Again.");
        let lines = lines.iter().map(|line| line.trim_end());
        let lines_shown: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        lines_shown.join("\n")
    };
    insta::assert_snapshot!(neutral(), @r"
    Cursor edit src/lib.rs
    -1 old
    +1 new
     2 same
    Cursor delete README.md
    Error: file not found
    Cursor todos 1/2 completed, 1 in progress
    ✓ Look (completed)
    … Leap (inProgress)
    Cursor MCP page · line 1
    line 1
    line 2
    line 3
    line 4
    line 5
    line 6
    line 7
    line 8
    ... (4 more lines, ctrl+o to expand)
    Cursor image generation dot.png
    Saved image: dot.png
    [Image: [image/png] 40x20]
    ");
    pi.keep("cards.ansi");
    let rest = "line 9\n line 10\n line 11\n line 12";
    let expanded = neutral().replace("... (4 more lines, ctrl+o to expand)", rest);
    pi.keys(&["C-o"]);
    pi.shows("line 12");
    pretty_assertions::assert_eq!(neutral(), expanded);
    pi.quit();
    pi_env.no_sidecar_is_left();
    drop(pi);
    // A model of another provider continues after the cards.
    std::fs::write(pi_env.home.path().join("calls.json"), "[]").unwrap();
    let own_tools = root().join("tests/pi/own-tools.mjs");
    let more = ["--model", "own/own", "-e", own_tools.to_str().unwrap()];
    let more = [&more[..], &["--continue", "Once more."]].concat();
    let pi = PiScreen::run(&pi_env, pi_env.arguments(&more), "150");
    let screen = pi.shows("Heard: Once more.");
    assert!(screen.contains("Cursor todos 1/2 completed"), "{screen}");
    drop(pi);

    pretty_assertions::assert_eq!(snapshot(&pi_env.workspace), before);
    assert!(
        !pi_env.home.path().join("ran").exists(),
        "a command was run"
    );
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_eq!(user_text(requests[1]), "Again.");
}

#[test]
fn other_versions_show_the_cards_too() {
    let collapsed = [
        "read src/main.rs",
        "Offset 99 is beyond end of file",
        "... (7 earlier lines",
        "Took 0.0s",
        "Command exited with code 3",
        "src/main.rs:1: fn main() {",
        "README.md",
        "-3 fn old() {}",
        "+3 fn new() {}",
        "- item 8",
        "... (6 more lines",
    ];
    for version in [PiVersion::V074, PiVersion::V079, PiVersion::V150] {
        let pi_env = pi_env_with_traps(version);
        let before = snapshot(&pi_env.workspace);
        let pi = start(&pi_env);
        for wanted in collapsed {
            pi.shows(wanted);
        }
        pi.shows("Done.");
        pi.keys(&["C-o"]);
        let expanded = pi.shows("- item 14");
        assert!(expanded.contains("println!(\"hi\");"), "{expanded}");
        pretty_assertions::assert_eq!(snapshot(&pi_env.workspace), before);
        assert!(
            !pi_env.home.path().join("ran").exists(),
            "a command was run"
        );
        as_written(&pi_env);
    }
}

const WRITTEN: &str = r#"
read "fn main() {\n    println!(\"hi\");\n}\n"
read! "Offset 99 is beyond end of file (4 lines"
cursor "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12"
cursor! "no\n\nCommand exited with code 3"
grep "src/main.rs:1: fn main() {"
find "src/lib.rs\nsrc/main.rs"
ls "README.md\nsrc/"
cursor "edit src/lib.rs\n\n@@ -1,5 +1,5 @@\n //! A "
cursor "write notes.md\n\nCreated 16 lines\n\nFile s"
"#;

/// Checks that the session file contains the real tool names and each recorded result once.
fn as_written(pi_env: &PiEnv) {
    let entries = written(pi_env);
    let messages = entries.iter().map(|entry| &entry["message"]);
    let results: Vec<&Json> = messages
        .clone()
        .filter(|message| message["role"] == "toolResult")
        .collect();
    let lines_shown: Vec<String> = results
        .iter()
        .map(|result| {
            let text = result["content"][0]["text"].as_str().unwrap();
            let mark = if result["isError"] == true { "!" } else { "" };
            let name = result["toolName"].as_str().unwrap();
            format!(
                "{name}{mark} {:?}",
                text.chars().take(40).collect::<String>()
            )
        })
        .collect();
    pretty_assertions::assert_eq!(lines_shown.join("\n"), WRITTEN.trim());
    let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let calls: Vec<&Json> = blocks.filter(|block| block["type"] == "toolCall").collect();
    assert_eq!(calls.len(), results.len());
    let ids: BTreeSet<&str> = calls
        .iter()
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), calls.len(), "each once");
    for (call, result) in calls.iter().zip(results) {
        assert_eq!(call["id"], result["toolCallId"]);
        assert_eq!(call["name"], result["toolName"]);
    }
}

/// A tool of another extension.
const OWNER: &str = r#"
export default (pi) => pi.registerTool({
  name: "grep", label: "grep", description: "mine", parameters: { type: "object", properties: {} },
  execute: async () => ({ content: [{ type: "text", text: "mine" }], details: {} }),
});
"#;

/// Returns the tool calls and the thinking of the messages in some events.
fn shown(events: &[Json]) -> (Vec<String>, String) {
    let (mut calls, mut thinking) = (Vec::new(), String::new());
    let ended = events.iter().filter(|event| event["type"] == "message_end");
    for message in ended.map(|event| &event["message"]) {
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("toolCall") => calls.push(block["name"].as_str().unwrap().to_owned()),
                Some("thinking") => thinking.push_str(block["thinking"].as_str().unwrap()),
                _ => {}
            }
        }
    }
    (calls, thinking)
}

#[test]
#[cfg(target_os = "linux")]
fn only_recorded_calls_are_shown_and_only_pis_own_tools_are_wrapped() {
    use test_support::folder_watch::FolderWatch;
    use test_support::processes::started;

    let pi_env = trapped(PiEnv::playing(PiVersion::V087, &greeted(&as_cursor_did())));
    let home = pi_env.home.path();
    std::fs::write(home.join("owner.mjs"), OWNER).unwrap();
    let settings = r#"{"shellCommandPrefix": "echo prefixed"}"#;
    std::fs::write(home.join("agent/settings.json"), settings).unwrap();
    let calls = json!([
        ["bash", {"command": "touch ../ran"}],
        ["read", {"path": "README.md"}],
        ["read", {"path": "src/main.rs"}, "cursor-replay-1-1-tool-1"],
    ]);
    std::fs::write(home.join("calls.json"), calls.to_string()).unwrap();
    let (owner, own) = (
        home.join("owner.mjs"),
        root().join("tests/pi/own-tools.mjs"),
    );
    let more = [
        "--model",
        "cursor/composer-2",
        "-e",
        own.to_str().unwrap(),
        "-e",
        owner.to_str().unwrap(),
    ];
    let mut pi = PiRpc::with(&pi_env, &more);
    let turn = |pi: &mut PiRpc, message: &str| {
        pi.send(&json!({"type": "prompt", "message": message}));
        let mut events = Vec::new();
        while events
            .last()
            .is_none_or(|event: &Json| event["type"] != "agent_end")
        {
            events.push(pi.event("an event", |_| true));
        }
        pi.settle();
        events
    };
    // The first turn reads the files that every turn reads.
    turn(&mut pi, "Hello.");
    let watch = FolderWatch::below(&pi_env.workspace);
    watch.seen();
    let sidecar = u32::try_from(pi_env.sidecars()[0]).unwrap();
    let all_started = |pi: &PiRpc| [started(pi.id()), started(sidecar)];
    let before = all_started(&pi);
    let (calls, thinking) = shown(&turn(&mut pi, "Show me."));
    assert_eq!(watch.seen(), [""; 0], "a card touched a file");
    assert_eq!(all_started(&pi), before, "a card started a process");
    let all = [
        "read", "read", "cursor", "cursor", "find", "ls", "cursor", "cursor",
    ];
    assert_eq!(calls, all, "grep is another's");
    assert!(thinking.contains("$ grep \"main\""), "{thinking}");
    assert!(!home.join("ran").exists());

    // Another model calls pi's tools, and one call has an id like a recorded one.
    pi.ask(json!({"type": "set_model", "provider": "own", "modelId": "own"}));
    let events = turn(&mut pi, "Show me.");
    let seen = watch.seen();
    assert!(seen.iter().any(|seen| seen.contains("README")), "{seen:?}");
    assert_ne!(started(pi.id()), before[0], "the audit sees a real command");
    let results: Vec<&Json> = events
        .iter()
        .filter(|event| event["type"] == "tool_execution_end")
        .collect();
    let result = |id: &str| {
        let found = results
            .iter()
            .find(|result| result["toolCallId"] == id)
            .unwrap();
        let text = found["result"]["content"][0]["text"].as_str().unwrap();
        (found["isError"] == true, text.to_owned())
    };
    assert_eq!(result("call-0"), (false, "prefixed\n".to_owned()));
    assert!(home.join("ran").exists());
    let (failed, why) = result("cursor-replay-1-1-tool-1");
    assert!(failed && why.contains("not executed again"), "{why}");
    let given = std::fs::read_to_string(home.join("tools.json")).unwrap();
    let given: Vec<&str> = serde_json::from_str(&given).unwrap();
    assert_eq!(given, ["read", "bash", "edit", "write", "grep"]);
    pi.ask(json!({"type": "set_model", "provider": "cursor", "modelId": "composer-2"}));
    let (calls, _) = shown(&turn(&mut pi, "Show me."));
    assert_eq!(calls, ["cursor"; 5]);
}

#[test]
fn without_cards_activity_is_shown_as_lines() {
    let json = ["--model", "cursor/composer-2", "--mode", "json", "Show me."];
    let pi_env = pi_env_with_traps(PiVersion::V087);
    for (setting, cards) in [
        ("PI_CURSOR_PROVIDER_DEBUG", 9),
        ("PI_CURSOR_NATIVE_TOOL_DISPLAY", 0),
        ("PI_CURSOR_REGISTER_NATIVE_TOOLS", 0),
    ] {
        let output = pi_env.command(&json).env(setting, "0").output().unwrap();
        let ran = PiOutput::from(output);
        let events: Vec<Json> = ran
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (calls, thinking) = shown(&events);
        assert_eq!(calls.len(), cards, "{setting}");
        assert_eq!(
            thinking.contains("$ touch ../ran; seq 1 12\n\n1\n2"),
            cards == 0
        );
    }
    let ran = pi_env.print("Show me.");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("Done.\n", ""));
    assert!(!pi_env.home.path().join("ran").exists());
}
