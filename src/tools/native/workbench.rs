//! What outlives a run of a session: the shell's folder and exports, commands in the
//! background, files of output. It ends with the session and takes all of it along.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::child::{Group, Running};
use super::pipes::{Piece, Pipes};
use crate::tools::leash::Leash;

/// Output of a background command that is kept.
const MAX_TERMINAL: usize = 16 * 1024 * 1024;
/// How often we look whether what a command left running is still there.
const LOOK: Duration = Duration::from_secs(1);

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
    /// Commands in front, by the call that started them; a notice sends them behind.
    front: HashMap<String, Arc<Notify>>,
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

/// A private folder that goes with its owner.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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
        if let Some(Scratch(path)) = &inner.folder {
            return Ok(path.clone());
        }
        let name = format!("cursor-sidecar-{}", Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).create(&path)?;
        for part in ["terminals", "agent-tools"] {
            builder.create(path.join(part))?;
        }
        inner.folder = Some(Scratch(path.clone()));
        Ok(path)
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
        let notice = Arc::new(Notify::new());
        self.lock()
            .front
            .insert(call.to_owned(), Arc::clone(&notice));
        InFront {
            bench: Arc::clone(self),
            call: call.to_owned(),
            notice,
        }
    }

    /// Sends the command of a call behind; says whether there is one.
    pub(super) fn send_behind(&self, call: &str) -> bool {
        let notice = self.lock().front.get(call).cloned();
        notice.inspect(|notice| notice.notify_one()).is_some()
    }

    /// Keeps a command going behind, its output in a file; gives its number.
    pub(super) fn background(
        self: &Arc<Self>,
        mut running: Running,
        pipes: Pipes,
        title: Title,
    ) -> io::Result<u32> {
        let terminals = self.terminals()?;
        let stdin = running.child.stdin.take().map_or(Input::None, Input::Here);
        let mut inner = self.lock();
        inner.last += 1;
        let id = inner.last;
        let file = terminals.join(format!("{id}.txt"));
        let bench = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            if let Err(error) = record(running, pipes, title, &file).await {
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
    pub(super) async fn feed(&self, id: u32, text: &str) -> Result<(), StdinError> {
        let mut stdin = {
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
        let sent = async {
            stdin.write_all(text.as_bytes()).await?;
            stdin.flush().await
        };
        let sent = sent.await;
        if let Some(shell) = self.lock().shells.get_mut(&id) {
            shell.stdin = Input::Here(stdin);
        }
        sent.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => StdinError::NotFound,
            _ => StdinError::Broken(error),
        })
    }
}

/// A command in front, until this is dropped.
#[derive(Debug)]
pub(super) struct InFront {
    bench: Arc<Workbench>,
    call: String,
    notice: Arc<Notify>,
}

impl InFront {
    /// Waits until the command is sent behind.
    pub(super) async fn sent_behind(&self) {
        self.notice.notified().await;
    }
}

impl Drop for InFront {
    fn drop(&mut self) {
        let mut inner = self.bench.lock();
        let mine = inner.front.get(&self.call);
        if mine.is_some_and(|notice| Arc::ptr_eq(notice, &self.notice)) {
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
) -> io::Result<()> {
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
    while let Piece::Bytes(_, bytes) = pipes.next().await {
        let kept = &bytes[..bytes.len().min(room)];
        room -= kept.len();
        file.write_all(kept).await?;
        file.flush().await?;
    }
    let status = running.child.wait().await?;
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
