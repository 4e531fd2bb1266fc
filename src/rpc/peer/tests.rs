use jsonrpsee::RpcModule;
use jsonrpsee::types::ErrorObjectOwned;
use tokio::sync::Notify;

use super::*;
use agent::run::queue::{QueueBounds, queue};

/// A connection to methods made for the test.
struct TestHost {
    send: Sender<Inbound>,
    receive: mpsc::Receiver<QueuedItem<Vec<u8>>>,
    served: tokio::task::JoinHandle<ExitKind>,
    seen: Arc<MethodCalls>,
}

#[derive(Default)]
struct MethodCalls {
    started: Notify,
    /// How many messages of the flood were queued.
    sent: AtomicU64,
}

fn connect(items: usize, hung_up: fn() -> bool) -> TestHost {
    let bytes = 1024 * 1024;
    let (send, inbound) = queue(QueueBounds { items: 16, bytes });
    let (out, receive) = queue(QueueBounds { items, bytes });
    let seen = Arc::new(MethodCalls::default());
    let mut module = RpcModule::new(Arc::clone(&seen));
    type MethodResult = Result<Json, ErrorObjectOwned>;
    module
        .register_async_method("initialize", |_, _, _| async { MethodResult::Ok(json!(1)) })
        .unwrap();
    module
        .register_async_method("shutdown", |_, _, _| async { MethodResult::Ok(Json::Null) })
        .unwrap();
    module
        .register_async_method("forever", |_, seen, _| async move {
            seen.started.notify_one();
            std::future::pending::<MethodResult>().await
        })
        .unwrap();
    module
        .register_async_method("panic", |_, _, _| async {
            let empty: Vec<Json> = Vec::new();
            MethodResult::Ok(empty[0].clone()) // out of bounds: a panic for the test
        })
        .unwrap();
    module
        .register_async_method("flood", |_, seen, extensions| async move {
            let peer: Peer = extensions.get::<Peer>().unwrap().clone();
            for n in 0..1000 {
                peer.notify("n", n).await;
                seen.sent.fetch_add(1, Ordering::Relaxed);
            }
            MethodResult::Ok(json!("done"))
        })
        .unwrap();
    module
        .register_async_method("quick", |_, _, _| async {
            MethodResult::Ok(json!("x".repeat(100)))
        })
        .unwrap();
    module
        .register_async_method("ask", |_, _, extensions| async move {
            let peer: Peer = extensions.get::<Peer>().unwrap().clone();
            MethodResult::Ok(json!(peer.request("question", json!({"a": 1})).await.ok()))
        })
        .unwrap();
    let served = tokio::spawn(serve(
        module.into(),
        Peer::new(out),
        inbound,
        hung_up,
        std::future::pending(),
    ));
    TestHost {
        send,
        receive,
        served,
        seen,
    }
}

impl TestHost {
    async fn send(&self, message: Json) {
        self.put(Inbound::Body(message.to_string().into_bytes()))
            .await;
    }

    async fn put(&self, frame: Inbound) {
        let room = self.send.reserve(frame.size()).await;
        room.unwrap().put(frame);
    }

    async fn call(&self, id: u32, method: &str) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method}))
            .await;
    }

    async fn receive(&mut self) -> Json {
        serde_json::from_slice(&self.receive.recv().await.unwrap().item).unwrap()
    }

    async fn ready(items: usize) -> Self {
        let mut host = connect(items, || false);
        host.call(0, "initialize").await;
        assert_eq!(host.receive().await["result"], 1);
        host
    }

    async fn code(&mut self) -> (Json, i64) {
        let answer = self.receive().await;
        let code = answer["error"]["code"].as_i64();
        (
            answer["id"].clone(),
            code.unwrap_or_else(|| panic!("{answer}")),
        )
    }
}

#[tokio::test]
async fn initialize_comes_first_and_once() {
    let mut host = connect(8, || false);
    host.call(1, "forever").await;
    assert_eq!(host.code().await, (json!(1), -32002));
    host.call(2, "initialize").await;
    assert_eq!(host.receive().await["result"], 1);
    host.call(3, "initialize").await;
    assert_eq!(host.code().await, (json!(3), -32600));
    host.call(4, "shutdown").await;
    assert_eq!(host.receive().await["id"], 4);
    host.call(5, "forever").await;
    assert_eq!(host.code().await, (json!(5), -32600));
    host.send(json!({"jsonrpc": "2.0", "method": "exit"})).await;
    assert_eq!(host.served.await.unwrap(), ExitKind::Orderly);
}

#[tokio::test]
async fn an_invalid_message_is_refused_and_the_connection_stays_open() {
    let mut host = TestHost::ready(8).await;
    host.put(Inbound::Malformed("odd".into())).await;
    assert_eq!(host.code().await, (Json::Null, -32700));
    host.put(Inbound::Body(b"{".to_vec())).await;
    assert_eq!(host.code().await, (Json::Null, -32700));
    host.send(json!([1])).await;
    assert_eq!(host.code().await, (Json::Null, -32600));
    host.send(json!({"jsonrpc": "2.0"})).await;
    assert_eq!(host.code().await, (Json::Null, -32600));
    host.send(json!({"id": null})).await;
    assert_eq!(host.code().await, (Json::Null, -32600));
    // An error response to an invalid message is not answered.
    host.send(json!({"id": null, "error": {"code": -32700, "message": "what?"}}))
        .await;
    for id in [json!({}), json!(-1), json!(1.5), Json::Null] {
        host.send(json!({"id": id, "method": "forever"})).await;
        let (answered, code) = host.code().await;
        assert_eq!(code, -32600);
        assert_eq!(answered, id, "answered with its id");
    }
    host.call(1, "nothing").await;
    assert_eq!(host.code().await, (json!(1), -32601));
    host.call(2, "panic").await;
    assert_eq!(host.code().await, (json!(2), -32603));
    host.call(3, "flood").await;
    assert_eq!(host.receive().await["params"], 0);
}

