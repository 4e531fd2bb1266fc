//! An HTTP server on 127.0.0.1 with limits on concurrency, request size and time.
//!
//! It serves any axum router; [`access`] decides which requests reach it. `axum::serve` is not used,
//! because it limits neither the number of connections nor the time to read a request's head.

pub mod access;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response, map_response_with_state};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::surrogates;
use access::{HttpError, RejectionResponse};

/// Maximum number of connections, if the file limit permits. Each may have a waiting call.
const MAX_CONNECTIONS: usize = 12 * 1024;
/// Maximum number of further connections, which are answered with "busy"; more stay in the
/// backlog.
const MAX_REJECTED: usize = 128;
/// The backlog of connections not yet accepted; the system may lower it.
const BACKLOG: u32 = 4096;
/// Maximum size of a request head, and of a connection's unparsed input.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The time limit for reading a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for reading a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait when no more sockets are available.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A listening port and its limits.
#[derive(Debug)]
pub struct LocalServer {
    listener: TcpListener,
    port: u16,
    connections: ConnectionLimit,
}

/// Permits for the connections that are served.
#[derive(Debug, Clone)]
struct ConnectionLimit {
    permits: Arc<Semaphore>,
    max: usize,
}

impl ConnectionLimit {
    /// Returns whether connections are closed after one request, because idle ones would block
    /// others.
    fn is_crowded(&self) -> bool {
        self.permits.available_permits() < self.max / 2
    }
}

impl LocalServer {
    /// Binds a port; 0 chooses any free one.
    pub fn bind(port: u16) -> Result<Self, std::io::Error> {
        let socket = TcpSocket::new_v4()?;
        // A fixed port must be usable again right after its previous user exited.
        socket.set_reuseaddr(port != 0)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let listener = socket.listen(BACKLOG)?;
        let max = max_connections(file_limit());
        Ok(Self {
            port: listener.local_addr()?.port(),
            listener,
            connections: ConnectionLimit {
                permits: Arc::new(Semaphore::new(max)),
                max,
            },
        })
    }

    /// Returns the port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves requests from this machine until `end` fires, which also closes open connections.
    /// The others get an `E`.
    pub async fn serve<E: RejectionResponse>(self, app: Router, end: CancellationToken) {
        let app = app
            .layer(from_fn_with_state(self.port, require_local::<E>))
            .layer(map_response_with_state(
                self.connections.clone(),
                close_if_crowded,
            ));
        let busy = Router::new()
            .fallback(|uri: Uri| async move { E::reject(HttpError::Busy, &uri).into_response() })
            .layer(map_response(close));
        let rejected = Arc::new(Semaphore::new(MAX_REJECTED));
        let accepting = async {
            // Every client gets a response, even if all permits are taken.
            while let Ok(spare) = Arc::clone(&rejected).acquire_owned().await {
                let Ok((stream, _)) = self.listener.accept().await else {
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                };
                let (permit, app) = match Arc::clone(&self.connections.permits).try_acquire_owned()
                {
                    Ok(permit) => (permit, app.clone()),
                    Err(_) => (spare, busy.clone()),
                };
                let serving = serve_connection(stream, app);
                let end = end.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    tokio::select! {
                        () = serving => {}
                        () = end.cancelled() => {}
                    }
                });
            }
        };
        tokio::select! {
            () = accepting => {}
            () = end.cancelled() => {}
        }
    }
}

/// Returns how many files this process may open.
#[cfg(unix)]
fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Returns `None`, because Windows limits no process.
#[cfg(windows)]
fn file_limit() -> Option<u64> {
    None
}

/// Returns three quarters of the file limit, because runs need files too.
fn max_connections(files: Option<u64>) -> usize {
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(MAX_CONNECTIONS, |files| {
        (files / 4 * 3).min(MAX_CONNECTIONS)
    })
}

async fn require_local<E: RejectionResponse>(
    State(port): State<u16>,
    request: Request,
    next: Next,
) -> Result<Response, E> {
    access::check_local(request.uri(), request.headers(), port)
        .map_err(|error| E::reject(error, request.uri()))?;
    Ok(next.run(request).await)
}

