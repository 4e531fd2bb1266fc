//! Options of chat completions that Cursor does not have: the gateway applies them.

use std::process::Command;

use base64::Engine as _;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use test_support::api_client::{ApiClient, ApiReply};
use test_support::binary;
use test_support::gateway::GatewayProcess;
use test_support::scenario::{END, Steps, playing, script, simulate};
use test_support::simulator::{Simulator, Transport};

const PATH: &str = "/v1/chat/completions";

async fn ask(client: &ApiClient, more: Json) -> ApiReply {
    let mut body = json!({"model": "composer-2", "messages": [{"role": "user", "content": "go"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    client.post(PATH, &body).await
}

fn content(reply: &ApiReply) -> (&str, &str) {
    let choice = &reply.body["choices"][0];
    let text = choice["message"]["content"].as_str();
    let text = text.unwrap_or_else(|| panic!("{reply:?}"));
    (text, choice["finish_reason"].as_str().unwrap())
}

#[tokio::test]
async fn stop_and_max_tokens_end_the_answer_and_the_run() {
    let steps = Steps::new()
        .text("One two EN")
        .text("D three")
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .checkpoint()
        .step(json!({"expect_cancel": true}))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let reply = ask(&client, json!({"stop": ["END"]})).await;
    assert_eq!(content(&reply), ("One two ", "stop"));
    let reply = ask(&client, json!({"max_completion_tokens": 1})).await;
    assert_eq!(content(&reply), ("One ", "length"));
    assert!(
        reply.body["usage"]["completion_tokens"].as_u64().unwrap() > 0,
        "{reply:?}"
    );
    let reply = ask(&client, json!({"max_tokens": 1, "stream": true})).await;
    let finish: Vec<&Json> = reply
        .all("")
        .into_iter()
        .map(|c| &c["choices"][0]["finish_reason"])
        .collect();
    assert!(finish.contains(&&json!("length")), "{reply:?}");
    while simulator.recording().await.verdicts().len() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    simulator
        .recording()
        .await
        .assert_played(&["cancelled by client"; 3]);
}

#[tokio::test]
async fn json_is_validated_and_corrected_once() {
    let run = |text: &str| Steps::new().context().text(text).then(END).build();
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    // Right at once, in a code fence.
    let simulator = script(&[&run("```json\n{\"n\": 1}\n```")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let reply = ask(
        &ApiClient::new(&gateway),
        json!({"response_format": format}),
    )
    .await;
    assert_eq!(content(&reply), (r#"{"n": 1}"#, "stop"));
    let recording = simulator.recording().await;
    let context = recording.client("execClientMessage.requestContextResult");
    assert!(
        context[0].to_string().contains("JSON Schema"),
        "the model was instructed"
    );
    // Wrong, then right, in the same conversation.
    for stream in [true, false] {
        let simulator = script(&[&run("Here: {\"n\": 1}"), &run("{\"n\": 2}")]);
        let gateway = GatewayProcess::start(&simulator, &[]);
        let client = ApiClient::new(&gateway);
        let reply = ask(
            &client,
            json!({"response_format": format, "stream": stream}),
        )
        .await;
        let text = if stream {
            let deltas = reply.all("").into_iter();
            deltas
                .filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
                .collect()
        } else {
            content(&reply).0.to_owned()
        };
        assert_eq!(text, r#"{"n": 2}"#);
        let recording = simulator.recording().await;
        let requests = recording.client("runRequest");
        let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
        assert_eq!((requests.len(), id(0)), (2, id(1)));
        let said = requests[1]["runRequest"]["action"].to_string();
        assert!(said.contains("not JSON"), "{said}");
    }
    // Wrong twice.
    let simulator = script(&[&run("no"), &run("[]")]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let reply = ask(&client, json!({"response_format": {"type": "json_object"}})).await;
    assert_eq!(
        (reply.status, &reply.body["error"]["code"]),
        (502, &json!("invalid_json_answer"))
    );
    assert_eq!(reply.headers["x-should-retry"], "false");
}

/// Serves one image on this machine, as often as it is asked for.
async fn image_server(png: Vec<u8>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a.png?secret=1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                png.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&png).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn images_by_url_are_fetched_but_not_from_private_addresses() {
    let simulator = playing(
        Transport::H2c,
        &Steps::new().text("Seen.").then(END).build(),
    );
    let png = test_support::official_client::PNG;
    let data = base64::engine::general_purpose::STANDARD
        .decode(png)
        .unwrap();
    let url = image_server(data).await;
    let chat = json!([{"role": "user", "content": [{"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": url}}]}]);
    let input = json!([{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]);
    let anthropic = json!([{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": url}}]}]);
    let requests = [
        (PATH, json!({"model": "composer-2", "messages": chat})),
        (
            "/v1/responses",
            json!({"model": "composer-2", "input": input}),
        ),
        (
            "/v1/messages",
            json!({"model": "composer-2", "max_tokens": 9, "messages": anthropic}),
        ),
    ];
    let gateway = GatewayProcess::start(&simulator, &[]);
    for (path, body) in &requests {
        let reply = ApiClient::new(&gateway).post(path, body).await;
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        let message = reply.body["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("127.0.0.1") && !message.contains("secret"),
            "{message}"
        );
    }
    assert_eq!(simulator.recording().await.runs(), 0);
    let gateway = GatewayProcess::start(&simulator, &[("PI_CURSOR_ALLOW_PRIVATE_FETCH", "on")]);
    for (path, body) in &requests {
        let reply = ApiClient::new(&gateway).post(path, body).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }
    let recording = simulator.recording().await;
    for request in recording.client("runRequest") {
        let message = &request["runRequest"]["action"]["userMessageAction"]["userMessage"];
        assert_eq!(message["selectedContext"]["selectedImages"][0]["data"], png);
    }
}

#[tokio::test]
async fn names_of_other_providers_stand_for_cursors_models() {
    let simulator = Simulator::responder(Transport::H2c);
    let table = "my-model=composer-2,team-*=composer-2";
    let gateway = GatewayProcess::start(&simulator, &[("PI_CURSOR_GATEWAY_MODELS", table)]);
    let client = ApiClient::new(&gateway);
    for name in ["my-model", "team-x", "composer-2"] {
        let reply = ask(&client, json!({ "model": name })).await;
        assert_eq!(
            (reply.status, &reply.body["model"]),
            (200, &json!(name)),
            "{reply:?}"
        );
        assert_eq!(reply.headers["x-cursor-model"], "composer-2");
    }
    // Also where the account's list does not contain it.
    let reply = ask(&client, json!({"model": "auto"})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.headers["x-cursor-model"], "default");
    let reply = ask(&client, json!({"model": "claude-sonnet-4-5-20250929"})).await;
    let model = reply.headers["x-cursor-model"].to_str().unwrap();
    assert!(model.contains("sonnet"), "{model}");
    let reply = ask(&client, json!({"model": "composer-22"})).await;
    assert_eq!(
        (reply.status, &reply.body["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    let nearest = reply.body["error"]["nearest"].to_string();
    assert!(nearest.contains("composer-2"), "{nearest}");
    let found = client.get("/v1/models/my-model").await.body;
    assert_eq!(
        (&found["id"], &found["object"]),
        (&json!("composer-2"), &json!("model"))
    );
    assert_eq!(client.get("/v1/models/composer-22").await.status, 404);
}

/// The exchange of the key has limits too. The client decides how long it waits, not the gateway.
#[tokio::test]
async fn a_limit_of_the_key_exchange_is_reported_without_retries() {
    let steps = r#"{ text = "ok" }, { usage = {} }, { end = true }"#;
    let scenario = format!(
        "name = \"limit\"\n[server]\nexchange = {{ status = 429, body = \"no\" }}\n[[run]]\nsteps = [ {steps} ]\n"
    );
    let simulator = simulate(Transport::H2c, &scenario);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let reply = ask(&ApiClient::new(&gateway), json!({})).await;
    let code = &reply.body["error"]["code"];
    assert_eq!(
        (reply.status, code),
        (429, &json!("rate_limit_exceeded")),
        "{reply:?}"
    );
    assert!(reply.headers.contains_key("retry-after"));
    let recording = simulator.recording().await;
    // One for the list of models, one for the run.
    let exchanges = recording.requests("/auth/exchange_user_api_key").len();
    assert!(exchanges <= 2, "{exchanges} exchanges");
}

/// Each class of Cursor's errors has its own status; what will not change is not waited for.
#[tokio::test]
async fn limits_and_regions_have_their_own_status() {
    let end = |code: &str, message: &str| {
        let end = json!({"code": code, "message": message});
        Steps::new().step(json!({ "end": end })).build()
    };
    let cases = [
        (
            end("resource_exhausted", "Error"),
            429,
            "rate_limit_exceeded",
            "retry-after",
        ),
        (
            end("resource_exhausted", "Whatever this means"),
            429,
            "rate_limit_exceeded",
            "retry-after",
        ),
        (
            end("resource_exhausted", "Not available in your region"),
            403,
            "unsupported_region",
            "x-should-retry",
        ),
        (
            end("resource_exhausted", "high demand"),
            503,
            "overloaded",
            "retry-after",
        ),
        (
            end("resource_exhausted", "usage limit"),
            429,
            "insufficient_quota",
            "x-should-retry",
        ),
    ];
    for (steps, status, code, header) in cases {
        let simulator = playing(Transport::H2c, &steps);
        let gateway = GatewayProcess::start(&simulator, &[]);
        let reply = ask(&ApiClient::new(&gateway), json!({})).await;
        assert_eq!(
            (reply.status, &reply.body["error"]["code"]),
            (status, &json!(code)),
            "{reply:?}"
        );
        assert!(reply.headers.contains_key(header), "{header}: {reply:?}");
        let is_retried = code == "overloaded";
        let runs = simulator.recording().await.runs();
        assert_eq!(runs > 1, is_retried, "{code}: {runs} runs");
    }
}

#[test]
fn settings_for_clients_are_printed_without_the_token() {
    let home = tempfile::tempdir().unwrap();
    let print = |arguments: &[&str]| {
        let output = Command::new(binary())
            .arg("gateway")
            .args(arguments)
            .env_clear()
            .env("HOME", home.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (
            output.status.success(),
            text,
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    for client in [
        "opencode", "codex", "claude", "aider", "continue", "zed", "litellm", "curl",
    ] {
        let (is_ok, text, _) = print(&["--port", "4141", "--print-config", client]);
        assert!(is_ok && text.contains("127.0.0.1:4141"), "{client}: {text}");
        let file = home
            .path()
            .join(".local/state/cursor-sidecar/gateway-token");
        let token = std::fs::read_to_string(file).unwrap();
        assert!(
            !text.contains(token.trim()) && text.contains("gateway-token"),
            "{text}"
        );
    }
    let (is_ok, _, error) = print(&["--print-config", "codex"]);
    assert!(!is_ok && error.contains("--port"), "{error}");
}
