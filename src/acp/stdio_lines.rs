//! Lines on standard input and output, on two OS threads, because blocking reads and writes are
//! faster than Tokio's.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::pin::Pin;

use agent_client_protocol::Lines;
use futures_util::{Sink, Stream, sink, stream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use agent::run::queue::{QueueBounds, queue};

/// The longest line.
const MAX_LINE: u64 = 64 * 1024 * 1024;
const INBOUND: QueueBounds = QueueBounds {
    items: 256,
    bytes: MAX_LINE as u32,
};
const OUTBOUND: QueueBounds = QueueBounds {
    items: 256,
    bytes: 4 * 1024 * 1024,
};

type EditorLines = Pin<Box<dyn Sink<String, Error = io::Error> + Send>>;
type LineStream = Pin<Box<dyn Stream<Item = io::Result<String>> + Send>>;

/// Returns the transport, and a token that is cancelled when the input ends.
pub(super) fn open() -> io::Result<(Lines<EditorLines, LineStream>, CancellationToken)> {
    let (lines, inbox) = queue::<Vec<u8>>(INBOUND);
    let (out, mut outbox) = queue::<Vec<u8>>(OUTBOUND);
    let ended = CancellationToken::new();
    let (runtime, at_end) = (Handle::current(), ended.clone());
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            let mut input = BufReader::new(io::stdin().lock());
            while let Some(line) = next_line(&mut input) {
                match runtime.block_on(lines.reserve(line.len())) {
                    Some(room) => room.put(line),
                    None => break,
                }
            }
            at_end.cancel();
        })?;
    std::thread::Builder::new()
        .name("stdout".into())
        .spawn(move || {
            let mut output = io::stdout().lock();
            while let Some(line) = outbox.blocking_recv() {
                let written = output.write_all(&line.item);
                if written.and_then(|()| output.flush()).is_err() {
                    return;
                }
            }
        })?;
    let incoming = stream::unfold(inbox, async |mut inbox| {
        let line = inbox.recv().await?.item;
        // Invalid UTF-8 makes the message invalid, and the peer gets an error.
        let text = String::from_utf8_lossy(&line).into_owned();
        Some((Ok(text), inbox))
    });
    let outgoing = sink::unfold(out, async |out, line: String| {
        let mut line = line.into_bytes();
        line.push(b'\n');
        match out.reserve(line.len()).await {
            Some(room) => {
                room.put(line);
                Ok(out)
            }
            None => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    });
    let (outgoing, incoming): (EditorLines, LineStream) = (Box::pin(outgoing), Box::pin(incoming));
    Ok((Lines::new(outgoing, incoming), ended))
}

/// Returns the next line without its end; `None` at the end of the input or if a line is too long.
fn next_line(input: &mut impl io::BufRead) -> Option<Vec<u8>> {
    loop {
        let mut line = Vec::new();
        let read = input.take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
        if read == 0 || read as u64 == MAX_LINE {
            return None;
        }
        while line
            .last()
            .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
        {
            line.pop();
        }
        if !line.is_empty() {
            return Some(line);
        }
    }
}
