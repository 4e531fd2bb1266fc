//! Servers over HTTP, with every response bounded in bytes.
//!
//! rmcp's own client reads a JSON body without a limit, and ends a stream at an event that is too
//! long, so that the call it answers would never complete. This client reads the response itself
//! and answers the call with an error in both cases.

use std::collections::HashMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStream};
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::SseStream;

use super::lines::{MAX_LINE, too_long};

type SseEvent = <BoxedSseResponse as TryStream>::Ok;
type McpHttpError = StreamableHttpError<reqwest::Error>;
type HeaderFields = HashMap<HeaderName, HeaderValue>;

/// An HTTP client that reads no more than a limit of a JSON body or of an event, and answers the
/// call with an error beyond it.
#[derive(Debug, Clone)]
pub(super) struct BoundedHttpClient {
    client: reqwest::Client,
    limit: usize,
    wants_sign_in: Arc<AtomicBool>,
}

impl BoundedHttpClient {
    /// Returns a client with the limit of [`MAX_LINE`].
    pub(super) fn new(client: reqwest::Client) -> Self {
        Self {
            client,
            limit: MAX_LINE,
            wants_sign_in: Arc::default(),
        }
    }

    /// Returns whether the server answered a request with 401 or 403. The status is kept here,
    /// because the transport passes on some errors as text only.
    pub(super) fn wants_sign_in(&self) -> bool {
        self.wants_sign_in.load(Ordering::Relaxed)
    }

    /// Returns the error that replaces the answer to a call that is too long.
    fn refusal(&self, id: RequestId) -> ServerJsonRpcMessage {
        tracing::warn!(
            limit = self.limit,
            "an MCP server's answer is too long and was not read"
        );
        let error = ErrorData::internal_error(too_long(self.limit), None);
        ServerJsonRpcMessage::error(error, Some(id))
    }

    /// Returns the message in a JSON body, or `None` if the body is not a message.
    async fn message(
        &self,
        response: reqwest::Response,
        id: Option<RequestId>,
    ) -> Result<Option<ServerJsonRpcMessage>, McpHttpError> {
        match (read(response, self.limit).await?, id) {
            (Some(body), _) => Ok(serde_json::from_slice(&body).ok()),
            (None, Some(id)) => Ok(Some(self.refusal(id))),
            (None, None) => Ok(None),
        }
    }

    /// Returns the events of a response; one that is too long is replaced with an error for
    /// request `id`.
    fn events(&self, response: reqwest::Response, id: Option<RequestId>) -> BoxedSseResponse {
        let bytes = EventBytes::new(response.bytes_stream(), self.limit);
        let events = SseStream::from_bytes_stream(bytes);
        let client = self.clone();
        let answered = events.map(move |event| match (event, &id) {
            (Err(SseError::Body(error)), Some(id)) if is_too_long(&*error) => {
                let message = client.refusal(id.clone());
                let text = serde_json::to_string(&message).unwrap_or_default();
                Ok(SseEvent::default().data(text))
            }
            (event, _) => event,
        });
        answered.boxed()
    }

    /// Returns the error for a response that refuses the request.
    fn failure(&self, response: &reqwest::Response) -> McpHttpError {
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.wants_sign_in.store(true, Ordering::Relaxed);
        }
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        match challenge.and_then(|challenge| challenge.to_str().ok()) {
            Some(challenge) if status == StatusCode::UNAUTHORIZED => {
                StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge.to_owned()))
            }
            _ => HttpStatusError::new(status.as_u16(), None).into(),
        }
    }
}

