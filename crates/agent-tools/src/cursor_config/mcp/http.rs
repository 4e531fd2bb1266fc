//! Servers over HTTP. The transport ends a stream at an event that is too long, and the call it
//! answers would never complete; we replace the event with an error response.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStream};
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};

use super::lines::{MAX_LINE, too_long};

/// An event of a stream.
type SseEvent = <BoxedSseResponse as TryStream>::Ok;
type HttpError = StreamableHttpError<reqwest::Error>;
type HeaderFields = HashMap<HeaderName, HeaderValue>;

/// Part of the transport's error text for an event over its limit; the error type is private.
const OVER_LIMIT: &str = "exceeded the maximum size";

/// An HTTP client that answers a call with an error if its event is too long.
#[derive(Debug, Clone)]
pub(super) struct BoundedHttpClient(pub(super) reqwest::Client);

impl StreamableHttpClient for BoundedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HeaderFields,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let posted = self
            .0
            .post_message_with_max_sse_event_size(uri, message, session, auth, headers, MAX_LINE);
        Ok(match (posted.await?, id) {
            (StreamableHttpPostResponse::Sse(events, session), Some(id)) => {
                StreamableHttpPostResponse::Sse(answering(events, id), session)
            }
            (answer, _) => answer,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: HeaderFields,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: HeaderFields,
    ) -> Result<BoxedSseResponse, HttpError> {
        let stream = self
            .0
            .get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, MAX_LINE);
        stream.await
    }
}

/// The events of a response; one that is too long is replaced with an error for request `id`.
fn answering(events: BoxedSseResponse, id: RequestId) -> BoxedSseResponse {
    let answered = events.map(move |event| match event {
        Err(error) if error.to_string().contains(OVER_LIMIT) => {
            tracing::warn!("an MCP server's event is too long and was not read");
            let error = ErrorData::internal_error(too_long(MAX_LINE), None);
            let message = ServerJsonRpcMessage::error(error, Some(id.clone()));
            let text = serde_json::to_string(&message).unwrap_or_default();
            Ok(SseEvent::default().data(text))
        }
        event => event,
    });
    answered.boxed()
}
