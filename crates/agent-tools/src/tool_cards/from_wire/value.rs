//! Normalizes the results of known kinds of calls for the formatters.

use serde_json::{Map, Value as Json, json};

use super::{METADATA_FIELDS, normalized};
use crate::tool_cards::tool_names::CursorTool;

pub(super) fn value_of(tool: &CursorTool, value: Json) -> Json {
    match tool {
        CursorTool::Read => read(value),
        CursorTool::Grep => json!({
            "workspaceResults": directories(&value["workspaceResults"]),
            "activeEditorResult": match_union(&value["activeEditorResult"]),
        }),
        CursorTool::Ls => json!({"directoryTreeRoot": directory(&value["directoryTreeRoot"])}),
        CursorTool::Glob => json!({
            "files": value["files"].as_array().cloned().unwrap_or_default(),
            "totalFiles": value["totalFiles"].as_u64().unwrap_or(0),
        }),
        CursorTool::ReadLints => plain_severities(value),
        CursorTool::UpdateTodos => plain_statuses(value).into(),
        CursorTool::Task => subagent(value),
        CursorTool::WebSearch => references(&value),
        CursorTool::WebFetch => page(value),
        _ => value,
    }
}

fn read(mut value: Json) -> Json {
    if value["isEmpty"] == true {
        value["content"] = "(empty file)".into();
    }
    if let Some(data) = value["data"].as_str() {
        let bytes = data.len() / 4 * 3;
        value["content"] = format!("[binary content, about {bytes} bytes]").into();
    }
    if let Json::Object(fields) = &mut value {
        fields.retain(|key, _| ["content", "totalLines", "fileSize"].contains(&key.as_str()));
        // No total for an empty file, so that no continuation offset is displayed.
        if fields
            .get("content")
            .is_some_and(|content| content == "(empty file)")
        {
            fields.remove("totalLines");
        }
    }
    value
}

fn directories(results: &Json) -> Json {
    let results = results.as_object().into_iter().flatten();
    results
        .map(|(directory, result)| (directory.clone(), match_union(result)))
        .collect()
}

/// Returns the matches of one directory, tagged with their kind.
fn match_union(result: &Json) -> Json {
    let Some((kind, output)) = result.as_object().and_then(|result| result.iter().next()) else {
        return Json::Null;
    };
    let total = ["totalMatches", "totalMatchedLines", "totalFiles"]
        .into_iter()
        .find_map(|key| output[key].as_u64());
    let mut shown = json!({"totalMatches": total.unwrap_or(0)});
    match kind.as_str() {
        "content" => {
            let files = output["matches"].as_array().into_iter().flatten();
            shown["matches"] = files
                .flat_map(|file| {
                    let lines = file["matches"].as_array().into_iter().flatten();
                    lines.map(|line| {
                        json!({"file": file["file"], "lineNumber": line["lineNumber"],
                               "line": line["content"].as_str().unwrap_or_default()})
                    })
                })
                .collect();
        }
        key => {
            let items = if key == "count" { "counts" } else { "files" };
            shown[items] = match &output[items] {
                Json::Null => json!([]),
                items => items.clone(),
            };
        }
    }
    json!({"type": kind, "output": shown})
}

/// Returns a directory and its entries; names of directories end with a slash.
fn directory(node: &Json) -> Json {
    let path = node["absPath"].as_str().unwrap_or_default();
    let name = format!("{}/", path.rsplit('/').next().unwrap_or(path));
    let directories = node["childrenDirs"].as_array().into_iter().flatten();
    let files = node["childrenFiles"].as_array().into_iter().flatten();
    let children: Vec<Json> = directories
        .map(directory)
        .chain(files.map(|file| json!({"name": file["name"]})))
        .collect();
    json!({"name": name, "children": children})
}

fn plain_severities(mut json: Json) -> Json {
    let files = json["fileDiagnostics"].as_array_mut().into_iter().flatten();
    for file in files {
        for diagnostic in file["diagnostics"].as_array_mut().into_iter().flatten() {
            if let Some(severity) = diagnostic["severity"].as_str() {
                let plain = severity
                    .trim_start_matches("DIAGNOSTIC_SEVERITY_")
                    .to_lowercase();
                diagnostic["severity"] = plain.into();
            }
        }
    }
    json
}

/// Normalizes the steps of a subagent: its messages and its calls.
fn subagent(mut value: Json) -> Json {
    let steps = value["conversationSteps"].take();
    let steps: Vec<Json> = steps
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|step| {
            if step["assistantMessage"].is_object() {
                return Some(step.clone());
            }
            let (field, call) = step["toolCall"]
                .as_object()?
                .iter()
                .find(|(key, _)| !METADATA_FIELDS.contains(&key.as_str()))?;
            let object = |key: &str| call[key].as_object().cloned();
            let kind = field.strip_suffix("ToolCall").unwrap_or(field);
            let inner = normalized(kind, object("args").unwrap_or_default(), object("result"));
            Some(json!({"type": "toolCall", "message": {
                "type": inner.name, "args": inner.arguments, "result": inner.result}}))
        })
        .collect();
    value["conversationSteps"] = steps.into();
    value
}

fn references(value: &Json) -> Json {
    let references = value["references"].as_array().into_iter().flatten();
    let texts: Vec<Json> = references
        .map(|reference| {
            let field = |key: &str| reference[key].as_str().unwrap_or_default();
            let text = format!("{}\n{}\n{}", field("title"), field("url"), field("chunk"));
            json!({"type": "text", "text": text.trim()})
        })
        .collect();
    json!({"content": texts})
}

fn page(value: Json) -> Json {
    let text = ["markdown", "content"]
        .into_iter()
        .find_map(|key| value[key].as_str());
    match text {
        Some(text) => json!({"content": [{"type": "text", "text": text}]}),
        None => value,
    }
}

/// Converts todo statuses to the names that the formatters expect.
pub(super) fn plain_statuses(mut json: Json) -> Map<String, Json> {
    for todo in json["todos"].as_array_mut().into_iter().flatten() {
        let status = match todo["status"].as_str() {
            Some("TODO_STATUS_PENDING") => "pending",
            Some("TODO_STATUS_IN_PROGRESS") => "inProgress",
            Some("TODO_STATUS_COMPLETED") => "completed",
            Some("TODO_STATUS_CANCELLED") => "cancelled",
            _ => continue,
        };
        todo["status"] = status.into();
    }
    match json {
        Json::Object(fields) => fields,
        _ => Map::new(),
    }
}
