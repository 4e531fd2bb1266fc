//! What the client says on a run, whichever way it came.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::exchange::Piece;
use crate::wire::envelope::{Decoder, Encoding, EnvelopeError, Kind};

/// One thing the client said or did.
#[derive(Debug)]
pub(super) enum Inbound {
    /// A message.
    Message {
        /// The flag byte of its envelope.
        flags: u8,
        /// The message.
        payload: Bytes,
    },
    /// It ended its side of the stream.
    Ended,
    /// It is gone.
    Gone,
    /// It sent something that is no message.
    Malformed(String),
}

/// The client's messages in order.
#[derive(Debug)]
pub(super) enum Inbox {
    /// Envelopes in the body of a bidirectional request.
    Stream {
        /// The body.
        body: mpsc::Receiver<Piece>,
        /// What is left of the last piece.
        decoder: Decoder,
        /// How compressed envelopes are packed.
        encoding: Encoding,
    },
    /// Messages that were appended.
    Appended(mpsc::UnboundedReceiver<Bytes>),
}

impl Inbox {
    /// An inbox on a request body.
    pub(super) fn stream(body: mpsc::Receiver<Piece>, encoding: Encoding) -> Self {
        Self::Stream {
            body,
            decoder: Decoder::default(),
            encoding,
        }
    }

    /// The next thing the client says. May be dropped while waiting without a loss.
    pub(super) async fn next(&mut self) -> Inbound {
        match self {
            Self::Appended(messages) => match messages.recv().await {
                Some(payload) => Inbound::Message { flags: 0, payload },
                None => Inbound::Gone,
            },
            Self::Stream {
                body,
                decoder,
                encoding,
            } => loop {
                match next_message(decoder, *encoding) {
                    Ok(Some(inbound)) => return inbound,
                    Ok(None) => {}
                    Err(error) => return Inbound::Malformed(error.to_string()),
                }
                match body.recv().await {
                    Some(Piece::Data(data)) => decoder.push(&data),
                    Some(Piece::End) => {
                        return match decoder.finish() {
                            Ok(()) => Inbound::Ended,
                            Err(error) => Inbound::Malformed(error.to_string()),
                        };
                    }
                    Some(Piece::Broken) | None => return Inbound::Gone,
                }
            },
        }
    }
}

fn next_message(
    decoder: &mut Decoder,
    encoding: Encoding,
) -> Result<Option<Inbound>, EnvelopeError> {
    let Some(envelope) = decoder.next_envelope()? else {
        return Ok(None);
    };
    if envelope.kind() == Kind::EndStream {
        let reason = "clients never send an end-of-stream envelope".to_owned();
        return Ok(Some(Inbound::Malformed(reason)));
    }
    let flags = envelope.flags();
    let payload = envelope.into_payload(encoding)?;
    Ok(Some(Inbound::Message { flags, payload }))
}
