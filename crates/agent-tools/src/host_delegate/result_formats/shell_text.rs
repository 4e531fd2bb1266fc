//! Output of commands, with their exit code as pi's `bash` reports it.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::{Operation, ToolText, is_declined};

/// Returns the output of a command that ended with a code.
fn exited(output: &str, code: i32) -> ToolText {
    if code == 0 {
        return ToolText::done(output);
    }
    ToolText::failed(format!(
        "{}\n\nCommand exited with code {code}",
        output.trim_end_matches('\n')
    ))
}

/// Returns the output of a command that took too long.
fn timed_out(output: &str, seconds: &str) -> ToolText {
    ToolText::failed(format!(
        "{}\n\nCommand timed out after {seconds} seconds",
        output.trim_end_matches('\n')
    ))
}

fn matched<'t>(pattern: &LazyLock<Option<Regex>>, text: &'t str) -> Option<Captures<'t>> {
    pattern.as_ref().and_then(|pattern| pattern.captures(text))
}

fn code(parts: &Captures<'_>, at: usize) -> Option<i32> {
    parts.get(at)?.as_str().parse().ok()
}

/// OpenCode: the output, and a note if the command was ended. It does not report exit codes.
pub(super) fn opencode(given: ToolText) -> ToolText {
    static NOTE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)^(.*?)\n*<(?:shell|bash)_metadata>\n(.*)\n</(?:shell|bash)_metadata>\s*$")
            .ok()
    });
    static MILLISECONDS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"timeout (\d+) ?ms").ok());
    if is_declined(&given.text) {
        return ToolText::failed(given.text);
    }
    let Some(parts) = matched(&NOTE, &given.text) else {
        return given;
    };
    let output = match &parts[1] {
        "(no output)" => "",
        output => output,
    };
    let note = &parts[2];
    if let Some(limit) = matched(&MILLISECONDS, note) {
        let seconds = limit[1].parse::<f64>().unwrap_or_default() / 1000.0;
        return timed_out(output, &seconds.to_string());
    }
    if note.to_lowercase().contains("abort") {
        return ToolText::failed(format!("{output}\n\nCommand aborted"));
    }
    ToolText::done(output)
}

/// Claude Code: `Exit code 3` before the output of a failure.
pub(super) fn claude(given: ToolText) -> ToolText {
    static FAILURE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?s)^Exit code (-?\d+)\n?(.*)$").ok());
    static TIMEOUT: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?s)^(.*?)\n?Command timed out after ([\d.]+)(m?)").ok());
    if given.text == "(Bash completed with no output)" {
        return exited("", 0);
    }
    if let (true, Some(parts)) = (given.failed, matched(&FAILURE, &given.text)) {
        if let Some(limit) = matched(&TIMEOUT, &parts[2]) {
            let unit = if limit[3].is_empty() { 1.0 } else { 60.0 };
            let seconds = limit[2].parse::<f64>().unwrap_or_default() * unit;
            return timed_out(&limit[1], &seconds.to_string());
        }
        return exited(&parts[2], code(&parts, 1).unwrap_or(1));
    }
    given
}

/// Codex: a header with the exit code before the output, or JSON with both.
pub(super) fn codex(given: ToolText) -> ToolText {
    static HEADER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let header = r"(?s)^(?:[^\n]*\n)*?(?:Process exited with code|Exit code:) (-?\d+)\n(?:[^\n]*\n)*?Output:\n(.*)$";
        Regex::new(header).ok()
    });
    if let Ok(parsed) = serde_json::from_str::<serde_json::Value>(&given.text)
        && let (Some(output), Some(code)) = (
            parsed["output"].as_str(),
            parsed["metadata"]["exit_code"].as_i64(),
        )
    {
        return exited(output, i32::try_from(code).unwrap_or(1));
    }
    if let Some(parts) = matched(&HEADER, &given.text) {
        return exited(&parts[2], code(&parts, 1).unwrap_or(1));
    }
    // Without a header the command was not executed.
    ToolText::failed(given.text)
}

/// Returns the session of a command of Codex that is still running.
pub(super) fn running_session(text: &str) -> Option<&str> {
    static RUNNING: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^(?:[^\n]*\n){0,3}?Process running with session ID (\d+)\n").ok()
    });
    Some(matched(&RUNNING, text)?.get(1)?.as_str())
}

/// Returns the output of one result of Codex, without its header.
pub(super) fn output_so_far(text: &str) -> &str {
    text.split_once("\nOutput:\n")
        .map_or("", |(_, output)| output)
}

/// Qwen Code: a list of fields.
pub(super) fn qwen(given: ToolText) -> ToolText {
    static FIELDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)\nOutput: (.*?)\nError: (.*?)\nExit Code: (-?\d+|\(none\))\n").ok()
    });
    let Some(parts) = matched(&FIELDS, &given.text) else {
        let is_timeout = given.text.contains("timed out");
        if is_timeout {
            return timed_out(&given.text, "0");
        }
        return ToolText {
            failed: given.failed || is_declined(&given.text),
            ..given
        };
    };
    let output = match &parts[1] {
        "(empty)" => "",
        output => output,
    };
    match code(&parts, 3) {
        Some(code) => exited(output, code),
        None => ToolText::failed(format!("{output}\n\nCommand aborted")),
    }
}

