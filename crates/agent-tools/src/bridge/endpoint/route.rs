//! The route to one run: its token, its MCP sessions, and their end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
use super::presence::{Answer, Left};
use super::{Answered, ExternalCallSender, MOST_BYTES, Refusal};

/// MCP sessions of one run. A client that reconnects repeatedly displaces idle sessions.
const MOST_SESSIONS: usize = 64;
/// How long clients may take to read the last responses of a run.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const SESSION: &str = "mcp-session-id";

/// The route to one run.
pub(super) struct Route {
    token: SecretString,
    service: StreamableHttpService<Tools, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    /// Oldest first. Every request in progress holds a clone of its session's marker.
    sessions: Mutex<Vec<(String, Arc<()>)>>,
    /// Cloned by requests that open a session not yet in the list.
    opening: Arc<()>,
    /// Responses in progress.
    answers: TaskTracker,
    end: CancellationToken,
}

impl Route {
    pub(super) fn new(token: SecretString, gate: &Arc<ExternalCallSender>) -> Self {
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
            .with_max_request_body_bytes(MOST_BYTES)
            .with_cancellation_token(end.clone());
        let gate = Arc::clone(gate);
        let tools = move || {
            Ok(Tools {
                gate: Arc::clone(&gate),
            })
        };
        Self {
            token,
            service: StreamableHttpService::new(tools, Arc::clone(&manager), config),
            manager,
            sessions: Mutex::default(),
            opening: Arc::new(()),
            answers: TaskTracker::new(),
            end,
        }
    }

    pub(super) fn token(&self) -> &SecretString {
        &self.token
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<(String, Arc<()>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers an admitted request. `room` is released when the response has been read.
    pub(super) async fn serve(
        &self,
        mut request: Request<Full<Bytes>>,
        room: OwnedSemaphorePermit,
    ) -> Result<Answered, Refusal> {
        let left = Left(CancellationToken::new());
        // If the client disconnects before there is a response, this future is dropped.
        let early = left.0.clone().drop_guard();
        request.extensions_mut().insert(left.clone());
        let known = request.headers().get(SESSION);
        let known = known.and_then(|id| id.to_str().ok().map(str::to_owned));
        let call = (*request.method() == Method::POST).then(|| self.answers.token());
        let ends = *request.method() == Method::DELETE;
        let mut mark = None;
        let mut reservation = None;
        match &known {
            Some(id) => mark = self.mark(id),
            None => reservation = Some(self.reserve_session().await?),
        }
        let answer = self.service.handle(request).await;
        match known {
            Some(id) if ends => self.sessions().retain(|(known, _)| *known != id),
            Some(_) => {}
            None => {
                let id = answer.headers().get(SESSION);
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
        early.disarm();
        Ok(answer.map(|body| Answer::new(body, left, (room, call, mark)).boxed()))
    }

    fn mark(&self, id: &str) -> Option<Arc<()>> {
        let sessions = self.sessions();
        let found = sessions.iter().find(|(known, _)| known == id);
        found.map(|(_, mark)| Arc::clone(mark))
    }

    /// Reserves a place for a new session. If there are too many, ends the oldest idle one first.
    async fn reserve_session(&self) -> Result<Arc<()>, Refusal> {
        let (reservation, idle) = {
            let mut sessions = self.sessions();
            let opening = Arc::strong_count(&self.opening) - 1;
            let reservation = Arc::clone(&self.opening);
            if sessions.len() + opening < MOST_SESSIONS {
                return Ok(reservation);
            }
            let idle = sessions
                .iter()
                .position(|(_, mark)| Arc::strong_count(mark) == 1);
            let (id, _) = sessions.remove(idle.ok_or(Refusal::Busy)?);
            (reservation, id)
        };
        let _ = self.manager.close_session(&idle.into()).await;
        Ok(reservation)
    }

    /// Waits for the last responses, then ends every session. A client whose call was cut off
    /// without a response would try to resume it forever.
    pub(super) async fn close(&self) {
        self.answers.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.answers.wait()).await;
        let sessions = std::mem::take(&mut *self.sessions());
        for (id, _) in sessions {
            let _ = self.manager.close_session(&id.into()).await;
        }
        self.end.cancel();
    }
}
