//! Anthropic's messages: the real binary over real HTTP.

use serde_json::{Value as Json, json};

use test_support::api_client::{ApiClient, ApiReply};
use test_support::gateway::GatewayProcess;
use test_support::in_process::opened;
use test_support::scenario::{END, Steps, calls, playing, script, text};
use test_support::simulator::{Simulator, Transport};

const PATH: &str = "/v1/messages?beta=true";

fn tool(name: &str) -> Json {
    json!({"name": name, "description": "looks", "input_schema":
        {"type": "object", "properties": {"q": {"type": "string"}}}})
}

fn body(messages: &[Json], stream: bool) -> Json {
    json!({"model": "composer-2", "max_tokens": 1000, "messages": messages, "stream": stream,
           "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
           "tools": [tool("look")], "thinking": {"type": "adaptive"}, "temperature": 1})
}

/// Returns the message of a response, as the official libraries assemble it.
fn message(reply: &ApiReply) -> Json {
    if reply.events.is_empty() {
        return reply.body.clone();
    }
    let mut message = reply.events[0].1["message"].clone();
    for (_, event) in &reply.events[1..] {
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                let blocks = message["content"].as_array_mut().unwrap();
                assert_eq!(blocks.len(), index);
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = &mut message["content"][index];
                let delta = &event["delta"];
                let add = |block: &mut Json, field: &str| {
                    let all = block[field].as_str().unwrap().to_owned();
                    block[field] = (all + delta[field].as_str().unwrap()).into();
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => add(block, "text"),
                    "thinking_delta" => add(block, "thinking"),
                    "signature_delta" => add(block, "signature"),
                    _ => {
                        let input = delta["partial_json"].as_str().unwrap();
                        block["input"] = serde_json::from_str(input).unwrap();
                    }
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message
}

fn texts(message: &Json) -> String {
    let blocks = message["content"].as_array().unwrap().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}

/// Returns a conversation after an answer, with a result for each of its calls.
fn with_results(messages: &mut Vec<Json>, answer: &Json, more: &[Json]) {
    let calls = answer["content"].as_array().unwrap().iter();
    let calls = calls.filter(|block| block["type"] == "tool_use");
    let results = calls.map(|call| {
        json!({"type": "tool_result", "tool_use_id": call["id"],
               "content": [{"type": "text", "text": "42"}]})
    });
    let results: Vec<Json> = results.chain(more.iter().cloned()).collect();
    messages.push(json!({"role": "assistant", "content": answer["content"]}));
    messages.push(json!({"role": "user", "content": results}));
}

#[tokio::test]
async fn tools_thinking_and_text_take_one_run_however_many_requests() {
    let look = |n: usize| {
        calls("look", r#"{ q = "it" }"#, "", &text("42"))
            .replace("call-look", &format!("toolu_{n}"))
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
        let mut messages = vec![json!({"role": "user", "content": "go"})];
        let reply = client.post(PATH, &body(&messages, stream)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let mut answer = message(&reply);
        let content = &answer["content"];
        assert_eq!(content[0]["type"], "thinking");
        assert_eq!(
            (&content[0]["thinking"], &content[1]["text"]),
            (&json!("Hm."), &json!("Let me look. "))
        );
        let call = &content[2];
        assert_eq!(
            (&call["name"], &call["input"]),
            (&json!("look"), &json!({"q": "it"}))
        );
        let id = call["id"].as_str().unwrap();
        assert!(id.starts_with("sess_u") && id.contains("__call_"), "{id}");
        assert!(id.len() <= 64, "{id}");
        for _ in 0..3 {
            assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
            with_results(&mut messages, &answer, &[]);
            answer = message(&client.post(PATH, &body(&messages, stream)).await);
        }
        assert_eq!(
            (&answer["stop_reason"], texts(&answer)),
            (&json!("end_turn"), "It says 42.".into())
        );
        let usage = [
            ("input_tokens", 100),
            ("output_tokens", 5),
            ("cache_creation_input_tokens", 0),
            ("cache_read_input_tokens", 0),
        ];
        for (field, tokens) in usage {
            assert_eq!(answer["usage"][field], tokens, "{field}: {answer}");
        }
        assert_eq!(
            (&answer["type"], &answer["role"]),
            (&json!("message"), &json!("assistant"))
        );
        let recording = simulator.recording().await;
        recording.assert_played(&["completed"]);
        assert_eq!(recording.client("runRequest").len(), 1, "one run");
    }
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
    let messages = [json!({"role": "user", "content": "go"})];
    let reply = ApiClient::new(&gateway)
        .post(PATH, &body(&messages, true))
        .await;
    let block = [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ];
    let wanted = [
        &["message_start", "ping"][..],
        &block,
        &block,
        &block,
        &["message_delta", "message_stop"],
    ];
    assert_eq!(reply.names(), wanted.concat());
    let indexes: Vec<&Json> = reply
        .all("content_block_start")
        .iter()
        .map(|e| &e["index"])
        .collect();
    assert_eq!(indexes, [0, 1, 2]);
    let start = &reply.events[0].1["message"];
    assert_eq!(
        (&start["content"], &start["stop_reason"]),
        (&json!([]), &Json::Null)
    );
    assert!(
        start["usage"]["input_tokens"].as_u64().unwrap() > 0,
        "{start}"
    );
}

/// Text beside a result is a message of the user, which the running run gets after the result.
#[tokio::test]
async fn a_message_beside_a_result_reaches_the_same_run() {
    let steps = Steps::new()
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    let answer = message(&client.post(PATH, &body(&messages, true)).await);
    with_results(
        &mut messages,
        &answer,
        &[json!({"type": "text", "text": "but hurry"})],
    );
    let answer = message(&client.post(PATH, &body(&messages, true)).await);
    assert!(texts(&answer).starts_with("Done."), "{answer}");
    let recording = simulator.recording().await;
    assert!(recording.0.to_string().contains("but hurry"), "it was sent");
    let first = recording.client("runRequest")[0]["runRequest"]["conversationId"].clone();
    for request in recording.client("runRequest") {
        assert_eq!(request["runRequest"]["conversationId"], first);
    }
}

#[tokio::test]
async fn an_answer_ends_where_the_client_asks() {
    let steps = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .text("One two EN")
        .text("D three four five six")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    for stream in [true, false] {
        let mut asked = body(&[json!({"role": "user", "content": "go"})], stream);
        asked["thinking"] = Json::Null;
        asked["stop_sequences"] = json!(["END", "###"]);
        let answer = message(&client.post(PATH, &asked).await);
        assert_eq!(texts(&answer), "One two ");
        assert_eq!(
            answer["content"].as_array().unwrap().len(),
            1,
            "no thinking: {answer}"
        );
        let stop = (&answer["stop_reason"], &answer["stop_sequence"]);
        assert_eq!(stop, (&json!("stop_sequence"), &json!("END")));
        asked["stop_sequences"] = Json::Null;
        asked["max_tokens"] = json!(1);
        let answer = message(&client.post(PATH, &asked).await);
        assert_eq!(
            (texts(&answer), &answer["stop_reason"]),
            ("One ".into(), &json!("max_tokens"))
        );
        assert!(
            answer["usage"]["output_tokens"].as_u64().unwrap() > 0,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn tokens_are_counted_and_images_are_sent() {
    let steps = Steps::new().text("Seen.").then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let png = test_support::official_client::PNG;
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}});
    let messages = [json!({"role": "user", "content": [{"type": "text", "text": "look"}, image]})];
    let mut asked = body(&messages, false);
    asked["stream"] = Json::Null;
    let count = client.post("/v1/messages/count_tokens", &asked).await;
    let count = count.body["input_tokens"].as_u64().unwrap();
    assert!((1200..1400).contains(&count), "{count}");
    assert_eq!(
        simulator.recording().await.runs(),
        0,
        "nothing was asked of Cursor"
    );
    let answer = message(&client.post(PATH, &asked).await);
    assert_eq!(texts(&answer), "Seen.");
    let recording = simulator.recording().await;
    let request = &recording.client("runRequest")[0]["runRequest"];
    let message = &request["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message["selectedContext"]["selectedImages"][0]["data"], png);
}

#[tokio::test]
async fn errors_have_anthropics_form() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let asked = body(&[json!({"role": "user", "content": "go"})], false);
    let fails = async |headers: &[(&str, &str)], change: &dyn Fn(&mut Json)| {
        let mut body = asked.clone();
        change(&mut body);
        let reply = client.post_with(PATH, headers, &body).await;
        assert_eq!(reply.body["type"], "error", "{reply:?}");
        let kind = reply.body["error"]["type"].as_str().unwrap().to_owned();
        (
            reply.status,
            kind,
            reply.body["error"]["message"].to_string(),
        )
    };
    let (status, kind, _) = fails(&[("x-api-key", "wrong")], &|_| {}).await;
    assert_eq!((status, kind.as_str()), (401, "authentication_error"));
    let (status, kind, text) = fails(&[], &|body| body["model"] = json!("composer-3")).await;
    assert_eq!((status, kind.as_str()), (404, "not_found_error"));
    assert!(text.contains("composer-2"), "{text}");
    let (status, kind, text) = fails(&[], &|body| body["max_tokens"] = json!("x")).await;
    assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
    assert!(text.contains("max_tokens"), "{text}");
    let (status, _, text) = fails(&[], &|body| *body = json!([])).await;
    assert!(
        status == 400 && text.contains("JSON object"),
        "{status} {text}"
    );
    let key = [
        ("x-api-key", gateway.token.as_str()),
        ("anthropic-version", "2023-06-01"),
    ];
    let reply = client.post_with(PATH, &key, &asked).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(client.get(PATH).await.body["type"], "error");
}

#[tokio::test]
async fn cursors_errors_have_anthropics_form() {
    let fails = |error: &str, code: &str| {
        let end = json!({"code": code, "message": "Error", "error": error, "title": "T",
                         "detail": "D.", "retryable": false});
        Steps::new().step(json!({ "end": end })).build()
    };
    let cases = [
        (
            "ERROR_CONVERSATION_TOO_LONG",
            "invalid_argument",
            400,
            "invalid_request_error",
            "prompt is too long",
        ),
        (
            "ERROR_RATE_LIMITED",
            "resource_exhausted",
            429,
            "rate_limit_error",
            "D.",
        ),
        (
            "ERROR_NOT_LOGGED_IN",
            "unauthenticated",
            401,
            "authentication_error",
            "",
        ),
    ];
    for (error, code, status, kind, says) in cases {
        let simulator = playing(Transport::H2c, &fails(error, code));
        let gateway = GatewayProcess::start(&simulator, &[]);
        let client = ApiClient::new(&gateway);
        for stream in [true, false] {
            let asked = body(&[json!({"role": "user", "content": "go"})], stream);
            let reply = client.post(PATH, &asked).await;
            assert_eq!(
                (reply.status, &reply.body["error"]["type"]),
                (status, &json!(kind))
            );
            let text = reply.body["error"]["message"].as_str().unwrap();
            assert!(text.contains(says), "{text}");
        }
    }
    let steps = Steps::new()
        .text("Half. ")
        .then(fails("ERROR_RATE_LIMITED", "resource_exhausted"))
        .build();
    let simulator = script(&[&steps]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let asked = body(&[json!({"role": "user", "content": "go"})], true);
    let reply = ApiClient::new(&gateway).post(PATH, &asked).await;
    assert_eq!(reply.last()["error"]["type"], "rate_limit_error");
    assert!(reply.all("message_stop").is_empty(), "one end");
}
