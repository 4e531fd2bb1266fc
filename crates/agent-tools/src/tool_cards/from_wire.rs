//! Converts Cursor's protobuf tool calls to activities.
//!
//! The messages are read by their descriptors, so that every kind of call in the schema is
//! displayed, even those without code here. Known kinds are normalized to the form that the
//! formatters expect.

mod value;

use serde_json::{Map, Value as Json, json};

use super::tool_names::{self, CursorTool};
use super::{Activity, shell};
use cursor_proto::agent::v1::ToolCall;
use cursor_proto::to_json;
use value::{plain_statuses, value_of};

/// Longer strings are truncated, because results are only displayed.
const MAX_TEXT: usize = 512 * 1024;

/// Fields of a call that do not identify its tool.
const METADATA_FIELDS: [&str; 4] = [
    "hookAdditionalContexts",
    "toolCallId",
    "startedAtMs",
    "completedAtMs",
];

/// Converts a call to an activity.
pub(super) fn activity(call: &ToolCall) -> Activity {
    let Some(Json::Object(call)) = to_json::json("agent.v1.ToolCall", call) else {
        return Activity::default();
    };
    let tool = call
        .into_iter()
        .find(|(key, _)| !METADATA_FIELDS.contains(&key.as_str()));
    let Some((field, call)) = tool else {
        return Activity::default();
    };
    let kind = field.strip_suffix("ToolCall").unwrap_or(&field).to_owned();
    let Json::Object(mut call) = call else {
        // A kind whose content is not in the schema.
        return Activity {
            name: Some(kind),
            ..Activity::default()
        };
    };
    let args = match call.remove("args") {
        Some(Json::Object(args)) => args,
        _ => Map::new(),
    };
    let result = match call.remove("result") {
        Some(Json::Object(result)) => Some(result),
        _ => None,
    };
    let mut activity = normalized(&kind, args, result);
    activity.arguments.remove("toolCallId");
    if let Some(result) = &mut activity.result {
        truncate_strings(result);
    }
    activity
}

/// Returns the variant of a result and its value.
fn outcome(result: Map<String, Json>) -> (String, Json) {
    // Fields next to the oneof are added to the value of the variant.
    let mut variant = None;
    let mut siblings = Map::new();
    for (key, value) in result {
        match variant {
            None if value.is_object() && !SIBLING_FIELDS.contains(&key.as_str()) => {
                variant = Some((key, value));
            }
            _ => {
                siblings.insert(key, value);
            }
        }
    }
    let (key, mut value) = variant.unwrap_or_else(|| ("success".into(), json!({})));
    if let Json::Object(fields) = &mut value {
        fields.extend(siblings);
    }
    (key, value)
}

/// Object fields next to the variants of a result.
const SIBLING_FIELDS: [&str; 1] = ["sandboxPolicy"];

fn success(value: Json) -> Json {
    json!({"status": "success", "value": value})
}

fn failure(variant: &str, value: &Json) -> Json {
    let keys = [
        "error",
        "errorMessage",
        "reason",
        "clientVisibleError",
        "modelVisibleError",
    ];
    let message = keys
        .into_iter()
        .find_map(|key| value[key].as_str().filter(|s| !s.is_empty()));
    let text = match (variant, message) {
        ("error" | "failure", Some(message)) => message.to_owned(),
        (_, Some(message)) => format!("{}: {message}", variant_words(variant)),
        (_, None) => variant_words(variant),
    };
    json!({"status": "error", "error": text})
}

/// `fileNotFound` → `file not found`.
fn variant_words(variant: &str) -> String {
    variant.chars().fold(String::new(), |mut words, c| {
        if c.is_uppercase() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
        words
    })
}

