//! The channels of a turn: one queue in, one stream of events out, one cancellation.
//!
//! The result has a channel of its own, because a turn that is cancelled is answered at once, also
//! if the front end reads no events.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::failure_cause::Cause;
use super::request::{TurnEvent, TurnRequest, TurnResult};
use crate::run::UserMessage;
use crate::run::queue::{self, QueueBounds, Weighed as _};
use agent_tools::bridge::{HostCall, HostResult};
use agent_tools::permission::{PermissionRequest, PermissionSender, TurnTools};

/// How many events, and how many bytes of them, may wait for a host; then the run waits.
const EVENTS: QueueBounds = QueueBounds {
    items: 256,
    bytes: 1024 * 1024,
};
/// How many messages may wait for a turn that waits for another one.
const INPUTS: usize = 16;

/// What a session receives for a turn.
#[derive(Debug)]
enum TurnInput {
    /// The request, once.
    Request(Box<TurnRequest>),
    /// A user message for the running model.
    Message(UserMessage),
}

/// What the host must answer while the turn runs.
#[derive(Debug)]
pub enum HostRequest {
    /// A tool that it executes.
    Call(HostCall),
    /// Whether a native tool may be executed.
    Permission(PermissionRequest),
}

/// Returns the two sides of a new turn: of the front end and of the session.
pub fn turn_channels(cancel: CancellationToken) -> (TurnHandle, TurnChannels) {
    let (input, inputs) = mpsc::channel(INPUTS);
    let (events, received) = queue::weighed(EVENTS);
    let (result, ended) = oneshot::channel();
    let handle = TurnHandle {
        messages: MessageSender(input),
        events: received,
        result: ended,
    };
    let channels = TurnChannels {
        inputs,
        events,
        cancel,
        result,
    };
    (handle, channels)
}

/// The front end's side of a turn. Dropping it before [`TurnHandle::start`] abandons the turn; the
/// next one sends its messages.
#[derive(Debug)]
pub struct TurnHandle {
    messages: MessageSender,
    events: queue::Receiver<TurnEvent>,
    result: oneshot::Receiver<TurnResult>,
}

impl TurnHandle {
    /// Returns a sender of user messages.
    pub fn messages(&self) -> MessageSender {
        self.messages.clone()
    }

    /// Sends the request. Returns the events, which must be read, and the result.
    pub async fn start(
        self,
        request: TurnRequest,
    ) -> (
        queue::Receiver<TurnEvent>,
        impl Future<Output = TurnResult> + use<>,
    ) {
        let request = TurnInput::Request(Box::new(request));
        // If the session's task has ended, it has dropped the sender of the result.
        let _ = self.messages.0.send(request).await;
        let failed = "the session failed inside cursor-sidecar";
        let result = async move {
            let result = self.result.await;
            result.unwrap_or_else(|_| TurnResult::failed(Cause::Internal, failed))
        };
        (self.events, result)
    }
}

/// Sends user messages to a turn.
#[derive(Debug, Clone)]
pub struct MessageSender(mpsc::Sender<TurnInput>);

impl MessageSender {
    /// Returns whether the turn has accepted the message.
    pub async fn send(&self, message: UserMessage) -> bool {
        self.0.send(TurnInput::Message(message)).await.is_ok()
    }
}

/// The session's side of a turn.
#[derive(Debug)]
pub struct TurnChannels {
    inputs: mpsc::Receiver<TurnInput>,
    events: queue::Sender<TurnEvent>,
    cancel: CancellationToken,
    result: oneshot::Sender<TurnResult>,
}

impl TurnChannels {
    /// Waits for the request. If the turn is abandoned, returns the messages it has accepted.
    pub(super) async fn open(mut self) -> Result<(OpenTurn, ReplyOnce), Vec<UserMessage>> {
        let mut messages = Vec::new();
        loop {
            match self.inputs.recv().await {
                Some(TurnInput::Message(message)) => messages.push(message),
                Some(TurnInput::Request(request)) => {
                    let turn = OpenTurn {
                        request: *request,
                        early: messages.into(),
                        inputs: self.inputs,
                        events: self.events,
                        cancel: self.cancel,
                    };
                    return Ok((turn, ReplyOnce(Some(self.result))));
                }
                None => return Err(messages),
            }
        }
    }
}

