//! One foreground command: its output, and how it ends or moves to the background.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::background_log::LogHeader;
use super::output::{OutputPiece, Stream, Utf8Chunks};
use super::pipes::{PipeEvent, Pipes};
use super::process_group::{self, RunningCommand, Signal, StdinMode};
use super::session::{Backgrounded, ForegroundHandle, ShellSession};
use super::state::StateScope;
use cursor_proto::agent::v1::{
    ShellAbortReason, ShellArgs, ShellBackgroundReason, TimeoutBehavior,
};

/// How long a command may take to end after SIGTERM before it gets SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How long to go on reading after the command has exited, if another process keeps its pipes open.
pub(crate) const AFTER_EXIT: Duration = Duration::from_secs(5);
/// How long the pipes of a killed command are read for remaining output.
const DRAIN: Duration = Duration::from_millis(100);
/// The timeout of a command whose request states none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size, in bytes, of the output that is kept in case the command moves to the background.
const MAX_SO_FAR: usize = 1024 * 1024;

/// What to run, where, and for how long.
#[derive(Debug)]
pub(crate) struct CommandSpec {
    pub(crate) command: String,
    pub(crate) folder: PathBuf,
    pub(crate) call: String,
    /// After this time the command is ended or moved to the background.
    pub(crate) timeout: Option<(Duration, OnTimeout)>,
    /// After this time it is ended, in the foreground or in the background.
    pub(crate) hard_timeout: Option<Duration>,
    /// Where its standard input comes from.
    pub(crate) input: StdinMode,
    /// Which state of the shell carries over from the previous command.
    pub(crate) scope: StateScope,
}

/// What happens to a command at its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTimeout {
    /// It is ended.
    End,
    /// It continues in the background.
    Background,
}

impl CommandSpec {
    /// Returns the same command, ended at its timeout instead of moved to the background.
    pub(crate) fn without_backgrounding(mut self) -> Self {
        self.timeout = self.timeout.map(|(after, at)| match at {
            OnTimeout::Background if after.is_zero() => (DEFAULT_TIMEOUT, OnTimeout::End),
            _ => (after, OnTimeout::End),
        });
        self.input = StdinMode::Nothing;
        self
    }

    /// Returns the command of a request, to run in `folder`.
    pub(crate) fn of(args: &ShellArgs, folder: PathBuf, scope: StateScope) -> Self {
        let given = u64::try_from(args.timeout).ok().filter(|ms| *ms > 0);
        let background = args.timeout_behavior == TimeoutBehavior::Background as i32;
        let timeout = match given.map(Duration::from_millis) {
            Some(after) if background => (after, OnTimeout::Background),
            Some(after) => (after, OnTimeout::End),
            None if background => (Duration::ZERO, OnTimeout::Background),
            None if args.is_background => (Duration::ZERO, OnTimeout::End),
            None => (DEFAULT_TIMEOUT, OnTimeout::End),
        };
        Self {
            command: args.command.clone(),
            folder,
            call: args.tool_call_id.clone(),
            timeout: Some(timeout),
            hard_timeout: args
                .hard_timeout
                .and_then(|ms| u64::try_from(ms).ok())
                .filter(|ms| *ms > 0)
                .map(Duration::from_millis),
            // A background command can be sent input later.
            input: if background && !args.close_stdin {
                StdinMode::Pipe
            } else {
                StdinMode::Nothing
            },
            scope,
        }
    }
}

/// How a foreground command ended.
#[derive(Debug)]
pub(crate) enum CommandOutcome {
    /// It exited by itself.
    Exited(ExitStatus),
    /// We ended it.
    Ended(ShellAbortReason),
    /// It continues in the background.
    Background {
        /// Its number in the session.
        id: u32,
        /// Its process id.
        pid: u32,
        /// Why it was moved.
        reason: ShellBackgroundReason,
        /// How long it ran in the foreground.
        after: Duration,
    },
}

/// Receives the output of a command.
pub(crate) trait OutputSink: Send {
    /// Takes one piece of output.
    fn write(&mut self, stream: Stream, piece: OutputPiece) -> impl Future<Output = ()> + Send;
}

