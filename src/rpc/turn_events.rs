//! What a turn sends to the host, and what it asks the host to do.
//!
//! Hosts print on a terminal, so text is cleaned of control characters here. Arguments of the
//! host's own tools are not touched, because the host executes them.

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};

use super::peer::Peer;
use super::protocol::*;
use agent::turn::{HostRequest, TurnEvent, is_card};
use agent_tools::bridge::{HostCall, HostResult};
use agent_tools::permission::PermissionRequest;
use agent_tools::prompts::tools::invalid_host_answer;
use foundation::presentable;
use foundation::terminal_text::{clean_json, cleaned};

/// Sends what happened to the host: events together, lines for the user one by one. Returns what the
/// host must answer.
pub(super) async fn send_events(
    peer: &Peer,
    turn_id: &str,
    batch: &mut Vec<TurnEvent>,
) -> Vec<HostRequest> {
    let mut events = Vec::with_capacity(batch.len());
    let mut requests = Vec::new();
    for event in batch.drain(..) {
        events.push(match event {
            TurnEvent::Text(text) => HostEvent::Text {
                text: cleaned(text),
            },
            TurnEvent::Thinking(text) => HostEvent::Thinking {
                text: cleaned(text),
            },
            TurnEvent::ThinkingDone => HostEvent::ThinkingDone,
            // The wait clock adds the time and sends it.
            TurnEvent::Waiting(_) => continue,
            TurnEvent::Request(request) => {
                requests.push(request);
                continue;
            }
            TurnEvent::Retrying { reason, .. } => HostEvent::Retrying {
                reason: presentable(&reason),
            },
            TurnEvent::ToolCall(mut call) => {
                if is_card(&call.id) {
                    clean_json(&mut call.arguments);
                }
                HostEvent::ToolCall {
                    id: call.id,
                    name: call.name,
                    arguments: call.arguments,
                }
            }
            TurnEvent::Remark(message) => {
                log(peer, LogLevel::Info, &message).await;
                continue;
            }
            TurnEvent::RetryNotice(message) | TurnEvent::Notice(message) => {
                log(peer, LogLevel::Warning, &message).await;
                continue;
            }
        });
    }
    if !events.is_empty() {
        let turn_id = turn_id.to_owned();
        peer.notify("turn/event", TurnEventParams { turn_id, events })
            .await;
    }
    requests
}

/// The requests of a turn that the host has not answered. Dropping one cancels it.
pub(super) struct OpenRequests<'a> {
    peer: &'a Peer,
    turn_id: &'a str,
    // All in the task of the turn, so that the host gets calls in the order they were made.
    open: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl<'a> OpenRequests<'a> {
    pub(super) fn new(peer: &'a Peer, turn_id: &'a str) -> Self {
        Self {
            peer,
            turn_id,
            open: FuturesUnordered::new(),
        }
    }

    /// Adds a request, which is sent when the answers are next awaited.
    pub(super) fn add(&mut self, request: HostRequest) {
        let (peer, turn_id) = (self.peer.clone(), self.turn_id.to_owned());
        self.open.push(match request {
            HostRequest::Call(call) => call_host_tool(peer, turn_id, call).boxed(),
            HostRequest::Permission(request) => request_permission(peer, turn_id, request).boxed(),
        });
    }

    /// Resolves when the host has answered one; pends while none is open.
    pub(super) async fn answer(&mut self) {
        if self.open.next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Waits for `work` while the host answers, because a request that waits for room in the same
    /// queue as `work` could otherwise keep it from ending.
    pub(super) async fn answer_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.answer() => {}
            }
        }
    }
}

/// Sends a line for the user.
pub(super) async fn log(peer: &Peer, level: LogLevel, message: &str) {
    let message = presentable(message);
    peer.notify("log/message", LogMessageParams { level, message })
        .await;
}

/// Asks the host whether a native tool may be executed. An error denies.
async fn request_permission(peer: Peer, turn_id: String, request: PermissionRequest) {
    let params = PermissionRequestParams {
        turn_id,
        tool: request.tool.name().to_owned(),
        subject: cleaned(request.subject),
    };
    let answer = peer.request("permission/request", params).await;
    let decision = answer
        .ok()
        .and_then(|answer| serde_json::from_value::<PermissionRequestResult>(answer).ok())
        .map_or(PermissionDecision::Deny, |answer| answer.decision);
    let _ = request.answer.send(decision.into());
}

/// Has the host execute a call, unless its caller no longer waits.
async fn call_host_tool(peer: Peer, turn_id: String, mut call: HostCall) {
    let params = ToolCallParams {
        turn_id,
        id: call.id.clone(),
        name: call.tool.clone(),
        arguments: call.arguments.clone(),
    };
    let answer = tokio::select! {
        biased;
        // Dropping the request cancels it.
        () = call.voided() => return,
        answer = peer.request("tool/call", params) => answer,
    };
    call.answer(match answer {
        Ok(answer) => match serde_json::from_value::<ToolCallResult>(answer.clone()) {
            Ok(_) => HostResult::read(&answer),
            Err(error) => HostResult::failed(invalid_host_answer(error)),
        },
        Err(error) => HostResult::failed(error.to_string()),
    });
}
