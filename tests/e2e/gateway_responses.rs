//! OpenAI's responses: the real binary over real HTTP.

use serde_json::{Value as Json, json};

use test_support::api_client::{ApiClient, ApiReply};
use test_support::gateway::GatewayProcess;
use test_support::in_process::opened;
use test_support::scenario::{END, Steps, calls, playing, script, text};
use test_support::simulator::{Simulator, Transport};

const PATH: &str = "/v1/responses";

fn function(name: &str) -> Json {
    json!({"type": "function", "name": name, "description": "looks", "strict": false,
           "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}})
}

fn body(input: Json, stream: bool) -> Json {
    json!({"model": "composer-2", "instructions": "Be brief.", "input": input, "stream": stream,
           "tools": [function("look")], "tool_choice": "auto", "reasoning": {"effort": "low"},
           "include": ["reasoning.encrypted_content"]})
}

/// Returns the response object.
fn response(reply: &ApiReply) -> Json {
    assert_eq!(reply.status, 200, "{reply:?}");
    if reply.events.is_empty() {
        return reply.body.clone();
    }
    for (at, (_, event)) in reply.events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
    }
    reply.last()["response"].clone()
}

fn item<'r>(response: &'r Json, kind: &str) -> &'r Json {
    let mut items = response["output"].as_array().unwrap().iter();
    items
        .find(|item| item["type"] == kind)
        .unwrap_or_else(|| panic!("{response}"))
}

fn said(response: &Json) -> &Json {
    &item(response, "message")["content"][0]["text"]
}

fn output(call: &Json, text: &str) -> Json {
    json!({"type": "function_call_output", "call_id": call["call_id"], "output": text})
}

