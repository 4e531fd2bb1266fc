//! One side of a JSON-RPC connection: dispatches requests, answers each once, asks the other
//! side in turn.
//!
//! jsonrpsee is the method registry; requests in flight, cancellation, overload and order
//! are handled here. Everything that goes out passes one queue, so what a method tells
//! before it returns arrives before its answer.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use jsonrpsee::core::server::{MethodCallback, Methods};
use jsonrpsee::types::{Id, Params};
use jsonrpsee::{ConnectionId, Extensions};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::error;
use super::frame::Inbound;

/// Requests under way at once; one more is told to come back later.
const MAX_IN_FLIGHT: usize = 1024;
/// Answers have the same limit as frames.
const MAX_RESPONSE: usize = super::frame::MAX_BODY as usize;

/// A handle for talking to the other side. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peer {
    out: mpsc::Sender<Vec<u8>>,
    asked: Arc<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Json, Json>>>>,
}

/// Why the other side did not answer a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AskError {
    /// It answered with an error.
    #[error("the host answered with an error: {0}")]
    Refused(Json),
    /// It is gone.
    #[error("the host is gone")]
    Gone,
}

impl Peer {
    /// A peer whose frames go to `out`.
    pub fn new(out: mpsc::Sender<Vec<u8>>) -> Self {
        Self {
            out,
            asked: Arc::default(),
        }
    }