fn normalized(kind: &str, args: Map<String, Json>, result: Option<Map<String, Json>>) -> Activity {
    if let Some(pi) = kind.strip_prefix("pi") {
        return pi_tool(&pi.to_lowercase(), args, result);
    }
    let name = match kind {
        "fetch" => "webFetch",
        "readTodos" => "updateTodos",
        kind => kind,
    };
    let outcome = result.map(outcome);
    let tool = tool_names::normalize(name);
    match tool {
        CursorTool::Edit => return edit(args, outcome),
        CursorTool::Shell => return shell_activity(args, outcome),
        _ => {}
    }
    let args = match tool {
        CursorTool::Mcp => mcp_arguments(args),
        CursorTool::Task => task_arguments(args),
        CursorTool::UpdateTodos | CursorTool::CreatePlan => plain_statuses(args.into()),
        CursorTool::RecordScreen => recording_arguments(args),
        _ => args,
    };
    let result = outcome.map(|(variant, value)| {
        let well = variant == "success"
            || variant.ends_with("Success")
            || ["complete", "stillRunning", "async", "approved"].contains(&variant.as_str());
        if well {
            success(value_of(&tool, value))
        } else {
            failure(&variant, &value)
        }
    });
    Activity {
        name: Some(name.to_owned()),
        arguments: args,
        result,
    }
}

/// Normalizes an edit. One that created the file becomes a write.
fn edit(mut args: Map<String, Json>, outcome: Option<(String, Json)>) -> Activity {
    let streamed = args
        .remove("streamContent")
        .and_then(|content| content.as_str().map(str::to_owned))
        .filter(|content| !content.trim().is_empty());
    args.retain(|key, _| key == "path");
    let Some((variant, value)) = outcome else {
        // What the model wrote is all that is known.
        let result = streamed.map(|content| success(json!({"message": prefix(&content)})));
        return Activity {
            name: Some("edit".into()),
            arguments: args,
            result,
        };
    };
    if variant != "success" {
        return Activity {
            name: Some("edit".into()),
            arguments: args,
            result: Some(failure(&variant, &value)),
        };
    }
    let before = value["beforeFullFileContent"].as_str().unwrap_or_default();
    let after = value["afterFullFileContent"].as_str().unwrap_or_default();
    if before.is_empty() && !after.is_empty() {
        args.insert("content".into(), prefix(after).into());
        return Activity {
            name: Some("write".into()),
            arguments: args,
            result: Some(success(json!({"linesCreated": after.lines().count(),
                                     "fileSize": after.len()}))),
        };
    }
    let mut kept = Map::new();
    for key in ["linesAdded", "linesRemoved", "diffString"] {
        if let Some(field) = value.get(key) {
            kept.insert(key.into(), field.clone());
        }
    }
    if kept.is_empty() {
        let words = value["message"].as_str().unwrap_or("edited");
        kept.insert("message".into(), words.into());
    }
    Activity {
        name: Some("edit".into()),
        arguments: args,
        result: Some(success(kept.into())),
    }
}

fn shell_activity(args: Map<String, Json>, outcome: Option<(String, Json)>) -> Activity {
    let timeout = args
        .get("timeout")
        .filter(|timeout| timeout.as_i64() > Some(0));
    let mut arguments = Map::new();
    arguments.insert(
        "command".into(),
        args.get("command").cloned().unwrap_or("".into()),
    );
    if let Some(timeout) = timeout {
        arguments.insert("timeout".into(), timeout.clone());
    }
    let result = outcome.map(|(variant, value)| match variant.as_str() {
        "success" | "failure" => success(printed(&variant, &value)),
        "timeout" => {
            let after = value["timeoutMs"].as_i64().unwrap_or(0);
            json!({"status": "error", "error": format!("the command timed out after {after} ms")})
        }
        variant => failure(variant, &value),
    });
    Activity {
        name: Some("shell".into()),
        arguments,
        result,
    }
}

