//! The plain-text command (`pi_bash`): the end of its output and its exit code, as text.

use std::io;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{MAX_BYTES, MAX_LINES};
use crate::handlers::shell::ShellHandler;
use crate::prompts::tools;
use crate::shell::foreground::{CommandOutcome, CommandSpec, Foreground, OnTimeout, OutputSink};
use crate::shell::output::{OutputSpill, Stream};
use crate::shell::process_group::StdinMode;
use cursor_proto::agent::v1::*;

/// The output that is kept in memory, which must be at least what is shown.
const KEPT: usize = 4 * MAX_BYTES;

/// Runs a command and returns the end of its output.
pub(crate) async fn bash(
    shell: &ShellHandler,
    args: PiBashExecArgs,
    abort: CancellationToken,
) -> pi_bash_exec_result::Result {
    let timeout = args.timeout.filter(|seconds| *seconds > 0.0);
    let spec = CommandSpec {
        command: args.command,
        folder: shell.shell_session.cwd(&shell.workspace),
        call: String::new(),
        timeout: timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(|after| (after, OnTimeout::End)),
        hard_timeout: None,
        input: StdinMode::Nothing,
        scope: shell.scope(&[]),
    };
    let failed = |error: io::Error| {
        pi_bash_exec_result::Result::Error(PiBashExecError {
            error: error.to_string(),
            ..PiBashExecError::default()
        })
    };
    let file = match shell.shell_session.output_file() {
        Ok(file) => file,
        Err(error) => return failed(error),
    };
    let command = match Foreground::start(&shell.shell_session, spec) {
        Ok(command) => command,
        Err(error) => return failed(error),
    };
    let mut tail = Tail {
        text: String::new(),
        bytes: 0,
        lines: 0,
        // A text has one line more than it has line breaks.
        spill: OutputSpill::new(Some(MAX_BYTES as u64), file).or_lines(MAX_LINES as u64 - 1),
    };
    let outcome = command.run(&abort, &mut tail).await;
    let code = match outcome {
        CommandOutcome::Exited(status) => status.code().unwrap_or(-1),
        CommandOutcome::Ended(_) | CommandOutcome::Background { .. } => -1,
    };
    let location = tail.spill.location().await;
    let (mut output, truncation) = tail.shown();
    let full_output_path = location
        .filter(|_| truncation.is_some())
        .map(|location| location.file_path);
    if let Some(cut) = &truncation {
        let first = cut.total_lines - cut.output_lines + 1;
        let last = cut.total_lines;
        let kilobytes = cut.output_bytes / 1024;
        let shown = if cut.last_line_partial {
            format!(
                "last {kilobytes}KB of line {last} ({}KB limit)",
                MAX_BYTES / 1024
            )
        } else {
            format!("lines {first}-{last} of {last}")
        };
        let rest = match &full_output_path {
            Some(path) => format!("Full output: {path}"),
            None => tools::OUTPUT_NOT_STORED.into(),
        };
        output.push_str(&format!("\n\n[Showing {shown}. {rest}]"));
    }
    if output.is_empty() {
        output = "(no output)".into();
    }
    if code != 0 {
        output.push_str(&format!("\n\nCommand exited with code {code}"));
    }
    pi_bash_exec_result::Result::Success(PiBashExecSuccess {
        output,
        truncation,
        full_output_path,
    })
}

/// The end of a command's output, with all of it in a file once it is long.
struct Tail {
    text: String,
    bytes: usize,
    lines: usize,
    spill: OutputSpill,
}

impl OutputSink for Tail {
    async fn write(&mut self, _: Stream, text: String, bytes: Vec<u8>) {
        self.bytes += text.len();
        self.lines += text.matches('\n').count();
        self.text.push_str(&text);
        if self.text.len() > 2 * KEPT {
            let mut cut = self.text.len() - KEPT;
            while !self.text.is_char_boundary(cut) {
                cut += 1;
            }
            self.text.drain(..cut);
        }
        if let Err(error) = self.spill.push(&bytes).await {
            tracing::warn!(%error, "could not write long output to its file");
        }
    }
}

impl Tail {
    /// Returns the last lines that fit, and what was left out.
    fn shown(&self) -> (String, Option<PiTruncation>) {
        let total = self.lines + 1;
        if self.bytes <= MAX_BYTES && total <= MAX_LINES {
            return (self.text.clone(), None);
        }
        let (mut length, mut lines) = (0, 0);
        let mut by = "lines";
        for line in self.text.rsplit('\n') {
            let next = length + line.len() + usize::from(lines > 0);
            if lines == MAX_LINES {
                break;
            }
            if next > MAX_BYTES {
                by = "bytes";
                break;
            }
            (length, lines) = (next, lines + 1);
        }
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let partial = lines == 0;
        if partial {
            // The last line alone is too long: show its end.
            let mut start = self.text.len() - MAX_BYTES.min(self.text.len());
            while !self.text.is_char_boundary(start) {
                start += 1;
            }
            (length, lines) = (self.text.len() - start, 1);
        }
        let output = self.text[self.text.len() - length..].to_owned();
        let truncation = PiTruncation {
            truncated: true,
            truncated_by: by.into(),
            total_lines: number(total),
            output_lines: number(lines),
            output_bytes: number(length),
            max_lines: Some(number(MAX_LINES)),
            max_bytes: Some(number(MAX_BYTES)),
            first_line_exceeds_limit: false,
            last_line_partial: partial,
        };
        (output, Some(truncation))
    }
}