    /// Tells the other side something. Waits while it does not read.
    pub async fn notify(&self, method: &str, params: impl Serialize) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    /// Asks the other side something. Dropping the future tells it not to bother.
    pub async fn ask(&self, method: &str, params: impl Serialize) -> Result<Json, AskError> {
        let id = self.asked.next.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        self.asked.lock().insert(id, answer);
        let mut guard = Asking {
            peer: self,
            id,
            answered: false,
        };
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if self
            .out
            .send(request.to_string().into_bytes())
            .await
            .is_err()
        {
            return Err(AskError::Gone);
        }
        let answer = wait.await;
        guard.answered = true;
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(AskError::Refused(error)),
            Err(_) => Err(AskError::Gone),
        }
    }

    async fn send(&self, message: &impl Serialize) {
        if let Ok(body) = serde_json::to_vec(message) {
            // Nobody left to tell: the loop that owns the connection ends by itself.
            let _ = self.out.send(body).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asked {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Json, Json>>>> {
        lock(&self.waiting)
    }
}

/// A question that is taken back if nobody waits for its answer any more.
struct Asking<'a> {
    peer: &'a Peer,
    id: u64,
    answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.peer.asked.lock().remove(&self.id);
            let cancel =
                json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": self.id}});
            let _ = self.peer.out.try_send(cancel.to_string().into_bytes());
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// `exit` after `shutdown`.
    Orderly,
    /// `exit` without it, or the input just ended.
    Abrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Ready,
    ShutDown,
}

/// Serves one connection until it ends. Requests still under way are dropped then.
pub(super) async fn serve(
    methods: Methods,
    peer: Peer,
    mut inbound: mpsc::Receiver<Inbound>,
) -> Ended {
    let mut connection = Connection {
        methods,
        peer,
        phase: Phase::New,
        in_flight: Arc::default(),
        tasks: JoinSet::new(),
    };
    loop {
        tokio::select! {
            frame = inbound.recv() => match frame {
                Some(Inbound::Body(body)) => {
                    if let Some(ended) = connection.receive(&body).await {
                        return ended;
                    }
                }
                Some(Inbound::Malformed(problem)) => {
                    connection.refuse(None, error::PARSE, &problem).await;
                }
                None => return Ended::Abrupt,
            },
            Some(_) = connection.tasks.join_next() => {}
            () = connection.peer.out.closed() => return Ended::Abrupt,
        }
    }
}

impl Drop for Connection {
    /// Nobody will answer what was asked on this connection.
    fn drop(&mut self) {
        self.peer.asked.lock().clear();
    }
}

struct Connection {
    methods: Methods,
    peer: Peer,
    phase: Phase,
    in_flight: Arc<Mutex<HashMap<String, CancellationToken>>>,
    tasks: JoinSet<()>,
}

/// Any JSON-RPC message, parts not looked into.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Connection {
    async fn receive(&mut self, body: &[u8]) -> Option<Ended> {
        let message: Message<'_> = match serde_json::from_slice(body) {
            Ok(message) => message,
            Err(problem) if problem.is_syntax() || problem.is_eof() => {
                self.refuse(None, error::PARSE, "not JSON").await;
                return None;
            }
            Err(_) => {
                self.refuse(None, error::INVALID_REQUEST, "not a JSON-RPC 2.0 message")
                    .await;
                return None;
            }
        };
        match (message.method, message.id) {
            (Some(method), Some(id)) => self.request(id.get(), method, message.params).await,
            (Some(method), None) => return self.notification(&method, message.params),
            (None, Some(id)) => self.answer(id.get(), message.result, message.error),
            (None, None) => {
                self.refuse(
                    None,
                    error::INVALID_REQUEST,
                    "a message needs a method or an id",
                )
                .await;
            }
        }
        None
    }

    async fn request(&mut self, id: &str, method: String, params: Option<&RawValue>) {
        if !id.starts_with('"') && id.parse::<u64>().is_err() {
            let problem = "the id must be a string or a whole number from 0 up";
            return self.refuse(Some(id), error::INVALID_REQUEST, problem).await;
        }
        let (used, under_way) = {
            let in_flight = lock(&self.in_flight);
            (in_flight.contains_key(id), in_flight.len())
        };
        let refusal = match (self.phase, method.as_str()) {
            (Phase::New, "initialize") => None,
            (Phase::New, _) => Some((error::NOT_INITIALIZED, "call initialize first")),
            (_, "initialize") => Some((error::INVALID_REQUEST, "initialize may be called once")),
            (Phase::ShutDown, _) => Some((error::INVALID_REQUEST, "the server is shutting down")),
            (Phase::Ready, _) if used => Some((
                error::INVALID_REQUEST,
                "this id is in use by another request",
            )),
            (Phase::Ready, _) if under_way >= MAX_IN_FLIGHT => Some((
                error::OVERLOADED,
                "too many requests under way; try again later",
            )),
            (Phase::Ready, _) => None,
        };
        if let Some((code, problem)) = refusal {
            return self.refuse(Some(id), code, problem).await;
        }
        let Some(callback) = self.methods.method(&method).cloned() else {
            let problem = format!("there is no method {method:?}");
            return self
                .refuse(Some(id), error::METHOD_NOT_FOUND, &problem)
                .await;
        };
        match method.as_str() {
            // A bad initialize may be tried again, so the phase follows its outcome.
            "initialize" => {
                let (answer, good) = self
                    .call(callback, id, params, CancellationToken::new())
                    .await;
                if good {
                    self.phase = Phase::Ready;
                }
                let _ = self.peer.out.send(answer).await;
            }
            "shutdown" => {
                let (answer, _) = self
                    .call(callback, id, params, CancellationToken::new())
                    .await;
                self.phase = Phase::ShutDown;
                let _ = self.peer.out.send(answer).await;
            }
            _ => {
                let cancel = CancellationToken::new();
                lock(&self.in_flight).insert(id.to_owned(), cancel.clone());
                let call = self.call(callback, id, params, cancel);
                let (out, id) = (self.peer.out.clone(), id.to_owned());
                let in_flight = Arc::clone(&self.in_flight);
                self.tasks.spawn(async move {
                    let (answer, _) = call.await;
                    // The host may use the id again as soon as it has its answer.
                    lock(&in_flight).remove(&id);
                    let _ = out.send(answer).await;
                });
            }
        }
    }

    /// Runs a method; gives its whole answer and whether it is a result.
    fn call(
        &self,
        callback: MethodCallback,
        id: &str,
        params: Option<&RawValue>,
        cancel: CancellationToken,
    ) -> impl Future<Output = (Vec<u8>, bool)> + Send + use<> {
        let params = params.map(|params| params.get().to_owned());
        let mut extensions = Extensions::new();
        extensions.insert(self.peer.clone());
        extensions.insert(cancel.clone());
        let raw_id = id.to_owned();
        async move {
            let id = serde_json::from_str(&raw_id).map_or(Id::Null, Id::into_owned);
            let params = Params::new(params.as_deref()).into_owned();
            let work = async {
                match callback {
                    MethodCallback::Async(method) => {
                        let connection = ConnectionId(0);
                        Some(method(id, params, connection, MAX_RESPONSE, extensions).await)
                    }
                    MethodCallback::Sync(method) => {
                        Some(method(id, params, MAX_RESPONSE, extensions))
                    }
                    // Streams go as notifications here; nothing registers subscriptions.
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
                    (response.as_json().get().as_bytes().to_vec(), good)
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

    fn notification(&mut self, method: &str, params: Option<&RawValue>) -> Option<Ended> {
        match method {
            "exit" if self.phase == Phase::ShutDown => return Some(Ended::Orderly),
            "exit" => return Some(Ended::Abrupt),
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
            other => tracing::debug!(method = other, "notification nobody waits for"),
        }
        None
    }

    fn answer(&self, id: &str, result: Option<&RawValue>, error: Option<&RawValue>) {
        let Some(waiting) = id
            .parse()
            .ok()
            .and_then(|id: u64| self.peer.asked.lock().remove(&id))
        else {
            return tracing::debug!("answer to a question nobody asked");
        };
        let read = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or(Json::Null);
        let _ = waiting.send(match (result, error) {
            (_, Some(error)) => Err(read(error)),
            (Some(result), None) => Ok(read(result)),
            (None, None) => Ok(Json::Null),
        });
    }

    async fn refuse(&self, id: Option<&str>, code: i32, problem: &str) {
        let _ = self.peer.out.send(error::answer(id, code, problem)).await;
    }
}

#[cfg(test)]
mod tests;
