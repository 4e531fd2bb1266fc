//! Native tools executed by the tools of known clients: their real tool lists through the gateway.

use serde_json::{Value as Json, json};

use test_support::gateway::GatewayProcess;
use test_support::scenario::{CONTEXT, exec, runs};

/// Returns a client's tools as it sends them to the chat API. `testdata/clients` says where each list
/// comes from.
fn tools(list: &str) -> Vec<Json> {
    let list: Json = serde_json::from_str(list).unwrap();
    let tools = list["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| json!({"type": "function", "function": tool}))
        .collect()
}

const OPENCODE: &str =
    include_str!("../../crates/agent-tools/src/host_delegate/testdata/clients/opencode.json");
const CODEX: &str =
    include_str!("../../crates/agent-tools/src/host_delegate/testdata/clients/codex.json");

const CLAUDE: &str =
    include_str!("../../crates/agent-tools/src/host_delegate/testdata/clients/claude-code.json");

/// Answers each call with the next result, after checking the call; returns the last text.
async fn converse(
    gateway: &GatewayProcess,
    tools: Vec<Json>,
    expected: &[(&str, Json, String)],
) -> String {
    let mut chat = gateway.chat();
    chat.tools = tools;
    let mut answer = chat.prompt("go").await;
    for (tool, arguments, result) in expected {
        let [call] = &answer.calls[..] else {
            panic!("{tool}: {answer:?}");
        };
        let made: Json =
            serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(
            (call["function"]["name"].as_str().unwrap(), &made),
            (*tool, arguments)
        );
        chat.result(call, result);
        answer = chat.turn().await;
    }
    assert_eq!(answer.finish, "stop", "{answer:?}");
    answer.text
}

#[tokio::test]
async fn opencodes_tools_do_the_work_of_cursors() {
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "a" } }"#,
            r#"{ readResult = { success = { content = "one\ntwo\n", totalLines = 3 } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "gone", toolCallId = "b" } }"#,
            r#"{ readResult = { fileNotFound = { path = "gone" } } }"#,
        ),
        exec(
            r#"{ lsArgs = { path = "sub", toolCallId = "c" } }"#,
            r#"{ lsResult = { success = { directoryTreeRoot = { childrenFiles = [{ name = "b.rs" }] } } } }"#,
        ),
        exec(
            r#"{ grepArgs = { glob = "**/*.rs", outputMode = "files_with_matches", toolCallId = "d" } }"#,
            r#"{ grepResult = { success = { outputMode = "files_with_matches" } } }"#,
        ),
        exec(
            r#"{ grepArgs = { pattern = "needle", caseInsensitive = true, toolCallId = "e" } }"#,
            r#"{ grepResult = { success = { pattern = "needle" } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "a.txt", fileText = "one\nTWO\n", toolCallId = "f" } }"#,
            r#"{ writeResult = { success = { linesCreated = 3 } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "new.txt", fileText = "new\n", toolCallId = "g" } }"#,
            r#"{ writeResult = { success = { linesCreated = 2 } } }"#,
        ),
        exec(
            r#"{ shellStreamArgs = { command = "make", workingDirectory = "sub", timeout = 500, toolCallId = "h" } }"#,
            r#"{ shellStream = { stdout = "half", exit = { aborted = true } } }"#,
        ),
        exec(
            r#"{ deleteArgs = { path = "new.txt", toolCallId = "i" } }"#,
            r#"{ deleteResult = { success = { path = "new.txt" } } }"#,
        ),
        exec(
            r#"{ fetchArgs = { url = "https://example.com", toolCallId = "j" } }"#,
            r##"{ fetchResult = { success = { content = "# Example" } } }"##,
        ),
        r#"{ text = "Done." }"#.to_owned(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let folder = gateway.folder().canonicalize().unwrap();
    let folder = folder.to_str().unwrap();
    let at = |name: &str| format!("{folder}/{name}");
    let shown = |path: &str, body: &str| format!("<path>{path}</path>\n{body}");
    let expected = [
        (
            "read",
            json!({"filePath": at("a.txt")}),
            shown(
                &at("a.txt"),
                "<type>file</type>\n<content>\n1: one\n2: two\n\n(End of file - total 2 lines)\n</content>",
            ),
        ),
        (
            "read",
            json!({"filePath": at("gone")}),
            format!("File not found: {}", at("gone")),
        ),
        (
            "read",
            json!({"filePath": at("sub")}),
            shown(
                &at("sub"),
                "<type>directory</type>\n<entries>\nb.rs\n\n(1 entries)\n</entries>",
            ),
        ),
        ("glob", json!({"pattern": "**/*.rs"}), at("sub/b.rs")),
        (
            "grep",
            json!({"pattern": "(?i)needle"}),
            format!("Found 1 matches\n{}:\n  Line 3: a Needle\n", at("sub/b.rs")),
        ),
        (
            "edit",
            json!({"filePath": at("a.txt"), "oldString": "two", "newString": "TWO"}),
            "Edit applied successfully.".to_owned(),
        ),
        (
            "write",
            json!({"filePath": at("new.txt"), "content": "new\n"}),
            "Wrote file successfully.".to_owned(),
        ),
        (
            "bash",
            json!({"command": "make", "workdir": at("sub"), "timeout": 500}),
            "half\n\n<shell_metadata>\nshell tool terminated command after exceeding timeout 500 ms.\n</shell_metadata>".to_owned(),
        ),
        (
            "bash",
            json!({"command": format!("rm -- '{}'", at("new.txt"))}),
            "(no output)".to_owned(),
        ),
        (
            "webfetch",
            json!({"url": "https://example.com", "format": "markdown"}),
            "# Example".to_owned(),
        ),
    ];
    assert_eq!(
        converse(&gateway, tools(OPENCODE), &expected).await,
        "Done."
    );
    let recording = simulator.recording().await;
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1, "one run");
    let frames = recording.frames(1, "client");
    let searches: Vec<&Json> = frames
        .iter()
        .map(|frame| &frame["json"]["execClientMessage"]["grepResult"])
        .filter(|reply| !reply.is_null())
        .collect();
    let found = searches[0].to_string();
    assert!(found.contains(r#""files":["sub/b.rs"]"#), "{found}");
    let matched = searches[1].to_string();
    assert!(
        matched.contains("a Needle") && matched.contains(r#""file":"sub/b.rs""#),
        "{matched}"
    );
}

/// A command of Codex that takes longer than one call is asked for until it has ended.
#[tokio::test]
async fn a_long_command_of_codex_is_polled_until_it_ends() {
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ shellStreamArgs = { command = "make", toolCallId = "a" } }"#,
            r#"{ shellStream = { stdout = "first\nlast", exit = { code = 2 } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "b" } }"#,
            r#"{ readResult = { success = { content = "one\n" } } }"#,
        ),
        r#"{ text = "Done." }"#.to_owned(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let folder = gateway.folder().canonicalize().unwrap();
    let result = |state: &str, output: &str| {
        format!(
            "Chunk ID: 1\nWall time: 30 seconds\n{state}\nOriginal token count: 1\nOutput:\n{output}"
        )
    };
    let expected = [
        (
            "exec_command",
            json!({"cmd": "make", "yield_time_ms": 30000}),
            result("Process running with session ID 7", "first\n"),
        ),
        (
            "write_stdin",
            json!({"session_id": 7, "chars": "", "yield_time_ms": 30000}),
            result("Process exited with code 2", "last\n"),
        ),
        (
            "exec_command",
            json!({"cmd": format!("cat -- '{}/a.txt'", folder.display()), "yield_time_ms": 30000}),
            result("Process exited with code 0", "one\n"),
        ),
    ];
    assert_eq!(converse(&gateway, tools(CODEX), &expected).await, "Done.");
    simulator.recording().await.assert_played(&["completed"]);
}

