//! One step: a table with one action and its options.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::check::{self, Use};
use super::fields::{self, Fields};
use super::library::members;
use super::server::status;
use super::source::{Content, Member, Node};
use super::{
    Action, Ask, Blob, BlobKey, Capture, CheckpointPlan, DEFAULT_LIMIT, Ending, ErrorPlan,
    ExecStep, Fault, KvGet, KvSet, Presence, ScenarioError, StatusPlan, Step, Wait,
};
use crate::sim::connect::Code;
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
    ("exec", exec),
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
    ("kv_set", kv_set),
    ("kv_get", kv_get),
    ("query", query),
    ("checkpoint", |file, node, _| match &node.content {
        Content::Text(text) if text == "auto" => Ok(Action::Checkpoint(CheckpointPlan::Auto)),
        Content::Text(_) => Err(fields::wrong(
            file,
            node,
            "checkpoint",
            "\"auto\" or a table",
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
    ("end", end),
    ("status", status_plan),
    ("expect_client", |file, node, options| {
        check::message(file, node, schema::CLIENT_MESSAGE, Use::Pattern)?;
        Ok(Action::ExpectClient {
            pattern: node.to_json(),
            capture: captures(file, options)?,
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
    ("expect_cancel", |file, node, _| {
        yes(file, node, "expect_cancel", Action::ExpectCancel)
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

fn hex(file: &str, node: &Node, name: &str) -> Result<Bytes, ScenarioError> {
    let text = fields::text(file, node, name)?;
    match schema::from_hex(&text) {
        Some(bytes) => Ok(bytes.into()),
        None => {
            let message = format!("{name:?} takes pairs of hex digits");
            Err(ScenarioError::at(file, node.line, message))
        }
    }
}

fn error_code(file: &str, node: &Node, name: &str) -> Result<u32, ScenarioError> {
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

/// The single member of a table that is a case of a message's oneof.
fn one_case<'n>(file: &str, node: &'n Node, name: &str) -> Result<&'n Member, ScenarioError> {
    match members(node) {
        [member] => Ok(member),
        _ => Err(ScenarioError::at(
            file,
            node.line,
            format!("{name} takes a table with one case, such as {name} = {{ … = {{}} }}"),
        )),
    }
}

fn exec(file: &str, node: &Node, options: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let case = one_case(file, node, "exec")?;
    check::message(file, node, "agent.v1.ExecServerMessage", Use::Message)?;
    let expect = match options.get("expect") {
        // A stream is compared as a whole, see `docs/scenarios.md`.
        Some(pattern) if case.name == "shellStreamArgs" => Some(pattern.to_json()),
        Some(pattern) => {
            check::message(file, pattern, "agent.v1.ExecClientMessage", Use::Pattern)?;
            Some(pattern.to_json())
        }
        None => None,
    };
    let replies = match options.get("replies") {
        Some(list) => {
            let list = fields::array(file, list, "replies")?;
            for reply in list {
                check::message(file, reply, "agent.v1.ExecClientMessage", Use::Pattern)?;
            }
            list.iter().map(Node::to_json).collect()
        }
        None => Vec::new(),
    };
    let name = options.text("name")?;
    let wait = if options.flag("open")? {
        Wait::Later
    } else {
        Wait::Now
    };
    Ok(Action::Exec(Box::new(ExecStep {
        args: node.to_json(),
        id: id(options)?,
        expect,
        replies,
        throws: options.text("throws")?,
        wait,
        name,
        abort_after: options.millis("abort_after_ms")?,
        capture: captures(file, options)?,
    })))
}

fn id(options: &mut Fields<'_>) -> Result<Option<u32>, ScenarioError> {
    Ok(options.number("id")?.and_then(|id| u32::try_from(id).ok()))
}

fn captures(file: &str, options: &mut Fields<'_>) -> Result<Vec<Capture>, ScenarioError> {
    let Some(node) = options.get("capture") else {
        return Ok(Vec::new());
    };
    Fields::new(file, node, "capture")?;
    members(node)
        .iter()
        .map(|member| {
            let pointer = fields::text(file, &member.node, &member.name)?;
            if !pointer.starts_with('/') {
                let message = format!("{pointer:?} is no JSON pointer: it must start with /");
                return Err(ScenarioError::at(file, member.line, message));
            }
            Ok(Capture {
                name: member.name.clone(),
                pointer,
            })
        })
        .collect()
}

fn blob(table: &mut Fields<'_>) -> Result<Option<Blob>, ScenarioError> {
    let file = table.file();
    if let Some(text) = table.text("text")? {
        return Ok(Some(Blob::Text(text)));
    }
    if let Some(node) = table.get("hex") {
        return Ok(Some(Blob::Bytes(hex(file, node, "hex")?)));
    }
    Ok(table.get("json").map(|node| Blob::Json(node.to_json())))
}

fn kv_set(file: &str, node: &Node, options: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let mut table = Fields::new(file, node, "kv_set")?;
    let Some(blob) = blob(&mut table)? else {
        let message = "kv_set needs one of text, hex, json";
        return Err(ScenarioError::at(file, node.line, message));
    };
    let blob_id = match table.get("id_hex") {
        Some(node) => Some(hex(file, node, "id_hex")?),
        None => None,
    };
    let name = match table.text("name")? {
        Some(name) => Some(name),
        None => options.text("name")?,
    };
    // `blob` stops asking at the first it finds; a second one is a mistake to report.
    table.finish()?;
    Ok(Action::KvSet(KvSet {
        blob,
        blob_id,
        name,
        id: id(options)?,
    }))
}

fn kv_get(file: &str, node: &Node, options: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let mut table = Fields::new(file, node, "kv_get")?;
    let key = if let Some(name) = table.text("name")? {
        BlobKey::Name(name)
    } else {
        let node = table.need("id_hex")?;
        BlobKey::Id(hex(file, node, "id_hex")?)
    };
    table.finish()?;
    let expect = match options.get("expect") {
        None => None,
        Some(node) => {
            let mut expect = Fields::new(file, node, "expect")?;
            let mut inner = Fields::new(file, expect.need("blob")?, "blob")?;
            let wanted = blob(&mut inner)?;
            inner.finish()?;
            expect.finish()?;
            wanted
        }
    };
    let presence = if options.flag("missing")? {
        Presence::Missing
    } else {
        Presence::Required
    };
    Ok(Action::KvGet(KvGet {
        key,
        expect,
        presence,
        id: id(options)?,
    }))
}

fn query(file: &str, node: &Node, options: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    one_case(file, node, "query")?;
    check::message(file, node, "agent.v1.InteractionQuery", Use::Message)?;
    let expect = match options.get("expect") {
        Some(pattern) => {
            check::message(file, pattern, "agent.v1.InteractionResponse", Use::Pattern)?;
            Some(pattern.to_json())
        }
        None => None,
    };
    Ok(Action::Query(Ask {
        query: node.to_json(),
        id: id(options)?,
        expect,
        capture: captures(file, options)?,
    }))
}

fn end(file: &str, node: &Node, _: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    if node.content == Content::Bool(true) {
        return Ok(Action::End(Ending::Success));
    }
    let mut table = Fields::new(file, node, "end")?;
    let code_node = table.need("code")?;
    let name = fields::text(file, code_node, "code")?;
    let Some(code) = Code::from_name(&name) else {
        let known: Vec<_> = Code::names().collect();
        let message = format!(
            "unknown code {name:?}; expected one of {}",
            known.join(", ")
        );
        return Err(ScenarioError::at(file, code_node.line, message));
    };
    let message = table.text("message")?.unwrap_or_default();
    let metadata = match table.get("metadata") {
        Some(node) => {
            Fields::new(file, node, "metadata")?;
            members(node)
                .iter()
                .map(|member| {
                    let value = match &member.node.content {
                        Content::Text(text) => json!([text]),
                        _ => member.node.to_json(),
                    };
                    (member.name.clone(), value)
                })
                .collect()
        }
        None => Map::new(),
    };
    let details = error_details(file, &mut table)?;
    table.finish()?;
    Ok(Action::End(Ending::Error(Box::new(ErrorPlan {
        code,
        message,
        details,
        metadata,
    }))))
}

/// The `ErrorDetails` of an error, if one of its members is there.
fn error_details(file: &str, table: &mut Fields<'_>) -> Result<Option<Value>, ScenarioError> {
    let mut outer = Map::new();
    let mut inner = Map::new();
    if let Some(node) = table.get("error") {
        let wrapped = Node {
            line: node.line,
            content: Content::Table(vec![Member {
                name: "error".into(),
                line: node.line,
                node: node.clone(),
            }]),
        };
        check::message(file, &wrapped, "aiserver.v1.ErrorDetails", Use::Message)?;
        outer.insert("error".into(), node.to_json());
    }
    for (name, member) in [("title", "title"), ("detail", "detail")] {
        if let Some(text) = table.text(name)? {
            inner.insert(member.into(), text.into());
        }
    }
    if table.get("retryable").is_some() {
        inner.insert("isRetryable".into(), table.flag("retryable")?.into());
    }
    if let Some(text) = table.text("action_required")? {
        inner.insert(
            "analyticsMetadata".into(),
            json!({ "actionRequired": text }),
        );
    }
    if !inner.is_empty() {
        outer.insert("details".into(), Value::Object(inner));
    }
    Ok((!outer.is_empty()).then_some(Value::Object(outer)))
}

fn status_plan(file: &str, node: &Node, options: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let status = status(file, node)?;
    let body = options.get("body").map(Node::to_json);
    let trailers_only = options.flag("trailers_only")?;
    if trailers_only && body.is_some() {
        let message = "a reply with trailers_only has no body";
        return Err(ScenarioError::at(file, node.line, message));
    }
    let headers = match options.get("headers") {
        Some(node) => {
            Fields::new(file, node, "headers")?;
            members(node)
                .iter()
                .map(|member| {
                    let value = fields::text(file, &member.node, &member.name)?;
                    Ok((member.name.clone(), value))
                })
                .collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let body = match (trailers_only, body) {
        (false, None) => Some(json!({ "code": "unknown", "message": format!("HTTP {status}") })),
        (_, body) => body,
    };
    Ok(Action::Status(StatusPlan {
        status,
        body,
        headers,
    }))
}

fn drip(file: &str, node: &Node, _: &mut Fields<'_>) -> Result<Action, ScenarioError> {
    let mut table = Fields::new(file, node, "drip")?;
    let text = fields::text(file, table.need("text")?, "text")?;
    let bytes = table.number("bytes")?.unwrap_or(1).max(1) as usize;
    let every = table.millis("every_ms")?.unwrap_or_default();
    table.finish()?;
    Ok(Action::Fault(Fault::Drip { text, bytes, every }))
}
