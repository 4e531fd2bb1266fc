//! Native tools executed by the host: which host tool is called, and how its result is converted.

use serde_json::{Map, Value as Json, json};

use test_support::official_client::{OfficialClient, PNG};
use test_support::scenario::{CONTEXT, Steps, exec, inline, runs, value};
use test_support::workspace::{session, write};

/// A host tool with these arguments.
fn hosts(name: &str, arguments: &[&str]) -> Json {
    let arguments: Map<String, Json> = arguments
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    json!({
        "name": name,
        "description": name,
        "parameters": {"type": "object", "properties": arguments},
    })
}

#[test]
fn cursors_tools_left_to_the_host_are_the_hosts_own() {
    let sdk = OfficialClient::new();
    // Hooks run even if the host executes the tool.
    let hooks = json!({
        "version": 1,
        "hooks": {"beforeShellExecution": [{"command": "exit 2", "matcher": "forbidden"}]},
    });
    write(sdk.home.path(), ".cursor/hooks.json", &hooks.to_string());
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "a" } }"#,
            r#"{ readResult = { success = { content = "one\ntwo\n", totalLines = 3 } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "$WS/a.txt", fileText = "one\nTWO\n", toolCallId = "b" } }"#,
            r#"{ writeResult = { success = { linesCreated = 3, fileSize = 8 } } }"#,
        ),
        exec(
            r#"{ shellStreamArgs = { command = "false", workingDirectory = "$WS", toolCallId = "c" } }"#,
            r#"{ shellStream = { stdout = "oh", exit = { code = 3 } } }"#,
        ),
        exec(
            r#"{ shellArgs = { command = "forbidden", toolCallId = "d" } }"#,
            r#"{ shellResult = { rejected = { reason = { "$contains" = "blocked by a hook" } } } }"#,
        ),
        exec(
            r#"{ shellStreamArgs = { command = "rm x", toolCallId = "f", adminCommandDenylist = ["rm"] } }"#,
            r#"{ shellStream = { rejected = { command = "rm x", reason = { "$contains" = "(denylist rule: rm)" } } } }"#,
        ),
        exec(
            r#"{ shellArgs = { command = "touch x", toolCallId = "g", requestedSandboxPolicy = { type = "TYPE_WORKSPACE_READONLY" } } }"#,
            r#"{ shellResult = { spawnError = { command = "touch x", error = { "$contains" = "not supported" } } } }"#,
        ),
        exec(
            r#"{ shellStreamArgs = { command = "touch x", toolCallId = "h", requestedSandboxPolicy = { type = "TYPE_WORKSPACE_READONLY" } } }"#,
            r#"{ shellStream = { sandboxUnsupported = { command = "touch x", sandboxPolicyType = "workspace_readonly", isReadonly = true } } }"#,
        ),
        exec(
            r#"{ shellArgs = { command = "ls x", toolCallId = "i", adminCommandDenylist = ["rm"] } }"#,
            r#"{ shellResult = { success = { stdout = "x\n" } } }"#,
        ),
        exec(
            r#"{ lsArgs = { path = "$WS", toolCallId = "e" } }"#,
            r#"{ lsResult = { rejected = { reason = { "$contains" = "leaves Cursor's built-in tools to the host" } } } }"#,
        ),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let mut session = session(&simulator, &sdk, &[("PI_CURSOR_NATIVE_TOOLS", "host")]);
    session.tools = vec![
        hosts("read", &["path", "offset", "limit"]),
        hosts("edit", &["path", "edits"]),
        hosts("write", &["path", "content"]),
        hosts("bash", &["command", "timeout"]),
    ];
    let path = sdk.workspace.join("a.txt");
    let path = path.to_str().unwrap();
    let answers = [
        ("read", json!({"path": path}), "one\ntwo\n", false),
        (
            "edit",
            json!({"path": path, "edits": [{"oldText": "two\n", "newText": "TWO\n"}]}),
            "Successfully replaced 1 block(s).",
            false,
        ),
        (
            "bash",
            json!({"command": "false"}),
            "oh\n\nCommand exited with code 3",
            true,
        ),
        ("bash", json!({"command": "ls x"}), "x\n", false),
    ];
    let mut outcome = session.prompt("go");
    for (tool, arguments, text, failed) in answers {
        assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
        let [call] = &outcome.calls[..] else {
            panic!("{outcome:?}");
        };
        assert_eq!((call.name.as_str(), &call.arguments), (tool, &arguments));
        let call = call.clone();
        session.result(&call, json!([{"type": "text", "text": text}]));
        session.messages.last_mut().unwrap()["isError"] = failed.into();
        outcome = session.turn();
    }
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let headers = &recording.requests("/agent.v1.AgentService/Run")[0]["headers"];
    let excluded = headers["x-cursor-agent-exclude-tools"].as_str().unwrap();
    assert!(excluded.contains("grep_tool_call") && !excluded.contains("shell_tool_call"));
    assert!(sdk.workspace.join("a.txt").exists());
}

