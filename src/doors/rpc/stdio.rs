//! Standard input and output on two OS threads.
//!
//! Blocking reads and writes halve the latency of Tokio's stdio. The writer puts everything
//! that is queued into one write: a write a message is some fifty times slower.

use std::io::{self, Write as _};

use tokio::sync::{mpsc, oneshot};

use super::frame::{self, Inbound};

/// Frames that may wait on either side; then the other one has to.
const QUEUE: usize = 256;
/// One write holds no more than this.
const MAX_WRITE: usize = 256 * 1024;

/// Both directions of standard input and output.
pub(super) struct Stdio {
    /// What comes in; ends with the input.
    pub(super) inbound: mpsc::Receiver<Inbound>,
    /// Where what goes out is put.
    pub(super) out: mpsc::Sender<Vec<u8>>,
    /// Resolves when everything is written and nothing more can come.
    pub(super) written: oneshot::Receiver<()>,
}

/// Starts both threads.
pub(super) fn start() -> io::Result<Stdio> {
    let (inbound, receiver) = mpsc::channel(QUEUE);
    let (sender, outbound) = mpsc::channel(QUEUE);
    let (done, written) = oneshot::channel();
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || read(&inbound))?;
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

/// Until the input ends or nobody listens.
fn read(inbound: &mpsc::Sender<Inbound>) {
    let mut input = io::stdin().lock();
    while let Ok(Some(frame)) = frame::read(&mut input) {
        if inbound.blocking_send(frame).is_err() {
            return;
        }
    }
}

/// Until nobody has anything to say or nobody reads.
fn write(mut outbound: mpsc::Receiver<Vec<u8>>) {
    let mut output = io::stdout().lock();
    let mut buffer = Vec::new();
    while let Some(body) = outbound.blocking_recv() {
        frame::put(&mut buffer, &body);
        while buffer.len() < MAX_WRITE {
            match outbound.try_recv() {
                Ok(body) => frame::put(&mut buffer, &body),
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
