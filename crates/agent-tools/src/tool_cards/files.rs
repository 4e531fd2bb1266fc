//! Files: read, ls, edit, write.

use serde_json::{Map, Value as Json, json};

use super::activity::CallOutcome;
use super::generic_card::FieldMap;
use super::text::{self, TRANSCRIPT, TextLimits};
use super::{ActivityView, Card, file_preview, generic_card, paths, pi_diff};

/// Limits of file content in a transcript.
const READ: TextLimits = TextLimits {
    chars: 4_000,
    lines: 12,
};
/// Limits of file content in a card.
const READ_CARD: TextLimits = TextLimits {
    chars: 4_000,
    lines: 20,
};

/// The content to display for a read call.
enum ReadContent {
    /// The content that Cursor recorded.
    Recorded(String),
    /// The current content of the file.
    LocalPreview(String),
}

fn content(view: &ActivityView<'_>) -> ReadContent {
    let recorded = text::string(view.value("content")).filter(|recorded| !recorded.is_empty());
    if let Some(recorded) = recorded {
        return ReadContent::Recorded(recorded.to_owned());
    }
    let path = text::string(view.args.get("path")).filter(|path| !path.is_empty());
    match path.and_then(|path| file_preview::preview(path, &view.root, READ.chars)) {
        Some(content) => ReadContent::LocalPreview(format!(
            "{}\n{}",
            file_preview::NOTICE,
            (view.redact)(&content)
        )),
        None => ReadContent::Recorded(text::to_text(view.outcome.value())),
    }
}

fn total_lines(view: &ActivityView<'_>) -> Option<usize> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    text::number(view.value("totalLines")).map(|total| total.max(0.0) as usize)
}

pub(super) fn read(view: &ActivityView<'_>) -> String {
    let path = text::string(view.args.get("path")).filter(|path| !path.is_empty());
    let header = format!(
        "read {}",
        path.map_or("unknown".into(), |path| view.path(path))
    );
    match view.outcome {
        CallOutcome::Failed(error) => text::section(&header, &text::error(error)),
        CallOutcome::Done(_) => {
            let (ReadContent::Recorded(content) | ReadContent::LocalPreview(content)) =
                content(view);
            text::section(
                &header,
                &text::truncate_lines(&content, READ, total_lines(view)),
            )
        }
    }
}

pub(super) fn read_card(view: &ActivityView<'_>) -> Card {
    let mut arguments = with_path(view, view.args);
    let (content, details) = match view.outcome {
        CallOutcome::Failed(error) => (text::error(error), Json::Null),
        CallOutcome::Done(_) => match content(view) {
            ReadContent::Recorded(content) => (read_shown(view, &content), Json::Null),
            ReadContent::LocalPreview(content) => {
                arguments.insert("localReadPreview".into(), true.into());
                (
                    read_shown(view, &content),
                    json!({"localReadPreview": true}),
                )
            }
        },
    };
    Card {
        tool: "read",
        arguments: arguments.into(),
        content,
        details,
        is_error: view.failed(),
    }
}

/// Returns the first lines and, if there are more, the offset to continue at.
fn read_shown(view: &ActivityView<'_>, content: &str) -> String {
    let Some(total) = total_lines(view) else {
        return text::truncate_lines(content, READ_CARD, None);
    };
    let lines: Vec<&str> = content.split('\n').collect();
    let visible = lines[..lines.len().min(READ_CARD.lines)].join("\n");
    if total <= READ_CARD.lines && lines.len() <= READ_CARD.lines {
        return visible;
    }
    if text::utf16_len(&visible) > READ_CARD.chars {
        return text::truncate_lines(content, READ_CARD, Some(total));
    }
    let argument = |key: &str| view.args.get(key).and_then(Json::as_i64);
    let next = match (argument("offset"), argument("limit")) {
        (None, None) => READ_CARD.lines + 1,
        (from, _) => {
            // The offset counts from where the part begins. A negative one counts from the end, so
            // the next line is unknown.
            let Ok(from) = usize::try_from(from.unwrap_or(1)) else {
                return visible;
            };
            from.max(1) + lines.len().min(READ_CARD.lines)
        }
    };
    let more = (total + 1).saturating_sub(next);
    if more == 0 {
        return visible;
    }
    format!("{visible}\n\n[{more} more lines in file. Use offset={next} to continue.]")
}

