//! Reads the results of known hosts' tools: each is converted to the text that pi's tool would
//! return, which [`super::translate_result`] reads. Pure.
//!
//! Clients of the chat API have no field for a failure, so failures are recognised by their text.

mod file_text;
mod listing_text;
mod shell_text;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value as Json;

use super::tool_shapes::Operation;
use crate::bridge::HostResult;
use crate::bridge::content::Content;

/// How a tool's result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResultFormat {
    Pi,
    Plain,
    PlainRead,
    Sentence,
    FileNames,
    GrepLines,
    OpencodeShell,
    OpencodeRead,
    OpencodeEntries,
    OpencodeList,
    OpencodeGrep,
    ClaudeShell,
    ClaudeRead,
    ClaudeList,
    CodexExec,
    CodexShell,
    CodexPatch,
    QwenShell,
    QwenRead,
    QwenList,
    ContinueShell,
    ContinueRead,
    ContinueList,
    ClineShell,
    ClineRead,
    ClineSentence,
    ZedShell,
    ZedList,
    ZedNames,
    AnyShell,
    AnyRead,
    AnyList,
    AnySentence,
}

/// The lines of a file that a request asked for, if the host's tool cannot be asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    /// The first line, from 1; negative from the end.
    pub(super) offset: i32,
    pub(super) limit: Option<u32>,
}

/// How the result of a call is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResultReader {
    pub(super) format: ResultFormat,
    /// What a success looks like.
    pub(super) success: Option<String>,
    /// The operation that a command of the host's shell does.
    pub(super) recipe: Option<Operation>,
    pub(super) slice: Option<Slice>,
}

/// A text, and whether it reports a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToolText {
    text: String,
    failed: bool,
}

impl ToolText {
    fn done(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            failed: false,
        }
    }

    fn failed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            failed: true,
        }
    }
}

impl ResultReader {
    /// Returns the result as pi's tool would return it. Images are kept as they are.
    pub(super) fn read(&self, result: HostResult) -> HostResult {
        let unchanged =
            self.format == ResultFormat::Pi && self.recipe.is_none() && self.slice.is_none();
        let is_text = |part: &Content| matches!(part, Content::Text(_));
        if unchanged || !result.content.iter().all(is_text) {
            return result;
        }
        let texts = result.content.iter().filter_map(|part| match part {
            Content::Text(text) => Some(text.as_str()),
            Content::Image { .. } => None,
        });
        let text = ToolText {
            text: texts.collect::<Vec<_>>().join("\n"),
            failed: result.is_error,
        };
        let mut text = self.convert(text);
        if let Some(operation) = self.recipe {
            text = shell_text::of_recipe(operation, text);
        }
        if let (Some(slice), false) = (self.slice, text.failed) {
            text.text = file_text::cut(&text.text, slice);
        }
        HostResult {
            content: vec![Content::Text(text.text)],
            is_error: text.failed,
            ..result
        }
    }

    /// Returns whether the host refers to an earlier result instead of reading the file again.
    pub(super) fn refers_to_an_earlier_read(&self, result: &HostResult) -> bool {
        let Some(Content::Text(text)) = result.content.first() else {
            return false;
        };
        matches!(
            self.format,
            ResultFormat::ClaudeRead | ResultFormat::QwenRead
        ) && file_text::is_unchanged_notice(text)
    }

