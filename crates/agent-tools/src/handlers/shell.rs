//! Cursor's requests to run shell commands.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::io_errors;
use crate::errno::Errno;
use crate::shell::background_log::LogHeader;
use crate::shell::captured_output::OutputRecorder;
use crate::shell::command_line;
use crate::shell::command_policy::{CommandDenied, no_sandbox};
use crate::shell::foreground::{CommandOutcome, CommandSpec, Foreground, OutputSink};
use crate::shell::output::{OutputLimit, OutputPiece, Stream};
use crate::shell::pipes::Pipes;
use crate::shell::process_group::{self, StdinMode, TooManyCommands};
use crate::shell::session::ShellSession;
use crate::shell::state::StateScope;
use crate::workspace::paths::resolve_path;
use crate::{ExecReply, ReplySender};
use cursor_proto::agent::v1::*;

/// Runs commands of one session.
#[derive(Debug, Clone)]
pub(super) struct ShellHandler {
    pub(super) shell_session: Arc<ShellSession>,
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
    /// Whether hooks check commands by their text.
    pub(super) is_hooked: bool,
}

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The plain shell's: one text for each stream.
    Plain,
    /// The same, and both streams in the order they were printed.
    Interleaved,
}

fn milliseconds(since: Instant) -> i32 {
    in_milliseconds(since.elapsed())
}

fn in_milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// The output of a command, as all results contain it.
#[derive(Default)]
struct CollectedOutput {
    stdout: String,
    stderr: String,
    interleaved: String,
    location: Option<OutputLocation>,
}

/// Collects the output of a command for one result.
struct CollectSink {
    dialect: Dialect,
    recorder: OutputRecorder,
    collected: CollectedOutput,
    limits: [OutputLimit; 3],
}

impl OutputSink for CollectSink {
    async fn write(&mut self, stream: Stream, piece: OutputPiece) {
        if self.dialect == Dialect::Interleaved {
            let text = piece.text().to_owned();
            self.collected.interleaved += &self.limits[2].fit(text);
        }
        self.recorder.push(&piece).await;
        let fitting = self.limits[stream as usize].fit(piece.into_text());
        match stream {
            Stream::Out => self.collected.stdout += &fitting,
            Stream::Error => self.collected.stderr += &fitting,
        }
    }
}

/// Sends the output of a command as it is printed.
struct StreamSink {
    replies: ReplySender,
    recorder: OutputRecorder,
    limits: [OutputLimit; 2],
}

async fn send_event(replies: &ReplySender, event: shell_stream::Event) {
    let event = Some(event);
    let reply = ExecReply::ShellStream(ShellStream { event });
    replies.send(reply).await;
}

impl OutputSink for StreamSink {
    async fn write(&mut self, stream: Stream, piece: OutputPiece) {
        self.recorder.push(&piece).await;
        let data = self.limits[stream as usize].fit(piece.into_text());
        if !data.is_empty() {
            let event = match stream {
                Stream::Out => shell_stream::Event::Stdout(ShellStreamStdout { data }),
                Stream::Error => shell_stream::Event::Stderr(ShellStreamStderr { data }),
            };
            send_event(&self.replies, event).await;
        }
    }
}

impl ShellHandler {
    /// Returns the directory a command runs in, and the name it has in the result.
    fn folder(&self, given: &str) -> (PathBuf, String) {
        if given.is_empty() {
            let cwd = self.shell_session.cwd(&self.workspace);
            let name = cwd.to_string_lossy().into_owned();
            return (cwd, name);
        }
        let folder = resolve_path(given, &self.workspace, self.home.as_deref());
        (folder, given.to_owned())
    }

    /// Returns what carries over to a command. Functions and aliases do not if a hook or a denylist
    /// judges commands by their text, because the text would not be what is executed.
    pub(super) fn scope(&self, denylist: &[String]) -> StateScope {
        if self.is_hooked || !denylist.is_empty() {
            StateScope::Variables
        } else {
            StateScope::Everything
        }
    }