async fn close_if_crowded(
    State(connections): State<ConnectionLimit>,
    response: Response,
) -> Response {
    if connections.is_crowded() {
        close(response).await
    } else {
        response
    }
}

async fn close(mut response: Response) -> Response {
    let value = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, value);
    response
}

async fn serve_connection(stream: TcpStream, app: Router) {
    let _ = stream.set_nodelay(true);
    // A client that disconnects is not an error.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
        .await;
}

/// Reads bodies within limits of size, time and the memory of all concurrent requests.
#[derive(Debug, Clone)]
pub struct BodyReader {
    max_bytes: usize,
    /// One permit per KiB.
    memory: Arc<Semaphore>,
}

impl BodyReader {
    /// Returns a reader for bodies of at most `max_bytes`, which together take `memory_kib`.
    pub fn new(max_bytes: usize, memory_kib: usize) -> Self {
        Self {
            max_bytes,
            memory: Arc::new(Semaphore::new(memory_kib)),
        }
    }

    /// Reads a JSON body and replaces lone surrogates in it. The permit is to be kept as long as
    /// the body.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, OwnedSemaphorePermit), HttpError> {
        let permit = self.reserve(headers)?;
        let body = Limited::new(body, self.max_bytes).collect();
        let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(HttpError::TooLarge(self.max_bytes));
            }
            Ok(Err(_)) => return Err(HttpError::Broken),
            Err(_) => return Err(HttpError::TooSlow),
        };
        let mut body = BytesMut::from(body);
        surrogates::replace_lone(&mut body);
        Ok((body.freeze(), permit))
    }

    /// Reserves memory for a body: its declared size, or the maximum if chunked.
    fn reserve(&self, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, HttpError> {
        let declared = headers
            .get(CONTENT_LENGTH)
            .map(|length| length.to_str().ok().and_then(|text| text.parse().ok()));
        let bytes: usize = match declared {
            Some(length) => length.ok_or(HttpError::Broken)?,
            None if headers.contains_key(TRANSFER_ENCODING) => self.max_bytes,
            None => 0,
        };
        if bytes > self.max_bytes {
            return Err(HttpError::TooLarge(self.max_bytes));
        }
        let kib = bytes / 1024 + 1;
        let kib = u32::try_from(kib).map_err(|_| HttpError::TooLarge(self.max_bytes))?;
        let permit = Arc::clone(&self.memory).try_acquire_many_owned(kib);
        permit.map_err(|_| HttpError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 64 * 1024;

    async fn read(body: Body) -> Result<Bytes, HttpError> {
        let reader = BodyReader::new(MAX, 64);
        let read = reader.read(&HeaderMap::new(), body).await;
        read.map(|(body, _)| body)
    }

    /// JavaScript clients may cut a string inside a surrogate pair.
    #[tokio::test]
    async fn a_lone_surrogate_in_a_body_is_replaced() {
        let read = read(Body::from(r#"{"a":"\ud83d"}"#)).await.unwrap();
        assert_eq!(read, br#"{"a":"\ufffd"}"#.as_slice());
    }

    #[test]
    fn connections_use_only_part_of_the_file_limit() {
        assert_eq!(max_connections(Some(256)), 192);
        assert_eq!(max_connections(Some(1024)), 768);
        assert_eq!(max_connections(Some(1 << 20)), MAX_CONNECTIONS);
        assert_eq!(max_connections(None), MAX_CONNECTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_times_out() {
        let chunks = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        assert_eq!(
            read(Body::from_stream(chunks)).await,
            Err(HttpError::TooSlow)
        );
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_refused_when_it_gets_too_long() {
        let body = |bytes: usize| Body::from(vec![b' '; bytes]);
        assert_eq!(read(body(MAX)).await.unwrap().len(), MAX);
        let refused = read(body(MAX + 1)).await;
        assert_eq!(refused, Err(HttpError::TooLarge(MAX)));
    }
}
