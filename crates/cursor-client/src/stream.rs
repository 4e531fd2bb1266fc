//! The stream of one attempt: sends client messages and receives server messages, over either
//! transport.
//!
//! The stream has one owner, which holds both halves. Dropping it cancels the run: HTTP/2 resets
//! the stream, HTTP/1.1 closes the socket.

mod open_stream;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming as ResponseBody;
use prost::Message as _;
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use self::open_stream::{OpenedStream, RunCall};
use super::bidi_append::Appender;
use super::connect_error::{EndStream, Metadata};
use super::connection_pool::StreamPermit;
use super::endpoint::BaseUrl;
use super::error::{TransportError, WireError, from_hyper};
use super::headers::{BlobKey, HttpVersion, Identity, RequestIds};
use super::http_clients::{Http, SetupError, next_piece};
use super::unary::CallError;
use cursor_proto::agent::v1::{AgentClientMessage, AgentServerMessage};
use cursor_proto::aiserver::v1::BidiRequestId;
use cursor_proto::drift::Drift;
use cursor_proto::envelope::{self, Decoder, Encoding};
use cursor_proto::field_order;
use cursor_proto::raw_fields;
use cursor_proto::tool_gates::ToolGates;
use foundation::VariantName;

const RUN: &str = "/agent.v1.AgentService/Run";
const RUN_SSE: &str = "/agent.v1.AgentService/RunSSE";

/// Capacity of the send queue; senders wait when it is full.
const OUTGOING: usize = 32;

/// Maximum size of a message, because handling text and tools copies it several times. Blobs and
/// checkpoints are limited only by the envelope, because they are passed on as they are.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// The fields of a server message that carry checkpoints and blobs.
const OPAQUE_FIELDS: [u32; 2] = [3, 4];

/// How long to keep reading after an append failed.
const READ_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The parameters for opening a stream.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The agent host.
    pub base: BaseUrl,
    /// How the client identifies itself.
    pub identity: Identity,
    /// The access token.
    pub token: SecretString,
    /// This attempt's ids.
    pub ids: RequestIds,
    /// The conversation's blob key.
    pub blob_key: BlobKey,
    /// Which native tools the server may offer.
    pub gates: ToolGates,
    /// HTTP/2 for a bidirectional stream, or HTTP/1.1 with appends.
    pub version: HttpVersion,
}

/// An open run.
pub struct RunStream {
    /// Client messages.
    pub outgoing: Outgoing,
    /// Server messages.
    pub incoming: Incoming,
}

/// The sending half.
pub struct Outgoing {
    queue: mpsc::Sender<Bytes>,
    framing: Framing,
}

#[derive(Clone, Copy)]
enum Framing {
    Envelope,
    Bare,
}

/// The receiving half.
pub struct Incoming {
    state: StreamState,
    host: String,
    drift: Arc<Drift>,
    appender: Option<AbortOnDropHandle<Result<(), CallError>>>,
    opened: Instant,
    /// Whether any bytes of the response body have been received.
    received_bytes: bool,
    /// Why appending failed, and until when the server may still send how the run ended.
    unsent: Option<(WireError, Instant)>,
}

type Head = Pin<Box<dyn Future<Output = Result<OpenedStream, WireError>> + Send>>;

enum StreamState {
    Opening(Head),
    Reading {
        body: ResponseBody,
        /// Held until the stream ends.
        _permit: StreamPermit,
        decoder: Decoder,
        encoding: Encoding,
    },
    Ended,
}

/// Something received from the server.
#[derive(Debug)]
pub enum Received {
    /// The server accepted the stream; no message yet.
    Accepted,
    /// A server message.
    Message(Box<AgentServerMessage>),
    /// The stream ended without an error.
    End(Metadata),
}

/// The stream is closed for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream accepts no more messages")]
pub struct StreamClosed;

