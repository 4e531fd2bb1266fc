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

use rustix::process::Signal;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::child::{Group, Running};
use super::command::GRACE;
use super::pipes::{Piece, Pipes};
use super::scratch::Scratch;
use crate::tools::leash::Leash;

/// Output of a background command that is kept.
const MAX_TERMINAL: usize = 16 * 1024 * 1024;
/// How often we look whether what a command left running is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long a command may leave its input unread.
const UNREAD: Duration = Duration::from_secs(10);

/// The workbench of one session.
#[derive(Debug, Default)]
pub struct Workbench {
    leash: Leash,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    folder: Option<Scratch>,
    /// Where the shell was left, and the file with its exports.
    left: Option<(PathBuf, PathBuf)>,
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
}

#[derive(Debug)]
enum Input {
    None,
    Here(ChildStdin),
    /// Somebody writes to it now.
    Lent,
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

    /// Files the next command reads its state from and leaves its own in.
    pub(super) fn carry(&self) -> io::Result<(PathBuf, PathBuf)> {
        let folder = self.folder()?;
        let after = folder.join(format!("state-{}", Uuid::new_v4().simple()));
        let before = self.lock().left.as_ref().map(|(_, file)| file.clone());
        Ok((before.unwrap_or_else(|| folder.join("state")), after))
    }

    /// Where the shell is.
    pub(super) fn cwd(&self, workspace: &Path) -> PathBuf {
        let left = self.lock().left.as_ref().map(|(cwd, _)| cwd.clone());
        left.unwrap_or_else(|| workspace.to_owned())
    }

    /// Takes over what a command left behind, if it left something.
    pub(super) async fn settle(&self, after: PathBuf, group: Group) {
        if group.is_alive() {
            let task = tokio::spawn(async move {
                // A number that is free again may soon be another's.
                while group.is_alive() {
                    tokio::time::sleep(LOOK).await;
                }
            });
            let mut inner = self.lock();
            inner.leftover.retain(|task| !task.is_finished());
            inner.leftover.push(task.abort_handle());
        }
        let text = tokio::fs::read_to_string(&after).await.unwrap_or_default();
        let Some((cwd, exports)) = text.split_once('\n').filter(|(cwd, _)| !cwd.is_empty()) else {
            return;
        };
        if tokio::fs::write(&after, exports).await.is_ok() {
            let old = self.lock().left.replace((PathBuf::from(cwd), after));
            if let Some((_, file)) = old {
                let _ = tokio::fs::remove_file(file).await;
            }
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
            if let Err(error) = record(running, pipes, title, &file, end).await {
                tracing::warn!(%error, "the output of a background command is not kept");
            }
            if let Some(bench) = bench.upgrade() {
                bench.lock().shells.remove(&id);
            }
        });
        let task = task.abort_handle();
        inner.shells.insert(id, Shell { stdin, task });
        Ok(id)
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

/// What the head of a background command's file says.
#[derive(Debug)]
pub(super) struct Title {
    /// The command.
    pub(super) command: String,
    /// Where it runs.
    pub(super) folder: PathBuf,
    /// What it printed before it went behind.
    pub(super) so_far: String,
}

/// Writes a background command's output down until it ends.
async fn record(
    mut running: Running,
    mut pipes: Pipes,
    title: Title,
    path: &Path,
    end: Option<Instant>,
) -> io::Result<()> {
    let mut fuse = Fuse(end.map(|end| (end, Signal::TERM)));
    let started = Instant::now();
    let mut file = tokio::fs::File::create(path).await?;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let head = format!(
        "---\npid: {}\ncwd: {}\ncommand: {}\n---\n{}",
        running.pid,
        quoted(&title.folder.to_string_lossy()),
        quoted(&title.command),
        title.so_far,
    );
    file.write_all(head.as_bytes()).await?;
    file.flush().await?;
    let mut room = MAX_TERMINAL;
    loop {
        tokio::select! {
            piece = pipes.next() => {
                let Piece::Bytes(_, bytes) = piece else { break };
                let kept = &bytes[..bytes.len().min(room)];
                room -= kept.len();
                file.write_all(kept).await?;
                file.flush().await?;
            }
            signal = fuse.burnt() => running.group.signal(signal),
        }
    }
    let status = loop {
        tokio::select! {
            status = running.child.wait() => break status?,
            signal = fuse.burnt() => running.group.signal(signal),
        }
    };
    let code = status
        .code()
        .map_or_else(|| "unknown".into(), |code| code.to_string());
    let foot = format!(
        "\n---\nexit_code: {code}\nelapsed_ms: {}\n---\n",
        started.elapsed().as_millis()
    );
    file.write_all(foot.as_bytes()).await?;
    file.flush().await
}

/// When a command must end, and how it is told: asked first, then made to.
struct Fuse(Option<(Instant, Signal)>);

impl Fuse {
    /// Waits for the next signal. Safe to drop and call again.
    async fn burnt(&mut self) -> Signal {
        let Some((at, signal)) = self.0 else {
            return std::future::pending().await;
        };
        sleep_until(at.into()).await;
        self.0 = (signal == Signal::TERM).then(|| (at + GRACE, Signal::KILL));
        signal
    }
}
