//! The effect log on disk: one appended line for each effect that starts, and for each that the
//! stored checkpoint includes.
//!
//! An effect is written before it is executed, and the file is removed when the prompt is answered.
//! After `kill -9`, the next process therefore knows what must not be executed a second time
//! without asking. The first line is the fingerprint of the prompt's history. The file is not
//! synced: it survives the process, not the machine.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::EffectDigest;
use crate::conversation::fingerprint::Fingerprint;
use crate::message::Message;
use foundation::private_files::owner_only;

/// A line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEntry {
    /// The effect is about to be executed.
    Executing(EffectDigest),
    /// The stored checkpoint includes its result.
    InCheckpoint(EffectDigest),
    /// The checkpoint is abandoned, so that it says nothing about the effects before this entry.
    CheckpointLost,
    /// The host rewrites its history, which does not identify the prompt any more.
    Rewritten,
}

/// Marks an effect that the stored checkpoint includes.
const SAVED: &str = " saved";
const CHECKPOINT_LOST: &str = "checkpoint lost";
const REWRITTEN: &str = "rewritten";

impl FileEntry {
    /// Parses a line. Earlier sidecars wrote one line for an effect, with the mark or without; that
    /// means the same.
    fn parse(line: &str) -> Option<Self> {
        match line.strip_suffix(SAVED) {
            Some(digest) => EffectDigest::parse(digest).map(Self::InCheckpoint),
            None if line == CHECKPOINT_LOST => Some(Self::CheckpointLost),
            None if line == REWRITTEN => Some(Self::Rewritten),
            None => EffectDigest::parse(line).map(Self::Executing),
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Executing(digest) => format!("{digest}\n"),
            Self::InCheckpoint(digest) => format!("{digest}{SAVED}\n"),
            Self::CheckpointLost => format!("{CHECKPOINT_LOST}\n"),
            Self::Rewritten => format!("{REWRITTEN}\n"),
        }
    }
}

/// The effect log of a prompt on disk.
#[derive(Debug)]
pub struct EffectLogFile {
    path: PathBuf,
    history: Fingerprint,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    entries: Vec<FileEntry>,
    /// `None` before the first entry, and after a line that may be incomplete.
    file: Option<File>,
}

/// A file that another process has not removed.
#[derive(Debug)]
pub enum LeftFile {
    /// It can be read.
    Readable(EffectLogFile),
    /// It cannot be read: any effect may have been started.
    Unreadable,
}

impl EffectLogFile {
    /// Returns an empty log for a prompt with this history. The file is created with its first
    /// entry.
    pub fn new(path: PathBuf, history: Fingerprint) -> Self {
        Self {
            path,
            history,
            written: Mutex::default(),
        }
    }

