//! Steps that ask the client something: exec, KV, query.

use super::check::{self, Use};
use super::fields::{self, Fields};
use super::library::members;
use super::source::{Member, Node};
use super::step::hex;
use super::{
    Action, Ask, Blob, BlobKey, Capture, ExecStep, KvGet, KvSet, Presence, ScenarioError, Wait,
};

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

/// `exec`.
pub(super) fn exec(
    file: &str,
    node: &Node,
    options: &mut Fields<'_>,
) -> Result<Action, ScenarioError> {
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
        may_throw: options.text("may_throw")?,
        wait,
        name,
        abort_after: options.millis("abort_after_ms")?,
        capture: captures(file, options)?,
        told: options.text("told")?,
    })))
}

fn id(options: &mut Fields<'_>) -> Result<Option<u32>, ScenarioError> {
    Ok(options.number("id")?.and_then(|id| u32::try_from(id).ok()))
}

/// `capture`: parts of a reply to keep.
pub(super) fn captures(
    file: &str,
    options: &mut Fields<'_>,
) -> Result<Vec<Capture>, ScenarioError> {
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

/// `kv_set`.
pub(super) fn kv_set(
    file: &str,
    node: &Node,
    options: &mut Fields<'_>,
) -> Result<Action, ScenarioError> {
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

/// `kv_get`.
pub(super) fn kv_get(
    file: &str,
    node: &Node,
    options: &mut Fields<'_>,
) -> Result<Action, ScenarioError> {
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

/// `query`.
pub(super) fn query(
    file: &str,
    node: &Node,
    options: &mut Fields<'_>,
) -> Result<Action, ScenarioError> {
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
