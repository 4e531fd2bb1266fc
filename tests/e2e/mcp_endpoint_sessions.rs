//! Clients of the endpoint that reconnect often, and clients that disconnect without notice.

use serde_json::{Value as Json, json};

use crate::mcp_endpoint::{McpAddress, OpenRun, beside, endpoint};
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::simulator::Transport;

/// A plain HTTP client, which opens no stream unless asked to.
#[derive(Clone)]
pub struct PlainClient {
    http: reqwest::Client,
    at: McpAddress,
}

impl PlainClient {
    pub fn new(at: &McpAddress) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let at = at.clone();
        Self { http, at }
    }

    fn request(&self, method: reqwest::Method, session: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.http.request(method, &self.at.url);
        let request = request
            .bearer_auth(&self.at.token)
            .header("accept", "application/json, text/event-stream");
        match session {
            Some(id) => request.header("mcp-session-id", id),
            None => request,
        }
    }

    pub async fn post(&self, session: Option<&str>, message: Json) -> reqwest::Response {
        let request = self.request(reqwest::Method::POST, session);
        request.json(&message).send().await.unwrap()
    }

    /// Sends a body as JSON, valid or not.
    pub async fn send(&self, session: Option<&str>, body: String) -> reqwest::Response {
        let request = self.request(reqwest::Method::POST, session);
        let request = request.header("content-type", "application/json");
        request.body(body).send().await.unwrap()
    }

    /// Opens the stream for messages that the server initiates.
    pub async fn listen(&self, session: &str) -> reqwest::Response {
        let request = self.request(reqwest::Method::GET, Some(session));
        request.send().await.unwrap()
    }

    pub async fn hello(&self) -> reqwest::Response {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
                            "clientInfo": {"name": "test", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        self.post(None, message).await
    }

    /// Opens a session and returns its id, or the status of the refusal.
    pub async fn session(&self) -> Result<String, u16> {
        let answer = self.hello().await;
        if answer.status() != 200 {
            assert!(answer.headers().contains_key("retry-after"), "{answer:?}");
            return Err(answer.status().as_u16());
        }
        let id = answer.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        answer.bytes().await.unwrap(); // else the session is in use
        let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answer = self.post(Some(&id), message).await;
        assert_eq!(answer.status(), 202);
        answer.bytes().await.unwrap();
        Ok(id)
    }
}

#[test]
fn idle_sessions_are_evicted_and_used_ones_stay() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let outside = beside(async move {
        let mut ids = Vec::new();
        for _ in 0..65 {
            ids.push(plain.session().await.unwrap());
        }
        assert_eq!(plain.listen(&ids[0]).await.status(), 404, "the oldest went");
        let mut streams = Vec::new();
        for id in &ids[1..] {
            let stream = plain.listen(id).await;
            assert_eq!(stream.status(), 200, "the others did not");
            streams.push(stream);
        }
        assert_eq!(plain.session().await, Err(503), "all are in use");
        drop(streams.remove(10));
        // The server notices the disconnect only when its socket does.
        while plain.session().await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(plain.listen(&ids[11]).await.status(), 404);
    });
    outside.join().unwrap();
    run.finish();
}

/// Sessions that are being opened count toward the limit, too.
#[test]
fn sessions_that_open_at_once_are_not_too_many() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let outside = beside(async move {
        let clients: Vec<_> = (0..200)
            .map(|_| {
                let plain = plain.clone();
                tokio::spawn(async move {
                    let answer = plain.hello().await;
                    let id = answer.headers().get("mcp-session-id");
                    let id = id.map(|id| id.to_str().unwrap().to_owned());
                    match id {
                        Some(id) => plain.listen(&id).await,
                        None => answer,
                    }
                })
            })
            .collect();
        let mut open = Vec::new();
        for client in clients {
            let answer = client.await.unwrap();
            match answer.status().as_u16() {
                200 => open.push(answer),
                404 | 503 => {}
                other => panic!("{other}"),
            }
        }
        assert!((1..=64).contains(&open.len()), "{}", open.len());
    });
    outside.join().unwrap();
    run.finish();
}

/// A call whose client has disconnected is not offered again.
#[test]
fn a_disconnected_mcp_client_cancels_its_call() {
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
    let plain = PlainClient::new(&McpAddress {
        url: address["url"].as_str().unwrap().into(),
        token: address["token"].as_str().unwrap().into(),
    });
    let (hang_up, hung_up) = tokio::sync::oneshot::channel::<()>();
    let outside = beside(async move {
        let id = plain.session().await.unwrap();
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                          "params": {"name": "pi__look", "arguments": {"q": "out"}}});
        let calling = async { plain.post(Some(&id), call).await.bytes().await };
        tokio::select! {
            answer = calling => panic!("{answer:?}"),
            _ = hung_up => {}
        }
    });
    while outcome.calls.len() < 2 {
        outcome = session.turn();
    }
    hang_up.send(()).unwrap();
    outside.join().unwrap();
    while outcome.calls.len() > 1 {
        outcome = session.turn();
    }
    assert_eq!(outcome.calls[0].id, first.id);
    session.result(&first, json!("42"));
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "Done.")
    );
    simulator.recorded().assert_played(&["completed"]);
}

/// Disconnected clients must not leave work for a host that executes during the turn: the host
/// receives a cancel for the call, whether the client disconnects or cancels it.
#[test]
fn an_inline_host_is_notified_when_a_caller_leaves() {
    let mut run = OpenRun::open();
    let plain = PlainClient::new(&run.at);
    let (next, mut address) = tokio::sync::mpsc::unbounded_channel::<()>();
    let outside = beside(async move {
        let id = plain.session().await.unwrap();
        let call = |n: u32| {
            let params = json!({"name": "pi__look", "arguments": {"q": n.to_string()}});
            json!({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params})
        };
        // The first client disconnects, the second cancels its call.
        let calling = async { plain.post(Some(&id), call(1)).await.bytes().await };
        tokio::select! {
            answer = calling => panic!("{answer:?}"),
            _ = address.recv() => {}
        }
        // Otherwise the next call could arrive before the cancel of this one.
        address.recv().await.unwrap();
        let taking_back = async {
            address.recv().await.unwrap();
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                                "params": {"requestId": 2, "reason": "enough"}});
            plain.post(Some(&id), cancel).await
        };
        let calling = async { plain.post(Some(&id), call(2)).await.bytes().await };
        let (_, answer) = tokio::join!(calling, taking_back);
        assert_eq!(answer.status(), 202);
    });
    for q in ["1", "2"] {
        let call = run.session.host.receive();
        assert_eq!(call["params"]["arguments"]["q"], q, "{call}");
        next.send(()).unwrap();
        let cancel = run.session.host.receive();
        assert_eq!(cancel["method"], "$/cancelRequest", "{cancel}");
        assert_eq!(cancel["params"]["id"], call["id"]);
        let _ = next.send(()); // nobody waits for the second
    }
    outside.join().unwrap();
    run.finish();
}
