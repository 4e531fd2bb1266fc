//! The Agent Client Protocol: the real binary, driven by an editor of ours and by the official SDK.

use std::process::Command;

use serde_json::{Value as Json, json};

use test_support::acp_editor::AcpEditor;
use test_support::binary;
use test_support::official_client::mcp_stdio;
use test_support::processes::is_running;
use test_support::root;
use test_support::scenario::{CONTEXT, Steps, call, exec, runs, text};
use test_support::simulator::Simulator;
use test_support::wait::until;

/// A completed native tool call, as Cursor reports it.
fn completed(id: &str, call: Json) -> String {
    Steps::new()
        .step(json!({"update": {"toolCallCompleted": {"callId": id, "toolCall": call}}}))
        .build()
}

fn say(text: &str) -> String {
    Steps::new().text(text).build()
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns title, kind and statuses of every tool call, in the order they were first displayed.
fn tool_calls(editor: &AcpEditor) -> Vec<String> {
    let mut calls: Vec<(&Json, String)> = Vec::new();
    for update in &editor.updates {
        let is_call = update["sessionUpdate"].as_str().unwrap() == "tool_call";
        let id = &update["toolCallId"];
        let status = update["status"].as_str().unwrap_or("pending");
        if is_call {
            let word = |name: &str| update[name].as_str().unwrap();
            let call = format!("{} | {} | {status}", word("title"), word("kind"));
            calls.push((id, call));
        } else if let Some((_, call)) = calls.iter_mut().find(|(known, _)| *known == id) {
            call.push(' ');
            call.push_str(status);
        }
    }
    calls.into_iter().map(|(_, call)| call).collect()
}

#[test]
fn a_prompt_streams_thoughts_and_text_and_the_next_one_continues_the_conversation() {
    let first = [
        CONTEXT.into(),
        r#"{ thinking = "Hm. " }"#.into(),
        say("Hello."),
    ];
    let simulator = runs(&[first.join(", "), say("Again.")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let initialized = editor.initialize(json!({}));
    assert_eq!(initialized["protocolVersion"], 1);
    assert_eq!(initialized["agentCapabilities"]["loadSession"], true);
    let session = editor.open(json!({}));
    assert_eq!(editor.prompt(&session, "hi").unwrap(), "end_turn");
    assert_eq!(editor.text_of("agent_thought_chunk"), "Hm. ");
    assert_eq!(editor.text_of("agent_message_chunk"), "Hello.");
    assert_eq!(editor.prompt(&session, "more").unwrap(), "end_turn");
    assert_eq!(editor.text_of("agent_message_chunk"), "Hello.Again.");
    editor.close();
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(id(0), id(1));
}

#[test]
fn native_tools_need_permission_which_is_remembered_for_the_session() {
    let shell = |command: &str, id: &str, reply: &str| {
        let args = format!(
            r#"{{ shellArgs = {{ command = "{command}", toolCallId = "{id}", timeout = 20000, parsingResult = {{}} }} }}"#
        );
        exec(&args, reply)
    };
    let ran = json!({"shellToolCall": {"args": {"command": "echo one"},
        "result": {"success": {"command": "echo one", "stdout": "one\n"}}}});
    let edited = json!({"editToolCall": {"args": {"path": "a.txt"},
        "result": {"success": {"path": "a.txt", "afterFullFileContent": "new\n"}}}});
    let todos = json!({"updateTodosToolCall": {
        "args": {"todos": [{"content": "A", "status": "TODO_STATUS_COMPLETED"}]},
        "result": {"success": {"todos": [{"content": "A", "status": "TODO_STATUS_COMPLETED"}]}}}});
    let steps = [
        CONTEXT.to_owned(),
        shell(
            "echo one",
            "a",
            r#"{ shellResult = { success = { stdout = "one\n" } } }"#,
        ),
        completed("a", ran),
        // Allowed for the session, so there is no second question.
        shell(
            "echo two",
            "b",
            r#"{ shellResult = { success = { stdout = "two\n" } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "a.txt", fileText = "new\n", toolCallId = "c" } }"#,
            r#"{ writeResult = { success = { linesCreated = 2 } } }"#,
        ),
        completed("c", edited),
        exec(
            r#"{ deleteArgs = { path = "a.txt", toolCallId = "d" } }"#,
            r#"{ deleteResult = { rejected = { reason = { "$contains" = "declined" } } } }"#,
        ),
        // Reading needs no permission.
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "e" } }"#,
            r#"{ readResult = { success = { content = "new\n" } } }"#,
        ),
        completed("todos", todos),
        say("Done."),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    std::fs::write(editor.cwd.join("a.txt"), "old\n").unwrap();
    let session = editor.open(json!({}));
    editor.choose = vec!["allow_always", "allow_once", "reject_once"];
    assert_eq!(editor.prompt(&session, "go").unwrap(), "end_turn");
    assert_eq!(editor.count("session/request_permission"), 3);
    assert_eq!(editor.text_of("agent_message_chunk"), "Done.");
    assert_eq!(
        tool_calls(&editor),
        [
            "echo one | execute | pending in_progress completed",
            "echo two | execute | pending in_progress completed",
            "Edit a.txt | edit | pending in_progress completed",
            "Delete a.txt | delete | pending failed",
            "todos 1/1 completed | think | completed",
        ]
    );
    let diff = editor.updates.iter().find_map(|update| {
        let content = &update["content"][0];
        (content["type"] == "diff").then(|| content.clone())
    });
    let file = editor.cwd.join("a.txt");
    let expected = json!({"type": "diff", "path": file, "oldText": "old\n", "newText": "new\n"});
    assert_eq!(diff.unwrap(), expected);
    let plan = editor
        .updates
        .iter()
        .find(|it| it["sessionUpdate"] == "plan");
    assert_eq!(plan.unwrap()["entries"][0]["content"], "A");
    editor.close();
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn the_clients_files_and_terminals_are_used() {
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "a" } }"#,
            r#"{ readResult = { success = { content = "unsaved\n" } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "a.txt", fileText = "new\n", toolCallId = "b" } }"#,
            r#"{ writeResult = { success = { linesCreated = 2 } } }"#,
        ),
        exec(
            r#"{ shellStreamArgs = { command = "make", toolCallId = "c" } }"#,
            r#"{ shellStream = { stdout = "built", exit = { code = 2 } } }"#,
        ),
        say("Done."),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true}));
    editor.answer = |method, _| match method {
        "fs/read_text_file" => json!({"content": "unsaved\n"}),
        "fs/write_text_file" | "terminal/release" => json!({}),
        "terminal/create" => json!({"terminalId": "t1"}),
        "terminal/wait_for_exit" => json!({"exitCode": 2}),
        "terminal/output" => json!({"output": "built\n", "truncated": false}),
        other => panic!("{other}"),
    };
    assert_eq!(editor.prompt(&session, "go").unwrap(), "end_turn");
    let asked: Vec<&str> = editor
        .requests
        .iter()
        .map(|(method, _)| &**method)
        .collect();
    assert_eq!(
        asked,
        [
            "fs/read_text_file",
            "fs/read_text_file",
            "session/request_permission",
            "fs/write_text_file",
            "session/request_permission",
            "terminal/create",
            "terminal/wait_for_exit",
            "terminal/output",
            "terminal/release",
        ]
    );
    let written = &editor.requests[3].1;
    assert_eq!(written["path"], json!(editor.cwd.join("a.txt")));
    assert_eq!(written["content"], "new\n");
    let terminal = editor
        .updates
        .iter()
        .any(|update| update["content"][0] == json!({"type": "terminal", "terminalId": "t1"}));
    assert!(terminal, "{:?}", editor.updates);
    assert!(
        !editor.cwd.join("a.txt").exists(),
        "the client has written it"
    );
    editor.close();
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1, "one run");
}

