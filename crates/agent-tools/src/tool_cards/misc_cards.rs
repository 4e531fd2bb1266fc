//! Diagnostics, images, screen recordings, MCP, semantic search and the web.

use serde_json::Value as Json;

use super::ActivityView;
use super::activity::CallOutcome;
use super::generic_card::{CardDraft, FieldMap};
use super::text::{self, MAX_ARGUMENT_CHARS, TRANSCRIPT};

/// Returns the files that diagnostics were requested or reported for, without duplicates.
fn lint_paths(view: &ActivityView<'_>) -> Vec<String> {
    let listed = view.args.get("paths").and_then(Json::as_array);
    let requested: Vec<&str> = match listed {
        Some(paths) => paths.iter().filter_map(Json::as_str).collect(),
        None => text::string(view.args.get("path")).into_iter().collect(),
    };
    let reported = view.value("fileDiagnostics").and_then(Json::as_array);
    let reported = reported
        .into_iter()
        .flatten()
        .filter_map(|file| file["path"].as_str())
        .filter(|path| !path.is_empty());
    let mut paths: Vec<String> = Vec::new();
    for path in requested.into_iter().chain(reported) {
        let path = view.path(path);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

fn diagnostics(view: &ActivityView<'_>) -> Vec<String> {
    let files = view.value("fileDiagnostics").and_then(Json::as_array);
    let mut lines = Vec::new();
    for file in files.into_iter().flatten() {
        let path = file["path"].as_str().filter(|path| !path.is_empty());
        let path = path.map_or("unknown".into(), |path| view.path(path));
        for diagnostic in file["diagnostics"].as_array().into_iter().flatten() {
            let field = |key: &str| diagnostic[key].as_str();
            let severity = field("severity").unwrap_or("diagnostic");
            let message = field("message").unwrap_or_default();
            lines.push(match field("source").filter(|source| !source.is_empty()) {
                Some(source) => format!("{path}: {severity} {source}: {message}"),
                None => format!("{path}: {severity}: {message}"),
            });
        }
    }
    lines
}

pub(super) fn lints(view: &ActivityView<'_>) -> String {
    let paths = lint_paths(view);
    let header = if paths.is_empty() {
        "readLints".to_owned()
    } else {
        format!("readLints {}", paths.join(" "))
    };
    let value = match view.outcome {
        CallOutcome::Failed(error) => return text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => value,
    };
    let lines = diagnostics(view);
    let body = match (lines.is_empty(), paths.is_empty()) {
        (false, _) => lines.join("\n"),
        (true, false) => {
            return text::section(&header, &format!("No diagnostics in {}", paths.join(", ")));
        }
        (true, true) => text::to_text(value),
    };
    text::section(&header, &text::truncate_lines(&body, TRANSCRIPT, None))
}

pub(super) fn lints_draft(view: &ActivityView<'_>) -> CardDraft {
    let paths = lint_paths(view);
    let mut arguments = FieldMap::default();
    let mut summary = None;
    if !paths.is_empty() {
        let count = diagnostics(view).len();
        arguments.put("paths", Some(paths.clone().into()));
        if let [path] = paths.as_slice() {
            arguments.text("path", Some(path.clone()));
        }
        arguments.put("diagnosticCount", Some(count.into()));
        let what = if count == 1 {
            "diagnostic"
        } else {
            "diagnostics"
        };
        summary = Some(format!("{count} {what} in {}", paths.join(", ")));
    }
    CardDraft {
        arguments,
        summary,
        details: FieldMap::default(),
    }
}

fn prompt<'a>(view: &ActivityView<'a>) -> &'a str {
    text::string(view.args.get("prompt"))
        .or_else(|| text::string(view.args.get("description")))
        .unwrap_or("image")
}

fn image_path<'a>(view: &'a ActivityView<'_>) -> Option<&'a str> {
    text::string(view.value("filePath"))
        .or_else(|| text::string(view.args.get("filePath")))
        .or_else(|| text::string(view.args.get("path")))
}

