//! `Content-Length` frames: the base protocol of LSP and DAP.
//!
//! The reader survives invalid input: it reports it, skips it, and finds the next header.

use std::io::{self, BufRead, Read as _, Write};

pub use super::message_peek::MessageHeader;
use super::message_peek::PEEKED_BYTES;

/// The largest body that is read.
pub const MAX_BODY: u64 = 64 * 1024 * 1024;
/// A frame above this length is reported as malformed without reading the start of its body.
const MAX_PEEKED_LENGTH: u64 = 1024 * 1024 * 1024;
/// The longest header line; anything longer is invalid.
const MAX_LINE: u64 = 4096;
const NO_LENGTH: &str = "expected a Content-Length header";

/// One item of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Inbound {
    /// The body of a frame.
    Body(Vec<u8>),
    /// Bytes that are not a frame: skipped, or about to be.
    Malformed(String),
    /// A message over the limit, skipped except for its heading.
    TooLarge {
        /// Its length in bytes.
        length: u64,
        /// Its kind and id.
        heading: MessageHeader,
    },
}

impl Inbound {
    /// Returns how many bytes it takes.
    pub fn size(&self) -> usize {
        match self {
            Self::Body(body) => body.len(),
            Self::Malformed(problem) => problem.len(),
            Self::TooLarge { .. } => PEEKED_BYTES as usize,
        }
    }
}

/// Reads frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Bytes of a frame over the limit that are still to be skipped.
    skip: u64,
    /// The state of a header block that was reported as malformed.
    headers: HeaderState,
}

/// What was read of a header block without a length.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum HeaderState {
    #[default]
    None,
    Some,
    /// The headers were read, and the error was reported.
    Reported,
}

impl FrameReader {
    /// Reads the next frame; `None` at the end of the stream.
    pub fn read(&mut self, input: &mut impl BufRead) -> io::Result<Option<Inbound>> {
        // Its error was reported before, because its sender may never send the rest.
        let skip = std::mem::take(&mut self.skip);
        io::copy(&mut input.by_ref().take(skip), &mut io::sink())?;
        let mut length: Option<u64> = None;
        let mut headers = std::mem::take(&mut self.headers);
        loop {
            let Some(line) = line(input)? else {
                return Ok(None);
            };
            if line.is_empty() {
                match length {
                    Some(length) if length > MAX_PEEKED_LENGTH => {
                        self.skip = length;
                        return malformed(too_large(length));
                    }
                    Some(length) if length > MAX_BODY => {
                        let mut beginning = input.by_ref().take(PEEKED_BYTES);
                        let heading = MessageHeader::read(&mut beginning);
                        self.skip = length - (PEEKED_BYTES - beginning.limit());
                        return match heading {
                            Some(heading) => Ok(Some(Inbound::TooLarge { length, heading })),
                            None => malformed(too_large(length)),
                        };
                    }
                    Some(length) => return body(input, length).map(Some),
                    None if headers == HeaderState::Some => return malformed(NO_LENGTH),
                    // Blank lines between frames are harmless.
                    None => {
                        headers = HeaderState::None;
                        continue;
                    }
                }
            }
            let header = String::from_utf8_lossy(&line);
            match header.split_once(':') {
                Some((name, value)) if name.trim().eq_ignore_ascii_case("content-length") => {
                    match value.trim().parse() {
                        Ok(number) => length = Some(number),
                        Err(_) => {
                            self.headers = HeaderState::Reported;
                            return malformed("Content-Length is not a number");
                        }
                    }
                }
                // Other headers, such as Content-Type, are ignored.
                Some((name, _)) if is_token(name) => {
                    if headers == HeaderState::None {
                        headers = HeaderState::Some;
                    }
                }
                _ => {
                    self.headers = HeaderState::Reported;
                    return malformed(NO_LENGTH);
                }
            }
        }
    }
}

/// Returns the error for a frame of that length.
pub(super) fn too_large(length: u64) -> String {
    format!("frame of {length} bytes is over the limit of {MAX_BODY} bytes")
}

fn malformed(problem: impl Into<String>) -> io::Result<Option<Inbound>> {
    Ok(Some(Inbound::Malformed(problem.into())))
}

fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Reads one line without its end; one longer than any header is split.
fn line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(Some(line))
}

