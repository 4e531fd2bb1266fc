//! HTTP clients: one per protocol, built when first needed.
//!
//! Building reads the system's trust store, so a machine without one gets an error for the
//! call at hand instead of a process that does not start.

use std::path::PathBuf;
use std::time::Duration;

use super::endpoint::BaseUrl;
use super::headers::HttpVersion;
use super::lane::{Lanes, Seat};

/// Pings keep middleboxes awake and find dead peers; without them a lost network hangs.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// One stalled stream may hold 1 MiB; the connection has room for many such.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 32 * 1024 * 1024;

/// The clients.
#[derive(Debug)]
pub struct Http {
    trust: Trust,
    tls1: Lanes,
    tls2: Lanes,
    plain1: Lanes,
    plain2: Lanes,
}

impl Default for Http {
    fn default() -> Self {
        Self::new(Trust::default())
    }
}

/// Whom we trust beyond the system's store.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// `SSL_CERT_FILE`: replaces the system's store. Read by the TLS library; checked here.
    pub bundle: Option<PathBuf>,
    /// `NODE_EXTRA_CA_CERTS`: added to it, so that one setting serves pi and us.
    pub extra: Option<PathBuf>,
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

impl Trust {
    /// Reads the two variables.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Self {
        let path = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self {
            bundle: path("SSL_CERT_FILE"),
            extra: path("NODE_EXTRA_CA_CERTS"),
        }
    }

    /// The extra certificates; also says now, not at the first handshake, that a file is bad.
    fn certificates(&self) -> Result<Vec<reqwest::Certificate>, SetupError> {
        if let Some(path) = &self.bundle {
            read_pem("SSL_CERT_FILE", path)?;
        }
        match &self.extra {
            Some(path) => read_pem("NODE_EXTRA_CA_CERTS", path),
            None => Ok(Vec::new()),
        }
    }
}

fn read_pem(
    setting: &'static str,
    path: &std::path::Path,
) -> Result<Vec<reqwest::Certificate>, SetupError> {
    let fail = |problem: String| SetupError::CaFile {
        setting,
        path: path.to_owned(),
        problem,
    };
    let pem = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    let certificates =
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| fail("not PEM".into()))?;
    if certificates.is_empty() {
        return Err(fail("no certificate in it".into()));
    }
    Ok(certificates)
}

impl Http {
    /// Clients that trust the system and `trust`.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            tls1: Lanes::single(),
            tls2: Lanes::shared(),
            plain1: Lanes::single(),
            plain2: Lanes::shared(),
        }
    }

    /// A place on a connection to a host, by protocol version.
    pub(super) fn seat(&self, base: &BaseUrl, version: HttpVersion) -> Result<Seat, SetupError> {
        let build = || self.build(base.is_tls(), version);
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
        match (base.is_tls(), version) {
            (true, HttpVersion::Http1) => &self.tls1,
            (true, HttpVersion::Http2) => &self.tls2,
            (false, HttpVersion::Http1) => &self.plain1,
            (false, HttpVersion::Http2) => &self.plain2,
        }
    }

    fn build(&self, tls: bool, version: HttpVersion) -> Result<reqwest::Client, SetupError> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        // Plain HTTP goes to this machine only: no trust store to read, no time lost.
        let builder = if tls {
            builder.tls_certs_merge(self.trust.certificates()?)
        } else {
            builder.tls_certs_only(std::iter::empty())
        };
        let builder = match version {
            HttpVersion::Http1 => builder.http1_only(),
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
