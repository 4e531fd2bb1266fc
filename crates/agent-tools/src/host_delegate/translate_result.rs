//! Converts the results of the host's tools into the typed results Cursor expects. Pure.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use super::parse_listing::{self, SearchTarget};
use super::paths::PathResolver;
use super::translate_request;
use crate::bridge::HostResult;
use crate::bridge::content::{self, Content};
use crate::rejection;
use crate::{ExecError, ExecReply, ExecRequest};
use cursor_proto::agent::v1::*;

/// The content of a host's result.
struct HostOutput {
    text: String,
    picture: Option<bytes::Bytes>,
    is_error: bool,
}

impl HostOutput {
    fn of(result: HostResult) -> Self {
        let mut text = Vec::new();
        let mut picture = None;
        for piece in result.content {
            match piece {
                Content::Text(part) => text.push(part),
                Content::Image { data, .. } => picture = picture.or(content::bytes(&data)),
            }
        }
        Self {
            text: text.join("\n"),
            picture,
            is_error: result.is_error,
        }
    }

    /// Returns the text of a success as `Ok`, of a failure as `Err`.
    fn split(self) -> Result<String, String> {
        if self.is_error {
            Err(self.text)
        } else {
            Ok(self.text)
        }
    }
}

/// Returns the result of a delete that the host's shell executed.
fn delete(args: DeleteArgs, given: HostOutput) -> delete_result::Result {
    let path = args.path;
    match given.split() {
        Ok(_) => delete_result::Result::Success(DeleteSuccess {
            deleted_file: path.clone(),
            path,
            ..DeleteSuccess::default()
        }),
        Err(error) if error.contains("No such file or directory") => {
            delete_result::Result::FileNotFound(DeleteFileNotFound { path })
        }
        Err(error) => delete_result::Result::Error(DeleteError { path, error }),
    }
}

