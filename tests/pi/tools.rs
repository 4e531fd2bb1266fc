//! pi's tools inside Cursor's run.

use serde_json::{Value as Json, json};

use crate::tool_calls::{one_run, session};
use test_support::pi_env::{PiOutput, PiVersion, conversation, user_text, written};
use test_support::pi_rpc::{PiRpc, text};
use test_support::pi_tools::{END, call, pi, pi_env, says, text_of};
use test_support::scenario::{Steps, inline};

crate::on_every_pi!(
    calls_of_every_kind_are_answered_in_one_run,
    steering_reaches_the_same_run_and_a_follow_up_the_next,
    aborting_a_tool_keeps_the_conversation,
    without_tools_none_is_offered,
    a_question_reaches_the_user,
    without_a_screen_the_question_is_refused,
    the_bridge_logs_to_stderr_only_if_enabled,
);

fn calls_of_every_kind_are_answered_in_one_run(version: PiVersion) {
    let open = |name: &str| call("echo", &format!(r#"open = true, name = "{name}""#));
    let failed = |text: &str| {
        let content = json!([{"text": {"text": {"$contains": text}}}]);
        let result = json!({"mcpResult": {"success": {"isError": true, "content": content}}});
        format!("expect = {}", inline(&result))
    };
    let steps = [
        &open("a"),
        &open("b"),
        &open("c"),
        r#"{ await = ["a", "b", "c"] }"#,
        // Cursor's own report of a call that pi has already shown.
        r#"{ update = { toolCallStarted = { callId = "call-echo", toolCall = { mcpToolCall = { args = { name = "pi__echo", toolName = "pi__echo", providerIdentifier = "pi" } } } } } }"#,
        r#"{ update = { toolCallCompleted = { callId = "call-echo", toolCall = { mcpToolCall = { args = { name = "pi__echo", toolName = "pi__echo", providerIdentifier = "pi" }, result = { success = { content = [ { text = { text = "echo echo" } } ] } } } } } } }"#,
        &call("fail", &failed("it broke")),
        &call("draw", r#"expect = { mcpResult = { success = { content = [ { text = { text = "a dot" } }, { image = { mimeType = "image/png", data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" } } ] } } }"#),
        &call("forbidden", &failed("not on a Sunday")),
        &call("nowhere", r#"expect = { mcpResult = { toolNotFound = { name = "pi__nowhere" } } }"#),
        r#"{ text = "All done." }"#,
        END,
    ]
    .join(", ");
    let (pi_env, tools) = pi_env(version, &[steps]);
    let mut pi = pi(&pi_env, &tools, &[]);
    pi.send(&json!({"type": "prompt", "message": "everything, please"}));
    let mut names = Vec::new();
    let last = loop {
        let answer = pi.answer();
        let blocks = answer["content"].as_array().unwrap();
        let calls = blocks.iter().filter(|block| block["type"] == "toolCall");
        names.extend(calls.map(|call| call["name"].as_str().unwrap().to_owned()));
        if answer["stopReason"] != "toolUse" {
            break answer;
        }
    };
    assert_eq!(text(&last), "All done.", "{last}");
    assert_eq!(names, ["echo", "echo", "echo", "fail", "draw", "forbidden"]);
    pi.settle();
    pi.quit();
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"]);
    one_run(&recording, 7);
    let offered = &recording.client("runRequest")[0]["runRequest"]["mcpTools"];
    let offered = offered["mcpTools"].as_array().unwrap();
    let echo = offered.iter().find(|tool| tool["name"] == "pi__echo");
    let kinds = &echo.unwrap()["inputSchema"]["properties"]["text"];
    assert_eq!(kinds, &json!({"type": ["string", "number"]}), "no oneOf");
    let entries = written(&pi_env);
    let messages = entries.iter().map(|entry| &entry["message"]);
    let results: Vec<(&str, bool)> = messages
        .filter(|message| message["role"] == "toolResult")
        .map(|message| {
            let failed = message["isError"].as_bool().unwrap_or_default();
            (message["toolName"].as_str().unwrap(), failed)
        })
        .collect();
    let expected: Vec<(&str, bool)> = names
        .iter()
        .map(|name| (name.as_str(), name == "fail" || name == "forbidden"))
        .collect();
    assert_eq!(results, expected, "real names, each once");
    assert!(
        entries
            .iter()
            .all(|entry| !entry.to_string().contains("\"name\":\"pi__"))
    );
}

/// Messages are injected while text streams, while a tool runs, and while text streams after its
/// result.
fn steering_reaches_the_same_run_and_a_follow_up_the_next(version: PiVersion) {
    let injected_text = |text: &str| {
        Steps::new()
            .step(json!({
                "expect_client": {
                    "conversationAction": {
                        "injectContextAction": {"userContext": {"userMessage": {"text": text.to_string()}}},
                    },
                },
                "capture": {"I": "/conversationAction/injectContextAction/injectionId"},
            }))
            .step(json!({
                "update": {
                    "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
                },
            }))
            .build()
    };
    // The model continues only when a file exists.
    let until = |file: &str| {
        Steps::new()
            .step(json!({
                "exec": {
                    "shellArgs": {
                        "command": format!("until [ -e ~/{file} ]; do sleep 0.01; done"),
                        "workingDirectory": "$WS",
                        "timeout": 40000,
                        "toolCallId": format!("call-{file}"),
                        "skipApproval": true,
                        "parsingResult": {},
                    },
                },
            }))
            .build()
    };
    let first = [
        r#"{ text = "Thinking." }"#,
        &until("one"),
        &call("echo", &says("\"echo echo\"")),
        &injected_text("one"),
        &call("wait", &says("\"waited\"")),
        &injected_text("two"),
        r#"{ text = "Hurrying." }"#,
        &until("three"),
        &call("echo", &says("\"echo echo\"")),
        &injected_text("three"),
        r#"{ text = "All heard." }"#,
        END,
    ]
    .join(", ");
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("And then: $USER_TEXT")
        .then(END)
        .build();
    let (pi_env, tools) = pi_env(version, &[first, second]);
    // The command only delays the model; executed locally, it does not end a turn of pi.
    let pi_env = pi_env.with("PI_CURSOR_NATIVE_TOOLS", "local");
    let mut pi = pi(&pi_env, &tools, &[]);
    let touch = |file: &str| std::fs::write(pi_env.home.path().join(file), "").unwrap();
    let streams = |pi: &mut PiRpc, text: &str| {
        pi.event(text, |event| {
            event["type"] == "message_update" && event.to_string().contains(text)
        });
    };
    pi.send(&json!({"type": "prompt", "message": "go"}));
    streams(&mut pi, "Thinking.");
    pi.ask(json!({"type": "steer", "message": "one"}));
    touch("one");
    pi.event("the tool", |event| {
        event["type"] == "tool_execution_start" && event["toolName"] == "wait"
    });
    pi.ask(json!({"type": "steer", "message": "two"}));
    pi.ask(json!({"type": "follow_up", "message": "rest"}));
    touch("done");
    streams(&mut pi, "Hurrying.");
    pi.ask(json!({"type": "steer", "message": "three"}));
    touch("three");
    let mut last = |text: &str| {
        pi.event(text, |event| {
            event["type"] == "message_end" && text_of(event) == text
        });
    };
    last("All heard.");
    last("And then: rest");
    pi.settle();
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_eq!(user_text(requests[1]), "rest");
    let injected = recording.client("conversationAction.injectContextAction");
    assert_eq!(injected.len(), 3, "each once");
    let answers = recording.client("execClientMessage.mcpResult");
    assert_eq!(answers.len(), 3, "one result a call");
    pi.quit();
    let mut words = session(&pi_env);
    words.retain(|message| message.starts_with("user: "));
    let expected = [
        "user: go",
        "user: one",
        "user: two",
        "user: three",
        "user: rest",
    ];
    assert_eq!(words, expected);
}

fn aborting_a_tool_keeps_the_conversation(version: PiVersion) {
    let first = Steps::new()
        .checkpoint()
        .then(call("wait", r#"open = true, name = "w""#))
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Still here.")
        .then(END)
        .build();
    let (pi_env, tools) = pi_env(version, &[first, second]);
    let mut pi = pi(&pi_env, &tools, &[]);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    pi.event("the tool", |event| event["type"] == "tool_execution_start");
    pi.send(&json!({"type": "abort"}));
    let recording = pi_env.recorded("the run is cancelled", |recording| {
        recording.verdicts().len() == 1
    });
    assert_eq!(recording.client("conversationAction.cancelAction").len(), 1);
    pi.settle();
    pi.send(&json!({"type": "prompt", "message": "again"}));
    pi.event("the answer", |event| {
        event["type"] == "message_end" && text_of(event) == "Still here."
    });
    let recording = pi_env.recorded("both runs", |recording| recording.verdicts().len() == 2);
    recording.assert_played(&["cancelled by client", "completed"]);
}

/// Neither pi's tools nor native ones.
fn without_tools_none_is_offered(version: PiVersion) {
    let read = r#"{ exec = { readArgs = { path = "$WS/note", toolCallId = "r" } }, expect = { readResult = { rejected = { reason = { "$contains" = "switched off" } } } } }"#;
    let missing = call(
        "echo",
        r#"expect = { mcpResult = { toolNotFound = { name = "pi__echo" } } }"#,
    );
    let steps = Steps::new()
        .then(read)
        .then(missing)
        .text("Fine.")
        .then(END)
        .build();
    let (pi_env, tools) = pi_env(version, &[steps]);
    std::fs::write(pi_env.workspace.join("note"), "mine").unwrap();
    let mut pi = pi(&pi_env, &tools, &["--no-tools"]);
    assert_eq!(text(&pi.prompt("hi")), "Fine.");
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"]);
    let offered = &recording.client("runRequest")[0]["runRequest"]["mcpTools"];
    assert!(!offered.to_string().contains("pi__"), "{offered}");
}

/// As a tool that the model calls, with two questions, and as Cursor's own kind of question.
fn a_question_reaches_the_user(version: PiVersion) {
    let questions = r#"questions = [ { id = "fruit", question = "Which?", options = [ "Apples", { label = "Pears", value = "p", description = "green" } ] }, { id = "why", prompt = "Why?" } ]"#;
    let steps = Steps::new()
        .then(
            call(
                "cursor_ask_question",
                &says(r#""User answered: \n- fruit: Pears: green\n- why: juicy""#),
            )
            .replace(
                "text = \"cursor_ask_question\" } }",
                &format!("{questions} }} }}"),
            ),
        )
        .step(json!({
            "query": {
                "askQuestionInteractionQuery": {
                    "args": {
                        "questions": [{
                            "id": "q1",
                            "prompt": "Sure?",
                            "options": [{"id": "y", "label": "Yes"}, {"id": "n", "label": "No"}],
                        }],
                    },
                    "toolCallId": "c",
                },
            },
            "expect": {
                "askQuestionInteractionResponse": {
                    "result": {
                        "success": {"answers": [{"questionId": "q1", "selectedOptionIds": ["n"]}]},
                    },
                },
            },
        }))
        .then(
            call(
                "cursor_ask_question",
                &says("\"User cancelled the question.\""),
            )
            .replace(
                "text = \"cursor_ask_question\" } }",
                "question = \"More?\" } }",
            ),
        )
        .text("Thanks.")
        .then(END)
        .build();
    let (pi_env, tools) = pi_env(version, &[steps]);
    let mut pi = pi(&pi_env, &tools, &[]);
    pi.send(&json!({"type": "prompt", "message": "go"}));
    let asked = |pi: &mut PiRpc, method: &str| {
        pi.event("a question", |event| {
            event["type"] == "extension_ui_request" && event["method"] == method
        })
    };
    let answer = |request: &Json, value: Json| {
        let mut answer = json!({"type": "extension_ui_response", "id": request["id"]});
        match value {
            Json::Null => answer["cancelled"] = json!(true),
            value => answer["value"] = value,
        }
        answer
    };
    let request = asked(&mut pi, "select");
    assert_eq!(request["title"], "Which?");
    assert_eq!(
        request["options"],
        json!(["Apples", "Pears: green", "Type a custom answer"])
    );
    pi.send(&answer(&request, json!("Pears: green")));
    let request = asked(&mut pi, "input");
    assert_eq!(request["title"], "Why?");
    pi.send(&answer(&request, json!("juicy")));
    let request = asked(&mut pi, "select");
    assert_eq!(request["title"], "Sure?");
    pi.send(&answer(&request, json!("No")));
    let request = asked(&mut pi, "input");
    assert_eq!(request["title"], "More?");
    pi.send(&answer(&request, Json::Null));
    pi.event("the answer", |event| {
        event["type"] == "message_end" && text_of(event) == "Thanks."
    });
    pi_env.simulator.recorded().assert_played(&["completed"]);
}

fn without_a_screen_the_question_is_refused(version: PiVersion) {
    let refused = r#"expect = { mcpResult = { success = { isError = true, content = [ { text = { text = { "$contains" = "UI is unavailable" } } } ] } } }"#;
    let steps = Steps::new()
        .then(call("cursor_ask_question", refused).replace(
            "text = \"cursor_ask_question\" } }",
            "question = \"Sure?\" } }",
        ))
        .text("I assume so.")
        .then(END)
        .build();
    let (pi_env, _) = pi_env(version, &[steps]);
    let ran = pi_env.print("go");
    assert_eq!(ran.stdout, "I assume so.\n", "{ran:?}");
    pi_env.simulator.recorded().assert_played(&["completed"]);
}

fn the_bridge_logs_to_stderr_only_if_enabled(version: PiVersion) {
    let steps = Steps::new()
        .then(call("echo", &says("\"echo echo\"")))
        .text("Fine.")
        .then(END)
        .build();
    let (pi_env, tools) = pi_env(version, &[steps]);
    let print = |debug: &str| {
        let more = [
            "--model",
            "cursor/composer-2",
            "-e",
            tools.to_str().unwrap(),
            "-p",
            "go",
        ];
        let mut command = pi_env.command(&more);
        command.env("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", debug);
        PiOutput::from(command.output().unwrap())
    };
    let ran = print("0");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("Fine.\n", ""));
    let ran = print("1");
    assert_eq!(ran.stdout, "Fine.\n");
    let events: Vec<Json> = ran
        .stderr
        .lines()
        .map(|line| {
            line.strip_prefix("[pi-cursor-sdk:bridge] ")
                .unwrap_or_else(|| panic!("{ran:?}"))
        })
        .map(|json| serde_json::from_str(json).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    let expected = [
        "run_created",
        "tools_exposed",
        "request_queued",
        "request_resolved",
    ];
    assert_eq!(names[..4], expected);
    assert_eq!(events[3]["piToolName"], "echo");
}
