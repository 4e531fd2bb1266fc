//! The client's messages on a run, from a stream or from appends.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::exchange::BodyChunk;
use cursor_proto::envelope::{Decoder, Encoding, EnvelopeError, Kind};

/// What the client sent or did.
#[derive(Debug)]
pub(super) enum ClientInput {
    Message {
        /// The flag byte of its envelope.
        flags: u8,
        /// The message.
        payload: Bytes,
    },
    /// It ended its side of the stream.
    Ended,
    Disconnected,
    /// It sent data that is not a message.
    Malformed(String),
}

/// The client's messages in order.
#[derive(Debug)]
pub(super) enum ReceivedFrames {
    /// Envelopes in the body of a bidirectional request.
    Stream {
        body: mpsc::Receiver<BodyChunk>,
        /// Decodes the envelopes; holds the incomplete one.
        decoder: Decoder,
        /// Encoding of compressed envelopes.
        encoding: Encoding,
    },
    /// Messages from BidiAppend.
    Appended(mpsc::UnboundedReceiver<Bytes>),
}

impl ReceivedFrames {
    /// Creates an inbox that reads a request body.
    pub(super) fn stream(body: mpsc::Receiver<BodyChunk>, encoding: Encoding) -> Self {
        Self::Stream {
            body,
            decoder: Decoder::default(),
            encoding,
        }
    }

    /// Returns the next input. Cancel safe: dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> ClientInput {
        match self {
            Self::Appended(messages) => match messages.recv().await {
                Some(payload) => ClientInput::Message { flags: 0, payload },
                None => ClientInput::Disconnected,
            },
            Self::Stream {
                body,
                decoder,
                encoding,
            } => loop {
                match next_message(decoder, *encoding) {
                    Ok(Some(inbound)) => return inbound,
                    Ok(None) => {}
                    Err(error) => return ClientInput::Malformed(error.to_string()),
                }
                match body.recv().await {
                    Some(BodyChunk::Data(data)) => decoder.push(&data),
                    Some(BodyChunk::End) => {
                        return match decoder.finish() {
                            Ok(()) => ClientInput::Ended,
                            Err(error) => ClientInput::Malformed(error.to_string()),
                        };
                    }
                    Some(BodyChunk::Broken) | None => return ClientInput::Disconnected,
                }
            },
        }
    }
}

fn next_message(
    decoder: &mut Decoder,
    encoding: Encoding,
) -> Result<Option<ClientInput>, EnvelopeError> {
    let Some(envelope) = decoder.next_envelope()? else {
        return Ok(None);
    };
    if envelope.kind() == Kind::EndStream {
        let reason = "clients never send an end-of-stream envelope".to_owned();
        return Ok(Some(ClientInput::Malformed(reason)));
    }
    let flags = envelope.flags();
    let payload = envelope.into_payload(encoding)?;
    Ok(Some(ClientInput::Message { flags, payload }))
}
