//! Host tools in Cursor's run: one run over several host turns.

use serde_json::{Value as Json, json};

use test_support::rpc_session::{CollectedTurn, OfferedCall, RpcSession, tool};
use test_support::scenario::{END, Steps, calls, inline, playing, script, text};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{TRANSPORTS, Transport};
use test_support::wait::until;

fn one_call(session: &mut RpcSession) -> OfferedCall {
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    assert_eq!(outcome.calls.len(), 1, "{outcome:?}");
    outcome.calls[0].clone()
}

#[test]
fn one_call_resumes_the_same_run() {
    for transport in TRANSPORTS {
        let steps = Steps::new()
            .context()
            .text("Let me look. ")
            .then(calls("look", r#"{ q = "it" }"#, "", &text("42")))
            .text("It says 42.")
            .then(END)
            .build();
        let simulator = playing(transport, &steps);
        let mut session = RpcSession::new(&simulator, "s", &[]);
        session.tools = vec![tool("look"), tool("read")];
        let call = one_call(&mut session);
        assert_eq!(
            (call.name.as_str(), &call.arguments),
            ("look", &json!({"q": "it"}))
        );
        session.result(&call, json!([{"type": "text", "text": "42"}]));
        let outcome = session.turn();
        assert_eq!(
            (outcome.stop.as_str(), outcome.text.as_str()),
            ("stop", "It says 42.")
        );
        let recording = simulator.recorded();
        recording.assert_played(&["completed"]);
        let requests = recording.client("runRequest");
        assert_eq!(requests.len(), 1, "one run");
        let offered = &requests[0]["runRequest"]["mcpTools"]["mcpTools"];
        assert_eq!(
            offered.as_array().unwrap().len(),
            1,
            "what Cursor has of its own is hidden: {offered}"
        );
        assert_eq!(offered[0]["name"], "pi__look");
        let context = &recording.client("execClientMessage.requestContextResult")[0];
        let context =
            &context["execClientMessage"]["requestContextResult"]["success"]["requestContext"];
        assert_eq!(context["tools"][0]["name"], "pi__look", "offered twice");
        let answers = recording.client("execClientMessage.mcpResult");
        assert_eq!(answers.len(), 1, "one result");
    }
}

#[test]
fn parallel_calls_are_offered_together_and_answered_in_any_order() {
    let steps = Steps::new()
        .then(calls("a", "{}", r#"open = true, name = "a","#, &text("A")))
        .then(calls("b", "{}", r#"open = true, name = "b","#, &text("B")))
        .then(calls("c", "{}", r#"open = true, name = "c","#, &text("C")))
        .wait_for(&["a", "b", "c"])
        .text("done")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("a"), tool("b"), tool("c")];
    let mut outcome = session.prompt("go");
    let mut offered: Vec<OfferedCall> = Vec::new();
    // Calls that did not arrive in time are offered in the next turn; none is lost.
    while outcome.stop == "toolUse" {
        offered.extend(outcome.calls.clone());
        for call in outcome.calls.iter().rev() {
            session.result(
                call,
                json!([{"type": "text", "text": call.name.to_uppercase()}]),
            );
        }
        outcome = session.turn();
    }
    let names: Vec<&str> = offered.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "done")
    );
    simulator.recorded().assert_played(&["completed"]);
}

/// Tools are offered for small talk, too, and an error is not kept as text of the model: defects 20
/// and 16 of other implementations in `docs/recovery-tests.md`.
#[test]
fn short_prompts_get_tools_and_an_error_is_not_model_text() {
    let fails =
        r#"{ text = "Half. " }, { end = { code = "permission_denied", message = "no more" } }"#;
    let steps = Steps::new().text("Hi.").then(END).build();
    let simulator = script(&[&steps, &steps, &steps, fails]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    for words in ["hi", "thanks!", "ok"] {
        assert_eq!(session.prompt(words).text, "Hi.");
    }
    let outcome = session.prompt("bye");
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("error", "Half. ")
    );
    assert!(outcome.error.contains("no more"), "{outcome:?}");
    // A conversation that the server refused is not reused, because it may be the cause.
    assert_eq!(session.prompt("hello?").text, "Hi.");
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    for request in &requests {
        let offered = &request["runRequest"]["mcpTools"]["mcpTools"];
        assert_eq!(offered[0]["name"], "pi__look");
    }
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(requests.len(), 5);
    assert!(id(0) == id(3) && id(3) != id(4));
}

#[test]
fn results_of_every_kind_arrive_as_they_are() {
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let steps = Steps::new()
        .then(calls(
            "pic",
            "{}",
            "",
            &inline(&json!({
                "success": {
                    "content": [
                        {"text": {"text": "a dot"}},
                        {"image": {"mimeType": "image/png", "data": PNG.to_string()}},
                    ],
                },
            }))
        ))
        .then(calls(
            "bad",
            "{}",
            "",
            r#"{ success = { isError = true, content = [ { text = { text = "no such thing" } } ] } }"#
        ))
        .then(calls(
            "count",
            "{}",
            "",
            r#"{ success = { structuredContent = { n = 2, of = [ "a", "b" ] } } }"#
        ))
        .then(calls(
            "nobody",
            "{}",
            "",
            r#"{ toolNotFound = { name = "pi__nobody", availableTools = [ "pi__pic", "pi__bad", "pi__count" ] } }"#
        ))
        .text("seen")
        .then(END)
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("pic"), tool("bad"), tool("count")];
    let call = one_call(&mut session);
    session.result(
        &call,
        json!([
            {"type": "text", "text": "a dot"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
        ]),
    );
    let outcome = session.turn();
    assert_eq!(outcome.calls[0].name, "bad");
    session.result(
        &outcome.calls[0],
        json!([{"type": "text", "text": "no such thing"}]),
    );
    session.messages.last_mut().unwrap()["isError"] = json!(true);
    let outcome = session.turn();
    session.result(&outcome.calls[0], json!("2"));
    session.messages.last_mut().unwrap()["structuredContent"] = json!({"n": 2, "of": ["a", "b"]});
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "seen"),
        "{outcome:?}"
    );
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn missing_results_are_requested_again() {
    let steps = Steps::new()
        .then(calls("a", "{}", r#"open = true, name = "a","#, &text("A")))
        .then(calls("b", "{}", r#"open = true, name = "b","#, &text("B")))
        .wait_for(&["a", "b"])
        .text("done")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("a"), tool("b")];
    let mut outcome = session.prompt("go");
    let first = outcome.calls[0].clone();
    if outcome.calls.len() == 1 {
        // The second call had not arrived yet: it is offered when the first is answered.
        session.result(&first, json!("A"));
        outcome = session.turn();
    } else {
        let second = outcome.calls[1].clone();
        session.result(&first, json!("A"));
        outcome = session.turn();
        assert_eq!(outcome.calls, [second]);
    }
    assert_eq!(outcome.stop, "toolUse");
    session.result(&outcome.calls[0], json!("B"));
    assert_eq!(session.turn().text, "done");
    simulator.recorded().assert_played(&["completed"]);
}

/// Steering: a user message that follows the results reaches the same run.
#[test]
fn a_message_after_results_reaches_the_same_run() {
    let steps = Steps::new()
        .then(calls("look", "{}", "", &text("42")))
        .step(json!({
            "expect_client": {
                "conversationAction": {"injectContextAction": {"userContext": {"userMessage": {"text": "hurry"}}}},
            },
            "capture": {"I": "/conversationAction/injectContextAction/injectionId"},
        }))
        .step(json!({
            "update": {"contextInjectionState": {"injectionId": "$I", "state": {"queued": {}}}},
        }))
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .text("hurrying")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let call = one_call(&mut session);
    session.result(&call, json!("42"));
    session.user("hurry");
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "hurrying"),
        "{outcome:?}"
    );
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1);
}

/// Images of injected messages are delivered: while the model streams, and after results.
#[test]
fn images_are_injected_with_their_message() {
    let expect_injection = |text: &str| {
        Steps::new()
            .step(json!({
                "expect_client": {
                    "conversationAction": {
                        "injectContextAction": {
                            "userContext": {
                                "userMessage": {
                                    "text": text.to_string(),
                                    "selectedContext": {"selectedImages": [{"mimeType": "image/png"}]},
                                },
                            },
                        },
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
    let steps = Steps::new()
        .text("Looking.")
        .then(expect_injection("like this"))
        .then(calls("look", "{}", "", &text("42")))
        .then(expect_injection("or that\n[image attached]"))
        .text("Seen.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    session.user("go");
    let turn = session.begin();
    let mut partial = CollectedTurn::default();
    while partial.text.is_empty() {
        partial.receive(&session.host.receive());
    }
    let mut inject = |data: &str| {
        let image = json!({"data": data, "mimeType": "image/png"});
        let params = json!({"turnId": turn, "text": "like this", "images": [image]});
        session.host.call("turn/inject", params)
    };
    let refused = inject("!!");
    let problem = refused["error"]["message"].as_str().unwrap();
    assert!(problem.contains("image 1"), "{refused}");
    assert_eq!(inject(DOT)["result"]["taken"], true);
    let outcome = session.finish(&turn);
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    session.result(&outcome.calls[0], json!("42"));
    session.messages.push(json!({"role": "user", "timestamp": 9, "content": [
        {"type": "text", "text": "or that"}, {"type": "image", "data": DOT, "mimeType": "image/png"}]}));
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "Seen."),
        "{outcome:?}"
    );
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1);
}

/// An image of one pixel.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn a_message_the_run_rejects_is_sent_in_the_next() {
    for report in [
        json!({"queuedForNextTurn": {}}),
        json!({"rejected": {"reason": "no"}}),
        json!({"cancelled": {}}),
    ] {
        let action = "/conversationAction/injectContextAction";
        let first = Steps::new()
            .then(calls("look", "{}", "", &text("42")))
            .checkpoint()
            .step(json!({
                "expect_client": {"conversationAction": {"injectContextAction": {}}},
                "capture": {"I": format!("{action}/injectionId")},
            }))
            .step(json!({
                "update": {"contextInjectionState": {"injectionId": "$I", "state": report}},
            }))
            .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
            .checkpoint()
            .step(json!({"expect_cancel": true}))
            .build();
        let second = Steps::new()
            .expect_state("last checkpoint")
            .step(json!({
                "expect_request": {"action": {"userMessageAction": {"userMessage": {"text": {"$contains": "hurry"}}}}},
            }))
            .text("heard")
            .then(END)
            .build();
        let simulator = script(&[&first, &second]);
        let mut session = RpcSession::new(&simulator, "s", &[]);
        session.tools = vec![tool("look")];
        let call = one_call(&mut session);
        session.result(&call, json!("42"));
        session.user("hurry");
        let outcome = session.turn();
        assert_eq!(
            (outcome.stop.as_str(), outcome.text.as_str()),
            ("stop", "heard"),
            "{report}: {outcome:?}"
        );
    }
}

#[test]
fn a_message_instead_of_a_result_ends_the_call_and_is_delivered() {
    let steps = Steps::new()
        .then(calls(
            "slow",
            "{}",
            "",
            r#"{ success = { isError = true } }"#,
        ))
        .step(json!({
            "expect_client": {
                "conversationAction": {
                    "injectContextAction": {"userContext": {"userMessage": {"text": "stop that"}}},
                },
            },
            "capture": {"I": "/conversationAction/injectContextAction/injectionId"},
        }))
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .text("stopped")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("slow")];
    one_call(&mut session);
    let outcome = session.prompt("stop that");
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "stopped"),
        "{outcome:?}"
    );
    simulator.recorded().assert_played(&["completed"]);
}

/// The host cancels while its tools run, then continues the conversation.
#[test]
fn a_cancelled_pause_keeps_the_conversation() {
    let first = r#"{ checkpoint = "auto" }, { exec = { mcpArgs = { name = "pi__slow", providerIdentifier = "pi", toolName = "pi__slow", toolCallId = "c", args = {} } }, open = true, name = "slow" }, { expect_client = { conversationAction = { cancelAction = {} } } }, { checkpoint = "auto" }, { expect_cancel = true }"#;
    let second = Steps::new()
        .expect_state("last checkpoint")
        .step(json!({
            "expect_request": {"action": {"userMessageAction": {"userMessage": {"text": "again"}}}},
        }))
        .text("still here")
        .then(END)
        .build();
    let simulator = script(&[first, &second]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("slow")];
    session.user("go");
    let turn = session.begin();
    assert_eq!(session.finish(&turn).stop, "toolUse");
    let answer = session.host.call("turn/cancel", json!({"turnId": turn}));
    assert_eq!(answer["result"]["found"], true);
    let outcome = session.prompt("again");
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "still here"),
        "{outcome:?}"
    );
}

#[test]
fn a_host_that_executes_inline_answers_within_the_turn() {
    let steps = Steps::new()
        .text("Looking. ")
        .then(calls("look", r#"{ q = "it" }"#, "", &text("42")))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.host = SidecarProcess::start(&[
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
    ]);
    session.host.call(
        "initialize",
        json!({
            "protocolVersion": 1,
            "nativeTools": {"default": "local"},
            "host": {"name": "test"},
            "capabilities": {"tools": "inline"},
        }),
    );
    session.tools = vec![tool("look")];
    session.user("go");
    let turn = session.begin();
    let mut outcome = CollectedTurn::default();
    loop {
        let message = session.host.receive();
        if message["method"] == "tool/call" {
            assert_eq!(message["params"]["name"], "look");
            let answer = json!({"content": [{"type": "text", "text": "42"}]});
            session
                .host
                .send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}));
        } else if message["id"] == turn.as_str() {
            assert_eq!(message["result"]["stopReason"], "stop");
            break;
        } else {
            outcome.receive(&message);
        }
    }
    assert_eq!(
        (outcome.text.as_str(), outcome.calls.len()),
        ("Looking. Done.", 0)
    );
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn a_schema_cursor_would_refuse_is_simplified_and_reported() {
    let steps = Steps::new().text("ok").then(END).build();
    let simulator = playing(Transport::Http1, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    let mut odd = tool("odd");
    odd["parameters"]["properties"]["x"] =
        json!({"oneOf": [{"type": "string"}, {"type": "number"}]});
    session.tools = vec![odd];
    let outcome = session.prompt("go");
    assert_eq!(outcome.notices.len(), 1, "{outcome:?}");
    assert!(outcome.notices[0].contains("odd"));
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let schema: &Json = &requests[0]["runRequest"]["mcpTools"]["mcpTools"][0]["inputSchema"];
    assert_eq!(
        schema["properties"]["x"]["type"],
        json!(["string", "number"])
    );
}

#[test]
fn a_question_of_cursors_own_reaches_the_user() {
    let steps = |result: Json| {
        let options = json!([{"id": "a", "label": "Apples"}, {"id": "b", "label": "Pears"}]);
        let question = json!({"id": "q1", "prompt": "Which?", "options": options});
        let args = json!({"title": "T", "questions": [question]});
        Steps::new()
            .step(json!({
                "query": {"askQuestionInteractionQuery": {"args": args, "toolCallId": "c"}},
                "expect": {"askQuestionInteractionResponse": {"result": result}},
            }))
            .text("Pears it is.")
            .then(END)
            .build()
    };
    let answer = json!({"questionId": "q1", "selectedOptionIds": ["b"]});
    let answered = steps(json!({"success": {"answers": [answer]}}));
    let simulator = playing(Transport::H2c, &answered);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("cursor_ask_question")];
    let call = one_call(&mut session);
    assert_eq!(call.name, "cursor_ask_question");
    assert_eq!(call.arguments["questions"][0]["question"], "Which?");
    session.result(
        &call,
        json!([{"type": "text", "text": "User answered: Pears"}]),
    );
    session.messages.last_mut().unwrap()["details"] =
        json!({"answers": [{"id": "q1", "answer": "Pears"}]});
    assert_eq!(session.turn().text, "Pears it is.");
    simulator.recorded().assert_played(&["completed"]);
    // Without such a tool the question cannot be asked, and Cursor receives a rejection.
    let rejected = steps(json!({"rejected": {}}));
    let simulator = playing(Transport::H2c, &rejected);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    assert_eq!(session.prompt("go").text, "Pears it is.");
    simulator.recorded().assert_played(&["completed"]);
}

