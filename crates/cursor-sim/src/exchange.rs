//! One HTTP request and its response as two channels, independent of the HTTP version.
//!
//! Routes and runs use these channels and never see a socket; `http1` and `http2` turn them
//! into bytes. Faults are parts of the response, so they stay in order with the data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use tokio::sync::mpsc;

use super::recording::RequestRecorder;

/// Response parts queued for a slow client before the sender has to wait.
pub(super) const RESPONSE_QUEUE: usize = 64;
/// Request body chunks queued for a busy run before the connection has to wait.
pub(super) const BODY_QUEUE: usize = 64;

/// The connection that carries a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientConnection {
    /// Ordinal of the connection, from 1.
    pub(super) number: u64,
    /// Whether it is encrypted.
    pub(super) tls: bool,
}

/// The request up to its body.
#[derive(Debug, Clone)]
pub(super) struct RequestHead {
    /// The HTTP version.
    pub(super) version: Version,
    pub(super) connection: ClientConnection,
    pub(super) method: Method,
    /// The path without its query.
    pub(super) path: String,
    /// The query, still encoded.
    pub(super) query: String,
    pub(super) headers: HeaderMap,
}

impl RequestHead {
    /// Copies the head of `request`.
    pub(super) fn new<B>(
        request: &http::Request<B>,
        version: Version,
        connection: ClientConnection,
    ) -> Self {
        Self {
            version,
            connection,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
        }
    }

    /// Returns a header, or `None` if it is missing or not text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[derive(Debug)]
pub(super) enum BodyChunk {
    /// Bytes.
    Data(Bytes),
    /// The client ended its side of the stream.
    End,
    /// The client reset the stream or the connection was lost.
    Broken,
}

/// A part of a response, in the order in which it is sent.
#[derive(Debug)]
pub(super) enum ResponsePart {
    /// Status and headers: always the first part, and exactly once.
    Head(ResponseHead),
    /// Body bytes.
    Data(Bytes),
    /// The regular end of the body.
    Finish,
    /// A stream reset with this code; HTTP/1.1 drops the connection instead.
    Reset(u32),
    /// GOAWAY with this code, after which the connection closes; HTTP/1.1 drops it.
    GoAway(u32),
    /// Drop the connection.
    Cut,
}

/// Status and headers of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Whether a body follows: data, then `Finish` or a fault. Otherwise the head ends the
    /// stream.
    pub(super) has_body: bool,
}

/// The client's flow-control window: whether the server still grants it capacity to send.
#[derive(Debug, Clone, Default)]
pub(super) struct SendWindow(Arc<AtomicBool>);

impl SendWindow {
    /// Stops granting capacity.
    pub(super) fn hold(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether granting capacity has stopped.
    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One request and the channel for its response.
#[derive(Debug)]
pub(super) struct IncomingRequest {
    pub(super) head: RequestHead,
    pub(super) body: mpsc::Receiver<BodyChunk>,
    pub(super) response: mpsc::Sender<ResponsePart>,
    /// The client's flow-control window.
    pub(super) window: SendWindow,
}

/// The ends of an [`IncomingRequest`]'s channels that its connection holds.
#[derive(Debug)]
pub(super) struct ConnectionSide {
    /// Where the connection puts the request's body.
    pub(super) body: mpsc::Sender<BodyChunk>,
    /// Where the connection gets the response.
    pub(super) response: mpsc::Receiver<ResponsePart>,
    /// The client's flow-control window.
    pub(super) window: SendWindow,
}

/// Creates the channels of a request; returns both sides.
pub(super) fn open(head: RequestHead) -> (IncomingRequest, ConnectionSide) {
    let (body_sender, body) = mpsc::channel(BODY_QUEUE);
    let (response, response_receiver) = mpsc::channel(RESPONSE_QUEUE);
    let window = SendWindow::default();
    (
        IncomingRequest {
            head,
            body,
            response,
            window: window.clone(),
        },
        ConnectionSide {
            body: body_sender,
            response: response_receiver,
            window,
        },
    )
}

/// Largest body that is read whole.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyReadError {
    /// The client disconnected.
    Disconnected,
    /// It exceeds the limit.
    TooLarge,
}

/// Reads a whole body.
pub(super) async fn read_body(
    body: &mut mpsc::Receiver<BodyChunk>,
) -> Result<Vec<u8>, BodyReadError> {
    let mut whole = Vec::new();
    loop {
        match body.recv().await {
            Some(BodyChunk::Data(data)) if whole.len() + data.len() > MAX_BODY => {
                return Err(BodyReadError::TooLarge);
            }
            Some(BodyChunk::Data(data)) => whole.extend_from_slice(&data),
            Some(BodyChunk::End) => return Ok(whole),
            Some(BodyChunk::Broken) | None => return Err(BodyReadError::Disconnected),
        }
    }
}

/// A complete response, as unary calls and rejected runs return it.
#[derive(Debug, Clone)]
pub(super) struct FullResponse {
    pub(super) status: u16,
    /// The headers, without `content-length`.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl FullResponse {
    /// Creates a response with this content type.
    pub(super) fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static(content_type),
        );
        Self {
            status,
            headers,
            body: body.into(),
        }
    }

    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// Adds a header; an invalid one is skipped.
    pub(super) fn with_header(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        ) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// Sends the response of one request and records its status.
#[derive(Debug)]
pub(super) struct ResponseSender {
    sender: mpsc::Sender<ResponsePart>,
    recorder: RequestRecorder,
}

/// The client disconnected, so nothing more can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disconnected;

impl ResponseSender {
    /// Creates a sender that records into `recorder`.
    pub(super) fn new(sender: mpsc::Sender<ResponsePart>, recorder: RequestRecorder) -> Self {
        Self { sender, recorder }
    }

    /// The request's entry in the recording.
    pub(super) fn recorder(&mut self) -> &mut RequestRecorder {
        &mut self.recorder
    }

    /// Sends status and headers.
    pub(super) async fn send_head(&mut self, head: ResponseHead) -> Result<(), Disconnected> {
        self.recorder.record_status(head.status);
        self.send(ResponsePart::Head(head)).await
    }

    /// Sends one part; waits while the queue is full because the client reads slowly.
    pub(super) async fn send(&self, part: ResponsePart) -> Result<(), Disconnected> {
        self.sender.send(part).await.map_err(|_| Disconnected)
    }

    /// Resolves when the client has disconnected.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Sends a complete response.
    pub(super) async fn send_full(&mut self, response: FullResponse) -> Result<(), Disconnected> {
        let mut headers = response.headers;
        headers.insert(
            http::header::CONTENT_LENGTH,
            HeaderValue::from(response.body.len()),
        );
        let has_body = !response.body.is_empty();
        self.send_head(ResponseHead {
            status: response.status,
            headers,
            has_body,
        })
        .await?;
        if !has_body {
            return Ok(());
        }
        self.send(ResponsePart::Data(response.body)).await?;
        self.send(ResponsePart::Finish).await
    }
}
