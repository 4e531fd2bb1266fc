//! HTTP clients: one per protocol, built when first needed.
//!
//! Building reads the system's trust store, so a machine without one gets an error for the
//! call at hand instead of a process that does not start.

use std::path::PathBuf;
use std::time::Duration;

use super::endpoint::BaseUrl;
use super::headers::HttpVersion;
use super::lane::{Lanes, Seat};
pub use super::trust::Trust;

/// Pings keep middleboxes awake and find dead peers; without them a lost network hangs.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Many servers close an HTTP/1.1 connection after 5 s without a call; a call that meets that
/// is lost.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// One stalled stream may hold 1 MiB; the connection has room for many such.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 32 * 1024 * 1024;

/// The clients.
#[derive(Debug)]
pub struct Http {
    trust: Trust,
    far1: Lanes,
    far2: Lanes,
    plain1: Lanes,
    plain2: Lanes,
}

/// How a host is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Road {
    /// In clear text, which is for this machine only.
    Plain,
    /// Over TLS, through a proxy if the user has one for that host.
    Far,
}

impl Road {
    fn to(base: &BaseUrl) -> Self {
        match base.is_tls() {
            true => Self::Far,
            false => Self::Plain,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new(Trust::default())
    }
}

/// Why no HTTP client can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A CA file that cannot be read.
    #[error("{setting}: cannot read CA file {}: {problem}", .path.display())]
    CaFile {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The TLS library has nothing to trust, or refused the settings.
    #[error("cannot set up TLS: {0}. Install CA certificates or set SSL_CERT_FILE")]
    Tls(String),
}

impl Http {
    /// Clients that trust the system and `trust`.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            far1: Lanes::single(),
            far2: Lanes::shared(),
            plain1: Lanes::single(),
            plain2: Lanes::shared(),
        }
    }

    /// A place on a connection to a host, by protocol version.
    pub(super) fn seat(&self, base: &BaseUrl, version: HttpVersion) -> Result<Seat, SetupError> {
        let build = || self.build(Road::to(base), version);
        self.lanes(base, version).seat(build)
    }

    /// The connection does not take the stream that has this place.
    pub(super) fn full(&self, base: &BaseUrl, version: HttpVersion, seat: Seat) {
        self.lanes(base, version).full(seat);
    }

    /// Lets go of the connections to hosts of this kind: the next call opens a new one. Streams
    /// that are open stay. For a connection that says nothing any more, and would swallow the
    /// next attempt too.
    pub fn reconnect(&self, base: &BaseUrl, version: HttpVersion) {
        self.lanes(base, version).clear();
    }

    fn lanes(&self, base: &BaseUrl, version: HttpVersion) -> &Lanes {
        match (Road::to(base), version) {
            (Road::Far, HttpVersion::Http1) => &self.far1,
            (Road::Far, HttpVersion::Http2) => &self.far2,
            (Road::Plain, HttpVersion::Http1) => &self.plain1,
            (Road::Plain, HttpVersion::Http2) => &self.plain2,
        }
    }

    fn build(&self, road: Road, version: HttpVersion) -> Result<reqwest::Client, SetupError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        // A proxy would be shown the credentials of a plain call, and reach another machine.
        if road == Road::Plain {
            builder = builder.no_proxy();
        }
        let builder = match road {
            // No trust store to read, no time lost.
            Road::Plain => builder.tls_certs_only(std::iter::empty()),
            Road::Far => match self.trust.config(version)? {
                Some(config) => builder.tls_backend_preconfigured(config),
                None => builder,
            },
        };
        let builder = match version {
            HttpVersion::Http1 => builder.http1_only().pool_idle_timeout(IDLE_CONNECTION),
            HttpVersion::Http2 => builder
                .http2_prior_knowledge()
                .http2_keep_alive_interval(KEEP_ALIVE)
                .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW),
        };
        builder.build().map_err(|error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            SetupError::Tls(cause.to_string())
        })
    }
}
