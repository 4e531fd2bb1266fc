//! One command in front: it prints, ends, is ended, or goes behind.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::carry::Scope;
use super::child::{self, Input, Running};
use super::output::{Letters, Stream};
use super::pipes::{Piece, Pipes};
use super::terminal::Title;
use super::workbench::{InFront, Went, Workbench};
use crate::wire::proto::agent::v1::{
    ShellAbortReason, ShellArgs, ShellBackgroundReason, TimeoutBehavior,
};

/// How long a command may take to end when it is asked to.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// How long we listen to pipes that somebody keeps open after the command's end.
pub(super) const LISTEN: Duration = Duration::from_secs(5);
/// How long what is left in the pipes of an ended command is listened to.
const DRAIN: Duration = Duration::from_millis(100);
/// What a command may take that nobody gave a time.
const USUAL: Duration = Duration::from_secs(30);
/// What is remembered of output for a command that goes behind.
const MEMORY: usize = 1024 * 1024;

/// What to run, where, and how long.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: String,
    pub(super) folder: PathBuf,
    pub(super) call: String,
    /// After this the command is ended, or goes behind.
    pub(super) timeout: Option<(Duration, AtTimeout)>,
    /// After this it is ended, wherever it is.
    pub(super) hard_timeout: Option<Duration>,
    /// What it reads from.
    pub(super) input: Input,
    /// What carries over from the command before it.
    pub(super) scope: Scope,
}

/// What becomes of a command that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtTimeout {
    /// It is ended.
    End,
    /// It goes on behind.
    Behind,
}

impl Order {
    /// The same, but ended where it would go behind.
    pub(super) fn never_behind(mut self) -> Self {
        self.timeout = self.timeout.map(|(after, at)| match at {
            AtTimeout::Behind if after.is_zero() => (USUAL, AtTimeout::End),
            _ => (after, AtTimeout::End),
        });
        self.input = Input::Nothing;
        self
    }

    /// What a request orders, at a folder that is known.
    pub(super) fn of(args: &ShellArgs, folder: PathBuf, scope: Scope) -> Self {
        let given = u64::try_from(args.timeout).ok().filter(|ms| *ms > 0);
        let behind = args.timeout_behavior == TimeoutBehavior::Background as i32;
        let timeout = match given.map(Duration::from_millis) {
            Some(after) if behind => (after, AtTimeout::Behind),
            Some(after) => (after, AtTimeout::End),
            None if behind => (Duration::ZERO, AtTimeout::Behind),
            None if args.is_background => (Duration::ZERO, AtTimeout::End),
            None => (USUAL, AtTimeout::End),
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
            // Behind, somebody may want to answer its questions.
            input: if behind && !args.close_stdin {
                Input::Pipe
            } else {
                Input::Nothing
            },
            scope,
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// By itself.
    Exited(ExitStatus),
    /// By us.
    Ended(ShellAbortReason),
    /// It goes on behind.
    Behind {
        /// Its number.
        id: u32,
        /// Its process.
        pid: u32,
        /// Why.
        reason: ShellBackgroundReason,
        /// How long it was in front.
        after: Duration,
    },
}

/// Hears what a command prints.
pub(super) trait Listener: Send {
    /// One piece: as text, and the bytes it was made of.
    fn hear(
        &mut self,
        stream: Stream,
        text: String,
        bytes: Vec<u8>,
    ) -> impl Future<Output = ()> + Send;
}

/// A command in front.
pub(super) struct Foreground {
    order: Order,
    bench: Arc<Workbench>,
    running: Running,
    pipes: Pipes,
    front: InFront,
    letters: [Letters; 2],
    so_far: String,
    started: Instant,
    output: Output,
}

/// Whether somebody can still print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Somebody can.
    Open,
    /// Nobody can.
    Closed,
}

enum Happened {
    Piece(Piece),
    Exited(io::Result<ExitStatus>),
    Late(AtTimeout),
    Behind(oneshot::Sender<Went>),
    Aborted,
}

impl Foreground {
    /// Starts a command.
    pub(super) fn start(bench: &Arc<Workbench>, order: Order) -> io::Result<Self> {
        let mut running = child::start(
            &order.command,
            &order.folder,
            bench.carry(order.scope)?,
            order.input,
            bench.leash(),
        )?;
        Ok(Self {
            pipes: Pipes::of(&mut running.child),
            front: bench.in_front(&order.call),
            bench: Arc::clone(bench),
            order,
            running,
            letters: Default::default(),
            so_far: String::new(),
            started: Instant::now(),
            output: Output::Open,
        })
    }

    /// Runs a command to its end; everything it prints goes to `listener` first.
    pub(super) async fn run(
        mut self,
        abort: &CancellationToken,
        listener: &mut impl Listener,
    ) -> Ending {
        loop {
            let happened = tokio::select! {
                biased;
                () = abort.cancelled() => Happened::Aborted,
                late = late(&self.order, self.started) => Happened::Late(late),
                answer = self.front.sent_behind() => Happened::Behind(answer),
                status = self.running.child.wait() => Happened::Exited(status),
                piece = self.pipes.next(), if self.output == Output::Open => {
                    Happened::Piece(piece)
                }
            };
            // It may have ended while we were stopped: its time was not up.
            let happened = match happened {
                Happened::Late(late) => match self.running.child.try_wait() {
                    Ok(Some(status)) => Happened::Exited(Ok(status)),
                    _ => Happened::Late(late),
                },
                other => other,
            };
            match happened {
                Happened::Piece(Piece::Bytes(stream, bytes)) => {
                    self.print(stream, bytes, listener).await;
                }
                Happened::Piece(Piece::End) => self.output = Output::Closed,
                Happened::Exited(status) => return self.exited(status, listener).await,
                Happened::Late(AtTimeout::End) => {
                    return self.end(ShellAbortReason::Timeout, listener).await;
                }
                Happened::Aborted => {
                    return self.end(ShellAbortReason::UserAbort, listener).await;
                }
                Happened::Late(AtTimeout::Behind) => {
                    return self.behind(ShellBackgroundReason::Timeout, None);
                }
                Happened::Behind(answer) => {
                    return self.behind(ShellBackgroundReason::UserRequest, Some(answer));
                }
            }
        }
    }

