//! Texts of files: line numbers and notes are removed.

use std::sync::LazyLock;

use regex::Regex;

use super::{Slice, ToolText, failure_by_start};

/// The most lines that Claude Code shows without saying that there are more.
const CLAUDE_LINES: usize = 2_000;

/// The lines of a file that a tool showed.
struct ShownLines<'a> {
    first: usize,
    lines: Vec<String>,
    /// The note that says whether there is more.
    note: Option<&'a str>,
}

/// Reads numbered lines. A line without the next number belongs to the line before it, because
/// programs disagree about what ends a line.
fn numbered<'a>(text: &str, note: Option<&'a str>) -> Option<ShownLines<'a>> {
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^ *0*(\d+)(?:\t|→|: ?| \| ?|\| ?)(.*)$").ok());
    let mut first = None;
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let found = LINE.as_ref()?.captures(line).and_then(|parts| {
            let number: usize = parts.get(1)?.as_str().parse().ok()?;
            Some((number, parts.get(2)?.as_str()))
        });
        match (found, first) {
            (Some((number, rest)), None) => {
                first = Some(number);
                lines.push(rest.to_owned());
            }
            (Some((number, rest)), Some(first)) if number == first + lines.len() => {
                lines.push(rest.to_owned());
            }
            (_, Some(_)) => {
                let last = lines.last_mut()?;
                last.push('\n');
                last.push_str(line);
            }
            (None, None) => return None,
        }
    }
    Some(ShownLines {
        first: first?,
        lines,
        note,
    })
}

impl ShownLines<'_> {
    /// Returns the number of lines in the file, if the note states it.
    fn total(&self) -> Option<usize> {
        static TOTAL: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"(?:of|total) (\d+)").ok());
        let parts = TOTAL.as_ref()?.captures(self.note?)?;
        parts.get(1)?.as_str().parse().ok()
    }

    /// Returns the lines as pi's tool shows them. `ends` is what follows the last line of the file.
    fn canonical(&self, ends: &str) -> String {
        let last = self.first + self.lines.len() - 1;
        let text = self.lines.join("\n");
        let whole = self.note.is_none_or(|note| note.contains("End of file"));
        let cut_line = self
            .lines
            .iter()
            .any(|line| line.ends_with("... (line truncated to 2000 chars)"));
        if whole && !cut_line {
            return format!("{text}{ends}");
        }
        let total = self.total().unwrap_or(last).max(last);
        showing(&text, self.first, last, total)
    }
}

fn showing(text: &str, first: usize, last: usize, total: usize) -> String {
    format!(
        "{text}\n\n[Showing lines {first}-{last} of {total}. Use offset={} to continue.]",
        last + 1
    )
}

/// Returns the text between two lines.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let from = text.find(start)? + start.len();
    let rest = &text[from..];
    Some(&rest[..rest.rfind(end)?])
}

/// OpenCode: numbered lines between marks, with a note in parentheses at the end. It does not show
/// whether the file ends with a line break; nearly all do.
pub(super) fn opencode(given: ToolText) -> ToolText {
    let text = given.text.as_str();
    if text.contains("<type>directory</type>") {
        return ToolText::failed("EISDIR: the path is a directory");
    }
    let content =
        between(text, "<content>\n", "</content>").or_else(|| between(text, "<file>\n", "</file>"));
    let Some(content) = content else {
        return ToolText::failed(given.text);
    };
    let content = content.trim_end_matches('\n');
    let (body, note) = match content.rfind("\n(").map(|at| content.split_at(at)) {
        Some((body, note)) if note.ends_with(')') => (body.trim_end_matches('\n'), Some(note)),
        _ if content.starts_with('(') => ("", Some(content)),
        _ => (content, None),
    };
    match numbered(body, note) {
        Some(shown) => ToolText::done(shown.canonical("\n")),
        None => ToolText::done(body),
    }
}

/// Returns whether a text says, instead of the file, that an earlier result has it. It must not be taken
/// for the file: a later change would be based on it.
pub(super) fn is_unchanged_notice(text: &str) -> bool {
    static NOTICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let notice = r"(?i)^(?:<system-reminder>)?(?:\[?File (?:[^\n]{1,500} )?|Wasted call\b[^\n]{1,20}\bfile )unchanged since (?:your )?last read\b";
        Regex::new(notice).ok()
    });
    NOTICE
        .as_ref()
        .is_some_and(|it| it.is_match(text.trim_start()))
}

