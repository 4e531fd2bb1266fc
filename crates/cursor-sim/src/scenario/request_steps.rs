//! Steps that send a request to the client: exec, KV, query.

use super::check::{self, CheckAs};
use super::library::members;
use super::source::{Member, Node};
use super::step::hex;
use super::table_reader::{self, TableReader};
use super::{Blob, BlobRef, Capture, ExecStep, KvGet, KvSet, QueryStep, ScenarioError, StepAction};

/// Returns the single member of a table, which is a case of a message's oneof.
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

/// Reads `exec`.
pub(super) fn exec(
    file: &str,
    node: &Node,
    options: &mut TableReader<'_>,
) -> Result<StepAction, ScenarioError> {
    let case = one_case(file, node, "exec")?;
    check::message(file, node, "agent.v1.ExecServerMessage", CheckAs::Message)?;
    let expect = match options.get("expect") {
        // The events of a stream are joined before the comparison, see `docs/scenarios.md`.
        Some(pattern) if case.name == "shellStreamArgs" => Some(pattern.to_json()),
        Some(pattern) => {
            check::message(
                file,
                pattern,
                "agent.v1.ExecClientMessage",
                CheckAs::Pattern,
            )?;
            Some(pattern.to_json())
        }
        None => None,
    };
    let replies = match options.get("replies") {
        Some(list) => {
            let list = table_reader::array(file, list, "replies")?;
            for reply in list {
                check::message(file, reply, "agent.v1.ExecClientMessage", CheckAs::Pattern)?;
            }
            list.iter().map(Node::to_json).collect()
        }
        None => Vec::new(),
    };
    let name = options.text("name")?;
    let leave_open = options.flag("open")?;
    Ok(StepAction::Exec(Box::new(ExecStep {
        args: node.to_json(),
        id: id(options)?,
        expect,
        replies,
        throws: options.text("throws")?,
        may_throw: options.text("may_throw")?,
        leave_open,
        name,
        abort_after: options.millis("abort_after_ms")?,
        capture: captures(file, options)?,
        answer_marker: options.text(options.used_name("answered_if", "told"))?,
    })))
}

fn id(options: &mut TableReader<'_>) -> Result<Option<u32>, ScenarioError> {
    Ok(options.number("id")?.and_then(|id| u32::try_from(id).ok()))
}

/// Reads `capture`: the parts of a reply to store.
pub(super) fn captures(
    file: &str,
    options: &mut TableReader<'_>,
) -> Result<Vec<Capture>, ScenarioError> {
    let Some(node) = options.get("capture") else {
        return Ok(Vec::new());
    };
    TableReader::new(file, node, "capture")?;
    members(node)
        .iter()
        .map(|member| {
            let pointer = table_reader::text(file, &member.node, &member.name)?;
            if !pointer.starts_with('/') {
                let message = format!("{pointer:?} is not a JSON pointer: it must start with /");
                return Err(ScenarioError::at(file, member.line, message));
            }
            Ok(Capture {
                name: member.name.clone(),
                pointer,
            })
        })
        .collect()
}

fn blob(table: &mut TableReader<'_>) -> Result<Option<Blob>, ScenarioError> {
    let file = table.file();
    if let Some(text) = table.text("text")? {
        return Ok(Some(Blob::Text(text)));
    }
    if let Some(node) = table.get("hex") {
        return Ok(Some(Blob::Bytes(hex(file, node, "hex")?)));
    }
    Ok(table.get("json").map(|node| Blob::Json(node.to_json())))
}

/// Reads `kv_set`.
pub(super) fn kv_set(
    file: &str,
    node: &Node,
    options: &mut TableReader<'_>,
) -> Result<StepAction, ScenarioError> {
    let mut table = TableReader::new(file, node, "kv_set")?;
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
    // `blob` reads only the first content it finds; `finish` reports a second one.
    table.finish()?;
    Ok(StepAction::KvSet(KvSet {
        blob,
        blob_id,
        name,
        id: id(options)?,
    }))
}

/// Reads `kv_get`.
pub(super) fn kv_get(
    file: &str,
    node: &Node,
    options: &mut TableReader<'_>,
) -> Result<StepAction, ScenarioError> {
    let mut table = TableReader::new(file, node, "kv_get")?;
    let key = if let Some(name) = table.text("name")? {
        BlobRef::Name(name)
    } else {
        let node = table.require("id_hex")?;
        BlobRef::Id(hex(file, node, "id_hex")?)
    };
    table.finish()?;
    let expect = match options.get("expect") {
        None => None,
        Some(node) => {
            let mut expect = TableReader::new(file, node, "expect")?;
            let mut inner = TableReader::new(file, expect.require("blob")?, "blob")?;
            let expected = blob(&mut inner)?;
            inner.finish()?;
            expect.finish()?;
            expected
        }
    };
    let must_be_missing = options.flag("missing")?;
    Ok(StepAction::KvGet(KvGet {
        key,
        expect,
        must_be_missing,
        id: id(options)?,
    }))
}

/// Reads `query`.
pub(super) fn query(
    file: &str,
    node: &Node,
    options: &mut TableReader<'_>,
) -> Result<StepAction, ScenarioError> {
    one_case(file, node, "query")?;
    check::message(file, node, "agent.v1.InteractionQuery", CheckAs::Message)?;
    let expect = match options.get("expect") {
        Some(pattern) => {
            check::message(
                file,
                pattern,
                "agent.v1.InteractionResponse",
                CheckAs::Pattern,
            )?;
            Some(pattern.to_json())
        }
        None => None,
    };
    Ok(StepAction::Query(QueryStep {
        query: node.to_json(),
        id: id(options)?,
        expect,
        capture: captures(file, options)?,
    }))
}