/// The user is not asked any number of questions at once: further ones are rejected.
#[test]
fn the_number_of_open_questions_is_bounded() {
    let options = json!([{"id": "a", "label": "Apples"}]);
    let question = json!({"id": "q1", "prompt": "Which?", "options": options});
    let args = json!({"title": "T", "questions": [question]});
    let query = |id: u32| json!({"id": id, "askQuestionInteractionQuery": {"args": args, "toolCallId": id.to_string()}});
    let mut steps = Steps::new();
    for id in 0..=64 {
        steps = steps.step(json!({"send": {"interactionQuery": query(1000 + id)}}));
    }
    let rejected = json!({"interactionResponse": {"id": 1064, "askQuestionInteractionResponse": {"result": {"rejected": {}}}}});
    let steps = steps
        .step(json!({"expect_client": rejected}))
        .stall()
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("cursor_ask_question")];
    assert_eq!(session.prompt("go").stop, "toolUse");
    let answered = || {
        let recording = simulator.recorded();
        let answers = recording
            .client("interactionResponse.askQuestionInteractionResponse")
            .into_iter();
        let ids = answers.map(|answer| answer["interactionResponse"]["id"].clone());
        Some(ids.collect::<Vec<Json>>()).filter(|ids| !ids.is_empty())
    };
    assert_eq!(until(answered), [json!(1064)]);
}