/// Continue: the output; of a failure only what the command wrote to its error stream.
pub(super) fn continued(given: ToolText) -> ToolText {
    static FAILURE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)^Error executing tool Bash: Error \(exit code (-?\d+)\): (.*)$").ok()
    });
    static TIMEOUT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)^(.*?)\n*\[Command timed out after ([\d.]+) seconds[^\]]*\]\s*$").ok()
    });
    if let Some(parts) = matched(&FAILURE, &given.text) {
        return exited(&parts[2], code(&parts, 1).unwrap_or(1));
    }
    if let Some(parts) = matched(&TIMEOUT, &given.text) {
        return timed_out(&parts[1], &parts[2]);
    }
    let failed = given.text.starts_with("Error executing tool") || is_declined(&given.text);
    ToolText {
        failed: given.failed || failed,
        ..given
    }
}

/// Cline: JSON with the output, which starts with the exit code of a failure.
pub(super) fn cline(given: ToolText) -> ToolText {
    static FAILURE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?s)^\[Command exited with code (-?\d+)\]\n(.*)$").ok());
    let parsed = serde_json::from_str::<serde_json::Value>(&given.text).unwrap_or_default();
    let entry = if parsed.is_array() {
        &parsed[0]
    } else {
        &parsed
    };
    let Some(output) = entry["result"].as_str() else {
        return ToolText {
            failed: given.failed || is_declined(&given.text),
            ..given
        };
    };
    if let Some(parts) = matched(&FAILURE, output) {
        let text = parts[2].replace("\n\n[stderr]\n", "\n");
        return exited(&text, code(&parts, 1).unwrap_or(1));
    }
    match (entry["success"].as_bool(), entry["error"].as_str()) {
        (Some(false), Some(error)) => ToolText::failed(error),
        _ => exited(output, 0),
    }
}

/// Zed: the output in a code block, after a sentence if the command failed.
pub(super) fn zed(given: ToolText) -> ToolText {
    static FAILURE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"^Command "?.*"? failed with exit code (-?\d+)"#).ok());
    let block = given.text.split_once("```\n");
    let block = block.and_then(|(_, rest)| rest.rsplit_once("\n```"));
    let output = block.map(|(output, _)| output);
    if let Some(parts) = matched(&FAILURE, &given.text) {
        return exited(output.unwrap_or_default(), code(&parts, 1).unwrap_or(1));
    }
    match output {
        Some(output) => ToolText {
            text: output.to_owned(),
            ..given
        },
        None if given.text.starts_with("Command executed successfully") => exited("", 0),
        None => given,
    }
}

/// An unknown shell: an exit code in its first or last line counts.
pub(super) fn any(given: ToolText) -> ToolText {
    static FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?is)^\[?(?:command |process )?(?:exited with |exit )(?:code|status):? (-?\d+)\]?\.?\n?(.*)$").ok()
    });
    static LAST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?is)^(.*?)\n*\[?(?:command |process )?(?:exited with |exit )(?:code|status):? (-?\d+)\]?\.?\s*$").ok()
    });
    if is_declined(&given.text) {
        return ToolText::failed(given.text);
    }
    if let Some(parts) = matched(&FIRST, &given.text)
        && let Some(code) = code(&parts, 1)
    {
        return exited(&parts[2], code);
    }
    if let Some(parts) = matched(&LAST, &given.text)
        && let Some(code) = code(&parts, 2)
    {
        return exited(&parts[1], code);
    }
    given
}

/// Converts the output of a command that does the work of a file tool.
pub(super) fn of_recipe(operation: Operation, given: ToolText) -> ToolText {
    let searches = matches!(operation, Operation::Find | Operation::Search);
    let nothing = given.failed
        && given
            .text
            .trim_end()
            .ends_with("Command exited with code 1");
    if searches && nothing && given.text.trim() == "Command exited with code 1" {
        return ToolText::done("No matches found");
    }
    if given.failed {
        return given;
    }
    match operation {
        Operation::Search => super::listing_text::grep_lines(given),
        Operation::Find => super::listing_text::names(given),
        Operation::List if given.text.trim().is_empty() => ToolText::done("(empty directory)"),
        Operation::Read if is_truncated(&given.text) => ToolText::done(format!(
            "{}\n\n[Showing lines 1-1 of 2. The output was truncated.]",
            given.text
        )),
        _ => given,
    }
}

/// Returns whether Codex left out the middle of an output.
fn is_truncated(text: &str) -> bool {
    text.contains(" tokens truncated…") || text.contains(" chars truncated…")
}