impl RunStream {
    /// Opens a stream and queues its first message. Does not wait for the response;
    /// [`Incoming::next`] does, because a server may read messages before it responds.
    pub async fn open(
        http: &Arc<Http>,
        drift: &Arc<Drift>,
        opening: Opening,
        first: &AgentClientMessage,
    ) -> Result<Self, SetupError> {
        let permit = http.permit(&opening.base, opening.version)?;
        let headers = opening.identity.run(
            &opening.token,
            &opening.ids,
            &opening.blob_key,
            &opening.gates,
            opening.version,
        );
        let (queue, messages) = mpsc::channel(OUTGOING);
        let host = opening.base.authority();
        let path = match opening.version {
            HttpVersion::Http2 => RUN,
            HttpVersion::Http1 => RUN_SSE,
        };
        tracing::debug!(host, path, version = ?opening.version, "stream.opening");
        let call = RunCall {
            http: Arc::clone(http),
            base: opening.base.clone(),
            path,
            version: opening.version,
            headers,
        };
        let (framing, head, appender): (_, Head, _) = match opening.version {
            HttpVersion::Http2 => (
                Framing::Envelope,
                Box::pin(call.open_duplex(permit, messages)),
                None,
            ),
            HttpVersion::Http1 => {
                let request_id = BidiRequestId {
                    request_id: opening.ids.request.to_string(),
                };
                let body = envelope::encode_message(&request_id);
                let appender = Appender {
                    http: Arc::clone(http),
                    base: opening.base,
                    identity: opening.identity,
                    token: opening.token,
                    ids: opening.ids,
                    blob_key: opening.blob_key,
                };
                let appending = appender.run(messages).in_current_span();
                let task = AbortOnDropHandle::new(tokio::spawn(appending));
                (
                    Framing::Bare,
                    Box::pin(call.listen(permit, body)),
                    Some(task),
                )
            }
        };
        let outgoing = Outgoing { queue, framing };
        // Cannot fail, because the queue is empty and its receiver exists.
        let _ = outgoing.queue.try_send(outgoing.frame(first));
        Ok(Self {
            outgoing,
            incoming: Incoming {
                state: StreamState::Opening(head),
                host,
                drift: Arc::clone(drift),
                appender,
                opened: Instant::now(),
                received_bytes: false,
                unsent: None,
            },
        })
    }
}

#[cfg(feature = "test-support")]
impl RunStream {
    /// Returns a stream whose connection is lost.
    pub fn broken() -> Self {
        let (queue, _) = mpsc::channel(OUTGOING);
        Self {
            outgoing: Outgoing {
                queue,
                framing: Framing::Bare,
            },
            incoming: Incoming {
                state: StreamState::Ended,
                host: String::new(),
                drift: Arc::default(),
                appender: None,
                opened: Instant::now(),
                received_bytes: true,
                unsent: None,
            },
        }
    }
}

impl Outgoing {
    /// Encodes a message for this transport.
    pub fn frame(&self, message: &AgentClientMessage) -> Bytes {
        let payload = field_order::client(message);
        match self.framing {
            Framing::Envelope => envelope::encode(envelope::Kind::Message, &payload),
            Framing::Bare => payload,
        }
    }

    /// Waits until the queue has room for one message and returns a permit to send it.
    pub async fn ready(&self) -> Result<Permit<'_>, StreamClosed> {
        self.queue
            .reserve()
            .await
            .map(Permit)
            .map_err(|_| StreamClosed)
    }
}

/// Room for one message.
pub struct Permit<'a>(mpsc::Permit<'a, Bytes>);

impl Permit<'_> {
    /// Sends a message encoded by [`Outgoing::frame`].
    pub fn send(self, frame: Bytes) {
        self.0.send(frame);
    }
}

impl Incoming {
    /// Returns the next message or event from the server. Cancel safe (`select!`). After the end
    /// or an error, every call returns an error.
    pub async fn next(&mut self) -> Result<Received, WireError> {
        let received = self.advance().await;
        if matches!(received, Err(_) | Ok(Received::End(_))) {
            self.log_end(received.as_ref().err());
            self.state = StreamState::Ended;
            self.appender = None;
        }
        received
    }

    fn log_end(&self, error: Option<&WireError>) {
        let ms = self.opened.elapsed().as_millis() as u64;
        match error {
            None => tracing::debug!(ms, "stream.closed"),
            Some(error) => tracing::debug!(
                ms,
                kind = %VariantName(error_kind(error)),
                cause = error.cause(),
                "stream.failed"
            ),
        }
    }