#[test]
fn a_cancelled_prompt_says_so_and_the_session_continues() {
    let first = Steps::new()
        .text("Working. ")
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let simulator = test_support::scenario::script(&[
        &first,
        &format!("{}, {}", say("Next."), test_support::scenario::END),
    ]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({}));
    let prompt = json!([{"type": "text", "text": "go"}]);
    let params = json!({"sessionId": session, "prompt": prompt});
    let id = editor.begin("session/prompt", params.clone());
    editor.wait_for_update(|update| update["content"]["text"] == "Working. ");
    // Only one prompt runs at a time.
    assert_eq!(
        editor.call("session/prompt", params).unwrap_err()["code"],
        -32600
    );
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.finish(id).unwrap()["stopReason"], "cancelled");
    assert_eq!(editor.prompt(&session, "again").unwrap(), "end_turn");
    editor.close();
}

/// What is wrong with it would make each later prompt fail too.
#[test]
fn a_refused_prompt_is_no_part_of_the_session() {
    let simulator = runs(&[say("Hi.")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({}));
    let damaged = json!({"type": "image", "data": "!", "mimeType": "image/png"});
    for part in [damaged, json!({"type": "text", "text": ""})] {
        let params = json!({"sessionId": session, "prompt": [part]});
        let refused = editor.call("session/prompt", params).unwrap_err();
        assert_eq!(refused["code"], -32602, "{refused}");
    }
    assert_eq!(editor.prompt(&session, "hi").unwrap(), "end_turn");
    editor.close();
    let recording = simulator.recorded();
    let request = &recording.client("runRequest")[0]["runRequest"];
    let message = &request["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message["text"], "hi");
    assert_eq!(message["selectedContext"]["selectedImages"], Json::Null);
}

/// An editor that is busy, or asks its user itself, does not keep a cancelled prompt open, and
/// nothing is executed after it.
#[test]
fn a_cancelled_prompt_does_not_wait_for_the_editor() {
    let read = r#"{ exec = { readArgs = { path = "a.txt", toolCallId = "a" } } }"#;
    let write =
        r#"{ exec = { writeArgs = { path = "b.txt", fileText = "b", toolCallId = "b" } } }"#;
    let shell = r#"{ exec = { shellArgs = { command = "echo", toolCallId = "c", timeout = 600000, parsingResult = {} } } }"#;
    let created = json!({"terminalId": "t"});
    let cases = [
        ("fs/read_text_file", read, json!({"content": "late"})),
        ("fs/write_text_file", write, json!({})),
        (
            "session/request_permission",
            write,
            json!({"outcome": {"outcome": "cancelled"}}),
        ),
        ("terminal/create", shell, created),
        ("terminal/wait_for_exit", shell, json!({"exitCode": 0})),
    ];
    for (method, step, late) in cases {
        let simulator = test_support::scenario::script(&[
            &format!("{CONTEXT}, {step}, {write}, {{ stall = true }}"),
            &format!("{}, {}", say("Next."), test_support::scenario::END),
        ]);
        let home = home();
        let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
        editor.withholds = method;
        editor.answer = |method, _| match method {
            "terminal/create" => json!({"terminalId": "t"}),
            "terminal/output" => json!({"output": "", "truncated": false}),
            "fs/read_text_file" => json!({"content": "before"}),
            _ => json!({}),
        };
        let session = editor.open(json!({"terminal": true,
            "fs": {"readTextFile": true, "writeTextFile": true}}));
        let prompt = json!([{"type": "text", "text": "go"}]);
        let id = editor.begin(
            "session/prompt",
            json!({"sessionId": session, "prompt": prompt}),
        );
        editor.wait_for_withheld();
        let writes = editor.count("fs/write_text_file");
        if method == "fs/read_text_file" {
            // As a client does that withdraws the request itself.
            editor.notify("$/cancel_request", json!({"requestId": id}));
        } else {
            editor.notify("session/cancel", json!({"sessionId": session}));
        }
        let ended = editor.finish(id).unwrap();
        assert_eq!(ended["stopReason"], "cancelled", "{method}");
        assert_eq!(editor.count("fs/write_text_file"), writes, "{method}");
        editor.answer_withheld(&late);
        editor.withholds = "";
        assert_eq!(
            editor.prompt(&session, "again").unwrap(),
            "end_turn",
            "{method}"
        );
        if method.starts_with("terminal/") {
            assert_eq!(editor.count("terminal/kill"), 1, "{method}");
        }
        editor.close();
    }
}

#[test]
fn a_session_is_loaded_by_another_process_and_continues_its_conversation() {
    let simulator = runs(&[format!("{CONTEXT}, {}", say("One.")), say("Two.")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({}));
    let png = test_support::official_client::PNG;
    let prompt = json!([{"type": "text", "text": "look"},
        {"type": "image", "data": png.to_string(), "mimeType": "image/png"},
        {"type": "resource_link", "name": "a.rs", "uri": "file:///w/a.rs"}]);
    let params = json!({"sessionId": session, "prompt": prompt});
    let answer = editor.call("session/prompt", params).unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let mode = json!({"sessionId": session, "modeId": "plan"});
    editor.call("session/set_mode", mode).unwrap();
    editor.close();

    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let capabilities = editor.initialize(json!({}))["agentCapabilities"].clone();
    assert!(capabilities["sessionCapabilities"]["list"].is_object());
    let listed = |sessions: Json| json!({"sessions": sessions});
    let all = editor.call("session/list", json!({})).unwrap();
    let stored = json!([{"sessionId": session, "cwd": editor.cwd, "title": "look"}]);
    assert_eq!(all, listed(stored));
    let elsewhere = editor.call("session/list", json!({"cwd": "/elsewhere"}));
    assert_eq!(elsewhere.unwrap(), listed(json!([])));
    let load = json!({"sessionId": session, "cwd": editor.cwd, "mcpServers": []});
    let loaded = editor.call("session/load", load).unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "plan");
    assert_eq!(
        editor.text_of("user_message_chunk"),
        "look[@a.rs](file:///w/a.rs)"
    );
    assert_eq!(editor.text_of("agent_message_chunk"), "One.");
    assert_eq!(editor.prompt(&session, "more").unwrap(), "end_turn");
    let unknown = json!({"sessionId": "../x", "cwd": editor.cwd, "mcpServers": []});
    let refused = editor.call("session/load", unknown).unwrap_err();
    assert_eq!(refused["code"], -32602);
    editor.close();
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    let request = |n: usize| &requests[n]["runRequest"];
    assert_eq!(request(0)["conversationId"], request(1)["conversationId"]);
    let message = &request(0)["action"]["userMessageAction"]["userMessage"];
    let images = &message["selectedContext"]["selectedImages"];
    assert_eq!(images[0]["data"], png.to_string());
}

#[test]
fn models_and_errors_are_reported() {
    let simulator = runs(&[say("Hi.")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[("CURSOR_API_KEY", "")]);
    let initialized = editor.initialize(json!({"auth": {"terminal": true}}));
    let methods = initialized["authMethods"].as_array().unwrap().iter();
    let methods: Vec<&Json> = methods.map(|method| &method["id"]).collect();
    assert_eq!(methods, ["cursor", "cursor-login"]);
    let new = json!({"cwd": editor.cwd, "mcpServers": []});
    let refused = editor.call("session/new", new).unwrap_err();
    assert_eq!(refused["code"], -32000, "{refused}");
    let refused = editor.call("authenticate", json!({"methodId": "cursor"}));
    assert_eq!(refused.unwrap_err()["code"], -32000);
    editor.close();

    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({}));
    let option =
        |id: &str, value: &str| json!({"sessionId": session, "configId": id, "value": value});
    let mut set = |id: &str, value: &str| {
        let set = editor.call("session/set_config_option", option(id, value));
        set.map(|set| set["configOptions"].clone())
    };
    let options = set("model", "composer-2").unwrap();
    assert_eq!(options[0]["currentValue"], "composer-2");
    assert_eq!(options[1], Json::Null, "its thinking cannot be chosen");
    let options = set("model", "gpt-5.1").unwrap();
    let (model, thinking) = (&options[0], &options[1]);
    assert_eq!(model["category"], "model");
    assert_eq!(
        (&thinking["category"], &thinking["currentValue"]),
        (&json!("thought_level"), &json!("default"))
    );
    let options = set("thinking", "high").unwrap();
    assert_eq!(options[1]["currentValue"], "high");
    for (id, value) in [("taste", "x"), ("model", "gpt-0"), ("thinking", "huge")] {
        let refused = set(id, value).unwrap_err();
        assert_eq!(refused["code"], -32602, "{id} {value}: {refused}");
    }
    // As clients did before there were options.
    let mut set_model = |session: &str, id: &str| {
        let params = json!({"sessionId": session, "modelId": id});
        editor.call("session/set_model", params)
    };
    for (session, id) in [(session.as_str(), "gpt-0"), ("x", "gpt-5.1")] {
        assert_eq!(set_model(session, id).unwrap_err()["code"], -32602);
    }
    assert_eq!(set_model(&session, "composer-2").unwrap(), json!({}));
    assert_eq!(set_model(&session, "gpt-5.1").unwrap(), json!({}));
    let unknown = json!({"sessionId": "x", "prompt": []});
    let refused = editor.call("session/prompt", unknown).unwrap_err();
    assert_eq!(refused["code"], -32602);
    let relative = json!({"cwd": "here", "mcpServers": []});
    assert_eq!(
        editor.call("session/new", relative).unwrap_err()["code"],
        -32602
    );
    assert_eq!(editor.prompt(&session, "hi").unwrap(), "end_turn");
    editor.close();
    let recording = simulator.recorded();
    let model = &recording.client("runRequest")[0]["runRequest"]["requestedModel"];
    assert_eq!(model["modelId"], "gpt-5.1");
    let parameters = json!([{"id": "reasoning", "value": "high"}]);
    assert_eq!(model["parameters"], parameters, "{model}");
}

#[test]
fn the_sessions_mcp_servers_are_connected() {
    let echo = call(
        "mine",
        "echo",
        r#"{ text = "hi" }"#,
        &text(r#"echo:{"text":"hi"}"#),
    );
    let simulator = runs(&[format!("{CONTEXT}, {echo}, {}", say("Done."))]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    editor.initialize(json!({}));
    let mut server = mcp_stdio();
    server["name"] = "mine".into();
    server["env"] = json!([]);
    let new = json!({"cwd": editor.cwd, "mcpServers": [server]});
    let opened = editor.call("session/new", new).unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(editor.prompt(&session, "go").unwrap(), "end_turn");
    editor.close();
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn the_end_of_the_input_ends_the_process_and_its_commands() {
    let shell = r#"{ exec = { shellArgs = { command = "sh ./wait.sh", toolCallId = "a", timeout = 600000, parsingResult = {} } } }"#;
    let simulator = runs(&[format!("{CONTEXT}, {shell}")]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let script = "echo $$ > pid.new; mv pid.new pid; exec sleep 600";
    std::fs::write(editor.cwd.join("wait.sh"), script).unwrap();
    let session = editor.open(json!({}));
    let prompt = json!([{"type": "text", "text": "go"}]);
    editor.begin(
        "session/prompt",
        json!({"sessionId": session, "prompt": prompt}),
    );
    editor.wait_for_update(|update| update["status"] == "in_progress");
    let file = editor.cwd.join("pid");
    let command: i32 = until(|| std::fs::read_to_string(&file).ok()?.trim().parse().ok());
    assert!(is_running(command));
    editor.close();
    until(|| (!is_running(command)).then_some(()));
}

/// Runs the editor that uses the official SDK.
fn sdk_editor(simulator: &Simulator, home: &std::path::Path, plan: &Json) -> Json {
    let file = home.join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let output = Command::new(root().join("tests/official/node_modules/.bin/node"))
        .arg(root().join("tests/acp/editor.mjs"))
        .arg(binary())
        .arg(&file)
        .env("HOME", home)
        .env("PI_CURSOR_STATE_DIR", home.join("state"))
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .env("CURSOR_API_KEY", "crsr_test")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"))
}

/// A user who does not answer keeps no session open.
#[test]
fn a_session_is_closed_with_its_open_question() {
    let command = json!({"command": "echo one", "toolCallId": "a", "timeout": 20000,
                         "parsingResult": {}});
    let steps = Steps::new()
        .step(json!({"exec": {"shellArgs": command}, "open": true, "name": "a"}))
        .step(json!({"expect_cancel": true, "timeout_ms": 60000}))
        .build();
    let simulator = test_support::scenario::script(&[&steps]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({}));
    editor.choose = vec!["unanswered"];
    let prompt = json!([{"type": "text", "text": "go"}]);
    let id = editor.begin(
        "session/prompt",
        json!({"sessionId": session, "prompt": prompt}),
    );
    editor.wait_for_update(|update| update["sessionUpdate"] == "tool_call");
    let closed = editor.begin("session/close", json!({"sessionId": session}));
    assert_eq!(editor.finish(id).unwrap()["stopReason"], "cancelled");
    assert_eq!(editor.finish(closed).unwrap(), json!({}));
    assert_eq!(editor.count("session/request_permission"), 1);
    editor.close();
    simulator.recorded().assert_played(&["cancelled by client"]);
}

/// A closed session answers its prompt and can be opened again; a deleted one cannot.
#[test]
fn a_closed_session_is_stored_and_a_deleted_one_is_gone() {
    let first = Steps::new()
        .text("Working. ")
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let end = test_support::scenario::END;
    let second = format!("{}, {end}", say("Next."));
    let simulator = test_support::scenario::script(&[&first, &second]);
    let home = home();
    let mut editor = AcpEditor::start(&simulator, home.path(), &[]);
    let session = editor.open(json!({}));
    let of = |session: &str| json!({"sessionId": session});
    let place = json!({"sessionId": session, "cwd": editor.cwd, "mcpServers": []});
    let prompt = json!([{"type": "text", "text": "go"}]);
    let asked = json!({"sessionId": session, "prompt": prompt});
    let id = editor.begin("session/prompt", asked.clone());
    editor.wait_for_update(|update| update["content"]["text"] == "Working. ");
    let closed = editor.begin("session/close", of(&session));
    assert_eq!(editor.finish(id).unwrap()["stopReason"], "cancelled");
    assert_eq!(editor.finish(closed).unwrap(), json!({}));
    for (method, params) in [("session/close", of(&session)), ("session/prompt", asked)] {
        let refused = editor.call(method, params).unwrap_err();
        assert_eq!(refused["code"], -32602, "{method}");
    }
    editor.updates.clear();
    editor.call("session/resume", place.clone()).unwrap();
    assert_eq!(editor.updates, [Json::Null; 0]);
    assert_eq!(editor.prompt(&session, "more").unwrap(), "end_turn");
    assert_eq!(editor.text_of("agent_message_chunk"), "Next.");
    editor.call("session/load", place.clone()).unwrap();
    assert!(editor.text_of("agent_message_chunk").contains("Working. "));
    let conversations = home.path().join("state/conversations");
    let journals = || {
        let folders = std::fs::read_dir(&conversations).unwrap();
        let folders = folders.map(|folder| folder.unwrap().path());
        folders
            .filter(|folder| folder.join("journal").exists())
            .count()
    };
    assert_eq!(journals(), 1);
    for id in [session.as_str(), "never-was"] {
        assert_eq!(editor.call("session/delete", of(id)).unwrap(), json!({}));
    }
    assert_eq!(journals(), 0, "the conversation is deleted too");
    for method in ["session/load", "session/resume"] {
        let refused = editor.call(method, place.clone()).unwrap_err();
        assert_eq!(refused["code"], -32602, "{method}");
    }
    editor.close();
}

/// The official SDK validates every message against the protocol's schema.
#[test]
fn the_official_sdk_drives_a_session_with_files_terminals_and_a_restart() {
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ readArgs = { path = "a.txt", toolCallId = "a" } }"#,
            r#"{ readResult = { success = { content = "unsaved\n" } } }"#,
        ),
        exec(
            r#"{ writeArgs = { path = "a.txt", fileText = "new\n", toolCallId = "b" } }"#,
            r#"{ writeResult = { success = { linesCreated = 2 } } }"#,
        ),
        exec(
            r#"{ shellArgs = { command = "cat a.txt; exit 3", toolCallId = "c" } }"#,
            r#"{ shellResult = { failure = { exitCode = 3, stdout = "new" } } }"#,
        ),
        completed(
            "d",
            json!({"lsToolCall": {"args": {"path": "."}, "result": {"success": {}}}}),
        ),
        say("Done."),
    ];
    let simulator = runs(&[steps.join(", "), say("Second."), say("Third.")]);
    let home = home();
    let cwd = home.path().canonicalize().unwrap();
    std::fs::write(cwd.join("a.txt"), "old\n").unwrap();
    let file = cwd.join("a.txt");
    let file = file.to_str().unwrap();
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true},
        "terminal": true});
    let plan = json!({"cwd": cwd, "capabilities": capabilities, "prompts": ["go"],
        "model": "gpt-5.2", "unsaved": {file: "unsaved\n"}});
    let seen = sdk_editor(&simulator, home.path(), &plan);
    assert_eq!(seen["answers"], json!(["end_turn"]), "{seen}");
    assert_eq!(
        seen["permissions"],
        json!(["Edit a.txt", "cat a.txt; exit 3"]),
        "{seen}"
    );
    assert_eq!(std::fs::read_to_string(file).unwrap(), "new\n");
    let plan = json!({"cwd": cwd, "capabilities": {}, "prompts": ["more"],
        "sessionId": seen["sessionId"]});
    let seen = sdk_editor(&simulator, home.path(), &plan);
    assert_eq!(seen["answers"], json!(["end_turn"]), "{seen}");
    let replayed = seen["replayed"].as_array().unwrap();
    assert_eq!(replayed[0]["content"]["text"], "go");
    assert!(replayed.len() > 4, "{replayed:?}");
    let listed = &seen["listed"][0];
    assert_eq!(listed["sessionId"], seen["sessionId"], "{listed}");
    let plan = json!({"cwd": cwd, "capabilities": {}, "prompts": ["and more"], "resume": true,
        "mode": "plan", "delete": true, "sessionId": seen["sessionId"]});
    let seen = sdk_editor(&simulator, home.path(), &plan);
    assert_eq!(seen["answers"], json!(["end_turn"]), "{seen}");
    assert_eq!(seen["replayed"], json!([]), "{seen}");
    assert_eq!(seen["listed"], json!([]), "{seen}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed", "completed"]);
    let requests = recording.client("runRequest");
    let request = |n: usize| &requests[n]["runRequest"];
    for n in [1, 2] {
        assert_eq!(request(0)["conversationId"], request(n)["conversationId"]);
        assert_eq!(request(n)["requestedModel"]["modelId"], "gpt-5.2");
    }
}
