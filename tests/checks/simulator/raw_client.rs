//! Minimal HTTP/1.1 and HTTP/2 clients for the tests, with messages as JSON.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use cursor_proto::DESCRIPTORS;
use cursor_proto::envelope::{self, Decoder, Encoding, Kind};
use cursor_sim::{Options, ScenarioSource, Sim};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Panics if `work` takes longer than 20 s.
pub(crate) async fn with_timeout<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .expect("the test timed out")
}

/// Starts a simulator that plays this scenario for every message.
pub(crate) async fn start_with(scenario: &str) -> Sim {
    start(Some(scenario)).await
}

/// Starts a plain-text simulator with one scenario or none.
pub(crate) async fn start(scenario: Option<&str>) -> Sim {
    start_with_options(scenario, Options::default()).await
}

/// Starts a TLS simulator with one scenario or none.
pub(crate) async fn start_tls(scenario: Option<&str>) -> Sim {
    let options = Options {
        tls: true,
        ..Options::default()
    };
    start_with_options(scenario, options).await
}

async fn start_with_options(scenario: Option<&str>, options: Options) -> Sim {
    let scenarios = scenario
        .map(|text| ScenarioSource::Toml {
            label: "test.toml".into(),
            text: text.into(),
        })
        .into_iter()
        .collect();
    Sim::start(Options {
        scenarios,
        ..options
    })
    .await
    .unwrap()
}

/// Returns a scenario with one run of these steps.
pub(crate) fn one_run(steps: &str) -> String {
    format!("name = \"t\"\n[[run]]\nsteps = [\n{steps}\n]\n")
}

pub(crate) fn descriptor(name: &str) -> MessageDescriptor {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).unwrap())
        .get_message_by_name(name)
        .unwrap()
}

pub(crate) fn encode(name: &str, json: &Value) -> Vec<u8> {
    DynamicMessage::deserialize(descriptor(name), json)
        .unwrap()
        .encode_to_vec()
}

pub(crate) fn decode(name: &str, bytes: &[u8]) -> Value {
    let message = DynamicMessage::decode(descriptor(name), bytes).unwrap();
    serde_json::to_value(&message).unwrap()
}

/// A response to an HTTP/1.1 request, read until the server closed the connection.
#[derive(Debug)]
pub(crate) struct Http1Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended regularly.
    pub(crate) complete: bool,
}

