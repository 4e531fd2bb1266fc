//! Which session a request of the gateway belongs to, and that it survives restarts and pauses.

use serde_json::{Value as Json, json};

use test_support::api_client::ApiClient;
use test_support::gateway::{ChatClient, GatewayProcess, function};
use test_support::in_process::opened;
use test_support::scenario::{END, Steps, calls, playing, script, text};
use test_support::simulator::Transport;

/// A run that calls a tool and then answers.
fn looking() -> String {
    Steps::new()
        .then(opened("look", "look"))
        .wait_for(&["look"])
        .text("Done.")
        .then(END)
        .build()
}

fn with_tool(mut chat: ChatClient) -> ChatClient {
    chat.tools = vec![function("look", &["asked"])];
    chat
}

/// The id of a call names its session, so its result finds the session after a restart, although
/// the client sends no name.
#[tokio::test]
async fn a_result_finds_its_session_after_a_restart() {
    let second = Steps::new().text("It says 42.").then(END).build();
    let simulator = script(&[&looking(), &second]);
    let folder = tempfile::tempdir().unwrap();
    let state = [
        ("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
    ];
    let mut gateway = GatewayProcess::start(&simulator, &state);
    let mut chat = with_tool(gateway.chat());
    let asked = chat.prompt("go").await;
    let id = asked.calls[0]["id"].as_str().unwrap();
    assert!(id.starts_with("sess_u") && id.contains("__call_"), "{id}");
    assert!(gateway.end().success());
    let gateway = GatewayProcess::start(&simulator, &state);
    let mut again = with_tool(gateway.chat());
    again.messages = chat.messages;
    again.result(&asked.calls[0], "42");
    let answer = again.turn().await;
    assert_eq!(
        (answer.text.as_str(), answer.finish.as_str()),
        ("It says 42.", "stop"),
        "{answer:?}"
    );
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    assert_eq!(requests.len(), 2);
    let said = requests[1]["runRequest"]["action"].to_string();
    assert!(said.contains("42"), "the result was sent: {said}");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(id(0), id(1), "the conversation was found");
}

/// The client's model may change while it executes a tool.
#[tokio::test]
async fn another_model_in_a_pause_keeps_the_conversation() {
    let simulator = script(&[&looking(), &Steps::new().text("On.").then(END).build()]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let mut chat = with_tool(gateway.chat());
    let asked = chat.prompt("go").await;
    chat.result(&asked.calls[0], "42");
    let mut body = chat.body();
    body["model"] = json!("gpt-5.2");
    body["stream"] = json!(false);
    body["stream_options"] = Json::Null;
    let answer: Json = chat.send(&body).await.json().await.unwrap();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "Done.", "{answer}");
    chat.messages.push(message.clone());
    chat.user("and on");
    let mut body = chat.body();
    body["model"] = json!("gpt-5.2");
    assert_eq!(chat.send(&body).await.status(), 200);
    let recording = simulator.recording().await;
    let requests = recording.client("runRequest");
    let model = |n: usize| requests[n]["runRequest"]["requestedModel"]["modelId"].clone();
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!((requests.len(), id(0)), (2, id(1)));
    assert_ne!(model(0), model(1), "the next run has the new model");
}

/// `parallel_tool_calls: false`: calls that arrive together are sent one after another.
#[tokio::test]
async fn calls_are_sent_one_at_a_time_if_the_client_asks() {
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
    let client = ApiClient::new(&gateway);
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    let mut called = String::new();
    let answer = loop {
        let tools = ["a", "b", "c"].map(|name| function(name, &[]));
        let body = json!({"model": "composer-2", "messages": messages, "tools": tools,
                          "parallel_tool_calls": false});
        let reply = client.post("/v1/chat/completions", &body).await;
        let message = reply.body["choices"][0]["message"].clone();
        messages.push(message.clone());
        let Some(calls) = message["tool_calls"].as_array() else {
            break message;
        };
        assert_eq!(calls.len(), 1, "{message}");
        let name = calls[0]["function"]["name"].as_str().unwrap();
        called.push_str(name);
        messages.push(json!({"role": "tool", "tool_call_id": calls[0]["id"],
                             "content": name.to_uppercase()}));
    };
    assert_eq!(
        (called.as_str(), &answer["content"]),
        ("abc", &json!("done"))
    );
    let recording = simulator.recording().await;
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1, "one run");
}

/// Subagents and titles are sent under the name of the main session, while that waits for a tool.
#[tokio::test]
async fn requests_beside_a_session_do_not_change_its_run() {
    let simulator = script(&[&looking()]);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let tool = json!({"name": "look", "input_schema": {"type": "object"}});
    let name = [("x-claude-code-session-id", "window")];
    let ask = async |system: &str, messages: &[Json]| {
        let body = json!({"model": "composer-2", "max_tokens": 100, "system": system,
                          "messages": messages, "tools": [tool]});
        client.post_with("/v1/messages", &name, &body).await.body
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let main = ask("Code.", &[user("go")]).await;
    let agent = ask("Code.", &[user("search, subagent")]).await;
    let title = ask("Give it a title.", &[user("go")]).await;
    for (system, text, answer) in [
        ("Code.", "go", main),
        ("Give it a title.", "go", title),
        ("Code.", "search, subagent", agent),
    ] {
        let call = &answer["content"][0];
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": text});
        let messages = [
            user(text),
            json!({"role": "assistant", "content": answer["content"]}),
            json!({"role": "user", "content": [result]}),
        ];
        let answer = ask(system, &messages).await;
        assert_eq!(answer["content"][0]["text"], "Done.", "{answer}");
    }
    let recording = simulator.recording().await;
    assert_eq!(recording.client("runRequest").len(), 3, "one each");
    recording.assert_played(&["completed", "completed", "completed"]);
}

/// The model receives the folder of each client, not of the gateway.
#[tokio::test]
async fn each_session_has_the_folder_of_its_client() {
    let steps = Steps::new().context().text("ok").then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let body = json!({"model": "composer-2", "max_tokens": 100,
        "system": "You code.\n<env>\nWorking directory: /home/me/first\n</env>",
        "messages": [{"role": "user", "content": "go"}]});
    client.post("/v1/messages", &body).await;
    let body = json!({"model": "composer-2", "input": [
        {"role": "user", "content": "<environment_context>\n  <cwd>/home/me/second</cwd>\n</environment_context>"},
        {"role": "user", "content": "go"}]});
    client.post("/v1/responses", &body).await;
    let body = json!({"model": "composer-2", "messages": [{"role": "user", "content": "go"}]});
    let third = [("x-workspace", "/home/me/third")];
    client
        .post_with("/v1/chat/completions", &third, &body)
        .await;
    client.post("/v1/chat/completions", &body).await;
    let own = gateway.folder().canonicalize().unwrap();
    let folders = [
        "/home/me/first",
        "/home/me/second",
        "/home/me/third",
        own.to_str().unwrap(),
    ];
    let recording = simulator.recording().await;
    let contexts = recording.client("execClientMessage.requestContextResult");
    assert_eq!(contexts.len(), 4);
    for (context, folder) in contexts.iter().zip(folders) {
        let env = context.to_string();
        assert!(env.contains(&format!("\"{folder}\"")), "{folder}: {env}");
    }
}