/// Returns the arguments with the path in display form.
fn with_path(view: &ActivityView<'_>, args: &Map<String, Json>) -> Map<String, Json> {
    let mut args = args.clone();
    if let Some(path) = args.get_mut("path")
        && let Some(reported) = path.as_str().filter(|reported| !reported.is_empty())
    {
        *path = view.path(reported).into();
    }
    args
}

pub(super) fn ls(view: &ActivityView<'_>) -> String {
    let header = format!("ls {}", view.path_argument().unwrap_or_else(|| ".".into()));
    match view.outcome {
        CallOutcome::Failed(error) => text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => text::section(&header, &tree(value)),
    }
}

pub(super) fn ls_card(view: &ActivityView<'_>) -> Card {
    Card {
        tool: "ls",
        arguments: with_path(view, view.args).into(),
        content: match view.outcome {
            CallOutcome::Failed(error) => text::error(error),
            CallOutcome::Done(value) => tree(value).trim().to_owned(),
        },
        details: Json::Null,
        is_error: view.failed(),
    }
}

/// Formats a directory tree, indented by depth.
fn tree(value: Option<&Json>) -> String {
    let root = value
        .and_then(|value| value.get("directoryTreeRoot"))
        .filter(|root| !root.is_null())
        .or(value);
    let mut lines = Vec::new();
    if let Some(root) = root {
        collect_tree(root, 0, &mut lines);
    }
    let body = if lines.is_empty() {
        text::to_text(value)
    } else {
        lines.join("\n")
    };
    text::truncate_lines(&body, TRANSCRIPT, None)
}

/// Formats a listing like the host's own tool: one path per line, directories with a slash, sorted
/// case-insensitively. Returns `None` if no tree was recorded.
pub(super) fn listing(view: &ActivityView<'_>) -> Option<String> {
    let mut paths = Vec::new();
    let root = view.value("directoryTreeRoot")?;
    for child in root["children"].as_array()? {
        collect_paths(child, "", &mut paths);
    }
    paths.sort_by_key(|path: &String| path.to_lowercase());
    Some(if paths.is_empty() {
        "(empty directory)".into()
    } else {
        text::truncate_lines(&paths.join("\n"), TRANSCRIPT, None)
    })
}

fn collect_paths(node: &Json, dir: &str, paths: &mut Vec<String>) {
    let path = format!("{dir}{}", node["name"].as_str().unwrap_or_default());
    for child in node["children"].as_array().into_iter().flatten() {
        collect_paths(child, &path, paths);
    }
    paths.push(path);
}

fn collect_tree(node: &Json, depth: usize, lines: &mut Vec<String>) {
    let name = ["name", "path", "relativePath"]
        .into_iter()
        .find_map(|key| node[key].as_str());
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        lines.push(format!("{}{name}", "  ".repeat(depth)));
    }
    let children = ["children", "entries", "files"]
        .into_iter()
        .find_map(|key| node[key].as_array());
    for child in children.into_iter().flatten() {
        collect_tree(child, depth + 1, lines);
    }
}

fn first<'a>(fields: &'a Map<String, Json>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| text::string(fields.get(*key)))
}

fn edit_path<'a>(view: &ActivityView<'a>) -> Option<&'a str> {
    first(view.args, &["path", "filePath", "file_path"]).filter(|path| !path.trim().is_empty())
}

