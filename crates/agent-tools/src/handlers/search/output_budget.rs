//! The printer's output for one file, bounded in memory.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most output of one file.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;
/// The memory of a line in addition to its text.
const LINE: usize = 64;
/// How many bytes a file collects before it adds them to the shared total.
const STEP: usize = 16 * 1024;

/// One line of output.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::handlers) enum OutputLine {
    /// A line that matches or is near one.
    Text {
        /// Its number in the file.
        number: u64,
        /// Its text, shortened if it is long.
        content: String,
        /// Whether it is context and does not match itself.
        context: bool,
    },
    /// A separator or a notice, which counts as a line without text.
    Other,
}

/// The memory used by the files of a batch together, and its limit.
#[derive(Debug)]
pub(super) struct SharedBudget {
    bytes: AtomicUsize,
    room: usize,
}

impl SharedBudget {
    pub(super) fn new(room: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            room,
        }
    }

    /// Forgets the files of the last batch.
    pub(super) fn reset(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.room
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The output of one file as it grows. Used for one file after the other.
pub(super) struct FileOutput<'a> {
    bytes: Vec<u8>,
    /// Bytes not yet added to the shared total.
    uncounted: usize,
    held: &'a SharedBudget,
    /// Whether the output is dropped when the limit of the batch is exceeded, so that the file is
    /// searched again in a later batch. The first file's is not: it is the next to be reported.
    is_deferrable: bool,
    room: BudgetState,
}

/// Whether more output is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetState {
    /// More is accepted.
    Left,
    /// The limit of one file is reached.
    Full,
    /// The limit of the batch is reached.
    Dropped,
}

impl<'a> FileOutput<'a> {
    pub(super) fn new(held: &'a SharedBudget) -> Self {
        Self {
            bytes: Vec::new(),
            uncounted: 0,
            held,
            is_deferrable: false,
            room: BudgetState::Left,
        }
    }

    /// Begins the output of a file.
    pub(super) fn start(&mut self, is_deferrable: bool) {
        self.is_deferrable = is_deferrable;
        self.uncounted = 0;
        self.room = BudgetState::Left;
        self.bytes.clear();
    }

    /// Returns the lines of the file, and whether a limit was reached.
    pub(super) fn finish(&mut self) -> (Vec<OutputLine>, BudgetState) {
        self.held.add(std::mem::take(&mut self.uncounted));
        let bytes = std::mem::take(&mut self.bytes);
        match self.room {
            BudgetState::Dropped => (Vec::new(), BudgetState::Dropped),
            room => (lines(&bytes), room),
        }
    }

    fn refuse(&mut self, room: BudgetState) -> io::Result<usize> {
        self.room = room;
        Err(io::ErrorKind::FileTooLarge.into())
    }
}

impl io::Write for FileOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            return self.refuse(BudgetState::Full);
        }
        self.bytes.extend_from_slice(bytes);
        self.uncounted += bytes.len() + usize::from(bytes.ends_with(b"\n")) * LINE;
        if self.uncounted >= STEP {
            self.held.add(std::mem::take(&mut self.uncounted));
            if self.is_deferrable && self.held.is_full() {
                return self.refuse(BudgetState::Dropped);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Splits the printer's output into lines.
fn lines(output: &[u8]) -> Vec<OutputLine> {
    let mut lines = Vec::new();
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        lines.push(line_of(line).unwrap_or(OutputLine::Other));
    }
    lines
}

fn line_of(line: &[u8]) -> Option<OutputLine> {
    let rest = line.strip_prefix(b"f\0")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let context = match rest.get(digits)? {
        b':' => false,
        b'-' => true,
        _ => return None,
    };
    Some(OutputLine::Text {
        number,
        content: String::from_utf8_lossy(&rest[digits + 1..]).into_owned(),
        context,
    })
}
