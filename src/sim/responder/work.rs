//! Work on the person's machine: each piece is shown as a card around the exec that does it.

use serde_json::{Map, Value, json};

use super::intent::HostTool;
use super::voice::{Ears, Interruption, update};
use crate::sim::schema::{case, single};
use crate::sim::session::{Exec, Id, Session, Stop};

/// Files worth a look when none was named.
const LIKELY_FILES: [&str; 4] = ["README.md", "Cargo.toml", "package.json", "pyproject.toml"];
/// Most of a result that is repeated in words.
const SHOWN: usize = 400;

/// Reads a file and says what is in it.
pub(super) async fn read(
    session: &mut Session,
    ears: &mut Ears,
    workspace: &str,
    wanted: Option<String>,
) -> Result<String, Interruption> {
    let name = match wanted {
        Some(name) => name,
        None => match find_file(session, ears, workspace).await? {
            Some(name) => name,
            None => return Ok("I see no README here that I could read.".to_owned()),
        },
    };
    let path = if name.starts_with('/') {
        name.clone()
    } else {
        format!("{workspace}/{name}")
    };
    let call = call_id();
    let card = |result: Option<Value>| {
        let mut card = json!({ "args": { "path": path } });
        if let Some(result) = result {
            card["result"] = result;
        }
        single("readToolCall", card)
    };
    show(session, "toolCallStarted", &call, card(None)).await?;
    let args = json!({ "readArgs": { "path": path, "toolCallId": call } });
    let exec = perform(session, ears, &args).await?;
    let success = &exec.summary().present["readResult"]["success"];
    let (result, words) = match success["content"].as_str() {
        Some(content) => (
            json!({ "success": {
                "content": content,
                "path": path,
                "totalLines": success["totalLines"].as_u64().unwrap_or(0),
                "fileSize": content.len(),
            }}),
            format!("{name} begins like this:\n\n{}", shorten(content)),
        ),
        None => {
            let reason = reason(&exec);
            (
                json!({ "error": { "errorMessage": reason } }),
                format!("I could not read {name}: {reason}"),
            )
        }
    };
    show(session, "toolCallCompleted", &call, card(Some(result))).await?;
    Ok(words)
}

async fn find_file(
    session: &mut Session,
    ears: &mut Ears,
    workspace: &str,
) -> Result<Option<String>, Interruption> {
    let call = call_id();
    let args = json!({ "path": workspace, "toolCallId": call });
    show(
        session,
        "toolCallStarted",
        &call,
        json!({ "lsToolCall": { "args": args } }),
    )
    .await?;
    let exec = perform(session, ears, &json!({ "lsArgs": args })).await?;
    let summary = exec.summary();
    let result = &summary.present["lsResult"];
    let mut card = json!({ "args": args });
    if result.is_object() {
        card["result"] = result.clone();
    }
    show(
        session,
        "toolCallCompleted",
        &call,
        json!({ "lsToolCall": card }),
    )
    .await?;
    let files = &result["success"]["directoryTreeRoot"]["childrenFiles"];
    let there = |name: &str| {
        files
            .as_array()
            .is_some_and(|files| files.iter().any(|file| file["name"] == name))
    };
    Ok(LIKELY_FILES
        .iter()
        .find(|name| there(name))
        .map(|name| (*name).to_owned()))
}

