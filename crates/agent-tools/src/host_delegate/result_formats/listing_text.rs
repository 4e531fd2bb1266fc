//! Names and matches: headers, bullets and marks are removed.

use std::sync::LazyLock;

use regex::Regex;

use super::ToolText;

const NO_FILES: &str = "No files found";
const NO_MATCHES: &str = "No matches found";
const EMPTY: &str = "(empty directory)";

/// Returns the text after a header line such as `Found 2 files:` and a rule.
fn without_header(text: &str) -> &str {
    let is_header = |line: &str| {
        let starts = ["Found ", "Search results ", "Listed ", "Files in "];
        starts.iter().any(|start| line.starts_with(start))
    };
    let Some((header, rest)) = text.split_once('\n') else {
        return if is_header(text) { "" } else { text };
    };
    if !is_header(header) {
        return text;
    }
    rest.strip_prefix("---\n").unwrap_or(rest)
}

/// Returns the note of a list that the tool cut, as pi writes it.
fn note(cut: bool) -> &'static str {
    if cut { "\n\n[limit reached]" } else { "" }
}

fn is_cut_note(line: &str) -> bool {
    let line = line.to_lowercase();
    line.starts_with(['(', '['])
        && (line.contains("truncated") || line.contains("more") || line.contains("limit"))
}

/// File names, one a line.
pub(super) fn names(given: ToolText) -> ToolText {
    if given.failed {
        return given;
    }
    if given.text.trim().is_empty() || given.text.starts_with("No files found") {
        return ToolText::done(NO_FILES);
    }
    let lines = without_header(&given.text).lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let cut = lines.iter().any(|line| is_cut_note(line));
    let kept: Vec<&str> = lines
        .into_iter()
        .filter(|line| !is_cut_note(line))
        .collect();
    ToolText::done(format!("{}{}", kept.join("\n"), note(cut)))
}

/// Matches as ripgrep writes them: `file:3:text`, context as `file-2-text`.
pub(super) fn grep_lines(given: ToolText) -> ToolText {
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(.+?)([:-])(\d+)([:-])(.*)$").ok());
    if given.failed {
        return given;
    }
    let text = given.text.trim_end();
    if text.is_empty() || text.starts_with("No matches found") || text.starts_with("No files found")
    {
        return ToolText::done(NO_MATCHES);
    }
    let mut cut = false;
    let mut lines = Vec::new();
    for line in without_header(text).lines().filter(|line| !line.is_empty()) {
        if is_cut_note(line) {
            cut = true;
            continue;
        }
        let parts = LINE.as_ref().and_then(|it| it.captures(line));
        lines.push(match parts {
            // pi's tool writes a space before the text.
            Some(parts) if parts[2] == parts[4] => format!(
                "{}{}{}{} {}",
                &parts[1], &parts[2], &parts[3], &parts[4], &parts[5]
            ),
            _ => line.to_owned(),
        });
    }
    ToolText::done(format!("{}{}", lines.join("\n"), note(cut)))
}

/// OpenCode: matches below the name of their file.
pub(super) fn opencode_grep(given: ToolText) -> ToolText {
    static MATCH: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^  Line (\d+): (.*)$").ok());
    if given.failed {
        return given;
    }
    if given.text.trim().is_empty() || given.text.starts_with("No files found") {
        return ToolText::done(NO_MATCHES);
    }
    let (mut file, mut cut) = ("", false);
    let mut lines = Vec::new();
    for line in given.text.lines() {
        if let Some(parts) = MATCH.as_ref().and_then(|it| it.captures(line)) {
            lines.push(format!("{file}:{}: {}", &parts[1], &parts[2]));
        } else if is_cut_note(line) {
            cut = true;
        } else if let Some(name) = line.strip_suffix(':') {
            file = name;
        }
    }
    ToolText::done(format!("{}{}", lines.join("\n"), note(cut)))
}

/// OpenCode's `read` of a folder: names between marks.
pub(super) fn opencode_entries(given: ToolText) -> ToolText {
    let entries = given.text.split_once("<entries>\n");
    let entries = entries.and_then(|(_, rest)| rest.split_once("</entries>"));
    let Some((entries, _)) = entries else {
        return ToolText::failed(if given.text.contains("<type>file</type>") {
            "ENOTDIR: the path is a file".to_owned()
        } else {
            given.text
        });
    };
    let lines = entries.lines().filter(|line| !line.is_empty());
    let (notes, names): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('('));
    if names.is_empty() {
        return ToolText::done(EMPTY);
    }
    let cut = notes.iter().any(|note| note.contains("Showing"));
    ToolText::done(format!("{}{}", names.join("\n"), note(cut)))
}

/// A tree whose first line is the folder: the entries with the smallest indent.
pub(super) fn tree(given: ToolText) -> ToolText {
    if given.failed {
        return given;
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let body = given
        .text
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("NOTE:"));
    let body: Vec<&str> = body.filter(|line| !line.trim().is_empty()).collect();
    let Some(smallest) = body.iter().map(|line| indent(line)).min() else {
        return ToolText::done(EMPTY);
    };
    let entries = body.iter().filter(|line| indent(line) == smallest);
    let names = entries.map(|line| line.trim_start().trim_start_matches("- "));
    ToolText::done(names.collect::<Vec<_>>().join("\n"))
}

/// A folder's entries in the words of several programs: `[DIR] name`, `name (directory)`.
pub(super) fn folder(given: ToolText) -> ToolText {
    static SIZE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r" \((?:file|symlink)[^()]*\)$").ok());
    if given.failed {
        return given;
    }
    let text = given.text.trim_end();
    if text.ends_with(" is empty.") || text.is_empty() {
        return ToolText::done(EMPTY);
    }
    let mut is_folder = false;
    let mut names = Vec::new();
    for line in without_header(text).lines().filter(|line| !line.is_empty()) {
        // Zed lists folders and files below headings, with paths.
        match line {
            "# Folders:" => {
                is_folder = true;
                continue;
            }
            "# Files:" => {
                is_folder = false;
                continue;
            }
            _ => {}
        }
        let marked = line.strip_prefix("[DIR] ");
        let marked = marked.or_else(|| line.strip_suffix(" (directory)"));
        let name = marked.unwrap_or(line);
        let size = SIZE.as_ref().and_then(|it| it.find(name));
        let name = &name[..size.map_or(name.len(), |size| size.start())];
        let ends_so = name.ends_with('/');
        let name = name.trim_end_matches('/');
        let name = name.rsplit('/').next().unwrap_or(name);
        let slash = if is_folder || ends_so || marked.is_some() {
            "/"
        } else {
            ""
        };
        names.push(format!("{name}{slash}"));
    }
    if names.is_empty() {
        return ToolText::done(EMPTY);
    }
    ToolText::done(names.join("\n"))
}

/// Zed: paths that start with the name of the project's folder.
pub(super) fn zed_names(given: ToolText) -> ToolText {
    if given.failed {
        return given;
    }
    let text = given.text.trim_end();
    if text.starts_with("No matches") {
        return ToolText::done(NO_FILES);
    }
    let names = without_header(text).lines().filter(|line| !line.is_empty());
    let names = names.map(|line| line.split_once('/').map_or(line, |(_, inside)| inside));
    ToolText::done(names.collect::<Vec<_>>().join("\n"))
}
