//! Test vectors of the host tools: names, snapshots and contents.

use agent::turn::{Policy, Surface};
use agent_tools::bridge::content::{Content, arguments};
use agent_tools::bridge::tool_set::{BuiltinTools, HostTool, OfferedTools, ToolFilter};
use agent_tools::bridge::{names, schema_sanitizer};
use serde_json::{Value as Json, json};

use super::same;

pub(super) fn names_case(case: &Json) -> Result<(), String> {
    let texts = case["input"]["piToolNames"].as_array().unwrap();
    let names = names::offered(texts.iter().map(|name| name.as_str().unwrap()));
    same("names", &json!(names), &case["expected"]["mcpToolNames"])
}

fn tools(list: &Json) -> Vec<HostTool> {
    let list = list.as_array().unwrap();
    list.iter()
        .map(|tool| HostTool {
            name: tool["name"].as_str().unwrap().into(),
            description: tool["description"].as_str().unwrap_or_default().into(),
            parameters: tool["parameters"].clone(),
            origin: json!([
                tool["sourceInfo"]["source"],
                tool["sourceInfo"]["path"],
                tool["sourceInfo"]["scope"],
                tool["promptGuidelines"]
            ]),
        })
        .collect()
}

pub(super) fn snapshot_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    if input["a"].is_array() {
        let signature =
            |list: &Json| OfferedTools::of(&tools(list), &ToolFilter::default()).signature();
        let equal = signature(&input["a"]) == signature(&input["b"]);
        return same("equal", &json!(equal), &case["expected"]["equal"]);
    }
    let active = input["active"].as_array().unwrap();
    let replay = input["registeredReplayNames"].as_array();
    let replay = replay.into_iter().flatten();
    let surface = Surface::Cards(replay.map(|n| n.as_str().unwrap().into()).collect());
    let policy = Policy {
        overlapping: match &input["exposeOverlappingBuiltins"] {
            Json::Bool(true) => BuiltinTools::Offered,
            _ => BuiltinTools::Hidden,
        },
        ..Policy::default()
    };
    let mut chosen = tools(&input["all"]);
    chosen.retain(|tool| active.contains(&json!(tool.name)));
    let snapshot = policy.offered(&chosen, &surface);
    let shown: Vec<Json> = snapshot
        .tools
        .iter()
        .map(|tool| {
            json!({"piToolName": tool.host, "mcpToolName": tool.offered,
                   "description": tool.description, "inputSchema": tool.schema})
        })
        .collect();
    same("tools", &json!(shown), &case["expected"]["tools"])?;
    match case["expected"]["bySignature"].as_str() {
        Some("non-empty") => same(
            "signature",
            &json!(snapshot.signature().starts_with("bridge:on:")),
            &json!(true),
        ),
        Some(text) => same("signature", &json!(snapshot.signature()), &json!(text)),
        None => Ok(()),
    }
}

pub(super) fn content_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let found = match input["op"].as_str().unwrap() {
        "args" => arguments(input["args"].clone()),
        "schema" => schema_sanitizer::reduced(&input["schema"]).0,
        "content" => {
            // Missing content counts as empty.
            let content = input.get("content").cloned().unwrap_or(json!([]));
            Content::read(&content).iter().map(Content::json).collect()
        }
        other => return Err(format!("unknown operation {other}")),
    };
    same("result", &found, &case["expected"])
}
