//! Opens a run's stream: reserves a stream on a connection, sends the request and checks the
//! response headers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use tokio::sync::mpsc;

use super::super::connect_error::{Metadata, RemoteError};
use super::super::connection_pool::StreamPermit;
use super::super::endpoint::BaseUrl;
use super::super::error::{TransportError, WireError};
use super::super::headers::HttpVersion;
use super::super::http_clients::{Http, RequestBody, next_piece};
use cursor_proto::connect_code::Code;

/// Maximum size of an HTTP error's body, and how long reading it may take.
const ERROR_BODY: usize = 64 * 1024;
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);

/// The target and headers of a run's stream.
pub(super) struct RunCall {
    pub(super) http: Arc<Http>,
    pub(super) base: BaseUrl,
    pub(super) path: &'static str,
    pub(super) version: HttpVersion,
    pub(super) headers: HeaderMap,
}

/// A stream the server accepted, and its permit.
pub(super) struct OpenedStream {
    pub(super) response: Response<Incoming>,
    pub(super) permit: StreamPermit,
}

impl RunCall {
    /// Opens a stream that only receives.
    pub(super) async fn listen(
        self,
        permit: StreamPermit,
        body: Bytes,
    ) -> Result<OpenedStream, WireError> {
        let host = self.base.authority();
        let body = Full::new(body).boxed_unsync();
        let response = self.send(&permit, body).await?;
        let response = check_response(response, host).await?;
        Ok(OpenedStream { response, permit })
    }

    /// Opens a bidirectional stream. If the connection is full, moves to another one, which is safe
    /// because no message has been sent on it yet.
    pub(super) async fn open_duplex(
        self,
        mut permit: StreamPermit,
        mut messages: mpsc::Receiver<Bytes>,
    ) -> Result<OpenedStream, WireError> {
        let host = self.base.authority();
        loop {
            let shared = SharedMessages::new(messages);
            let body = MessageStreamBody::of(&shared).boxed_unsync();
            let mut sending = Box::pin(self.send(&permit, body));
            let response = tokio::select! {
                response = &mut sending => response,
                () = permit.overdue() => match shared.take() {
                    Some(untouched) => {
                        drop(sending);
                        tracing::debug!(host, "stream.moved");
                        messages = untouched;
                        self.http.full(&self.base, self.version, permit);
                        permit = self.http.permit(&self.base, self.version).map_err(|error| {
                            TransportError::Tls { host: host.clone(), cause: error.to_string() }
                        })?;
                        continue;
                    }
                    None => sending.await,
                },
            };
            let response = match response {
                Ok(response) => response,
                Err(refused) if refused.is_refusal() => {
                    self.http.full(&self.base, self.version, permit);
                    return Err(refused.into());
                }
                Err(error) => return Err(error.into()),
            };
            permit.mark_used();
            let response = check_response(response, host).await?;
            return Ok(OpenedStream { response, permit });
        }
    }

    /// Sends the request. Its future borrows nothing, because the permit may be replaced.
    fn send(
        &self,
        permit: &StreamPermit,
        body: RequestBody,
    ) -> impl Future<Output = Result<Response<Incoming>, TransportError>> + use<> {
        let client = permit.client().clone();
        let (base, path, headers) = (self.base.clone(), self.path, self.headers.clone());
        async move { client.send(Method::POST, &base, path, headers, body).await }
    }
}

/// Messages that either the connection takes when it opens the stream, or we take back.
#[derive(Clone)]
struct SharedMessages(Arc<Mutex<Option<mpsc::Receiver<Bytes>>>>);

impl SharedMessages {
    fn new(messages: mpsc::Receiver<Bytes>) -> Self {
        Self(Arc::new(Mutex::new(Some(messages))))
    }

    fn take(&self) -> Option<mpsc::Receiver<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A request body that takes the messages when it is first polled, which a connection does only
/// after it has opened the stream.
enum MessageStreamBody {
    NotPolled(SharedMessages),
    Sending(mpsc::Receiver<Bytes>),
    /// The messages were taken back before the first poll.
    Withdrawn,
}

impl MessageStreamBody {
    fn of(shared: &SharedMessages) -> Self {
        Self::NotPolled(shared.clone())
    }
}

impl Body for MessageStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Self::NotPolled(shared) = &*self {
            *self = match shared.take() {
                Some(messages) => Self::Sending(messages),
                None => Self::Withdrawn,
            };
        }
        match &mut *self {
            Self::Sending(messages) => {
                let message = messages.poll_recv(cx);
                message.map(|message| message.map(|message| Ok(Frame::data(message))))
            }
            Self::NotPolled(_) | Self::Withdrawn => Poll::Ready(None),
        }
    }
}

/// Returns the response if its status and headers are those of a Connect stream.
async fn check_response(
    response: Response<Incoming>,
    host: String,
) -> Result<Response<Incoming>, WireError> {
    let status = response.status().as_u16();
    if status == 464 {
        // A load balancer's status for a target group that does not support HTTP/2.
        return Err(TransportError::NoHttp2 {
            host,
            cause: "HTTP status 464".into(),
        }
        .into());
    }
    if status != 200 {
        let body = tokio::time::timeout(ERROR_BODY_WAIT, error_body(response.into_body()))
            .await
            .unwrap_or_default();
        return Err(RemoteError::from_response(status, &body).into());
    }
    if let Some(error) = trailers_only(response.headers()) {
        return Err(error.into());
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !kind.starts_with("application/connect+proto") {
        let kind = foundation::secrets().scrub(kind);
        return Err(TransportError::ContentType(kind.chars().take(80).collect()).into());
    }
    Ok(response)
}

async fn error_body(mut body: Incoming) -> Vec<u8> {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = next_piece(&mut body).await {
        text.extend_from_slice(&piece);
        if text.len() >= ERROR_BODY {
            break;
        }
    }
    text
}

/// Returns the error in the headers of a response without a body, as gRPC gateways send it.
fn trailers_only(headers: &HeaderMap) -> Option<RemoteError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = Code::from_grpc(text("grpc-status")?.parse().ok()?)?;
    Some(RemoteError {
        code,
        message: unescaped(text("grpc-message").unwrap_or_default()),
        details: None,
        metadata: Metadata::new(),
        status: None,
    })
}

/// Decodes the percent-encoding of a header.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn percent_escapes_are_decoded_and_other_text_is_unchanged() {
        for (text, read) in [
            ("who are you", "who are you"),
            ("100%25 caf%C3%A9%0Anext", "100% café\nnext"),
            ("5% off %zz %4", "5% off %zz %4"),
        ] {
            assert_eq!(unescaped(text), read);
        }
    }
}