impl StreamableHttpClient for BoundedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HeaderFields,
    ) -> Result<StreamableHttpPostResponse, McpHttpError> {
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let accepted = [EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE].join(", ");
        let mut request = self.client.post(uri.as_ref()).header(ACCEPT, accepted);
        if let Some(token) = auth {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            if is_reserved(&name) {
                return Err(StreamableHttpError::ReservedHeaderConflict(
                    name.to_string(),
                ));
            }
            request = request.header(name, value);
        }
        if let Some(session) = &session {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = request.json(&message).send().await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let header = |name| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let session = header(HEADER_SESSION_ID);
        let content = header(CONTENT_TYPE.as_str());
        let is = |kind: &str| content.as_deref().is_some_and(|it| it.starts_with(kind));
        if !status.is_success() {
            let failed = self.failure(&response);
            let is_sign_in = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            // Some servers send a JSON-RPC error with a status of its own.
            if is(JSON_MIME_TYPE)
                && !is_sign_in
                && let Ok(Some(message @ ServerJsonRpcMessage::Error(_))) =
                    self.message(response, id).await
            {
                return Ok(StreamableHttpPostResponse::Json(message, session));
            }
            return Err(failed);
        }
        if is(EVENT_STREAM_MIME_TYPE) {
            let events = self.events(response, id);
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        // Nothing waits for an answer to a notification, so any body of it will do.
        let is_request = id.is_some();
        if !is_request && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !is(JSON_MIME_TYPE) {
            return Err(StreamableHttpError::UnexpectedContentType(content));
        }
        match self.message(response, id).await? {
            Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            None if is_request => Err(StreamableHttpError::UnexpectedServerResponse(
                "the body is not a JSON-RPC message".into(),
            )),
            None => Ok(StreamableHttpPostResponse::Accepted),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: HeaderFields,
    ) -> Result<(), McpHttpError> {
        let deleted = self.client.delete_session(uri, session, auth, headers);
        deleted.await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: HeaderFields,
    ) -> Result<BoxedSseResponse, McpHttpError> {
        let stream = self.client.get_stream_with_max_sse_event_size(
            uri, session, last_event, auth, headers, self.limit,
        );
        stream.await
    }
}

/// Returns whether a header belongs to the transport, so that settings must not set it.
fn is_reserved(name: &HeaderName) -> bool {
    let reserved = [ACCEPT.as_str(), HEADER_SESSION_ID, HEADER_LAST_EVENT_ID];
    let is_same = |reserved: &&str| name.as_str().eq_ignore_ascii_case(reserved);
    reserved.iter().any(is_same)
}

/// Returns the body of a response, or `None` if it is longer than `limit`. No more than that and
/// one network buffer is held in memory.
async fn read(
    mut response: reqwest::Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, McpHttpError> {
    let announced = response.content_length().unwrap_or(0);
    if announced > limit as u64 {
        return Ok(None);
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

fn is_too_long(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(StreamError::TooLong))
}

/// Why the bytes of an event stream end.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    /// An event is longer than the limit.
    #[error("an event of the stream is too long")]
    TooLong,
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] reqwest::Error),
}

/// The bytes of an event stream. It ends with [`StreamError::TooLong`] at an event over the limit,
/// because the parser holds an event in memory until its last line.
struct EventBytes<S> {
    bytes: Pin<Box<S>>,
    length: EventLength,
    is_over: bool,
}

impl<S> EventBytes<S> {
    fn new(bytes: S, limit: usize) -> Self {
        Self {
            bytes: Box::pin(bytes),
            length: EventLength {
                limit,
                ..EventLength::default()
            },
            is_over: false,
        }
    }
}

impl<S> Stream for EventBytes<S>
where
    S: Stream<Item = Result<Bytes, reqwest::Error>>,
{
    type Item = Result<Bytes, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let piece = ready!(self.bytes.as_mut().poll_next(cx)).map(|piece| {
            let piece = piece?;
            match self.length.add(&piece) {
                Ok(()) => Ok(piece),
                Err(error) => Err(error),
            }
        });
        self.is_over = matches!(piece, Some(Err(_)));
        Poll::Ready(piece)
    }
}

/// The length of the current event of a stream, with its comments.
#[derive(Debug, Default)]
struct EventLength {
    limit: usize,
    event: usize,
    /// The length of the current line; an empty line ends the event.
    line: usize,
    /// Whether the last byte was a carriage return, so that a line feed after it ends no line.
    is_after_return: bool,
}

impl EventLength {
    /// Counts a piece of the stream. Returns an error if an event is too long.
    fn add(&mut self, piece: &[u8]) -> Result<(), StreamError> {
        for byte in piece {
            let is_second = *byte == b'\n' && self.is_after_return;
            self.is_after_return = *byte == b'\r';
            match byte {
                _ if is_second => {}
                b'\r' | b'\n' => {
                    if self.line == 0 {
                        self.event = 0;
                    }
                    self.line = 0;
                }
                _ => {
                    self.line += 1;
                    self.event += 1;
                }
            }
            if self.event > self.limit {
                return Err(StreamError::TooLong);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_event_is_counted_across_pieces_and_line_ends() {
        let mut short = EventLength {
            limit: 14,
            ..EventLength::default()
        };
        for _ in 0..100 {
            for piece in ["data: 1\ndat", "a: 2\n\n", "data: 1\r\n\r", "\n:\r\r"] {
                assert!(short.add(piece.as_bytes()).is_ok(), "{piece:?}");
            }
        }
        assert!(short.add(b"data: 1\ndata: 2\n").is_ok());
        assert!(matches!(short.add(b"d"), Err(StreamError::TooLong)));
    }
}