pub(super) fn image(view: &ActivityView<'_>) -> String {
    let header = format!("generateImage {}", prompt(view));
    let value = match view.outcome {
        CallOutcome::Failed(error) => return text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => value,
    };
    let saved = image_path(view)
        .filter(|path| !path.is_empty())
        .map(|path| format!("Saved image: {}", view.path(path)));
    let data = text::string(view.value("imageData")).filter(|data| !data.is_empty());
    let data = data.map(|_| "Image data returned by Cursor SDK.".to_owned());
    let lines: Vec<String> = saved.into_iter().chain(data).collect();
    if lines.is_empty() {
        text::section(
            &header,
            &text::truncate_lines(&text::to_text(value), TRANSCRIPT, None),
        )
    } else {
        text::section(&header, &lines.join("\n"))
    }
}

pub(super) fn image_draft(view: &ActivityView<'_>) -> CardDraft {
    let path = image_path(view).filter(|path| !path.is_empty());
    let shown = path.map(|path| view.path(path));
    let prompt = text::truncate(prompt(view), MAX_ARGUMENT_CHARS);
    let mut arguments = FieldMap::default();
    arguments.text("prompt", Some(prompt.clone()));
    arguments.text("path", shown.clone());
    let mut details = FieldMap::default();
    details.text("imagePath", path.map(str::to_owned));
    details.text("imageDisplayPath", shown.clone());
    details.text(
        "imageMimeType",
        path.and_then(image_type).map(str::to_owned),
    );
    CardDraft {
        arguments,
        summary: Some(shown.unwrap_or(prompt)),
        details,
    }
}

fn image_type(path: &str) -> Option<&'static str> {
    Some(match path.to_lowercase().rsplit_once('.')?.1 {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return None,
    })
}

fn mode(view: &ActivityView<'_>) -> String {
    match text::string(view.args.get("mode")) {
        Some("START_RECORDING") => "start recording",
        Some("SAVE_RECORDING") => "save recording",
        Some("DISCARD_RECORDING") => "discard recording",
        Some(mode) => mode,
        None => "record screen",
    }
    .to_owned()
}

fn duration(view: &ActivityView<'_>) -> Option<String> {
    let millis = text::number(view.value("recordingDurationMs")).filter(|millis| *millis >= 0.0)?;
    let seconds = millis / 1000.0;
    Some(match (millis < 1000.0, seconds < 60.0) {
        (true, _) => format!("{}ms", text::format_number((millis + 0.5).floor())),
        (_, true) => format!("{}s", text::one_decimal(seconds)),
        _ => {
            let minutes = (seconds / 60.0).floor();
            let rest = (seconds % 60.0 + 0.5).floor();
            format!(
                "{}m {}s",
                text::format_number(minutes),
                text::format_number(rest)
            )
        }
    })
}

fn recorded_path(view: &ActivityView<'_>) -> Option<String> {
    let path = text::string(view.value("path")).filter(|path| !path.is_empty())?;
    Some(view.path(path))
}

