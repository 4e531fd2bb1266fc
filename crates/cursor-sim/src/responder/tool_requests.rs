//! Tool calls of the responder: each one sends an exec request and a tool-call update before and
//! after it.

use serde_json::{Map, Value, json};

use super::intent::ClientTool;
use super::streaming::{InputMonitor, Interruption, update};
use crate::schema::{case, single};
use crate::server_run::{Exec, MessageId, RunStop, ServerRun};

/// Files to read if the message names none.
const LIKELY_FILES: [&str; 4] = ["README.md", "Cargo.toml", "package.json", "pyproject.toml"];
/// Longest part of a result, in characters, that the answer repeats.
const MAX_EXCERPT: usize = 400;

/// Reads a file; returns text for the answer.
pub(super) async fn read_file(
    run: &mut ServerRun,
    monitor: &mut InputMonitor,
    workspace: &str,
    name: Option<String>,
) -> Result<String, Interruption> {
    let name = match name {
        Some(name) => name,
        None => match find_file(run, monitor, workspace).await? {
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
    send_update(run, "toolCallStarted", &call, card(None)).await?;
    let args = json!({ "readArgs": { "path": path, "toolCallId": call } });
    let exec = execute(run, monitor, &args).await?;
    let success = &exec.summary().present["readResult"]["success"];
    let (result, text) = match success["content"].as_str() {
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
            let reason = failure_reason(&exec);
            (
                json!({ "error": { "errorMessage": reason } }),
                format!("I could not read {name}: {reason}"),
            )
        }
    };
    send_update(run, "toolCallCompleted", &call, card(Some(result))).await?;
    Ok(text)
}

async fn find_file(
    run: &mut ServerRun,
    monitor: &mut InputMonitor,
    workspace: &str,
) -> Result<Option<String>, Interruption> {
    let call = call_id();
    let args = json!({ "path": workspace, "toolCallId": call });
    send_update(
        run,
        "toolCallStarted",
        &call,
        json!({ "lsToolCall": { "args": args } }),
    )
    .await?;
    let exec = execute(run, monitor, &json!({ "lsArgs": args })).await?;
    let summary = exec.summary();
    let result = &summary.present["lsResult"];
    let mut card = json!({ "args": args });
    if result.is_object() {
        card["result"] = result.clone();
    }
    send_update(
        run,
        "toolCallCompleted",
        &call,
        json!({ "lsToolCall": card }),
    )
    .await?;
    let files = &result["success"]["directoryTreeRoot"]["childrenFiles"];
    let exists = |name: &str| {
        files
            .as_array()
            .is_some_and(|files| files.iter().any(|file| file["name"] == name))
    };
    Ok(LIKELY_FILES
        .iter()
        .find(|name| exists(name))
        .map(|name| (*name).to_owned()))
}

/// Runs a command; returns text for the answer.
pub(super) async fn run_command(
    run: &mut ServerRun,
    monitor: &mut InputMonitor,
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
    send_update(
        run,
        "toolCallStarted",
        &call,
        json!({ "shellToolCall": { "args": args } }),
    )
    .await?;
    let exec = execute(run, monitor, &json!({ "shellStreamArgs": args })).await?;
    let summary = exec.summary();
    let stream = &summary.with_defaults["shellStream"];
    let (stdout, stderr) = (&stream["stdout"], &stream["stderr"]);
    let (result, text) = match stream["exit"]["code"].as_u64() {
        Some(code) => {
            let details = json!({
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
                Some(single(outcome, details)),
                format!(
                    "`{command}` ended with code {code}:\n\n{}",
                    shorten(&output)
                ),
            )
        }
        None => (
            None,
            format!("I could not run `{command}`: {}", failure_reason(&exec)),
        ),
    };
    let mut card = json!({ "args": args });
    if let Some(result) = result {
        card["result"] = result;
    }
    send_update(
        run,
        "toolCallCompleted",
        &call,
        json!({ "shellToolCall": card }),
    )
    .await?;
    Ok(text)
}

/// Calls a tool of the client; returns text for the answer.
pub(super) async fn call_tool(
    run: &mut ServerRun,
    monitor: &mut InputMonitor,
    tool: &ClientTool,
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
    send_update(
        run,
        "toolCallStarted",
        &call,
        json!({ "mcpToolCall": { "args": args } }),
    )
    .await?;
    let exec = execute(run, monitor, &json!({ "mcpArgs": args })).await?;
    let summary = exec.summary();
    let success = &summary.present["mcpResult"]["success"];
    let (result, text) = if success.is_object() {
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
        let reason = failure_reason(&exec);
        (
            json!({ "error": { "error": reason } }),
            format!("The tool {} could not be called: {reason}", tool.tool),
        )
    };
    let card = json!({ "mcpToolCall": { "args": args, "result": result } });
    send_update(run, "toolCallCompleted", &call, card).await?;
    Ok(text)
}

async fn execute(
    run: &mut ServerRun,
    monitor: &mut InputMonitor,
    args: &Value,
) -> Result<Exec, Interruption> {
    let id = run.start_exec(args, MessageId::Next).await?;
    monitor.wait_for_exec(run, id).await
}

async fn send_update(
    run: &mut ServerRun,
    case: &str,
    call: &str,
    mut card: Value,
) -> Result<(), RunStop> {
    card["toolCallId"] = json!(call);
    let value = json!({ "callId": call, "toolCall": card, "modelCallId": "model-1" });
    update(run, case, value).await
}

fn call_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}

/// Returns why an exec failed, in the client's text if there is any.
fn failure_reason(exec: &Exec) -> String {
    if let Some(thrown) = &exec.thrown {
        return thrown["error"].as_str().unwrap_or("it threw").to_owned();
    }
    let last = exec.replies.last();
    let result = last.and_then(|reply| reply.present.get(exec.answer_case()));
    let Some((case, details)) = result.and_then(case) else {
        return "there was no result".to_owned();
    };
    let text = ["error", "reason"]
        .iter()
        .find_map(|name| details[*name].as_str());
    match text {
        Some(text) => text.to_owned(),
        None => case.to_owned(),
    }
}

fn shorten(text: &str) -> String {
    let text = text.trim_end();
    match text.char_indices().nth(MAX_EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
