//! One side of a JSON-RPC connection: dispatches requests, answers each once, and sends requests of
//! its own.
//!
//! jsonrpsee is the method registry; requests in flight, cancellation, overload and order are
//! handled here. Everything that is sent passes through one queue, so notifications a method sends
//! before it returns arrive before its response.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures_util::FutureExt as _;
use jsonrpsee::core::server::{MethodCallback, Methods};
use jsonrpsee::types::{Id, Params};
use jsonrpsee::{ConnectionId, Extensions};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use super::early_params::{self, RequestParams};
use super::error;
use super::frame::{self, Inbound, MessageHeader};
use super::reply_queue::{HostGone, ReplyQueue};
use agent::run::queue::{QueuedItem, Sender};
use foundation::terminal_text::clean_json_bytes;

/// How many requests may be active or have unread responses; further ones are refused as overload.
const MAX_IN_FLIGHT: usize = 1024;
/// How many bytes of responses may be unread.
const MAX_WAITING: usize = 8 * 1024 * 1024;
/// Responses have the same limit as frames.
const MAX_RESPONSE: usize = super::frame::MAX_BODY as usize;
/// How much of an unknown method name an error repeats.
const MAX_NAME_CHARS: usize = 100;
/// How long pending replies may take when the connection ends.
const REPLY_TIMEOUT_AT_END: Duration = Duration::from_millis(100);

/// A handle for sending to the other side. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peer {
    out: Sender<Vec<u8>>,
    pending: Arc<PendingRequests>,
}

#[derive(Debug, Default)]
struct PendingRequests {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Json, Json>>>>,
}

/// Why the other side did not answer a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// It answered with an error.
    #[error("the host answered with an error: {0}")]
    Refused(Json),
    /// The connection has ended.
    #[error("the host is gone")]
    Gone,
}

impl Peer {
    /// Returns a peer that sends its frames to `out`.
    pub(super) fn new(out: Sender<Vec<u8>>) -> Self {
        Self {
            out,
            pending: Arc::default(),
        }
    }

    /// Sends a notification. Waits while the other side does not read.
    pub async fn notify(&self, method: &str, params: impl Serialize) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    /// Sends a request and returns its result. Dropping the future cancels the request.
    pub async fn request(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<Json, RequestError> {
        let id = self.pending.next.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        self.pending.lock().insert(id, answer);
        let mut guard = PendingGuard {
            peer: self,
            id,
            answered: false,
        };
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let request = request.to_string().into_bytes();
        match self.out.reserve(request.len()).await {
            Some(room) => room.put(request),
            None => return Err(RequestError::Gone),
        }
        let answer = wait.await;
        guard.answered = true;
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(RequestError::Refused(error)),
            Err(_) => Err(RequestError::Gone),
        }
    }

