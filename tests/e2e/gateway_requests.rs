//! Requests and responses of OpenAI clients, and access control: the real binary over real HTTP.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::gateway::{ChatResponse, GatewayProcess};
use test_support::scenario::{END, Steps, playing, script};
use test_support::simulator::{Simulator, Transport};

#[tokio::test]
async fn text_is_streamed_or_returned_whole() {
    let steps = Steps::new()
        .step(json!({"thinking": "Let me "}))
        .step(json!({"thinking": "see."}))
        .step(json!({"thinking_done": 10}))
        .text("It says ")
        .text("42.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    for stream in [true, false] {
        let mut chat = gateway.chat();
        chat.stream = stream;
        let reply = chat.prompt("go").await;
        assert_eq!((reply.status, reply.text.as_str()), (200, "It says 42."));
        assert_eq!(reply.thinking, "Let me see.");
        assert_eq!(reply.finish, "stop");
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
                           "prompt_tokens_details": {"cached_tokens": 0},
                           "completion_tokens_details": {"reasoning_tokens": 3}});
        assert_eq!(reply.usage, usage);
        assert!(!stream || reply.last == "data: [DONE]", "{reply:?}");
    }
    // Usage is sent only if it is requested.
    let chat = gateway.chat();
    let mut body = chat.body();
    body["messages"] = json!([{"role": "user", "content": "go"}]);
    body["stream_options"] = Json::Null;
    let reply = ChatResponse::read(chat.send(&body).await).await;
    assert_eq!(
        (reply.text.as_str(), &reply.usage),
        ("It says 42.", &Json::Null)
    );
    let recording = simulator.recording().await;
    recording.assert_played(&["completed", "completed", "completed"]);
    let request = &recording.client("runRequest")[0]["runRequest"];
    let user_text = &request["action"]["userMessageAction"]["userMessage"]["text"];
    assert_eq!(user_text, "go");
}

#[tokio::test]
async fn images_and_developer_messages_are_sent() {
    let steps = Steps::new().context().text("Seen.").then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    let png = test_support::official_client::PNG;
    let url = format!("data:image/png;base64,{png}");
    chat.messages = vec![
        json!({"role": "developer", "content": "Walk softly."}),
        json!({"role": "user", "content": [{"type": "text", "text": "look"},
               {"type": "image_url", "image_url": {"url": url}}]}),
    ];
    assert_eq!(chat.turn().await.text, "Seen.");
    let recording = simulator.recording().await;
    let request = &recording.client("runRequest")[0]["runRequest"];
    let message = &request["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message["selectedContext"]["selectedImages"][0]["data"], png);
    let context = recording.client("execClientMessage.requestContextResult");
    assert!(context[0].to_string().contains("Walk softly."));
}

#[tokio::test]
async fn models_are_listed_with_their_windows() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let (status, body) = gateway.chat().get("/v1/models").await;
    let body: Json = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["object"]), (200, &json!("list")));
    let models = body["data"].as_array().unwrap();
    let model = models.iter().find(|model| model["id"] == "composer-2");
    let model = model.unwrap_or_else(|| panic!("{body}"));
    assert_eq!(
        (&model["object"], &model["owned_by"]),
        (&json!("model"), &json!("cursor"))
    );
    assert!(model["context_window"].as_u64().unwrap() > 0);
    assert!(
        model["created"].as_u64().unwrap() > 0,
        "it is Cursor's list"
    );
}