/// Claude Code does not show a file twice. What it says instead is not taken for the file: the file is
/// read in another way, and a change is based on its text.
#[tokio::test]
async fn a_file_that_the_client_has_shown_before_is_read_in_another_way() {
    let read = |range: &str, id: &str, content: &str| {
        exec(
            &format!(r#"{{ readArgs = {{ path = "a.txt", {range}toolCallId = "{id}" }} }}"#),
            &format!(r#"{{ readResult = {{ success = {{ content = "{content}" }} }} }}"#),
        )
    };
    let steps = [
        CONTEXT.to_owned(),
        read("", "a", r"one\ntwo\nthree"),
        read("offset = 2, limit = 1, ", "b", "two"),
        exec(
            r#"{ writeArgs = { path = "a.txt", fileText = "one\nTWO\nthree", toolCallId = "c" } }"#,
            r#"{ writeResult = { success = { linesCreated = 3 } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "d" } }"#,
            r#"{ readResult = { error = { error = { "$contains" = "unchanged since" } } } }"#,
        ),
        r#"{ text = "Done." }"#.to_owned(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let folder = gateway.folder().canonicalize().unwrap();
    let path = folder.join("a.txt");
    let whole = json!({"file_path": path});
    let lines = json!({"file_path": path, "offset": 1, "limit": 2000});
    let shown = || "1\tone\n2\ttwo\n3\tthree".to_owned();
    let notice = || {
        "File unchanged since last read. The content from the earlier Read tool_result in this conversation is still current — refer to that instead of re-reading.".to_owned()
    };
    let wasted = "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.";
    let expected = [
        ("Read", whole.clone(), notice()),
        ("Read", lines.clone(), shown()),
        (
            "Read",
            json!({"file_path": path, "offset": 2, "limit": 1}),
            wasted.to_owned(),
        ),
        ("Read", whole.clone(), shown()),
        (
            "Edit",
            json!({"file_path": path, "old_string": "two\n", "new_string": "TWO\n"}),
            format!("The file {} has been updated.", path.display()),
        ),
        ("Read", whole, notice()),
        ("Read", lines, notice()),
    ];
    assert_eq!(converse(&gateway, tools(CLAUDE), &expected).await, "Done.");
    simulator.recording().await.assert_played(&["completed"]);
}

/// A tool whose required arguments cannot be filled is not called, and the model learns why.
#[tokio::test]
async fn a_tool_with_an_unknown_required_argument_is_refused_with_the_reason() {
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ shellArgs = { command = "make", toolCallId = "a" } }"#,
            r#"{ shellResult = { rejected = { reason = { "$contains" = "requires the argument ticket" } } } }"#,
        ),
        r#"{ text = "Done." }"#.to_owned(),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let text = json!({"type": "string"});
    let shell = json!({"type": "function", "function": {"name": "run_command", "parameters": {
        "type": "object", "properties": {"command": text, "ticket": text},
        "required": ["command", "ticket"]}}});
    assert_eq!(converse(&gateway, vec![shell], &[]).await, "Done.");
    simulator.recording().await.assert_played(&["completed"]);
}
