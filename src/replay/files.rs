//! Files: read, ls, edit, write.

use serde_json::{Map, Value as Json, json};

use super::activity::Outcome;
use super::neutral::{self, Details};
use super::text::{self, Bounds, TRANSCRIPT};
use super::{Card, View, paths, pi_diff, preview};

/// What a transcript shows of a file that was read.
const READ: Bounds = Bounds {
    chars: 4_000,
    lines: 12,
};
/// What a card shows of it.
const READ_CARD: Bounds = Bounds {
    chars: 4_000,
    lines: 20,
};

/// What a read call gave.
enum Content {
    /// What Cursor saw.
    Seen(String),
    /// What the file holds now.
    Local(String),
}

fn content(view: &View<'_>) -> Content {
    let seen = text::string(view.value("content")).filter(|seen| !seen.is_empty());
    if let Some(seen) = seen {
        return Content::Seen(seen.to_owned());
    }
    let path = text::string(view.args.get("path")).filter(|path| !path.is_empty());
    match path.and_then(|path| preview::preview(path, &view.root, READ.chars)) {
        Some(now) => Content::Local(format!("{}\n{}", preview::NOTICE, (view.scrub)(&now))),
        None => Content::Seen(text::any(view.outcome.value())),
    }
}

fn total_lines(view: &View<'_>) -> Option<usize> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    text::number(view.value("totalLines")).map(|total| total.max(0.0) as usize)
}

pub(super) fn read(view: &View<'_>) -> String {
    let path = text::string(view.args.get("path")).filter(|path| !path.is_empty());
    let header = format!(
        "read {}",
        path.map_or("unknown".into(), |path| view.path(path))
    );
    match view.outcome {
        Outcome::Failed(error) => text::section(&header, &text::error(error)),
        Outcome::Done(_) => {
            let (Content::Seen(content) | Content::Local(content)) = content(view);
            text::section(&header, &text::bounded(&content, READ, total_lines(view)))
        }
    }
}