/// Returns the replies to a request, in order.
pub(super) fn replies(
    request: ExecRequest,
    result: HostResult,
    resolver: &PathResolver,
    target: SearchTarget,
    took: Duration,
) -> Result<Vec<ExecReply>, ExecError> {
    let given = HostOutput::of(result);
    Ok(match request {
        ExecRequest::ReadArgs(args) => vec![ExecReply::ReadResult(ReadResult {
            result: Some(read(&args, given)),
        })],
        ExecRequest::LsArgs(args) => vec![ExecReply::LsResult(LsResult {
            result: Some(match given.split() {
                Ok(text) => ls_result::Result::Success(parse_listing::folder(&args, &text)),
                Err(error) => ls_result::Result::Error(LsError {
                    path: args.path,
                    error,
                }),
            }),
        })],
        ExecRequest::GrepArgs(args) => vec![ExecReply::GrepResult(GrepResult {
            result: Some(match given.split() {
                Ok(text) => grep_result::Result::Success(parse_listing::search(
                    args, &text, resolver, target,
                )),
                Err(error) => grep_result::Result::Error(GrepError { error }),
            }),
        })],
        ExecRequest::WriteArgs(args) => vec![ExecReply::WriteResult(WriteResult {
            result: Some(write(args, given)),
        })],
        ExecRequest::DeleteArgs(args) => vec![ExecReply::DeleteResult(DeleteResult {
            result: Some(delete(args, given)),
        })],
        ExecRequest::ShellArgs(args) => vec![ExecReply::ShellResult(shell(args, given, took))],
        ExecRequest::MiniSweAgentBashArgs(args) => {
            vec![ExecReply::MiniSweAgentBashResult(shell(args, given, took))]
        }
        ExecRequest::ShellStreamArgs(args) => stream(args, given, &resolver.workspace, took),
        ExecRequest::PiReadArgs(_) => vec![ExecReply::PiReadResult(PiReadExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_read_exec_result::Result::Success(PiReadExecSuccess {
                    output,
                    ..PiReadExecSuccess::default()
                }),
                Err(error) => pi_read_exec_result::Result::Error(PiReadExecError { error }),
            }),
        })],
        ExecRequest::PiBashArgs(_) => vec![ExecReply::PiBashResult(PiBashExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_bash_exec_result::Result::Success(PiBashExecSuccess {
                    output,
                    ..PiBashExecSuccess::default()
                }),
                Err(error) => pi_bash_exec_result::Result::Error(PiBashExecError {
                    error,
                    ..PiBashExecError::default()
                }),
            }),
        })],
        ExecRequest::PiGrepArgs(_) => vec![ExecReply::PiGrepResult(PiGrepExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_grep_exec_result::Result::Success(PiGrepExecSuccess {
                    output,
                    ..PiGrepExecSuccess::default()
                }),
                Err(error) => pi_grep_exec_result::Result::Error(PiGrepExecError { error }),
            }),
        })],
        ExecRequest::PiFindArgs(_) => vec![ExecReply::PiFindResult(PiFindExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_find_exec_result::Result::Success(PiFindExecSuccess {
                    output,
                    ..PiFindExecSuccess::default()
                }),
                Err(error) => pi_find_exec_result::Result::Error(PiFindExecError { error }),
            }),
        })],
        ExecRequest::PiLsArgs(_) => vec![ExecReply::PiLsResult(PiLsExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_ls_exec_result::Result::Success(PiLsExecSuccess {
                    output,
                    ..PiLsExecSuccess::default()
                }),
                Err(error) => pi_ls_exec_result::Result::Error(PiLsExecError { error }),
            }),
        })],
        ExecRequest::PiWriteArgs(_) => vec![ExecReply::PiWriteResult(PiWriteExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_write_exec_result::Result::Success(PiWriteExecSuccess { output }),
                Err(error) => pi_write_exec_result::Result::Error(PiWriteExecError { error }),
            }),
        })],
        ExecRequest::PiEditArgs(_) => vec![ExecReply::PiEditResult(PiEditExecResult {
            result: Some(match given.split() {
                Ok(output) => pi_edit_exec_result::Result::Success(PiEditExecSuccess {
                    output,
                    ..PiEditExecSuccess::default()
                }),
                Err(error) => pi_edit_exec_result::Result::Error(PiEditExecError { error }),
            }),
        })],
        ExecRequest::FetchArgs(args) => vec![ExecReply::FetchResult(FetchResult {
            result: Some(match given.split() {
                Ok(content) => fetch_result::Result::Success(FetchSuccess {
                    url: args.url,
                    content,
                    status_code: 200,
                    content_type: "text/markdown".into(),
                }),
                Err(error) => fetch_result::Result::Error(FetchError {
                    url: args.url,
                    error,
                }),
            }),
        })],
        other => vec![rejection::refusal(other, given.text)?],
    })
}

/// The text of a file without the note of the host's tool.
pub(super) struct FileText<'a> {
    pub(super) text: &'a str,
    /// Whether it is only a part of the file.
    pub(super) is_part: bool,
    lines: LineCount,
}

/// What the note says about the number of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineCount {
    /// The number of lines in the file.
    All(i32),
    /// The number of lines after the text.
    After(i32),
}

/// Splits the output of the host's `read` into text and note.
pub(super) fn file_text(text: &str) -> FileText<'_> {
    static NOTE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let note = r"\n\n\[(?:Showing lines \d+-\d+ of (\d+)|(\d+) more lines in file)[^\]\n]*\]$";
        Regex::new(note).ok()
    });
    if line_too_long(text) {
        return FileText {
            text: "",
            is_part: true,
            lines: LineCount::After(0),
        };
    }
    let Some(found) = NOTE.as_ref().and_then(|note| note.captures(text)) else {
        return FileText {
            text,
            is_part: false,
            lines: LineCount::After(0),
        };
    };
    let number = |at| -> Option<i32> { found.get(at)?.as_str().parse().ok() };
    FileText {
        text: &text[..found.get(0).map_or(text.len(), |note| note.start())],
        is_part: true,
        lines: match (number(1), number(2)) {
            (Some(all), _) => LineCount::All(all),
            (None, after) => LineCount::After(after.unwrap_or(0)),
        },
    }
}