/// Returns the replacements of an edit, if all of them were recorded completely.
fn replacements(view: &ActivityView<'_>) -> Option<Vec<Json>> {
    let read = |fields: &Map<String, Json>| {
        let old = [
            "oldText",
            "old_text",
            "oldString",
            "old_string",
            "oldStr",
            "old_str",
        ];
        let new = [
            "newText",
            "new_text",
            "newString",
            "new_string",
            "newStr",
            "new_str",
        ];
        let old = first(fields, &old).filter(|old| !old.is_empty())?;
        Some(json!({"oldText": old, "newText": first(fields, &new)?}))
    };
    let listed = view.args.get("edits").and_then(Json::as_array);
    let listed = listed.filter(|edits| !edits.is_empty()).and_then(|edits| {
        edits
            .iter()
            .map(|edit| read(edit.as_object()?))
            .collect::<Option<Vec<_>>>()
    });
    listed.or_else(|| Some(vec![read(view.args)?]))
}

/// Whether this edits notebook cells, which the card of a text edit cannot represent.
fn is_notebook(view: &ActivityView<'_>) -> bool {
    let name: String = view
        .reported_name
        .chars()
        .filter(|c| !c.is_whitespace() && !"_-".contains(*c))
        .collect::<String>()
        .to_lowercase();
    let cells = [
        "cellId",
        "cell_id",
        "cellIndex",
        "cell_index",
        "cellType",
        "cell_type",
        "notebookPath",
        "notebook_path",
    ];
    ["editnotebook", "notebookedit"].contains(&name.as_str())
        || cells.iter().any(|key| view.args.contains_key(*key))
        || (name != "strreplace"
            && edit_path(view).is_some_and(|path| path.to_lowercase().ends_with(".ipynb")))
}

fn diff(view: &ActivityView<'_>) -> Option<String> {
    let diff = pi_diff::FIELDS
        .iter()
        .find_map(|key| text::string(view.value(key)).filter(|diff| !diff.is_empty()))?;
    Some(paths::diff(diff, &view.root))
}

pub(super) fn edit(view: &ActivityView<'_>, path: Option<String>) -> String {
    let header = format!("edit {}", path.as_deref().unwrap_or("unknown"));
    let value = match view.outcome {
        CallOutcome::Failed(error) => return text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => value,
    };
    let stats: Vec<String> = [("+", "linesAdded"), ("-", "linesRemoved")]
        .into_iter()
        .filter_map(|(sign, key)| {
            text::number(view.value(key))
                .map(|lines| format!("{sign}{}", text::format_number(lines)))
        })
        .collect();
    let diff = diff(view).map(|diff| text::truncate_lines(&diff, TRANSCRIPT, None));
    let parts: Vec<String> = [Some(stats.join(" ")), diff]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    if parts.is_empty() {
        text::section(&header, &text::to_text(value))
    } else {
        text::section(&header, &parts.join("\n\n"))
    }
}

pub(super) fn edit_card(view: &ActivityView<'_>) -> Card {
    let path = edit_path(view).map(|path| view.path(path));
    let diff = diff(view);
    let content = edit(view, path.clone());
    let mut details = edit_details(view);
    let replaced = replacements(view).filter(|_| !is_notebook(view));
    if let (Some(path), Some(edits)) = (&path, replaced) {
        let reported = text::number(view.value("firstChangedLine")).map(text::json_number);
        let found = diff.as_deref().and_then(pi_diff::first_changed_line);
        details.put("firstChangedLine", reported.or(found.map(Json::from)));
        return Card {
            tool: "edit",
            arguments: json!({"path": path, "edits": edits}),
            content,
            details: details.variant("nativeEdit"),
            is_error: view.failed(),
        };
    }
    generic_edit_card(view)
}

fn edit_details(view: &ActivityView<'_>) -> FieldMap {
    let diff = diff(view);
    let mut details = FieldMap::default();
    details.text("path", edit_path(view).map(|path| view.path(path)));
    details.text("diffString", diff.clone());
    details.text("diff", diff.as_deref().map(pi_diff::from_unified));
    details.number("linesAdded", view.value("linesAdded"));
    details.number("linesRemoved", view.value("linesRemoved"));
    details
}