/// With the bridge off, no host tools are offered, but the host still executes native tools.
#[test]
fn without_the_bridge_the_host_does_what_cursors_tools_ask_for() {
    let sdk = OfficialClient::new();
    let read = exec(
        r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "a" } }"#,
        r#"{ readResult = { success = { content = "one\n" } } }"#,
    );
    let simulator = runs(&[format!("{CONTEXT}, {read}")]);
    let off = [
        ("PI_CURSOR_NATIVE_TOOLS", "host"),
        ("PI_CURSOR_PI_TOOL_BRIDGE", "0"),
    ];
    let mut session = session(&simulator, &sdk, &off);
    session.tools = vec![hosts("read", &["path"]), hosts("look", &["q"])];
    let outcome = session.prompt("go");
    assert_eq!((outcome.stop.as_str(), outcome.calls.len()), ("toolUse", 1));
    session.result(
        &outcome.calls[0],
        json!([{"type": "text", "text": "one\n"}]),
    );
    assert_eq!(session.turn().stop, "stop");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let offered = &recording.client("runRequest")[0]["runRequest"]["mcpTools"];
    assert!(!offered.to_string().contains("pi__"), "{offered}");
}

/// An exec request, the host's call for it, the host's result, and the expected response.
struct HostedRequest {
    exec: &'static str,
    call: (&'static str, Json),
    user_text: Json,
    fails: bool,
    reply: Json,
}

#[test]
fn results_of_the_hosts_tools_are_typed() {
    let sdk = OfficialClient::new();
    write(&sdk.workspace, "sub/b.txt", "alpha\n");
    let here = sdk.workspace.to_str().unwrap();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let missing = "ENOENT: no such file or directory, access 'gone'";
    let asked = [
        HostedRequest {
            exec: r#"{ grepArgs = { pattern = "needle", path = "src", glob = "*.rs", caseInsensitive = true, context = 1, toolCallId = "a" } }"#,
            call: (
                "grep",
                json!({
                    "pattern": "needle",
                    "path": "src",
                    "glob": "*.rs",
                    "ignoreCase": true,
                    "context": 1,
                }),
            ),
            user_text: text(
                "2024-01-05-a.rs-1- hay\n2024-01-05-a.rs:2: a Needle\n\n[1 matches limit reached. Use limit=2 for more]",
            ),
            fails: false,
            reply: json!({"grepResult": {"success": {"pattern": "needle", "path": "src", "outputMode": "content",
                "workspaceResults": {here: {"content": {"totalLines": 2, "totalMatchedLines": 1, "clientTruncated": true, "matches": [{"file": "src/2024-01-05-a.rs", "matches": [
                    {"lineNumber": 1, "content": "hay", "isContextLine": true}, {"lineNumber": 2, "content": "a Needle"}]}]}}}}}}),
        },
        HostedRequest {
            exec: r#"{ grepArgs = { pattern = "alpha", path = "$WS/sub/b.txt", toolCallId = "b" } }"#,
            call: (
                "grep",
                json!({"pattern": "alpha", "path": format!("{here}/sub/b.txt")}),
            ),
            user_text: text("b.txt:1: alpha"),
            fails: false,
            reply: json!({"grepResult": {"success": {"workspaceResults": {here: {"content": {"matches": [{"file": "sub/b.txt", "matches": [
                {"lineNumber": 1, "content": "alpha"}]}]}}}}}}),
        },
        HostedRequest {
            exec: r#"{ grepArgs = { pattern = "(", toolCallId = "b" } }"#,
            call: ("grep", json!({"pattern": "("})),
            user_text: text("regex parse error: unclosed group"),
            fails: true,
            reply: json!({"grepResult": {"error": {"error": "regex parse error: unclosed group"}}}),
        },
        HostedRequest {
            exec: r#"{ grepArgs = { glob = "*.rs", path = "$WS", outputMode = "files_with_matches", toolCallId = "c" } }"#,
            call: ("find", json!({"pattern": "*.rs", "path": here})),
            user_text: text("src/a.rs\nsrc/b.rs"),
            fails: false,
            reply: json!({"grepResult": {"success": {"path": here, "outputMode": "files_with_matches",
                "workspaceResults": {here: {"files": {"files": ["src/a.rs", "src/b.rs"], "totalFiles": 2}}}}}}),
        },
        HostedRequest {
            exec: r#"{ lsArgs = { path = "$WS", toolCallId = "d" } }"#,
            call: ("ls", json!({"path": here})),
            user_text: text(
                "[id].tsx\na.txt\nsrc/\n\n[3 entries limit reached. Use limit=6 for more]",
            ),
            fails: false,
            reply: json!({"lsResult": {"success": {"directoryTreeRoot": {"absPath": here,
                "childrenDirs": [{"absPath": format!("{here}/src")}], "childrenFiles": [{"name": "[id].tsx"}, {"name": "a.txt"}]}}}}),
        },
        HostedRequest {
            exec: r#"{ lsArgs = { path = "$WS/gone", toolCallId = "e" } }"#,
            call: ("ls", json!({"path": format!("{here}/gone")})),
            user_text: text(missing),
            fails: true,
            reply: json!({"lsResult": {"error": {"path": format!("{here}/gone"), "error": missing}}}),
        },
        HostedRequest {
            exec: r#"{ readArgs = { path = "dot.png", toolCallId = "f" } }"#,
            call: ("read", json!({"path": "dot.png"})),
            user_text: json!([
                {"type": "text", "text": "Read image file [image/png]"},
                {"type": "image", "data": PNG, "mimeType": "image/png"},
            ]),
            fails: false,
            reply: json!({"readResult": {"success": {"path": "dot.png", "data": PNG}}}),
        },
        HostedRequest {
            exec: r#"{ readArgs = { path = "gone", toolCallId = "g" } }"#,
            call: ("read", json!({"path": "gone"})),
            user_text: text(missing),
            fails: true,
            reply: json!({"readResult": {"fileNotFound": {"path": "gone"}}}),
        },
        HostedRequest {
            exec: r#"{ readArgs = { path = "long", offset = 5, limit = 2, toolCallId = "p" } }"#,
            call: ("read", json!({"path": "long", "offset": 5, "limit": 2})),
            user_text: text("five\nsix\n\n[94 more lines in file. Use offset=7 to continue.]"),
            fails: false,
            reply: json!({
                "readResult": {
                    "success": {
                        "path": "long",
                        "content": "five\nsix",
                        "totalLines": 100,
                        "rangeApplied": true,
                    },
                },
            }),
        },
        HostedRequest {
            exec: r#"{ shellArgs = { command = "nosuch", workingDirectory = "$WS", timeout = 1500, toolCallId = "h" } }"#,
            call: ("bash", json!({"command": "nosuch", "timeout": 2})),
            user_text: text("nosuch: not found\n\nCommand exited with code 127"),
            fails: true,
            reply: json!({
                "shellResult": {
                    "failure": {"command": "nosuch", "exitCode": 127, "stdout": "nosuch: not found"},
                },
            }),
        },
        HostedRequest {
            exec: r#"{ shellArgs = { command = "serve", timeout = 1500, timeoutBehavior = "TIMEOUT_BEHAVIOR_BACKGROUND", toolCallId = "i" } }"#,
            call: ("bash", json!({"command": "serve"})),
            user_text: text("(no output)"),
            fails: false,
            reply: json!({"shellResult": {"success": {"command": "serve"}}}),
        },
        HostedRequest {
            exec: r#"{ piFindArgs = { pattern = "*.rs" } }"#,
            call: ("find", json!({"pattern": "*.rs"})),
            user_text: text("src/a.rs"),
            fails: false,
            reply: json!({"piFindResult": {"success": {"output": "src/a.rs"}}}),
        },
    ];
    let mut steps = vec![CONTEXT.to_owned()];
    let execs = asked.iter().map(|asked| asked.exec);
    steps.extend(execs.map(|exec| Steps::new().step(json!({"exec": value(exec)})).build()));
    let simulator = runs(&[steps.join(", ")]);
    let mut session = session(&simulator, &sdk, &[("PI_CURSOR_NATIVE_TOOLS", "host")]);
    session.tools = vec![
        hosts("read", &["path", "offset", "limit"]),
        hosts("bash", &["command", "timeout"]),
        hosts(
            "grep",
            &[
                "pattern",
                "path",
                "glob",
                "ignoreCase",
                "literal",
                "context",
                "limit",
            ],
        ),
        hosts("find", &["pattern", "path", "limit"]),
        hosts("ls", &["path", "limit"]),
    ];
    let mut outcome = session.prompt("go");
    for HostedRequest {
        call: (tool, arguments),
        user_text,
        fails,
        ..
    } in &asked
    {
        let [call] = &outcome.calls[..] else {
            panic!("no {tool} but {outcome:?}");
        };
        assert_eq!((call.name.as_str(), &call.arguments), (*tool, arguments));
        let call = call.clone();
        session.result(&call, user_text.clone());
        session.messages.last_mut().unwrap()["isError"] = (*fails).into();
        outcome = session.turn();
    }
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let frames = recording.frames(1, "client");
    let replies: Vec<&Json> = frames
        .iter()
        .filter_map(|frame| frame["json"].get("execClientMessage"))
        .skip(1) // the context
        .collect();
    assert_eq!(replies.len(), asked.len());
    for (
        reply,
        HostedRequest {
            exec,
            reply: expected,
            ..
        },
    ) in replies.into_iter().zip(&asked)
    {
        assert!(holds(reply, expected), "{exec}\n{reply:#}\n{expected:#}");
    }
}

/// Returns whether `found` contains everything expected; it may contain more.
fn holds(found: &Json, expected: &Json) -> bool {
    match (found, expected) {
        (Json::Object(found), Json::Object(expected)) => expected
            .iter()
            .all(|(name, value)| found.get(name).is_some_and(|found| holds(found, value))),
        (Json::Array(found), Json::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| holds(a, b))
        }
        (found, expected) => found == expected,
    }
}