pub(super) fn read_card(view: &View<'_>) -> Card {
    let mut arguments = with_path(view, view.args);
    let (content, details) = match view.outcome {
        Outcome::Failed(error) => (text::error(error), Json::Null),
        Outcome::Done(_) => match content(view) {
            Content::Seen(content) => (read_shown(view, &content), Json::Null),
            Content::Local(content) => {
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
        verdict: view.verdict(),
    }
}

/// The first lines, and how to go on where more are known to be there.
fn read_shown(view: &View<'_>, content: &str) -> String {
    let Some(total) = total_lines(view) else {
        return text::bounded(content, READ_CARD, None);
    };
    let lines: Vec<&str> = content.split('\n').collect();
    let visible = lines[..lines.len().min(READ_CARD.lines)].join("\n");
    if total <= READ_CARD.lines && lines.len() <= READ_CARD.lines {
        return visible;
    }
    if text::units(&visible) > READ_CARD.chars {
        return text::bounded(content, READ_CARD, Some(total));
    }
    let asked = |key: &str| view.args.get(key).and_then(Json::as_i64);
    let next = match (asked("offset"), asked("limit")) {
        (None, None) => READ_CARD.lines + 1,
        (from, _) => {
            // Counted from where the part begins; one from the end names no line to go on at.
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

/// Arguments whose path is shown as paths are.
fn with_path(view: &View<'_>, args: &Map<String, Json>) -> Map<String, Json> {
    let mut args = args.clone();
    if let Some(path) = args.get_mut("path")
        && let Some(told) = path.as_str().filter(|told| !told.is_empty())
    {
        *path = view.path(told).into();
    }
    args
}

pub(super) fn ls(view: &View<'_>) -> String {
    let header = format!("ls {}", view.path_argument().unwrap_or_else(|| ".".into()));
    match view.outcome {
        Outcome::Failed(error) => text::section(&header, &text::error(error)),
        Outcome::Done(value) => text::section(&header, &tree(value)),
    }
}

pub(super) fn ls_card(view: &View<'_>) -> Card {
    Card {
        tool: "ls",
        arguments: with_path(view, view.args).into(),
        content: match view.outcome {
            Outcome::Failed(error) => text::error(error),
            Outcome::Done(value) => tree(value).trim().to_owned(),
        },
        details: Json::Null,
        verdict: view.verdict(),
    }
}

/// A folder's tree, indented by depth.
fn tree(value: Option<&Json>) -> String {
    let root = value
        .and_then(|value| value.get("directoryTreeRoot"))
        .filter(|root| !root.is_null())
        .or(value);
    let mut lines = Vec::new();
    if let Some(root) = root {
        grow(root, 0, &mut lines);
    }
    let body = match lines.is_empty() {
        true => text::any(value),
        false => lines.join("\n"),
    };
    text::bounded(&body, TRANSCRIPT, None)
}

/// A listing as the host's own tool gives it: a path a line, folders with a slash, sorted as
/// people sort. `None` if no tree was recorded.
pub(super) fn listing(view: &View<'_>) -> Option<String> {
    let mut paths = Vec::new();
    let root = view.value("directoryTreeRoot")?;
    for child in root["children"].as_array()? {
        spread(child, "", &mut paths);
    }
    paths.sort_by_key(|path: &String| path.to_lowercase());
    Some(match paths.is_empty() {
        true => "(empty directory)".into(),
        false => text::bounded(&paths.join("\n"), TRANSCRIPT, None),
    })
}

fn spread(node: &Json, folder: &str, paths: &mut Vec<String>) {
    let path = format!("{folder}{}", node["name"].as_str().unwrap_or_default());
    for child in node["children"].as_array().into_iter().flatten() {
        spread(child, &path, paths);
    }
    paths.push(path);
}

fn grow(node: &Json, depth: usize, lines: &mut Vec<String>) {
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
        grow(child, depth + 1, lines);
    }
}

fn first<'a>(fields: &'a Map<String, Json>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| text::string(fields.get(*key)))
}

fn edit_path<'a>(view: &View<'a>) -> Option<&'a str> {
    first(view.args, &["path", "filePath", "file_path"]).filter(|path| !path.trim().is_empty())
}

