//! The route to one run: its token, its MCP sessions, and their end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use secrecy::SecretString;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::mcp::Tools;
use super::{ExternalCallSender, HttpError, MAX_BODY_BYTES};

/// MCP sessions of one run. A client that reconnects repeatedly displaces idle sessions.
const MAX_SESSIONS: usize = 64;
/// How long clients may take to read the last responses of a run.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const SESSION: &str = "mcp-session-id";

/// Fires when the client of a request has disconnected or received the whole response.
///
/// rmcp keeps a session for a client that may reconnect, and does not report broken connections. On
/// loopback a client that disconnected is gone, so its call must not wait for an hour.
#[derive(Debug, Clone)]
pub(super) struct CallerDisconnected(pub(super) CancellationToken);

pub(super) struct RunRoute {
    token: SecretString,
    service: StreamableHttpService<Tools, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    /// Oldest first. Every request in progress holds a clone of its session's marker.
    sessions: Mutex<Vec<(String, Arc<()>)>>,
    /// Cloned by requests that open a session not yet in the list.
    opening: Arc<()>,
    /// Responses in progress.
    responses: TaskTracker,
    end: CancellationToken,
}

impl RunRoute {
    pub(super) fn new(token: SecretString, sender: &Arc<ExternalCallSender>) -> Self {
        let mut sessions = SessionConfig::default();
        // rmcp would end a session whose only call waits for more than five minutes, and the
        // TypeScript client would not notice. Sessions end with the run instead.
        sessions.keep_alive = None;
        // Do not invite clients to reconnect: a client that disconnects has cancelled its call.
        sessions.sse_retry = None;
        // So there is nothing to cache for a reconnecting client.
        sessions.completed_cache_ttl = Duration::ZERO;
        let mut manager = LocalSessionManager::default();
        manager.session_config = sessions;
        let manager = Arc::new(manager);
        let end = CancellationToken::new();
        // Host and Origin are already checked when a request arrives here, with a rule that rmcp
        // lacks (the port in Host must be ours).
        let config = StreamableHttpServerConfig::default()
            .with_sse_retry(None)
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(end.clone());
        let sender = Arc::clone(sender);
        let tools = move || {
            Ok(Tools {
                sender: Arc::clone(&sender),
            })
        };
        Self {
            token,
            service: StreamableHttpService::new(tools, Arc::clone(&manager), config),
            manager,
            sessions: Mutex::default(),
            opening: Arc::new(()),
            responses: TaskTracker::new(),
            end,
        }
    }

    pub(super) fn token(&self) -> &SecretString {
        &self.token
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<(String, Arc<()>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an authorized request to rmcp. `memory` is released when the response has been read.
    pub(super) async fn serve(
        &self,
        mut request: Request<Full<Bytes>>,
        memory: OwnedSemaphorePermit,
    ) -> Result<Response, HttpError> {
        let disconnected = CancellationToken::new();
        request
            .extensions_mut()
            .insert(CallerDisconnected(disconnected.clone()));
        // Dropped with this future if the client disconnects before there is a response.
        let disconnected = disconnected.drop_guard();
        let known = request.headers().get(SESSION);
        let known = known.and_then(|id| id.to_str().ok().map(str::to_owned));
        let call = (*request.method() == Method::POST).then(|| self.responses.token());
        let ends = *request.method() == Method::DELETE;
        let mut mark = None;
        let mut reservation = None;
        match &known {
            Some(id) => mark = self.mark(id),
            None => reservation = Some(self.reserve_session().await?),
        }
        let response = self.service.handle(request).await;
        match known {
            Some(id) if ends => self.sessions().retain(|(known, _)| *known != id),
            Some(_) => {}
            None => {
                let id = response.headers().get(SESSION);
                if let Some(id) = id.and_then(|id| id.to_str().ok()) {
                    let fresh = Arc::new(());
                    let mut sessions = self.sessions();
                    sessions.push((id.to_owned(), Arc::clone(&fresh)));
                    reservation = None;
                    mark = Some(fresh);
                }
            }
        }
        drop(reservation);
        let held = (disconnected, memory, call, mark);
        // The closure owns what is released with the body.
        Ok(response.map(|body| {
            Body::new(body.map_err(move |never| {
                let _held = &held;
                never
            }))
        }))
    }

    fn mark(&self, id: &str) -> Option<Arc<()>> {
        let sessions = self.sessions();
        let found = sessions.iter().find(|(known, _)| known == id);
        found.map(|(_, mark)| Arc::clone(mark))
    }

    /// Reserves a place for a new session. If there are too many, ends the oldest idle one first.
    async fn reserve_session(&self) -> Result<Arc<()>, HttpError> {
        let (reservation, idle) = {
            let mut sessions = self.sessions();
            let opening = Arc::strong_count(&self.opening) - 1;
            let reservation = Arc::clone(&self.opening);
            if sessions.len() + opening < MAX_SESSIONS {
                return Ok(reservation);
            }
            let idle = sessions
                .iter()
                .position(|(_, mark)| Arc::strong_count(mark) == 1);
            let (id, _) = sessions.remove(idle.ok_or(HttpError::Busy)?);
            (reservation, id)
        };
        let _ = self.manager.close_session(&idle.into()).await;
        Ok(reservation)
    }

    /// Waits for the last responses, then ends every session. A client whose call was cut off
    /// without a response would try to resume it forever.
    pub(super) async fn close(&self) {
        self.responses.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.responses.wait()).await;
        let sessions = std::mem::take(&mut *self.sessions());
        for (id, _) in sessions {
            let _ = self.manager.close_session(&id.into()).await;
        }
        self.end.cancel();
    }
}