fn printed(variant: &str, value: &Json) -> Json {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let (mut stdout, stderr) = (text("stdout"), text("stderr"));
    if stdout.is_empty() && stderr.is_empty() {
        stdout = text("interleavedOutput");
    }
    let mut shown = json!({"stdout": stdout, "stderr": stderr,
                           "exitCode": value["exitCode"].as_i64().unwrap_or(0)});
    if variant == "failure" && shown["exitCode"] == 0 {
        // Killed or not started: a failure even if the exit code is 0.
        shown["exitCode"] = 1.into();
    }
    if let Some(file) = value["outputLocation"]["filePath"].as_str() {
        shown[shell::FILE] = file.into();
    }
    if let Some(took) = value["executionTime"].as_i64() {
        shown["executionTime"] = took.into();
    }
    shown
}

fn mcp_arguments(mut args: Map<String, Json>) -> Map<String, Json> {
    let name = ["toolName", "name"]
        .into_iter()
        .find_map(|key| args.get(key).and_then(Json::as_str))
        .unwrap_or("mcp")
        .to_owned();
    args.insert("toolName".into(), name.into());
    args
}

fn task_arguments(mut args: Map<String, Json>) -> Map<String, Json> {
    if let Some(Json::Object(kind)) = args.remove("subagentType")
        && let Some((kind, fields)) = kind.into_iter().next()
        && kind != "unspecified"
    {
        args.insert(
            "subagentType".into(),
            json!({"kind": kind, "name": fields["name"]}),
        );
    }
    args.remove("prompt"); // the description is enough
    args
}

fn recording_arguments(mut args: Map<String, Json>) -> Map<String, Json> {
    if let Some(mode) = args.get_mut("mode")
        && let Some(value) = mode.as_str()
    {
        *mode = value.trim_start_matches("RECORDING_MODE_").into();
    }
    args
}

/// Normalizes tools that the server calls by pi's names, with pi's arguments.
fn pi_tool(tool: &str, mut args: Map<String, Json>, result: Option<Map<String, Json>>) -> Activity {
    let (name, key) = match tool {
        "bash" => ("shell", "stdout"),
        "find" => ("glob", "output"),
        tool => (tool, "content"),
    };
    if tool == "bash"
        && let Some(seconds) = args.get("timeout").and_then(Json::as_f64)
    {
        args.insert("timeout".into(), (seconds * 1000.0).into());
    }
    if tool == "grep"
        && let Some(flag) = args.remove("ignoreCase")
    {
        args.insert("caseInsensitive".into(), flag);
    }
    let result = result.map(outcome).map(|(variant, value)| {
        if variant != "success" {
            return failure(&variant, &value);
        }
        let output = value["output"].clone();
        match tool {
            "read" | "bash" => success(json!({key: output})),
            "edit" => success(json!({"diffString": value["patch"], "firstChangedLine": value["firstChangedLine"]})),
            // Matching lines are used unchanged.
            _ => success(output),
        }
    });
    Activity {
        name: Some(name.to_owned()),
        arguments: args,
        result,
    }
}

fn prefix(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_TEXT))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn truncate_strings(json: &mut Json) {
    match json {
        Json::String(text) if text.len() > MAX_TEXT => *text = prefix(text).to_owned(),
        Json::Array(items) => items.iter_mut().for_each(truncate_strings),
        Json::Object(fields) => fields.values_mut().for_each(truncate_strings),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_proto::agent::v1::{EditArgs, EditToolCall, ToolCall, tool_call};

    #[test]
    fn an_edit_without_a_result_keeps_what_the_model_wrote() {
        let edit = |content: Option<&str>| {
            activity(&ToolCall {
                tool: Some(tool_call::Tool::EditToolCall(EditToolCall {
                    args: Some(EditArgs {
                        path: "/w/a.rs".into(),
                        stream_content: content.map(str::to_owned),
                    }),
                    result: None,
                })),
                ..ToolCall::default()
            })
        };
        let written = edit(Some("fn main() {}"));
        assert_eq!(written.name.as_deref(), Some("edit"));
        assert_eq!(written.result.unwrap()["value"]["message"], "fn main() {}");
        assert_eq!(edit(None).result, None);
    }
}