/// Claude Code: numbered lines; a last empty line stands for the line break at the end.
pub(super) fn claude(given: ToolText) -> ToolText {
    if is_unchanged_notice(&given.text) {
        return ToolText::failed(given.text);
    }
    let given = failure_by_start(given);
    if given.failed {
        let text = given.text.trim_start_matches("<tool_use_error>");
        let text = text.trim_end_matches("</tool_use_error>");
        // "File does not exist." is what the reader of results looks for under another name.
        let missing = text.starts_with("File does not exist");
        let text = if missing {
            format!("ENOENT: {text}")
        } else {
            text.to_owned()
        };
        return ToolText::failed(text);
    }
    let reminder = given.text.find("\n\n<system-reminder>");
    let text = &given.text[..reminder.unwrap_or(given.text.len())];
    if text.starts_with("<system-reminder>") {
        return ToolText::done(String::new()); // the file is empty
    }
    match numbered(text, None) {
        Some(shown) if shown.lines.len() >= CLAUDE_LINES => {
            let last = shown.first + shown.lines.len() - 1;
            ToolText::done(showing(
                &shown.lines.join("\n"),
                shown.first,
                last,
                last + 1,
            ))
        }
        Some(shown) => ToolText::done(shown.canonical("")),
        None => ToolText::done(text),
    }
}

/// Qwen Code: the text, after a header if it is a part.
pub(super) fn qwen(given: ToolText) -> ToolText {
    static HEADER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^Showing lines (\d+)-(\d+) of (\d+) total lines\.[^\n]*\n\n---\n\n").ok()
    });
    if given.failed || is_unchanged_notice(&given.text) {
        return ToolText::failed(given.text);
    }
    let found = HEADER.as_ref().and_then(|it| it.captures(&given.text));
    let Some(parts) = found else {
        return given;
    };
    let number = |at| parts.get(at).and_then(|part| part.as_str().parse().ok());
    let text = &given.text[parts.get(0).map_or(0, |header| header.end())..];
    match (number(1), number(2), number(3)) {
        (Some(1), Some(last), Some(total)) if last >= total => ToolText::done(text),
        (Some(first), Some(last), Some(total)) => ToolText::done(showing(text, first, last, total)),
        _ => ToolText::done(text),
    }
}

/// Continue: the text after a line that names the file.
pub(super) fn continued(given: ToolText) -> ToolText {
    match given.text.split_once('\n') {
        Some((header, text)) if !given.failed && header.starts_with("Content of ") => {
            ToolText::done(text)
        }
        _ => given,
    }
}

/// Cline: numbered lines without the line break at the end.
pub(super) fn cline(given: ToolText) -> ToolText {
    if given.failed || given.text.is_empty() {
        return given;
    }
    match numbered(&given.text, None) {
        Some(shown) => ToolText::done(shown.canonical("\n")),
        None => given,
    }
}

/// An unknown tool: numbered lines if every line has the next number, else the text itself.
pub(super) fn any(given: ToolText) -> ToolText {
    let shown = (!given.failed)
        .then(|| numbered(given.text.trim_end_matches('\n'), None))
        .flatten();
    match shown {
        Some(shown) if shown.lines.iter().all(|line| !line.contains('\n')) => {
            ToolText::done(shown.canonical("\n"))
        }
        _ => given,
    }
}

/// Returns the lines that a request asked for of a whole file.
pub(super) fn cut(text: &str, slice: Slice) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let start = usize::try_from(slice.offset.unsigned_abs()).unwrap_or(usize::MAX);
    let start = if slice.offset < 0 {
        lines.len().saturating_sub(start)
    } else {
        start.saturating_sub(1).min(lines.len())
    };
    let most = slice.limit.map_or(usize::MAX, |limit| limit as usize);
    let end = start.saturating_add(most).min(lines.len());
    let shown = lines[start..end].concat();
    if end == lines.len() {
        return shown;
    }
    showing(shown.trim_end_matches('\n'), start + 1, end, lines.len())
}