#[tokio::test]
async fn a_follow_up_continues_from_the_checkpoint() {
    let first = Steps::new().text("One. ").then(END).build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .step(json!({
            "expect_request": {"action": {"userMessageAction": {"userMessage": {"text": "and on"}}}},
        }))
        .text("Two.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second, &second.replace("and on", "still on")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    assert_eq!(chat.prompt("go").await.text, "One. ");
    // Clients trim answers and send strings as content parts.
    chat.messages[1] = json!({"role": "user", "content": [{"type": "text", "text": "go"}]});
    chat.messages[2] = json!({"role": "assistant", "content": "One."});
    assert_eq!(chat.prompt("and on").await.text, "Two.");
    assert_eq!(chat.prompt("still on").await.text, "Two.");
    simulator
        .recording()
        .await
        .assert_played(&["completed", "completed", "completed"]);
}

/// A client that retries after an error continues the same conversation.
#[tokio::test]
async fn a_failed_turn_can_be_repeated() {
    let first = Steps::new().text("One.").then(END).build();
    let fails = r#"{ text = "Half. " }, { cut = true }"#;
    let third = Steps::new()
        .expect_state("last checkpoint")
        .text("Two.")
        .then(END)
        .build();
    let simulator = script(&[&first, fails, &third]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = gateway.chat();
    assert_eq!(chat.prompt("go").await.text, "One.");
    let reply = chat.prompt("and on").await;
    assert_eq!(reply.error["code"], "upstream_error", "{reply:?}");
    assert_eq!(chat.turn().await.text, "Two.");
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!((requests.len(), id(0), id(1)), (3, id(2), id(2)));
}

/// A gateway that cannot start reports the reason.
#[test]
fn a_port_in_use_and_a_weak_token_are_reported() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let port = gateway.port().to_string();
    let home = gateway.folder().to_str().unwrap();
    let cases: [(&[&str], &str, &str); 2] = [
        (
            &["gateway", "--port", &port],
            "a-token-of-my-own",
            "cannot listen on 127.0.0.1:",
        ),
        (&["gateway"], "guess-me", "at least 16"),
    ];
    for (arguments, token, says) in cases {
        let output = Command::new(binary())
            .args(arguments)
            .env_clear()
            .env("HOME", home)
            .env("CURSOR_SIDECAR_GATEWAY_TOKEN", token)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(says) && !stderr.contains(token), "{stderr}");
    }
}

/// Token, `Host` and `Origin` are checked before the body is read.
#[tokio::test]
async fn requests_without_the_token_are_refused() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let file = gateway.ready["tokenFile"].as_str().unwrap();
    let mode = std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (port, token) = (gateway.port(), gateway.token.as_str());
    let ask = |host: &str, more: &str, path: &str| {
        gateway.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
        ))
    };
    let ours = format!("127.0.0.1:{port}");
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let cases = [
        (ask(&ours, &bearer, "/v1/models"), 200, ""),
        (
            ask(&format!("localhost:{port}"), &bearer, "/v1/models"),
            200,
            "",
        ),
        (ask(&ours, "", "/v1/models"), 401, "Bearer <token>"),
        (
            ask(&ours, "Authorization: Bearer wrong\r\n", "/v1/models"),
            401,
            "invalid_api_key",
        ),
        (ask(&ours, "", "/metrics"), 401, "Bearer <token>"),
        (ask("evil.com", &bearer, "/v1/models"), 403, "127.0.0.1"),
        (
            ask(
                &ours,
                &format!("{bearer}Origin: https://evil.com\r\n"),
                "/v1/models",
            ),
            403,
            "web pages",
        ),
        (ask(&ours, &bearer, "/v1/embeddings"), 404, "unknown_url"),
        (
            ask(&ours, &bearer, "/v1/chat/completions"),
            405,
            "method_not_allowed",
        ),
    ];
    for (answer, status, says) in cases {
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.contains(says), "{answer}");
        assert!(!answer.contains(token));
    }
    let large = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {ours}\r\n{bearer}Connection: close\r\nContent-Length: 33554433\r\n\r\n"
    );
    let refused = gateway.raw(&large);
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    assert!(refused.contains("33554432"), "{refused}");
    assert_eq!(simulator.recording().await.runs(), 0);
}