    async fn send(&self, message: &impl Serialize) {
        if let Ok(body) = serde_json::to_vec(message)
            // Without a reader the message is dropped: the loop that owns the connection ends by
            // itself.
            && let Some(room) = self.out.reserve(body.len()).await
        {
            room.put(body);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PendingRequests {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Json, Json>>>> {
        lock(&self.waiting)
    }
}

/// A request that is cancelled when it is dropped without an answer.
struct PendingGuard<'a> {
    peer: &'a Peer,
    id: u64,
    answered: bool,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.peer.pending.lock().remove(&self.id);
            let cancel =
                json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": self.id}});
            let cancel = cancel.to_string().into_bytes();
            if let Some(room) = self.peer.out.try_reserve(cancel.len()) {
                room.put(cancel);
            }
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// `exit` after `shutdown`.
    Orderly,
    /// `exit` without `shutdown`, or the end of the input.
    Abrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    New,
    Ready,
    ShutDown,
}

/// Serves one connection until it ends or `shutdown` resolves; active requests are then answered
/// as cancelled. `hung_up` returns whether the other side has closed its end, for when the input is
/// not read.
pub(super) async fn serve(
    methods: Methods,
    peer: Peer,
    mut inbound: mpsc::Receiver<QueuedItem<Inbound>>,
    hung_up: fn() -> bool,
    shutdown: impl Future<Output = ()>,
) -> ExitKind {
    let mut shutdown = std::pin::pin!(shutdown);
    let mut connection = HostConnection {
        methods,
        phase: ConnectionPhase::New,
        in_flight: Arc::default(),
        tasks: JoinSet::new(),
        replies: ReplyQueue::new(peer.out.clone(), hung_up),
        peer,
    };
    let ended = loop {
        let received = tokio::select! {
            frame = inbound.recv() => match frame {
                Some(frame) => connection.receive(&frame.item).await,
                None => break ExitKind::Abrupt,
            },
            Some(_) = connection.tasks.join_next() => Ok(None),
            () = connection.peer.out.closed() => break ExitKind::Abrupt,
            () = &mut shutdown => break ExitKind::Abrupt,
        };
        match received {
            Ok(None) => {}
            Ok(Some(ended)) => break ended,
            Err(HostGone) => break ExitKind::Abrupt,
        }
    };
    let last = async {
        connection.answer_all().await;
        connection.replies.finish().await;
    };
    let _ = tokio::time::timeout(REPLY_TIMEOUT_AT_END, last).await;
    ended
}

impl Drop for HostConnection {
    /// Fails every open request to the other side.
    fn drop(&mut self) {
        self.peer.pending.lock().clear();
    }
}

struct HostConnection {
    methods: Methods,
    peer: Peer,
    phase: ConnectionPhase,
    in_flight: Arc<Mutex<HashMap<String, CancellationToken>>>,
    tasks: JoinSet<()>,
    replies: ReplyQueue,
}

/// Any JSON-RPC message; its parts are not parsed.
#[derive(Deserialize)]
struct IncomingMessage<'a> {
    /// `null` is an id in a response, though not in a request.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(json: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(json).map(Some)
}

impl HostConnection {
    /// Answers the active requests, because the process ends. They are dropped with the connection.
    async fn answer_all(&self) {
        let open: Vec<String> = lock(&self.in_flight).drain().map(|(id, _)| id).collect();
        for id in open {
            let answer = error::answer(Some(&id), error::CANCELLED, "cursor-sidecar is ending");
            if self.replies.send(answer).await.is_err() {
                return;
            }
        }
    }

    async fn receive(&mut self, frame: &Inbound) -> Result<Option<ExitKind>, HostGone> {
        let body = match frame {
            Inbound::Body(body) => body,
            Inbound::Malformed(problem) => {
                self.refuse(None, error::PARSE, problem).await?;
                return Ok(None);
            }
            Inbound::TooLarge { length, heading } => {
                self.too_large(*length, heading).await?;
                return Ok(None);
            }
        };
        if let Some(request) = early_params::read(body) {
            let params = RequestParams::Parsed(request.params);
            self.request(request.id, request.method, params).await?;
            return Ok(None);
        }
        let message: IncomingMessage<'_> = match serde_json::from_slice(body) {
            Ok(message) => message,
            Err(problem) => {
                let (code, problem) = if problem.is_syntax() || problem.is_eof() {
                    (error::PARSE, "not JSON")
                } else {
                    (error::INVALID_REQUEST, "not a JSON-RPC 2.0 message")
                };
                self.refuse(None, code, problem).await?;
                return Ok(None);
            }
        };
        match (message.method, message.id) {
            (Some(method), Some(id)) => {
                let params = RequestParams::Text(message.params);
                self.request(id.get(), &method, params).await?;
            }
            (Some(method), None) => return Ok(self.notification(&method, message.params)),
            // An error response to a message of ours that could not be parsed: must not be
            // answered.
            (None, Some(id)) if id.get() != "null" || message.error.is_some() => {
                self.answer(id.get(), message.result, message.error);
            }
            (None, _) => {
                let problem = "a message needs a method or an id";
                self.refuse(None, error::INVALID_REQUEST, problem).await?;
            }
        }
        Ok(None)
    }

