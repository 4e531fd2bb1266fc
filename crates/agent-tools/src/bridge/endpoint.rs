//! The loopback MCP endpoint: any MCP client may call the host's tools of a live run.
//!
//! One server per process, started when the first address is requested. It admits clients that
//! know the path and the token of a run, passes their requests to rmcp, and closes the run's
//! route when the run ends. It binds 127.0.0.1 only, executes nothing, and logs neither path nor
//! token.

mod body;
mod mcp;
mod presence;
mod route;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use secrecy::SecretString;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::external_calls::ExternalCallSender;
use crate::loopback::admission::{self, Refusal};
use crate::loopback::{Answered, Bounds, Loopback, Site, hints, serve};
use body::Fault;
use route::Route;

/// The maximum body size in bytes.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// The memory all concurrent requests may hold together, in KiB.
const ROOM_KIB: usize = 64 * 1024;
/// How many ended runs are answered with 410; older ones get 404.
const MOST_ENDED: usize = 1024;

/// The URL and token with which a run's tools can be called.
#[derive(Debug, Clone)]
pub struct Address {
    /// The URL; its path cannot be guessed.
    pub url: SecretString,
    /// The bearer token.
    pub token: SecretString,
}

/// Why no address could be created.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The socket could not be opened.
    #[error("cannot listen on 127.0.0.1: {0}")]
    Listen(#[from] std::io::Error),
    /// No token could be generated.
    #[error("no source of randomness: {0}")]
    Random(#[from] getrandom::Error),
}

/// The MCP server, started on first use. It stops when dropped.
#[derive(Default)]
pub struct Server {
    listening: OnceCell<(Arc<Listening>, DropGuard)>,
}

struct Listening {
    place: Arc<Loopback>,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    open: HashMap<String, Arc<Route>>,
    ended: VecDeque<String>,
}

impl Server {
    /// Returns the address of a gate, the same one on every call.
    pub async fn open(&self, gate: &Arc<ExternalCallSender>) -> Result<Address, OpenError> {
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
        let bounds = Bounds {
            body: MOST_BYTES,
            room_kib: ROOM_KIB,
        };
        let (listener, place) = Loopback::bind(0, bounds)?;
        let listening = Arc::new(Self {
            place: Arc::clone(&place),
            routes: Mutex::default(),
        });
        let end = CancellationToken::new();
        tracing::debug!(port = place.port(), "bridge.listening");
        tokio::spawn(serve(listener, place, Arc::clone(&listening), end.clone()));
        Ok((listening, end.drop_guard()))
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a route to a gate that is closed when the run ends.
    fn route(
        self: &Arc<Self>,
        gate: &Arc<ExternalCallSender>,
    ) -> Result<Address, getrandom::Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let token = SecretString::from(URL_SAFE_NO_PAD.encode(random));
        foundation::secrets().learn(&token);
        let path = format!("/mcp/{}", Uuid::new_v4());
        let address = Address {
            url: format!("http://127.0.0.1:{}{path}", self.place.port()).into(),
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
}

impl Site for Listening {
    /// Admits a request, or returns why not. The body is read last, so that clients without the
    /// token cannot make us read anything.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answered, Refusal> {
        admission::local(request.uri(), request.headers(), self.place.port())?;
        let route = self.find(request.uri().path())?;
        admission::authorized(request.headers(), route.token())?;
        let (head, body) = request.into_parts();
        let room = self.place.reserve(&head.headers)?;
        let body = self.place.read(body).await?;
        let message = head.method == Method::POST && body::says_json(&head.headers);
        if message && let Err(fault) = body::check(&body) {
            return Ok(fault.answer());
        }
        let mut inner = Request::new(Full::new(body));
        *inner.method_mut() = head.method;
        *inner.headers_mut() = copied(&head.headers);
        let answer = route.serve(inner, room).await?;
        // The content type is right; rmcp rejected the content.
        if message && answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            Ok(Fault::NoMessage.answer())
        } else {
            Ok(answer)
        }
    }

    fn refused(&self, refusal: Refusal) -> Answered {
        tracing::debug!(status = refusal.status().as_u16(), "bridge.refused");
        let mut answer = Response::new(Full::new(Bytes::from(refusal.to_string())).boxed());
        *answer.status_mut() = refusal.status();
        hints(refusal, answer.headers_mut());
        answer
    }
}

/// Copies the headers that rmcp keeps while a call waits: without the token, and without
/// references into the connection's buffer.
fn copied(headers: &HeaderMap) -> HeaderMap {
    let copy = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        (*name != AUTHORIZATION).then(|| (name.clone(), value))
    };
    headers.iter().filter_map(copy).collect()
}

impl Drop for Route {
    /// Stops redacting the token: it is no longer valid, and the redactor's capacity is small.
    fn drop(&mut self) {
        foundation::secrets().forget(self.token());
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn an_address_is_redacted_in_debug_output() {
        let address = Address {
            url: "http://127.0.0.1:1/mcp/x".into(),
            token: "t".into(),
        };
        assert!(!format!("{address:?}").contains("mcp"), "{address:?}");
        assert_eq!(address.url.expose_secret().len(), 24);
    }
}
