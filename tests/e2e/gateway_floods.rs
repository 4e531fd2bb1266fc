//! Slow, endless and too many requests: on every route of the gateway, through the real binary.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value as Json, json};

use test_support::gateway::GatewayProcess;
use test_support::scenario::{Steps, playing};
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until_named;

/// A route, and whether it reads a body.
struct FloodRoute {
    method: &'static str,
    path: &'static str,
    has_body: bool,
    /// The status of a request whose body is not read.
    status: u16,
}

const fn route(method: &'static str, path: &'static str, status: u16) -> FloodRoute {
    FloodRoute {
        method,
        path,
        has_body: status == 0,
        status,
    }
}

/// Every route but the page's events, which have no end.
const ROUTES: [FloodRoute; 12] = [
    route("POST", "/v1/chat/completions", 0),
    route("POST", "/v1/responses", 0),
    route("POST", "/v1/messages", 0),
    route("POST", "/v1/messages/count_tokens", 0),
    route("GET", "/v1/models", 200),
    route("GET", "/v1/models/composer-2", 200),
    route("GET", "/health", 200),
    route("GET", "/metrics", 200),
    route("GET", "/", 200),
    route("POST", "/status/sign-in", 204),
    route("POST", "/status/sign-out", 204),
    route("GET", "/nowhere", 404),
];

const MIB: usize = 1024 * 1024;
/// The most memory the gateway may use for all of these requests.
const MOST_MIB: u64 = 200;

impl FloodRoute {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Returns the head of a request with the token.
    fn head(&self, gateway: &GatewayProcess, more: &str) -> String {
        format!(
            "{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nx-api-key: {}\r\nConnection: close\r\n{more}\r\n",
            self.method,
            self.path,
            gateway.port(),
            gateway.token
        )
    }

    /// Checks a response: its status, and the form of an error.
    fn assert_answer(&self, answer: &str, status: u16) {
        let name = self.name();
        let wanted = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&wanted), "{name}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        if status >= 400 {
            let error: Json = serde_json::from_str(body).unwrap();
            let is_anthropic = self.path.starts_with("/v1/messages");
            assert_eq!(error["type"] == "error", is_anthropic, "{name}: {error}");
            assert!(error["error"]["message"].is_string(), "{name}: {error}");
        }
    }
}

/// Reads to the end. A connection that is closed while we still send may end with a reset.
fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(answer).unwrap()
}

fn begin(gateway: &GatewayProcess, text: &str) -> TcpStream {
    let mut stream = gateway.connect();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Waits for the limits of time, which are 10 s for a head and 30 s for a body, on all routes at
/// once. Routes without a body do not wait for one.
#[test]
fn slow_requests_end_on_every_route() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let begun: Vec<(&FloodRoute, TcpStream, TcpStream)> = ROUTES
        .iter()
        .map(|route| {
            let head = route.head(&gateway, "Content-Length: 1000\r\n");
            let body = begin(&gateway, &format!("{head}{{\"model\":"));
            let half = head.split_at(head.len() / 2).0;
            (route, body, begin(&gateway, half))
        })
        .collect();
    for (route, mut slow_body, mut slow_head) in begun {
        let ended = read_all(&mut slow_head);
        assert!(!ended.contains("200 OK"), "{}: {ended}", route.name());
        let status = if route.has_body { 408 } else { route.status };
        route.assert_answer(&read_all(&mut slow_body), status);
    }
    assert_eq!(simulator.recorded().runs(), 0);
}

