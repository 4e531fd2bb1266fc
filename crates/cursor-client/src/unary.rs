//! Calls with one request and one response: Connect in protobuf or JSON, and plain REST.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use serde_json::Value as Json;

use super::connect_error::RemoteError;
use super::endpoint::BaseUrl;
use super::error::{TransportError, WireError, from_hyper};
use super::headers::HttpVersion;
use super::http_clients::{Http, SetupError, next_piece};
use super::suspend_aware_timer;
use cursor_proto::envelope;

/// Maximum size of a response; reading a larger one is an error.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How many more times a request is sent that the server has not processed.
const RESENDS: usize = 2;

/// Why a unary call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The HTTP client could not be built.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The call itself failed.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        Self::Wire(error.into())
    }
}

impl From<RemoteError> for CallError {
    fn from(error: RemoteError) -> Self {
        Self::Wire(error.into())
    }
}

/// The target and parameters of a call.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The host.
    pub base: &'a BaseUrl,
    /// The path, with its leading slash.
    pub path: &'a str,
    /// Authorization and identity.
    pub headers: HeaderMap,
    /// HTTP/1.1 or HTTP/2.
    pub version: HttpVersion,
    /// How long the whole call may take.
    pub deadline: Duration,
}

impl Http {
    /// Makes a Connect call in protobuf and returns the decoded response.
    pub async fn call<Answer: Message + Default>(
        &self,
        mut call: Call<'_>,
        request: &impl Message,
    ) -> Result<Answer, CallError> {
        call.headers
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/proto"));
        let body = self
            .exchange(Method::POST, call, request.encode_to_vec().into())
            .await?;
        // Unary responses have no envelope, but some servers add one.
        Answer::decode(body.clone())
            .ok()
            .or_else(|| Answer::decode(envelope::unwrap_unary(&body)?).ok())
            .ok_or_else(|| TransportError::of_unreadable(&body).into())
    }

    /// Makes a Connect call in JSON and returns the response.
    pub async fn call_json(&self, mut call: Call<'_>, request: &Json) -> Result<Json, CallError> {
        call.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = request.to_string().into();
        json(&self.exchange(Method::POST, call, body).await?)
    }

    /// Makes a REST `GET` call and returns the response.
    pub async fn get_json(&self, call: Call<'_>) -> Result<Json, CallError> {
        json(&self.exchange(Method::GET, call, Bytes::new()).await?)
    }

    /// Sends a request and returns the whole response; a status other than 2xx is an error.
    pub async fn exchange(
        &self,
        method: Method,
        call: Call<'_>,
        body: Bytes,
    ) -> Result<Bytes, CallError> {
        let (host, path) = (call.base.authority(), call.path);
        match self.fetch(method, call, body).await? {
            (200..=299, answer) => Ok(answer),
            (status, answer) => {
                tracing::debug!(host, path, status, "call.refused");
                Err(RemoteError::from_response(status, &answer).into())
            }
        }
    }

    /// Sends a request and returns the status and the whole response.
    pub async fn fetch(
        &self,
        method: Method,
        call: Call<'_>,
        body: Bytes,
    ) -> Result<(u16, Bytes), CallError> {
        self.fetch_at_most(method, call, body, MAX_ANSWER).await
    }

    /// Like [`fetch`](Self::fetch); a response of more than `limit` bytes is an error.
    pub async fn fetch_at_most(
        &self,
        method: Method,
        mut call: Call<'_>,
        body: Bytes,
        limit: usize,
    ) -> Result<(u16, Bytes), CallError> {
        let permit = self.permit(call.base, call.version)?;
        let host = call.base.authority();
        call.headers
            .entry(ACCEPT_ENCODING)
            .or_insert(HeaderValue::from_static("identity"));
        // As the official client does; some servers refuse a POST that states no length.
        if method == Method::POST && body.is_empty() {
            call.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        let answer = async {
            let mut resends = RESENDS;
            let response = loop {
                let body = Full::new(body.clone()).boxed_unsync();
                let headers = call.headers.clone();
                let sending =
                    permit
                        .client()
                        .send(method.clone(), call.base, call.path, headers, body);
                match sending.await {
                    Err(error) if error.is_unprocessed() && resends > 0 => resends -= 1,
                    sent => break sent?,
                }
            };
            let status = response.status().as_u16();
            let mut body = response.into_body();
            let mut answer = Vec::new();
            while let Some(piece) = next_piece(&mut body)
                .await
                .map_err(|error| from_hyper(&error, &host))?
            {
                if answer.len() + piece.len() > limit {
                    return Err(CallError::from(TransportError::Envelope(
                        envelope::EnvelopeError::TooLarge {
                            size: (answer.len() + piece.len()) as u64,
                            limit,
                        },
                    )));
                }
                answer.extend_from_slice(&piece);
            }
            Ok((status, Bytes::from(answer)))
        };
        // Without the query, because it may contain secrets.
        let path = call.path.split('?').next().unwrap_or_default();
        let started = std::time::Instant::now();
        let answer = match suspend_aware_timer::within(call.deadline, answer).await {
            Some(answer) => answer,
            None => Err(TransportError::Deadline {
                host: host.clone(),
                seconds: call.deadline.as_secs(),
            }
            .into()),
        };
        let ms = started.elapsed().as_millis() as u64;
        match &answer {
            Ok((status, answer)) => tracing::trace!(
                host,
                path,
                ms,
                status,
                bytes = answer.len(),
                "call.answered"
            ),
            Err(CallError::Wire(error)) => {
                tracing::debug!(host, path, ms, cause = error.cause(), "call.failed");
            }
            Err(CallError::Setup(error)) => {
                tracing::debug!(host, path, ms, cause = %error, "call.failed");
            }
        }
        answer
    }
}

fn json(body: &[u8]) -> Result<Json, CallError> {
    serde_json::from_slice(body).map_err(|_| TransportError::of_unreadable(body).into())
}