#[test]
fn a_file_that_was_shown_in_part_is_not_written_whole_later() {
    let sdk = OfficialClient::new();
    let read = |path: &str| {
        Steps::new()
            .step(json!({"exec": {"readArgs": {"path": path.to_string(), "toolCallId": "r"}}}))
            .build()
    };
    let writes = |expect: &str| {
        exec(
            r#"{ writeArgs = { path = "$WS/a.txt", fileText = "one\nTWO\n", toolCallId = "w" } }"#,
            &inline(&json!({"writeResult": value(expect)})),
        )
    };
    let refused = r#"{ rejected = { reason = { "$contains" = "showed only a part" } } }"#;
    let shell = r#"{ exec = { shellArgs = { command = "true", toolCallId = "s" } } }"#;
    // A partial read does not allow a write, even after a command, under another name or in another
    // run; a full read does.
    let first = [
        CONTEXT.to_owned(),
        read("a.txt"),
        shell.to_owned(),
        writes(refused),
    ];
    let second = [
        CONTEXT.to_owned(),
        writes(refused),
        read("$WS/a.txt"),
        writes("{ success = { } }"),
    ];
    let simulator = runs(&[first.join(", "), second.join(", ")]);
    let mut session = session(&simulator, &sdk, &[("PI_CURSOR_NATIVE_TOOLS", "host")]);
    session.tools = vec![
        hosts("read", &["path", "offset", "limit"]),
        hosts("write", &["path", "content"]),
        hosts("bash", &["command", "timeout"]),
    ];
    let part = "one\n\n[Showing lines 1-1 of 90. Use offset=2 to continue.]";
    let turns = [
        [("read", part), ("bash", "(no output)")],
        [("read", "one\ntwo\n"), ("write", "written")],
    ];
    for calls in turns {
        let mut outcome = session.prompt("go");
        for (tool, text) in calls {
            let [call] = &outcome.calls[..] else {
                panic!("no {tool} but {outcome:?}");
            };
            assert_eq!(call.name, tool);
            let call = call.clone();
            session.result(&call, json!([{"type": "text", "text": text}]));
            outcome = session.turn();
        }
        assert_eq!(outcome.stop, "stop", "{outcome:?}");
    }
    simulator.recorded().assert_played(&["completed"; 2]);
}

