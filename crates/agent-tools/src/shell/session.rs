//! The shell state of a session that outlives its runs: the shell's directory and exports,
//! background commands, and files with output. All of it ends with the session.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use uuid::Uuid;

use tokio_util::sync::CancellationToken;

use super::background_log::{self, LogHeader};
use super::captured_output::{CapturedOutput, CapturedOutputs};
use super::pipes::Pipes;
use super::process_group::{ProcessGroup, RunningCommand};
use super::reaper::ChildReaper;
use super::state::{SavedShell, ShellStateFiles, StateScope};
use super::temp_dir::SessionTempDir;
use crate::prompts::tools;

/// The most bytes of an incomplete line of input that are remembered.
const MAX_UNFINISHED: usize = 64 * 1024;
/// How long a write to a command's standard input may block.
const STDIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The shell state of one session.
#[derive(Debug, Default)]
pub struct ShellSession {
    reaper: ChildReaper,
    inner: Mutex<SessionState>,
    /// Held while input for a background command is checked by hooks and sent.
    input: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct SessionState {
    folder: Option<SessionTempDir>,
    /// The state that the last command saved.
    saved: Option<SavedShell>,
    shells: HashMap<u32, BackgroundShell>,
    last: u32,
    /// Foreground commands, by the call that started them: each sender asks the command to move to
    /// the background.
    front: HashMap<String, mpsc::Sender<oneshot::Sender<Backgrounded>>>,
    /// Tasks that keep the processes which finished commands left running.
    leftover: Vec<AbortHandle>,
    captured: CapturedOutputs,
}

#[derive(Debug)]
struct BackgroundShell {
    stdin: StdinState,
    task: AbortHandle,
    /// The input sent after the last complete line.
    unfinished: String,
}

#[derive(Debug)]
enum StdinState {
    None,
    Available(ChildStdin),
    /// Another request is writing to it.
    InUse,
}

impl SessionState {
    /// Adds a task that keeps processes which a command left running, until the session ends.
    fn keep(&mut self, task: AbortHandle) {
        self.leftover.retain(|task| !task.is_finished());
        self.leftover.push(task);
    }
}

impl Drop for SessionState {
    fn drop(&mut self) {
        let shells = self.shells.values().map(|shell| &shell.task);
        for task in shells.chain(&self.leftover) {
            task.abort(); // Drops its process group, which kills the processes.
        }
    }
}

/// Why input could not be sent to a background command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdinError {
    /// No such background command is running.
    #[error("Shell not found")]
    NotFound,
    /// It was started without an input pipe, or another request is writing to it.
    #[error("Shell stdin not available")]
    Unavailable,
    /// Writing to its input failed.
    #[error("{0}")]
    Broken(io::Error),
    /// It did not read its input in time.
    #[error("{}", tools::STDIN_NOT_READ)]
    NotRead,
    /// The request was cancelled.
    #[error("{}", tools::STDIN_CANCELLED)]
    Cancelled,
}

impl ShellSession {
    /// Creates a session whose commands are ended by `reaper` if this process dies.
    pub fn new(reaper: ChildReaper) -> Self {
        Self {
            reaper,
            ..Self::default()
        }
    }

