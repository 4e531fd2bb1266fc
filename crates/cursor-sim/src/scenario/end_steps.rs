//! Steps that end a run: the end-of-stream envelope and HTTP statuses.

use serde_json::{Map, Value, json};

use super::check::{self, CheckAs};
use super::library::members;
use super::server_settings::status;
use super::source::{Member, Node, NodeContent};
use super::table_reader::{self, TableReader};
use super::{ErrorPlan, ScenarioError, StatusPlan, StepAction, StreamEnd};
use crate::connect::Code;

/// Reads `end`.
pub(super) fn end(
    file: &str,
    node: &Node,
    _: &mut TableReader<'_>,
) -> Result<StepAction, ScenarioError> {
    if node.content == NodeContent::Bool(true) {
        return Ok(StepAction::End(StreamEnd::Success));
    }
    let mut table = TableReader::new(file, node, "end")?;
    let code_node = table.require("code")?;
    let name = table_reader::text(file, code_node, "code")?;
    let Some(code) = Code::named(&name) else {
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
            TableReader::new(file, node, "metadata")?;
            members(node)
                .iter()
                .map(|member| {
                    let value = match &member.node.content {
                        NodeContent::Text(text) => json!([text]),
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
    Ok(StepAction::End(StreamEnd::Error(Box::new(ErrorPlan {
        code,
        message,
        details,
        metadata,
    }))))
}

/// Returns the `ErrorDetails` of an error, if the table has one of its members.
fn error_details(file: &str, table: &mut TableReader<'_>) -> Result<Option<Value>, ScenarioError> {
    let mut outer = Map::new();
    let mut inner = Map::new();
    if let Some(node) = table.get("error") {
        let wrapped = Node {
            line: node.line,
            content: NodeContent::Table(vec![Member {
                name: "error".into(),
                line: node.line,
                node: node.clone(),
            }]),
        };
        check::message(file, &wrapped, "aiserver.v1.ErrorDetails", CheckAs::Message)?;
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

/// Reads `status`.
pub(super) fn status_plan(
    file: &str,
    node: &Node,
    options: &mut TableReader<'_>,
) -> Result<StepAction, ScenarioError> {
    let status = status(file, node)?;
    let body = options.get("body").map(Node::to_json);
    let trailers_only = options.flag("trailers_only")?;
    if trailers_only && body.is_some() {
        let message = "a reply with trailers_only has no body";
        return Err(ScenarioError::at(file, node.line, message));
    }
    let headers = match options.get("headers") {
        Some(node) => {
            TableReader::new(file, node, "headers")?;
            members(node)
                .iter()
                .map(|member| {
                    let value = table_reader::text(file, &member.node, &member.name)?;
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
    Ok(StepAction::Status(StatusPlan {
        status,
        body,
        headers,
    }))
}