/// Returns the card of an edit of which only the outcome was recorded.
pub(super) fn generic_edit_card(view: &ActivityView<'_>) -> Card {
    let path = edit_path(view).map(|path| view.path(path));
    let content = edit(view, path.clone());
    let mut arguments = view.args.clone();
    if let Some(path) = &path {
        arguments.insert("path".into(), path.as_str().into());
    }
    let changed: Vec<String> = [("added", "linesAdded"), ("removed", "linesRemoved")]
        .into_iter()
        .filter_map(|(done, key)| {
            let lines = text::number(view.value(key)).filter(|lines| *lines != 0.0)?;
            Some(format!(
                "{done} {}",
                text::with_unit(lines, "line", "lines")
            ))
        })
        .collect();
    let subject = path.as_deref().unwrap_or("replayed");
    let summary = if changed.is_empty() {
        subject.to_owned()
    } else {
        format!("{subject} {}", changed.join(", "))
    };
    generic_card::assemble(
        view,
        arguments,
        path,
        Some(summary),
        content.trim_end(),
        edit_details(view),
    )
}

fn write_content(args: &Map<String, Json>) -> Option<&str> {
    first(args, &["content", "fileContent", "contents"])
}

pub(super) fn write(view: &ActivityView<'_>) -> String {
    let path = view.path_argument();
    let header = format!("write {}", path.as_deref().unwrap_or("unknown"));
    let value = match view.outcome {
        CallOutcome::Failed(error) => return text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => value,
    };
    let number = |key| text::number(view.value(key)).map(text::format_number);
    let written =
        write_content(view.args).or_else(|| text::string(view.value("fileContentAfterWrite")));
    let parts: Vec<String> = [
        number("linesCreated").map(|lines| format!("Created {lines} lines")),
        number("fileSize").map(|size| format!("File size: {size} bytes")),
        written
            .filter(|written| !written.is_empty())
            .map(|written| text::truncate_lines(written, TRANSCRIPT, None)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        text::section(&header, &text::to_text(value))
    } else {
        text::section(&header, &parts.join("\n\n"))
    }
}

pub(super) fn write_card(view: &ActivityView<'_>) -> Card {
    let path = text::string(view.args.get("path")).map(|path| view.path(path));
    let transcript = write(view);
    let content = transcript.trim_end();
    let mut arguments = with_path(view, view.args);
    let mut details = FieldMap::default();
    details.text("path", path.clone());
    let after = text::string(view.value("fileContentAfterWrite")).map(str::to_owned);
    details.text("fileContentAfterWrite", after);
    let Some(recorded) = write_content(view.args) else {
        let done = path.clone().unwrap_or_else(|| "wrote file".into());
        let subject = path.unwrap_or_else(|| "file".into());
        return generic_card::assemble(
            view,
            arguments,
            Some(subject),
            Some(done),
            content,
            details,
        );
    };
    details.number("linesCreated", view.value("linesCreated"));
    details.number("fileSize", view.value("fileSize"));
    details.text("expandedText", Some(content.to_owned()));
    arguments.insert("content".into(), recorded.into());
    Card {
        tool: "write",
        arguments: arguments.into(),
        content: content.to_owned(),
        details: details.variant("nativeWrite"),
        is_error: view.failed(),
    }
}

pub(super) fn delete(view: &ActivityView<'_>) -> String {
    let path = view.path_argument();
    let header = format!("delete {}", path.as_deref().unwrap_or("unknown"));
    match view.outcome {
        CallOutcome::Failed(error) => text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => match text::number(view.value("fileSize")) {
            Some(size) => text::section(
                &header,
                &format!("Deleted {} bytes", text::format_number(size)),
            ),
            None => text::section(&header, &text::to_text(value)),
        },
    }
}