    async fn print(&mut self, stream: Stream, bytes: Vec<u8>, listener: &mut impl Listener) {
        let text = self.letters[stream as usize].push(&bytes);
        if self.so_far.len() + text.len() <= MEMORY {
            self.so_far.push_str(&text);
        }
        listener.hear(stream, text, bytes).await;
    }

    /// The command ended by itself: what is still in its pipes counts, for a while.
    async fn exited(
        mut self,
        status: io::Result<ExitStatus>,
        listener: &mut impl Listener,
    ) -> Ending {
        let deadline = sleep(LISTEN);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                piece = self.pipes.next() => match piece {
                    Piece::Bytes(stream, bytes) => self.print(stream, bytes, listener).await,
                    Piece::End => break,
                },
                () = &mut deadline => break,
            }
        }
        self.drain(listener).await;
        let Running { carry, group, .. } = self.running;
        self.bench.settle(carry, group, self.pipes).await;
        match status {
            Ok(status) => Ending::Exited(status),
            Err(_) => Ending::Ended(ShellAbortReason::UserAbort),
        }
    }

    /// Ends the command: asks first, then makes it.
    async fn end(mut self, reason: ShellAbortReason, listener: &mut impl Listener) -> Ending {
        self.running.group.signal(Signal::TERM);
        let grace = sleep(GRACE);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                piece = self.pipes.next(), if self.output == Output::Open => match piece {
                    Piece::Bytes(stream, bytes) => self.print(stream, bytes, listener).await,
                    Piece::End => self.output = Output::Closed,
                },
                _ = self.running.child.wait() => break,
                () = &mut grace => break,
            }
        }
        self.running.group.signal(Signal::KILL);
        let _ = self.running.child.wait().await;
        // Who got away from the group may go on printing.
        let rest = async {
            while let Piece::Bytes(stream, bytes) = self.pipes.next().await {
                self.print(stream, bytes, listener).await;
            }
        };
        let _ = timeout(DRAIN, rest).await;
        self.drain(listener).await;
        Ending::Ended(reason)
    }

    async fn drain(&mut self, listener: &mut impl Listener) {
        for stream in [Stream::Out, Stream::Error] {
            let rest = self.letters[stream as usize].end();
            if !rest.is_empty() {
                listener.hear(stream, rest, Vec::new()).await;
            }
        }
    }

    fn behind(
        self,
        reason: ShellBackgroundReason,
        answer: Option<oneshot::Sender<Went>>,
    ) -> Ending {
        let (pid, after) = (self.running.pid, self.started.elapsed());
        let end = self.order.hard_timeout.map(|hard| self.started + hard);
        let went = Went {
            id: 0,
            pid,
            after,
            command: self.order.command.clone(),
            folder: self.order.folder.clone(),
            so_far: self.so_far.clone(),
        };
        let title = Title {
            command: self.order.command,
            folder: self.order.folder,
            so_far: self.so_far,
        };
        match self.bench.background(self.running, self.pipes, title, end) {
            Ok(id) => {
                if let Some(answer) = answer {
                    // Who asked may have gone.
                    let _ = answer.send(Went { id, ..went });
                }
                Ending::Behind {
                    id,
                    pid,
                    reason,
                    after,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a command could not go behind and was ended");
                Ending::Ended(ShellAbortReason::Timeout)
            }
        }
    }
}

/// Waits until the command has taken too long.
async fn late(order: &Order, started: Instant) -> AtTimeout {
    let until = |duration: Duration| {
        let left = duration.saturating_sub(started.elapsed());
        sleep(left)
    };
    match (order.timeout, order.hard_timeout) {
        (Some((soft, at)), Some(hard)) if soft <= hard => {
            until(soft).await;
            at
        }
        (_, Some(hard)) => {
            until(hard).await;
            AtTimeout::End
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
    fn a_command_nobody_gave_a_time_has_the_usual_one() {
        let order = |args: ShellArgs| Order::of(&args, PathBuf::new(), Scope::Everything);
        let behind = TimeoutBehavior::Background as i32;
        assert_eq!(
            order(ShellArgs::default()).timeout,
            Some((USUAL, AtTimeout::End))
        );
        let at_once = ShellArgs {
            timeout_behavior: behind,
            ..ShellArgs::default()
        };
        let at_once = order(at_once);
        assert_eq!(at_once.timeout, Some((Duration::ZERO, AtTimeout::Behind)));
        assert_eq!(at_once.input, Input::Pipe);
        assert_eq!(
            at_once.never_behind().timeout,
            Some((USUAL, AtTimeout::End))
        );
        let closed = ShellArgs {
            timeout: 5,
            timeout_behavior: behind,
            close_stdin: true,
            ..ShellArgs::default()
        };
        let closed = order(closed);
        assert_eq!(
            closed.timeout,
            Some((Duration::from_millis(5), AtTimeout::Behind))
        );
        assert_eq!(closed.input, Input::Nothing);
    }
}
