//! What outlives a run of a session: the shell's folder and exports, commands in the
//! background, files of output. It ends with the session and takes all of it along.

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

use super::carry::{Carry, Left, Scope};
use super::child::{Group, Running};
use super::pipes::Pipes;
use super::scratch::Scratch;
use super::terminal::{self, Title};
use crate::tools::leash::Leash;

/// Bytes that are remembered of a line of input that is not complete.
const MAX_UNFINISHED: usize = 64 * 1024;
/// How long a command may leave its input unread.
const UNREAD: Duration = Duration::from_secs(10);

/// The workbench of one session.
#[derive(Debug, Default)]
pub struct Workbench {
    leash: Leash,
    inner: Mutex<Inner>,
    /// Held while input for a background command is judged and sent.
    input: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Inner {
    folder: Option<Scratch>,
    /// Where and how the shell was left.
    left: Option<Left>,
    shells: HashMap<u32, Shell>,
    last: u32,
    /// Commands in front, by the call that started them, and who sends them behind.
    front: HashMap<String, mpsc::Sender<oneshot::Sender<Went>>>,
    /// What finished commands left running, each kept by a task.
    leftover: Vec<AbortHandle>,
}

#[derive(Debug)]
struct Shell {
    stdin: Input,
    task: AbortHandle,
    /// What was sent since the last line was complete.
    unfinished: String,
}

#[derive(Debug)]
enum Input {
    None,
    Here(ChildStdin),
    /// Somebody writes to it now.
    Lent,
}

impl Inner {
    /// Keeps a task that keeps what a command left running.
    fn keep(&mut self, task: AbortHandle) {
        self.leftover.retain(|task| !task.is_finished());
        self.leftover.push(task);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shells = self.shells.values().map(|shell| &shell.task);
        for task in shells.chain(&self.leftover) {
            task.abort(); // its group goes with its task
        }
    }
}

/// Why a shell takes no input.
#[derive(Debug, thiserror::Error)]
pub(super) enum StdinError {
    /// There is no such shell, or it ended.
    #[error("Shell not found")]
    NotFound,
    /// It was started without input.
    #[error("Shell stdin not available")]
    Unavailable,
    /// It does not read any more.
    #[error("{0}")]
    Broken(io::Error),
    /// It reads something else first.
    #[error("the command does not read its input")]
    Unread,
    /// Nobody wants it any more.
    #[error("the input was cancelled")]
    Cancelled,
}

impl Workbench {
    /// One whose commands are leashed.
    pub fn new(leash: Leash) -> Self {
        Self {
            leash,
            ..Self::default()
        }
    }

    /// What ends its commands when we cannot.
    pub(super) fn leash(&self) -> &Leash {
        &self.leash
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A folder of the session's own; made when it is first needed.
    fn folder(&self) -> io::Result<PathBuf> {
        let mut inner = self.lock();
        if let Some(scratch) = &inner.folder {
            return Ok(scratch.path().to_owned());
        }
        let scratch = Scratch::new(&std::env::temp_dir(), self.leash.clone())?;
        Ok(inner.folder.insert(scratch).path().to_owned())
    }

    /// Where the output of background commands is written, one file each.
    pub fn terminals(&self) -> io::Result<PathBuf> {
        Ok(self.folder()?.join("terminals"))
    }

    /// A new file for long output.
    pub(super) fn output_file(&self) -> io::Result<PathBuf> {
        let name = format!("{}.txt", Uuid::new_v4());
        Ok(self.folder()?.join("agent-tools").join(name))
    }

    /// What keeps the next command in step with those before it.
    pub(super) fn carry(&self, scope: Scope) -> io::Result<Carry> {
        let folder = self.folder()?;
        Ok(Carry::new(&folder, self.lock().left.as_ref(), scope))
    }

    /// Keeps other input waiting while one is judged and sent.
    pub(in crate::tools) async fn take_input(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.input.lock().await
    }

    /// The beginning of the line that the next input of a background command continues.
    pub(in crate::tools) fn unfinished(&self, id: u32) -> String {
        let inner = self.lock();
        let shell = inner.shells.get(&id);
        shell
            .map(|shell| shell.unfinished.clone())
            .unwrap_or_default()
    }

    /// Remembers what a background command was sent, from the last complete line on.
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

    /// Where the shell is; in the workspace again if it cannot be where it was left.
    pub(in crate::tools) fn cwd(&self, workspace: &Path) -> PathBuf {
        let left = self.lock().left.as_ref().map(|left| left.folder.clone());
        // Only what is there and may be entered has a folder of that name in it.
        left.filter(|folder| folder.join(".").exists())
            .unwrap_or_else(|| workspace.to_owned())
    }

    /// Takes over what a command left behind, if it left something.
    pub(super) async fn settle(&self, carry: Carry, group: Group, pipes: Pipes) {
        if group.is_alive() || pipes.are_open() {
            // Nobody hears what it prints, but with its pipes closed it would die of it.
            let kept = async move { tokio::join!(group.gone(), pipes.drain()) };
            let task = tokio::spawn(kept);
            self.lock().keep(task.abort_handle());
        }
        if let Some(left) = carry.left().await {
            let before = self.lock().left.replace(left);
            drop(before); // and its file, without the lock
        }
    }

    /// A notice that sends the command of a call behind.
    pub(super) fn in_front(self: &Arc<Self>, call: &str) -> InFront {
        let (sender, asked) = mpsc::channel(1);
        self.lock().front.insert(call.to_owned(), sender.clone());
        InFront {
            bench: Arc::clone(self),
            call: call.to_owned(),
            sender,
            asked,
        }
    }

    /// Sends the command of a call behind, if there is one.
    pub(super) async fn send_behind(&self, call: &str) -> Option<Went> {
        let front = self.lock().front.get(call).cloned()?;
        let (answer, went) = oneshot::channel();
        front.send(answer).await.ok()?;
        drop(front);
        went.await.ok()
    }

    /// Keeps a command going behind, its output in a file; gives its number.
    pub(super) fn background(
        self: &Arc<Self>,
        mut running: Running,
        pipes: Pipes,
        title: Title,
        end: Option<Instant>,
    ) -> io::Result<u32> {
        let terminals = self.terminals()?;
        let stdin = running.stdin.take().map_or(Input::None, Input::Here);
        let mut inner = self.lock();
        inner.last += 1;
        let id = inner.last;
        let file = terminals.join(format!("{id}.txt"));
        let bench = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let recorded = terminal::record(running, pipes, title, &file, end).await;
            let left = recorded.unwrap_or_else(|error| {
                tracing::warn!(%error, "the output of a background command is not kept");
                None
            });
            // Without a session nothing is left running.
            let Some(bench) = bench.upgrade() else { return };
            bench.ended(id);
            drop(bench);
            if let Some(left) = left {
                left.keep().await;
            }
        });
        let task = task.abort_handle();
        let unfinished = String::new();
        inner.shells.insert(
            id,
            Shell {
                stdin,
                task,
                unfinished,
            },
        );
        Ok(id)
    }

