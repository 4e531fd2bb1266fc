//! Opening a run's stream: a place on a connection, the request, and the answer's head.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use tokio::sync::mpsc;

use super::super::code::Code;
use super::super::endpoint::BaseUrl;
use super::super::error::{TransportError, WireError, from_reqwest};
use super::super::headers::HttpVersion;
use super::super::http::Http;
use super::super::lane::Seat;
use super::super::remote::{Metadata, RemoteError};

/// How much of an HTTP error's body is read, and for how long.
const ERROR_BODY: usize = 64 * 1024;
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);

/// Where a run is opened, and with which headers.
pub(super) struct RunCall {
    pub(super) http: Arc<Http>,
    pub(super) base: BaseUrl,
    pub(super) path: &'static str,
    pub(super) version: HttpVersion,
    pub(super) headers: HeaderMap,
}

/// A stream the server took, and its place.
pub(super) struct Answer {
    pub(super) response: reqwest::Response,
    pub(super) seat: Seat,
}

impl RunCall {
    /// Opens a stream that is only listened to.
    pub(super) async fn listen(self, seat: Seat, body: Bytes) -> Result<Answer, WireError> {
        let host = self.base.authority();
        let request = self.request(&seat, body.into());
        let response = request.send().await;
        let response = response.map_err(|error| from_reqwest(&error, &host))?;
        let response = judge(response, host).await?;
        Ok(Answer { response, seat })
    }

    /// Opens a stream in both directions. A connection that is full is left for another: of
    /// the messages it has seen nothing.
    pub(super) async fn talk(
        self,
        mut seat: Seat,
        mut messages: mpsc::Receiver<Bytes>,
    ) -> Result<Answer, WireError> {
        let host = self.base.authority();
        loop {
            let offered = Offered::new(messages);
            let body = reqwest::Body::wrap_stream(Taking::of(&offered));
            let mut sending = Box::pin(self.request(&seat, body).send());
            let response = tokio::select! {
                response = &mut sending => response,
                () = seat.overdue() => match offered.take() {
                    Some(untouched) => {
                        drop(sending);
                        tracing::debug!(host, "stream.moved");
                        messages = untouched;
                        self.http.full(&self.base, self.version, seat);
                        seat = self.http.seat(&self.base, self.version).map_err(|error| {
                            TransportError::Tls { host: host.clone(), cause: error.to_string() }
                        })?;
                        continue;
                    }
                    None => sending.await,
                },
            };
            let response = match response.map_err(|error| from_reqwest(&error, &host)) {
                Ok(response) => response,
                Err(refused) if refused.is_refusal() => {
                    self.http.full(&self.base, self.version, seat);
                    return Err(refused.into());
                }
                Err(error) => return Err(error.into()),
            };
            seat.taken();
            let response = judge(response, host).await?;
            return Ok(Answer { response, seat });
        }
    }

    fn request(&self, seat: &Seat, body: reqwest::Body) -> reqwest::RequestBuilder {
        let request = seat.client().post(self.base.join(self.path));
        request.headers(self.headers.clone()).body(body)
    }
}

/// Messages for whoever takes them first: the connection that opens the stream, or we again.
#[derive(Clone)]
struct Offered(Arc<Mutex<Option<mpsc::Receiver<Bytes>>>>);

impl Offered {
    fn new(messages: mpsc::Receiver<Bytes>) -> Self {
        Self(Arc::new(Mutex::new(Some(messages))))
    }

    fn take(&self) -> Option<mpsc::Receiver<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A body that takes the messages when it is first asked for any, which a connection does
/// when the stream is open and not before.
enum Taking {
    Not(Offered),
    Yes(mpsc::Receiver<Bytes>),
    /// Somebody else has them.
    Gone,
}

impl Taking {
    fn of(offered: &Offered) -> Self {
        Self::Not(offered.clone())
    }
}

impl futures_util::Stream for Taking {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Self::Not(offered) = &*self {
            *self = match offered.take() {
                Some(messages) => Self::Yes(messages),
                None => Self::Gone,
            };
        }
        match &mut *self {
            Self::Yes(messages) => messages.poll_recv(cx).map(|message| message.map(Ok)),
            Self::Not(_) | Self::Gone => Poll::Ready(None),
        }
    }
}

/// Judges the answer's head.
async fn judge(response: reqwest::Response, host: String) -> Result<reqwest::Response, WireError> {
    let status = response.status().as_u16();
    if status == 464 {
        // A load balancer's word for "this target group does not take HTTP/2".
        return Err(TransportError::NoHttp2 {
            host,
            cause: "HTTP status 464".into(),
        }
        .into());
    }
    if status != 200 {
        let body = tokio::time::timeout(ERROR_BODY_WAIT, error_body(response))
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
        let kind = crate::diag::secrets().scrub(kind);
        return Err(TransportError::ContentType(kind.chars().take(80).collect()).into());
    }
    Ok(response)
}

async fn error_body(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece);
        if body.len() >= ERROR_BODY {
            break;
        }
    }
    body
}

/// gRPC gateways report an error in the headers of an answer without a body.
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

/// A header's `%XX` as the bytes they stand for.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn escapes_are_read_and_the_rest_is_left() {
        for (text, read) in [
            ("who are you", "who are you"),
            ("100%25 caf%C3%A9%0Anext", "100% café\nnext"),
            ("5% off %zz %4", "5% off %zz %4"),
        ] {
            assert_eq!(unescaped(text), read);
        }
    }
}
