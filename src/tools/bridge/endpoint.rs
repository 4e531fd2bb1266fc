//! The loopback MCP endpoint: any MCP client may call the host's tools of a live run.
//!
//! One server a process, started when the first address is asked for. It lets in who knows
//! the path and the token of a run, hands the rest to rmcp, and ends with the run. It binds
//! 127.0.0.1 only, executes nothing, and logs neither path nor token.

mod admission;
mod mcp;
mod presence;
mod route;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::SecretString;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::gate::Gate;
use crate::diag;
use admission::{MOST_BYTES, Refusal};
use route::Route;

/// Connections at once. With those that are turned away, they leave room among the 1024 files
/// that many systems let a process have open.
const MOST_CONNECTIONS: usize = 768;
/// From here on a connection is for one request: idle ones would keep others out.
const MANY_CONNECTIONS: usize = MOST_CONNECTIONS / 2;
/// Connections beyond, which are told to come back later; more wait to be accepted.
const MOST_TURNED_AWAY: usize = 128;
/// Connections that may wait to be accepted, if the system agrees.
const BACKLOG: u32 = 4096;
/// What all requests under way may hold together, in KiB.
const ROOM_KIB: usize = 64 * 1024;
/// How long a client may take for a request's head.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long it may take for the body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Ended runs whose address is answered with 410; older ones get 404.
const MOST_ENDED: usize = 1024;
/// How long to wait when the system has no more sockets for us.
const EXHAUSTED: Duration = Duration::from_millis(100);

type Answered = Response<BoxBody<Bytes, Infallible>>;

/// Where a run's tools can be called, and with what.
#[derive(Debug, Clone)]
pub struct Address {
    /// The URL; its path cannot be guessed.
    pub url: SecretString,
    /// The bearer token.
    pub token: SecretString,
}

/// Why there is no address.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No socket.
    #[error("cannot listen on 127.0.0.1: {0}")]
    Listen(#[from] std::io::Error),
    /// No token.
    #[error("no source of randomness: {0}")]
    Random(#[from] getrandom::Error),
}

/// The server, which may not have been needed yet. It ends when dropped.
#[derive(Default)]
pub struct Server {
    listening: OnceCell<(Arc<Listening>, DropGuard)>,
}

struct Listening {
    port: u16,
    routes: Mutex<Routes>,
    room: Arc<Semaphore>,
    /// For connections that are served.
    places: Arc<Semaphore>,
    patience: Duration,
}

#[derive(Default)]
struct Routes {
    open: HashMap<String, Arc<Route>>,
    ended: VecDeque<String>,
}

impl Server {
    /// The address of a gate; the same each time.
    pub async fn open(&self, gate: &Arc<Gate>) -> Result<Address, OpenError> {
        let address = gate.address.get_or_try_init(|| async {
            let started = self.listening.get_or_try_init(Listening::start);
            let (listening, _) = started.await?;
            Ok::<_, OpenError>(listening.route(gate)?)
        });
        Ok(address.await?.clone())
    }
}

impl Listening {
    async fn start() -> Result<(Arc<Self>, DropGuard), std::io::Error> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let listening = Arc::new(Self {
            port: listener.local_addr()?.port(),
            routes: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM_KIB)),
            places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            patience: BODY_TIME,
        });
        let end = CancellationToken::new();
        tokio::spawn(accept(listener, Arc::clone(&listening), end.clone()));
        tracing::debug!(port = listening.port, "bridge.listening");
        Ok((listening, end.drop_guard()))
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a way to a gate and sees to it that it ends with the run.
    fn route(self: &Arc<Self>, gate: &Arc<Gate>) -> Result<Address, getrandom::Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let token = SecretString::from(URL_SAFE_NO_PAD.encode(random));
        diag::secrets().learn(&token);
        let path = format!("/mcp/{}", Uuid::new_v4());
        let address = Address {
            url: format!("http://127.0.0.1:{}{path}", self.port).into(),
            token: token.clone(),
        };
        let route = Arc::new(Route::new(token, gate));
        self.routes().open.insert(path.clone(), Arc::clone(&route));
        let over = gate.over().clone();
        let listening = Arc::clone(self);
        tokio::spawn(async move {
            over.cancelled().await;
            listening.end(path);
            route.close().await;
        });
        Ok(address)
    }

    fn end(&self, path: String) {
        let mut routes = self.routes();
        routes.open.remove(&path);
        if routes.ended.len() >= MOST_ENDED {
            routes.ended.pop_front();
        }
        routes.ended.push_back(path);
    }

    fn find(&self, path: &str) -> Result<Arc<Route>, Refusal> {
        let routes = self.routes();
        match routes.open.get(path) {
            Some(route) => Ok(Arc::clone(route)),
            None if routes.ended.iter().any(|ended| ended == path) => Err(Refusal::Gone),
            None => Err(Refusal::NotFound),
        }
    }

    /// Lets a request in, or says why not. The body is read last: nobody without the token
    /// has us read anything.
    async fn handle<B>(&self, request: Request<B>) -> Result<Answered, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        admission::local(request.uri(), request.headers(), self.port)?;
        let route = self.find(request.uri().path())?;
        admission::authorized(request.headers(), route.token())?;
        let (head, body) = request.into_parts();
        let room = self.reserve(&head.headers)?;
        let body = read(body, self.patience).await?;
        route
            .serve(Request::from_parts(head, Full::new(body)), room)
            .await
    }

    /// Room for a body: as much as it says it has, or all it may have.
    fn reserve(&self, headers: &http::HeaderMap) -> Result<OwnedSemaphorePermit, Refusal> {
        let declared = headers
            .get(CONTENT_LENGTH)
            .map(|length| length.to_str().ok().and_then(|text| text.parse().ok()));
        let bytes: usize = match declared {
            Some(length) => length.ok_or(Refusal::Broken)?,
            None if headers.contains_key(http::header::TRANSFER_ENCODING) => MOST_BYTES,
            None => 0,
        };
        if bytes > MOST_BYTES {
            return Err(Refusal::TooLarge);
        }
        let kib = u32::try_from(bytes / 1024 + 1).map_err(|_| Refusal::TooLarge)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(kib);
        room.map_err(|_| Refusal::Busy)
    }
}

