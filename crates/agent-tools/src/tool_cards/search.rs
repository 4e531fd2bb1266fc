//! Searches: grep and glob.

use serde_json::{Map, Value as Json};

use super::activity::CallOutcome;
use super::text::{self, TRANSCRIPT};
use super::{ActivityView, Card};

pub(super) fn grep(view: &ActivityView<'_>) -> String {
    let pattern = text::string(view.args.get("pattern"))
        .filter(|pattern| !pattern.is_empty())
        .map(|pattern| Json::from(pattern).to_string());
    let path = text::string(view.args.get("path")).map(|path| view.path(path));
    let glob = text::string(view.args.get("glob")).map(str::to_owned);
    let words: Vec<String> = [Some("$ grep".to_owned()), pattern, path.or(glob)]
        .into_iter()
        .flatten()
        .filter(|word| !word.is_empty())
        .collect();
    let header = words.join(" ");
    match view.outcome {
        CallOutcome::Failed(error) => text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => text::section(&header, &matches(view, value)),
    }
}

pub(super) fn grep_card(view: &ActivityView<'_>) -> Card {
    let number = |key: &str| text::number(view.args.get(key)).map(text::json_number);
    let string = |key: &str| text::string(view.args.get(key));
    let fields = [
        ("pattern", string("pattern").map(Json::from)),
        ("path", string("path").map(|path| view.path(path).into())),
        ("glob", string("glob").map(Json::from)),
        (
            "ignoreCase",
            view.args
                .get("caseInsensitive")
                .and_then(Json::as_bool)
                .map(Json::from),
        ),
        (
            "context",
            ["context", "contextBefore", "contextAfter"]
                .into_iter()
                .find_map(number),
        ),
        ("limit", number("headLimit")),
    ];
    let arguments = present_fields(fields);
    Card {
        tool: "grep",
        arguments: if arguments.is_empty() {
            view.args.clone().into()
        } else {
            arguments.into()
        },
        content: match view.outcome {
            CallOutcome::Failed(error) => text::error(error),
            CallOutcome::Done(value) => matches(view, value),
        },
        details: Json::Null,
        is_error: view.failed(),
    }
}