    fn recorder(&self, args: &ShellArgs) -> OutputRecorder {
        let file = self.shell_session.output_file().ok();
        OutputRecorder::new(args.file_output_threshold_bytes, file)
    }

    /// Keeps what a command printed for its card. Returns the location of the file if the request
    /// wants to know it.
    async fn keep(
        &self,
        call: &str,
        recorder: OutputRecorder,
        outcome: &CommandOutcome,
    ) -> Option<OutputLocation> {
        let exit_code = match outcome {
            CommandOutcome::Exited(status) => status.code(),
            CommandOutcome::Ended(_) | CommandOutcome::Background { .. } => None,
        };
        let (captured, location) = recorder.finish(exit_code).await;
        self.shell_session.keep_output(call, captured).await;
        location
    }

    /// Runs a command and returns its complete result.
    pub(super) async fn run(
        &self,
        args: ShellArgs,
        dialect: Dialect,
        abort: CancellationToken,
    ) -> ShellResult {
        let (folder, working_directory) = self.folder(&args.working_directory);
        let mut answer = ShellResult {
            sandbox_policy: (dialect == Dialect::Interleaved || !args.skip_approval)
                .then(no_sandbox),
            ..ShellResult::default()
        };
        let spawn_error = |error: String| {
            shell_result::Result::SpawnError(ShellSpawnError {
                command: args.command.clone(),
                working_directory: working_directory.clone(),
                error,
            })
        };
        if args.parsing_result.is_none() {
            answer.result = Some(spawn_error("Parsing result is required".into()));
            answer.sandbox_policy = None;
            return answer;
        }
        if let Some(forbidden) = CommandDenied::of(&args).await {
            let with_policy = answer.sandbox_policy.is_some();
            return forbidden.result(args.command, working_directory, with_policy);
        }
        let started = Instant::now();
        // Only a streamed command moves to the background at its timeout.
        let scope = self.scope(&args.admin_command_denylist);
        let spec = CommandSpec::of(&args, folder, scope).without_backgrounding();
        let command = match Foreground::start(&self.shell_session, spec) {
            Ok(command) => command,
            Err(error) => {
                answer.result = Some(spawn_error(spawn_error_text(&error)));
                return answer;
            }
        };
        let mut collect = CollectSink {
            dialect,
            recorder: self.recorder(&args),
            collected: CollectedOutput::default(),
            limits: Default::default(),
        };
        let outcome = command.run(&abort, &mut collect).await;
        let mut collected = collect.collected;
        let call = &args.tool_call_id;
        collected.location = self.keep(call, collect.recorder, &outcome).await;
        if collected.location.is_some() {
            collected.stdout.clear();
            collected.stderr.clear();
        }
        let took = milliseconds(started);
        answer.is_background = matches!(outcome, CommandOutcome::Background { .. }).then_some(true);
        answer.result = Some(result(
            args.command,
            working_directory,
            collected,
            outcome,
            took,
            dialect,
        ));
        answer
    }

