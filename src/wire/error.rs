//! Everything that can go wrong between us and the server, by where it went wrong.

use super::envelope::EnvelopeError;
use super::remote::RemoteError;

/// A call or stream that did not work.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WireError {
    /// The server answered with an error.
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
    /// Whether the connection takes no more streams; of this one nothing was looked at.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_refusal())
    }

    /// What a log may say: our own words for the transport, the bare code for what the server
    /// said, since its words may repeat what it was told.
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

/// How the transport failed. Texts name hosts and causes, never headers or bodies.
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
        "TLS with {host} failed: {cause}. Behind an inspecting proxy, point SSL_CERT_FILE or NODE_EXTRA_CA_CERTS at its CA"
    )]
    Tls {
        /// Host and port we tried.
        host: String,
        /// The innermost reason.
        cause: String,
    },
    /// The peer does not speak HTTP/2 here: a proxy stripped ALPN, or the server said so.
    #[error("HTTP/2 is not available to {host}: {cause}")]
    NoHttp2 {
        /// Host and port we tried.
        host: String,
        /// What showed it.
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
    /// The stream ended in good order, and the turn on it had not.
    #[error("the server ended the stream before the turn was over")]
    TurnUnfinished,
    /// Bytes that are no envelopes, or an envelope we refuse.
    #[error("malformed stream: {0}")]
    Envelope(#[from] EnvelopeError),
    /// An envelope whose payload is no message.
    #[error("malformed message from the server")]
    Message,
    /// A message that is larger than any the server has reason to send.
    #[error("Cursor sent a message of {size} bytes; no more than {limit} are taken")]
    MessageTooLarge {
        /// Its size.
        size: usize,
        /// The limit in force.
        limit: usize,
    },
    /// An end-of-stream envelope that is no JSON.
    #[error("malformed end-of-stream message")]
    EndStream,
    /// A 200 answer that is not Connect.
    #[error("unexpected content type {0:?} from the server")]
    ContentType(String),
    /// A deadline of ours passed.
    #[error("no answer from {host} within {seconds} s")]
    Deadline {
        /// Who was asked.
        host: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The keep-alive ping went unanswered.
    #[error("connection timed out: the server does not answer pings")]
    KeepAlive,
}

impl TransportError {
    /// Whether HTTP/1.1 may work where this failed: nothing of the run was answered yet and
    /// the failure is one that middleboxes without HTTP/2 produce.
    pub fn suggests_http1(&self) -> bool {
        matches!(self, Self::NoHttp2 { .. })
    }

    /// Whether the connection takes no more streams; of this one nothing was looked at.
    pub fn is_refusal(&self) -> bool {
        *self == Self::Reset(h2::Reason::REFUSED_STREAM.into())
    }
}

/// Names what reqwest reports, by the most telling cause in its chain.
pub(super) fn from_reqwest(error: &reqwest::Error, host: &str) -> TransportError {
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
                cause: "TLS offers no HTTP/2 there".into(),
            };
        }
        return TransportError::Tls {
            host: host.to_owned(),
            cause: tls.to_string(),
        };
    }
    let cause = innermost(error);
    if error.is_connect() {
        return TransportError::Connect {
            host: host.to_owned(),
            cause,
        };
    }
    if error.is_timeout() || cause.contains("keep-alive timed out") {
        return TransportError::KeepAlive;
    }
    TransportError::Lost(cause)
}

/// The first cause of a type; looks into `io::Error` too, which hides what it wraps.
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
        // What a server without HTTP/2 answers to the preface does not parse as frames.
        Some(_) if error.is_library() && !error.is_remote() => TransportError::NoHttp2 {
            host: host.to_owned(),
            cause: "the answer is not HTTP/2".into(),
        },
        Some(code) if error.is_go_away() => TransportError::GoAway(code),
        Some(code) => TransportError::Reset(code),
        None => TransportError::Lost(error.to_string()),
    }
}
