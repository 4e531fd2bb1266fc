//! The two pipes of a command, read as they fill, a bounded piece ahead.

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::output::Stream;

const PIECE: usize = 64 * 1024;
/// Pieces that may wait.
const AHEAD: usize = 8;

/// What comes out of a command next.
#[derive(Debug)]
pub(super) enum Piece {
    /// Something it printed.
    Bytes(Stream, Vec<u8>),
    /// Nobody can print any more.
    End,
}

/// The pipes of one command. Dropping this closes them.
#[derive(Debug)]
pub(super) struct Pipes {
    pieces: mpsc::Receiver<(Stream, Vec<u8>)>,
    _readers: JoinSet<()>,
}

impl Pipes {
    /// Takes a command's pipes.
    pub(super) fn of(child: &mut Child) -> Self {
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

    /// The next piece. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Piece {
        match self.pieces.recv().await {
            Some((stream, bytes)) => Piece::Bytes(stream, bytes),
            None => Piece::End,
        }
    }

    /// Whether somebody can still print, or has.
    pub(super) fn are_open(&self) -> bool {
        !self.pieces.is_closed() || !self.pieces.is_empty()
    }

    /// Reads them to their end, for nobody.
    pub(super) async fn drain(mut self) {
        while let Piece::Bytes(..) = self.next().await {}
    }
}

async fn copy(
    mut pipe: impl AsyncRead + Unpin,
    stream: Stream,
    pieces: mpsc::Sender<(Stream, Vec<u8>)>,
) {
    loop {
        // Room first: what nobody can take is not read.
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
