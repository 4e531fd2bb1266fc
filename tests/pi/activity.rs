//! Actions in a workspace: as calls of pi's tools, and as Cursor reports them.

use std::path::Path;

use serde_json::{Value as Json, json};

/// Returns the actions that both pi's tools and Cursor's support, as calls of pi's tools.
pub fn actions() -> Json {
    let lines: Vec<String> = (1..=14).map(|n| format!("- item {n}")).collect();
    json!([
        ["read", {"path": "src/main.rs"}],
        ["read", {"path": "src/main.rs", "offset": 99}],
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
/// The header of a PNG image of 40 by 20 pixels.
pub const DOT: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x28\0\0\0\x14\x08\x06\0\0\0";
const LIB: &str = "//! A library.\n\nfn old() {}\n\nfn other() {}\n";

/// Fills the workspace that pi's own tools use.
pub fn furnish(workspace: &Path) {
    std::fs::create_dir(workspace.join("src")).unwrap();
    std::fs::write(workspace.join("src/main.rs"), MAIN).unwrap();
    std::fs::write(workspace.join("src/lib.rs"), LIB).unwrap();
    std::fs::write(workspace.join("README.md"), "# Read me\n").unwrap();
}

/// Returns one completed tool call of Cursor.
fn done(kind: &str, args: Json, result: Json) -> Json {
    static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let id = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    json!({"update": {"toolCallCompleted": {"callId": format!("c{id}"),
        "toolCall": {kind: {"args": args, "result": result}}}}})
}

fn success(value: Json) -> Json {
    json!({ "success": value })
}

/// Returns the same actions as Cursor reports them, with the results that pi's tools return.
pub fn as_cursor_did() -> Vec<Json> {
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
            json!({"path": "$WS/src/main.rs", "offset": 99}),
            json!({"error": {"errorMessage": "Offset 99 is beyond end of file (4 lines total)"}}),
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

/// Returns activity for which pi has no tool.
fn other_activity() -> Vec<Json> {
    let todo = |text: &str, status: &str| json!({"content": text, "status": format!("TODO_STATUS_{status}")});
    let todos = json!([todo("Look", "COMPLETED"), todo("Leap", "IN_PROGRESS")]);
    let page: Vec<String> = (1..=12).map(|n| format!("line {n}")).collect();
    let diff = "--- a/$WS/src/lib.rs\n+++ b/$WS/src/lib.rs\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n";
    vec![
        done(
            "editToolCall",
            json!({"path": "$WS/src/lib.rs"}),
            success(
                json!({"linesAdded": 1, "linesRemoved": 1, "diffString": diff,
                "beforeFullFileContent": "old\nsame\n", "afterFullFileContent": "new\nsame\n"}),
            ),
        ),
        done(
            "deleteToolCall",
            json!({"path": "$WS/README.md"}),
            json!({"fileNotFound": {"path": "$WS/README.md"}}),
        ),
        done(
            "updateTodosToolCall",
            json!({ "todos": todos }),
            success(json!({"todos": todos, "totalCount": 2})),
        ),
        done(
            "mcpToolCall",
            json!({"name": "wiki-page", "toolName": "page", "providerIdentifier": "wiki", "args": {"of": "owls"}}),
            success(json!({"content": [{"text": {"text": page.join("\n")}}]})),
        ),
        done(
            "generateImageToolCall",
            json!({"description": "a dot"}),
            success(json!({"filePath": "$WS/dot.png"})),
        ),
    ]
}

/// Returns a scenario that starts with a greeting.
pub fn greeted(steps: &[Json]) -> String {
    let mut play: Json = toml::from_str(&scenario(steps)).unwrap();
    let runs = play["run"].as_array_mut().unwrap();
    runs[0]["steps"].as_array_mut().unwrap().remove(0);
    let greeting = [
        json!({"exec": {"requestContextArgs": {}}}),
        json!({"text": "Hi."}),
        json!({"checkpoint": "auto"}),
        json!({"usage": {}}),
        json!({"end": true}),
    ];
    runs.insert(0, json!({ "steps": greeting }));
    toml::to_string(&play).unwrap()
}

/// Returns a scenario whose first run executes these steps.
pub fn scenario(steps: &[Json]) -> String {
    let mut all = vec![json!({"exec": {"requestContextArgs": {}}})];
    all.extend(steps.iter().cloned());
    all.extend([
        json!({"text": "Done."}),
        json!({"checkpoint": "auto"}),
        json!({"usage": {}}),
        json!({"end": true}),
    ]);
    let mut followed = other_activity();
    followed.push(json!({"text": "Heard: $USER_TEXT"}));
    followed.extend(all[all.len() - 3..].iter().cloned());
    let play = json!({"name": "cards", "run": [{"steps": all}, {"steps": followed}]});
    toml::to_string(&play).unwrap()
}
