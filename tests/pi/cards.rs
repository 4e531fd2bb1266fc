//! What Cursor's own tools did, as cards of pi: they look like pi's own, and nothing is run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value as Json, json};

use crate::backend::root;
use crate::desk::{Desk, Version, conversation, user_text, written};
use crate::screen::Screen;

/// The actions both pi's tools and Cursor's do, as pi's tools are called.
fn actions() -> Json {
    let lines: Vec<String> = (1..=14).map(|n| format!("- item {n}")).collect();
    json!([
        ["read", {"path": "src/main.rs"}],
        ["read", {"path": "gone.rs"}],
        ["bash", {"command": "touch ../ran; seq 1 12", "timeout": 30}],
        ["bash", {"command": "printf no; exit 3"}],
        ["grep", {"pattern": "main"}],
        ["find", {"pattern": "*.rs"}],
        ["ls", {"path": "."}],
        ["edit", {"path": "src/lib.rs", "edits": [{"oldText": "fn old()", "newText": "fn new()"}]}],
        ["write", {"path": "notes.md", "content": format!("# Notes\n\n{}\n", lines.join("\n"))}],
    ])
}

const MAIN: &str = "fn main() {\n    println!(\"hi\");\n}\n";
const LIB: &str = "//! A library.\n\nfn old() {}\n\nfn other() {}\n";

/// Where pi's own tools work.
fn furnish(workspace: &Path) {
    std::fs::create_dir(workspace.join("src")).unwrap();
    std::fs::write(workspace.join("src/main.rs"), MAIN).unwrap();
    std::fs::write(workspace.join("src/lib.rs"), LIB).unwrap();
    std::fs::write(workspace.join("README.md"), "# Read me\n").unwrap();
}

/// One completed call of Cursor's.
fn done(kind: &str, args: Json, result: Json) -> Json {
    static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let id = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    json!({"update": {"toolCallCompleted": {"callId": format!("c{id}"),
        "toolCall": {kind: {"args": args, "result": result}}}}})
}

fn success(value: Json) -> Json {
    json!({ "success": value })
}

/// The same actions as Cursor tells them, with the results pi's tools have.
fn as_cursor_did() -> Vec<Json> {
    let actions = actions();
    let notes = &actions[8][1]["content"];
    let numbers: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    let patch =
        "@@ -1,5 +1,5 @@\n //! A library.\n \n-fn old() {}\n+fn new() {}\n \n fn other() {}";
    let found = json!({"matches": [{"file": "src/main.rs", "matches": [{"lineNumber": 1, "content": "fn main() {"}]}], "totalMatchedLines": 1});
    let tree = json!({"absPath": "$WS", "childrenDirs": [{"absPath": "$WS/src"}], "childrenFiles": [{"name": "README.md"}]});
    vec![
        done(
            "readToolCall",
            json!({"path": "$WS/src/main.rs"}),
            success(json!({"content": MAIN, "totalLines": 3})),
        ),
        done(
            "readToolCall",
            json!({"path": "$WS/gone.rs"}),
            json!({"error": {"errorMessage": "ENOENT: no such file or directory, access '$WS/gone.rs'"}}),
        ),
        done(
            "shellToolCall",
            json!({"command": "touch ../ran; seq 1 12", "timeout": 30_000}),
            success(json!({"stdout": format!("{}\n", numbers.join("\n")), "executionTime": 42})),
        ),
        done(
            "shellToolCall",
            json!({"command": "printf no; exit 3"}),
            json!({"failure": {"exitCode": 3, "stdout": "no", "executionTime": 42}}),
        ),
        done(
            "grepToolCall",
            json!({"pattern": "main"}),
            success(json!({"workspaceResults": {"$WS": {"content": found}}})),
        ),
        done(
            "globToolCall",
            json!({"globPattern": "*.rs"}),
            success(json!({"files": ["src/lib.rs", "src/main.rs"], "totalFiles": 2})),
        ),
        done(
            "lsToolCall",
            json!({"path": "$WS"}),
            success(json!({ "directoryTreeRoot": tree })),
        ),
        done(
            "piEditToolCall",
            json!({"path": "$WS/src/lib.rs", "edits": [{"oldText": "fn old()", "newText": "fn new()"}]}),
            success(json!({"output": "ok", "patch": patch})),
        ),
        done(
            "editToolCall",
            json!({"path": "$WS/notes.md"}),
            success(json!({"path": "$WS/notes.md", "afterFullFileContent": notes})),
        ),
    ]
}

