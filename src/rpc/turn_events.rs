//! What a turn sends to the host, and what it asks the host to do.
//!
//! Hosts print on a terminal, so text is cleaned of control characters here. Arguments of the
//! host's own tools are not touched, because the host executes them.

use super::peer::Peer;
use super::protocol::*;
use agent::turn::{TurnEvent, is_card};
use agent_tools::bridge::{HostCall, HostResult};
use agent_tools::permission::PermissionRequest;
use agent_tools::prompts::tools::invalid_host_answer;
use foundation::presentable;
use foundation::terminal_text::{clean_json, cleaned};

/// Sends what happened to the host: events together, lines for the user one by one.
pub(super) async fn send_events(peer: &Peer, turn_id: &str, batch: &mut Vec<TurnEvent>) {
    let mut events = Vec::with_capacity(batch.len());
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
            TurnEvent::Retrying(reason) => HostEvent::Retrying {
                reason: presentable(&reason),
            },
            TurnEvent::ToolCall {
                id,
                name,
                mut arguments,
            } => {
                if is_card(&id) {
                    clean_json(&mut arguments);
                }
                HostEvent::ToolCall {
                    id,
                    name,
                    arguments,
                }
            }
            TurnEvent::Remark(message) => {
                log(peer, LogLevel::Info, &message).await;
                continue;
            }
            TurnEvent::Notice(message) => {
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
}

/// Sends a line for the user.
pub(super) async fn log(peer: &Peer, level: LogLevel, message: &str) {
    let message = presentable(message);
    peer.notify("log/message", LogMessageParams { level, message })
        .await;
}

/// Asks the host whether a native tool may be executed. An error denies.
pub(super) async fn request_permission(peer: Peer, turn_id: String, request: PermissionRequest) {
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
pub(super) async fn call_host_tool(peer: Peer, turn_id: String, mut call: HostCall) {
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
