//! HTTP on 127.0.0.1: how many are served at once, how large and how slow a request may be.
//!
//! It knows nothing of what is served; who is let in is decided by [`admission`].

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

/// Connections at once, if the system lets us have the files. Each may have a call that waits.
const MOST_CONNECTIONS: usize = 12 * 1024;
/// Connections beyond, which are told to come back later; more wait to be accepted.
const MOST_TURNED_AWAY: usize = 128;
/// Connections that may wait to be accepted, if the system agrees.
const BACKLOG: u32 = 4096;
/// The longest head, and what a connection may hold of what it has not understood yet.
const MOST_HEAD: usize = 16 * 1024;
/// How long a client may take for a request's head.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long it may take for the body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How long to wait when the system has no more sockets for us.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// An answer, whole or in pieces.
pub type Answered = Response<BoxBody<Bytes, Infallible>>;

/// How much a server takes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The longest body.
    pub body: usize,
    /// What all requests under way may hold together, in KiB.
    pub room_kib: usize,
}

/// What is served.
pub trait Site: Send + Sync + 'static {
    /// Answers a request, or says why not.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Answered, Refusal>> + Send;

    /// How a refusal is worded.
    fn refused(&self, refusal: Refusal) -> Answered;
}

/// A place on this machine where requests come in.
#[derive(Debug)]
pub struct Loopback {
    port: u16,
    bounds: Bounds,
    room: Arc<Semaphore>,
    /// For connections that are served.
    places: Arc<Semaphore>,
    most: usize,
}

impl Loopback {
    /// Takes a port; 0 is any.
    pub fn bind(port: u16, bounds: Bounds) -> Result<(TcpListener, Arc<Self>), std::io::Error> {
        let socket = TcpSocket::new_v4()?;
        // A port with a name that was just let go of may be taken again.
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

    /// Whether a connection is for one request only: idle ones would keep others out.
    fn is_crowded(&self) -> bool {
        self.places.available_permits() < self.most / 2
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Room for a body: as much as it says it has, or all it may have.
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

    /// Reads a body of JSON, unless it is too long or too slow.
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

/// Three quarters of the files we may have open: runs need some, too.
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

/// What a refusal says besides its words.
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

/// Takes connections until the server ends; open ones end with it.
pub async fn serve<S: Site>(
    listener: TcpListener,
    place: Arc<Loopback>,
    site: Arc<S>,
    end: CancellationToken,
) {
    let away = Arc::new(Semaphore::new(MOST_TURNED_AWAY));
    let accepting = async {
        // Whoever connects is answered, also when there is no place.
        while let Ok(spare) = Arc::clone(&away).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            };
            let (seat, welcome) = match Arc::clone(&place.places).try_acquire_owned() {
                Ok(seat) => (seat, Welcome::Served),
                Err(_) => (spare, Welcome::TurnedAway),
            };
            let serving = attend(stream, Arc::clone(&place), Arc::clone(&site), welcome);
            let end = end.clone();
            tokio::spawn(async move {
                let _seat = seat;
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

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Welcome {
    Served,
    TurnedAway,
}

async fn attend<S: Site>(stream: TcpStream, place: Arc<Loopback>, site: Arc<S>, welcome: Welcome) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (place, site) = (Arc::clone(&place), Arc::clone(&site));
        // On the heap: it goes when there is an answer, the connection stays while that is read.
        Box::pin(async move {
            let answer = match welcome {
                Welcome::Served => Arc::clone(&site).answer(request).await,
                Welcome::TurnedAway => Err(Refusal::Busy),
            };
            let mut answer = answer.unwrap_or_else(|refusal| site.refused(refusal));
            if welcome == Welcome::TurnedAway || place.is_crowded() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        })
    });
    // A client that breaks off is no event of ours.
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

    /// Clients written in JavaScript cut strings anywhere.
    #[tokio::test]
    async fn half_a_letter_in_a_body_is_mended() {
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
    fn connections_leave_files_for_others() {
        assert_eq!(most_connections(Some(256)), 192);
        assert_eq!(most_connections(Some(1024)), 768);
        assert_eq!(most_connections(Some(1 << 20)), MOST_CONNECTIONS);
        assert_eq!(most_connections(None), MOST_CONNECTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let frames = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let body = StreamBody::new(frames);
        assert_eq!(read(body, MOST).await, Err(Refusal::TooSlow));
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_cut_off_where_it_gets_too_long() {
        let body = |bytes: usize| Full::new(Bytes::from(vec![b' '; bytes]));
        assert_eq!(read(body(MOST), MOST).await.unwrap().len(), MOST);
        let refused = read(body(MOST + 1), MOST).await;
        assert_eq!(refused, Err(Refusal::TooLarge(MOST)));
    }
}
