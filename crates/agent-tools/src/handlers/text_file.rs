//! Files as text, read in pieces: their encoding, their number of lines, and ranges of lines.
//!
//! A file is read twice: once to find its encoding and number of lines, and once for the requested
//! lines. A small one is held in memory between, a larger one never completely.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use encoding_rs::WINDOWS_1252;
use tokio_util::sync::CancellationToken;

pub(crate) use file_bytes::FileBytes;

mod file_bytes;

/// The most text of one result, in UTF-16 units because the official client counts those.
pub(crate) const MAX_UNITS: usize = 8_388_608;
/// How many bytes decide the kind of a file.
const SAMPLE: usize = 8192;
const CHUNK: usize = 256 * 1024;

/// How text is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, with or without a byte order mark.
    Utf8,
    /// UTF-16, little endian.
    Utf16Le,
    /// UTF-16, big endian.
    Utf16Be,
    /// Windows-1252, one byte per character, for everything that is not valid UTF-8.
    Western,
}

/// The kind of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Text, probably in this encoding.
    Text(Encoding),
    /// An image the model can see.
    Picture,
    /// Anything else.
    Binary,
}

/// Returns the first bytes of a file.
pub(crate) fn sample(file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::with_capacity(SAMPLE);
    file.take(SAMPLE as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the kind of a file by its first bytes.
pub(crate) fn kind(sample: &[u8]) -> FileKind {
    if let Some(encoding) = utf16(sample) {
        return FileKind::Text(encoding);
    }
    let head = &sample[..sample.len().min(4096)];
    let controls = head
        .iter()
        .filter(|byte| **byte < 32 && !matches!(byte, b'\t' | b'\n' | b'\r'))
        .count();
    if head.contains(&0) || controls * 20 >= head.len().max(1) {
        let picture = infer::get(sample).is_some_and(|kind| {
            let known = ["image/png", "image/jpeg", "image/gif", "image/webp"];
            known.contains(&kind.mime_type())
        });
        return if picture {
            FileKind::Picture
        } else {
            FileKind::Binary
        };
    }
    FileKind::Text(Encoding::Utf8)
}

/// Detects UTF-16 by its byte order mark, or by zeros in every second byte.
fn utf16(sample: &[u8]) -> Option<Encoding> {
    if sample.len() < 4 {
        return None;
    }
    if sample.starts_with(&[0xff, 0xfe]) && sample[2..4] != [0, 0] {
        return Some(Encoding::Utf16Le);
    }
    if sample.starts_with(&[0xfe, 0xff]) {
        return Some(Encoding::Utf16Be);
    }
    let plain = |byte: u8| matches!(byte, 32..=126 | b'\t' | b'\n' | b'\r');
    let pairs = sample.as_chunks::<2>().0;
    let pairs = &pairs[..pairs.len().min(50)];
    let little = pairs.iter().filter(|[a, b]| *b == 0 && plain(*a)).count();
    let big = pairs.iter().filter(|[a, b]| *a == 0 && plain(*b)).count();
    if little * 5 > pairs.len() * 4 {
        Some(Encoding::Utf16Le)
    } else if big * 5 > pairs.len() * 4 {
        Some(Encoding::Utf16Be)
    } else {
        None
    }
}

/// The result of the first pass over a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextScan {
    /// Its encoding.
    pub(crate) encoding: Encoding,
    /// The number of line feeds, plus one.
    pub(crate) lines: usize,
    /// Its line endings: CRLF if at least one line in twenty ends with it.
    pub(crate) ends: LineEndings,
    /// Whether it starts with a byte-order mark.
    pub(crate) marked: bool,
    /// Whether it contains no text.
    pub(crate) empty: bool,
}

/// The line ending of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEndings {
    /// Line feed.
    Lf,
    /// Carriage return and line feed.
    CrLf,
}