impl Http1Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Sends one request on a new connection.
pub(crate) async fn http1(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Http1Response {
    let stream = TcpStream::connect(address).await.unwrap();
    http1_on(stream, method, path, headers, body).await
}

/// Sends one request on this connection.
pub(crate) async fn http1_on<T>(
    mut stream: T,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Http1Response
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut raw = Vec::new();
    // A dropped connection may return an error; keep what was read before.
    let _ = stream.read_to_end(&mut raw).await;
    parse_reply(&raw)
}

fn parse_reply(raw: &[u8]) -> Http1Response {
    let split = raw
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("the response has a head");
    let head = String::from_utf8(raw[..split].to_vec())
        .unwrap()
        .to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &raw[split + 4..];
    let (body, complete) = if head.contains("transfer-encoding: chunked") {
        unchunk(rest)
    } else {
        (rest.to_vec(), true)
    };
    Http1Response {
        status,
        head,
        body,
        complete,
    }
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else {
            return (body, false);
        };
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        rest = &rest[end + 2..];
        if rest.len() < size + 2 {
            body.extend_from_slice(&rest[..rest.len().min(size)]);
            return (body, false);
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

/// Exchanges an API key for an access token.
pub(crate) async fn access_token(sim: &Sim) -> String {
    let headers = [
        ("authorization", "Bearer crsr_raw_client"),
        ("content-type", "application/json"),
    ];
    let reply = http1(
        sim.address(),
        "POST",
        "/auth/exchange_user_api_key",
        &headers,
        b"{}",
    )
    .await;
    assert_eq!(reply.status, 200);
    reply.json()["accessToken"].as_str().unwrap().to_owned()
}

/// Opens a TLS connection that trusts the simulator and offers these protocols.
pub(crate) async fn tls(sim: &Sim, alpn: &[&str]) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(sim.ca_pem().unwrap().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(sim.address()).await.unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
        .unwrap()
}

/// An HTTP/2 connection.
pub(crate) struct Http2Client {
    pub(crate) sender: SendRequest<Bytes>,
    /// How the connection ended.
    pub(crate) ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
    pub(crate) pings: h2::PingPong,
}

impl Http2Client {
    pub(crate) async fn connect(sim: &Sim) -> Self {
        Self::on(TcpStream::connect(sim.address()).await.unwrap()).await
    }

    pub(crate) async fn on<T>(stream: T) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, mut connection) = h2::client::handshake(stream).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        Self {
            sender,
            ended: tokio::spawn(connection),
            pings,
        }
    }

    /// Opens a stream.
    pub(crate) async fn open(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("http://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender = self.sender.clone().ready().await.unwrap();
        self.sender
            .send_request(request.body(()).unwrap(), false)
            .unwrap()
    }

    /// Sends a unary call; returns status and body.
    pub(crate) async fn unary(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> (u16, Vec<u8>) {
        let (response, mut send) = self.open(path, headers).await;
        send.send_data(body.into(), true).unwrap();
        let response = response.await.unwrap();
        let status = response.status().as_u16();
        let mut body = Vec::new();
        let mut stream = response.into_body();
        while let Some(data) = stream.data().await {
            body.extend_from_slice(&data.unwrap());
        }
        (status, body)
    }

    /// Starts a run with this request.
    pub(crate) async fn run(&mut self, token: &str, request: Value) -> ClientRun {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/connect+proto"),
            ("connect-protocol-version", "1"),
            ("connect-accept-encoding", "gzip"),
            ("x-request-id", "request-1"),
            ("x-blob-encryption-key", "00112233445566778899"),
        ];
        let (response, mut send) = self.open("/agent.v1.AgentService/Run", &headers).await;
        let message = json!({ "runRequest": request });
        let wire = envelope::encode(
            Kind::Message,
            &encode("agent.v1.AgentClientMessage", &message),
        );
        send.send_data(wire, false).unwrap();
        let response = response.await.unwrap();
        ClientRun {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.into_body(),
            send,
            decoder: Decoder::default(),
        }
    }
}

/// Returns a run request with this user message.
pub(crate) fn user_message(text: &str) -> Value {
    json!({
        "conversationState": {},
        "action": { "userMessageAction": { "userMessage": { "text": text } } },
        "mcpTools": {},
        "conversationId": "conversation-1",
        "requestedModel": { "modelId": "composer-2" },
        "runId": "run-1",
    })
}

/// The client side of a run.
pub(crate) struct ClientRun {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: RecvStream,
    pub(crate) send: SendStream<Bytes>,
    decoder: Decoder,
}

/// What a client receives on a run.
#[derive(Debug, PartialEq)]
pub(crate) enum StreamEvent {
    /// An `AgentServerMessage`.
    Message(Value),
    /// The end-of-stream envelope.
    End(Value),
    /// The body ended, possibly in the middle of an envelope.
    Closed { truncated: bool },
    /// The stream was reset or the connection lost, with this code if there was one.
    Broken(Option<u32>),
}

impl ClientRun {
    /// Returns the next event; skips heartbeats.
    pub(crate) async fn next(&mut self) -> StreamEvent {
        let heartbeat = json!({ "interactionUpdate": { "heartbeat": {} } });
        loop {
            match self.next_raw().await {
                StreamEvent::Message(message) if message == heartbeat => {}
                event => return event,
            }
        }
    }

    async fn next_raw(&mut self) -> StreamEvent {
        let encoding = match self.headers.get("connect-content-encoding") {
            Some(value) => Encoding::from_header(value.to_str().ok()).unwrap(),
            None => Encoding::Identity,
        };
        loop {
            if let Some(envelope) = self.decoder.next_envelope().unwrap() {
                let kind = envelope.kind();
                let payload = envelope.into_payload(encoding).unwrap();
                return match kind {
                    Kind::EndStream => StreamEvent::End(serde_json::from_slice(&payload).unwrap()),
                    Kind::Message => {
                        StreamEvent::Message(decode("agent.v1.AgentServerMessage", &payload))
                    }
                };
            }
            match self.body.data().await {
                Some(Ok(data)) => {
                    let _ = self.body.flow_control().release_capacity(data.len());
                    self.decoder.push(&data);
                }
                Some(Err(error)) => return StreamEvent::Broken(error.reason().map(u32::from)),
                None => {
                    return StreamEvent::Closed {
                        truncated: self.decoder.finish().is_err(),
                    };
                }
            }
        }
    }

    /// Returns the next message; panics on another event.
    pub(crate) async fn message(&mut self) -> Value {
        match self.next().await {
            StreamEvent::Message(message) => message,
            other => panic!("expected a message, got {other:?}"),
        }
    }

    /// Sends an `AgentClientMessage`.
    pub(crate) fn send_message(&mut self, message: Value) {
        let wire = envelope::encode(
            Kind::Message,
            &encode("agent.v1.AgentClientMessage", &message),
        );
        self.send.send_data(wire, false).unwrap();
    }

    /// Answers a KV request with the blobs in `blobs`.
    pub(crate) fn answer_kv(&mut self, request: &Value, blobs: &mut BlobMap) {
        let id = request["id"].clone();
        let answer = if let Some(set) = request.get("setBlobArgs") {
            let key = set["blobId"].as_str().unwrap().to_owned();
            let data = set["blobData"].as_str().unwrap_or_default().to_owned();
            blobs.insert(key, data);
            json!({ "id": id, "setBlobResult": {} })
        } else {
            match blobs.get(request["getBlobArgs"]["blobId"].as_str().unwrap()) {
                Some(data) => json!({ "id": id, "getBlobResult": { "blobData": data } }),
                None => json!({ "id": id, "getBlobResult": {} }),
            }
        };
        self.send_message(json!({ "kvClientMessage": answer }));
    }
}

/// The blobs of a client: content by id, both in base64.
pub(crate) type BlobMap = std::collections::HashMap<String, String>;

/// Starts a run on a new plain HTTP/2 connection.
pub(crate) async fn run(sim: &Sim, text: &str) -> ClientRun {
    let token = access_token(sim).await;
    let mut connection = Http2Client::connect(sim).await;
    connection.run(&token, user_message(text)).await
}

/// Waits for the first verdict.
pub(crate) async fn verdict(sim: &Sim) -> cursor_sim::RunVerdict {
    let recording = sim.recording();
    with_timeout(recording.wait_for(|recording| recording.verdicts().into_iter().next())).await
}
