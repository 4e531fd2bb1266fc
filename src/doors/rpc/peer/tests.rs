use jsonrpsee::RpcModule;
use jsonrpsee::types::ErrorObjectOwned;
use tokio::sync::Notify;

use super::*;

/// A connection to methods made for the test.
struct Host {
    send: mpsc::Sender<Inbound>,
    receive: mpsc::Receiver<Vec<u8>>,
    served: tokio::task::JoinHandle<Ended>,
    started: Arc<Notify>,
}

fn connect(queue: usize) -> Host {
    let (send, inbound) = mpsc::channel(16);
    let (out, receive) = mpsc::channel(queue);
    let started = Arc::new(Notify::new());
    let mut module = RpcModule::new(Arc::clone(&started));
    type Answer = Result<Json, ErrorObjectOwned>;
    module
        .register_async_method("initialize", |_, _, _| async { Answer::Ok(json!(1)) })
        .unwrap();
    module
        .register_async_method("shutdown", |_, _, _| async { Answer::Ok(Json::Null) })
        .unwrap();
    module
        .register_async_method("forever", |_, started, _| async move {
            started.notify_one();
            std::future::pending::<Answer>().await
        })
        .unwrap();
    module
        .register_async_method("panic", |_, _, _| async {
            let empty: Vec<Json> = Vec::new();
            Answer::Ok(empty[0].clone()) // out of bounds: a panic for the test
        })
        .unwrap();
    module
        .register_async_method("flood", |_, _, extensions| async move {
            let peer: Peer = extensions.get::<Peer>().unwrap().clone();
            for n in 0..1000 {
                peer.notify("n", n).await;
            }
            Answer::Ok(json!("done"))
        })
        .unwrap();
    module
        .register_async_method("ask", |_, _, extensions| async move {
            let peer: Peer = extensions.get::<Peer>().unwrap().clone();
            Answer::Ok(json!(peer.ask("question", json!({"a": 1})).await.ok()))
        })
        .unwrap();
    let served = tokio::spawn(serve(module.into(), Peer::new(out), inbound));
    Host {
        send,
        receive,
        served,
        started,
    }
}

impl Host {
    async fn say(&self, message: Json) {
        let body = message.to_string().into_bytes();
        self.send.send(Inbound::Body(body)).await.unwrap();
    }

    async fn call(&self, id: u32, method: &str) {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method}))
            .await;
    }

    async fn hear(&mut self) -> Json {
        serde_json::from_slice(&self.receive.recv().await.unwrap()).unwrap()
    }

    async fn ready(queue: usize) -> Self {
        let mut host = connect(queue);
        host.call(0, "initialize").await;
        assert_eq!(host.hear().await["result"], 1);
        host
    }

    async fn code(&mut self) -> (Json, i64) {
        let answer = self.hear().await;
        let code = answer["error"]["code"].as_i64();
        (
            answer["id"].clone(),
            code.unwrap_or_else(|| panic!("{answer}")),
        )
    }
}

#[tokio::test]
async fn initialize_comes_first_and_once() {
    let mut host = connect(8);
    host.call(1, "forever").await;
    assert_eq!(host.code().await, (json!(1), -32002));
    host.call(2, "initialize").await;
    assert_eq!(host.hear().await["result"], 1);
    host.call(3, "initialize").await;
    assert_eq!(host.code().await, (json!(3), -32600));
    host.call(4, "shutdown").await;
    assert_eq!(host.hear().await["id"], 4);
    host.call(5, "forever").await;
    assert_eq!(host.code().await, (json!(5), -32600));
    host.say(json!({"jsonrpc": "2.0", "method": "exit"})).await;
    assert_eq!(host.served.await.unwrap(), Ended::Orderly);
}

#[tokio::test]
async fn what_is_no_request_is_told_and_the_connection_lives() {
    let mut host = Host::ready(8).await;
    host.send
        .send(Inbound::Malformed("odd".into()))
        .await
        .unwrap();
    assert_eq!(host.code().await, (Json::Null, -32700));
    host.send.send(Inbound::Body(b"{".to_vec())).await.unwrap();
    assert_eq!(host.code().await, (Json::Null, -32700));
    host.say(json!([1])).await;
    assert_eq!(host.code().await, (Json::Null, -32600));
    host.say(json!({"jsonrpc": "2.0"})).await;
    assert_eq!(host.code().await, (Json::Null, -32600));
    for id in [json!({}), json!(-1), json!(1.5)] {
        host.say(json!({"id": id, "method": "forever"})).await;
        let (answered, code) = host.code().await;
        assert_eq!(code, -32600);
        assert_eq!(answered, id, "told by the id it came with");
    }
    host.call(1, "nothing").await;
    assert_eq!(host.code().await, (json!(1), -32601));
    host.call(2, "panic").await;
    assert_eq!(host.code().await, (json!(2), -32603));
    host.call(3, "flood").await;
    assert_eq!(host.hear().await["params"], 0);
}

#[tokio::test]
async fn cancelling_answers_at_once() {
    let mut host = Host::ready(8).await;
    host.call(1, "forever").await;
    host.started.notified().await;
    host.say(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}))
        .await;
    assert_eq!(host.code().await, (json!(1), -32800));
    // The id is free again.
    host.call(1, "forever").await;
    host.started.notified().await;
}

#[tokio::test]
async fn too_many_requests_are_told_to_come_back() {
    let mut host = Host::ready(8).await;
    for id in 0..MAX_IN_FLIGHT as u32 {
        host.call(id, "forever").await;
    }
    host.call(9999, "forever").await;
    assert_eq!(host.code().await, (json!(9999), -32001));
    host.call(5, "forever").await;
    assert_eq!(host.code().await, (json!(5), -32600), "an id in use");
}

#[tokio::test]
async fn order_is_kept_and_a_slow_reader_holds_the_method_back() {
    let mut host = Host::ready(4).await;
    host.call(1, "flood").await;
    for n in 0..1000 {
        assert_eq!(host.hear().await["params"], n);
    }
    assert_eq!(host.hear().await["result"], "done", "the answer comes last");
}

#[tokio::test]
async fn questions_to_the_host() {
    let mut host = Host::ready(8).await;
    host.call(1, "ask").await;
    let question = host.hear().await;
    assert_eq!(question["method"], "question");
    host.say(json!({"jsonrpc": "2.0", "id": question["id"], "result": 42}))
        .await;
    assert_eq!(host.hear().await["result"], 42);
    // A cancelled method takes its question back.
    host.call(2, "ask").await;
    let question = host.hear().await;
    host.say(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}}))
        .await;
    let mut heard = [host.hear().await, host.hear().await];
    heard.sort_by_key(|message| message.get("method").is_none());
    assert_eq!(heard[0]["params"]["id"], question["id"]);
    assert_eq!(heard[1]["error"]["code"], -32800);
}

#[tokio::test]
async fn the_end_of_the_input_is_the_end() {
    let host = Host::ready(8).await;
    host.call(1, "forever").await;
    drop(host.send);
    assert_eq!(host.served.await.unwrap(), Ended::Abrupt);
}