#[test]
fn each_tool_goes_to_whom_the_settings_say() {
    let sdk = OfficialClient::new();
    let steps = [
        CONTEXT.to_owned(),
        // Executed by the sidecar, though the host has a tool for it.
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "a" } }"#,
            r#"{ readResult = { success = { content = "alpha\nbeta\ngamma\n" } } }"#,
        ),
        exec(
            r#"{ shellArgs = { command = "id", workingDirectory = "$WS", toolCallId = "b" } }"#,
            r#"{ shellResult = { success = { stdout = "the host's" } } }"#,
        ),
        exec(
            r#"{ deleteArgs = { path = "$WS/a.txt", toolCallId = "c" } }"#,
            r#"{ deleteResult = { rejected = { reason = { "$contains" = "settings deny this client the tool delete" } } } }"#,
        ),
        exec(
            r#"{ lsArgs = { path = "$WS", toolCallId = "d" } }"#,
            r#"{ lsResult = { rejected = { reason = { "$contains" = "leaves Cursor's built-in tools to the host" } } } }"#,
        ),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let setting = "local, shell=host, ls=host, delete=off";
    let mut session = session(&simulator, &sdk, &[("PI_CURSOR_NATIVE_TOOLS", setting)]);
    session.tools = vec![
        hosts("read", &["path", "offset", "limit"]),
        hosts("bash", &["command", "timeout"]),
    ];
    let outcome = session.prompt("go");
    let [call] = &outcome.calls[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        (call.name.as_str(), &call.arguments["command"]),
        ("bash", &json!("id"))
    );
    let call = call.clone();
    session.result(&call, json!([{"type": "text", "text": "the host's"}]));
    let outcome = session.turn();
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let headers = &recording.requests("/agent.v1.AgentService/Run")[0]["headers"];
    let excluded = headers["x-cursor-agent-exclude-tools"].as_str().unwrap();
    let mut excluded: Vec<&str> = excluded.split(',').map(str::trim).collect();
    excluded.retain(|name| !name.starts_with("pi_"));
    assert_eq!(
        excluded,
        ["ls_tool_call", "glob_tool_call", "delete_tool_call"]
    );
    assert!(sdk.workspace.join("a.txt").exists());
    // The host's commands write nothing to the sidecar's terminals folder.
    let context = &recording.client("execClientMessage.requestContextResult")[0].to_string();
    assert!(!context.contains("terminalsFolder"), "{context}");
}