    /// Reads the file of another process; `None` if there is none.
    pub fn read(path: PathBuf) -> Option<LeftFile> {
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Reading a pipe would block until something writes to it.
            Ok(data) if data.is_file() => {
                let log = Self::parse(&path);
                Some(log.map_or(LeftFile::Unreadable, LeftFile::Readable))
            }
            _ => Some(LeftFile::Unreadable),
        }
    }

    fn parse(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        // An incomplete line was being written when the process died, so its effect was not
        // executed.
        let mut lines = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let log = Self::new(path.into(), Fingerprint::parse(lines.next()?)?);
        log.lock().entries = lines.map(FileEntry::parse).collect::<Option<_>>()?;
        Some(log)
    }

    /// Returns whether a history continues this prompt.
    pub fn is_continued_by(&self, messages: &[Message]) -> bool {
        self.history.is_continued_by(messages)
    }

    /// Returns whether the host has rewritten its history since.
    pub fn is_rewritten(&self) -> bool {
        self.lock().entries.contains(&FileEntry::Rewritten)
    }

    /// Returns the entries.
    pub fn entries(&self) -> Vec<FileEntry> {
        self.lock().entries.clone()
    }

    /// Appends an entry.
    pub fn append(&self, entry: FileEntry) -> io::Result<()> {
        let mut written = self.lock();
        written.entries.push(entry);
        let Some(file) = &mut written.file else {
            return self.rewrite(&mut written);
        };
        let added = file.write_all(entry.line().as_bytes());
        if added.is_err() {
            // The file may end in an incomplete line, to which nothing may be appended.
            written.file = None;
        }
        added
    }

    /// Prepends the entries of a file whose prompt this one continues under another history.
    pub fn adopt(&self, other: &Self) {
        let adopted = other.entries().into_iter();
        let adopted = adopted.filter(|entry| *entry != FileEntry::Rewritten);
        let mut written = self.lock();
        written.entries.splice(..0, adopted);
        if let Err(error) = self.rewrite(&mut written) {
            tracing::debug!(%error, "the effect log could not be continued");
        }
    }

    /// Replaces the whole file through a temporary one, so that an incomplete write loses nothing.
    fn rewrite(&self, written: &mut Written) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut options = File::options();
        owner_only(options.create(true).write(true).truncate(true));
        let mut file = options.open(&temporary)?;
        let history = serde_json::to_string(&self.history)?;
        let lines: String = written.entries.iter().map(FileEntry::line).collect();
        file.write_all(format!("{history}\n{lines}").as_bytes())?;
        if self.path.is_dir() {
            remove(&self.path); // a file that could not be read
        }
        fs::rename(&temporary, &self.path)?;
        written.file = Some(file);
        Ok(())
    }

    /// Removes the file, because the prompt is answered.
    pub fn delete(&self) {
        *self.lock() = Written::default();
        remove(&self.path);
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a log file, whatever it is.
fn remove(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    let removed = if is_folder {
        fs::remove_dir(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, "cannot remove the effect log");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Answer, MessageKind};
    use FileEntry::{CheckpointLost, Executing, InCheckpoint, Rewritten};

    fn digest(name: u8) -> EffectDigest {
        EffectDigest::parse(&format!("{name:02x}").repeat(32)).unwrap()
    }

    fn empty(path: &Path) -> EffectLogFile {
        EffectLogFile::new(path.into(), Fingerprint::of("S", &[Message::user("x")]))
    }

    fn read(path: &Path) -> Option<EffectLogFile> {
        match EffectLogFile::read(path.into()) {
            Some(LeftFile::Readable(log)) => Some(log),
            Some(LeftFile::Unreadable) => panic!("it cannot be read"),
            None => None,
        }
    }

    #[test]
    fn another_process_reads_the_file_and_continues_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        assert!(read(&path).is_none());
        let first = empty(&path);
        let (a, b) = (Executing(digest(1)), InCheckpoint(digest(1)));
        first.append(a).unwrap();
        first.append(b).unwrap();
        let second = read(&path).unwrap();
        assert_eq!(second.entries(), [a, b]);
        second.append(CheckpointLost).unwrap();
        second.append(Rewritten).unwrap();
        // A line that was written only partly.
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}half")).unwrap();
        let third = read(&path).unwrap();
        assert_eq!(third.entries(), [a, b, CheckpointLost, Rewritten]);
        assert!(third.is_rewritten());
        let adopting = empty(&path);
        adopting.adopt(&third);
        assert_eq!(read(&path).unwrap().entries(), [a, b, CheckpointLost]);
        third.delete();
        assert!(read(&path).is_none() && third.entries().is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let history = serde_json::to_string(&Fingerprint::of("S", &[])).unwrap();
        let unknown = format!("{history}\nsomething newer\n");
        for damaged in [&b""[..], b"no history\n", b"\xff\n", unknown.as_bytes()] {
            fs::write(&path, damaged).unwrap();
            let left = EffectLogFile::read(path.clone());
            assert!(matches!(left, Some(LeftFile::Unreadable)), "{left:?}");
            remove(&path);
        }
        fs::create_dir(&path).unwrap();
        let left = EffectLogFile::read(path.clone());
        assert!(matches!(left, Some(LeftFile::Unreadable)), "{left:?}");
        remove(&path);
        assert!(read(&path).is_none());
    }

    #[test]
    fn a_failed_write_damages_no_other_entry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let log = empty(&path);
        let entries: Vec<FileEntry> = (1..5).map(|name| Executing(digest(name))).collect();
        log.append(entries[0]).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        // The disk was full in the middle of a line.
        fs::write(&path, format!("{whole}hal")).unwrap();
        log.lock().file = Some(File::open(&path).unwrap());
        log.append(entries[1]).unwrap_err();
        log.append(entries[2]).unwrap();
        log.append(entries[3]).unwrap();
        assert_eq!(read(&path).unwrap().entries(), entries);
    }

    #[test]
    fn a_prompt_continues_until_it_has_a_complete_answer() {
        let answer = |is_complete| {
            let parts = Vec::new();
            Message::new(MessageKind::Assistant(Answer { parts, is_complete }))
        };
        let before = [Message::user("x")];
        let log = empty(Path::new(""));
        let after = |more: &[Message]| log.is_continued_by(&[&before, more].concat());
        assert!(after(&[]));
        assert!(after(&[answer(false), Message::user("x")]));
        assert!(after(&[answer(false), Message::tool_result("c", "t", "")]));
        assert!(!after(&[answer(true), Message::user("x")]));
        assert!(!log.is_continued_by(&[answer(false)]));
    }
}
