//! Tools of OpenAI clients: one Cursor run over several requests, never shared between clients.

use serde_json::{Value as Json, json};

use test_support::gateway::{ChatClient, GatewayProcess, function};
use test_support::in_process::opened;
use test_support::scenario::{END, Steps, calls, playing, script, text};
use test_support::simulator::{Recording, Transport};

/// The text results of a run's calls, as the server received them.
fn results(recording: &Recording, run: u64) -> Vec<String> {
    let frames = recording.frames(run, "client");
    let results = frames
        .iter()
        .map(|frame| &frame["json"]["execClientMessage"]["mcpResult"])
        .filter(|result| !result.is_null());
    results
        .map(|result| result["success"]["content"][0]["text"]["text"].clone())
        .map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn a_call_ends_the_answer_and_its_result_resumes_the_run() {
    let steps = Steps::new()
        .text("Let me look. ")
        .then(calls("look", r#"{ q = "it" }"#, "", &text("42")))
        .text("It says 42.")
        .then(END)
        .build();
    for stream in [true, false] {
        let simulator = playing(Transport::H2c, &steps);
        let gateway = GatewayProcess::start(&simulator, &[]);
        let mut chat = gateway.chat();
        chat.stream = stream;
        chat.tools = vec![function("look", &["q"])];
        let reply = chat.prompt("go").await;
        assert_eq!(
            (reply.finish.as_str(), reply.text.as_str()),
            ("tool_calls", "Let me look. ")
        );
        let [call] = &reply.calls[..] else {
            panic!("{reply:?}");
        };
        let called = json!({"name": "look", "arguments": r#"{"q":"it"}"#});
        assert_eq!(
            (&call["type"], &call["function"]),
            (&json!("function"), &called)
        );
        assert!(
            reply.usage["total_tokens"].as_u64().unwrap() > 0,
            "{reply:?}"
        );
        chat.result(call, "42");
        let reply = chat.turn().await;
        assert_eq!(
            (reply.finish.as_str(), reply.text.as_str()),
            ("stop", "It says 42.")
        );
        let recording = simulator.recording().await;
        recording.assert_played(&["completed"]);
        assert_eq!(recording.client("runRequest").len(), 1, "one run");
    }
}

#[tokio::test]
async fn three_calls_side_by_side() {
    let steps = Steps::new()
        .then(calls("a", "{}", r#"open = true, name = "a","#, &text("A")))
        .then(calls("b", "{}", r#"open = true, name = "b","#, &text("B")))
        .then(calls("c", "{}", r#"open = true, name = "c","#, &text("C")))
        .wait_for(&["a", "b", "c"])
        .text("done")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.tools = ["a", "b", "c"].map(|name| function(name, &[])).into();
    let mut reply = chat.prompt("go").await;
    let mut called = Vec::new();
    // Calls that did not arrive in time are offered in the next answer; none is lost.
    while reply.finish == "tool_calls" {
        for call in reply.calls.iter().rev() {
            let name = call["function"]["name"].as_str().unwrap();
            chat.result(call, &name.to_uppercase());
        }
        called.extend(reply.calls.clone());
        reply = chat.turn().await;
    }
    assert_eq!(
        (reply.finish.as_str(), reply.text.as_str()),
        ("stop", "done")
    );
    let names: Vec<&Json> = called
        .iter()
        .map(|call| &call["function"]["name"])
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    let recording = simulator.recording().await;
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1);
}

#[tokio::test]
async fn requests_runs_and_open_turns_are_metrics() {
    let steps = Steps::new()
        .then(calls("look", "{}", "", &text("42")))
        .text("It says 42.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.tools = vec![function("look", &["q"])];
    let has = async |chat: &ChatClient, lines: &[&str]| {
        let (_, metrics) = chat.get("/metrics").await;
        for line in lines {
            let is_there = metrics.lines().any(|other| other == *line);
            assert!(is_there, "{line} is missing:\n{metrics}");
        }
    };
    let reply = chat.prompt("go").await;
    has(
        &chat,
        &[
            "cursor_gateway_turns_parked 1",
            "# TYPE cursor_gateway_turns_active gauge",
        ],
    )
    .await;
    chat.result(&reply.calls[0], "42");
    assert_eq!(chat.turn().await.text, "It says 42.");
    assert_eq!(chat.get("/v1/unknown").await.0, 404);
    has(
        &chat,
        &[
            r#"cursor_gateway_requests{path="/v1/chat/completions",status="200"} 2"#,
            r#"cursor_gateway_requests{path="other",status="404"} 1"#,
            r#"cursor_provider_runs_ended{outcome="finished"} 1"#,
            "# TYPE cursor_gateway_turns_parked gauge",
            "cursor_gateway_turns_parked 0",
        ],
    )
    .await;
}

/// Two clients with the same prompt, first message and tools have separate runs, and each result
/// reaches the run that asked for it.
#[tokio::test]
async fn two_clients_with_equal_messages_share_nothing() {
    let steps = Steps::new()
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .text("Done.")
        .then(END)
        .build();
    let next = Steps::new().text("On.").then(END).build();
    let simulator = script(&[&steps, &next]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut clients = [gateway.chat(), gateway.chat()];
    let mut asked = Vec::new();
    for chat in &mut clients {
        chat.tools = vec![function("look", &["q"])];
        asked.push(chat.prompt("go").await);
    }
    // The second client returns its result first.
    for (n, words) in [(1, "for the second"), (0, "for the first")] {
        clients[n].result(&asked[n].calls[0], words);
        assert_eq!(clients[n].turn().await.text, "Done.");
    }
    let recording = simulator.recording().await;
    recording.assert_played(&["completed", "completed"]);
    let mut received = [results(&recording, 1), results(&recording, 2)];
    received.sort();
    assert_eq!(received, [["for the first"], ["for the second"]]);
    // Call ids make these histories differ, so each client continues its own conversation.
    for chat in &mut clients {
        assert_eq!(chat.prompt("and on").await.text, "On.");
    }
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(requests.len(), 4);
    assert_eq!((id(0), id(1)), (id(2), id(3)));
    assert_ne!(id(0), id(1));
}

/// Without calls, complete histories can be identical: then each request starts a new conversation
/// from its history.
#[tokio::test]
async fn indistinguishable_histories_are_sent_again() {
    let steps = Steps::new().text("The same.").then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut clients = [gateway.chat(), gateway.chat()];
    for chat in &mut clients {
        chat.prompt("go").await;
    }
    for chat in &mut clients {
        assert_eq!(chat.prompt("and on").await.text, "The same.");
    }
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    let ids: std::collections::BTreeSet<String> = requests
        .iter()
        .map(|request| request["runRequest"]["conversationId"].to_string())
        .collect();
    assert_eq!((requests.len(), ids.len()), (4, 4));
    let roots = &requests[2]["runRequest"]["conversationState"]["rootPromptMessagesJson"];
    assert_eq!(
        roots.as_array().unwrap().len(),
        2,
        "the earlier text is sent"
    );
}

/// A client may ask for a title under its session's name while the session waits for a tool.
#[tokio::test]
async fn a_question_beside_a_session_does_not_change_its_run() {
    let steps = Steps::new()
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = script(&[&steps]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.session = Some("s");
    chat.tools = vec![function("look", &["q"])];
    let reply = chat.prompt("go").await;
    let mut title = gateway.chat();
    title.session = Some("s");
    title.messages[0] = json!({"role": "system", "content": "Give it a title."});
    title.tools = vec![function("look", &["q"])];
    title.prompt("go").await;
    chat.result(&reply.calls[0], "42");
    assert_eq!(chat.turn().await.text, "Done.");
    let recording = simulator.recording().await;
    assert_eq!(recording.client("runRequest").len(), 2, "one each");
    assert_eq!(results(&recording, 1), ["42"]);
}

/// A user message instead of a tool result continues the conversation that waits for the result.
#[tokio::test]
async fn a_message_instead_of_a_result_belongs_to_the_same_conversation() {
    let first = Steps::new()
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .text("Stopped.")
        .then(END)
        .build();
    let second = Steps::new().text("On.").then(END).build();
    let simulator = script(&[&first, &second]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    chat.tools = vec![function("look", &["asked"])];
    assert_eq!(chat.prompt("go").await.finish, "tool_calls");
    let reply = chat.prompt("never mind").await;
    assert_eq!((reply.finish.as_str(), reply.error), ("stop", Json::Null));
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    let id = |request: &Json| request["runRequest"]["conversationId"].clone();
    assert!(
        requests
            .iter()
            .all(|request| id(request) == id(requests[0]))
    );
    assert!(
        recording.0.to_string().contains("never mind"),
        "it was sent"
    );
}

#[tokio::test]
async fn a_named_session_continues_on_another_gateway() {
    let first = Steps::new().text("One.").then(END).build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Two.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let folder = tempfile::tempdir().unwrap();
    let state = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    let mut gateway = GatewayProcess::start(&simulator, &state);
    let mut chat = gateway.chat();
    chat.session = Some("s");
    chat.prompt("go").await;
    assert!(gateway.end().success());
    let gateway = GatewayProcess::start(&simulator, &state);
    let mut again = gateway.chat();
    again.session = Some("s");
    again.messages = chat.messages;
    assert_eq!(again.prompt("and on").await.text, "Two.");
    simulator
        .recording()
        .await
        .assert_played(&["completed", "completed"]);
}

/// Exec requests of Cursor's native tools are executed by the client's tools if it has suitable
/// ones. The gateway executes nothing itself, whatever the settings are.
#[tokio::test]
async fn cursors_own_tools_are_executed_by_the_client_or_refused() {
    let steps = Steps::new()
        .step(json!({
            "exec": {"writeArgs": {"path": "made.txt", "fileText": "x", "toolCallId": "w"}},
            "expect": {"writeResult": {"rejected": {}}},
        }))
        .step(json!({
            "exec": {"shellArgs": {"command": "touch made.txt", "toolCallId": "s"}},
            "expect": {"shellResult": {"rejected": {}}},
        }))
        .step(json!({
            "exec": {"readArgs": {"path": "/w/a.txt", "toolCallId": "r"}},
            "expect": {"readResult": {"success": {"content": "one\n"}}},
        }))
        .text("Read.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(
        &simulator,
        &[("PI_CURSOR_NATIVE_TOOLS", "local,shell=local")],
    );
    let mut chat = gateway.chat();
    // `read` matches Cursor's tool; `bash` has the name but not the arguments.
    chat.tools = vec![function("read", &["path"]), function("bash", &["script"])];
    let reply = chat.prompt("go").await;
    assert_eq!(reply.finish, "tool_calls", "{reply:?}");
    let called = json!({"name": "read", "arguments": r#"{"path":"/w/a.txt"}"#});
    assert_eq!(reply.calls[0]["function"], called);
    chat.result(&reply.calls[0], "one\n");
    assert_eq!(chat.turn().await.text, "Read.");
    let recording = simulator.recording().await;
    recording.assert_played(&["completed"]);
    let offered = &recording.client("runRequest")[0]["runRequest"]["mcpTools"]["mcpTools"];
    let names: Vec<&Json> = offered
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["pi__read", "pi__bash"], "none is lost");
    assert!(!gateway.folder().join("made.txt").exists());
}
