//! An HTTP server on 127.0.0.1 with limits on concurrency, request size and time.
//!
//! It is independent of what is served; [`admission`] decides which requests are accepted.

pub mod admission;

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::surrogates;
use admission::Refusal;

/// Maximum number of connections, if the file limit permits. Each may have a waiting call.
const MOST_CONNECTIONS: usize = 12 * 1024;
/// Maximum number of further connections, which are answered with "busy"; more stay in the
/// backlog.
const MOST_REJECTED: usize = 128;
/// The backlog of connections not yet accepted; the system may lower it.
const BACKLOG: u32 = 4096;
/// Maximum size of a request head, and of a connection's unparsed input.
const MOST_HEAD: usize = 16 * 1024;
/// The time limit for reading a request's head.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time limit for reading a request's body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How long to wait when no more sockets are available.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// A response, buffered or streamed.
pub type Answered = Response<BoxBody<Bytes, Infallible>>;

/// The size limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The maximum body size in bytes.
    pub body: usize,
    /// The memory all concurrent requests may hold together, in KiB.
    pub room_kib: usize,
}

/// The service behind the server.
pub trait Site: Send + Sync + 'static {
    /// Answers a request, or returns why it is refused.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Answered, Refusal>> + Send;

    /// Returns the response for a refusal.
    fn refused(&self, refusal: Refusal) -> Answered;
}

/// A listening port and its limits.
#[derive(Debug)]
pub struct Loopback {
    port: u16,
    bounds: Bounds,
    room: Arc<Semaphore>,
    /// Permits for connections that are served.
    places: Arc<Semaphore>,
    most: usize,
}

impl Loopback {
    /// Binds a port; 0 chooses any free one.
    pub fn bind(port: u16, bounds: Bounds) -> Result<(TcpListener, Arc<Self>), std::io::Error> {
        let socket = TcpSocket::new_v4()?;
        // A fixed port must be usable again right after its previous user exited.
        socket.set_reuseaddr(port != 0)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let listener = socket.listen(BACKLOG)?;
        let most = most_connections(getrlimit(Resource::Nofile).current);
        let place = Self {
            port: listener.local_addr()?.port(),
            bounds,
            room: Arc::new(Semaphore::new(bounds.room_kib)),
            places: Arc::new(Semaphore::new(most)),
            most,
        };
        Ok((listener, Arc::new(place)))
    }

    /// Returns whether connections are closed after one request, because idle ones would block
    /// others.
    fn is_crowded(&self) -> bool {
        self.places.available_permits() < self.most / 2
    }

    /// Returns the port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Reserves memory for a body: its declared size, or the maximum if chunked.
    pub fn reserve(&self, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, Refusal> {
        let most = self.bounds.body;
        let declared = headers
            .get(CONTENT_LENGTH)
            .map(|length| length.to_str().ok().and_then(|text| text.parse().ok()));
        let bytes: usize = match declared {
            Some(length) => length.ok_or(Refusal::Broken)?,
            None if headers.contains_key(TRANSFER_ENCODING) => most,
            None => 0,
        };
        if bytes > most {
            return Err(Refusal::TooLarge(most));
        }
        let kib = u32::try_from(bytes / 1024 + 1).map_err(|_| Refusal::TooLarge(most))?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(kib);
        room.map_err(|_| Refusal::Busy)
    }

    /// Reads a JSON body, unless it is too long or too slow, and replaces lone surrogates in it.
    pub async fn read<B>(&self, body: B) -> Result<Bytes, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut body = BytesMut::from(read(body, self.bounds.body).await?);
        surrogates::mend(&mut body);
        Ok(body.freeze())
    }
}

/// Returns three quarters of the file limit, because runs need files too.
fn most_connections(files: Option<u64>) -> usize {
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(MOST_CONNECTIONS, |files| {
        (files / 4 * 3).min(MOST_CONNECTIONS)
    })
}

async fn read<B>(body: B, most: usize) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = std::pin::pin!(Limited::new(body, most).collect());
    match tokio::time::timeout(BODY_TIME, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge(most)),
        Ok(Err(_)) => Err(Refusal::Broken),
        Err(_) => Err(Refusal::TooSlow),
    }
}

/// Adds the headers that belong to a refusal.
pub fn hints(refusal: Refusal, headers: &mut HeaderMap) {
    match refusal {
        Refusal::Unauthorized => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Refusal::Busy => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
}

/// Accepts connections until `end` fires, which also closes open ones.
pub async fn serve<S: Site>(
    listener: TcpListener,
    place: Arc<Loopback>,
    site: Arc<S>,
    end: CancellationToken,
) {
    let away = Arc::new(Semaphore::new(MOST_REJECTED));
    let accepting = async {
        // Every client gets a response, even if all places are taken.
        while let Ok(spare) = Arc::clone(&away).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            };
            let (permit, admission) = match Arc::clone(&place.places).try_acquire_owned() {
                Ok(permit) => (permit, Admission::Served),
                Err(_) => (spare, Admission::Rejected),
            };
            let serving =
                serve_connection(stream, Arc::clone(&place), Arc::clone(&site), admission);
            let end = end.clone();
            tokio::spawn(async move {
                let _seat = permit;
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

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Served,
    Rejected,
}

async fn serve_connection<S: Site>(
    stream: TcpStream,
    place: Arc<Loopback>,
    site: Arc<S>,
    admission: Admission,
) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (place, site) = (Arc::clone(&place), Arc::clone(&site));
        // Boxed, because it is dropped when the response is ready, while the connection lives on.
        Box::pin(async move {
            let answer = match admission {
                Admission::Served => Arc::clone(&site).answer(request).await,
                Admission::Rejected => Err(Refusal::Busy),
            };
            let mut answer = answer.unwrap_or_else(|refusal| site.refused(refusal));
            if admission == Admission::Rejected || place.is_crowded() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        })
    });
    // A client that disconnects is not an error.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    const MOST: usize = 64 * 1024;

    /// JavaScript clients may cut a string inside a surrogate pair.
    #[tokio::test]
    async fn a_lone_surrogate_in_a_body_is_replaced() {
        let bounds = Bounds {
            body: MOST,
            room_kib: 64,
        };
        let (_listener, place) = Loopback::bind(0, bounds).unwrap();
        let body = Full::new(Bytes::from_static(br#"{"a":"\ud83d"}"#));
        let read = place.read(body).await.unwrap();
        assert_eq!(read, br#"{"a":"\ufffd"}"#.as_slice());
    }

    #[test]
    fn connections_use_only_part_of_the_file_limit() {
        assert_eq!(most_connections(Some(256)), 192);
        assert_eq!(most_connections(Some(1024)), 768);
        assert_eq!(most_connections(Some(1 << 20)), MOST_CONNECTIONS);
        assert_eq!(most_connections(None), MOST_CONNECTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_times_out() {
        let frames = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let body = StreamBody::new(frames);
        assert_eq!(read(body, MOST).await, Err(Refusal::TooSlow));
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_refused_when_it_gets_too_long() {
        let body = |bytes: usize| Full::new(Bytes::from(vec![b' '; bytes]));
        assert_eq!(read(body(MOST), MOST).await.unwrap().len(), MOST);
        let refused = read(body(MOST + 1), MOST).await;
        assert_eq!(refused, Err(Refusal::TooLarge(MOST)));
    }
}
