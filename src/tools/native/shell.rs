//! Cursor's requests to run commands.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::carry::Scope;
use super::child::{self, Input, TooManyCommands};
use super::command::{Ending, Foreground, Listener, Order};
use super::errno;
use super::forbidden::{Forbidden, no_sandbox};
use super::output::{Clipped, Spill, Stream};
use super::pipes::Pipes;
use super::terminal::Title;
use super::workbench::Workbench;
use crate::tools::paths::meant;
use crate::tools::{Replies, Reply};
use crate::wire::proto::agent::v1::*;

/// Runs commands of one session.
#[derive(Debug, Clone)]
pub(super) struct Shell {
    pub(super) bench: Arc<Workbench>,
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
    /// Whether hooks judge commands by their text.
    pub(super) is_hooked: bool,
}

/// Whose words a result uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The plain shell's.
    Plain,
    /// The one that also wants both streams as they came.
    Interleaved,
}

fn milliseconds(since: Instant) -> i32 {
    in_milliseconds(since.elapsed())
}

fn in_milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// What all results of a command say.
#[derive(Default)]
struct Collected {
    stdout: String,
    stderr: String,
    interleaved: String,
    location: Option<OutputLocation>,
}

/// Keeps what a command prints for one answer.
struct Gather {
    dialect: Dialect,
    spill: Spill,
    collected: Collected,
    clips: [Clipped; 3],
}

impl Listener for Gather {
    async fn hear(&mut self, stream: Stream, text: String, bytes: Vec<u8>) {
        if self.dialect == Dialect::Interleaved {
            self.collected.interleaved += &self.clips[2].fit(text.clone());
        }
        let fitting = self.clips[stream as usize].fit(text);
        match stream {
            Stream::Out => self.collected.stdout += &fitting,
            Stream::Error => self.collected.stderr += &fitting,
        }
        note(self.spill.push(&bytes).await);
    }
}

/// Tells what a command prints at once.
struct Tell {
    replies: Replies,
    spill: Spill,
    clips: [Clipped; 2],
}

impl Tell {
    async fn say(&self, event: shell_stream::Event) {
        let event = Some(event);
        let reply = Reply::ShellStream(ShellStream { event });
        self.replies.send(reply).await;
    }
}

impl Listener for Tell {
    async fn hear(&mut self, stream: Stream, text: String, bytes: Vec<u8>) {
        note(self.spill.push(&bytes).await);
        let data = self.clips[stream as usize].fit(text);
        if !data.is_empty() {
            self.say(match stream {
                Stream::Out => shell_stream::Event::Stdout(ShellStreamStdout { data }),
                Stream::Error => shell_stream::Event::Stderr(ShellStreamStderr { data }),
            })
            .await;
        }
    }
}

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(%error, "long output is not kept in its file");
    }
}

impl Shell {
    /// Where a command runs, and how that is called in the answer.
    fn folder(&self, given: &str) -> (PathBuf, String) {
        if given.is_empty() {
            let cwd = self.bench.cwd(&self.workspace);
            let name = cwd.to_string_lossy().into_owned();
            return (cwd, name);
        }
        let folder = meant(given, &self.workspace, self.home.as_deref());
        (folder, given.to_owned())
    }

    /// What carries over to a command. Functions and aliases do not where a hook or a denylist
    /// judges a command by its text, because the text would not be what is executed.
    pub(super) fn scope(&self, denylist: &[String]) -> Scope {
        if self.is_hooked || !denylist.is_empty() {
            Scope::Variables
        } else {
            Scope::Everything
        }
    }

    fn spill(&self, args: &ShellArgs) -> Spill {
        let file = self.bench.output_file().unwrap_or_default();
        let threshold = args.file_output_threshold_bytes.filter(|bytes| *bytes > 0);
        Spill::new(threshold.filter(|_| file.is_absolute()), file)
    }

    /// Runs a command and tells its result in one piece.
    pub(super) async fn whole(
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
        if let Some(forbidden) = Forbidden::of(&args).await {
            let told = answer.sandbox_policy.is_some();
            return forbidden.whole(args.command, working_directory, told);
        }
        let started = Instant::now();
        // Only a streamed command goes behind when its time is over.
        let scope = self.scope(&args.admin_command_denylist);
        let order = Order::of(&args, folder, scope).never_behind();
        let command = match Foreground::start(&self.bench, order) {
            Ok(command) => command,
            Err(error) => {
                answer.result = Some(spawn_error(spawn_words(&error)));
                return answer;
            }
        };
        let mut gather = Gather {
            dialect,
            spill: self.spill(&args),
            collected: Collected::default(),
            clips: Default::default(),
        };
        let ending = command.run(&abort, &mut gather).await;
        let mut collected = gather.collected;
        collected.location = gather.spill.location().await;
        if collected.location.is_some() {
            collected.stdout.clear();
            collected.stderr.clear();
        }
        let took = milliseconds(started);
        answer.is_background = matches!(ending, Ending::Behind { .. }).then_some(true);
        answer.result = Some(result(
            args.command,
            working_directory,
            collected,
            ending,
            took,
            dialect,
        ));
        answer
    }