/// Runs a command and says what came out.
pub(super) async fn run(
    session: &mut Session,
    ears: &mut Ears,
    workspace: &str,
    command: &str,
) -> Result<String, Interruption> {
    let call = call_id();
    let args = json!({
        "command": command,
        "workingDirectory": workspace,
        "timeout": 30_000,
        "toolCallId": call,
        "simpleCommands": [command.split_whitespace().next().unwrap_or_default()],
        "parsingResult": {},
    });
    show(
        session,
        "toolCallStarted",
        &call,
        json!({ "shellToolCall": { "args": args } }),
    )
    .await?;
    let exec = perform(session, ears, &json!({ "shellStreamArgs": args })).await?;
    let summary = exec.summary();
    let stream = &summary.full["shellStream"];
    let (stdout, stderr) = (&stream["stdout"], &stream["stderr"]);
    let (result, words) = match stream["exit"]["code"].as_u64() {
        Some(code) => {
            let facts = json!({
                "command": command,
                "workingDirectory": workspace,
                "exitCode": code as u32 as i32,
                "stdout": stdout,
                "stderr": stderr,
            });
            let output = format!(
                "{}{}",
                stdout.as_str().unwrap_or_default(),
                stderr.as_str().unwrap_or_default()
            );
            let outcome = if code == 0 { "success" } else { "failure" };
            (
                Some(single(outcome, facts)),
                format!(
                    "`{command}` ended with code {code}:\n\n{}",
                    shorten(&output)
                ),
            )
        }
        None => (
            None,
            format!("I could not run `{command}`: {}", reason(&exec)),
        ),
    };
    let mut card = json!({ "args": args });
    if let Some(result) = result {
        card["result"] = result;
    }
    show(
        session,
        "toolCallCompleted",
        &call,
        json!({ "shellToolCall": card }),
    )
    .await?;
    Ok(words)
}

/// Calls a tool of the client and says what it gave.
pub(super) async fn call(
    session: &mut Session,
    ears: &mut Ears,
    tool: &HostTool,
    arguments: Map<String, Value>,
) -> Result<String, Interruption> {
    let call = call_id();
    let args = json!({
        "name": tool.name,
        "args": arguments,
        "toolCallId": call,
        "providerIdentifier": tool.provider,
        "toolName": tool.tool,
    });
    show(
        session,
        "toolCallStarted",
        &call,
        json!({ "mcpToolCall": { "args": args } }),
    )
    .await?;
    let exec = perform(session, ears, &json!({ "mcpArgs": args })).await?;
    let summary = exec.summary();
    let success = &summary.present["mcpResult"]["success"];
    let (result, words) = if success.is_object() {
        let text: Vec<&str> = success["content"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| item["text"]["text"].as_str().unwrap_or("(an image)"))
            .collect();
        let verb = if success["isError"] == true {
            "failed"
        } else {
            "answered"
        };
        (
            json!({ "success": success }),
            format!(
                "The tool {} {verb}: {}",
                tool.tool,
                shorten(&text.join("\n"))
            ),
        )
    } else {
        let reason = reason(&exec);
        (
            json!({ "error": { "error": reason } }),
            format!("The tool {} could not be called: {reason}", tool.tool),
        )
    };
    let card = json!({ "mcpToolCall": { "args": args, "result": result } });
    show(session, "toolCallCompleted", &call, card).await?;
    Ok(words)
}

async fn perform(
    session: &mut Session,
    ears: &mut Ears,
    args: &Value,
) -> Result<Exec, Interruption> {
    let id = session.start_exec(args, Id::Next).await?;
    ears.wait(session, id).await
}

async fn show(session: &mut Session, case: &str, call: &str, mut card: Value) -> Result<(), Stop> {
    card["toolCallId"] = json!(call);
    let value = json!({ "callId": call, "toolCall": card, "modelCallId": "model-1" });
    update(session, case, value).await
}

fn call_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}

/// Why something did not work, in the client's words as far as it gave any.
fn reason(exec: &Exec) -> String {
    if let Some(thrown) = &exec.thrown {
        return thrown["error"].as_str().unwrap_or("it threw").to_owned();
    }
    let last = exec.replies.last();
    let result = last.and_then(|reply| reply.present.get(exec.answer_case()));
    let Some((case, facts)) = result.and_then(case) else {
        return "there was no result".to_owned();
    };
    let words = ["error", "reason"]
        .iter()
        .find_map(|name| facts[*name].as_str());
    match words {
        Some(words) => words.to_owned(),
        None => case.to_owned(),
    }
}

fn shorten(text: &str) -> String {
    let text = text.trim_end();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