fn present_fields<const N: usize>(fields: [(&str, Option<Json>); N]) -> Map<String, Json> {
    fields
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

fn matches(view: &ActivityView<'_>, value: Option<&Json>) -> String {
    let lines = match value {
        Some(value) => match_lines(view, value),
        None => Vec::new(),
    };
    let body = if lines.is_empty() {
        text::to_text(value)
    } else {
        text::join_lines(&lines, "matches")
    };
    text::truncate_lines(&body, TRANSCRIPT, None)
}

fn match_count(count: f64) -> String {
    text::with_unit(count, "match", "matches")
}

/// Formats one match as a line.
type FormatMatch = fn(&ActivityView<'_>, &Json) -> Option<String>;

/// Returns one line per match, for each of the possible forms of the result.
fn match_lines(view: &ActivityView<'_>, value: &Json) -> Vec<String> {
    let editor = value
        .get("activeEditorResult")
        .filter(|editor| !editor.is_null());
    let folders = value["workspaceResults"].as_object();
    let mut parts: Vec<&Json> = editor.into_iter().collect();
    parts.extend(folders.into_iter().flat_map(Map::values));
    if parts.is_empty() {
        parts.push(value);
    }
    let mut lines = Vec::new();
    let mut nothing = false;
    for part in parts {
        let output = &part["output"];
        let items = |key: &str| {
            output[key]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let kind = part["type"].as_str();
        let listed: Option<(&[Json], FormatMatch)> = match kind {
            Some("content") => Some((items("matches"), match_line)),
            Some("files") => Some((items("files"), |view, file| {
                file.as_str().map(|file| file_name(view, file))
            })),
            Some("count") => Some((items("counts"), |view, count| Some(count_line(view, count)))),
            _ => None,
        };
        if let Some((items, show)) = listed {
            nothing |= items.is_empty() && text::number(output.get("totalMatches")) == Some(0.0);
            lines.extend(items.iter().filter_map(|item| show(view, item)));
            continue;
        }
        match text::number(part.get("totalMatches")) {
            Some(0.0) => nothing = true,
            Some(count) => lines.push(match_count(count)),
            None => lines.push(text::to_text(Some(part))),
        }
    }
    if lines.is_empty() {
        match text::number(value.get("totalMatches")) {
            Some(count) if count != 0.0 => return vec![match_count(count)],
            Some(_) => nothing = true,
            None => {}
        }
        return if nothing {
            vec!["(no matches)".into()]
        } else {
            Vec::new()
        };
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn file_name(view: &ActivityView<'_>, file: &str) -> String {
    display_path(view, file.strip_suffix(':').unwrap_or(file))
}

/// Returns the display form of the path of a match.
fn display_path(view: &ActivityView<'_>, path: &str) -> String {
    if path.starts_with('/') {
        view.path(path)
    } else {
        path.to_owned()
    }
}

fn match_line(view: &ActivityView<'_>, match_lines: &Json) -> Option<String> {
    let file = file_name(view, match_lines["file"].as_str().unwrap_or_default());
    let number = text::number(match_lines.get("lineNumber"));
    let line = match_lines["line"].as_str().unwrap_or_default();
    if number.is_none() && line.trim().is_empty() {
        return (!file.is_empty()).then_some(file);
    }
    let at = match number {
        Some(number) => format!("{file}:{}", text::format_number(number)),
        None => file,
    };
    Some(match line {
        "" => at,
        line => format!("{at}: {line}"),
    })
}

fn count_line(view: &ActivityView<'_>, count: &Json) -> String {
    let file = display_path(view, count["file"].as_str().unwrap_or_default());
    let number = text::number(count.get("count")).unwrap_or(0.0);
    format!("{file}: {}", text::format_number(number))
        .trim()
        .to_owned()
}

fn glob_pattern<'a>(view: &ActivityView<'a>) -> &'a str {
    text::string(view.args.get("globPattern"))
        .or_else(|| text::string(view.args.get("pattern")))
        .unwrap_or("*")
}

fn glob_folder(view: &ActivityView<'_>) -> Option<String> {
    text::string(view.args.get("targetDirectory"))
        .or_else(|| text::string(view.args.get("path")))
        .filter(|path| !path.is_empty())
        .map(|path| view.path(path))
}

pub(super) fn glob(view: &ActivityView<'_>) -> String {
    let pattern = glob_pattern(view);
    let header = match glob_folder(view) {
        Some(folder) => format!("$ glob {pattern} in {folder}"),
        None => format!("$ glob {pattern}"),
    };
    match view.outcome {
        CallOutcome::Failed(error) => text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => text::section(&header, &files(view, value)),
    }
}

pub(super) fn glob_card(view: &ActivityView<'_>) -> Card {
    let limit = ["limit", "headLimit"]
        .into_iter()
        .find_map(|key| text::number(view.args.get(key)));
    let arguments = present_fields([
        ("pattern", Some(glob_pattern(view).into())),
        ("path", glob_folder(view).map(Json::from)),
        ("limit", limit.map(text::json_number)),
    ]);
    Card {
        tool: "find",
        arguments: arguments.into(),
        content: match view.outcome {
            CallOutcome::Failed(error) => text::error(error),
            CallOutcome::Done(value) => files(view, value),
        },
        details: Json::Null,
        is_error: view.failed(),
    }
}

fn files(view: &ActivityView<'_>, value: Option<&Json>) -> String {
    let field = |key: &str| value.and_then(|value| value.get(key));
    let listed = field("files").and_then(Json::as_array);
    let files: Vec<String> = listed
        .into_iter()
        .flatten()
        .filter_map(|file| file.as_str().map(|file| display_path(view, file)))
        .collect();
    if !files.is_empty() {
        return text::truncate_lines(&text::join_lines(&files, "files"), TRANSCRIPT, None);
    }
    let none = |key| text::number(field(key)) == Some(0.0);
    // An empty list means the same as a count of zero.
    if none("totalMatches") || none("totalFiles") || listed.is_some_and(Vec::is_empty) {
        "No files found matching pattern".into()
    } else {
        text::to_text(value)
    }
}
