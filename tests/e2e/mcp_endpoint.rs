//! The loopback MCP endpoint of a live run: real clients, and requests it must reject.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::JoinHandle;

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value as Json, json};

use test_support::official_client::{OfficialClient, assert_finished, only_send};
use test_support::root;
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};

/// A run that stays open because the host has not answered its first call.
pub struct OpenRun {
    pub simulator: Simulator,
    pub session: RpcSession,
    turn: String,
    /// The call that keeps the run open.
    first: Json,
    pub at: McpAddress,
    /// The number of runs so far, including this one.
    runs: usize,
}

#[derive(Clone)]
pub struct McpAddress {
    pub url: String,
    pub token: String,
}

impl OpenRun {
    pub fn open() -> Self {
        Self::with(&[])
    }

    /// The same with additional environment variables.
    pub fn with(env: &[(&str, &str)]) -> Self {
        let steps = Steps::new()
            .then(calls("look", "{}", "timeout_ms = 200000,", &text("42")))
            .text("Done.")
            .then(END)
            .build();
        let simulator = playing(Transport::H2c, &steps);
        let mut session = RpcSession::new(&simulator, "s", &[]);
        let mut all = vec![
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
            ("CURSOR_API_KEY", "crsr_test"),
        ];
        all.extend_from_slice(env);
        session.host = SidecarProcess::start(&all);
        let params = json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "test"},
                            "capabilities": {"tools": "inline"}});
        session.host.call("initialize", params);
        session.tools = vec![tool("look"), tool("read")];
        assert_eq!(endpoint(&mut session), Json::Null, "there is no run");
        let (turn, first, at) = begin(&mut session);
        Self {
            simulator,
            session,
            turn,
            first,
            at,
            runs: 1,
        }
    }

    /// Starts another run of the same session, after [`Self::finish`].
    pub fn again(&mut self) {
        (self.turn, self.first, self.at) = begin(&mut self.session);
        self.runs += 1;
    }

    pub fn answer(&mut self, call: &Json, text: &str) {
        let content = json!({"content": [{"type": "text", "text": text}],
                             "structuredContent": {"said": text}});
        let answer = json!({"jsonrpc": "2.0", "id": call["id"], "result": content});
        self.session.host.send(&answer);
    }

    /// Executes calls by echoing their `q`, up to the one whose `q` is `last`; returns their
    /// number.
    pub fn work(&mut self) -> usize {
        for done in 1.. {
            let call = self.session.host.receive();
            assert_eq!(call["method"], "tool/call", "{call}");
            assert_eq!(call["params"]["name"], "look");
            let q = call["params"]["arguments"]["q"]
                .as_str()
                .unwrap()
                .to_owned();
            self.answer(&call, &format!("saw {q}"));
            if q == "last" {
                return done;
            }
        }
        unreachable!()
    }

    /// Answers the first call, so that the run ends.
    pub fn finish(&mut self) {
        let first = self.first.clone();
        self.answer(&first, "42");
        let outcome = self.session.finish(&self.turn.clone());
        assert_eq!(
            (outcome.stop.as_str(), outcome.text.as_str()),
            ("stop", "Done.")
        );
        let played = vec!["completed"; self.runs];
        self.simulator.recorded().assert_played(&played);
        assert_eq!(endpoint(&mut self.session), Json::Null, "the run is over");
    }

    /// Sends a plain request and returns the status of the response.
    pub fn status(&self, heads: &[(&str, &str)], body: &str) -> u16 {
        knock(&self.at.url, heads, body)
    }
}

/// Starts a run, waits for its call, and returns the turn, the call and the endpoint.
fn begin(session: &mut RpcSession) -> (String, Json, McpAddress) {
    session.user("go");
    let turn = session.begin();
    let first = loop {
        let message = session.host.receive();
        if message["method"] == "tool/call" {
            break message;
        }
    };
    let address = endpoint(session);
    assert_eq!(
        address["tools"],
        json!([{"name": "pi__look", "hostName": "look"}])
    );
    assert_eq!(endpoint(session), address, "the same each time");
    let at = McpAddress {
        url: address["url"].as_str().unwrap().into(),
        token: address["token"].as_str().unwrap().into(),
    };
    (turn, first, at)
}

pub fn endpoint(session: &mut RpcSession) -> Json {
    let answer = session
        .host
        .call("bridge/endpoint", json!({"sessionId": "s"}));
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"]["endpoint"].clone()
}

