//! What a turn tells the host, and what it has the host do.

use super::peer::Peer;
use super::protocol::*;
use crate::tools::bridge::{HostCall, HostResult};
use crate::tools::permission::PermissionRequest;
use crate::turn::TurnEvent;

/// Tells the host what happened: events together, a person's lines by themselves.
pub(super) async fn tell(peer: &Peer, turn_id: &str, batch: &mut Vec<TurnEvent>) {
    let mut events = Vec::with_capacity(batch.len());
    for event in batch.drain(..) {
        events.push(match event {
            TurnEvent::Text(text) => HostEvent::Text { text },
            TurnEvent::Thinking(text) => HostEvent::Thinking { text },
            TurnEvent::ThinkingDone => HostEvent::ThinkingDone,
            TurnEvent::Retrying(reason) => HostEvent::Retrying { reason },
            TurnEvent::ToolCall {
                id,
                name,
                arguments,
            } => HostEvent::ToolCall {
                id,
                name,
                arguments,
            },
            TurnEvent::Remark(message) => {
                let level = LogLevel::Info;
                let line = LogMessageParams { level, message };
                peer.notify("log/message", line).await;
                continue;
            }
            TurnEvent::Notice(message) => {
                let level = LogLevel::Warning;
                let line = LogMessageParams { level, message };
                peer.notify("log/message", line).await;
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

/// Asks the host whether a native tool may be executed. An error denies.
pub(super) async fn permit(peer: Peer, turn_id: String, request: PermissionRequest) {
    let params = PermissionRequestParams {
        turn_id,
        tool: request.tool.name().to_owned(),
        subject: request.subject,
    };
    let answer = peer.ask("permission/request", params).await;
    let decision = answer
        .ok()
        .and_then(|answer| serde_json::from_value::<PermissionRequestResult>(answer).ok())
        .map_or(PermissionDecision::Deny, |answer| answer.decision);
    let _ = request.answer.send(decision.into());
}

/// Has the host execute a call, unless nobody waits for it any more.
pub(super) async fn ask(peer: Peer, turn_id: String, mut call: HostCall) {
    let params = ToolCallParams {
        turn_id,
        id: call.id.clone(),
        name: call.tool.clone(),
        arguments: call.arguments.clone(),
    };
    let answer = tokio::select! {
        biased;
        // The host is told not to bother.
        () = call.voided() => return,
        answer = peer.ask("tool/call", params) => answer,
    };
    call.answer(match answer {
        Ok(answer) => match serde_json::from_value::<ToolCallResult>(answer.clone()) {
            Ok(_) => HostResult::read(&answer),
            Err(error) => HostResult::failed(format!("the host's answer makes no sense: {error}")),
        },
        Err(error) => HostResult::failed(error.to_string()),
    });
}
