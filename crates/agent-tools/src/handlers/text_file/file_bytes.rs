//! The bytes of a file: a small one is read at once.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

use super::CHUNK;

/// An opened file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    /// The bytes of a small file.
    Memory(Cursor<Vec<u8>>),
    /// A large file, or one that grows.
    Disk(File),
}

impl FileBytes {
    /// Reads a file that is not longer than one piece of text.
    pub(crate) fn of(mut file: File, size: u64) -> io::Result<Self> {
        if size >= CHUNK as u64 {
            return Ok(Self::Disk(file));
        }
        // One byte more, to find the end without a larger buffer.
        let room = usize::try_from(size).unwrap_or(CHUNK) + 1;
        let mut bytes = Vec::with_capacity(room);
        (&mut file).take(room as u64).read_to_end(&mut bytes)?;
        if bytes.len() == room {
            return Ok(Self::Disk(file));
        }
        Ok(Self::Memory(Cursor::new(bytes)))
    }
}

impl Read for FileBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => bytes.read(buffer),
            Self::Disk(file) => file.read(buffer),
        }
    }
}

impl Seek for FileBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Memory(bytes) => bytes.seek(to),
            Self::Disk(file) => file.seek(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::{Encoding, MAX_UNITS, SAMPLE, lines, sample, scan};
    use super::*;

    /// Some files report no size, and a file may grow while it is read.
    #[test]
    fn a_file_is_read_completely_whatever_its_size_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1, 100, SAMPLE, CHUNK - 1, CHUNK, 2 * CHUNK + 1] {
            let text = "0123456789é\n".repeat(length / 12 + 1);
            std::fs::write(&path, &text).unwrap();
            for size in [0, 1, text.len() / 2, text.len(), 2 * text.len()] {
                let abort = CancellationToken::new();
                let mut file = FileBytes::of(File::open(&path).unwrap(), size as u64).unwrap();
                assert!(text.as_bytes().starts_with(&sample(&mut file).unwrap()));
                let scan = scan(&mut file, Encoding::Utf8, &abort).unwrap();
                let read = lines(&mut file, &scan, 0, scan.lines, MAX_UNITS, &abort).unwrap();
                assert!(read.text == text, "{length} bytes, {size} reported");
            }
        }
    }
}
