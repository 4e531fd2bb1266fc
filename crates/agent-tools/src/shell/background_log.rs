//! The file of a background command: a header, its output, and how it ended.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, sleep_until};

use super::foreground::{AFTER_EXIT, GRACE};
use super::pipes::{PipeEvent, Pipes};
use super::process_group::{ProcessGroup, RunningCommand, Signal};

/// The most output of one command that is kept.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The header of the file.
#[derive(Debug)]
pub(crate) struct LogHeader {
    /// The command.
    pub(crate) command: String,
    /// Its working directory.
    pub(crate) folder: PathBuf,
    /// Its output before it moved to the background.
    pub(crate) so_far: String,
}

/// Processes that a finished command left running, which may still print.
#[derive(Debug)]
pub(crate) struct SurvivingProcesses {
    group: ProcessGroup,
    pipes: Pipes,
    terminal: Terminal,
}

impl SurvivingProcesses {
    /// Records their output until all of them have ended.
    pub(crate) async fn keep(self) {
        let Self {
            group,
            mut pipes,
            mut terminal,
        } = self;
        let print = async {
            while let PipeEvent::Bytes(_, bytes) = pipes.next().await {
                // The pipes are read even if the file cannot be written, so that no process blocks.
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
        self.write_flushed(kept).await
    }

    async fn write_flushed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).await?;
        self.file.flush().await
    }
}

/// Writes a command's output to its file until it exits or its time is over. Returns the
/// processes it left running, or `None` if it was ended.
pub(crate) async fn record(
    mut running: RunningCommand,
    mut pipes: Pipes,
    header: LogHeader,
    path: &Path,
    end: Option<Instant>,
) -> io::Result<Option<SurvivingProcesses>> {
    let mut timeout = Deadline(end.map(|end| (end, Signal::TERM)));
    let started = Instant::now();
    let mut terminal = Terminal {
        file: File::create(path).await?,
        room: MAX_BYTES,
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let head = format!(
        "---\npid: {}\ncwd: {}\ncommand: {}\n---\n{}",
        running.pid,
        quoted(&header.folder.to_string_lossy()),
        quoted(&header.command),
        header.so_far,
    );
    terminal.write_flushed(head.as_bytes()).await?;
    let (mut output_open, mut asked) = (true, false);
    let status = loop {
        tokio::select! {
            piece = pipes.next(), if output_open => match piece {
                PipeEvent::Bytes(_, bytes) => terminal.print(&bytes).await?,
                PipeEvent::End => output_open = false,
            },
            status = running.child.wait() => break status?,
            signal = timeout.next_signal() => {
                running.group.signal(signal);
                asked = true;
            }
        }
    };
    if asked {
        running.group.signal(Signal::KILL);
    }
    let deadline = sleep(AFTER_EXIT);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            piece = pipes.next() => match piece {
                PipeEvent::Bytes(_, bytes) => terminal.print(&bytes).await?,
                PipeEvent::End => break,
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
    terminal.write_flushed(foot.as_bytes()).await?;
    Ok((!asked).then_some(SurvivingProcesses {
        group: running.group,
        pipes,
        terminal,
    }))
}

/// When a command must end: SIGTERM at that time, SIGKILL after [`GRACE`].
struct Deadline(Option<(Instant, Signal)>);

impl Deadline {
    /// Waits until the next signal is due and returns it. Cancel safe.
    async fn next_signal(&mut self) -> Signal {
        let Some((at, signal)) = self.0 else {
            return std::future::pending().await;
        };
        sleep_until(at.into()).await;
        self.0 = (signal == Signal::TERM).then(|| (at + GRACE, Signal::KILL));
        signal
    }
}