/// Reads a file to its end and returns what it contains. Fails with `Interrupted` if the request
/// is cancelled.
pub(crate) fn scan(
    file: &mut (impl Read + Seek),
    guess: Encoding,
    abort: &CancellationToken,
) -> io::Result<TextScan> {
    let mut encoding = guess;
    loop {
        let (mut lines, mut windows) = (0_usize, 0_usize);
        let mut last = '\0';
        let mut empty = true;
        let mut marked = false;
        let is_valid = decode(file, encoding, abort, |text| {
            let mut text = text;
            if empty && let Some(rest) = text.strip_prefix('\u{feff}') {
                marked = true;
                text = rest;
            }
            for at in memchr::memchr_iter(b'\n', text.as_bytes()) {
                lines += 1;
                let before = match at {
                    0 => last,
                    _ => char::from(text.as_bytes()[at - 1]),
                };
                windows += usize::from(before == '\r');
            }
            if let Some(end) = text.chars().next_back() {
                last = end;
                empty = false;
            }
            true
        })?;
        if !is_valid {
            encoding = Encoding::Western;
            continue;
        }
        let ends = if windows * 20 >= lines && windows > 0 {
            LineEndings::CrLf
        } else {
            LineEndings::Lf
        };
        return Ok(TextScan {
            encoding,
            lines: lines + 1,
            ends,
            marked,
            empty,
        });
    }
}

/// Lines of a file, and whether some did not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The text, lines joined by line feeds.
    pub(crate) text: String,
    /// Whether text was left out because of the limit.
    pub(crate) truncated: bool,
}

/// Returns the lines from `first` (counted from 0) up to `end`, at most `units` long.
pub(crate) fn lines(
    file: &mut (impl Read + Seek),
    scan: &TextScan,
    first: usize,
    end: usize,
    units: usize,
    abort: &CancellationToken,
) -> io::Result<Excerpt> {
    let mut text = String::new();
    let (mut line, mut used) = (0_usize, 0_usize);
    let mut truncated = false;
    let mut start = true;
    decode(file, scan.encoding, abort, |piece| {
        let piece = if start {
            piece.strip_prefix('\u{feff}').unwrap_or(piece)
        } else {
            piece
        };
        start = start && piece.is_empty();
        for part in piece.split_inclusive('\n') {
            if line >= end {
                return false;
            }
            if line >= first {
                let ended = part.ends_with('\n');
                let last = ended && line + 1 == end;
                let body = if last { &part[..part.len() - 1] } else { part };
                let fitting = prefix(body, units - used);
                used += units_of(fitting);
                text.push_str(fitting);
                if fitting.len() < body.len() {
                    truncated = true;
                    return false;
                }
                if ended && scan.ends == LineEndings::CrLf {
                    drop_return(&mut text, last);
                }
            }
            line += usize::from(part.ends_with('\n'));
        }
        true
    })?;
    Ok(Excerpt { text, truncated })
}

/// Returns the length of a text in UTF-16.
fn units_of(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.encode_utf16().count()
    }
}

