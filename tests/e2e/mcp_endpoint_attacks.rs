//! Hostile and mistaken clients of the endpoint.

use std::time::Duration;

use agent::turn::Stop;
use agent_tools::bridge::endpoint::McpEndpoint;
use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::mcp_endpoint::{McpAddress, OpenRun, beside, knock};
use crate::mcp_endpoint_sessions::PlainClient;
use test_support::in_process::{CancelAfter, END, InProcessSession, opened, simulating};
use test_support::rpc_session::tool;
use test_support::scenario::Steps;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

fn call(n: u32, q: &str) -> Json {
    let params = json!({"name": "pi__look", "arguments": {"q": q}});
    json!({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params})
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

impl McpAddress {
    /// Returns the authority and the path.
    fn parts(&self) -> (&str, &str) {
        let rest = self.url.strip_prefix("http://").unwrap();
        let slash = rest.find('/').unwrap();
        rest.split_at(slash)
    }

    /// Returns the head of a request that is accepted.
    fn head(&self, more: &str) -> String {
        let (host, path) = self.parts();
        format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Connection: close\r\n{more}\r\n\r\n",
            self.token
        )
    }

    /// Sends bytes and returns the whole response.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.parts().0).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }
}

/// Asserts that the next call the host receives is a valid one: none of the attempts before it came
/// through.
fn nothing_came_through(run: &mut OpenRun) {
    let plain = PlainClient::new(&run.at);
    let outside = beside(async move {
        let id = plain.session().await.unwrap();
        let answer = plain.post(Some(&id), call(1, "last")).await;
        answer.text().await.unwrap()
    });
    assert_eq!(run.work(), 1);
    assert!(outside.join().unwrap().contains("saw last"));
}

/// DNS rebinding: a page of another site whose name resolves to this machine, even if it knows the
/// port, path and token.
#[test]
fn a_rebound_host_name_is_refused() {
    let mut run = OpenRun::open();
    let bearer = format!("Bearer {}", run.at.token);
    let auth = ("Authorization", bearer.as_str());
    let (ours, path) = run.at.parts();
    let (ours, path) = (ours.to_owned(), path.to_owned());
    let port = ours.split_once(':').unwrap().1.to_owned();
    let names = [
        "evil.com",
        "127.0.0.1.evil.com",
        "localhost.evil.com",
        "0.0.0.0",
        "[::1]",
    ];
    for name in names {
        let host = format!("{name}:{port}");
        let origin = format!("http://{host}");
        for body in [HELLO, LIST] {
            let rebound = [auth, ("Host", host.as_str()), ("Origin", origin.as_str())];
            assert_eq!(run.status(&rebound, body), 403, "{name}");
            assert_eq!(run.status(&rebound[..2], body), 403, "{name}");
        }
    }
    let origin = format!("http://evil.com:{port}");
    assert_eq!(run.status(&[auth, ("Origin", &origin)], HELLO), 403);
    let two = [auth, ("Host", ours.as_str()), ("Host", "evil.com")];
    assert_eq!(run.status(&two, HELLO), 403);
    let elsewhere = "127.0.0.1:1";
    assert_eq!(run.status(&[auth, ("Host", elsewhere)], HELLO), 403);
    // The name in the request line takes precedence over the `Host` header.
    let line = format!("POST {path}");
    let absolute = format!("POST http://evil.com:{port}{path}");
    let request = run.at.head(&format!("Content-Length: {}", HELLO.len()));
    let request = request.replacen(&line, &absolute, 1) + HELLO;
    let at = run.at.clone();
    let response = beside(async move { at.exchange(request.as_bytes()).await });
    let response = response.join().unwrap();
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    // Local requests under the machine's own name are accepted.
    let own = format!("http://localhost:{port}");
    let host = format!("localhost:{port}");
    let allowed = [auth, ("Host", host.as_str()), ("Origin", own.as_str())];
    assert_eq!(run.status(&allowed, HELLO), 200);
    nothing_came_through(&mut run);
    run.finish();
}

