//! HTTP clients by protocol version and kind of host, built on first use.
//!
//! Building a client reads the system's trust store. On a machine without one, the call fails
//! instead of the start of the process.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connection_pool::{ConnectionPool, StreamPermit};
use super::connector::Connector;
use super::endpoint::BaseUrl;
use super::error::{TransportError, from_hyper};
use super::headers::HttpVersion;
use super::tls;
pub use super::tls::TrustRoots;

/// Interval of pings, which keep middleboxes from dropping the connection and detect dead
/// peers; without them a lost network would hang.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Below 5 s, because many servers close an idle HTTP/1.1 connection then, and a call sent at
/// that moment is lost.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// One stalled stream may buffer 1 MiB; the connection's window has room for many of them.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 32 * 1024 * 1024;

/// The HTTP clients of this process.
#[derive(Debug)]
pub struct Http {
    trust: TrustRoots,
    tls1: ConnectionPool,
    tls2: ConnectionPool,
    plain1: ConnectionPool,
    plain2: ConnectionPool,
}

impl Default for Http {
    fn default() -> Self {
        Self::new(TrustRoots::default())
    }
}

/// Why no HTTP client can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A CA file cannot be read.
    #[error("{setting}: cannot read CA file {}: {problem}", .path.display())]
    CaFile {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        problem: String,
    },
    /// The TLS library has no trusted certificates, or refused the configuration.
    #[error("cannot set up TLS: {0}. Install CA certificates or set SSL_CERT_FILE")]
    Tls(String),
}

impl Http {
    /// Returns clients that trust the system's certificates and `trust`. Builds nothing yet.
    pub fn new(trust: TrustRoots) -> Self {
        Self {
            trust,
            tls1: ConnectionPool::single(),
            tls2: ConnectionPool::shared(),
            plain1: ConnectionPool::single(),
            plain2: ConnectionPool::shared(),
        }
    }

    /// Reserves a stream on a connection to a host.
    pub(super) fn permit(
        &self,
        base: &BaseUrl,
        version: HttpVersion,
    ) -> Result<StreamPermit, SetupError> {
        let build = || self.build(base, version);
        self.pool(base, version).permit(build)
    }

    /// Records that the connection did not accept the stream of this permit.
    pub(super) fn full(&self, base: &BaseUrl, version: HttpVersion, permit: StreamPermit) {
        self.pool(base, version).full(permit);
    }

    /// Releases the connections to hosts of this kind, so that the next call opens a new one. Open
    /// streams are kept. For a connection that has become silent, because the next attempt would
    /// hang on it too.
    pub fn reconnect(&self, base: &BaseUrl, version: HttpVersion) {
        self.pool(base, version).clear();
    }

    fn pool(&self, base: &BaseUrl, version: HttpVersion) -> &ConnectionPool {
        match (base.is_tls(), version) {
            (true, HttpVersion::Http1) => &self.tls1,
            (true, HttpVersion::Http2) => &self.tls2,
            (false, HttpVersion::Http1) => &self.plain1,
            (false, HttpVersion::Http2) => &self.plain2,
        }
    }

    fn build(&self, base: &BaseUrl, version: HttpVersion) -> Result<HttpClient, SetupError> {
        if !base.is_tls() {
            // Does not need the trust store, so skip reading it.
            return HttpClient::plain(version);
        }
        let connector = Connector::tls(self.trust.config(version)?);
        Ok(HttpClient::new(connector, version))
    }
}

/// A request's body. It cannot fail: a body that ends early resets its stream.
pub(super) type RequestBody = UnsyncBoxBody<Bytes, Infallible>;

/// Sends requests over connections that are kept open. Adds no headers but those that HTTP needs
/// (`host`, lengths), so that a call has exactly the headers of the official client.
#[derive(Debug, Clone)]
pub(super) struct HttpClient(Client<Connector, RequestBody>);

impl HttpClient {
    /// Returns a client for unencrypted connections.
    pub(super) fn plain(version: HttpVersion) -> Result<Self, SetupError> {
        let connector = Connector::plain(tls::trust_nothing()?);
        Ok(Self::new(connector, version))
    }

    fn new(connector: Connector, version: HttpVersion) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        builder.pool_timer(TokioTimer::new());
        match version {
            HttpVersion::Http1 => builder.pool_idle_timeout(IDLE_CONNECTION),
            HttpVersion::Http2 => builder
                .http2_only(true)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW),
        };
        Self(builder.build(connector))
    }

    /// Sends a request and returns the response, whose body is still to be read.
    pub(super) async fn send(
        &self,
        method: Method,
        base: &BaseUrl,
        path: &str,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Result<Response<Incoming>, TransportError> {
        let host = base.authority();
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = match base.join(path).parse() {
            Ok(uri) => uri,
            Err(error) => {
                return Err(TransportError::Connect {
                    host,
                    cause: format!("invalid URL: {error}"),
                });
            }
        };
        *request.headers_mut() = headers;
        let response = self.0.request(request).await;
        response.map_err(|error| from_hyper(&error, &host))
    }
}

/// Returns the next piece of a response's body, or `None` at its end. Cancel safe (`select!`).
pub(super) async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        // Other frames are trailers, which Connect does not use.
        if let Ok(piece) = frame?.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}