/// Returns whether a text only says that a line is too long to be shown.
fn line_too_long(text: &str) -> bool {
    static NOTE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^\[Line \d+ is [\d.]+[KM]?B, exceeds [\d.]+[KM]?B limit\.[^\n]*\]$").ok()
    });
    NOTE.as_ref().is_some_and(|note| note.is_match(text))
}

fn lines(text: &str) -> i32 {
    i32::try_from(text.matches('\n').count() + 1).unwrap_or(i32::MAX)
}

fn read(args: &ReadArgs, given: HostOutput) -> read_result::Result {
    let path = args.path.clone();
    if given.is_error {
        let says = |parts: &[&str]| {
            let text = given.text.to_lowercase();
            parts.iter().any(|part| text.contains(part))
        };
        return if says(&["enoent", "no such file", "not found", "does not exist"]) {
            read_result::Result::FileNotFound(ReadFileNotFound { path })
        } else if says(&["eacces", "eperm", "permission denied"]) {
            read_result::Result::PermissionDenied(ReadPermissionDenied { path })
        } else if says(&["eisdir", "is a directory"]) {
            read_result::Result::InvalidFile(ReadInvalidFile {
                path,
                reason: "Path is a directory, not a file".into(),
            })
        } else {
            read_result::Result::Error(ReadError {
                path,
                error: given.text,
            })
        };
    }
    if let Some(data) = given.picture {
        return read_result::Result::Success(ReadSuccess {
            path,
            file_size: i64::try_from(data.len()).unwrap_or(i64::MAX),
            output: Some(read_success::Output::Data(data)),
            ..ReadSuccess::default()
        });
    }
    if line_too_long(&given.text) {
        // The note is not part of the file.
        let error = given.text.trim_matches(['[', ']']).to_owned();
        return read_result::Result::Error(ReadError { path, error });
    }
    let ranged = args.offset.is_some() || args.limit.is_some();
    let file = file_text(&given.text);
    let before = args.offset.unwrap_or(0).max(1) - 1;
    let known = before.saturating_add(lines(file.text));
    read_result::Result::Success(ReadSuccess {
        path,
        total_lines: match file.lines {
            LineCount::All(all) => all,
            LineCount::After(after) => known.saturating_add(after),
        },
        file_size: i64::try_from(file.text.len()).unwrap_or(i64::MAX),
        truncated: file.is_part && !ranged,
        output: Some(read_success::Output::Content(file.text.to_owned())),
        range_applied: ranged,
        ..ReadSuccess::default()
    })
}

fn write(args: WriteArgs, given: HostOutput) -> write_result::Result {
    let text = translate_request::written(&args).unwrap_or_default();
    match given.split() {
        Ok(_) => write_result::Result::Success(WriteSuccess {
            path: args.path,
            lines_created: lines(&text),
            file_size: i32::try_from(text.len()).unwrap_or(i32::MAX),
            file_content_after_write: Some(text).filter(|_| args.return_file_content_after_write),
        }),
        Err(error) => write_result::Result::Error(WriteError {
            path: args.path,
            error,
        }),
    }
}

/// How a command of the host ended.
#[derive(Debug, PartialEq, Eq)]
enum CommandEnd {
    /// It exited with a code.
    Exited(i32),
    /// It was terminated.
    Terminated(ShellAbortReason),
    /// It was not started because the host refused it.
    Refused,
}

