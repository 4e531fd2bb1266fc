//! Test vectors of `tool_cards`: names, paths, cards, transcripts, detection of duplicates.

use std::path::Path;

use agent_tools::tool_cards;
use agent_tools::tool_cards::activity_tracker::{ActivityTracker, Completion, CompletionSource};
use agent_tools::tool_cards::shell_output::{OutputStream, ShellOutputs};
use agent_tools::tool_cards::{Activity, Card, Workspace, paths, tool_names};
use foundation::scrub::Scrubber;
use serde_json::{Value as Json, json};

use super::same;

fn unchanged(text: &str) -> String {
    text.to_owned()
}

fn at(root: &Path) -> Workspace<'_> {
    Workspace {
        root,
        redact: &unchanged,
    }
}

pub(super) fn names_case(case: &Json) -> Result<(), String> {
    let name = case["input"]["name"].as_str().unwrap_or_default();
    let args = case["input"]["args"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let tool = tool_names::resolve(name, &args);
    let visibility = tool_names::visibility(&tool);
    let got = json!({
        "normalized": tool_names::normalize(name).name(),
        "resolved": tool.name(),
        "activityTitle": tool_names::activity_title(name),
        "lifecycleEligible": visibility.shows_progress,
        "fastLocalDiscovery": visibility.is_local_lookup,
        "incompleteTitle": visibility.incomplete,
        "lifecycleTitle": visibility.running,
    });
    for (key, wanted) in case["expected"].as_object().unwrap() {
        same(key, &got[key], wanted)?;
    }
    Ok(())
}

pub(super) fn paths_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let path = input["path"].as_str().unwrap_or_default();
    let root = input["cwd"].as_str().map(Path::new);
    let here = root.unwrap_or(Path::new("/"));
    let got = match input["op"].as_str().unwrap() {
        "display" => json!(paths::display(path, here)),
        "diffHeader" => json!(paths::diff_header(input["line"].as_str().unwrap(), here)),
        "diff" => match input["diff"].as_str() {
            Some(diff) => json!(paths::diff(diff, here)),
            None => Json::Null,
        },
        "compact" => json!(paths::compact(path, root)),
        "sensitive" => json!(paths::is_sensitive(path)),
        "within" => json!(paths::is_within(Path::new(path), here)),
        other => return Err(format!("unknown operation {other}")),
    };
    same("path", &got, &case["expected"])
}

pub(super) fn mapping_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let wanted = &case["expected"];
    let root = Path::new(input["cwd"].as_str().unwrap());
    let activity = Activity::from_json(&input["toolCall"]);
    let plan = tool_cards::plan(&activity, &at(root));
    same("plan", &json!(plan), &wanted["planText"])?;
    let transcript = tool_cards::transcript(&activity, &at(root));
    same("transcript", &json!(transcript), &wanted["transcript"])?;
    let Card {
        tool,
        arguments,
        content,
        mut details,
        is_error,
    } = tool_cards::map_card(&activity, &at(root));
    let wanted = &wanted["display"];
    same("tool", &json!(tool), &wanted["toolName"])?;
    same("arguments", &arguments, &wanted["args"])?;
    let result = &wanted["result"];
    same(
        "content",
        &json!([{"type": "text", "text": content}]),
        &result["content"],
    )?;
    same("error", &json!(is_error), &wanted["isError"])?;
    // `diff` is in the format of the host's renderer: the same lines, numbered.
    let mut wanted = result["details"].clone();
    if let (Some(numbered), Some(unified)) = (details["diff"].as_str(), wanted["diff"].as_str()) {
        // Text without a numbered hunk is returned unchanged.
        if numbered != unified {
            same("diff", &signed(numbered), &unnumbered(unified))?;
        }
        details["diff"] = Json::Null;
        wanted["diff"] = Json::Null;
        // The vectors contain it only if Cursor reported it; we derive it from the diff.
        if wanted["firstChangedLine"].is_null() {
            details.as_object_mut().unwrap().remove("firstChangedLine");
        }
    }
    same("details", &details, &wanted)
}