    /// Returns what ends the commands if this process dies first.
    pub(crate) fn reaper(&self) -> &ChildReaper {
        &self.reaper
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session's temporary directory, created on first use.
    fn folder(&self) -> io::Result<PathBuf> {
        let mut inner = self.lock();
        if let Some(scratch) = &inner.folder {
            return Ok(scratch.path().to_owned());
        }
        let scratch = SessionTempDir::new(&std::env::temp_dir(), self.reaper.clone())?;
        Ok(inner.folder.insert(scratch).path().to_owned())
    }

    /// Returns the directory with the output of background commands, one file each.
    pub fn terminals(&self) -> io::Result<PathBuf> {
        Ok(self.folder()?.join("terminals"))
    }

    /// Returns the path of a new file for long output; the file is not created.
    pub(crate) fn output_file(&self) -> io::Result<PathBuf> {
        let name = format!("{}.txt", Uuid::new_v4());
        Ok(self.folder()?.join("agent-tools").join(name))
    }

    /// Keeps the output of a call for its card, and removes files of earlier calls that are too
    /// many.
    pub(crate) async fn keep_output(&self, call: &str, captured: CapturedOutput) {
        let removed = self.lock().captured.keep(call, captured);
        for file in removed {
            // A file that is gone already need not be removed.
            let _ = tokio::fs::remove_file(file).await;
        }
    }

    /// Returns what the command of a call printed, if it ran here.
    pub fn captured_output(&self, call: &str) -> Option<CapturedOutput> {
        self.lock().captured.get(call)
    }

    /// Returns the state files of the next command, which continues from the last saved state.
    pub(crate) fn state_files(&self, scope: StateScope) -> io::Result<ShellStateFiles> {
        let folder = self.folder()?;
        Ok(ShellStateFiles::new(
            &folder,
            self.lock().saved.as_ref(),
            scope,
        ))
    }

    /// Waits for other input to be sent, and keeps further input waiting until the guard is
    /// dropped.
    pub(crate) async fn take_input(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.input.lock().await
    }

    /// Returns the incomplete line that the next input of a background command continues.
    pub(crate) fn unfinished(&self, id: u32) -> String {
        let inner = self.lock();
        let shell = inner.shells.get(&id);
        shell
            .map(|shell| shell.unfinished.clone())
            .unwrap_or_default()
    }

    /// Records input sent to a background command, and keeps only the incomplete last line.
    fn remember(&self, id: u32, text: &str) {
        if let Some(shell) = self.lock().shells.get_mut(&id) {
            shell.unfinished.push_str(text);
            // A backslash continues the line.
            let complete = |(at, _): &(usize, &str)| !shell.unfinished[..*at].ends_with('\\');
            let end = shell.unfinished.rmatch_indices('\n').find(complete);
            let mut start = end.map_or(0, |(at, _)| at + 1);
            start = start.max(shell.unfinished.len().saturating_sub(MAX_UNFINISHED));
            while !shell.unfinished.is_char_boundary(start) {
                start += 1;
            }
            shell.unfinished.drain(..start);
        }
    }

    /// Returns the shell's current directory, or the workspace if that directory can no longer be
    /// entered.
    pub(crate) fn cwd(&self, workspace: &Path) -> PathBuf {
        let left = self.lock().saved.as_ref().map(|left| left.folder.clone());
        // `<folder>/.` exists only if the folder exists and may be entered.
        left.filter(|folder| folder.join(".").exists())
            .unwrap_or_else(|| workspace.to_owned())
    }

    /// Saves the shell state of a finished command, and keeps processes it left running until the
    /// session ends.
    pub(crate) async fn finish(
        &self,
        state_files: ShellStateFiles,
        group: ProcessGroup,
        pipes: Pipes,
    ) {
        if group.is_alive() || pipes.are_open() {
            // The output is discarded, but closed pipes would kill the process with SIGPIPE.
            let kept = async move { tokio::join!(group.gone(), pipes.drain()) };
            let task = tokio::spawn(kept);
            self.lock().keep(task.abort_handle());
        }
        if let Some(saved) = state_files.saved().await {
            let before = self.lock().saved.replace(saved);
            drop(before); // Removes its file, after the lock was released.
        }
    }

    /// Registers the foreground command of a call, so that it can be moved to the background.
    pub(crate) fn register_foreground(self: &Arc<Self>, call: &str) -> ForegroundHandle {
        let (sender, asked) = mpsc::channel(1);
        self.lock().front.insert(call.to_owned(), sender.clone());
        ForegroundHandle {
            shell_session: Arc::clone(self),
            call: call.to_owned(),
            sender,
            asked,
        }
    }

    /// Moves the foreground command of a call to the background. Returns `None` if there is none.
    pub(crate) async fn move_to_background(&self, call: &str) -> Option<Backgrounded> {
        let front = self.lock().front.get(call).cloned()?;
        let (answer, moved) = oneshot::channel();
        front.send(answer).await.ok()?;
        drop(front);
        moved.await.ok()
    }

    /// Continues a command in the background with its output in a file. Returns its number.
    pub(crate) fn background(
        self: &Arc<Self>,
        mut running: RunningCommand,
        pipes: Pipes,
        header: LogHeader,
        end: Option<Instant>,
    ) -> io::Result<u32> {
        let terminals = self.terminals()?;
        let stdin = running
            .stdin
            .take()
            .map_or(StdinState::None, StdinState::Available);
        let mut inner = self.lock();
        inner.last += 1;
        let id = inner.last;
        let file = terminals.join(format!("{id}.txt"));
        let shell_session = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let recorded = background_log::record(running, pipes, header, &file, end).await;
            let left = recorded.unwrap_or_else(|error| {
                tracing::warn!(%error, "could not write the output of a background command to its file");
                None
            });
            // If the session has ended, dropping `left` ends the processes.
            let Some(shell_session) = shell_session.upgrade() else {
                return;
            };
            shell_session.remove_ended(id);
            drop(shell_session);
            if let Some(left) = left {
                left.keep().await;
            }
        });
        let task = task.abort_handle();
        let unfinished = String::new();
        inner.shells.insert(
            id,
            BackgroundShell {
                stdin,
                task,
                unfinished,
            },
        );
        Ok(id)
    }

    /// Removes a background command that has ended; its task may still keep processes it left
    /// running.
    fn remove_ended(&self, id: u32) {
        let mut inner = self.lock();
        if let Some(shell) = inner.shells.remove(&id) {
            inner.keep(shell.task);
        }
    }

    /// Writes text to the standard input of a background command.
    pub(crate) async fn write_stdin(
        &self,
        id: u32,
        text: &str,
        abort: &CancellationToken,
    ) -> Result<(), StdinError> {
        let stdin = {
            let mut inner = self.lock();
            let shell = inner.shells.get_mut(&id).ok_or(StdinError::NotFound)?;
            match std::mem::replace(&mut shell.stdin, StdinState::InUse) {
                StdinState::Available(stdin) => stdin,
                other => {
                    shell.stdin = other;
                    return Err(StdinError::Unavailable);
                }
            }
        };
        // Recorded first, because a write that fails may have sent a part.
        self.remember(id, text);
        let mut lease = StdinLease {
            shell_session: self,
            id,
            stdin: Some(stdin),
        };
        let sent = async {
            let Some(stdin) = &mut lease.stdin else {
                return Ok(());
            };
            stdin.write_all(text.as_bytes()).await?;
            stdin.flush().await
        };
        tokio::select! {
            sent = sent => sent.map_err(|error| match error.kind() {
                ErrorKind::BrokenPipe => StdinError::NotFound,
                _ => StdinError::Broken(error),
            }),
            () = tokio::time::sleep(STDIN_TIMEOUT) => Err(StdinError::NotRead),
            () = abort.cancelled() => Err(StdinError::Cancelled),
        }
    }
}

