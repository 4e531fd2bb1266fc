//! The output of a command: bounded in memory, complete in a file if the request wants that.

use std::path::PathBuf;

use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

use cursor_proto::agent::v1::OutputLocation;
use foundation::private_files::owner_only;

/// The most text of one stream that is sent, in UTF-16 units.
const MAX_UNITS: usize = 1_048_576;
/// The most bytes a file of output may have.
const MAX_FILE: u64 = 52_428_800;

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Decodes UTF-8 piece by piece: a character that is cut by the end of a piece waits for the next.
#[derive(Debug, Default)]
pub(crate) struct Utf8Chunks {
    held: Vec<u8>,
}

/// A piece of output: its text, and the bytes it was decoded from.
#[derive(Debug, Default)]
pub(crate) struct OutputPiece {
    text: String,
    /// `None` if they are those of the text.
    bytes: Option<Vec<u8>>,
}

impl OutputPiece {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.text.as_bytes())
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

impl Utf8Chunks {
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> OutputPiece {
        let bytes = if self.held.is_empty() {
            match String::from_utf8(bytes) {
                Ok(text) => return OutputPiece { text, bytes: None },
                Err(error) => error.into_bytes(),
            }
        } else {
            bytes
        };
        let text = self.decode(&bytes);
        let bytes = Some(bytes);
        OutputPiece { text, bytes }
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut whole = self.held.len();
        // A character has at most four bytes; look for one that is incomplete.
        for back in 1..=self.held.len().min(3) {
            let byte = self.held[self.held.len() - back];
            let length = match byte {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                0x80..=0xbf => continue,
                _ => 1,
            };
            if length > back {
                whole -= back;
            }
            break;
        }
        let text = String::from_utf8_lossy(&self.held[..whole]).into_owned();
        self.held.drain(..whole);
        text
    }

    /// Returns the rest, whose bytes were passed on before.
    pub(crate) fn end(&mut self) -> OutputPiece {
        let rest = std::mem::take(&mut self.held);
        OutputPiece {
            text: String::from_utf8_lossy(&rest).into_owned(),
            bytes: Some(Vec::new()),
        }
    }
}

/// Limits a text to its first [`MAX_UNITS`].
#[derive(Debug, Default)]
pub(crate) struct OutputLimit {
    units: usize,
}

impl OutputLimit {
    /// Returns as much of a piece as still fits.
    pub(crate) fn fit(&mut self, text: String) -> String {
        let room = MAX_UNITS - self.units;
        if text.len() <= room {
            self.units += if text.is_ascii() {
                text.len()
            } else {
                text.encode_utf16().count()
            };
            return text;
        }
        let mut fitting = String::new();
        for letter in text.chars() {
            if self.units + letter.len_utf16() > MAX_UNITS {
                break;
            }
            self.units += letter.len_utf16();
            fitting.push(letter);
        }
        fitting
    }
}

/// Output that is written to a file once it exceeds a threshold.
#[derive(Debug)]
pub(crate) struct OutputSpill {
    threshold: Option<u64>,
    most_lines: u64,
    path: PathBuf,
    held: Vec<u8>,
    file: Option<File>,
    bytes: u64,
    lines: u64,
}

impl OutputSpill {
    /// Writes output longer than `threshold` to a file at `path`; without a threshold, none.
    pub(crate) fn new(threshold: Option<u64>, path: PathBuf) -> Self {
        Self {
            threshold,
            most_lines: u64::MAX,
            path,
            held: Vec::new(),
            file: None,
            bytes: 0,
            lines: 0,
        }
    }

    /// Also writes output with more line breaks than this.
    pub(crate) fn or_lines(self, most_lines: u64) -> Self {
        Self { most_lines, ..self }
    }

    pub(crate) async fn push(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(threshold) = self.threshold else {
            return Ok(());
        };
        let room = usize::try_from(MAX_FILE - self.bytes).unwrap_or(0);
        let bytes = &bytes[..bytes.len().min(room)];
        self.bytes += bytes.len() as u64;
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if let Some(file) = &mut self.file {
            return file.write_all(bytes).await;
        }
        self.held.extend_from_slice(bytes);
        if self.bytes > threshold || self.lines > self.most_lines {
            let held = std::mem::take(&mut self.held);
            // If the file cannot be written, nothing more is held for it.
            self.threshold = None;
            let mut options = std::fs::OpenOptions::new();
            owner_only(options.write(true).create_new(true));
            let mut file = OpenOptions::from(options).open(&self.path).await?;
            file.write_all(&held).await?;
            (self.file, self.threshold) = (Some(file), Some(threshold));
        }
        Ok(())
    }

    /// Flushes the file and returns its location, or `None` if the output is not in a file.
    pub(crate) async fn location(&mut self) -> Option<OutputLocation> {
        let mut file = self.file.take()?;
        file.flush().await.ok()?;
        Some(OutputLocation {
            file_path: self.path.to_string_lossy().into_owned(),
            size_bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX),
            line_count: i64::try_from(self.lines).unwrap_or(i64::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_is_the_same_wherever_the_pieces_are_cut(text in "\\PC*", cuts in prop::collection::vec(0usize..64, 0..8)) {
            let bytes = text.as_bytes();
            let mut chunks = Utf8Chunks::default();
            let mut got = String::new();
            let mut at = 0;
            for cut in cuts {
                let end = (at + cut).min(bytes.len());
                let piece = chunks.push(bytes[at..end].to_vec());
                prop_assert_eq!(piece.bytes(), &bytes[at..end]);
                got.push_str(piece.text());
                at = end;
            }
            got.push_str(chunks.push(bytes[at..].to_vec()).text());
            got.push_str(chunks.end().text());
            prop_assert_eq!(got, text);
        }
    }

    #[test]
    fn invalid_utf8_becomes_a_replacement_character() {
        let mut chunks = Utf8Chunks::default();
        let mut text = |bytes: &[u8]| chunks.push(bytes.to_vec()).into_text();
        assert_eq!(text(b"caf\xe9\n"), "caf\u{fffd}\n");
        assert_eq!(text(b"\xe2\x82"), "");
        assert_eq!(chunks.end().text(), "\u{fffd}");
    }

    #[test]
    fn long_output_is_truncated() {
        let mut limit = OutputLimit::default();
        assert_eq!(limit.fit("x".repeat(MAX_UNITS - 1)).len(), MAX_UNITS - 1);
        assert_eq!(limit.fit("🦀yz".into()), "");
        assert_eq!(limit.fit("yz".into()), "y");
        assert_eq!(limit.fit("yz".into()), "");
    }

    #[tokio::test]
    async fn only_output_over_the_threshold_is_written_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let mut spill = OutputSpill::new(Some(4), path.clone());
        spill.push(b"a\nb\n").await.unwrap();
        assert!(!path.exists());
        spill.push(b"c\n").await.unwrap();
        let location = spill.location().await.unwrap();
        assert_eq!((location.size_bytes, location.line_count), (6, 3));
        assert_eq!(std::fs::read(&path).unwrap(), b"a\nb\nc\n");
    }
}