/// Declared and undeclared bodies of any length, and heads without end.
#[test]
fn endless_requests_end_on_every_route() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let chunk = format!("{:x}\r\n{}\r\n", MIB, " ".repeat(MIB));
    for route in &ROUTES {
        let status = if route.has_body { 413 } else { route.status };
        let declared = route.head(&gateway, "Content-Length: 999999999999\r\n");
        route.assert_answer(&read_all(&mut begin(&gateway, &declared)), status);
        let head = route.head(&gateway, "Transfer-Encoding: chunked\r\n");
        let mut stream = begin(&gateway, &head);
        let mut writer = stream.try_clone().unwrap();
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Ends when the gateway closes the connection.
                while writer.write_all(chunk.as_bytes()).is_ok() {}
            });
            let answer = read_all(&mut stream);
            let _ = stream.shutdown(std::net::Shutdown::Both);
            answer
        });
        route.assert_answer(&answer, status);
        let mut stream = begin(
            &gateway,
            &route.head(&gateway, "").replace("\r\n\r\n", "\r\n"),
        );
        let line = format!("x-more: {}\r\n", "a".repeat(1000));
        while stream.write_all(line.as_bytes()).is_ok() {}
        let answer = read_all(&mut stream);
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 431 ");
        assert!(is_refused, "{}: {answer}", route.name());
    }
    let peak = gateway.peak_kib();
    assert!(peak.is_some() || !cfg!(target_os = "linux"), "not measured");
    let peak = peak.unwrap_or_default() / 1024;
    assert!(peak <= MOST_MIB, "{peak} MiB");
    assert_eq!(simulator.recorded().runs(), 0);
}

/// Connections beyond the limit get an answer at once, and the gateway serves again when others
/// have ended. The open ones are turns without an end, because an idle connection is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn too_many_connections_are_refused_with_a_hint_on_every_route() {
    let steps = Steps::new()
        .text("Half. ")
        .step(json!({"expect_cancel": true, "timeout_ms": 600_000}))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    // Three quarters of the files are for connections.
    let gateway = GatewayProcess::with_files(&simulator, 128);
    let mut chat = gateway.chat();
    chat.user("go");
    let body = chat.body();
    let begin = async |_| {
        let mut answer = chat.send(&body).await;
        assert!(answer.chunk().await.unwrap().is_some());
        answer
    };
    // The first turn connects to Cursor, which takes files that the others have no use for.
    let mut open = vec![begin(0).await];
    open.extend(futures_util::future::join_all((1..96).map(begin)).await);
    for route in &ROUTES {
        let answer = gateway.raw(&route.head(&gateway, ""));
        let is_anthropic = route.path.starts_with("/v1/messages");
        route.assert_answer(&answer, if is_anthropic { 529 } else { 503 });
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    open.truncate(60);
    for route in ROUTES.iter().filter(|route| !route.has_body) {
        let head = route.head(&gateway, "");
        let head = head.replace("Connection: close\r\n", "");
        let answer = until_named("a free connection", || {
            let answer = gateway.raw(&head);
            (!answer.starts_with("HTTP/1.1 503 ")).then_some(answer)
        });
        route.assert_answer(&answer, route.status);
        let closes = answer.contains("connection: close\r\n");
        assert!(closes, "an idle connection would block others: {answer}");
    }
}

/// Only so many pages may be open; the APIs are not affected.
#[test]
fn open_pages_are_limited() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let events = route("GET", "/status/events", 200);
    let head = events.head(&gateway, "");
    let open = || {
        let mut stream = begin(&gateway, &head);
        let mut first = [0; 16];
        stream.read_exact(&mut first).unwrap();
        assert!(first.starts_with(b"HTTP/1.1 200 "));
        stream
    };
    let mut pages: Vec<TcpStream> = (0..16).map(|_| open()).collect();
    events.assert_answer(&gateway.raw(&head), 503);
    let health = route("GET", "/health", 200);
    health.assert_answer(&gateway.raw(&health.head(&gateway, "")), 200);
    pages.pop();
    until_named("a page that may be opened", || {
        let mut stream = begin(&gateway, &head);
        let mut first = [0; 16];
        stream.read_exact(&mut first).unwrap();
        first.starts_with(b"HTTP/1.1 200 ").then_some(())
    });
}