pub(super) fn recording(view: &ActivityView<'_>) -> String {
    let header = format!("recordScreen {}", mode(view));
    if let CallOutcome::Failed(error) = view.outcome {
        return text::section(&header, &text::error(error));
    }
    let cancelled = view.value("wasPriorRecordingCancelled") == Some(&Json::Bool(true));
    let mut lines: Vec<String> = [
        recorded_path(view).map(|path| format!("Recording: {path}")),
        duration(view).map(|duration| format!("Duration: {duration}")),
        cancelled.then(|| "Prior recording cancelled.".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if lines.is_empty() {
        let done = match text::string(view.args.get("mode")) {
            Some("START_RECORDING") => "Recording started.",
            Some("DISCARD_RECORDING") => "Recording discarded.",
            _ => "Screen recording updated.",
        };
        lines.push(done.to_owned());
    }
    text::section(&header, &lines.join("\n"))
}

pub(super) fn recording_draft(view: &ActivityView<'_>) -> CardDraft {
    let reported = text::string(view.args.get("mode")).filter(|mode| !mode.is_empty());
    let path = recorded_path(view);
    let mut arguments = FieldMap::default();
    arguments.text("mode", reported.map(str::to_owned));
    arguments.text("path", path.clone());
    arguments.number("recordingDurationMs", view.value("recordingDurationMs"));
    let summary = match (path, duration(view)) {
        (Some(path), Some(duration)) => Some(format!("{path} · {duration}")),
        (Some(path), None) => Some(path),
        (None, _) => reported.map(str::to_owned),
    };
    CardDraft {
        arguments,
        summary,
        details: FieldMap::default(),
    }
}

const SEARCH: &str = "semantic search";

pub(super) fn semantic_search(view: &ActivityView<'_>) -> String {
    let query = text::string(view.args.get("query")).unwrap_or(SEARCH);
    let header = format!("semSearch {}", text::truncate(query, MAX_ARGUMENT_CHARS));
    let value = match view.outcome {
        CallOutcome::Failed(error) => return text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => value,
    };
    let first_argument = |reported: Option<&str>| {
        reported
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let folders = view.args.get("targetDirectories").and_then(Json::as_array);
    let folders = folders
        .filter(|folders| !folders.is_empty())
        .map(|folders| {
            let names: Vec<String> = folders
                .iter()
                .map(|folder| text::to_text(Some(folder)))
                .collect();
            format!("Scope: {}", names.join(", "))
        });
    let parts: Vec<String> = [
        first_argument(text::string(view.args.get("explanation")))
            .map(|why| format!("Explanation: {why}")),
        folders,
        first_argument(text::string(view.value("results"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let body = if parts.is_empty() {
        text::to_text(value)
    } else {
        parts.join("\n\n")
    };
    text::section(&header, &text::truncate_lines(&body, TRANSCRIPT, None))
}

pub(super) fn semantic_search_draft(view: &ActivityView<'_>) -> CardDraft {
    let query = text::string(view.args.get("query")).unwrap_or(SEARCH);
    let query = text::truncate(query, MAX_ARGUMENT_CHARS);
    let folders = view.args.get("targetDirectories").and_then(Json::as_array);
    let folders: Vec<&Json> = folders
        .into_iter()
        .flatten()
        .filter(|f| f.is_string())
        .collect();
    let mut arguments = FieldMap::default();
    arguments.text("query", Some(query.clone()));
    let summary = match (query.trim(), folders.len()) {
        ("", _) => None,
        (query, 0) => Some(query.to_owned()),
        (query, 1) => Some(format!("{query} (1 dir)")),
        (query, count) => Some(format!("{query} ({count} dirs)")),
    };
    if !folders.is_empty() {
        arguments.put(
            "targetDirectories",
            Some(folders.into_iter().cloned().collect()),
        );
    }
    CardDraft {
        arguments,
        summary,
        details: FieldMap::default(),
    }
}

/// The content of an MCP result: its text, else a note on what was omitted.
struct McpContent {
    body: String,
    preview: Option<String>,
}

fn mcp_content(view: &ActivityView<'_>) -> McpContent {
    let mut texts = Vec::new();
    let mut others = Vec::new();
    let mut preview = None;
    let blocks = view.value("content").and_then(Json::as_array);
    for block in blocks.into_iter().flatten() {
        let direct = block["text"].as_str().filter(|text| !text.is_empty());
        let nested = block["text"]["text"]
            .as_str()
            .filter(|text| !text.is_empty());
        match direct.or(nested) {
            Some(text) => {
                let line =
                    text::first_line(text).map(|line| text::truncate(line, MAX_ARGUMENT_CHARS));
                preview = preview.or(line);
                texts.push(text.to_owned());
            }
            None => others.push(omitted_block(block)),
        }
    }
    let preview = preview.or_else(|| others.first().cloned());
    let body = match (texts.is_empty(), others.is_empty()) {
        (false, _) => texts.join("\n"),
        (true, false) => others.join("\n"),
        (true, true) => text::to_text(view.outcome.value()),
    };
    let error_mark = match view.value("isError") {
        Some(Json::Bool(true)) => "[tool error]\n",
        _ => "",
    };
    McpContent {
        body: format!("{error_mark}{body}").trim().to_owned(),
        preview,
    }
}

fn omitted_block(block: &Json) -> String {
    let field = |key: &str| block[key].as_str();
    match field("type").unwrap_or("content") {
        "image" => match ["mimeType", "mime", "mediaType"]
            .into_iter()
            .find_map(field)
        {
            Some(mime) => format!("[image {mime} omitted]"),
            None => "[image omitted]".into(),
        },
        kind => format!("[{kind} omitted]"),
    }
}

fn mcp_name<'a>(view: &ActivityView<'a>) -> &'a str {
    text::string(view.args.get("toolName")).unwrap_or("mcp")
}

fn mcp_transcript(view: &ActivityView<'_>, header: &str) -> String {
    match view.outcome {
        CallOutcome::Failed(error) => text::section(header, &text::error(error)),
        CallOutcome::Done(_) => text::section(
            header,
            &text::truncate_lines(&mcp_content(view).body, TRANSCRIPT, None),
        ),
    }
}

pub(super) fn mcp(view: &ActivityView<'_>) -> String {
    mcp_transcript(view, mcp_name(view))
}

pub(super) fn mcp_draft(view: &ActivityView<'_>) -> CardDraft {
    let name = text::truncate(mcp_name(view), MAX_ARGUMENT_CHARS);
    let preview = if view.failed() {
        None
    } else {
        mcp_content(view).preview
    };
    let mut arguments = FieldMap::default();
    arguments.text("toolName", Some(name.clone()));
    arguments.text("preview", preview.clone());
    let subject = match name.trim() {
        "" => "mcp",
        name => name,
    };
    let summary = match preview.as_deref().map(str::trim) {
        Some(preview) if !preview.is_empty() && preview != subject => {
            format!("{subject} · {preview}")
        }
        _ => subject.to_owned(),
    };
    CardDraft {
        arguments,
        summary: Some(summary),
        details: FieldMap::default(),
    }
}

/// Returns the first non-blank argument of these keys, from the call or a nested MCP call.
fn first_argument<'a>(view: &ActivityView<'a>, keys: &[&str]) -> Option<&'a str> {
    let inner = view.args.get("args").and_then(Json::as_object);
    [Some(view.args), inner]
        .into_iter()
        .flatten()
        .find_map(|fields| {
            keys.iter()
                .filter_map(|key| text::string(fields.get(*key)))
                .map(str::trim)
                .find(|text| !text.is_empty())
        })
}

/// Returns the search query.
pub(super) fn query<'a>(view: &ActivityView<'a>) -> Option<&'a str> {
    first_argument(view, &["search_term", "searchTerm", "query", "q"])
}

/// Returns the fetched URL.
pub(super) fn url<'a>(view: &ActivityView<'a>) -> Option<&'a str> {
    first_argument(view, &["url", "uri", "href"])
}

pub(super) fn web(view: &ActivityView<'_>, what: &str, target: Option<&str>) -> String {
    match target {
        Some(target) => mcp_transcript(view, &format!("{what} {target}")),
        None => mcp_transcript(view, what),
    }
}

pub(super) fn web_draft(key: &str, target: Option<&str>) -> CardDraft {
    let target = target.map(|target| text::truncate(target, MAX_ARGUMENT_CHARS));
    let mut arguments = FieldMap::default();
    arguments.text(key, target.clone());
    let mut details = FieldMap::default();
    // Pages are long.
    details.put("collapseDetailsByDefault", Some(true.into()));
    CardDraft {
        arguments,
        summary: target,
        details,
    }
}