    async fn request(
        &mut self,
        id: &str,
        method: &str,
        params: RequestParams<'_>,
    ) -> Result<(), HostGone> {
        if !id.starts_with('"') && id.parse::<u64>().is_err() {
            let problem = "the id must be a string or a whole number from 0 up";
            return self.refuse(Some(id), error::INVALID_REQUEST, problem).await;
        }
        let (used, active) = {
            let in_flight = lock(&self.in_flight);
            (in_flight.contains_key(id), in_flight.len())
        };
        let refusal = match (self.phase, method) {
            (ConnectionPhase::New, "initialize") => None,
            (ConnectionPhase::New, _) => Some((error::NOT_INITIALIZED, "call initialize first")),
            (_, "initialize") => Some((error::INVALID_REQUEST, "initialize may be called once")),
            (ConnectionPhase::ShutDown, _) => {
                Some((error::INVALID_REQUEST, "the server is shutting down"))
            }
            (ConnectionPhase::Ready, _) if used => Some((
                error::INVALID_REQUEST,
                "this id is in use by another request",
            )),
            (ConnectionPhase::Ready, _)
                if active >= MAX_IN_FLIGHT || self.peer.out.waiting() >= MAX_WAITING =>
            {
                Some((error::OVERLOADED, "too many active requests; retry later"))
            }
            (ConnectionPhase::Ready, _) => None,
        };
        if let Some((code, problem)) = refusal {
            return self.refuse(Some(id), code, problem).await;
        }
        let Some(callback) = self.methods.method(method).cloned() else {
            let named: String = method.chars().take(MAX_NAME_CHARS).collect();
            let problem = format!("unknown method {named:?}");
            return self
                .refuse(Some(id), error::METHOD_NOT_FOUND, &problem)
                .await;
        };
        let cancel = CancellationToken::new();
        let mut call = Box::pin(self.call(callback, id, params, cancel.clone()));
        match method {
            // A failed initialize may be retried, so the phase depends on the result.
            "initialize" => {
                let (answer, good) = call.await;
                if good {
                    self.phase = ConnectionPhase::Ready;
                }
                self.replies.send(answer).await
            }
            "shutdown" => {
                let (answer, _) = call.await;
                self.phase = ConnectionPhase::ShutDown;
                self.replies.send(answer).await
            }
            _ => {
                // Poll the method once right now, so that the next message finds the turn it
                // started, parked or cancelled.
                let answer = match futures_util::poll!(&mut call) {
                    Poll::Ready((answer, _)) => match self.peer.out.try_reserve(answer.len()) {
                        Some(room) => {
                            room.put(answer);
                            return Ok(());
                        }
                        None => Some(answer),
                    },
                    Poll::Pending => None,
                };
                lock(&self.in_flight).insert(id.to_owned(), cancel);
                let (out, id) = (self.peer.out.clone(), id.to_owned());
                let in_flight = Arc::clone(&self.in_flight);
                let waits = answer.map(|answer| (out.reserve(answer.len()), answer));
                self.tasks.spawn(async move {
                    let (room, answer) = match waits {
                        Some((room, answer)) => (room.await, answer),
                        None => {
                            let (answer, _) = call.await;
                            (out.reserve(answer.len()).await, answer)
                        }
                    };
                    // The host may reuse the id as soon as it has the response; until then the
                    // response counts as active.
                    let is_open = lock(&in_flight).remove(&id).is_some();
                    if let Some(room) = room.filter(|_| is_open) {
                        room.put(answer);
                    }
                });
                Ok(())
            }
        }
    }