/// A scenario of one run that begins with these steps.
fn scenario(steps: &[Json]) -> String {
    let mut all = vec![json!({"exec": {"requestContextArgs": {}}})];
    all.extend(steps.iter().cloned());
    all.extend([
        json!({"text": "Done."}),
        json!({"checkpoint": "auto"}),
        json!({"usage": {}}),
        json!({"end": true}),
    ]);
    let followed = json!([{"text": "Heard: $USER_TEXT"}, {"checkpoint": "auto"}, {"usage": {}}, {"end": true}]);
    let play = json!({"name": "cards", "run": [{"steps": all}, {"steps": followed}]});
    toml::to_string(&play).unwrap()
}

/// What pi's grep and find call. Those who call them leave a trace.
fn search_programs(desk: &Desk) {
    let found = json!({"type": "match", "data": {"path": {"text": desk.workspace.join("src/main.rs")},
        "lines": {"text": "fn main() {\n"}, "line_number": 1}});
    let files = "printf '%s\\n' \"$PWD/src/lib.rs\" \"$PWD/src/main.rs\"";
    let programs = [
        ("rg", format!("printf '%s\\n' '{found}'")),
        ("fd", files.to_owned()),
    ];
    let folder = desk.home.path().join("agent/bin");
    std::fs::create_dir(&folder).unwrap();
    for (name, script) in programs {
        let script = format!("#!/bin/sh\necho {name} >> \"$HOME/ran\"\n{script}\n");
        std::fs::write(folder.join(name), script).unwrap();
        std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o755)).unwrap();
    }
}

/// The lines between a question and its answer, without what differs from run to run.
fn between(desk: &Desk, question: &str, screen: &str, answer: &str) -> Vec<String> {
    let lines: Vec<&str> = screen.lines().collect();
    let at = |wanted: &str| {
        let found = lines.iter().position(|line| line.contains(wanted));
        found.unwrap_or_else(|| panic!("no {wanted:?} in\n{screen}"))
    };
    let told = lines[at(question) + 1..at(answer)].iter().map(|line| {
        let line = line.replace(desk.home.path().to_str().unwrap(), "~");
        match line.split_once("Took 0.") {
            Some((before, after)) => format!("{before}Took{}", &after[2..]),
            None => line,
        }
    });
    told.collect()
}

/// The cards of the actions on a screen, collapsed and expanded.
fn both(desk: &Desk, pi: &Screen<'_>) -> [Vec<String>; 2] {
    pi.shows("Done.");
    pi.shows("... (6 more lines");
    let collapsed = between(desk, "Show me.", &pi.coloured(), "Done.");
    pi.keys(&["C-o"]);
    pi.shows("- item 14");
    let expanded = between(desk, "Show me.", &pi.coloured(), "Done.");
    [collapsed, expanded]
}

fn pi_alone(desk: &Desk) -> Vec<String> {
    std::fs::write(desk.home.path().join("calls.json"), actions().to_string()).unwrap();
    let mut arguments = desk.arguments(&["--tools", "read,bash,grep,find,ls,edit,write"]);
    let extension = arguments.iter().position(|word| word == "-e").unwrap() + 1;
    let own_tools = root().join("tests/pi/own-tools.mjs");
    arguments[extension] = own_tools.to_str().unwrap().into();
    arguments.extend(["--model", "own/own", "Show me."].map(Into::into));
    arguments
}

/// Every file below a folder: its content and when it was changed.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let changed = path.metadata().unwrap().modified().unwrap();
        match path.is_dir() {
            true => files.extend(snapshot(&path)),
            false => drop(files.insert(path.clone(), (std::fs::read(&path).unwrap(), changed))),
        }
    }
    files
}

/// A desk where whoever did it again would find something else, or leave traces.
fn desk_with_traps(version: Version) -> Desk {
    let desk = Desk::playing(version, &scenario(&as_cursor_did()));
    furnish(&desk.workspace);
    search_programs(&desk);
    let main = desk.workspace.join("src/main.rs");
    std::fs::write(main, "fn main() { other() }\n").unwrap();
    std::fs::write(desk.workspace.join("gone.rs"), "").unwrap();
    desk
}