/// A foreground command.
pub(crate) struct Foreground {
    spec: CommandSpec,
    shell_session: Arc<ShellSession>,
    running: RunningCommand,
    pipes: Pipes,
    front: ForegroundHandle,
    chunks: [Utf8Chunks; 2],
    so_far: String,
    started: Instant,
    /// Whether a process can still write output.
    output_open: bool,
}

enum ForegroundEvent {
    Pipe(PipeEvent),
    Exited(io::Result<ExitStatus>),
    TimedOut(OnTimeout),
    MoveRequested(oneshot::Sender<Backgrounded>),
    Aborted,
}

impl Foreground {
    /// Starts a command.
    pub(crate) fn start(shell_session: &Arc<ShellSession>, spec: CommandSpec) -> io::Result<Self> {
        let mut running = process_group::start(
            &spec.command,
            &spec.folder,
            shell_session.state_files(spec.scope)?,
            spec.input,
            shell_session.reaper(),
        )?;
        Ok(Self {
            pipes: Pipes::of(&mut running.child),
            front: shell_session.register_foreground(&spec.call),
            shell_session: Arc::clone(shell_session),
            spec,
            running,
            chunks: Default::default(),
            so_far: String::new(),
            started: Instant::now(),
            output_open: true,
        })
    }

    /// Runs the command to its end and returns how it ended; all output has gone to `sink`
    /// by then.
    pub(crate) async fn run(
        mut self,
        abort: &CancellationToken,
        sink: &mut impl OutputSink,
    ) -> CommandOutcome {
        loop {
            let event = tokio::select! {
                biased;
                () = abort.cancelled() => ForegroundEvent::Aborted,
                action = timed_out(&self.spec, self.started) => ForegroundEvent::TimedOut(action),
                answer = self.front.move_requested() => ForegroundEvent::MoveRequested(answer),
                status = self.running.child.wait() => ForegroundEvent::Exited(status),
                piece = self.pipes.next(), if self.output_open => {
                    ForegroundEvent::Pipe(piece)
                }
            };
            // If this process was suspended, the command may have exited before its timeout.
            let event = match event {
                ForegroundEvent::TimedOut(action) => match self.running.child.try_wait() {
                    Ok(Some(status)) => ForegroundEvent::Exited(Ok(status)),
                    _ => ForegroundEvent::TimedOut(action),
                },
                other => other,
            };
            match event {
                ForegroundEvent::Pipe(PipeEvent::Bytes(stream, bytes)) => {
                    self.print(stream, bytes, sink).await;
                }
                ForegroundEvent::Pipe(PipeEvent::End) => self.output_open = false,
                ForegroundEvent::Exited(status) => return self.exited(status, sink).await,
                ForegroundEvent::TimedOut(OnTimeout::End) => {
                    return self.end(ShellAbortReason::Timeout, sink).await;
                }
                ForegroundEvent::Aborted => {
                    return self.end(ShellAbortReason::UserAbort, sink).await;
                }
                ForegroundEvent::TimedOut(OnTimeout::Background) => {
                    return self.into_background(ShellBackgroundReason::Timeout, None);
                }
                ForegroundEvent::MoveRequested(answer) => {
                    return self.into_background(ShellBackgroundReason::UserRequest, Some(answer));
                }
            }
        }
    }

    async fn print(&mut self, stream: Stream, bytes: Vec<u8>, sink: &mut impl OutputSink) {
        let piece = self.chunks[stream as usize].push(bytes);
        if self.so_far.len() + piece.text().len() <= MAX_SO_FAR {
            self.so_far.push_str(piece.text());
        }
        sink.write(stream, piece).await;
    }