/// A client that sends its whole history each time, as Codex does.
#[tokio::test]
async fn a_whole_history_takes_one_run_however_many_requests() {
    let look = |n: usize| {
        calls("look", r#"{ q = "it" }"#, "", &text("42")).replace("call-look", &format!("fc-{n}"))
    };
    let steps = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .step(json!({"thinking_done": 10}))
        .text("Let me look. ")
        .then(look(1))
        .then(look(2))
        .then(look(3))
        .text("It says 42.")
        .then(END)
        .build();
    for stream in [true, false] {
        let simulator = playing(Transport::H2c, &steps);
        let gateway = GatewayProcess::start(&simulator, &[]);
        let client = ApiClient::new(&gateway);
        let mut input = vec![json!({"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "go"}]})];
        let ask = async |input: &[Json]| {
            let mut body = body(json!(input), stream);
            body["store"] = json!(false);
            body["prompt_cache_key"] = json!("window");
            response(&client.post(PATH, &body).await)
        };
        let mut answer = ask(&input).await;
        assert_eq!(item(&answer, "reasoning")["summary"][0]["text"], "Hm.");
        assert_eq!(said(&answer), "Let me look. ");
        for n in 1..=3 {
            let call = item(&answer, "function_call").clone();
            assert_eq!(
                (&call["name"], &call["arguments"]),
                (&json!("look"), &json!(r#"{"q":"it"}"#))
            );
            let id = call["call_id"].as_str().unwrap();
            assert!(
                id.starts_with("sess_n") && id.ends_with(&format!("-{n}")),
                "{id}"
            );
            input.extend(answer["output"].as_array().unwrap().iter().cloned());
            input.push(output(&call, "42"));
            answer = ask(&input).await;
        }
        assert_eq!(
            (said(&answer), &answer["status"]),
            (&json!("It says 42."), &json!("completed"))
        );
        let usage = json!({"input_tokens": 100, "output_tokens": 5, "total_tokens": 105,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0}});
        assert_eq!(answer["usage"], usage);
        let recording = simulator.recording().await;
        recording.assert_played(&["completed"]);
        assert_eq!(recording.client("runRequest").len(), 1, "one run");
    }
}

/// A client that sends only what is new.
#[tokio::test]
async fn a_response_continues_an_earlier_one_by_its_id() {
    let first = Steps::new()
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .text("It says 42.")
        .then(END)
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Still.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let answer = response(&client.post(PATH, &body(json!("go"), false)).await);
    let ask = async |previous: &Json, input: Json| {
        let mut body = body(input, true);
        body["previous_response_id"] = previous["id"].clone();
        client.post(PATH, &body).await
    };
    let result = output(item(&answer, "function_call"), "42");
    let answer = response(&ask(&answer, json!([result])).await);
    assert_eq!(said(&answer), "It says 42.");
    let answer = response(&ask(&answer, json!("and now?")).await);
    assert_eq!(said(&answer), "Still.");
    let recording = simulator.recording().await;
    recording.assert_played(&["completed", "completed"]);
    let unknown = ask(&json!({"id": "resp_gone"}), json!("x")).await;
    assert_eq!(unknown.status, 400);
    assert_eq!(unknown.body["error"]["code"], "previous_response_not_found");
    assert_eq!(unknown.body["error"]["param"], "previous_response_id");
}

#[tokio::test]
async fn a_response_that_is_not_stored_cannot_be_continued() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let mut asked = body(json!("go"), false);
    asked["store"] = json!(false);
    let answer = response(&client.post(PATH, &asked).await);
    assert_eq!(answer["store"], false);
    asked["previous_response_id"] = answer["id"].clone();
    let reply = client.post(PATH, &asked).await;
    assert_eq!(
        reply.body["error"]["code"], "previous_response_not_found",
        "{reply:?}"
    );
}

#[tokio::test]
async fn metadata_is_returned_and_must_be_an_object() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let mut body = body(json!("go"), false);
    body["metadata"] = json!({"ticket": "17"});
    let reply = client.post(PATH, &body).await;
    assert_eq!(response(&reply)["metadata"], body["metadata"]);
    body["metadata"] = json!(["17"]);
    let reply = client.post(PATH, &body).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_eq!(reply.body["error"]["param"], "metadata");
}

#[tokio::test]
async fn events_come_in_the_official_order() {
    let steps = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .step(json!({"thinking_done": 10}))
        .text("Let me ")
        .text("look. ")
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let reply = ApiClient::new(&gateway)
        .post(PATH, &body(json!("go"), true))
        .await;
    let wanted = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(reply.names(), wanted);
    let indexes = reply.all("response.output_item.done");
    let indexes: Vec<&Json> = indexes.iter().map(|event| &event["output_index"]).collect();
    assert_eq!(indexes, [0, 1, 2]);
    let answer = response(&reply);
    let done: Vec<&Json> = reply
        .all("response.output_item.done")
        .iter()
        .map(|e| &e["item"])
        .collect();
    assert_eq!(answer["output"], json!(done), "the items and the end agree");
}

/// Cursor has neither namespaces nor tools with a text; both are restored in the answer.
#[tokio::test]
async fn namespaces_and_custom_tools_are_restored() {
    let steps = Steps::new()
        .then(calls(
            "mcp__docs__find",
            r#"{ q = "it" }"#,
            r#"open = true, name = "a","#,
            &text("A"),
        ))
        .then(calls(
            "apply_patch",
            r#"{ input = "*** Begin" }"#,
            r#"open = true, name = "b","#,
            &text("B"),
        ))
        .wait_for(&["a", "b"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let tools = json!([
        {"type": "namespace", "name": "mcp__docs", "description": "d", "tools": [function("find")]},
        {"type": "custom", "name": "apply_patch", "description": "Patches."},
        {"type": "web_search"},
    ]);
    let mut input = vec![json!({"role": "user", "content": "go"})];
    let mut seen = Vec::new();
    let mut answer = Json::Null;
    // Calls that do not arrive together come in successive answers.
    while seen.len() < 2 {
        let mut asked = body(json!(input), true);
        asked["tools"] = tools.clone();
        answer = response(&client.post(PATH, &asked).await);
        for item in answer["output"].as_array().unwrap().clone() {
            let kind = item["type"].as_str().unwrap();
            let (kind, text) = match kind {
                "function_call" => ("function_call_output", "A"),
                "custom_tool_call" => ("custom_tool_call_output", "B"),
                other => panic!("{other}: {answer}"),
            };
            input.push(item.clone());
            seen.push(item.clone());
            input.push(json!({"type": kind, "call_id": item["call_id"], "output": text}));
        }
    }
    let (find, patch) = (&seen[0], &seen[1]);
    assert_eq!(
        (&find["namespace"], &find["name"]),
        (&json!("mcp__docs"), &json!("find"))
    );
    assert_eq!(
        (&patch["name"], &patch["input"]),
        (&json!("apply_patch"), &json!("*** Begin"))
    );
    let mut asked = body(json!(input), true);
    asked["tools"] = tools;
    let mut items = answer["output"].as_array().unwrap().iter();
    if !items.any(|item| item["type"] == "message") {
        answer = response(&client.post(PATH, &asked).await);
    }
    assert_eq!(said(&answer), "Done.");
    let recording = simulator.recording().await;
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1, "one run");
}

#[tokio::test]
async fn a_response_that_ends_early_says_why() {
    let steps = Steps::new()
        .text("One two three four five.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let mut asked = body(json!("go"), true);
    asked["max_output_tokens"] = json!(1);
    let reply = client.post(PATH, &asked).await;
    let answer = response(&reply);
    assert_eq!(reply.names().last(), Some(&"response.incomplete"));
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(
        (said(&answer), &answer["status"]),
        (&json!("One "), &json!("incomplete"))
    );
    let fails = Steps::new()
        .text("Half. ")
        .step(
            json!({"end": {"code": "resource_exhausted", "message": "Error",
            "error": "ERROR_RATE_LIMITED", "title": "T", "detail": "D.", "retryable": false}}),
        )
        .build();
    let simulator = script(&[&fails]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let reply = ApiClient::new(&gateway)
        .post(PATH, &body(json!("go"), true))
        .await;
    assert_eq!(reply.names().last(), Some(&"response.failed"));
    let failed = response(&reply);
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("rate_limit_exceeded"))
    );
}
