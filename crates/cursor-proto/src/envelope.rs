//! Connect's envelope: one flag byte, a big-endian length, a payload.
//!
//! The decoder accepts the stream in pieces of any size, copies each byte once and never reserves
//! memory based on a length prefix alone.

use std::io::Read as _;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Length of the prefix before every payload.
pub const PREFIX: usize = 5;

/// The largest payload we accept, compressed or not.
pub const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

const COMPRESSED: u8 = 0b01;
const END_STREAM: u8 = 0b10;

/// What an envelope carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One protobuf message.
    Message,
    /// The JSON that ends a stream.
    EndStream,
}

/// One envelope, with its payload as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    flags: u8,
    payload: Bytes,
}

/// The compression of envelopes that are flagged as compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// No encoding was announced: a compressed envelope is an error.
    #[default]
    Identity,
    /// `gzip`.
    Gzip,
}

/// Why a stream of bytes is not a stream of envelopes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// A flag byte with undefined bits: the decoder lost its position or the peer is not Connect.
    #[error("envelope with unknown flags {0:#04x}")]
    UnknownFlags(u8),
    /// An announced size over [`MAX_PAYLOAD`]. It may be a damaged length, so a retry can help.
    #[error("envelope of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// The announced size.
        size: u64,
        /// The limit in force.
        limit: usize,
    },
    /// A payload that unpacks to more than [`MAX_PAYLOAD`].
    #[error("compressed envelope is over the limit of {limit} bytes")]
    UnpacksTooLarge {
        /// The limit in force.
        limit: usize,
    },
    /// The stream ended inside an envelope.
    #[error("stream ended inside an envelope: {got} of {wanted} bytes")]
    Truncated {
        /// Bytes of the envelope that arrived.
        got: usize,
        /// Bytes it needed, as far as known.
        wanted: usize,
    },
    /// A compressed envelope in a direction that announced no encoding.
    #[error("compressed envelope, but the peer announced no encoding")]
    NotAnnounced,
    /// The compressed payload is corrupt.
    #[error("compressed envelope does not unpack")]
    Corrupt,
    /// An encoding we do not support.
    #[error("unsupported envelope encoding {0:?}")]
    UnsupportedEncoding(String),
}

impl Encoding {
    /// Parses a `connect-content-encoding` header.
    pub fn from_header(value: Option<&str>) -> Result<Self, EnvelopeError> {
        match value {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip") => Ok(Self::Gzip),
            Some(other) => Err(EnvelopeError::UnsupportedEncoding(other.to_owned())),
        }
    }
}

impl Envelope {
    /// Returns whether this carries a message or the end of the stream.
    pub fn kind(&self) -> Kind {
        if self.flags & END_STREAM != 0 {
            Kind::EndStream
        } else {
            Kind::Message
        }
    }

    /// Returns the flag byte as received.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns the payload, decompressed if necessary.
    pub fn into_payload(self, encoding: Encoding) -> Result<Bytes, EnvelopeError> {
        // Some servers flag an empty payload as compressed.
        if self.flags & COMPRESSED == 0 || self.payload.is_empty() {
            return Ok(self.payload);
        }
        match encoding {
            Encoding::Identity => Err(EnvelopeError::NotAnnounced),
            Encoding::Gzip => gunzip(&self.payload, MAX_PAYLOAD),
        }
    }
}

fn gunzip(packed: &[u8], limit: usize) -> Result<Bytes, EnvelopeError> {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .take(limit as u64 + 1)
        .read_to_end(&mut unpacked)
        .map_err(|_| EnvelopeError::Corrupt)?;
    if unpacked.len() > limit {
        return Err(EnvelopeError::UnpacksTooLarge { limit });
    }
    Ok(unpacked.into())
}

/// Encodes an uncompressed envelope, as clients send them.
pub fn encode(kind: Kind, payload: &[u8]) -> Bytes {
    let flags = match kind {
        Kind::Message => 0,
        Kind::EndStream => END_STREAM,
    };
    frame(flags, payload)
}

/// Encodes a gzip envelope, as servers may send them.
pub fn encode_gzip(kind: Kind, payload: &[u8]) -> Bytes {
    let mut packed = Vec::new();
    let mut packer = flate2::read::GzEncoder::new(payload, flate2::Compression::fast());
    // Cannot fail, because it reads from memory into memory.
    let _ = packer.read_to_end(&mut packed);
    let flags = match kind {
        Kind::Message => COMPRESSED,
        Kind::EndStream => COMPRESSED | END_STREAM,
    };
    frame(flags, &packed)
}

/// Encodes a message in an envelope without an intermediate copy.
pub fn encode_message(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX + length);
    out.put_u8(0);
    out.put_u32(length as u32);
    message.encode_raw(&mut out);
    out.freeze()
}

fn frame(flags: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + payload.len());
    out.put_u8(flags);
    out.put_u32(payload.len() as u32);
    out.put_slice(payload);
    out.freeze()
}

/// Splits a byte stream into envelopes.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_limit(MAX_PAYLOAD)
    }
}