fn body(input: &mut impl BufRead, length: u64) -> io::Result<Inbound> {
    // Grows with what arrives: the length alone reserves nothing.
    let mut body = Vec::new();
    input.by_ref().take(length).read_to_end(&mut body)?;
    if body.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Inbound::Body(body))
}

/// Appends a frame to a buffer.
pub fn put(out: &mut Vec<u8>, body: &[u8]) {
    // Writing into memory does not fail.
    let _ = write!(out, "Content-Length: {}\r\n\r\n", body.len());
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::super::message_peek::tests::ExactBytes;
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Vec<Inbound> {
        let mut input = io::BufReader::with_capacity(7, bytes);
        let (mut frames, mut reader) = (Vec::new(), FrameReader::default());
        while let Ok(Some(frame)) = reader.read(&mut input) {
            frames.push(frame);
        }
        frames
    }

    #[test]
    fn invalid_input_is_reported_and_skipped() {
        let mut bytes = b"hello?\nContent-Type: x\r\ncontent-length: 2\r\n\r\n{}".to_vec();
        bytes.extend_from_slice(b"Content-Length: x\r\n\r\n\n");
        put(&mut bytes, b"[]");
        let bodies = all(&bytes);
        assert_eq!(
            bodies,
            [
                Inbound::Malformed("expected a Content-Length header".into()),
                Inbound::Body(b"{}".to_vec()),
                Inbound::Malformed("Content-Length is not a number".into()),
                Inbound::Body(b"[]".to_vec()),
            ]
        );
    }

    #[test]
    fn headers_without_a_length_are_reported_once() {
        let mut bytes = b"Foo: 1\r\n\r\n".to_vec();
        put(&mut bytes, b"{}");
        bytes.extend_from_slice(b"what?\r\nFoo: 1\r\n\r\nContent-Length: x\r\nFoo: 1\r\n\r\n");
        put(&mut bytes, b"[]");
        let none = || Inbound::Malformed(NO_LENGTH.into());
        assert_eq!(
            all(&bytes),
            [
                none(),
                Inbound::Body(b"{}".to_vec()),
                none(),
                Inbound::Malformed("Content-Length is not a number".into()),
                Inbound::Body(b"[]".to_vec()),
            ]
        );
    }

    /// A frame one byte over the limit that starts with `beginning`.
    fn over(beginning: &str) -> Vec<u8> {
        format!("Content-Length: {}\r\n\r\n{beginning}", MAX_BODY + 1).into_bytes()
    }

    #[test]
    fn a_frame_over_the_limit_is_skipped() {
        for beginning in ["", r#"{"id":1,"method":"m","params":"#] {
            let mut bytes = over(beginning);
            bytes.resize(over("").len() + MAX_BODY as usize + 1, b' ');
            put(&mut bytes, b"{}");
            let frames = all(&bytes);
            match (&frames[0], beginning) {
                (Inbound::Malformed(problem), "") => assert!(problem.contains("limit")),
                (Inbound::TooLarge { length, .. }, _) => assert_eq!(*length, MAX_BODY + 1),
                other => panic!("{other:?}"),
            }
            assert_eq!(frames[1..], [Inbound::Body(b"{}".to_vec())]);
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_reported_before_it_has_arrived() {
        let read =
            |bytes: &[u8]| FrameReader::default().read(&mut io::BufReader::new(ExactBytes(bytes)));
        let read_item = read(&over(r#"{"jsonrpc":"2.0","id":7,"method":"turn/start","#));
        let heading = MessageHeader::Request {
            id: "7".into(),
            method: "turn/start".into(),
        };
        let length = MAX_BODY + 1;
        assert_eq!(
            read_item.unwrap(),
            Some(Inbound::TooLarge { length, heading }),
            "by whose it is"
        );
        let read_item = read(b"Content-Length: 999999999999\r\n\r\n?");
        assert!(matches!(read_item, Ok(Some(Inbound::Malformed(_)))));
    }

    #[test]
    fn a_truncated_frame_ends_the_input() {
        assert_eq!(all(b"Content-Length: 5\r\n\r\n{}"), []);
    }

    proptest! {
        #[test]
        fn written_frames_are_read_back(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10)) {
            let mut bytes = Vec::new();
            for body in &bodies {
                put(&mut bytes, body);
            }
            let read: Vec<_> = all(&bytes);
            let wanted: Vec<_> = bodies.into_iter().map(Inbound::Body).collect();
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn no_input_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            all(&bytes);
        }
    }
}
