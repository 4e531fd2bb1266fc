//! The loopback MCP endpoint: any MCP client may call the host's tools of a live run.
//!
//! One server per process, started when the first address is requested. It admits clients that
//! know the path and the token of a run, passes their requests to rmcp, and closes the run's
//! route when the run ends. It binds 127.0.0.1 only, executes nothing, and logs neither path nor
//! token.

mod body;
mod mcp;
mod route;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use secrecy::SecretString;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::external_calls::ExternalCallSender;
use crate::local_http::access::{HttpError, check_token};
use crate::local_http::{BodyReader, LocalServer};
use body::BodyError;
use route::RunRoute;

/// The maximum body size in bytes.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The memory all concurrent requests may hold together, in KiB.
const MEMORY_KIB: usize = 64 * 1024;
/// How many ended runs are answered with 410; older ones get 404.
const MAX_ENDED: usize = 1024;

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
pub enum McpEndpointError {
    /// The socket could not be opened.
    #[error("cannot listen on 127.0.0.1: {0}")]
    Listen(#[from] std::io::Error),
    /// No token could be generated.
    #[error("no source of randomness: {0}")]
    Random(#[from] getrandom::Error),
}

/// The MCP server, started on first use. It stops when dropped.
#[derive(Default)]
pub struct McpEndpoint {
    listening: OnceCell<(Arc<Listening>, DropGuard)>,
}

struct Listening {
    port: u16,
    bodies: BodyReader,
    routes: Mutex<RouteTable>,
}

#[derive(Default)]
struct RouteTable {
    open: HashMap<String, Arc<RunRoute>>,
    ended: VecDeque<String>,
}

impl McpEndpoint {
    /// Returns the address under which a run's tools can be called, the same one on every call.
    pub async fn open(
        &self,
        sender: &Arc<ExternalCallSender>,
    ) -> Result<Address, McpEndpointError> {
        let address = sender.address.get_or_try_init(|| async {
            let started = self.listening.get_or_try_init(Listening::start);
            let (listening, _) = started.await?;
            Ok::<_, McpEndpointError>(listening.route(sender)?)
        });
        Ok(address.await?.clone())
    }
}

impl Listening {
    async fn start() -> Result<(Arc<Self>, DropGuard), std::io::Error> {
        let server = LocalServer::bind(0)?;
        let listening = Arc::new(Self {
            port: server.port(),
            bodies: BodyReader::new(MAX_BODY_BYTES, MEMORY_KIB),
            routes: Mutex::default(),
        });
        tracing::debug!(port = server.port(), "bridge.listening");
        let app = Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&listening));
        let end = CancellationToken::new();
        tokio::spawn(server.serve::<HttpError>(app, end.clone()));
        Ok((listening, end.drop_guard()))
    }

    fn routes(&self) -> MutexGuard<'_, RouteTable> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the route to a run's tools, which is closed when the run ends.
    fn route(
        self: &Arc<Self>,
        sender: &Arc<ExternalCallSender>,
    ) -> Result<Address, getrandom::Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let token = SecretString::from(URL_SAFE_NO_PAD.encode(random));
        foundation::secrets().learn(&token);
        let path = format!("/mcp/{}", Uuid::new_v4());
        let address = Address {
            url: format!("http://127.0.0.1:{}{path}", self.port).into(),
            token: token.clone(),
        };
        let route = Arc::new(RunRoute::new(token, sender));
        self.routes().open.insert(path.clone(), Arc::clone(&route));
        let over = sender.over().clone();
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
        if routes.ended.len() >= MAX_ENDED {
            routes.ended.pop_front();
        }
        routes.ended.push_back(path);
    }

    fn find(&self, path: &str) -> Result<Arc<RunRoute>, HttpError> {
        let routes = self.routes();
        match routes.open.get(path) {
            Some(route) => Ok(Arc::clone(route)),
            None if routes.ended.iter().any(|ended| ended == path) => Err(HttpError::Gone),
            None => Err(HttpError::NotFound),
        }
    }
}

/// Passes a request to the run it names, or returns why not. The body is read last, so that clients
/// without the token cannot make us read anything.
async fn serve(
    State(listening): State<Arc<Listening>>,
    request: Request,
) -> Result<Response, HttpError> {
    let route = listening.find(request.uri().path())?;
    check_token(request.headers(), route.token())?;
    let (head, body) = request.into_parts();
    let (body, memory) = listening.bodies.read(&head.headers, body).await?;
    let is_message = head.method == Method::POST && body::is_json(&head.headers);
    if is_message && let Err(error) = body::check(&body) {
        return Ok(error.into_response());
    }
    let mut inner = Request::new(Full::new(body));
    *inner.method_mut() = head.method;
    *inner.headers_mut() = copied(&head.headers);
    let response = route.serve(inner, memory).await?;
    // The content type is right; rmcp rejected the content.
    if is_message && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        Ok(BodyError::NoMessage.into_response())
    } else {
        Ok(response)
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

impl Drop for RunRoute {
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
