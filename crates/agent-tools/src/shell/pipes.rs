//! The output pipes of a command, read in the background into a bounded queue.

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::output::Stream;

const PIECE: usize = 64 * 1024;
/// The most pieces in the queue.
const AHEAD: usize = 8;

/// The next output of a command.
#[derive(Debug)]
pub(crate) enum PipeEvent {
    /// Bytes of one stream.
    Bytes(Stream, Vec<u8>),
    /// Both pipes are closed.
    End,
}

/// The pipes of one command. Dropping this closes them.
#[derive(Debug)]
pub(crate) struct Pipes {
    pieces: mpsc::Receiver<(Stream, Vec<u8>)>,
    _readers: JoinSet<()>,
}

impl Pipes {
    /// Takes the pipes of a command and starts to read them.
    pub(crate) fn of(child: &mut Child) -> Self {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let mut readers = JoinSet::new();
        if let Some(out) = child.stdout.take() {
            readers.spawn(copy(out, Stream::Out, sender.clone()));
        }
        if let Some(error) = child.stderr.take() {
            readers.spawn(copy(error, Stream::Error, sender));
        }
        Self {
            pieces,
            _readers: readers,
        }
    }

    /// Returns the next piece. Cancel safe.
    pub(crate) async fn next(&mut self) -> PipeEvent {
        match self.pieces.recv().await {
            Some((stream, bytes)) => PipeEvent::Bytes(stream, bytes),
            None => PipeEvent::End,
        }
    }

    /// Returns whether a pipe is still open or output is queued.
    pub(crate) fn are_open(&self) -> bool {
        !self.pieces.is_closed() || !self.pieces.is_empty()
    }

    /// Reads the pipes to their end and discards the output.
    pub(crate) async fn drain(mut self) {
        while let PipeEvent::Bytes(..) = self.next().await {}
    }
}

async fn copy(
    mut pipe: impl AsyncRead + Unpin,
    stream: Stream,
    pieces: mpsc::Sender<(Stream, Vec<u8>)>,
) {
    loop {
        // Reserve a place first, so that nothing is read that cannot be queued.
        let Ok(room) = pieces.reserve().await else {
            return;
        };
        let mut piece = Vec::with_capacity(PIECE);
        match pipe.read_buf(&mut piece).await {
            Ok(count) if count > 0 => room.send((stream, piece)),
            _ => return,
        }
    }
}