    /// Runs a method. Returns the whole response and whether it is a result.
    fn call(
        &self,
        callback: MethodCallback,
        id: &str,
        params: RequestParams<'_>,
        cancel: CancellationToken,
    ) -> impl Future<Output = (Vec<u8>, bool)> + Send + use<> {
        let mut extensions = Extensions::new();
        let params = match params {
            RequestParams::Text(params) => Params::new(params.map(RawValue::get)).into_owned(),
            RequestParams::Parsed(params) => {
                extensions.insert(params);
                Params::new(None)
            }
        };
        extensions.insert(self.peer.clone());
        extensions.insert(cancel.clone());
        let raw_id = id.to_owned();
        async move {
            let id = serde_json::from_str(&raw_id).map_or(Id::Null, Id::into_owned);
            let work = async {
                match callback {
                    MethodCallback::Async(method) => {
                        let connection = ConnectionId(0);
                        Some(method(id, params, connection, MAX_RESPONSE, extensions).await)
                    }
                    MethodCallback::Sync(method) => {
                        Some(method(id, params, MAX_RESPONSE, extensions))
                    }
                    // Streams are sent as notifications; no method registers subscriptions.
                    MethodCallback::Subscription(_) | MethodCallback::Unsubscription(_) => None,
                }
            };
            let answered = tokio::select! {
                answered = AssertUnwindSafe(work).catch_unwind() => answered,
                () = cancel.cancelled() => {
                    let answer = error::answer(Some(&raw_id), error::CANCELLED, "cancelled");
                    return (answer, false);
                }
            };
            match answered {
                Ok(Some(response)) => {
                    let good = response.is_success();
                    // Responses contain names and texts of others, and hosts print them.
                    let answer = response.as_json().get().as_bytes().to_vec();
                    (clean_json_bytes(answer), good)
                }
                Ok(None) | Err(_) => {
                    let problem =
                        "this request failed inside cursor-sidecar; others are not affected";
                    (
                        error::answer(Some(&raw_id), error::INTERNAL, problem),
                        false,
                    )
                }
            }
        }
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>) -> Option<ExitKind> {
        match method {
            "exit" if self.phase == ConnectionPhase::ShutDown => return Some(ExitKind::Orderly),
            "exit" => return Some(ExitKind::Abrupt),
            "$/cancelRequest" => {
                #[derive(Deserialize)]
                struct Cancel<'a> {
                    #[serde(borrow)]
                    id: &'a RawValue,
                }
                let cancel = params.and_then(|p| serde_json::from_str::<Cancel<'_>>(p.get()).ok());
                if let Some(token) =
                    cancel.and_then(|c| lock(&self.in_flight).get(c.id.get()).cloned())
                {
                    token.cancel();
                }
            }
            "initialized" => {}
            other => tracing::debug!(method = other, "unknown notification"),
        }
        None
    }

    /// Answers a message that was too large to read.
    async fn too_large(&self, length: u64, heading: &MessageHeader) -> Result<(), HostGone> {
        match heading {
            MessageHeader::Request { id, method } => {
                let problem = error::too_large(method, length);
                self.refuse(Some(id), error::TOO_LARGE, &problem).await
            }
            MessageHeader::Answer { id } => {
                self.settle(id, Err(frame::too_large(length).into()));
                Ok(())
            }
        }
    }

    fn answer(&self, id: &str, result: Option<&RawValue>, error: Option<&RawValue>) {
        let read = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or(Json::Null);
        let answer = match (result, error) {
            (_, Some(error)) => Err(read(error)),
            (Some(result), None) => Ok(read(result)),
            (None, None) => Ok(Json::Null),
        };
        self.settle(id, answer);
    }

    /// Passes an answer to the request that waits for it.
    fn settle(&self, id: &str, answer: Result<Json, Json>) {
        let Some(waiting) = id
            .parse()
            .ok()
            .and_then(|id: u64| self.peer.pending.lock().remove(&id))
        else {
            return tracing::debug!("response to an unknown request");
        };
        let _ = waiting.send(answer);
    }

    async fn refuse(&self, id: Option<&str>, code: i32, problem: &str) -> Result<(), HostGone> {
        self.replies.send(error::answer(id, code, problem)).await
    }
}

#[cfg(test)]
mod tests;