/// Returns as much of a text as `units` in UTF-16 have room for.
fn prefix(text: &str, units: usize) -> &str {
    // No character has more units than bytes.
    if text.len() <= units {
        return text;
    }
    let mut used = 0;
    let over = |letter: &(usize, char)| {
        used += letter.1.len_utf16();
        used > units
    };
    let end = text.char_indices().find(over);
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// Removes the carriage return from the end of the last complete line.
fn drop_return(text: &mut String, last: bool) {
    if last {
        if text.ends_with('\r') {
            text.pop();
        }
    } else if text.ends_with("\r\n") {
        text.truncate(text.len() - 2);
        text.push('\n');
    }
}

/// Passes a file's text to `take` in pieces until it returns `false`. Returns whether the text so
/// far is valid in this encoding.
fn decode(
    file: &mut (impl Read + Seek),
    encoding: Encoding,
    abort: &CancellationToken,
    mut take: impl FnMut(&str) -> bool,
) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    // Most files are short.
    let mut buffer = vec![0; SAMPLE];
    let mut held = 0;
    let mut text = String::new();
    loop {
        if abort.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = file.read(&mut buffer[held..])?;
        let over = count == 0;
        let filled = held + count;
        text.clear();
        if filled == buffer.len() {
            buffer.resize(CHUNK, 0);
        }
        let used = match encoding {
            Encoding::Utf8 => match utf8(&buffer[..filled], over) {
                Some(valid) => {
                    text.push_str(valid);
                    valid.len()
                }
                None => return Ok(false),
            },
            Encoding::Western => {
                // One byte per character: pieces can be decoded separately.
                let (piece, _) = WINDOWS_1252.decode_without_bom_handling(&buffer[..filled]);
                text.push_str(&piece);
                filled
            }
            Encoding::Utf16Le => wide(&buffer[..filled], over, u16::from_le_bytes, &mut text),
            Encoding::Utf16Be => wide(&buffer[..filled], over, u16::from_be_bytes, &mut text),
        };
        if !text.is_empty() && !take(&text) {
            return Ok(true);
        }
        if over {
            return Ok(true);
        }
        buffer.copy_within(used..filled, 0);
        held = filled - used;
    }
}

/// Returns the valid prefix, or `None` if the rest is not just an incomplete character.
fn utf8(bytes: &[u8], over: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && !over => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// Decodes UTF-16 and returns the number of bytes used; half of a surrogate pair waits for the
/// other half.
fn wide(bytes: &[u8], over: bool, unit: fn([u8; 2]) -> u16, text: &mut String) -> usize {
    let (pairs, _) = bytes.as_chunks::<2>();
    let mut units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    let half = units
        .last()
        .is_some_and(|last| (0xd800..0xdc00).contains(last));
    if half && !over {
        units.pop();
    }
    let decoded = char::decode_utf16(units.iter().copied());
    text.extend(decoded.map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)));
    units.len() * 2
}

/// Encodes a text, or returns `None` if the encoding lacks one of its characters.
pub(crate) fn encode(text: &str, encoding: Encoding, marked: bool) -> Option<Vec<u8>> {
    let mark = if marked { "\u{feff}" } else { "" };
    let letters = mark.chars().chain(text.chars());
    match encoding {
        Encoding::Utf8 => Some(letters.collect::<String>().into_bytes()),
        Encoding::Utf16Le | Encoding::Utf16Be => {
            let bytes = |unit: u16| match encoding {
                Encoding::Utf16Be => unit.to_be_bytes(),
                _ => unit.to_le_bytes(),
            };
            let whole: String = letters.collect();
            Some(whole.encode_utf16().flat_map(bytes).collect())
        }
        Encoding::Western => {
            let (bytes, _, lossy) = WINDOWS_1252.encode(text);
            (!lossy).then(|| bytes.into_owned())
        }
    }
}