/// A turn that has its request. It dereferences to the request, which is all that most functions
/// read.
#[derive(Debug)]
pub(super) struct OpenTurn {
    request: TurnRequest,
    /// Messages that arrived before the request.
    early: std::collections::VecDeque<UserMessage>,
    inputs: mpsc::Receiver<TurnInput>,
    events: queue::Sender<TurnEvent>,
    cancel: CancellationToken,
}

impl std::ops::Deref for OpenTurn {
    type Target = TurnRequest;

    fn deref(&self) -> &TurnRequest {
        &self.request
    }
}

impl OpenTurn {
    /// Returns the token that cancels the turn.
    pub(super) fn cancel_token(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Returns the next user message; `None` if none can follow. Cancel-safe.
    pub(super) async fn next_message(&mut self) -> Option<UserMessage> {
        if let Some(message) = self.early.pop_front() {
            return Some(message);
        }
        match self.inputs.recv().await? {
            TurnInput::Message(message) => Some(message),
            // A handle sends one request.
            TurnInput::Request(_) => None,
        }
    }

    /// Returns the queued messages and accepts no more, because no later reader exists.
    pub(super) async fn take_messages(&mut self) -> Vec<UserMessage> {
        self.inputs.close();
        let mut messages = Vec::new();
        while let Some(message) = self.next_message().await {
            messages.push(message);
        }
        messages
    }

    /// Sends an event to the host. A host that no longer reads has cancelled, or will.
    pub(super) async fn send(&self, event: TurnEvent) {
        let _ = self.events.send(event).await;
    }

    /// Sends an event unless the queue is full.
    pub(super) fn send_now(&self, event: TurnEvent) {
        if let Some(permit) = self.events.try_reserve(event.bytes()) {
            permit.put(event);
        }
    }

    /// Has the host execute a call during the turn.
    pub(super) async fn call_host(&self, call: HostCall) {
        let request = HostRequest::Call(call);
        match self.events.reserve(request.bytes()).await {
            Some(permit) => permit.put(TurnEvent::Request(request)),
            None => {
                if let HostRequest::Call(call) = request {
                    call.answer(HostResult::failed("the host takes no calls any more"));
                }
            }
        }
    }

    /// Returns the tool settings of this turn.
    pub(super) fn tools(&self) -> std::sync::Arc<TurnTools> {
        let permissions = self.request.can_be_asked.then(|| {
            let events = HostEvents(self.events.downgrade());
            std::sync::Arc::new(events) as std::sync::Arc<dyn PermissionSender>
        });
        std::sync::Arc::new(self.request.tools(permissions))
    }
}

/// The events of a turn, for the executors of its run. They do not keep the stream open, because
/// the run may outlive the turn.
#[derive(Debug)]
struct HostEvents(queue::WeakSender<TurnEvent>);

impl PermissionSender for HostEvents {
    fn send(&self, request: PermissionRequest) -> BoxFuture<'_, bool> {
        async move {
            let Some(events) = self.0.upgrade() else {
                return false;
            };
            let event = TurnEvent::Request(HostRequest::Permission(request));
            events.send(event).await.is_ok()
        }
        .boxed()
    }
}

impl HostRequest {
    /// Returns about how much memory it holds.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Call(call) => call.id.len() + call.tool.len() + call.arguments.to_string().len(),
            Self::Permission(request) => request.subject.len(),
        }
    }
}

/// The result of a turn, sent once: when the turn ends or when the host cancels it.
pub(super) struct ReplyOnce(Option<oneshot::Sender<TurnResult>>);

impl ReplyOnce {
    pub(super) fn send(&mut self, result: TurnResult) {
        if let Some(reply) = self.0.take() {
            let _ = reply.send(result);
        }
    }
}