    /// Runs a command and tells what it prints as it prints it.
    pub(super) async fn stream(&self, args: ShellArgs, replies: Replies, abort: CancellationToken) {
        let (folder, working_directory) = self.folder(&args.working_directory);
        let mut tell = Tell {
            replies,
            spill: self.spill(&args),
            clips: Default::default(),
        };
        if let Some(forbidden) = Forbidden::of(&args).await {
            let told = !args.skip_approval;
            for event in forbidden.streamed(args.command, working_directory, told) {
                tell.say(event).await;
            }
            return;
        }
        let start = ShellStreamStart {
            sandbox_policy: (!args.skip_approval).then(no_sandbox),
        };
        tell.say(shell_stream::Event::Start(start)).await;
        let started = Instant::now();
        let timeout = args.timeout.max(0);
        let order = Order::of(&args, folder, self.scope(&args.admin_command_denylist));
        let command = match Foreground::start(&self.bench, order) {
            Ok(command) => command,
            Err(error) => {
                let data = format!("{} ({})\n", spawn_words(&error), working_directory);
                let event = shell_stream::Event::Stderr(ShellStreamStderr { data });
                tell.say(event).await;
                tell.say(self.exit(u32::MAX, None, None, started)).await;
                return;
            }
        };
        let ending = command.run(&abort, &mut tell).await;
        let location = tell.spill.location().await;
        let event = match ending {
            Ending::Exited(status) => {
                // A command that was killed has no code of its own.
                let code = status.code().map_or(u32::MAX, i32::cast_unsigned);
                self.exit(code, None, location, started)
            }
            Ending::Ended(reason) => self.exit(u32::MAX, Some(reason), location, started),
            Ending::Behind {
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
        tell.say(event).await;
    }

    fn exit(
        &self,
        code: u32,
        reason: Option<ShellAbortReason>,
        output_location: Option<OutputLocation>,
        started: Instant,
    ) -> shell_stream::Event {
        let cwd = self.bench.cwd(&self.workspace);
        shell_stream::Event::Exit(ShellStreamExit {
            code,
            cwd: cwd.to_string_lossy().into_owned(),
            output_location,
            aborted: reason.is_some(),
            abort_reason: reason.map(|reason| reason as i32),
            local_execution_time_ms: Some(milliseconds(started)),
        })
    }

    /// Starts a command behind.
    pub(super) async fn spawn(&self, args: BackgroundShellSpawnArgs) -> BackgroundShellSpawnResult {
        let (folder, _) = self.folder(&args.working_directory);
        let working_directory = folder.to_string_lossy().into_owned();
        if let Some(forbidden) = Forbidden::behind(&args).await {
            return forbidden.spawned(args.command, working_directory);
        }
        let input = if args.enable_write_shell_stdin_tool {
            Input::Pipe
        } else {
            Input::Nothing
        };
        let started = || -> io::Result<(u32, u32)> {
            let scope = self.scope(&args.admin_command_denylist);
            let (carry, leash) = (self.bench.carry(scope)?, self.bench.leash());
            let mut running = child::start(&args.command, &folder, carry, input, leash)?;
            let (pipes, pid) = (Pipes::of(&mut running.child), running.pid);
            let title = Title {
                command: args.command.clone(),
                folder: folder.clone(),
                so_far: String::new(),
            };
            Ok((self.bench.background(running, pipes, title, None)?, pid))
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
                error: spawn_words(&error),
            }),
        };
        BackgroundShellSpawnResult {
            result: Some(result),
        }
    }

    /// Sends text to a command behind.
    pub(super) async fn feed(
        &self,
        args: WriteShellStdinArgs,
        abort: &CancellationToken,
    ) -> WriteShellStdinResult {
        let shell_id = args.shell_id;
        let result = match self.bench.feed(shell_id, &args.chars, abort).await {
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

    /// Sends a command behind.
    pub(super) async fn send_behind(
        &self,
        args: &ForceBackgroundShellArgs,
    ) -> ForceBackgroundShellResult {
        let Some(went) = self.bench.send_behind(&args.tool_call_id).await else {
            return ForceBackgroundShellResult {
                status: ForceBackgroundShellStatus::NotFound as i32,
                shell_result: None,
            };
        };
        let success = ShellSuccess {
            command: went.command,
            working_directory: went.folder.to_string_lossy().into_owned(),
            shell_id: Some(went.id),
            interleaved_output: Some(went.so_far),
            pid: Some(went.pid),
            ms_to_wait: Some(in_milliseconds(went.after)),
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

/// Why a shell did not start, in the official client's words.
fn spawn_words(error: &io::Error) -> String {
    let shell = child::shell().display();
    if let Some(refused) = error
        .get_ref()
        .filter(|cause| cause.is::<TooManyCommands>())
    {
        refused.to_string()
    } else if errno::is(error, Errno::NOENT) {
        format!("spawn {shell} ENOENT")
    } else if errno::is_denied(error) {
        format!("spawn {shell} EACCES")
    } else if errno::is(error, Errno::NOTDIR) {
        "spawn ENOTDIR".into()
    } else {
        format!("spawn {shell}: {error}")
    }
}

fn result(
    command: String,
    working_directory: String,
    collected: Collected,
    ending: Ending,
    took: i32,
    dialect: Dialect,
) -> shell_result::Result {
    let Collected {
        stdout,
        stderr,
        interleaved,
        location,
    } = collected;
    let interleaved_output = (dialect == Dialect::Interleaved).then_some(interleaved);
    let (code, reason) = match ending {
        Ending::Behind {
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
        Ending::Exited(status) => (status.code(), None),
        Ending::Ended(reason) => (None, Some(reason)),
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
