//! Ten thousand concurrent callers of the endpoint.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::mcp_endpoint::{McpAddress, OpenRun, beside};
use crate::mcp_endpoint_sessions::PlainClient;
use test_support::wait::until;

const CALLERS: usize = 10_000;
/// How many calls are opened at once; others wait until these are accepted.
const ABREAST: usize = 512;
/// MCP sessions the callers share.
const SESSIONS: usize = 20;
/// The most memory the sidecar may use per waiting call, in an unoptimized build.
const MAX_KIB: u64 = 32;

/// A call on its own connection, accepted and not answered yet.
struct AcceptedCall {
    n: usize,
    stream: TcpStream,
    response: String,
}

impl AcceptedCall {
    async fn begin(at: &McpAddress, session: &str, n: usize) -> Self {
        let (host, path) = at.url["http://".len()..].split_once('/').unwrap();
        let params = json!({"name": "pi__look", "arguments": {"q": n.to_string()}});
        let call = json!({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params});
        let (token, body) = (&at.token, call.to_string());
        let request = format!(
            "POST /{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Mcp-Session-Id: {session}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        while !response.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0, "{n}");
        }
        let response = String::from_utf8(response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{n}: {response}");
        Self {
            n,
            stream,
            response,
        }
    }

    /// Reads the rest and asserts that it is exactly this call's answer.
    async fn end(mut self) {
        self.stream
            .read_to_string(&mut self.response)
            .await
            .unwrap();
        let data = self
            .response
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        let answers: Vec<Json> = data
            .filter(|data| !data.trim().is_empty())
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        assert_eq!(answers.len(), 1, "{}: {}", self.n, self.response);
        assert_eq!(answers[0]["id"], self.n);
        let content = json!([{"type": "text", "text": format!("saw {}", self.n)}]);
        assert_eq!(answers[0]["result"]["content"], content, "{}", answers[0]);
    }
}

/// Raises the limit of open files, because this process holds the client ends of all connections.
fn make_room() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = CALLERS as u64 + 1000;
    if current.is_some_and(|now| now < wanted) {
        let current = Some(wanted);
        setrlimit(Resource::Nofile, Rlimit { current, maximum })
            .expect("this test needs 11,000 files: raise the limit (ulimit -Hn)");
    }
}

/// Returns the complete log lines about calls.
fn log_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| line.ends_with('\n') && line.contains(r#""event":"request_"#))
}

/// Parses a line: the event, and how many calls are pending after it.
fn event(line: &str) -> (String, usize) {
    let event: Json = serde_json::from_str(line).unwrap();
    let waiting = event["pendingCount"].as_u64().unwrap();
    let name = event["event"].as_str().unwrap().to_owned();
    (name, usize::try_from(waiting).unwrap())
}

/// Opens `count` calls, signals that all are accepted, and reads their answers.
async fn visit(at: McpAddress, count: usize, all_there: oneshot::Sender<()>) {
    let plain = PlainClient::new(&at);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(plain.session().await.unwrap());
    }
    let abreast = Arc::new(Semaphore::new(ABREAST));
    let mut coming = JoinSet::new();
    for n in 0..count {
        let (at, session) = (at.clone(), sessions[n % SESSIONS].clone());
        let abreast = Arc::clone(&abreast);
        coming.spawn(async move {
            let _turn = abreast.acquire().await.unwrap();
            AcceptedCall::begin(&at, &session, n).await
        });
    }
    let waiting = coming.join_all().await;
    // Listing the tools does not wait for the pending calls.
    let list = json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"});
    let listed = plain.post(Some(&sessions[0]), list).await;
    assert!(listed.text().await.unwrap().contains("pi__look"));
    all_there.send(()).unwrap();
    let mut going: JoinSet<()> = waiting.into_iter().map(AcceptedCall::end).collect();
    while let Some(ended) = going.join_next().await {
        ended.unwrap();
    }
}

/// All calls wait for the host before the first is answered. Each is sent and answered exactly
/// once, and their resources are released, so that later calls find room.
#[test]
fn ten_thousand_calls_wait_at_once_and_are_all_answered() {
    make_room();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bridge.jsonl");
    let mut run = OpenRun::with(&[
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1"),
        (
            "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
            file.to_str().unwrap(),
        ),
    ]);
    let host = &run.session.host;
    let (kib, files) = (host.resident_kib(), host.open_files());
    // Cursor's own call is pending all the time.
    let mut past = 1;
    let mut peaks = Vec::new();
    for count in [CALLERS, CALLERS / 2] {
        let (all_there, are_there) = oneshot::channel();
        let outside = beside(visit(run.at.clone(), count, all_there));
        are_there.blocking_recv().expect("all are let in");
        let read = || std::fs::read_to_string(&file).unwrap();
        until(|| (log_lines(&read()).count() >= past + count).then_some(()));
        let mut asked = vec![0; count];
        for _ in 0..count {
            let call = run.session.host.receive();
            assert_eq!(call["method"], "tool/call", "{call}");
            let q = call["params"]["arguments"]["q"]
                .as_str()
                .unwrap()
                .to_owned();
            asked[q.parse::<usize>().unwrap()] += 1;
            run.answer(&call, &format!("saw {q}"));
        }
        outside.join().unwrap();
        assert!(asked.iter().all(|times| *times == 1), "each once");
        let events: Vec<_> = log_lines(&read()).skip(past).map(event).collect();
        let (queued, resolved) = events.split_at(count);
        assert!(queued.iter().all(|(name, _)| name == "request_queued"));
        // Calls that arrive at the same time may be logged in another order.
        let most = queued.iter().map(|(_, waiting)| *waiting).max();
        assert_eq!(most, Some(count + 1), "all wait at once");
        assert_eq!(resolved.len(), count);
        assert!(resolved.iter().all(|(name, _)| name == "request_resolved"));
        let fewest = resolved.iter().map(|(_, waiting)| *waiting).min();
        assert_eq!(fewest, Some(1), "of theirs, none waits");
        past += events.len();
        peaks.extend(run.session.host.peak_kib());
        let host = &run.session.host;
        until(|| (host.open_files() <= files).then_some(()));
    }
    if let (Some(kib), [peak, later]) = (kib, &peaks[..]) {
        let (first, second) = (peak - kib, later - peak);
        let most = MAX_KIB * CALLERS as u64;
        assert!(first < most, "{first} KiB for {CALLERS} calls");
        // If no memory had been released, the second round would have used half as much as the
        // first.
        assert!(second < first / 4, "{first} KiB, then {second} KiB more");
    }
    run.finish();
}
