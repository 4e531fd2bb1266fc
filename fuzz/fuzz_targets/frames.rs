//! Any bytes on stdin, split anywhere, decode to the same frames and the same end as in one
//! piece; an announced length alone allocates no memory; frames that we write can be read.
#![no_main]

use std::io::{BufRead, BufReader, ErrorKind, Read};

use cursor_sidecar::rpc::frame::{self, Inbound};
use libfuzzer_sys::fuzz_target;

/// Returns bytes in pieces of varying sizes, as a pipe does.
struct Pieces<'a> {
    rest: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let size = self
            .sizes
            .next()
            .map_or(1, |size| usize::from(*size).max(1));
        let size = size.min(into.len()).min(self.rest.len());
        into[..size].copy_from_slice(&self.rest[..size]);
        self.rest = &self.rest[size..];
        Ok(size)
    }
}

fn all(mut input: impl BufRead) -> (Vec<Inbound>, Option<ErrorKind>) {
    let (mut frames, mut reader) = (Vec::new(), frame::FrameReader::default());
    loop {
        match reader.read(&mut input) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error.kind())),
        }
    }
}

fuzz_target!(|input: (Vec<u8>, u8, &[u8])| {
    let (sizes, capacity, wire) = input;
    let whole = all(wire);
    let pieces = Pieces {
        rest: wire,
        sizes: sizes.iter().cycle(),
    };
    let capacity = usize::from(capacity).max(1);
    assert_eq!(whole, all(BufReader::with_capacity(capacity, pieces)));

    let mut held = 0;
    let mut again = Vec::new();
    let mut bodies = Vec::new();
    for inbound in whole.0 {
        match inbound {
            Inbound::Body(body) => {
                held += body.len();
                frame::put(&mut again, &body);
                bodies.push(Inbound::Body(body));
            }
            Inbound::Malformed(problem) => assert!(problem.len() < 200, "{problem}"),
            Inbound::TooLarge { length, .. } => assert!(length > frame::MAX_BODY),
        }
    }
    assert!(held <= wire.len(), "more came out than went in");
    assert_eq!(all(again.as_slice()), (bodies, None));
});
