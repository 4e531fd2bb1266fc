//! One step: a table with one action and its options.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::check::{self, Use};
use super::fields::{self, Fields};
use super::library::members;
use super::source::{Content, Member, Node};
use super::{Action, CheckpointPlan, DEFAULT_LIMIT, Fault, ScenarioError, Step, asks, ending};
use crate::sim::schema;

/// How an action is read: from its own value and the options beside it.
type Read = fn(&str, &Node, &mut Fields<'_>) -> Result<Action, ScenarioError>;

/// Every action by name.
const ACTIONS: &[(&str, Read)] = &[
    ("text", |file, node, _| {
        let text = fields::text(file, node, "text")?;
        Ok(update("textDelta", json!({ "text": text })))
    }),
    ("thinking", |file, node, _| {
        let text = fields::text(file, node, "thinking")?;
        Ok(update("thinkingDelta", json!({ "text": text })))
    }),
    ("thinking_done", |file, node, _| {
        let millis = match node.content {
            Content::Bool(true) => 0,
            _ => fields::number(file, node, "thinking_done")?,
        };
        Ok(update(
            "thinkingCompleted",
            json!({ "thinkingDurationMs": millis }),
        ))
    }),
    ("deltas", deltas),
    ("update", |file, node, _| {
        check::message(file, node, "agent.v1.InteractionUpdate", Use::Message)?;
        Ok(Action::Send(json!({ "interactionUpdate": node.to_json() })))
    }),
    ("send", |file, node, _| {
        check::message(file, node, schema::SERVER_MESSAGE, Use::Message)?;
        Ok(Action::Send(node.to_json()))
    }),
    ("send_hex", |file, node, _| {
        Ok(Action::SendBytes(hex(file, node, "send_hex")?))
    }),
    ("exec", asks::exec),
    ("await", |file, node, _| match &node.content {
        Content::Array(items) => Ok(Action::Await(
            items
                .iter()
                .map(|item| fields::text(file, item, "await"))
                .collect::<Result<_, _>>()?,
        )),
        _ => Ok(Action::Await(vec![fields::text(file, node, "await")?])),
    }),
    ("abort", |file, node, _| {
        Ok(Action::Abort(fields::text(file, node, "abort")?))
    }),
    ("kv_set", asks::kv_set),
    ("kv_get", asks::kv_get),
    ("query", asks::query),
    ("checkpoint", |file, node, _| match &node.content {
        Content::Text(text) if text == "auto" => Ok(Action::Checkpoint(CheckpointPlan::Auto)),
        Content::Text(text) if text == "late" => Ok(Action::Checkpoint(CheckpointPlan::Late)),
        Content::Text(_) => Err(fields::wrong(
            file,
            node,
            "checkpoint",
            "\"auto\", \"late\" or a table",
        )),
        _ => {
            check::message(file, node, schema::CONVERSATION_STATE, Use::Message)?;
            Ok(Action::Checkpoint(CheckpointPlan::State(node.to_json())))
        }
    }),
    ("token_details", |file, node, _| {
        check::message(
            file,
            node,
            "agent.v1.ConversationTokenDetails",
            Use::Message,
        )?;
        Ok(Action::TokenDetails(node.to_json()))
    }),
    ("usage", |file, node, _| {
        check::message(file, node, "agent.v1.TurnEndedUpdate", Use::Message)?;
        Ok(update("turnEnded", node.to_json()))
    }),
    ("end", ending::end),
    ("status", ending::status_plan),
    ("expect_client", |file, node, options| {
        check::message(file, node, schema::CLIENT_MESSAGE, Use::Pattern)?;
        Ok(Action::ExpectClient {
            pattern: node.to_json(),
            capture: asks::captures(file, options)?,
        })
    }),
    ("expect_request", |file, node, _| {
        check::message(file, node, "agent.v1.AgentRunRequest", Use::Pattern)?;
        Ok(Action::ExpectRequest(node.to_json()))
    }),
    ("expect_headers", |file, node, _| {
        Fields::new(file, node, "expect_headers")?;
        Ok(Action::ExpectHeaders(node.to_json()))
    }),
    ("expect_state", |file, node, _| {
        match fields::text(file, node, "expect_state")?.as_str() {
            "last checkpoint" => Ok(Action::ExpectState),
            _ => Err(fields::wrong(
                file,
                node,
                "expect_state",
                "\"last checkpoint\"",
            )),
        }
    }),
    ("expect_history", |_, node, _| {
        Ok(Action::ExpectHistory(node.to_json()))
    }),
    ("expect_cancel", |file, node, _| {
        yes(file, node, "expect_cancel", Action::ExpectCancel)
    }),
    ("expect_file", |file, node, _| {
        let path = fields::text(file, node, "expect_file")?;
        Ok(Action::ExpectFile(path.into()))
    }),
    ("together", |file, node, _| {
        yes(file, node, "together", Action::Together)
    }),
    ("delay_ms", |file, node, _| {
        Ok(Action::Delay(millis(file, node, "delay_ms")?))
    }),
    ("heartbeat", |file, node, _| {
        yes(file, node, "heartbeat", update("heartbeat", json!({})))
    }),
    ("silence_ms", |file, node, _| {
        Ok(Action::Silence(millis(file, node, "silence_ms")?))
    }),
    ("reset", |file, node, _| {
        Ok(Action::Fault(Fault::Reset(error_code(
            file, node, "reset",
        )?)))
    }),
    ("goaway", |file, node, _| {
        Ok(Action::Fault(Fault::GoAway(error_code(
            file, node, "goaway",
        )?)))
    }),
    ("half_close", |file, node, _| {
        yes(file, node, "half_close", Action::Fault(Fault::HalfClose))
    }),
    ("stall", |file, node, _| {
        yes(file, node, "stall", Action::Fault(Fault::Stall))
    }),
    ("truncate", |file, node, _| {
        let bytes = fields::number(file, node, "truncate")?;
        Ok(Action::Fault(Fault::Truncate(bytes as usize)))
    }),
    ("garbage", |file, node, _| {
        Ok(Action::Fault(Fault::Garbage(hex(file, node, "garbage")?)))
    }),
    ("oversized", |file, node, _| {
        match u32::try_from(fields::number(file, node, "oversized")?) {
            Ok(bytes) => Ok(Action::Fault(Fault::Oversized(bytes))),
            Err(_) => Err(fields::wrong(
                file,
                node,
                "oversized",
                "a number below 4294967296",
            )),
        }
    }),
    ("cut", |file, node, _| {
        yes(file, node, "cut", Action::Fault(Fault::Cut))
    }),
    ("drip", drip),
    ("hold_window", |file, node, _| {
        yes(file, node, "hold_window", Action::Fault(Fault::HoldWindow))
    }),
];

/// HTTP/2 error codes by name.
const ERROR_CODES: [&str; 14] = [
    "no_error",
    "protocol_error",
    "internal_error",
    "flow_control_error",
    "settings_timeout",
    "stream_closed",
    "frame_size_error",
    "refused_stream",
    "cancel",
    "compression_error",
    "connect_error",
    "enhance_your_calm",
    "inadequate_security",
    "http_1_1_required",
];

/// Reads one step.
pub(super) fn read(file: &str, node: &Node) -> Result<Step, ScenarioError> {
    let known = |member: &&Member| ACTIONS.iter().any(|(name, _)| *name == member.name);
    let found: Vec<&Member> = members(node).iter().filter(known).collect();
    let member = match found.as_slice() {
        [member] => *member,
        [first, second, ..] => {
            let message = format!(
                "a step has one action, this one has {:?} and {:?}",
                first.name, second.name
            );
            return Err(ScenarioError::at(file, second.line, message));
        }
        [] => return Err(no_action(file, node)),
    };
    let Some((name, action)) = ACTIONS.iter().find(|(name, _)| *name == member.name) else {
        return Err(no_action(file, node));
    };
    let mut options = Fields::new(file, node, name)?;
    options.get(name);
    let action = action(file, &member.node, &mut options)?;
    let limit = options.millis("timeout_ms")?.unwrap_or(DEFAULT_LIMIT);
    options.finish()?;
    Ok(Step {
        line: node.line,
        action,
        limit,
    })
}

fn no_action(file: &str, node: &Node) -> ScenarioError {
    let names: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    match members(node).first() {
        Some(member) => ScenarioError::at(
            file,
            member.line,
            format!("unknown step {:?}; expected one of {names}", member.name),
        ),
        None => ScenarioError::at(
            file,
            node.line,
            format!("a step is a table with one of {names}"),
        ),
    }
}

fn update(case: &str, value: Value) -> Action {
    Action::Send(json!({ "interactionUpdate": schema::single(case, value) }))
}

fn yes(file: &str, node: &Node, name: &str, action: Action) -> Result<Action, ScenarioError> {
    match node.content {
        Content::Bool(true) => Ok(action),
        _ => Err(fields::wrong(file, node, name, "true")),
    }
}

fn millis(file: &str, node: &Node, name: &str) -> Result<Duration, ScenarioError> {
    fields::number(file, node, name).map(Duration::from_millis)
}

/// Bytes written as hex.
pub(super) fn hex(file: &str, node: &Node, name: &str) -> Result<Bytes, ScenarioError> {
    let text = fields::text(file, node, name)?;
    match schema::from_hex(&text) {
        Some(bytes) => Ok(bytes.into()),
        None => {
            let message = format!("{name:?} takes pairs of hex digits");
            Err(ScenarioError::at(file, node.line, message))
        }
    }
}

/// An HTTP/2 error code by name or number.
pub(super) fn error_code(file: &str, node: &Node, name: &str) -> Result<u32, ScenarioError> {
    let code = match &node.content {
        Content::Text(text) => ERROR_CODES
            .iter()
            .position(|known| known == text)
            .map(|code| code as u32),
        Content::Number(number) => number.as_u64().and_then(|code| u32::try_from(code).ok()),
        _ => None,
    };
    code.ok_or_else(|| {
        let message = format!(
            "{name:?} takes a number or one of {}",
            ERROR_CODES.join(", ")
        );
        ScenarioError::at(file, node.line, message)
    })
}

fn deltas(file: &str, node: &Node, _: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let mut table = Fields::new(file, node, "deltas")?;
    let text = fields::text(file, table.need("text")?, "text")?;
    let count = fields::number(file, table.need("count")?, "count")?;
    table.finish()?;
    Ok(Action::Deltas { text, count })
}

fn drip(file: &str, node: &Node, _: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let mut table = Fields::new(file, node, "drip")?;
    let text = fields::text(file, table.need("text")?, "text")?;
    let bytes = table.number("bytes")?.unwrap_or(1).max(1) as usize;
    let every = table.millis("every_ms")?.unwrap_or_default();
    table.finish()?;
    Ok(Action::Fault(Fault::Drip { text, bytes, every }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/scenarios.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, _) in ACTIONS {
            assert!(
                page.contains(&format!("`{name} = ")),
                "{name} is not in {page}"
            );
        }
    }
}