    async fn advance(&mut self) -> Result<Received, WireError> {
        loop {
            match &mut self.state {
                StreamState::Opening(head) => {
                    let OpenedStream { response, permit } = tokio::select! {
                        answer = head => answer?,
                        failure = append_failure(&mut self.appender) => return Err(failure),
                    };
                    let ms = self.opened.elapsed().as_millis() as u64;
                    let status = response.status().as_u16();
                    tracing::debug!(ms, status, version = ?response.version(), "stream.opened");
                    let announced = response.headers().get("connect-content-encoding");
                    let announced = announced.and_then(|value| value.to_str().ok());
                    let encoding =
                        Encoding::from_header(announced).map_err(TransportError::from)?;
                    self.state = StreamState::Reading {
                        body: response.into_body(),
                        _permit: permit,
                        decoder: Decoder::default(),
                        encoding,
                    };
                    return Ok(Received::Accepted);
                }
                StreamState::Reading {
                    body,
                    decoder,
                    encoding,
                    ..
                } => {
                    if let Some(envelope) = decoder.next_envelope().map_err(TransportError::from)? {
                        let kind = envelope.kind();
                        let payload = envelope
                            .into_payload(*encoding)
                            .map_err(TransportError::from)?;
                        return match kind {
                            envelope::Kind::Message => message(payload, &self.drift),
                            envelope::Kind::EndStream => end(&payload),
                        };
                    }
                    let deadline = self.unsent.as_ref().map(|(_, deadline)| *deadline);
                    let piece = tokio::select! {
                        // Received data comes first, because a run that ended successfully
                        // accepts no more messages either.
                        biased;
                        piece = next_piece(body) => piece.map_err(|e| lost(&e, &self.host)),
                        failure = append_failure(&mut self.appender) => {
                            self.unsent = Some((failure, Instant::now() + READ_AFTER_FAILURE));
                            continue;
                        }
                        () = until(deadline) => Ok(None),
                    };
                    match (piece, self.unsent.take()) {
                        (Ok(Some(piece)), unsent) => {
                            decoder.push(&piece);
                            if !self.received_bytes {
                                self.received_bytes = true;
                                let ms = self.opened.elapsed().as_millis() as u64;
                                tracing::debug!(ms, "stream.first_byte");
                            }
                            self.unsent = unsent;
                        }
                        (_, Some((failure, _))) => return Err(failure),
                        (Err(error), None) => return Err(error.into()),
                        (Ok(None), None) => {
                            decoder.finish().map_err(TransportError::from)?;
                            return Err(TransportError::EndedEarly.into());
                        }
                    }
                }
                StreamState::Ended => return Err(TransportError::EndedEarly.into()),
            }
        }
    }
}

/// Returns the value whose variant names the kind of error: the transport error or the server's
/// code.
fn error_kind(error: &WireError) -> &dyn std::fmt::Debug {
    match error {
        WireError::Transport(error) => error,
        WireError::Remote(remote) => &remote.code,
    }
}

fn message(payload: Bytes, drift: &Drift) -> Result<Received, WireError> {
    let size = payload.len();
    if size > MAX_MESSAGE && !is_opaque(&payload) {
        let limit = MAX_MESSAGE;
        return Err(TransportError::MessageTooLarge { size, limit }.into());
    }
    // A malformed message fails the attempt, because a retry is better than wrong output.
    let message =
        AgentServerMessage::decode(payload.clone()).map_err(|_| TransportError::Message)?;
    if message.encoded_len() != payload.len() {
        drift.inspect("agent.v1.AgentServerMessage", &payload);
    }
    Ok(Received::Message(Box::new(message)))
}

/// Returns whether the first field of a message is a checkpoint or a blob request.
fn is_opaque(payload: &Bytes) -> bool {
    let first = raw_fields::fields(payload.clone()).next();
    matches!(first, Some(Ok(field)) if OPAQUE_FIELDS.contains(&field.number))
}

fn end(payload: &[u8]) -> Result<Received, WireError> {
    let end = EndStream::parse(payload).map_err(|_| TransportError::EndStream)?;
    match end.error {
        Some(error) => Err(error.into()),
        None => Ok(Received::End(end.metadata)),
    }
}

/// Converts an error after the response headers. HTTP/2 has worked by then, so a protocol error
/// means a lost connection.
fn lost(error: &hyper::Error, host: &str) -> TransportError {
    match from_hyper(error, host) {
        TransportError::NoHttp2 { cause, .. } => TransportError::Lost(cause),
        other => other,
    }
}

/// Resolves only when appending fails; an appender that has finished never resolves.
async fn append_failure(
    appender: &mut Option<AbortOnDropHandle<Result<(), CallError>>>,
) -> WireError {
    let Some(task) = appender else {
        return std::future::pending().await;
    };
    let outcome = task.await;
    *appender = None;
    match outcome {
        Ok(Err(CallError::Wire(error))) => error,
        Ok(Err(CallError::Setup(error))) => TransportError::Lost(error.to_string()).into(),
        Err(_) => TransportError::Lost("appending stopped".into()).into(),
        Ok(Ok(())) => std::future::pending().await,
    }
}

/// Waits for the deadline; forever if it is `None`.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