    /// Reads what is left in the pipes of a command that exited, for at most [`AFTER_EXIT`].
    async fn exited(
        mut self,
        status: io::Result<ExitStatus>,
        sink: &mut impl OutputSink,
    ) -> CommandOutcome {
        let deadline = sleep(AFTER_EXIT);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                piece = self.pipes.next() => match piece {
                    PipeEvent::Bytes(stream, bytes) => self.print(stream, bytes, sink).await,
                    PipeEvent::End => break,
                },
                () = &mut deadline => break,
            }
        }
        self.drain(sink).await;
        let RunningCommand {
            state_files, group, ..
        } = self.running;
        self.shell_session
            .finish(state_files, group, self.pipes)
            .await;
        match status {
            Ok(status) => CommandOutcome::Exited(status),
            Err(_) => CommandOutcome::Ended(ShellAbortReason::UserAbort),
        }
    }

    /// Ends the command: SIGTERM first, SIGKILL after [`GRACE`].
    async fn end(mut self, reason: ShellAbortReason, sink: &mut impl OutputSink) -> CommandOutcome {
        self.running.group.signal(Signal::TERM);
        let grace = sleep(GRACE);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                piece = self.pipes.next(), if self.output_open => match piece {
                    PipeEvent::Bytes(stream, bytes) => self.print(stream, bytes, sink).await,
                    PipeEvent::End => self.output_open = false,
                },
                _ = self.running.child.wait() => break,
                () = &mut grace => break,
            }
        }
        self.running.group.signal(Signal::KILL);
        let _ = self.running.child.wait().await;
        // A process that left the group may still print, so this has a deadline.
        let rest = async {
            while let PipeEvent::Bytes(stream, bytes) = self.pipes.next().await {
                self.print(stream, bytes, sink).await;
            }
        };
        let _ = timeout(DRAIN, rest).await;
        self.drain(sink).await;
        CommandOutcome::Ended(reason)
    }

    async fn drain(&mut self, sink: &mut impl OutputSink) {
        for stream in [Stream::Out, Stream::Error] {
            let rest = self.chunks[stream as usize].end();
            if !rest.text().is_empty() {
                sink.write(stream, rest).await;
            }
        }
    }

    fn into_background(
        self,
        reason: ShellBackgroundReason,
        answer: Option<oneshot::Sender<Backgrounded>>,
    ) -> CommandOutcome {
        let (pid, after) = (self.running.pid, self.started.elapsed());
        let end = self.spec.hard_timeout.map(|hard| self.started + hard);
        let moved = Backgrounded {
            id: 0,
            pid,
            after,
            command: self.spec.command.clone(),
            folder: self.spec.folder.clone(),
            so_far: self.so_far.clone(),
        };
        let header = LogHeader {
            command: self.spec.command,
            folder: self.spec.folder,
            so_far: self.so_far,
        };
        match self
            .shell_session
            .background(self.running, self.pipes, header, end)
        {
            Ok(id) => {
                if let Some(answer) = answer {
                    // The request may have been cancelled meanwhile.
                    let _ = answer.send(Backgrounded { id, ..moved });
                }
                CommandOutcome::Background {
                    id,
                    pid,
                    reason,
                    after,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "could not move a command to the background; the command was ended");
                CommandOutcome::Ended(ShellAbortReason::Timeout)
            }
        }
    }
}

/// Waits for the earlier of the command's timeouts and returns what happens then.
async fn timed_out(spec: &CommandSpec, started: Instant) -> OnTimeout {
    let until = |duration: Duration| {
        let left = duration.saturating_sub(started.elapsed());
        sleep(left)
    };
    match (spec.timeout, spec.hard_timeout) {
        (Some((soft, at)), Some(hard)) if soft <= hard => {
            until(soft).await;
            at
        }
        (_, Some(hard)) => {
            until(hard).await;
            OnTimeout::End
        }
        (Some((soft, at)), None) => {
            until(soft).await;
            at
        }
        (None, None) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_timeout_gets_the_default_timeout() {
        let spec = |args: ShellArgs| CommandSpec::of(&args, PathBuf::new(), StateScope::Everything);
        let background = TimeoutBehavior::Background as i32;
        assert_eq!(
            spec(ShellArgs::default()).timeout,
            Some((DEFAULT_TIMEOUT, OnTimeout::End))
        );
        let at_once = ShellArgs {
            timeout_behavior: background,
            ..ShellArgs::default()
        };
        let at_once = spec(at_once);
        assert_eq!(
            at_once.timeout,
            Some((Duration::ZERO, OnTimeout::Background))
        );
        assert_eq!(at_once.input, StdinMode::Pipe);
        assert_eq!(
            at_once.without_backgrounding().timeout,
            Some((DEFAULT_TIMEOUT, OnTimeout::End))
        );
        let closed = ShellArgs {
            timeout: 5,
            timeout_behavior: background,
            close_stdin: true,
            ..ShellArgs::default()
        };
        let closed = spec(closed);
        assert_eq!(
            closed.timeout,
            Some((Duration::from_millis(5), OnTimeout::Background))
        );
        assert_eq!(closed.input, StdinMode::Nothing);
    }
}