/// The replacements of an edit, if all of them were recorded whole.
fn replacements(view: &View<'_>) -> Option<Vec<Json>> {
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

/// A notebook's cells are no lines of text: such edits do not fit a text edit's card.
fn is_notebook(view: &View<'_>) -> bool {
    let name: String = view
        .raw
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

fn diff(view: &View<'_>) -> Option<String> {
    let diff = pi_diff::FIELDS
        .iter()
        .find_map(|key| text::string(view.value(key)).filter(|diff| !diff.is_empty()))?;
    Some(paths::diff(diff, &view.root))
}

pub(super) fn edit(view: &View<'_>, path: Option<String>) -> String {
    let header = format!("edit {}", path.as_deref().unwrap_or("unknown"));
    let value = match view.outcome {
        Outcome::Failed(error) => return text::section(&header, &text::error(error)),
        Outcome::Done(value) => value,
    };
    let stats: Vec<String> = [("+", "linesAdded"), ("-", "linesRemoved")]
        .into_iter()
        .filter_map(|(sign, key)| {
            text::number(view.value(key)).map(|lines| format!("{sign}{}", text::shown(lines)))
        })
        .collect();
    let diff = diff(view).map(|diff| text::bounded(&diff, TRANSCRIPT, None));
    let parts: Vec<String> = [Some(stats.join(" ")), diff]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    match parts.is_empty() {
        true => text::section(&header, &text::any(value)),
        false => text::section(&header, &parts.join("\n\n")),
    }
}

pub(super) fn edit_card(view: &View<'_>) -> Card {
    let path = edit_path(view).map(|path| view.path(path));
    let diff = diff(view);
    let content = edit(view, path.clone());
    let mut details = edit_details(view);
    let replaced = replacements(view).filter(|_| !is_notebook(view));
    if let (Some(path), Some(edits)) = (&path, replaced) {
        let told = text::number(view.value("firstChangedLine")).map(text::json_number);
        let found = diff.as_deref().and_then(pi_diff::first_changed_line);
        details.put("firstChangedLine", told.or(found.map(Json::from)));
        return Card {
            tool: "edit",
            arguments: json!({"path": path, "edits": edits}),
            content,
            details: details.variant("nativeEdit"),
            verdict: view.verdict(),
        };
    }
    neutral_edit_card(view)
}

fn edit_details(view: &View<'_>) -> Details {
    let diff = diff(view);
    let mut details = Details::default();
    details.text("path", edit_path(view).map(|path| view.path(path)));
    details.text("diffString", diff.clone());
    details.text("diff", diff.as_deref().map(pi_diff::from_unified));
    details.number("linesAdded", view.value("linesAdded"));
    details.number("linesRemoved", view.value("linesRemoved"));
    details
}

/// For an edit of which only the outcome was recorded.
pub(super) fn neutral_edit_card(view: &View<'_>) -> Card {
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
            Some(format!("{done} {}", text::counted(lines, "line", "lines")))
        })
        .collect();
    let subject = path.as_deref().unwrap_or("replayed");
    let summary = match changed.is_empty() {
        true => subject.to_owned(),
        false => format!("{subject} {}", changed.join(", ")),
    };
    neutral::assemble(
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

pub(super) fn write(view: &View<'_>) -> String {
    let path = view.path_argument();
    let header = format!("write {}", path.as_deref().unwrap_or("unknown"));
    let value = match view.outcome {
        Outcome::Failed(error) => return text::section(&header, &text::error(error)),
        Outcome::Done(value) => value,
    };
    let number = |key| text::number(view.value(key)).map(text::shown);
    let written =
        write_content(view.args).or_else(|| text::string(view.value("fileContentAfterWrite")));
    let parts: Vec<String> = [
        number("linesCreated").map(|lines| format!("Created {lines} lines")),
        number("fileSize").map(|size| format!("File size: {size} bytes")),
        written
            .filter(|written| !written.is_empty())
            .map(|written| text::bounded(written, TRANSCRIPT, None)),
    ]
    .into_iter()
    .flatten()
    .collect();
    match parts.is_empty() {
        true => text::section(&header, &text::any(value)),
        false => text::section(&header, &parts.join("\n\n")),
    }
}

pub(super) fn write_card(view: &View<'_>) -> Card {
    let path = text::string(view.args.get("path")).map(|path| view.path(path));
    let transcript = write(view);
    let content = transcript.trim_end();
    let mut arguments = with_path(view, view.args);
    let mut details = Details::default();
    details.text("path", path.clone());
    let after = text::string(view.value("fileContentAfterWrite")).map(str::to_owned);
    details.text("fileContentAfterWrite", after);
    let Some(recorded) = write_content(view.args) else {
        let done = path.clone().unwrap_or_else(|| "wrote file".into());
        let subject = path.unwrap_or_else(|| "file".into());
        return neutral::assemble(view, arguments, Some(subject), Some(done), content, details);
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
        verdict: view.verdict(),
    }
}

pub(super) fn delete(view: &View<'_>) -> String {
    let path = view.path_argument();
    let header = format!("delete {}", path.as_deref().unwrap_or("unknown"));
    match view.outcome {
        Outcome::Failed(error) => text::section(&header, &text::error(error)),
        Outcome::Done(value) => match text::number(view.value("fileSize")) {
            Some(size) => text::section(&header, &format!("Deleted {} bytes", text::shown(size))),
            None => text::section(&header, &text::any(value)),
        },
    }
}