/// The standard input of a command while it is written to. Dropping this returns it.
struct StdinLease<'a> {
    shell_session: &'a ShellSession,
    id: u32,
    stdin: Option<ChildStdin>,
}

impl Drop for StdinLease<'_> {
    fn drop(&mut self) {
        let stdin = self.stdin.take();
        let mut inner = self.shell_session.lock();
        if let (Some(shell), Some(stdin)) = (inner.shells.get_mut(&self.id), stdin) {
            shell.stdin = StdinState::Available(stdin);
        }
    }
}

/// A command that was moved to the background.
#[derive(Debug)]
pub(crate) struct Backgrounded {
    /// Its number in the session.
    pub(crate) id: u32,
    /// Its process id.
    pub(crate) pid: u32,
    /// How long it ran in the foreground.
    pub(crate) after: Duration,
    /// The command.
    pub(crate) command: String,
    /// Its working directory.
    pub(crate) folder: PathBuf,
    /// Its output until then.
    pub(crate) so_far: String,
}

/// The registration of a foreground command; dropping it removes the registration.
#[derive(Debug)]
pub(crate) struct ForegroundHandle {
    shell_session: Arc<ShellSession>,
    call: String,
    sender: mpsc::Sender<oneshot::Sender<Backgrounded>>,
    asked: mpsc::Receiver<oneshot::Sender<Backgrounded>>,
}

impl ForegroundHandle {
    /// Waits for a request to move the command to the background. Returns where to report the
    /// outcome.
    pub(crate) async fn move_requested(&mut self) -> oneshot::Sender<Backgrounded> {
        match self.asked.recv().await {
            Some(answer) => answer,
            // Unreachable: `self.sender` keeps the channel open.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ForegroundHandle {
    fn drop(&mut self) {
        let mut inner = self.shell_session.lock();
        let mine = inner.front.get(&self.call);
        if mine.is_some_and(|sender| sender.same_channel(&self.sender)) {
            inner.front.remove(&self.call);
        }
    }
}