    /// A command behind is over; what it left, if anything, is kept by the same task.
    fn ended(&self, id: u32) {
        let mut inner = self.lock();
        if let Some(shell) = inner.shells.remove(&id) {
            inner.keep(shell.task);
        }
    }

    /// Sends text to a background command.
    pub(super) async fn feed(
        &self,
        id: u32,
        text: &str,
        abort: &CancellationToken,
    ) -> Result<(), StdinError> {
        let stdin = {
            let mut inner = self.lock();
            let shell = inner.shells.get_mut(&id).ok_or(StdinError::NotFound)?;
            match std::mem::replace(&mut shell.stdin, Input::Lent) {
                Input::Here(stdin) => stdin,
                other => {
                    shell.stdin = other;
                    return Err(StdinError::Unavailable);
                }
            }
        };
        // Before it is sent: what was sent in part counts too.
        self.remember(id, text);
        let mut lent = Lent {
            bench: self,
            id,
            stdin: Some(stdin),
        };
        let sent = async {
            let Some(stdin) = &mut lent.stdin else {
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
            () = tokio::time::sleep(UNREAD) => Err(StdinError::Unread),
            () = abort.cancelled() => Err(StdinError::Cancelled),
        }
    }
}

/// The input of a command while somebody writes to it. It goes back, whatever happens.
struct Lent<'a> {
    bench: &'a Workbench,
    id: u32,
    stdin: Option<ChildStdin>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let stdin = self.stdin.take();
        let mut inner = self.bench.lock();
        if let (Some(shell), Some(stdin)) = (inner.shells.get_mut(&self.id), stdin) {
            shell.stdin = Input::Here(stdin);
        }
    }
}

/// A command that was sent behind.
#[derive(Debug)]
pub(super) struct Went {
    /// Its number.
    pub(super) id: u32,
    /// Its process.
    pub(super) pid: u32,
    /// How long it was in front.
    pub(super) after: Duration,
    /// The command.
    pub(super) command: String,
    /// Where it runs.
    pub(super) folder: PathBuf,
    /// What it printed until then.
    pub(super) so_far: String,
}

/// A command in front, until this is dropped.
#[derive(Debug)]
pub(super) struct InFront {
    bench: Arc<Workbench>,
    call: String,
    sender: mpsc::Sender<oneshot::Sender<Went>>,
    asked: mpsc::Receiver<oneshot::Sender<Went>>,
}

impl InFront {
    /// Waits until the command is sent behind; gives who wants to know when it is.
    pub(super) async fn sent_behind(&mut self) -> oneshot::Sender<Went> {
        match self.asked.recv().await {
            Some(answer) => answer,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }
}

impl Drop for InFront {
    fn drop(&mut self) {
        let mut inner = self.bench.lock();
        let mine = inner.front.get(&self.call);
        if mine.is_some_and(|sender| sender.same_channel(&self.sender)) {
            inner.front.remove(&self.call);
        }
    }
}
