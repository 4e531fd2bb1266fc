//! One HTTP request and its reply as two channels, whatever the HTTP version.
//!
//! Routes and runs talk to this and never see a socket; `http1` and `http2` turn it into
//! bytes. Faults are replies like any other, so they keep their place in the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::sync::mpsc;

use super::recording::Ticket;

/// Replies a slow client may leave unread before the sender has to wait.
pub(super) const REPLY_QUEUE: usize = 64;
/// Request pieces that may wait for a busy run.
pub(super) const PIECE_QUEUE: usize = 64;

/// The HTTP version a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Whether the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// Plain text.
    Plain,
    /// TLS.
    Tls,
}

/// The connection a request came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// Ordinal of the connection, from 1.
    pub(super) connection: u64,
    /// Plain or TLS.
    pub(super) security: Security,
}

/// Everything before the body.
#[derive(Debug, Clone)]
pub(super) struct RequestHead {
    /// The HTTP version.
    pub(super) version: Version,
    /// The connection.
    pub(super) peer: Peer,
    /// The method.
    pub(super) method: Method,
    /// The path without its query.
    pub(super) path: String,
    /// The query, still encoded.
    pub(super) query: String,
    /// The headers.
    pub(super) headers: HeaderMap,
}

impl RequestHead {
    /// Reads the head of a request.
    pub(super) fn new<B>(request: &http::Request<B>, version: Version, peer: Peer) -> Self {
        Self {
            version,
            peer,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
        }
    }

    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A piece of a request body.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes.
    Data(Bytes),
    /// The client finished its side.
    End,
    /// The client reset the stream or the connection is gone.
    Broken,
}

/// What goes back, in order.
#[derive(Debug)]
pub(super) enum Reply {
    /// Status and headers; first, and once.
    Head(ReplyHead),
    /// Body bytes.
    Data(Bytes),
    /// The proper end of the body.
    Finish,
    /// A stream reset with this code; HTTP/1.1 drops the connection instead.
    Reset(u32),
    /// GOAWAY with this code, then the connection closes; HTTP/1.1 just drops it.
    GoAway(u32),
    /// The connection is dropped.
    Cut,
}

/// Status and headers of a reply.
#[derive(Debug)]
pub(super) struct ReplyHead {
    /// The status.
    pub(super) status: u16,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// What follows.
    pub(super) body: BodyPlan,
}

/// Whether a body follows a reply's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPlan {
    /// Data, then `Finish` or a fault.
    Follows,
    /// Nothing: the head ends the stream.
    None,
}

/// Whether the server goes on granting the client room to send.
#[derive(Debug, Clone, Default)]
pub(super) struct Window(Arc<AtomicBool>);

impl Window {
    /// Grants no more.
    pub(super) fn hold(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether nothing more is granted.
    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One request and the way to answer it.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The request's head.
    pub(super) head: RequestHead,
    /// The request's body.
    pub(super) body: mpsc::Receiver<Piece>,
    /// The way back.
    pub(super) reply: mpsc::Sender<Reply>,
    /// The client's room to send.
    pub(super) window: Window,
}

/// The far ends of an [`Exchange`], for the HTTP side.
#[derive(Debug)]
pub(super) struct FarEnd {
    /// Takes the request's body.
    pub(super) body: mpsc::Sender<Piece>,
    /// Gives the reply.
    pub(super) reply: mpsc::Receiver<Reply>,
    /// The client's room to send.
    pub(super) window: Window,
}

/// An exchange and its far end.
pub(super) fn open(head: RequestHead) -> (Exchange, FarEnd) {
    let (body_in, body) = mpsc::channel(PIECE_QUEUE);
    let (reply, reply_out) = mpsc::channel(REPLY_QUEUE);
    let window = Window::default();
    (
        Exchange {
            head,
            body,
            reply,
            window: window.clone(),
        },
        FarEnd {
            body: body_in,
            reply: reply_out,
            window,
        },
    )
}

/// The largest unary body we read.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// The client left.
    Gone,
    /// It is over the limit.
    TooLarge,
}

/// Reads a whole body.
pub(super) async fn read_body(body: &mut mpsc::Receiver<Piece>) -> Result<Vec<u8>, BodyError> {
    let mut whole = Vec::new();
    loop {
        match body.recv().await {
            Some(Piece::Data(data)) if whole.len() + data.len() > MAX_BODY => {
                return Err(BodyError::TooLarge);
            }
            Some(Piece::Data(data)) => whole.extend_from_slice(&data),
            Some(Piece::End) => return Ok(whole),
            Some(Piece::Broken) | None => return Err(BodyError::Gone),
        }
    }
}

/// A whole reply: what unary calls and refused runs answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The headers, `content-length` aside.
    pub(super) headers: HeaderMap,
    /// The body.
    pub(super) body: Bytes,
}

impl Answer {
    /// An answer of one content type.
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

    /// A JSON answer.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// Adds a header; one that HTTP cannot carry is left out.
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

/// The way back with its entry in the recording.
#[derive(Debug)]
pub(super) struct ReplyTo {
    sender: mpsc::Sender<Reply>,
    ticket: Ticket,
}

/// Nobody is there to take a reply any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left;

impl ReplyTo {
    /// Ties a way back to its entry.
    pub(super) fn new(sender: mpsc::Sender<Reply>, ticket: Ticket) -> Self {
        Self { sender, ticket }
    }

    /// The entry in the recording.
    pub(super) fn ticket(&mut self) -> &mut Ticket {
        &mut self.ticket
    }

    /// Sends status and headers.
    pub(super) async fn head(&mut self, head: ReplyHead) -> Result<(), Left> {
        self.ticket.status(head.status);
        self.send(Reply::Head(head)).await
    }

    /// Sends one reply; waits while the client is behind.
    pub(super) async fn send(&self, reply: Reply) -> Result<(), Left> {
        self.sender.send(reply).await.map_err(|_| Left)
    }

    /// Resolves when the client is gone.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Sends a whole reply.
    pub(super) async fn answer(&mut self, answer: Answer) -> Result<(), Left> {
        let mut headers = answer.headers;
        headers.insert(
            http::header::CONTENT_LENGTH,
            HeaderValue::from(answer.body.len()),
        );
        let body = if answer.body.is_empty() {
            BodyPlan::None
        } else {
            BodyPlan::Follows
        };
        self.head(ReplyHead {
            status: answer.status,
            headers,
            body,
        })
        .await?;
        if body == BodyPlan::None {
            return Ok(());
        }
        self.send(Reply::Data(answer.body)).await?;
        self.send(Reply::Finish).await
    }
}