pub fn knock(url: &str, heads: &[(&str, &str)], body: &str) -> u16 {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let mut head = format!("POST /{path} HTTP/1.1\r\nConnection: close\r\n");
    let mut named = false;
    for (name, value) in heads {
        named |= *name == "Host";
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !named {
        head.push_str(&format!("Host: {host}\r\n"));
    }
    if !heads.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str(
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n",
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

async fn client(at: &McpAddress) -> RunningService<RoleClient, ()> {
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(at.url.clone()).auth_header(at.token.clone());
    config.max_concurrent_requests = 512;
    ().serve(StreamableHttpClientTransport::from_config(config))
        .await
        .unwrap()
}

fn look(q: &str) -> CallToolRequestParams {
    let arguments = json!({ "q": q }).as_object().cloned().unwrap();
    CallToolRequestParams::new("pi__look").with_arguments(arguments)
}

/// Runs a future on another thread while the host is served here.
pub fn beside<Given: Send + 'static>(
    work: impl Future<Output = Given> + Send + 'static,
) -> JoinHandle<Given> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work)
    })
}

/// Runs the MCP inspector's command line with these arguments.
fn inspector(at: &McpAddress, arguments: &[&str]) -> Json {
    let output = std::process::Command::new(root().join("tests/official/node_modules/.bin/node"))
        .arg(root().join("tests/inspector/node_modules/.bin/mcp-inspector"))
        .args(["--cli", &at.url, "--transport", "http"])
        .args(["--header", &format!("Authorization: Bearer {}", at.token)])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_inspector_lists_and_calls() {
    let mut run = OpenRun::open();
    let listed = inspector(&run.at, &["--method", "tools/list"]);
    assert_eq!(listed["tools"][0]["name"], "pi__look");
    let at = run.at.clone();
    let called = std::thread::spawn(move || {
        let call = ["--tool-name", "pi__look", "--tool-arg", "q=last"];
        inspector(&at, &[&["--method", "tools/call"][..], &call].concat())
    });
    assert_eq!(run.work(), 1);
    let content = json!([{"type": "text", "text": "saw last"}]);
    assert_eq!(called.join().unwrap()["content"], content);
    run.finish();
}

#[test]
fn the_rust_client_lists_and_calls() {
    let mut run = OpenRun::open();
    let at = run.at.clone();
    let outside = beside(async move {
        let client = client(&at).await;
        let tools = client.list_all_tools().await.unwrap();
        let unknown = client
            .call_tool(CallToolRequestParams::new("pi__read"))
            .await;
        let result = client.call_tool(look("last")).await.unwrap();
        (
            serde_json::to_value(tools).unwrap(),
            serde_json::to_value(unknown.unwrap()).unwrap(),
            serde_json::to_value(result).unwrap(),
        )
    });
    assert_eq!(run.work(), 1);
    let (tools, unknown, result) = outside.join().unwrap();
    assert_eq!(tools.as_array().unwrap().len(), 1, "{tools}");
    assert_eq!(tools[0]["name"], "pi__look");
    assert_eq!(tools[0]["_meta"]["piToolName"], "look");
    let described = tools[0]["description"].as_str().unwrap();
    assert!(described.starts_with("does look"), "{described}");
    assert!(described.contains("pi__look"), "{described}");
    assert_eq!(unknown["isError"], true, "{unknown}");
    assert_eq!(result["content"][0]["text"], "saw last", "{result}");
    assert_eq!(result["structuredContent"]["said"], "saw last", "{result}");
    run.finish();
}

#[test]
fn the_official_client_lists_and_calls() {
    let mut run = OpenRun::open();
    let named = |q: &str| json!({"name": "pi__look", "arguments": {"q": q}});
    let mut asked: Vec<Json> = (0..20).map(|n| named(&n.to_string())).collect();
    asked.push(json!({"name": "nobody"}));
    asked.push(named("last"));
    let spec = json!({"url": run.at.url, "token": run.at.token, "calls": asked});
    let simulator = Simulator::responder(Transport::Http1);
    let outside =
        std::thread::spawn(move || OfficialClient::new().run("mcp-client.mjs", &simulator, &spec));
    // They were sent concurrently, so the last need not arrive last.
    let mut done = 0;
    while done < 21 {
        let call = run.session.host.receive();
        let q = call["params"]["arguments"]["q"]
            .as_str()
            .unwrap()
            .to_owned();
        run.answer(&call, &format!("saw {q}"));
        done += 1;
    }
    let report = outside.join().unwrap();
    assert_eq!(report["server"]["name"], "cursor-sidecar", "{report}");
    assert_eq!(report["tools"][0]["name"], "pi__look", "{report}");
    for n in 0..20 {
        let shown = &report["results"][n]["content"][0]["text"];
        assert_eq!(*shown, format!("saw {n}"), "{report}");
    }
    assert_eq!(report["results"][20]["isError"], true, "{report}");
    run.finish();
}

#[test]
fn the_official_sdk_uses_it_as_a_server_of_its_own() {
    let mut run = OpenRun::open();
    let steps = r#"{ exec = { mcpArgs = { name = "ours-pi__look", providerIdentifier = "ours", toolName = "pi__look", toolCallId = "c", args = { q = "last" } } }, expect = { mcpResult = { success = { content = [ { text = { text = "saw last" } } ] } } } }, { text = "Seen." }, { usage = { inputTokens = 1, outputTokens = 1, cacheReadTokens = 0, cacheWriteTokens = 0 } }, { checkpoint = "auto" }, { end = true }"#;
    let other = playing(Transport::Http1, steps);
    let server = json!({"type": "http", "url": run.at.url,
                        "headers": {"Authorization": format!("Bearer {}", run.at.token)}});
    let spec = json!({"agent": {"mcpServers": {"ours": server}},
                      "sends": [{"text": "go"}], "deadlineMs": 50_000});
    let outside = std::thread::spawn(move || {
        let report = OfficialClient::new().drive(&other, spec);
        other.recorded().assert_played(&["completed"]);
        report
    });
    assert_eq!(run.work(), 1);
    assert_finished(only_send(&outside.join().unwrap()), "Seen.");
    run.finish();
}

#[test]
fn requests_without_the_token_are_refused() {
    let mut run = OpenRun::open();
    let bearer = format!("Bearer {}", run.at.token);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let port = run.at.url.split(['/', ':']).nth(4).unwrap().to_owned();
    let auth = ("Authorization", bearer.as_str());
    assert_eq!(run.status(&[], list), 401);
    assert_eq!(run.status(&[("Authorization", "Bearer wrong")], list), 401);
    assert_eq!(run.status(&[auth, ("Host", "evil.com")], list), 403);
    let rebound = format!("evil.com:{port}");
    assert_eq!(run.status(&[auth, ("Host", &rebound)], list), 403);
    assert_eq!(
        run.status(&[auth, ("Origin", "https://evil.com")], list),
        403
    );
    assert_eq!(run.status(&[auth, ("Origin", "null")], list), 403);
    assert_eq!(run.status(&[auth, ("Content-Length", "99999999")], ""), 413);
    let elsewhere = format!("http://127.0.0.1:{port}/mcp/6d9a7c50-0000-4000-8000-000000000000");
    assert_eq!(knock(&elsewhere, &[auth], list), 404);
    // Authorized, but without a session: this is rmcp's own response.
    assert_eq!(run.status(&[auth], list), 400);
    run.finish();
    assert_eq!(run.status(&[auth], list), 410);
}

#[test]
fn a_caller_that_waits_when_the_run_ends_gets_an_error() {
    let mut run = OpenRun::open();
    let at = run.at.clone();
    let outside = beside(async move { client(&at).await.call_tool(look("x")).await });
    let call = run.session.host.receive();
    assert_eq!(call["params"]["arguments"]["q"], "x");
    run.finish();
    let error = outside.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}

/// Calls that arrive while the run is parked are offered in the next turn.
#[test]
fn a_parked_run_offers_the_calls_with_the_next_turn() {
    let steps = Steps::new()
        .then(calls("look", "{}", "", &text("42")))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let mut outcome = session.prompt("go");
    let first = outcome.calls[0].clone();
    let address = endpoint(&mut session);
    let at = McpAddress {
        url: address["url"].as_str().unwrap().into(),
        token: address["token"].as_str().unwrap().into(),
    };
    let outside = beside(async move { client(&at).await.call_tool(look("out")).await });
    // Calls without a result are offered again, together with new ones.
    while outcome.calls.len() < 2 {
        outcome = session.turn();
        assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    }
    let other = outcome
        .calls
        .iter()
        .find(|call| call.id != first.id)
        .unwrap();
    assert_eq!(other.arguments, json!({"q": "out"}));
    session.result(&first, json!("42"));
    session.result(other, json!("out there"));
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "Done.")
    );
    let result = serde_json::to_value(outside.join().unwrap().unwrap()).unwrap();
    assert_eq!(result["content"][0]["text"], "out there");
    simulator.recorded().assert_played(&["completed"]);
}

/// A real client with its full overhead per call; `endpoint_crowd` has more concurrent calls.
#[test]
fn two_thousand_calls_of_one_client_are_all_answered() {
    let mut run = OpenRun::open();
    let at = run.at.clone();
    let outside = beside(async move {
        let client = client(&at).await;
        let mut asked = tokio::task::JoinSet::new();
        for n in 0..2_000 {
            let peer = client.peer().clone();
            asked.spawn(async move { peer.call_tool(look(&n.to_string())).await });
        }
        while let Some(answer) = asked.join_next().await {
            answer.unwrap().unwrap();
        }
        client.call_tool(look("last")).await.unwrap();
    });
    assert_eq!(run.work(), 2_001);
    outside.join().unwrap();
    if let Some(kib) = run.session.host.peak_kib() {
        assert!(kib < 400 * 1024, "{kib} KiB");
    }
    run.finish();
}
