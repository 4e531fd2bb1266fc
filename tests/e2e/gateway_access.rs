//! Access to every route of the gateway: token, `Host`, `Origin`, size and shape of the body.

use serde_json::{Value as Json, json};

use test_support::api_client::ApiClient;
use test_support::gateway::GatewayProcess;
use test_support::simulator::{Simulator, Transport};

const POST: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
];
const GET: [&str; 4] = ["/v1/models", "/v1/models/composer-2", "/health", "/metrics"];

/// The status page: its document, its events, and the exchange of the token for a cookie.
const PAGE: [(&str, &str); 4] = [
    ("GET", "/"),
    ("GET", "/status/events"),
    ("POST", "/status/sign-in"),
    ("POST", "/status/sign-out"),
];

/// A path that does not exist, which needs the token too.
const NOWHERE: (&str, &str) = ("GET", "/nowhere");

/// Token, `Host` and `Origin` are checked before the body is read.
#[tokio::test]
async fn every_route_refuses_requests_without_token_before_reading_their_body() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let (port, token) = (gateway.port(), gateway.token.as_str());
    let ours = format!("127.0.0.1:{port}");
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let key = format!("x-api-key: {token}\r\n");
    let routes = POST.map(|path| ("POST", path)).into_iter();
    let routes = routes.chain(GET.map(|path| ("GET", path))).chain(PAGE);
    let routes = routes.chain([NOWHERE]);
    for (method, path) in routes {
        // The body that is promised never comes.
        let length = if method == "POST" {
            "Content-Length: 9\r\n"
        } else {
            ""
        };
        let send = |host: &str, more: &str| {
            gateway.raw(&format!(
                "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}{more}\r\n"
            ))
        };
        let cases = [
            (send(&ours, ""), 401),
            (
                send(&ours, "Authorization: Bearer wrong-token-of-mine\r\n"),
                401,
            ),
            (send(&ours, "x-api-key: wrong-token-of-mine\r\n"), 401),
            (send(&ours, &format!("{key}{key}")), 401),
            (send("evil.com", &bearer), 403),
            (send(&format!("evil.com:{port}"), &key), 403),
            (
                send(&ours, &format!("{bearer}Origin: https://evil.com\r\n")),
                403,
            ),
            (send(&ours, &format!("{key}Origin: null\r\n")), 403),
            (send(&ours, "Cookie: cursor-sidecar=x\r\n"), 401),
            (
                send(&ours, &format!("Cookie: cursor-sidecar-{port}={token}\r\n")),
                401,
            ),
        ];
        for (answer, status) in cases {
            let wanted = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&wanted), "{method} {path}: {answer}");
            assert!(
                !answer.contains(token) && !answer.contains("access-control"),
                "{answer}"
            );
            assert!(!answer.contains("set-cookie"), "{answer}");
        }
        // Events have no end, and the page reads no body.
        if PAGE.contains(&(method, path)) || (method, path) == NOWHERE {
            continue;
        }
        if method == "POST" {
            let refused = gateway.raw(&format!(
                "POST {path} HTTP/1.1\r\nHost: {ours}\r\n{key}Connection: close\r\nContent-Length: 33554433\r\n\r\n"
            ));
            assert!(refused.starts_with("HTTP/1.1 413 "), "{path}: {refused}");
        } else {
            let answer = send(&ours, &key);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        }
    }
    assert_eq!(simulator.recording().await.runs(), 0);
}

#[tokio::test]
async fn a_body_of_another_shape_gets_400_without_names_of_our_types() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    for path in POST {
        let list = if path == "/v1/responses" {
            "input"
        } else {
            "messages"
        };
        let mut object = json!({"model": "composer-2"});
        let bodies = [
            json!([]),
            json!("hello"),
            json!(7),
            json!({}),
            json!({"model": 7}),
            object.clone(),
            {
                object[list] = json!({});
                object.clone()
            },
            {
                object[list] = json!([7]);
                object.clone()
            },
            {
                object[list] = json!([]);
                object
            },
        ];
        for body in bodies {
            let reply = client.post(path, &body).await;
            assert_eq!(reply.status, 400, "{path} {body}: {reply:?}");
            let message = reply.body["error"]["message"].as_str().unwrap();
            let is_plain = !message.contains("struct") && !message.contains("Raw");
            assert!(is_plain && !message.is_empty(), "{path} {body}: {message}");
        }
    }
    assert_eq!(simulator.recording().await.runs(), 0);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_named() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    for path in POST {
        let reply = client.get(path).await;
        assert_eq!(
            (reply.status, &reply.headers["allow"]),
            (405, &"POST".parse().unwrap())
        );
    }
    for path in GET {
        assert_eq!(client.post(path, &json!({})).await.status, 405, "{path}");
    }
    let reply = client.get("/v1/embeddings").await;
    assert_eq!(
        (reply.status, &reply.body["error"]["code"]),
        (404, &json!("unknown_url"))
    );
    let reply = client.get("/v1/messages/batches").await;
    assert_eq!(
        (reply.status, &reply.body["error"]["type"]),
        (404, &json!("not_found_error"))
    );
    let health: Json = client.get("/health").await.body;
    assert_eq!(health["status"], "ok");
}