/// Returns the text of a complete file without its byte order mark, or `None` if encoding it again
/// would not result in the same bytes.
pub(crate) fn faithful(bytes: &[u8]) -> Option<String> {
    let abort = CancellationToken::new();
    let mut file = Cursor::new(bytes);
    let (encoding, marked) = match kind(&bytes[..bytes.len().min(SAMPLE)]) {
        FileKind::Text(guess) => {
            let scan = scan(&mut file, guess, &abort).ok()?;
            (scan.encoding, scan.marked)
        }
        FileKind::Picture | FileKind::Binary => (Encoding::Utf8, false),
    };
    let mut text = String::with_capacity(bytes.len());
    let is_valid = decode(&mut file, encoding, &abort, |piece| {
        let mark = text.is_empty() && marked;
        text.push_str(
            piece
                .strip_prefix('\u{feff}')
                .filter(|_| mark)
                .unwrap_or(piece),
        );
        true
    });
    let same = |text: &String| encode(text, encoding, marked).is_some_and(|made| made == bytes);
    Some(text).filter(|text| is_valid.unwrap_or(false) && same(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (TextScan, Excerpt) {
        let abort = CancellationToken::new();
        let FileKind::Text(guess) = kind(bytes) else {
            panic!("not text")
        };
        let mut file = Cursor::new(bytes);
        let scan = scan(&mut file, guess, &abort).unwrap();
        let text = lines(&mut file, &scan, 0, scan.lines, MAX_UNITS, &abort).unwrap();
        (scan, text)
    }

    #[test]
    fn encodings_are_detected() {
        for (bytes, text, encoding) in [
            (&b"a\nb\n"[..], "a\nb\n", Encoding::Utf8),
            (b"\xef\xbb\xbfmarked", "marked", Encoding::Utf8),
            (b"caf\xe9", "café", Encoding::Western),
            (b"\x80 in Windows", "€ in Windows", Encoding::Western),
            (b"\xff\xfeh\0i\0", "hi", Encoding::Utf16Le),
            (b"\xfe\xff\0h\0i", "hi", Encoding::Utf16Be),
        ] {
            let (scan, excerpt) = all(bytes);
            assert_eq!((excerpt.text.as_str(), scan.encoding), (text, encoding));
        }
    }

    #[test]
    fn a_text_is_faithful_if_encoding_it_gives_the_same_bytes() {
        let every: Vec<u8> = (b' '..=255).cycle().take(CHUNK + 99).collect();
        for bytes in [
            &b""[..],
            b"a\r\nb\n",
            b"caf\xe9 \x80\x81\x9d\n",
            &every,
            b"\xef\xbb\xbfmarked\n",
            b"\xff\xfeh\0i\0",
            b"\xfe\xff\0h\0i",
            b"h\0e\0l\0l\0o\0",
            b"valid \0 UTF-8",
        ] {
            let text = faithful(bytes).unwrap();
            assert!(!text.starts_with('\u{feff}'), "{text:?}");
        }
        for bytes in [
            &b"\xff\xfeh\0i\0!"[..],
            b"\xff\xfeh\0\x00\xd8i\0",
            b"not \0 UTF-8 \xe9",
        ] {
            assert_eq!(faithful(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn crlf_becomes_lf_in_files_that_mostly_use_it() {
        assert_eq!(all(b"a\r\nb\r\n").1.text, "a\nb\n");
        let rare = format!("{}a\r\n", "line\n".repeat(40));
        assert_eq!(all(rare.as_bytes()).1.text, rare);
    }

    #[test]
    fn characters_across_pieces_are_decoded() {
        let long = format!("{}é🦀\n{}", "x".repeat(CHUNK - 1), "y".repeat(CHUNK));
        assert_eq!(all(long.as_bytes()).1.text, long);
        let wide = encode(
            &format!("{}🦀", "x".repeat(CHUNK / 2 - 1)),
            Encoding::Utf16Le,
            true,
        );
        assert!(all(&wide.unwrap()).1.text.ends_with("x🦀"));
    }

    #[test]
    fn binary_files_are_detected() {
        assert_eq!(kind(b"zero \0 byte"), FileKind::Binary);
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), FileKind::Picture);
        assert_eq!(kind(b""), FileKind::Text(Encoding::Utf8));
    }

    #[test]
    fn long_texts_are_truncated() {
        let abort = CancellationToken::new();
        let mut file = Cursor::new(b"abcdef");
        let seen = scan(&mut file, Encoding::Utf8, &abort).unwrap();
        let cut = lines(&mut file, &seen, 0, 1, 3, &abort).unwrap();
        assert_eq!((cut.text.as_str(), cut.truncated), ("abc", true));
    }

    #[test]
    fn an_aborted_read_ends() {
        let abort = CancellationToken::new();
        abort.cancel();
        let read = scan(&mut Cursor::new(b"abc"), Encoding::Utf8, &abort);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