/// Takes connections until the server ends; open ones end with it.
async fn accept(listener: TcpListener, listening: Arc<Listening>, end: CancellationToken) {
    let away = Arc::new(Semaphore::new(MOST_TURNED_AWAY));
    let accepting = async {
        // Whoever connects is answered, also when there is no place.
        while let Ok(spare) = Arc::clone(&away).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            };
            let (place, welcome) = match Arc::clone(&listening.places).try_acquire_owned() {
                Ok(place) => (place, Welcome::Served),
                Err(_) => (spare, Welcome::TurnedAway),
            };
            let serving = serve(stream, Arc::clone(&listening), welcome);
            let end = end.clone();
            tokio::spawn(async move {
                let _place = place;
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

async fn serve(stream: TcpStream, listening: Arc<Listening>, welcome: Welcome) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let listening = Arc::clone(&listening);
        async move {
            let answer = match welcome {
                Welcome::Served => listening.handle(request).await,
                Welcome::TurnedAway => Err(Refusal::Busy),
            };
            let mut answer = answer.unwrap_or_else(refused);
            let free = listening.places.available_permits();
            if welcome == Welcome::TurnedAway || MOST_CONNECTIONS - free > MANY_CONNECTIONS {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    // A client that breaks off is no event of ours.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Reads a body, unless it is too long or too slow.
async fn read<B>(body: B, patience: Duration) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = std::pin::pin!(Limited::new(body, MOST_BYTES).collect());
    match tokio::time::timeout(patience, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge),
        Ok(Err(_)) => Err(Refusal::Broken),
        Err(_) => Err(Refusal::TooSlow),
    }
}

fn refused(refusal: Refusal) -> Answered {
    tracing::debug!(status = refusal.status().as_u16(), "bridge.refused");
    let mut answer = Response::new(Full::new(Bytes::from(refusal.to_string())).boxed());
    *answer.status_mut() = refusal.status();
    let headers = answer.headers_mut();
    match refusal {
        Refusal::Unauthorized => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Refusal::Busy => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    answer
}

impl Drop for Route {
    /// What nobody can use needs no hiding, and the scrubber's memory is small.
    fn drop(&mut self) {
        diag::secrets().forget(self.token());
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use secrecy::ExposeSecret as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let frames = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let body = StreamBody::new(frames);
        assert_eq!(read(body, BODY_TIME).await, Err(Refusal::TooSlow));
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_cut_off_where_it_gets_too_long() {
        let body = |bytes: usize| Full::new(Bytes::from(vec![b' '; bytes]));
        assert_eq!(
            read(body(MOST_BYTES), BODY_TIME).await.unwrap().len(),
            MOST_BYTES
        );
        assert_eq!(
            read(body(MOST_BYTES + 1), BODY_TIME).await,
            Err(Refusal::TooLarge)
        );
    }

    #[test]
    fn an_address_hides_itself_from_logs() {
        let address = Address {
            url: "http://127.0.0.1:1/mcp/x".into(),
            token: "t".into(),
        };
        assert!(!format!("{address:?}").contains("mcp"), "{address:?}");
        assert_eq!(address.url.expose_secret().len(), 24);
    }
}