/// Tool cards display what was executed. Neither their ids nor the tool that draws them can be
/// called, nor the host's own tool names, which are also displayed on cards.
#[test]
fn names_of_cards_cannot_be_called_as_tools() {
    let mut run = OpenRun::open();
    run.finish();
    run.session.tools.extend(["cursor", "bash"].map(tool));
    run.session.cards = vec!["read", "bash", "cursor"];
    run.again();
    let plain = PlainClient::new(&run.at);
    let outside = beside(async move {
        let id = plain.session().await.unwrap();
        let list = serde_json::from_str(LIST).unwrap();
        let listed = plain.post(Some(&id), list).await.text().await.unwrap();
        assert!(listed.contains("\"pi__look\""), "{listed}");
        for name in [
            "cursor",
            "pi__cursor",
            "bash",
            "cursor-replay-1-1-tool-1",
            "pi__cursor-replay-1-1-tool-1",
            "replay/result",
        ] {
            assert!(!listed.contains(&format!("\"{name}\"")), "{listed}");
            let params = json!({"name": name, "arguments": {"q": "x", "command": "x"}});
            let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params});
            let answer = plain.post(Some(&id), call).await.text().await.unwrap();
            assert!(answer.contains("\"isError\":true"), "{name}: {answer}");
        }
    });
    outside.join().unwrap();
    nothing_came_through(&mut run);
    run.finish();
}

#[test]
fn a_token_is_good_for_its_run_and_no_longer() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let mcp_session = beside(async move {
        let id = plain.session().await.unwrap();
        let listed = plain
            .post(Some(&id), serde_json::from_str(LIST).unwrap())
            .await;
        assert!(listed.text().await.unwrap().contains("pi__look"));
        id
    });
    let mcp_session = mcp_session.join().unwrap();
    let old = run.at.clone();
    let token = &old.token;
    for wrong in [
        "Bearer ".to_owned(),
        format!("Bearer {}", &token[1..]),
        format!("Bearer {}", &token[..token.len() - 1]),
        format!("Bearer {token}x"),
        format!("Bearer {}", token.to_uppercase()),
        format!("Basic {token}"),
        token.clone(),
    ] {
        let status = run.status(&[("Authorization", &wrong)], HELLO);
        assert_eq!(status, 401, "{wrong:?}");
    }
    run.finish();
    // The same requests again, byte by byte, after the run.
    let replay = call(7, "replayed").to_string();
    let bearer = format!("Bearer {token}");
    let auth = ("Authorization", bearer.as_str());
    let known = ("Mcp-Session-Id", mcp_session.as_str());
    for body in [HELLO, LIST, &replay] {
        assert_eq!(knock(&old.url, &[auth, known], body), 410);
        assert_eq!(knock(&old.url, &[auth], body), 410);
    }
    // And during the next run, which shares nothing with the last.
    run.again();
    assert_ne!(run.at.url, old.url);
    assert_ne!(run.at.token, old.token);
    assert_eq!(run.at.parts().0, old.parts().0, "the same server");
    let fresh = format!("Bearer {}", run.at.token);
    let fresh = ("Authorization", fresh.as_str());
    assert_eq!(run.status(&[auth, known], &replay), 401, "the old token");
    assert_eq!(run.status(&[fresh, known], &replay), 404, "the old session");
    assert_eq!(
        knock(&old.url, &[fresh, known], &replay),
        410,
        "the old path"
    );
    nothing_came_through(&mut run);
    run.finish();
}

/// The endpoint listens on one loopback address only and rejects requests that are not valid MCP
/// over HTTP.
#[test]
fn requests_without_the_token_are_refused_before_any_work() {
    let mut run = OpenRun::open();
    let (host, _) = run.at.parts();
    let port: u16 = host.split_once(':').unwrap().1.parse().unwrap();
    let listeners = |file: &str| {
        let table = std::fs::read_to_string(file).unwrap_or_default();
        let lines = table.lines().map(str::to_owned).collect::<Vec<_>>();
        let listening = lines.into_iter().filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(3) == Some(&"0A") && words[1].ends_with(&format!(":{port:04X}"))
        });
        listening.collect::<Vec<_>>()
    };
    if cfg!(target_os = "linux") {
        let own = listeners("/proc/net/tcp");
        assert_eq!(own.len(), 1, "{own:?}");
        assert!(own[0].contains("0100007F:"), "127.0.0.1: {own:?}");
        assert_eq!(listeners("/proc/net/tcp6"), [] as [String; 0]);
    }
    let at = run.at.clone();
    let response = beside(async move {
        let length = format!("Content-Length: {}", HELLO.len());
        let hello = at.head(&length) + HELLO;
        let plain = hello.replace("Accept: application/json, text/event-stream\r\n", "");
        let wrong = hello.replace("Content-Type: application/json", "Content-Type: text/plain");
        let put = hello.replacen("POST", "PUT", 1);
        [
            at.exchange(plain.as_bytes()).await,
            at.exchange(wrong.as_bytes()).await,
            at.exchange(put.as_bytes()).await,
        ]
    });
    let statuses = response
        .join()
        .unwrap()
        .map(|response| response[9..12].to_owned());
    assert_eq!(statuses, ["406", "415", "405"]);
    nothing_came_through(&mut run);
    run.finish();
}

