//! What the printer says of a file, within bounds.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Output of one file.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;
/// What a line costs beside its text.
const LINE: usize = 64;
/// What a file holds before it says so.
const STEP: usize = 16 * 1024;

/// One line of output.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tools::native) enum Line {
    /// A line that matches or is near one.
    Text {
        /// Its number in the file.
        number: u64,
        /// What it says, shortened if it is long.
        content: String,
        /// Whether it is there for context only.
        context: bool,
    },
    /// A separator or a notice, which takes a line and says nothing.
    Other,
}

/// What the files that are searched at once hold together, and may hold.
#[derive(Debug)]
pub(super) struct Held {
    bytes: AtomicUsize,
    room: usize,
}

impl Held {
    pub(super) fn new(room: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            room,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.room
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What becomes of a file's output when too much is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is kept: its turn to be told comes first.
    Firm,
    /// It is given up, and searched again when it is its turn.
    Loose,
}

/// The output of one file as it grows.
pub(super) struct Printed<'a> {
    bytes: Vec<u8>,
    /// Not yet counted as held.
    uncounted: usize,
    held: &'a Held,
    claim: Claim,
    room: Room,
}

/// Whether more is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// It is.
    Left,
    /// This is as much as one file may print.
    Full,
    /// Others hold too much.
    GivenUp,
}

impl<'a> Printed<'a> {
    pub(super) fn new(held: &'a Held, claim: Claim) -> Self {
        Self {
            bytes: Vec::new(),
            uncounted: 0,
            held,
            claim,
            room: Room::Left,
        }
    }

    /// The lines, and why there are no more of them.
    pub(super) fn end(self) -> (Vec<Line>, Room) {
        self.held.add(self.uncounted);
        match self.room {
            Room::GivenUp => (Vec::new(), Room::GivenUp),
            room => (lines(&self.bytes), room),
        }
    }

    fn refuse(&mut self, room: Room) -> io::Result<usize> {
        self.room = room;
        Err(io::ErrorKind::FileTooLarge.into())
    }
}

impl io::Write for Printed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            return self.refuse(Room::Full);
        }
        self.bytes.extend_from_slice(bytes);
        self.uncounted += bytes.len() + usize::from(bytes.ends_with(b"\n")) * LINE;
        if self.uncounted >= STEP {
            self.held.add(std::mem::take(&mut self.uncounted));
            if self.claim == Claim::Loose && self.held.is_full() {
                return self.refuse(Room::GivenUp);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The printer's output as lines.
fn lines(output: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        lines.push(line_of(line).unwrap_or(Line::Other));
    }
    lines
}

fn line_of(line: &[u8]) -> Option<Line> {
    let rest = line.strip_prefix(b"f\0")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let context = match rest.get(digits)? {
        b':' => false,
        b'-' => true,
        _ => return None,
    };
    Some(Line::Text {
        number,
        content: String::from_utf8_lossy(&rest[digits + 1..]).into_owned(),
        context,
    })
}
