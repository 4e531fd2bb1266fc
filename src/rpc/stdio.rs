//! Standard input and output on two OS threads.
//!
//! Blocking reads and writes halve the latency of Tokio's stdio. The writer combines everything
//! that is queued into one write, because one write per message is some fifty times slower.

use std::io::{self, Write as _};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::frame::{self, Inbound};
use agent::run::queue::{QueueBounds, QueuedItem, Sender, queue};
use agent_tools::surrogates;

/// How much may be queued in each direction before the producer waits.
const INBOUND: QueueBounds = QueueBounds {
    items: 256,
    bytes: frame::MAX_BODY as u32,
};
const OUTBOUND: QueueBounds = QueueBounds {
    items: 256,
    bytes: 4 * 1024 * 1024,
};
/// The most bytes of one write.
const MAX_WRITE: usize = 256 * 1024;

/// Both directions of standard input and output.
pub(super) struct Stdio {
    /// Incoming frames; ends with the input.
    pub(super) inbound: mpsc::Receiver<QueuedItem<Inbound>>,
    /// The queue for outgoing frames.
    pub(super) out: Sender<Vec<u8>>,
    /// Resolves when everything is written and no more can come.
    pub(super) written: oneshot::Receiver<()>,
}

/// Starts both threads.
pub(super) fn start() -> io::Result<Stdio> {
    let (inbound, receiver) = queue(INBOUND);
    let (sender, outbound) = queue(OUTBOUND);
    let (done, written) = oneshot::channel();
    let runtime = Handle::current();
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || read(&inbound, &runtime))?;
    std::thread::Builder::new()
        .name("stdout".into())
        .spawn(move || {
            write(outbound);
            let _ = done.send(());
        })?;
    Ok(Stdio {
        inbound: receiver,
        out: sender,
        written,
    })
}

/// Reads until the input ends or the receiver is dropped.
fn read(inbound: &Sender<Inbound>, runtime: &Handle) {
    let mut input = io::stdin().lock();
    let mut reader = frame::FrameReader::default();
    while let Ok(Some(mut frame)) = reader.read(&mut input) {
        if let Inbound::Body(body) = &mut frame {
            surrogates::replace_lone(body);
        }
        match runtime.block_on(inbound.reserve(frame.size())) {
            Some(room) => room.put(frame),
            None => return,
        }
    }
}

/// Writes until the queue is closed or the output is.
fn write(mut outbound: mpsc::Receiver<QueuedItem<Vec<u8>>>) {
    let mut output = io::stdout().lock();
    let mut buffer = Vec::new();
    while let Some(body) = outbound.blocking_recv() {
        frame::put(&mut buffer, &body.item);
        drop(body);
        while buffer.len() < MAX_WRITE {
            match outbound.try_recv() {
                Ok(body) => frame::put(&mut buffer, &body.item),
                Err(_) => break,
            }
        }
        if output
            .write_all(&buffer)
            .and_then(|()| output.flush())
            .is_err()
        {
            return;
        }
        buffer.clear();
        buffer.shrink_to(MAX_WRITE);
    }
}
