//! The file of a command behind: what it is, what it prints, how it ended.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::Signal;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, sleep_until};

use super::child::{Group, Running};
use super::command::{GRACE, LISTEN, Output};
use super::pipes::{Piece, Pipes};

/// Output of a command that is kept.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// What the head of the file says.
#[derive(Debug)]
pub(super) struct Title {
    /// The command.
    pub(super) command: String,
    /// Where it runs.
    pub(super) folder: PathBuf,
    /// What it printed before it went behind.
    pub(super) so_far: String,
}

/// What a command left running, and may still print.
#[derive(Debug)]
pub(super) struct Leftover {
    group: Group,
    pipes: Pipes,
    terminal: Terminal,
}

impl Leftover {
    /// Keeps it until it ends by itself.
    pub(super) async fn keep(self) {
        let Self {
            group,
            mut pipes,
            mut terminal,
        } = self;
        let print = async {
            while let Piece::Bytes(_, bytes) = pipes.next().await {
                // Who prints goes on, whether or not there is room for it.
                let _ = terminal.print(&bytes).await;
            }
        };
        tokio::join!(group.gone(), print);
    }
}

#[derive(Debug)]
struct Terminal {
    file: File,
    room: usize,
}

impl Terminal {
    async fn print(&mut self, bytes: &[u8]) -> io::Result<()> {
        let kept = &bytes[..bytes.len().min(self.room)];
        self.room -= kept.len();
        self.say(kept).await
    }

    async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).await?;
        self.file.flush().await
    }
}

/// Writes a command's output down until it ends, by itself or by us; gives what it left then.
pub(super) async fn record(
    mut running: Running,
    mut pipes: Pipes,
    title: Title,
    path: &Path,
    end: Option<Instant>,
) -> io::Result<Option<Leftover>> {
    let mut fuse = Fuse(end.map(|end| (end, Signal::TERM)));
    let started = Instant::now();
    let mut terminal = Terminal {
        file: File::create(path).await?,
        room: MAX_BYTES,
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let head = format!(
        "---\npid: {}\ncwd: {}\ncommand: {}\n---\n{}",
        running.pid,
        quoted(&title.folder.to_string_lossy()),
        quoted(&title.command),
        title.so_far,
    );
    terminal.say(head.as_bytes()).await?;
    let (mut output, mut asked) = (Output::Open, false);
    let status = loop {
        tokio::select! {
            piece = pipes.next(), if output == Output::Open => match piece {
                Piece::Bytes(_, bytes) => terminal.print(&bytes).await?,
                Piece::End => output = Output::Closed,
            },
            status = running.child.wait() => break status?,
            signal = fuse.burnt() => {
                running.group.signal(signal);
                asked = true;
            }
        }
    };
    if asked {
        running.group.signal(Signal::KILL);
    }
    let deadline = sleep(LISTEN);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            piece = pipes.next() => match piece {
                Piece::Bytes(_, bytes) => terminal.print(&bytes).await?,
                Piece::End => break,
            },
            () = &mut deadline => break,
        }
    }
    let code = status
        .code()
        .map_or_else(|| "unknown".into(), |code| code.to_string());
    let foot = format!(
        "\n---\nexit_code: {code}\nelapsed_ms: {}\n---\n",
        started.elapsed().as_millis()
    );
    terminal.say(foot.as_bytes()).await?;
    Ok((!asked).then_some(Leftover {
        group: running.group,
        pipes,
        terminal,
    }))
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