/// Returns a command's output and how it ended; pi reports both in one text.
fn output_and_ending(given: HostOutput) -> (String, CommandEnd) {
    static END: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let end = r"(?s)^(.*?)(?:\n\n)?Command (?:exited with code (-?\d+)|(timed out) after [\d.]+ seconds|(aborted))\s*$";
        Regex::new(end).ok()
    });
    let output = |text: &str| match text {
        "(no output)" => String::new(),
        text => text.to_owned(),
    };
    if !given.is_error {
        return (output(&given.text), CommandEnd::Exited(0));
    }
    let Some(parts) = END.as_ref().and_then(|end| end.captures(&given.text)) else {
        return (given.text, CommandEnd::Refused);
    };
    let before = output(parts.get(1).map_or("", |text| text.as_str()));
    let code = parts.get(2).and_then(|code| code.as_str().parse().ok());
    let ending = match (code, parts.get(3)) {
        (Some(code), _) => CommandEnd::Exited(code),
        (None, Some(_)) => CommandEnd::Terminated(ShellAbortReason::Timeout),
        (None, None) => CommandEnd::Terminated(ShellAbortReason::UserAbort),
    };
    (before, ending)
}

fn milliseconds(took: Duration) -> i32 {
    i32::try_from(took.as_millis()).unwrap_or(i32::MAX)
}

fn shell(args: ShellArgs, given: HostOutput, took: Duration) -> ShellResult {
    let (stdout, ending) = output_and_ending(given);
    let took = milliseconds(took);
    let result = match ending {
        CommandEnd::Refused => shell_result::Result::Rejected(ShellRejected {
            command: args.command,
            working_directory: args.working_directory,
            reason: stdout,
            is_readonly: false,
        }),
        CommandEnd::Exited(0) => shell_result::Result::Success(ShellSuccess {
            command: args.command,
            working_directory: args.working_directory,
            stdout,
            execution_time: took,
            local_execution_time_ms: Some(took),
            ..ShellSuccess::default()
        }),
        ending => {
            let (code, reason) = match ending {
                CommandEnd::Exited(code) => (code, None),
                CommandEnd::Terminated(reason) => (-1, Some(reason)),
                CommandEnd::Refused => (-1, None),
            };
            shell_result::Result::Failure(ShellFailure {
                command: args.command,
                working_directory: args.working_directory,
                exit_code: code,
                stdout,
                execution_time: took,
                abort_reason: reason.map(|reason| reason as i32),
                aborted: reason.is_some(),
                local_execution_time_ms: Some(took),
                ..ShellFailure::default()
            })
        }
    };
    ShellResult {
        result: Some(result),
        ..ShellResult::default()
    }
}

fn stream(args: ShellArgs, given: HostOutput, workspace: &Path, took: Duration) -> Vec<ExecReply> {
    use shell_stream::Event;
    let event = |event: Event| ExecReply::ShellStream(ShellStream { event: Some(event) });
    let (data, ending) = output_and_ending(given);
    let (code, reason) = match ending {
        CommandEnd::Refused => {
            return vec![event(Event::Rejected(ShellRejected {
                command: args.command,
                working_directory: args.working_directory,
                reason: data,
                is_readonly: false,
            }))];
        }
        CommandEnd::Exited(code) => (code.cast_unsigned(), None),
        CommandEnd::Terminated(reason) => (u32::MAX, Some(reason)),
    };
    let mut events = vec![event(Event::Start(ShellStreamStart::default()))];
    if !data.is_empty() {
        events.push(event(Event::Stdout(ShellStreamStdout { data })));
    }
    events.push(event(Event::Exit(ShellStreamExit {
        code,
        cwd: if args.working_directory.is_empty() {
            workspace.to_string_lossy().into_owned()
        } else {
            args.working_directory
        },
        aborted: reason.is_some(),
        abort_reason: reason.map(|reason| reason as i32),
        local_execution_time_ms: Some(milliseconds(took)),
        ..ShellStreamExit::default()
    })));
    events
}

#[cfg(test)]
mod tests;
