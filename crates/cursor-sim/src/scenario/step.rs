//! Reads one step: a table with one action and its options.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::check::{self, CheckAs};
use super::library::members;
use super::source::{Member, Node, NodeContent};
use super::table_reader::{self, TableReader};
use super::{
    CheckpointPlan, DEFAULT_LIMIT, ScenarioError, ScenarioStep, ServerFault, StepAction, end_steps,
    request_steps,
};
use crate::schema;

/// Reads an action from its value and the options of its step.
type ReadAction = fn(&str, &Node, &mut TableReader<'_>) -> Result<StepAction, ScenarioError>;

/// Every action by name.
const ACTIONS: &[(&str, ReadAction)] = &[
    ("text", |file, node, _| {
        let text = table_reader::text(file, node, "text")?;
        Ok(update("textDelta", json!({ "text": text })))
    }),
    ("thinking", |file, node, _| {
        let text = table_reader::text(file, node, "thinking")?;
        Ok(update("thinkingDelta", json!({ "text": text })))
    }),
    ("thinking_done", |file, node, _| {
        let millis = match node.content {
            NodeContent::Bool(true) => 0,
            _ => table_reader::number(file, node, "thinking_done")?,
        };
        Ok(update(
            "thinkingCompleted",
            json!({ "thinkingDurationMs": millis }),
        ))
    }),
    ("deltas", deltas),
    ("update", |file, node, _| {
        check::message(file, node, "agent.v1.InteractionUpdate", CheckAs::Message)?;
        Ok(StepAction::Send(
            json!({ "interactionUpdate": node.to_json() }),
        ))
    }),
    ("send", |file, node, _| {
        check::message(file, node, schema::SERVER_MESSAGE, CheckAs::Message)?;
        Ok(StepAction::Send(node.to_json()))
    }),
    ("send_hex", |file, node, _| {
        Ok(StepAction::SendBytes(hex(file, node, "send_hex")?))
    }),
    ("exec", request_steps::exec),
    ("await", |file, node, _| match &node.content {
        NodeContent::Array(items) => Ok(StepAction::Await(
            items
                .iter()
                .map(|item| table_reader::text(file, item, "await"))
                .collect::<Result<_, _>>()?,
        )),
        _ => Ok(StepAction::Await(vec![table_reader::text(
            file, node, "await",
        )?])),
    }),
    ("abort", |file, node, _| {
        Ok(StepAction::Abort(table_reader::text(file, node, "abort")?))
    }),
    ("kv_set", request_steps::kv_set),
    ("kv_get", request_steps::kv_get),
    ("query", request_steps::query),
    ("checkpoint", |file, node, _| match &node.content {
        NodeContent::Text(text) if text == "auto" => {
            Ok(StepAction::Checkpoint(CheckpointPlan::Auto))
        }
        NodeContent::Text(text) if text == "late" => {
            Ok(StepAction::Checkpoint(CheckpointPlan::Late))
        }
        NodeContent::Text(_) => Err(table_reader::type_error(
            file,
            node,
            "checkpoint",
            "\"auto\", \"late\" or a table",
        )),
        _ => {
            check::message(file, node, schema::CONVERSATION_STATE, CheckAs::Message)?;
            Ok(StepAction::Checkpoint(CheckpointPlan::State(
                node.to_json(),
            )))
        }
    }),
    ("token_details", |file, node, _| {
        check::message(
            file,
            node,
            "agent.v1.ConversationTokenDetails",
            CheckAs::Message,
        )?;
        Ok(StepAction::TokenDetails(node.to_json()))
    }),
    ("usage", |file, node, _| {
        check::message(file, node, "agent.v1.TurnEndedUpdate", CheckAs::Message)?;
        Ok(update("turnEnded", node.to_json()))
    }),
    ("end", end_steps::end),
    ("status", end_steps::status_plan),
    ("expect_client", |file, node, options| {
        check::message(file, node, schema::CLIENT_MESSAGE, CheckAs::Pattern)?;
        Ok(StepAction::ExpectClient {
            pattern: node.to_json(),
            capture: request_steps::captures(file, options)?,
        })
    }),
    ("expect_request", |file, node, _| {
        check::message(file, node, "agent.v1.AgentRunRequest", CheckAs::Pattern)?;
        Ok(StepAction::ExpectRequest(node.to_json()))
    }),
    ("expect_headers", |file, node, _| {
        TableReader::new(file, node, "expect_headers")?;
        Ok(StepAction::ExpectHeaders(node.to_json()))
    }),
    ("expect_state", |file, node, _| {
        match table_reader::text(file, node, "expect_state")?.as_str() {
            "last checkpoint" => Ok(StepAction::ExpectState),
            _ => Err(table_reader::type_error(
                file,
                node,
                "expect_state",
                "\"last checkpoint\"",
            )),
        }
    }),
    ("expect_history", |_, node, _| {
        Ok(StepAction::ExpectHistory(node.to_json()))
    }),
    ("expect_cancel", |file, node, _| {
        require_true(file, node, "expect_cancel", StepAction::ExpectCancel)
    }),
    ("expect_file", |file, node, _| {
        let path = table_reader::text(file, node, "expect_file")?;
        Ok(StepAction::ExpectFile(path.into()))
    }),
    ("together", |file, node, _| {
        require_true(file, node, "together", StepAction::Together)
    }),
    ("delay_ms", |file, node, _| {
        Ok(StepAction::Delay(millis(file, node, "delay_ms")?))
    }),
    ("heartbeat", |file, node, _| {
        require_true(file, node, "heartbeat", update("heartbeat", json!({})))
    }),
    ("silence_ms", |file, node, _| {
        Ok(StepAction::Silence(millis(file, node, "silence_ms")?))
    }),
    ("reset", |file, node, _| {
        Ok(StepAction::Fault(ServerFault::Reset(error_code(
            file, node, "reset",
        )?)))
    }),
    ("goaway", |file, node, _| {
        Ok(StepAction::Fault(ServerFault::GoAway(error_code(
            file, node, "goaway",
        )?)))
    }),
    ("half_close", |file, node, _| {
        require_true(
            file,
            node,
            "half_close",
            StepAction::Fault(ServerFault::HalfClose),
        )
    }),
    ("stall", |file, node, _| {
        require_true(file, node, "stall", StepAction::Fault(ServerFault::Stall))
    }),
    ("truncate", |file, node, _| {
        let bytes = table_reader::number(file, node, "truncate")?;
        Ok(StepAction::Fault(ServerFault::Truncate(bytes as usize)))
    }),
    ("garbage", |file, node, _| {
        Ok(StepAction::Fault(ServerFault::Garbage(hex(
            file, node, "garbage",
        )?)))
    }),
    ("oversized", |file, node, _| {
        match u32::try_from(table_reader::number(file, node, "oversized")?) {
            Ok(bytes) => Ok(StepAction::Fault(ServerFault::Oversized(bytes))),
            Err(_) => Err(table_reader::type_error(
                file,
                node,
                "oversized",
                "a number below 4294967296",
            )),
        }
    }),
    ("cut", |file, node, _| {
        require_true(file, node, "cut", StepAction::Fault(ServerFault::Cut))
    }),
    ("drip", drip),
    ("hold_window", |file, node, _| {
        require_true(
            file,
            node,
            "hold_window",
            StepAction::Fault(ServerFault::HoldWindow),
        )
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

pub(super) fn read(file: &str, node: &Node) -> Result<ScenarioStep, ScenarioError> {
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
    let mut options = TableReader::new(file, node, name)?;
    options.get(name);
    let action = action(file, &member.node, &mut options)?;
    let limit = options.millis("timeout_ms")?.unwrap_or(DEFAULT_LIMIT);
    options.finish()?;
    Ok(ScenarioStep {
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

fn update(case: &str, value: Value) -> StepAction {
    StepAction::Send(json!({ "interactionUpdate": schema::single(case, value) }))
}

fn require_true(
    file: &str,
    node: &Node,
    name: &str,
    action: StepAction,
) -> Result<StepAction, ScenarioError> {
    match node.content {
        NodeContent::Bool(true) => Ok(action),
        _ => Err(table_reader::type_error(file, node, name, "true")),
    }
}

fn millis(file: &str, node: &Node, name: &str) -> Result<Duration, ScenarioError> {
    table_reader::number(file, node, name).map(Duration::from_millis)
}

/// Reads bytes in hex.
pub(super) fn hex(file: &str, node: &Node, name: &str) -> Result<Bytes, ScenarioError> {
    let text = table_reader::text(file, node, name)?;
    match schema::from_hex(&text) {
        Some(bytes) => Ok(bytes.into()),
        None => {
            let message = format!("{name:?} takes pairs of hex digits");
            Err(ScenarioError::at(file, node.line, message))
        }
    }
}

/// Reads an HTTP/2 error code by name or number.
pub(super) fn error_code(file: &str, node: &Node, name: &str) -> Result<u32, ScenarioError> {
    let code = match &node.content {
        NodeContent::Text(text) => ERROR_CODES
            .iter()
            .position(|known| known == text)
            .map(|code| code as u32),
        NodeContent::Number(number) => number.as_u64().and_then(|code| u32::try_from(code).ok()),
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

fn deltas(file: &str, node: &Node, _: &mut TableReader<'_>) -> Result<StepAction, ScenarioError> {
    let mut table = TableReader::new(file, node, "deltas")?;
    let text = table_reader::text(file, table.require("text")?, "text")?;
    let count = table_reader::number(file, table.require("count")?, "count")?;
    table.finish()?;
    Ok(StepAction::Deltas { text, count })
}

fn drip(file: &str, node: &Node, _: &mut TableReader<'_>) -> Result<StepAction, ScenarioError> {
    let mut table = TableReader::new(file, node, "drip")?;
    let text = table_reader::text(file, table.require("text")?, "text")?;
    let bytes = table.number("bytes")?.unwrap_or(1).max(1) as usize;
    let every = table.millis("every_ms")?.unwrap_or_default();
    table.finish()?;
    Ok(StepAction::Fault(ServerFault::Drip { text, bytes, every }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, _) in ACTIONS {
            assert!(
                page.contains(&format!("`{name} = ")),
                "{name} is not in {page}"
            );
        }
    }
}