fn start(desk: &Desk) -> Screen<'_> {
    let arguments = desk.arguments(&["--model", "cursor/composer-2", "Show me."]);
    Screen::run(desk, arguments, "150")
}

#[test]
fn each_card_looks_like_pis_own() {
    // Another pi draws the cards of a session from what was written down.
    let redrawn = |desk: &Desk, mut arguments: Vec<String>| {
        arguments.pop();
        arguments.extend(["--continue", "Again."].map(Into::into));
        let pi = Screen::run(desk, arguments, "150");
        pi.shows("Heard: Again.");
        between(desk, "Show me.", &pi.coloured(), "Done.")
    };
    let own = Desk::playing(Version::V087, &scenario(&[]));
    furnish(&own.workspace);
    search_programs(&own);
    let pi = Screen::run(&own, pi_alone(&own), "150");
    let of_pi = both(&own, &pi);
    drop(pi);
    let ran = std::fs::read_to_string(own.home.path().join("ran")).unwrap();
    assert!(ran.contains("rg") && ran.contains("fd"), "{ran}");

    let desk = desk_with_traps(Version::V087);
    let before = snapshot(&desk.workspace);
    let pi = start(&desk);
    pretty_assertions::assert_eq!(both(&desk, &pi), of_pi);
    pi.keys(&["C-d"]);
    desk.no_sidecar_is_left();
    drop(pi);
    let arguments = desk.arguments(&["--model", "cursor/composer-2", ""]);
    let of_cursor = redrawn(&desk, arguments);
    pretty_assertions::assert_eq!(of_cursor, redrawn(&own, pi_alone(&own)));

    pretty_assertions::assert_eq!(snapshot(&desk.workspace), before);
    assert!(!desk.home.path().join("ran").exists(), "a command was run");
    as_written(&desk);
    let recording = desk.simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_eq!(user_text(requests[1]), "Again.");
}

#[test]
fn other_versions_show_the_cards_too() {
    let collapsed = [
        "read src/main.rs",
        "ENOENT: no such file",
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
    for version in [Version::V074, Version::V079, Version::V150] {
        let desk = desk_with_traps(version);
        let before = snapshot(&desk.workspace);
        let pi = start(&desk);
        for wanted in collapsed {
            pi.shows(wanted);
        }
        pi.shows("Done.");
        pi.keys(&["C-o"]);
        let expanded = pi.shows("- item 14");
        assert!(expanded.contains("println!(\"hi\");"), "{expanded}");
        pretty_assertions::assert_eq!(snapshot(&desk.workspace), before);
        assert!(!desk.home.path().join("ran").exists(), "a command was run");
        as_written(&desk);
    }
}

const WRITTEN: &str = r#"
read "fn main() {\n    println!(\"hi\");\n}\n"
read! "ENOENT: no such file or directory, acces"
bash "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12"
bash! "no\n\nCommand exited with code 3"
grep "src/main.rs:1: fn main() {"
find "src/lib.rs\nsrc/main.rs"
ls "README.md\nsrc/"
edit "edit src/lib.rs\n\n@@ -1,5 +1,5 @@\n //! A "
write "write notes.md\n\nCreated 16 lines\n\nFile s"
"#;

/// The session file holds real names, recorded results, each once.
fn as_written(desk: &Desk) {
    let entries = written(desk);
    let messages = entries.iter().map(|entry| &entry["message"]);
    let results: Vec<&Json> = messages
        .clone()
        .filter(|message| message["role"] == "toolResult")
        .collect();
    let told: Vec<String> = results
        .iter()
        .map(|result| {
            let text = result["content"][0]["text"].as_str().unwrap();
            let text = text.replace(desk.home.path().to_str().unwrap(), "~");
            let mark = if result["isError"] == true { "!" } else { "" };
            let name = result["toolName"].as_str().unwrap();
            format!(
                "{name}{mark} {:?}",
                text.chars().take(40).collect::<String>()
            )
        })
        .collect();
    pretty_assertions::assert_eq!(told.join("\n"), WRITTEN.trim());
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