#[tokio::test]
async fn an_invalid_request_is_answered_with_its_reason() {
    let simulator = Simulator::responder(Transport::H2c);
    let own = [("CURSOR_SIDECAR_GATEWAY_TOKEN", "a-token-of-my-own")];
    let gateway = GatewayProcess::start(&simulator, &own);
    assert_eq!(
        gateway.ready,
        json!({"url": gateway.url}),
        "no file is made"
    );
    assert!(!gateway.folder().join("gateway-token").exists());
    let mut chat = gateway.chat();
    chat.user("go");
    let fails = async |change: &dyn Fn(&mut Json)| {
        let mut body = chat.body();
        change(&mut body);
        let reply = ChatResponse::read(chat.send(&body).await).await;
        (reply.status, reply.error)
    };
    let (status, error) = fails(&|body| body["model"] = json!("composer-3")).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
    assert!(
        error["nearest"].to_string().contains("composer-2"),
        "{error}"
    );
    let (status, error) = fails(&|body| body["model"] = json!("m".repeat(300))).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));
    let text = error["message"].as_str().unwrap();
    assert!(text.len() < 200, "it does not repeat the name: {text}");
    let (status, error) = fails(&|body| body["stream"] = json!("yes")).await;
    assert_eq!((status, &error["param"]), (400, &json!("stream")));
    assert_eq!(error["type"], "invalid_request_error");
    let (status, error) = fails(&|body| *body = json!("hello")).await;
    assert_eq!((status, error["param"].is_null()), (400, true), "{error}");
    let (status, error) = fails(&|body| {
        let url = json!({"url": "data:image/png;base64,AAAA"});
        body["messages"] =
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]);
    })
    .await;
    assert_eq!(status, 400, "{error}");
    assert!(error["message"].as_str().unwrap().contains("image 1"));
    assert_eq!(simulator.recording().await.runs(), 0);
}

#[tokio::test]
async fn without_a_key_the_ways_to_set_one_are_printed() {
    let gateway = GatewayProcess::launch(&[("CURSOR_BACKEND_URL", "http://127.0.0.1:9")]);
    let mut chat = gateway.chat();
    let reply = chat.prompt("go").await;
    assert_eq!(
        (reply.status, &reply.error["code"]),
        (401, &json!("no_cursor_key"))
    );
    let message = reply.error["message"].as_str().unwrap();
    assert!(message.contains("CURSOR_API_KEY") && message.contains("cursor-sidecar login"));
    let (status, body) = chat.get("/v1/models").await;
    assert!(
        status == 200 && body.contains("composer"),
        "the bundled ones: {body}"
    );
}

#[tokio::test]
async fn cursors_errors_have_their_own_status() {
    let fails = |error: &str, code: &str| {
        Steps::new()
            .step(json!({
                "end": {
                    "code": code.to_string(),
                    "message": "Error",
                    "error": error.to_string(),
                    "title": "T",
                    "detail": "D.",
                    "retryable": false,
                },
            }))
            .build()
    };
    let cases = [
        (
            "ERROR_CONVERSATION_TOO_LONG",
            "invalid_argument",
            400,
            "context_length_exceeded",
        ),
        (
            "ERROR_RATE_LIMITED",
            "resource_exhausted",
            429,
            "insufficient_quota",
        ),
        (
            "ERROR_NOT_LOGGED_IN",
            "unauthenticated",
            401,
            "invalid_api_key",
        ),
    ];
    for (error, code, status, user_text) in cases {
        let simulator = playing(Transport::H2c, &fails(error, code));
        let gateway = GatewayProcess::start(&simulator, &[]);
        for stream in [true, false] {
            let mut chat = gateway.chat();
            chat.stream = stream;
            let reply = chat.prompt("go").await;
            assert_eq!(
                (reply.status, &reply.error["code"]),
                (status, &json!(user_text)),
                "{reply:?}"
            );
        }
    }
    // After the first text, an error is sent as an event.
    let steps = Steps::new()
        .text("Half. ")
        .then(fails("ERROR_RATE_LIMITED", "resource_exhausted"))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let reply = gateway.chat().prompt("go").await;
    assert_eq!((reply.status, reply.text.as_str()), (200, "Half. "));
    assert_eq!(reply.error["code"], "insufficient_quota");
    assert_eq!(
        (reply.finish.as_str(), reply.last.as_str()),
        ("", "data: [DONE]")
    );
}