/// Returns the sign and text of each line of a numbered diff.
fn signed(diff: &str) -> Vec<String> {
    diff.split('\n')
        .filter(|line| line.trim() != "...")
        .map(|line| {
            let (sign, rest) = line.split_at_checked(1).unwrap_or((line, ""));
            let text = rest.trim_start().split_once(' ');
            text.map_or(line.to_owned(), |(_, text)| format!("{sign}{text}"))
        })
        .collect()
}

/// Returns the sign and text of each line of a unified diff.
fn unnumbered(diff: &str) -> Vec<String> {
    diff.lines()
        .skip_while(|line| !line.starts_with("@@"))
        .map(|line| if line.is_empty() { " " } else { line })
        .filter(|line| line.starts_with(['+', '-', ' ']))
        .map(str::to_owned)
        .collect()
}

pub(super) fn preview_case(case: &Json) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("work");
    let outside = folder.path().join("previewout");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("o.txt"), "outside").unwrap();
    let layout = &case["input"]["layout"];
    for (name, content) in layout["files"].as_object().unwrap() {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.as_str().unwrap()).unwrap();
    }
    for (name, target) in layout["symlinks"].as_object().into_iter().flatten() {
        let target = target.as_str().unwrap();
        let target = match target.strip_prefix("<outside cwd>/") {
            Some(name) => outside.join(name),
            None => root.join(target),
        };
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    let path = &case["input"]["path"];
    let call = json!({"name": "read", "args": {"path": path}, "result": case["input"]["result"]});
    let activity = Activity::from_json(&call);
    let transcript = tool_cards::transcript(&activity, &at(&root));
    let card = tool_cards::card(&activity, &at(&root));
    let got = json!({
        "previewShown": transcript.contains("local file preview"),
        "transcriptLines": transcript.split('\n').count(),
        "nativeMarkedLocal": card.arguments["localReadPreview"] == true,
    });
    same("preview", &got, &case["expected"])
}

pub(super) fn shell_case(case: &Json) -> Result<(), String> {
    let mut outputs = ShellOutputs::default();
    let mut got = Vec::new();
    let scrubber = Scrubber::new(case["input"]["apiKey"].as_str().map(Into::into));
    let redact = |text: &str| scrubber.scrub(text).into_owned();
    for event in case["input"]["events"].as_array().unwrap() {
        let id = event["id"].as_str().unwrap_or_default();
        match event["ev"].as_str().unwrap() {
            "start" => outputs.started(id),
            "delta" => {
                let data = event["data"].as_str().unwrap_or_default();
                let line = match event["stream"].as_str() {
                    Some("stdout") => outputs.printed(OutputStream::Stdout, data, &redact),
                    Some("stderr") => outputs.printed(OutputStream::Stderr, data, &redact),
                    _ => None,
                };
                got.push(json!({"progress": line}));
            }
            _ => {
                let call = json!({"name": "shell", "result": event["result"]});
                let merged = outputs.completed(id, Activity::from_json(&call));
                got.push(json!({"merged": merged.result}));
            }
        }
    }
    same("events", &json!(got), &case["expected"])
}

pub(super) fn dedupe_case(case: &Json) -> Result<(), String> {
    let mut tracker = ActivityTracker::default();
    let mut outcomes = Vec::new();
    for event in case["input"]["events"].as_array().unwrap() {
        let id = event["id"].as_str();
        let activity = Activity::from_json(&event["call"]);
        let source = match event["k"].as_str().unwrap() {
            "started" => {
                tracker.record_start(id.unwrap(), activity, &at(Path::new("/")));
                continue;
            }
            "delta" => CompletionSource::Update,
            _ => CompletionSource::Step,
        };
        outcomes.push(match tracker.record_completion(source, id, activity) {
            Completion::Display(activity) => {
                format!("show:{}", activity.name.unwrap_or("unknown".into()))
            }
            Completion::DuplicateId => "skip:identity-already-completed".into(),
            Completion::DuplicateContent => "skip:fingerprint-already-completed".into(),
            Completion::DuplicateWithoutId => "skip:fallback-fingerprint-already-completed".into(),
            Completion::HostTool => "hosted".into(),
        });
    }
    let still: Vec<&str> = tracker.incomplete_calls().collect();
    let got = json!({"outcomes": outcomes, "stillStarted": still});
    same("outcomes", &got, &case["expected"])
}
