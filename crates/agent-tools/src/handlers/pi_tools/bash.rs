//! The plain-text command (`pi_bash`): the end of its output and its exit code, as text.

use std::io;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::handlers::shell::ShellHandler;
use crate::prompts::tools;
use crate::shell::foreground::{CommandOutcome, CommandSpec, Foreground, OnTimeout, OutputSink};
use crate::shell::output::{OutputPiece, OutputSpill, Stream};
use crate::shell::output_tail::{self, MAX_BYTES, MAX_LINES, OutputTail};
use crate::shell::process_group::StdinMode;
use cursor_proto::agent::v1::*;

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
    let mut sink = TailSink {
        tail: OutputTail::default(),
        // A text has one line more than it has line breaks.
        spill: OutputSpill::new(Some(MAX_BYTES as u64), file).or_lines(MAX_LINES as u64 - 1),
    };
    let outcome = command.run(&abort, &mut sink).await;
    let code = match outcome {
        CommandOutcome::Exited(status) => status.code().unwrap_or(-1),
        CommandOutcome::Ended(_) | CommandOutcome::Background { .. } => -1,
    };
    let location = sink.spill.location().await;
    let (output, truncation) = sink.tail.shown();
    let mut output = output.to_owned();
    let full_output_path = location
        .filter(|_| truncation.is_some())
        .map(|location| location.file_path);
    if let Some(cut) = &truncation {
        let shown = output_tail::shown_part(cut);
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
struct TailSink {
    tail: OutputTail,
    spill: OutputSpill,
}

impl OutputSink for TailSink {
    async fn write(&mut self, _: Stream, piece: OutputPiece) {
        self.tail.push(piece.text());
        if let Err(error) = self.spill.push(piece.bytes()).await {
            tracing::warn!(%error, "could not write long output to its file");
        }
    }
}
