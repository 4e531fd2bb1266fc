//! Any bytes, split anywhere, decode to the same envelopes or the same error as in one piece.
#![no_main]

use cursor_proto::envelope::{Decoder, Encoding, EnvelopeError, unwrap_unary};
use libfuzzer_sys::fuzz_target;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<(u8, Vec<u8>)>, EnvelopeError> {
    let mut decoder = Decoder::with_limit(1 << 20);
    let mut envelopes = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(envelope) = decoder.next_envelope()? {
            let flags = envelope.flags();
            let payload = envelope.into_payload(Encoding::Gzip)?;
            envelopes.push((flags, payload.to_vec()));
        }
    }
    decoder.finish()?;
    Ok(envelopes)
}

fuzz_target!(|data: &[u8]| {
    let Some((&step, wire)) = data.split_first() else {
        return;
    };
    let step = usize::from(step).max(1);
    assert_eq!(decode(std::iter::once(wire)), decode(wire.chunks(step)));
    let _ = unwrap_unary(wire);
});