    /// Runs a command and sends its output as it is printed.
    pub(super) async fn stream(
        &self,
        args: ShellArgs,
        replies: ReplySender,
        abort: CancellationToken,
    ) {
        let (folder, working_directory) = self.folder(&args.working_directory);
        let mut sink = StreamSink {
            replies,
            recorder: self.recorder(&args),
            limits: Default::default(),
        };
        if let Some(forbidden) = CommandDenied::of(&args).await {
            let with_policy = !args.skip_approval;
            for event in forbidden.stream_events(args.command, working_directory, with_policy) {
                send_event(&sink.replies, event).await;
            }
            return;
        }
        let start = ShellStreamStart {
            sandbox_policy: (!args.skip_approval).then(no_sandbox),
        };
        send_event(&sink.replies, shell_stream::Event::Start(start)).await;
        let started = Instant::now();
        let timeout = args.timeout.max(0);
        let spec = CommandSpec::of(&args, folder, self.scope(&args.admin_command_denylist));
        let command = match Foreground::start(&self.shell_session, spec) {
            Ok(command) => command,
            Err(error) => {
                let data = format!("{} ({})\n", spawn_error_text(&error), working_directory);
                let event = shell_stream::Event::Stderr(ShellStreamStderr { data });
                send_event(&sink.replies, event).await;
                send_event(&sink.replies, self.exit(u32::MAX, None, None, started)).await;
                return;
            }
        };
        let outcome = command.run(&abort, &mut sink).await;
        let StreamSink {
            replies, recorder, ..
        } = sink;
        let location = self.keep(&args.tool_call_id, recorder, &outcome).await;
        let event = match outcome {
            CommandOutcome::Exited(status) => {
                // A command that was killed by a signal has no exit code.
                let code = status.code().map_or(u32::MAX, i32::cast_unsigned);
                self.exit(code, None, location, started)
            }
            CommandOutcome::Ended(reason) => self.exit(u32::MAX, Some(reason), location, started),
            CommandOutcome::Background {
                id,
                pid,
                reason,
                after,
            } => {
                let waited = match reason {
                    ShellBackgroundReason::UserRequest => in_milliseconds(after),
                    _ => timeout,
                };
                shell_stream::Event::Backgrounded(ShellStreamBackgrounded {
                    shell_id: id,
                    command: args.command,
                    working_directory,
                    pid: Some(pid),
                    ms_to_wait: Some(waited),
                    reason: Some(reason as i32),
                })
            }
        };
        send_event(&replies, event).await;
    }

    fn exit(
        &self,
        code: u32,
        reason: Option<ShellAbortReason>,
        output_location: Option<OutputLocation>,
        started: Instant,
    ) -> shell_stream::Event {
        let cwd = self.shell_session.cwd(&self.workspace);
        shell_stream::Event::Exit(ShellStreamExit {
            code,
            cwd: cwd.to_string_lossy().into_owned(),
            output_location,
            aborted: reason.is_some(),
            abort_reason: reason.map(|reason| reason as i32),
            local_execution_time_ms: Some(milliseconds(started)),
        })
    }

    /// Starts a command in the background.
    pub(super) async fn spawn(&self, args: BackgroundShellSpawnArgs) -> BackgroundShellSpawnResult {
        let (folder, _) = self.folder(&args.working_directory);
        let working_directory = folder.to_string_lossy().into_owned();
        if let Some(forbidden) = CommandDenied::of_spawn(&args).await {
            return forbidden.spawn_result(args.command, working_directory);
        }
        let input = if args.enable_write_shell_stdin_tool {
            StdinMode::Pipe
        } else {
            StdinMode::Nothing
        };
        let started = || -> io::Result<(u32, u32)> {
            let scope = self.scope(&args.admin_command_denylist);
            let (state_files, reaper) = (
                self.shell_session.state_files(scope)?,
                self.shell_session.reaper(),
            );
            let mut running =
                process_group::start(&args.command, &folder, state_files, input, reaper)?;
            let (pipes, pid) = (Pipes::of(&mut running.child), running.pid);
            let header = LogHeader {
                command: args.command.clone(),
                folder: folder.clone(),
                so_far: String::new(),
            };
            Ok((
                self.shell_session
                    .background(running, pipes, header, None)?,
                pid,
            ))
        };
        let result = match started() {
            Ok((shell_id, pid)) => {
                background_shell_spawn_result::Result::Success(BackgroundShellSpawnSuccess {
                    shell_id,
                    command: args.command.clone(),
                    working_directory,
                    pid: Some(pid),
                })
            }
            Err(error) => background_shell_spawn_result::Result::Error(BackgroundShellSpawnError {
                command: args.command.clone(),
                working_directory,
                error: spawn_error_text(&error),
            }),
        };
        BackgroundShellSpawnResult {
            result: Some(result),
        }
    }