impl Decoder {
    /// Returns a decoder that refuses payloads over `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            limit,
        }
    }

    /// Adds the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete envelope; `None` if it has not arrived yet.
    pub fn next_envelope(&mut self) -> Result<Option<Envelope>, EnvelopeError> {
        let Some((flags, length)) = self.prefix()? else {
            return Ok(None);
        };
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let payload = self.buffer.split_to(length).freeze();
        Ok(Some(Envelope { flags, payload }))
    }

    /// Returns an error if the stream must not end here.
    pub fn finish(&self) -> Result<(), EnvelopeError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let wanted = match self.prefix()? {
            Some((_, length)) => PREFIX + length,
            None => PREFIX,
        };
        Err(EnvelopeError::Truncated {
            got: self.buffer.len(),
            wanted,
        })
    }

    /// Returns flags and length of the next envelope; refuses an invalid one before its payload is
    /// read.
    fn prefix(&self) -> Result<Option<(u8, usize)>, EnvelopeError> {
        let Some(&flags) = self.buffer.first() else {
            return Ok(None);
        };
        if flags & !(COMPRESSED | END_STREAM) != 0 {
            return Err(EnvelopeError::UnknownFlags(flags));
        }
        let Some(mut prefix) = self.buffer.get(1..PREFIX) else {
            return Ok(None);
        };
        let length = prefix.get_u32() as usize;
        if length > self.limit {
            return Err(EnvelopeError::TooLarge {
                size: length as u64,
                limit: self.limit,
            });
        }
        Ok(Some((flags, length)))
    }
}

/// Returns the body of a unary response that a server put in envelopes by mistake: the first
/// uncompressed message, regardless of what follows. An end of stream before it is skipped. A
/// compressed envelope yields `None`, because we did not request compression.
pub fn unwrap_unary(body: &[u8]) -> Option<Bytes> {
    let mut decoder = Decoder::default();
    decoder.push(body);
    loop {
        let envelope = decoder.next_envelope().ok()??;
        match envelope.flags {
            0 => return Some(envelope.payload),
            END_STREAM => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<Envelope>, EnvelopeError> {
        let mut decoder = Decoder::default();
        let mut envelopes = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(envelope) = decoder.next_envelope()? {
                envelopes.push(envelope);
            }
        }
        decoder.finish()?;
        Ok(envelopes)
    }

    #[test]
    fn an_empty_compressed_payload_is_empty() {
        let envelopes = decode(&[&[COMPRESSED, 0, 0, 0, 0]]).unwrap();
        for encoding in [Encoding::Gzip, Encoding::Identity] {
            let payload = envelopes[0].clone().into_payload(encoding);
            assert_eq!(payload, Ok(Bytes::new()));
        }
    }

    #[test]
    fn a_unary_response_is_found_among_envelopes() {
        let message = encode(Kind::Message, b"hi");
        let end = encode(Kind::EndStream, b"{}");
        for body in [
            message.to_vec(),
            [&message[..], &end].concat(),
            [&end[..], &message].concat(),
            [&message[..], &message].concat(),
            [&message[..], b"\0\0"].concat(),
        ] {
            assert_eq!(unwrap_unary(&body).as_deref(), Some(&b"hi"[..]), "{body:?}");
        }
        let packed = encode_gzip(Kind::Message, b"hi");
        for body in [&b""[..], b"\0\0", &end, &packed, &message[..6]] {
            assert_eq!(unwrap_unary(body), None, "{body:?}");
        }
    }

    #[test]
    fn gzip_is_accepted_only_if_announced() {
        let wire = encode_gzip(Kind::Message, b"hello");
        let envelope = decode(&[&wire]).unwrap().remove(0);
        assert_eq!(
            envelope.clone().into_payload(Encoding::Identity),
            Err(EnvelopeError::NotAnnounced)
        );
        assert_eq!(envelope.into_payload(Encoding::Gzip).unwrap(), "hello");
    }

    #[test]
    fn a_gzip_bomb_stops_at_the_limit() {
        let wire = encode_gzip(Kind::Message, &vec![0; 4096]);
        let packed = &wire[PREFIX..];
        assert!(packed.len() < 100);
        assert_eq!(
            gunzip(packed, 1024),
            Err(EnvelopeError::UnpacksTooLarge { limit: 1024 })
        );
        assert_eq!(gunzip(&packed[..20], 8192), Err(EnvelopeError::Corrupt));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_payload() {
        let mut decoder = Decoder::with_limit(10);
        decoder.push(&[0, 0, 0, 0, 11]);
        assert_eq!(
            decoder.next_envelope(),
            Err(EnvelopeError::TooLarge {
                size: 11,
                limit: 10
            })
        );
    }

    #[test]
    fn unknown_flags_are_refused_at_the_first_byte() {
        let mut decoder = Decoder::default();
        decoder.push(b"H");
        assert_eq!(
            decoder.next_envelope(),
            Err(EnvelopeError::UnknownFlags(b'H'))
        );
    }

    #[test]
    fn a_truncated_envelope_reports_how_much_is_missing() {
        let wire = encode(Kind::Message, b"hello");
        assert_eq!(
            decode(&[&wire[..7]]),
            Err(EnvelopeError::Truncated { got: 7, wanted: 10 })
        );
        assert_eq!(
            decode(&[&wire[..3]]),
            Err(EnvelopeError::Truncated { got: 3, wanted: 5 })
        );
    }

    proptest! {
        #[test]
        fn any_cut_of_a_stream_gives_the_same_envelopes(
            payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..300)), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
        ) {
            let mut wire = Vec::new();
            for (end, payload) in &payloads {
                let kind = if *end { Kind::EndStream } else { Kind::Message };
                wire.extend_from_slice(&encode(kind, payload));
            }
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut start = 0;
            for cut in at {
                pieces.push(&wire[start..cut]);
                start = cut;
            }
            pieces.push(&wire[start..]);
            let got = decode(&pieces).unwrap();
            prop_assert_eq!(got.len(), payloads.len());
            for (envelope, (end, payload)) in got.into_iter().zip(&payloads) {
                prop_assert_eq!(envelope.kind() == Kind::EndStream, *end);
                prop_assert_eq!(&envelope.into_payload(Encoding::Identity).unwrap()[..], &payload[..]);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = decode(&[&bytes]);
            let _ = unwrap_unary(&bytes);
        }
    }
}