/// Invalid requests are answered with an error that has their id.
#[test]
fn requests_that_are_not_calls_are_refused() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let rejected = beside(async move {
        let id = plain.session().await.unwrap();
        let mut wrong = call(7, "x");
        wrong["params"]["arguments"] = json!([1]);
        let bodies = [
            wrong.to_string(),
            "{".into(),
            "[]".into(),
            r#"{"id":1}"#.into(),
        ];
        let mut rejected = Vec::new();
        for body in bodies {
            let answer = plain.send(Some(&id), body).await;
            let status = answer.status().as_u16();
            let body: Json = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
            rejected.push((status, body["id"].clone(), body["error"].clone()));
        }
        rejected
    });
    let rejected = rejected.join().unwrap();
    let error = |code: i32, message: &str| json!({"code": code, "message": message});
    let none = error(-32600, "the body is not a JSON-RPC 2.0 message");
    assert_eq!(
        rejected,
        [
            (
                200,
                json!(7),
                error(-32602, "arguments: expected an object")
            ),
            (400, Json::Null, error(-32700, "the body is not JSON")),
            (400, Json::Null, none.clone()),
            (400, Json::Null, none),
        ]
    );
    nothing_came_through(&mut run);
    run.finish();
}

/// Requests that are too long are rejected, with and without a declared length, in the head and in
/// the body.
#[test]
fn bodies_that_are_too_long_are_refused() {
    const MOST: usize = 8 * 1024 * 1024;
    let mut run = OpenRun::open();
    let at = run.at.clone();
    let before = run.session.host.peak_kib();
    let outside = beside(async move {
        let rejected = at.head(&format!("Content-Length: {}", MOST + 1));
        let response = at.exchange(rejected.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
        // A client that does not declare the length.
        let piece = "x".repeat(64 * 1024);
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        let mut body = at.head("Transfer-Encoding: chunked");
        for _ in 0..MOST / piece.len() {
            body.push_str(&chunk);
        }
        body.push_str("1\r\nx\r\n");
        let response = at.exchange(body.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
        // The connection of a client that never stops sending is closed.
        let mut stream = TcpStream::connect(at.parts().0).await.unwrap();
        let head = at.head("Transfer-Encoding: chunked");
        stream.write_all(head.as_bytes()).await.unwrap();
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        let long = at.head(&format!("X-Long: {}", "x".repeat(32 * 1024)));
        let response = at.exchange(long.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
    });
    outside.join().unwrap();
    if let (Some(before), Some(peak)) = (before, run.session.host.peak_kib()) {
        let grown = peak - before;
        assert!(grown < 64 * 1024, "{grown} KiB");
    }
    nothing_came_through(&mut run);
    run.finish();
}

/// The clock is paused; the sockets are real.
#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_disconnected_and_others_are_served() {
    let steps = Steps::new()
        .then(opened("look", "a"))
        .step(json!({"await": ["a"], "timeout_ms": 900000}))
        .text("Done.")
        .then(END)
        .build();
    let (_sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let outcome = guest.prompt("go").await;
    assert_eq!(outcome.stop, Stop::ToolUse);
    let server = McpEndpoint::default();
    let gate = guest.session.external_calls().unwrap();
    let address = server.open(&gate).await.unwrap();
    drop(gate);
    let at = McpAddress {
        url: address.url.expose_secret().into(),
        token: address.token.expose_secret().into(),
    };
    tokio::time::pause();
    let start = Instant::now();
    // Sends `begin` and then a byte per second, forever.
    let trickle = async |begin: String| {
        let mut stream = TcpStream::connect(at.parts().0).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        let (mut reading, mut writing) = stream.split();
        let mut response = String::new();
        let dripping = async {
            while writing.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            // A client that keeps writing may see a reset instead of the response.
            _ = reading.read_to_string(&mut response) => {}
            () = dripping => {}
        }
        (response, start.elapsed().as_secs())
    };
    let served = async {
        for _ in 0..25 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let hello = at.head(&format!("Content-Length: {}", HELLO.len())) + HELLO;
            let response = at.exchange(hello.as_bytes()).await;
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
            assert!(response.contains("cursor-sidecar"), "{response}");
        }
    };
    let long = at.head("Content-Length: 1000000");
    let head = at.head("X-Slow: ").trim_end().to_owned();
    let (body, chunks, head, ()) = tokio::join!(
        trickle(long),
        trickle(at.head("Transfer-Encoding: chunked") + "f4240\r\n"),
        trickle(head),
        served
    );
    for (response, after) in [body, chunks] {
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
        assert!((29..=45).contains(&after), "after {after} s");
    }
    assert_eq!(head.0, "", "no request, no response");
    assert!((9..=20).contains(&head.1), "after {} s", head.1);
    tokio::time::resume();
    guest.result(&outcome.calls[0], "42");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "Done.")
    );
}