#[tokio::test]
async fn cancelling_answers_at_once() {
    let mut host = TestHost::ready(8).await;
    host.call(1, "forever").await;
    host.seen.started.notified().await;
    host.send(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}))
        .await;
    assert_eq!(host.code().await, (json!(1), -32800));
    // The id can be used again.
    host.call(1, "forever").await;
    host.seen.started.notified().await;
}

#[tokio::test]
async fn too_many_requests_are_refused() {
    let mut host = TestHost::ready(8).await;
    for id in 0..MAX_IN_FLIGHT as u32 {
        host.call(id, "forever").await;
    }
    host.call(9999, "forever").await;
    assert_eq!(host.code().await, (json!(9999), -32001));
    host.call(5, "forever").await;
    assert_eq!(host.code().await, (json!(5), -32600), "an id in use");
}

#[tokio::test]
async fn order_is_kept_and_a_slow_reader_delays_the_method() {
    let mut host = TestHost::ready(4).await;
    host.call(1, "flood").await;
    // More than enough turns of the only thread to send everything.
    for _ in 0..5000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(host.seen.sent.load(Ordering::Relaxed), 4, "held back");
    for n in 0..1000 {
        assert_eq!(host.receive().await["params"], n);
    }
    assert_eq!(
        host.receive().await["result"],
        "done",
        "the answer comes last"
    );
}

#[tokio::test]
async fn requests_to_the_host_are_answered_or_cancelled() {
    let mut host = TestHost::ready(8).await;
    host.call(1, "ask").await;
    let question = host.receive().await;
    assert_eq!(question["method"], "question");
    host.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": 42}))
        .await;
    assert_eq!(host.receive().await["result"], 42);
    // A response that is too large is still a response.
    host.call(3, "ask").await;
    let id = host.receive().await["id"].to_string();
    let heading = MessageHeader::Answer { id };
    let length = 1 << 30;
    host.put(Inbound::TooLarge { length, heading }).await;
    assert_eq!(host.receive().await["result"], Json::Null);
    // A cancelled method cancels its request.
    host.call(2, "ask").await;
    let question = host.receive().await;
    host.send(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}}))
        .await;
    let mut received = [host.receive().await, host.receive().await];
    received.sort_by_key(|message| message.get("method").is_none());
    assert_eq!(received[0]["params"]["id"], question["id"]);
    assert_eq!(received[1]["error"]["code"], -32800);
}

#[tokio::test]
async fn the_end_of_the_input_ends_the_connection() {
    let host = TestHost::ready(8).await;
    host.call(1, "forever").await;
    drop(host.send);
    assert_eq!(host.served.await.unwrap(), ExitKind::Abrupt);
}

/// Each of them is answered, and none may keep the connection from reading the end.
#[tokio::test]
async fn unread_refusals_do_not_block_the_connection() {
    for ends_with in ["exit", "the end of the input"] {
        let host = TestHost::ready(4).await;
        for id in 0..1300 {
            host.call(id, "nothing").await;
        }
        if ends_with == "exit" {
            host.send(json!({"jsonrpc": "2.0", "method": "exit"})).await;
        } else {
            drop(host.send);
        }
        assert_eq!(host.served.await.unwrap(), ExitKind::Abrupt, "{ends_with}");
    }
    let mut host = TestHost::ready(4).await;
    for id in 0..1300 {
        host.call(id, "nothing").await;
    }
    let mut ids = std::collections::BTreeSet::new();
    while ids.len() < 1300 {
        let (id, code) = host.code().await;
        assert_eq!(code, -32601);
        ids.insert(id.as_u64().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_reads_nothing_and_disconnects_is_detected() {
    let mut host = connect(4, || true);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "m".repeat(50)}).to_string();
    let mut sent = 0;
    while let Some(room) = host.send.reserve(body.len()).await {
        room.put(Inbound::Body(body.clone().into_bytes()));
        sent += 1;
        assert!(sent < 50_000, "what is not read has no bound");
    }
    assert_eq!((&mut host.served).await.unwrap(), ExitKind::Abrupt);
}

#[tokio::test]
async fn unread_responses_count_as_active() {
    let mut host = TestHost::ready(4).await;
    let all = MAX_IN_FLIGHT as u32 + 100;
    for id in 0..all {
        host.call(id, "quick").await;
    }
    let mut refused = 0;
    for _ in 0..all {
        let answer = host.receive().await;
        refused += u32::from(answer["error"]["code"] == -32001);
    }
    assert!((90..=100).contains(&refused), "{refused} refused");
    host.call(1, "quick").await;
    assert!(host.receive().await["result"].is_string(), "room again");
}