    fn convert(&self, given: ToolText) -> ToolText {
        use ResultFormat as Format;
        match self.format {
            Format::Pi => given,
            Format::Plain => failure_by_start(given),
            Format::PlainRead => failure_by_start(given),
            Format::Sentence | Format::CodexPatch => self.sentence(given),
            Format::AnySentence => failure_by_start(given),
            Format::ClineSentence => self.sentence(cline(given)),
            Format::FileNames => listing_text::names(failure_by_start(given)),
            Format::GrepLines => listing_text::grep_lines(failure_by_start(given)),
            Format::OpencodeGrep => listing_text::opencode_grep(failure_by_start(given)),
            Format::OpencodeEntries => listing_text::opencode_entries(given),
            Format::OpencodeList | Format::ClaudeList => {
                listing_text::tree(failure_by_start(given))
            }
            Format::QwenList | Format::ContinueList | Format::ZedList | Format::AnyList => {
                listing_text::folder(failure_by_start(given))
            }
            Format::ZedNames => listing_text::zed_names(failure_by_start(given)),
            Format::OpencodeRead => file_text::opencode(given),
            Format::ClaudeRead => file_text::claude(given),
            Format::QwenRead => file_text::qwen(failure_by_start(given)),
            Format::ContinueRead => file_text::continued(failure_by_start(given)),
            Format::ClineRead => file_text::cline(cline(given)),
            Format::AnyRead => file_text::any(failure_by_start(given)),
            Format::OpencodeShell => shell_text::opencode(given),
            Format::ClaudeShell => shell_text::claude(given),
            Format::CodexExec | Format::CodexShell => shell_text::codex(given),
            Format::QwenShell => shell_text::qwen(given),
            Format::ContinueShell => shell_text::continued(given),
            Format::ClineShell => shell_text::cline(given),
            Format::ZedShell => shell_text::zed(given),
            Format::AnyShell => shell_text::any(given),
        }
    }

    /// Reads a result that is a sentence about a success or a failure.
    fn sentence(&self, given: ToolText) -> ToolText {
        let Some(success) = self.success.as_deref().and_then(|it| Regex::new(it).ok()) else {
            return failure_by_start(given);
        };
        let failed = given.failed || !success.is_match(&given.text);
        ToolText { failed, ..given }
    }
}

/// Returns the session of a command that is still running.
pub(super) fn running_session(result: &HostResult) -> Option<String> {
    let Content::Text(text) = result.content.first()? else {
        return None;
    };
    shell_text::running_session(text).map(str::to_owned)
}

/// Returns the output that a result of a running command contains.
pub(super) fn output_so_far(result: &HostResult) -> String {
    match result.content.first() {
        Some(Content::Text(text)) => shell_text::output_so_far(text).to_owned(),
        _ => String::new(),
    }
}

/// Returns a command's last result with the output that came before it.
pub(super) fn with_output_before(before: &str, mut result: HostResult) -> HostResult {
    const OUTPUT: &str = "\nOutput:\n";
    if let (false, Some(Content::Text(text))) = (before.is_empty(), result.content.first_mut())
        && let Some(at) = text.find(OUTPUT)
    {
        text.insert_str(at + OUTPUT.len(), before);
    }
    result
}

/// Marks a text as a failure if it starts as the errors of known programs do.
fn failure_by_start(given: ToolText) -> ToolText {
    const STARTS: [&str; 16] = [
        "Error:",
        "Error executing tool",
        "Error reading",
        "Error listing",
        "Error during",
        "Failed to",
        "File not found",
        "File does not exist",
        "File path must be",
        "Directory not found",
        "No such file",
        "Path not found",
        "Path does not exist",
        "ENOENT",
        "Permission denied",
        "<tool_use_error>",
    ];
    let text = given.text.trim_start();
    let starts = STARTS.iter().any(|start| text.starts_with(start));
    ToolText {
        failed: given.failed || starts || is_declined(text),
        ..given
    }
}

/// Returns whether a text says that the call was not executed.
fn is_declined(text: &str) -> bool {
    const STARTS: [&str; 8] = [
        "The user rejected permission",
        "The user doesn't want to",
        "The user denied",
        "[Request interrupted",
        "[Operation Cancelled]",
        "Blocked:",
        "Tool execution was denied",
        "Command rejected",
    ];
    let text = text.trim_start();
    STARTS.iter().any(|start| text.starts_with(start))
        || (text.starts_with("The ") && text.contains("tool was called with invalid arguments"))
}

/// Unwraps Cline's result: a list with one entry, or the entry itself.
fn cline(given: ToolText) -> ToolText {
    let Ok(parsed) = serde_json::from_str::<Json>(&given.text) else {
        return failure_by_start(given);
    };
    let entry = match &parsed {
        Json::Array(entries) => entries.first().unwrap_or(&Json::Null),
        other => other,
    };
    let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    match entry["success"].as_bool() {
        Some(true) => ToolText::done(field("result")),
        Some(false) => ToolText::failed(field("error")),
        None => given,
    }
}

#[cfg(test)]
mod tests;