/// Of two waiting calls one is cancelled: the host receives the cancel, the other call is not
/// affected, and a late result for the cancelled one is discarded.
#[test]
fn a_withdrawn_call_is_not_answered() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let (both_there, are_there) = tokio::sync::oneshot::channel::<()>();
    let outside = beside(async move {
        let id = plain.session().await.unwrap();
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                            "params": {"requestId": 1, "reason": "enough"}});
        let ask = async |n: u32| {
            let answer = plain.post(Some(&id), call(n, &n.to_string())).await;
            answer.text().await.unwrap()
        };
        let taking_back = async {
            are_there.await.unwrap();
            plain.post(Some(&id), cancel).await.status()
        };
        tokio::join!(ask(1), ask(2), taking_back)
    });
    let mut calls = [run.session.host.receive(), run.session.host.receive()];
    calls.sort_by_key(|call| call["params"]["arguments"]["q"].to_string());
    both_there.send(()).unwrap();
    let cancel = run.session.host.receive();
    assert_eq!(cancel["method"], "$/cancelRequest", "{cancel}");
    assert_eq!(cancel["params"]["id"], calls[0]["id"]);
    run.answer(&calls[0], "late");
    run.answer(&calls[1], "saw 2");
    let (one, two, status) = outside.join().unwrap();
    assert_eq!(status, 202);
    let answers = |body: &str| {
        let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = data.filter(|data| !data.trim().is_empty());
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect::<Vec<Json>>()
    };
    assert_eq!(answers(&one), [] as [Json; 0], "{one}");
    let two = answers(&two);
    assert_eq!(two.len(), 1, "{two:?}");
    assert_eq!(
        (&two[0]["id"], &two[0]["result"]["content"][0]["text"]),
        (&json!(2), &json!("saw 2"))
    );
    nothing_came_through(&mut run);
    run.finish();
}

/// A client may initialize again, with or without its previous session.
#[test]
fn a_client_may_initialize_again() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let outside = beside(async move {
        let list: Json = serde_json::from_str(LIST).unwrap();
        let hello: Json = serde_json::from_str(HELLO).unwrap();
        let first = plain.session().await.unwrap();
        let again = plain.post(Some(&first), hello).await;
        assert_eq!(again.status(), 200);
        assert!(again.text().await.unwrap().contains("cursor-sidecar"));
        let second = plain.session().await.unwrap();
        assert_ne!(first, second);
        for id in [&first, &second] {
            let answer = plain.post(Some(id), list.clone()).await;
            assert_eq!(answer.status(), 200);
            assert!(answer.text().await.unwrap().contains("pi__look"));
        }
        let answer = plain.post(Some(&first), call(5, "last")).await;
        answer.text().await.unwrap()
    });
    assert_eq!(run.work(), 1);
    assert!(outside.join().unwrap().contains("saw last"));
    run.finish();
}
