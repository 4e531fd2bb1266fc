//! Errors between us and the server, by where they occurred.

use super::connect_error::RemoteError;
use super::connector::ProxyFailed;
use cursor_proto::envelope::EnvelopeError;

/// Why a call or stream failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WireError {
    /// The server returned an error.
    #[error("{}", shown(.0))]
    Remote(Box<RemoteError>),
    /// The connection or the bytes on it failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

fn shown(error: &RemoteError) -> String {
    format!("[{}] {}", error.code, error.text())
}

impl From<RemoteError> for WireError {
    fn from(error: RemoteError) -> Self {
        Self::Remote(Box::new(error))
    }
}

impl WireError {
    /// Returns whether the connection accepts no more streams. The server has processed nothing of
    /// the refused stream, so it is safe to retry.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_refusal())
    }

    /// Returns a text that is safe to log: our own text for a transport error, only the code for a
    /// server error, because the server's text may repeat what it was sent.
    pub fn cause(&self) -> String {
        match self {
            Self::Remote(remote) => match remote.status {
                Some(status) => format!("remote {} (HTTP {status})", remote.code),
                None => format!("remote {}", remote.code),
            },
            Self::Transport(error) => error.to_string(),
        }
    }
}

/// How the transport failed. Texts contain hosts and causes, never headers or bodies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No connection: refused, unreachable, name not found, proxy failed.
    #[error("cannot connect to {host}: {cause}")]
    Connect {
        /// Host and port we tried.
        host: String,
        /// The innermost reason.
        cause: String,
    },
    /// The TLS handshake or certificate check failed.
    #[error(
        "TLS with {host} failed: {cause}. If a proxy inspects TLS, set SSL_CERT_FILE or NODE_EXTRA_CA_CERTS to its CA file"
    )]
    Tls {
        /// Host and port we tried.
        host: String,
        /// The innermost reason.
        cause: String,
    },
    /// The peer does not support HTTP/2: a proxy stripped ALPN, or the server reported it.
    #[error("HTTP/2 is not available to {host}: {cause}")]
    NoHttp2 {
        /// Host and port we tried.
        host: String,
        /// How it was detected.
        cause: String,
    },
    /// The stream was reset.
    #[error("stream reset by the server (HTTP/2 error {0})")]
    Reset(u32),
    /// The server closed the whole connection.
    #[error("connection closed by the server (HTTP/2 GOAWAY {0})")]
    GoAway(u32),
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The stream ended without its end-of-stream envelope.
    #[error("stream ended without an end-of-stream message")]
    EndedEarly,
    /// The stream ended without an error, but the turn was not complete.
    #[error("the server ended the stream before the turn was over")]
    TurnUnfinished,
    /// Bytes that are not envelopes, or an envelope we refuse.
    #[error("malformed stream: {0}")]
    Envelope(#[from] EnvelopeError),
    /// An envelope whose payload is not a valid message.
    #[error("malformed message from the server")]
    Message,
    /// A web page in place of a response: of a proxy, a portal, or a check for robots.
    #[error(
        "a web page was sent in place of Cursor's response; check the network and its proxy, then try again"
    )]
    WebPage,
    /// A message that is larger than the limit.
    #[error("Cursor sent a message of {size} bytes; no more than {limit} are taken")]
    MessageTooLarge {
        /// Its size.
        size: usize,
        /// The limit in force.
        limit: usize,
    },
    /// An end-of-stream envelope that is not JSON.
    #[error("malformed end-of-stream message")]
    EndStream,
    /// A response with status 200 that is not Connect.
    #[error("unexpected content type {0:?} from the server")]
    ContentType(String),
    /// The server did not answer before our deadline.
    #[error("no answer from {host} within {seconds} s")]
    Deadline {
        /// The host that was called.
        host: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The keep-alive ping went unanswered.
    #[error("connection timed out: the server does not answer pings")]
    KeepAlive,
}

impl TransportError {
    /// Returns the error for a response that is not what was requested.
    pub(crate) fn of_unreadable(response: &[u8]) -> Self {
        match response.trim_ascii_start().first() {
            Some(b'<') => Self::WebPage,
            _ => Self::Message,
        }
    }

    /// Returns whether the connection accepts no more streams. The server has processed nothing of
    /// the refused stream, so it is safe to retry.
    pub fn is_refusal(&self) -> bool {
        *self == Self::Reset(h2::Reason::REFUSED_STREAM.into())
    }

    /// Returns whether the server has processed nothing of a request that failed before its
    /// response: its stream was refused, or came after the server had begun to close the connection.
    pub(crate) fn is_unprocessed(&self) -> bool {
        self.is_refusal() || *self == Self::GoAway(h2::Reason::NO_ERROR.into())
    }
}

/// Converts an error of hyper by the most specific cause in its chain.
pub(super) fn from_hyper(error: &(dyn std::error::Error + 'static), host: &str) -> TransportError {
    if let Some(h2) = find::<h2::Error>(error) {
        return from_h2(h2, host);
    }
    if let Some(tls) = find::<rustls::Error>(error) {
        use rustls::{AlertDescription, Error};
        if matches!(
            tls,
            Error::NoApplicationProtocol
                | Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        ) {
            return TransportError::NoHttp2 {
                host: host.to_owned(),
                cause: "TLS did not negotiate HTTP/2".into(),
            };
        }
        return TransportError::Tls {
            host: host.to_owned(),
            cause: tls.to_string(),
        };
    }
    let mut cause = innermost(error);
    if let Some(ProxyFailed { proxy, .. }) = find(error) {
        cause = format!("the proxy {proxy}: {cause}");
    }
    if find::<hyper_util::client::legacy::Error>(error).is_some_and(|error| error.is_connect()) {
        return TransportError::Connect {
            host: host.to_owned(),
            cause,
        };
    }
    if find::<hyper::Error>(error).is_some_and(hyper::Error::is_timeout) {
        return TransportError::KeepAlive;
    }
    TransportError::Lost(cause)
}

/// Returns the first cause of a type; also looks into `io::Error`, whose `source` skips the
/// error it wraps.
fn find<'a, Cause: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a Cause> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Cause>() {
            return Some(found);
        }
        next = match error
            .downcast_ref::<std::io::Error>()
            .and_then(|io| io.get_ref())
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn from_h2(error: &h2::Error, host: &str) -> TransportError {
    let reason = error.reason().map(u32::from);
    match reason {
        Some(code) if code == u32::from(h2::Reason::HTTP_1_1_REQUIRED) => TransportError::NoHttp2 {
            host: host.to_owned(),
            cause: "the server requires HTTP/1.1".into(),
        },
        // The answer of a server without HTTP/2 to the preface does not parse as frames.
        Some(_) if error.is_library() && !error.is_remote() => TransportError::NoHttp2 {
            host: host.to_owned(),
            cause: "the answer is not HTTP/2".into(),
        },
        Some(code) if error.is_go_away() => TransportError::GoAway(code),
        Some(code) => TransportError::Reset(code),
        None => TransportError::Lost(error.to_string()),
    }
}
