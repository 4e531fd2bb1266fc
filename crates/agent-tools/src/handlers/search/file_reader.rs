//! The bytes of a file, read with as few calls of the system as possible.

use std::fs::File;
use std::io::{self, Read};

use super::StopCondition;

/// A file whose reads fail once the search has to stop.
pub(super) struct FileReader<'a> {
    file: &'a File,
    stop: &'a StopCondition<'a>,
    /// The size of the file when it was opened.
    size: u64,
    buffer: &'a mut [u8],
    /// The part of the buffer that has not been passed on.
    start: usize,
    end: usize,
    /// How much has been read from the file.
    position: u64,
    is_at_end: bool,
}

impl<'a> FileReader<'a> {
    pub(super) fn new(
        file: &'a File,
        size: u64,
        stop: &'a StopCondition<'a>,
        buffer: &'a mut [u8],
    ) -> Self {
        Self {
            file,
            stop,
            size,
            buffer,
            start: 0,
            end: 0,
            position: 0,
            is_at_end: false,
        }
    }
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            if self.is_at_end {
                return Ok(0);
            }
            self.stop.check().map_err(io::Error::other)?;
            // Not interrupted by signals: their handlers restart calls.
            let count = self.file.read(self.buffer)?;
            self.position += count as u64;
            (self.start, self.end) = (0, count);
            // A short read that ends where the file did is the last.
            self.is_at_end =
                count == 0 || (count < self.buffer.len() && self.position == self.size);
        }
        let count = buffer.len().min(self.end - self.start);
        buffer[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn a_file_is_read_completely_whatever_its_size_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let abort = CancellationToken::new();
        let stop = StopCondition {
            deadline: Instant::now() + Duration::from_secs(600),
            abort: &abort,
        };
        for length in [0, 1, 9, 10, 11, 20, 25] {
            let bytes: Vec<u8> = (0..length).collect();
            std::fs::write(&path, &bytes).unwrap();
            for size in [0, 1, u64::from(length), 99] {
                let (file, mut buffer) = (File::open(&path).unwrap(), [0; 10]);
                let mut reader = FileReader::new(&file, size, &stop, &mut buffer);
                let (mut read, mut piece) = (Vec::new(), [0; 3]);
                while let count @ 1.. = reader.read(&mut piece).unwrap() {
                    read.extend_from_slice(&piece[..count]);
                }
                assert_eq!(read, bytes, "{size} reported");
            }
        }
        abort.cancel();
        let file = File::open(&path).unwrap();
        assert!(
            FileReader::new(&file, 25, &stop, &mut [0; 10])
                .read(&mut [0])
                .is_err()
        );
    }
}