    /// Writes text to the standard input of a background command.
    pub(super) async fn write_stdin(
        &self,
        args: WriteShellStdinArgs,
        abort: &CancellationToken,
    ) -> WriteShellStdinResult {
        let shell_id = args.shell_id;
        let result = match self
            .shell_session
            .write_stdin(shell_id, &args.chars, abort)
            .await
        {
            Ok(()) => write_shell_stdin_result::Result::Success(WriteShellStdinSuccess {
                shell_id,
                terminal_file_length_before_input_written: 0,
            }),
            Err(error) => write_shell_stdin_result::Result::Error(WriteShellStdinError {
                error: format!("Failed to write to shell {shell_id} stdin: {error}"),
            }),
        };
        WriteShellStdinResult {
            result: Some(result),
        }
    }

    /// Moves a foreground command to the background.
    pub(super) async fn move_to_background(
        &self,
        args: &ForceBackgroundShellArgs,
    ) -> ForceBackgroundShellResult {
        let Some(moved) = self
            .shell_session
            .move_to_background(&args.tool_call_id)
            .await
        else {
            return ForceBackgroundShellResult {
                status: ForceBackgroundShellStatus::NotFound as i32,
                shell_result: None,
            };
        };
        let success = ShellSuccess {
            command: moved.command,
            working_directory: moved.folder.to_string_lossy().into_owned(),
            shell_id: Some(moved.id),
            interleaved_output: Some(moved.so_far),
            pid: Some(moved.pid),
            ms_to_wait: Some(in_milliseconds(moved.after)),
            background_reason: Some(ShellBackgroundReason::UserRequest as i32),
            ..ShellSuccess::default()
        };
        ForceBackgroundShellResult {
            status: ForceBackgroundShellStatus::Accepted as i32,
            shell_result: Some(ShellResult {
                result: Some(shell_result::Result::Success(success)),
                ..ShellResult::default()
            }),
        }
    }
}

/// Returns why a shell did not start, in the official client's wording.
fn spawn_error_text(error: &io::Error) -> String {
    let shell = command_line::shell().display();
    if let Some(refused) = error
        .get_ref()
        .filter(|cause| cause.is::<TooManyCommands>())
    {
        refused.to_string()
    } else if io_errors::is(error, Errno::NOENT) {
        format!("spawn {shell} ENOENT")
    } else if io_errors::is_denied(error) {
        format!("spawn {shell} EACCES")
    } else if io_errors::is(error, Errno::NOTDIR) {
        "spawn ENOTDIR".into()
    } else {
        format!("spawn {shell}: {error}")
    }
}

fn result(
    command: String,
    working_directory: String,
    collected: CollectedOutput,
    outcome: CommandOutcome,
    took: i32,
    dialect: Dialect,
) -> shell_result::Result {
    let CollectedOutput {
        stdout,
        stderr,
        interleaved,
        location,
    } = collected;
    let interleaved_output = (dialect == Dialect::Interleaved).then_some(interleaved);
    let (code, reason) = match outcome {
        CommandOutcome::Background {
            id, pid, reason, ..
        } => {
            return shell_result::Result::Success(ShellSuccess {
                command,
                working_directory,
                stdout,
                stderr,
                execution_time: took,
                shell_id: Some(id),
                interleaved_output,
                pid: Some(pid),
                local_execution_time_ms: Some(took),
                background_reason: Some(reason as i32),
                ..ShellSuccess::default()
            });
        }
        CommandOutcome::Exited(status) => (status.code(), None),
        CommandOutcome::Ended(reason) => (None, Some(reason)),
    };
    if code == Some(0) {
        return shell_result::Result::Success(ShellSuccess {
            command,
            working_directory,
            stdout,
            stderr,
            execution_time: took,
            output_location: location,
            interleaved_output,
            local_execution_time_ms: Some(took),
            ..ShellSuccess::default()
        });
    }
    shell_result::Result::Failure(ShellFailure {
        command,
        working_directory,
        exit_code: code.unwrap_or(-1),
        signal: reason.map(|_| "SIGTERM".into()).unwrap_or_default(),
        stdout,
        stderr,
        execution_time: took,
        output_location: location,
        interleaved_output,
        abort_reason: reason.map(|reason| reason as i32),
        aborted: reason.is_some(),
        local_execution_time_ms: Some(took),
        ..ShellFailure::default()
    })
}
