//! Completed tool activity: names, paths, cards, transcripts, what is shown once.

use std::path::Path;

use cursor_sidecar::replay::ledger::{Completion, Ledger, Source};
use cursor_sidecar::replay::output::{Shells, Stream};
use cursor_sidecar::replay::{self, Activity, Card, Verdict, Workspace, names, paths};
use serde_json::{Value as Json, json};

use super::same;

fn as_told(text: &str) -> String {
    text.to_owned()
}

fn at(root: &Path) -> Workspace<'_> {
    Workspace {
        root,
        scrub: &as_told,
    }
}

pub(super) fn names_case(case: &Json) -> Result<(), String> {
    let name = case["input"]["name"].as_str().unwrap_or_default();
    let args = case["input"]["args"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let tool = names::resolve(name, &args);
    let visibility = names::visibility(&tool);
    let got = json!({
        "normalized": names::normalise(name).name(),
        "resolved": tool.name(),
        "activityTitle": names::activity_title(name),
        "lifecycleEligible": visibility.worth_a_line,
        "fastLocalDiscovery": visibility.quick,
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
        "sensitive" => json!(paths::sensitive(path)),
        "within" => json!(paths::within(Path::new(path), here)),
        other => return Err(format!("unknown operation {other}")),
    };
    same("path", &got, &case["expected"])
}

pub(super) fn mapping_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let wanted = &case["expected"];
    let root = Path::new(input["cwd"].as_str().unwrap());
    let activity = Activity::read(&input["toolCall"]);
    let plan = replay::plan(&activity, &at(root));
    same("plan", &json!(plan), &wanted["planText"])?;
    let transcript = replay::transcript(&activity, &at(root));
    same("transcript", &json!(transcript), &wanted["transcript"])?;
    let Card {
        tool,
        arguments,
        content,
        mut details,
        verdict,
    } = replay::mapped(&activity, &at(root));
    let wanted = &wanted["display"];
    same("tool", &json!(tool), &wanted["toolName"])?;
    same("arguments", &arguments, &wanted["args"])?;
    let result = &wanted["result"];
    same(
        "content",
        &json!([{"type": "text", "text": content}]),
        &result["content"],
    )?;
    same(
        "error",
        &json!(verdict == Verdict::Failed),
        &wanted["isError"],
    )?;
    // The host's own renderer draws `diff`: the same lines, numbered.
    let mut wanted = result["details"].clone();
    if let (Some(numbered), Some(unified)) = (details["diff"].as_str(), wanted["diff"].as_str()) {
        // What has no numbered hunk is given back as it is.
        if numbered != unified {
            same("diff", &signed(numbered), &unnumbered(unified))?;
        }
        details["diff"] = Json::Null;
        wanted["diff"] = Json::Null;
        // Told only where Cursor told it; ours is read from the diff.
        if wanted["firstChangedLine"].is_null() {
            details.as_object_mut().unwrap().remove("firstChangedLine");
        }
    }
    same("details", &details, &wanted)
}

/// Sign and text of each line of a numbered diff.
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

/// The same of a unified one.
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
    let activity = Activity::read(&call);
    let transcript = replay::transcript(&activity, &at(&root));
    let card = replay::card(&activity, &at(&root));
    let got = json!({
        "previewShown": transcript.contains("local file preview"),
        "transcriptLines": transcript.split('\n').count(),
        "nativeMarkedLocal": card.arguments["localReadPreview"] == true,
    });
    same("preview", &got, &case["expected"])
}

pub(super) fn shell_case(case: &Json) -> Result<(), String> {
    let mut shells = Shells::default();
    let mut got = Vec::new();
    for event in case["input"]["events"].as_array().unwrap() {
        let id = event["id"].as_str().unwrap_or_default();
        match event["ev"].as_str().unwrap() {
            "start" => shells.started(id),
            "delta" => {
                let data = event["data"].as_str().unwrap_or_default();
                let line = match event["stream"].as_str() {
                    Some("stdout") => shells.printed(Stream::Stdout, data, &as_told),
                    Some("stderr") => shells.printed(Stream::Stderr, data, &as_told),
                    _ => None,
                };
                got.push(json!({"progress": line}));
            }
            _ => {
                let call = json!({"name": "shell", "result": event["result"]});
                let merged = shells.completed(id, Activity::read(&call));
                got.push(json!({"merged": merged.result}));
            }
        }
    }
    same("events", &json!(got), &case["expected"])
}

pub(super) fn dedupe_case(case: &Json) -> Result<(), String> {
    let mut ledger = Ledger::default();
    let mut outcomes = Vec::new();
    for event in case["input"]["events"].as_array().unwrap() {
        let id = event["id"].as_str();
        let activity = Activity::read(&event["call"]);
        let source = match event["k"].as_str().unwrap() {
            "started" => {
                ledger.started(id.unwrap(), activity, &at(Path::new("/")));
                continue;
            }
            "delta" => Source::Update,
            _ => Source::Step,
        };
        outcomes.push(match ledger.completed(source, id, activity) {
            Completion::Show(activity) => {
                format!("show:{}", activity.name.unwrap_or("unknown".into()))
            }
            Completion::SameCall => "skip:identity-already-completed".into(),
            Completion::SameContent => "skip:fingerprint-already-completed".into(),
            Completion::ToldWithoutId => "skip:fallback-fingerprint-already-completed".into(),
            Completion::Hosted => "hosted".into(),
        });
    }
    let still: Vec<&str> = ledger.still_started().collect();
    let got = json!({"outcomes": outcomes, "stillStarted": still});
    same("outcomes", &got, &case["expected"])
}
