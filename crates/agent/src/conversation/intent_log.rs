//! Write-ahead log of the effects that an unfinished turn has started.
//!
//! An effect is recorded before it is executed, and the log is removed when the turn ends well.
//! After `kill -9`, the next process therefore knows what must not be executed a second time
//! without asking. An effect that the checkpoint on disk includes stays recorded, because the
//! server may refuse that checkpoint. The file has one line with the fingerprint of the turn's
//! history, then one line per effect: its name, and ` saved` if the checkpoint includes it. It is
//! not synced: it survives the process, not the machine.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fingerprint::Fingerprint;
use crate::message::Message;

/// The effects that a turn has started.
#[derive(Debug)]
pub struct IntentLog {
    path: PathBuf,
    history: Fingerprint,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    all: Vec<Name>,
    file: Option<File>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    text: String,
    /// Whether the checkpoint on disk includes the effect.
    saved: bool,
}

/// Marks a line whose effect the checkpoint on disk includes.
const SAVED: &str = " saved";

impl Name {
    fn parse(line: &str) -> Self {
        let (text, saved) = match line.strip_suffix(SAVED) {
            Some(text) => (text, true),
            None => (line, false),
        };
        Self {
            text: text.into(),
            saved,
        }
    }

    fn line(&self) -> String {
        let mark = if self.saved { SAVED } else { "" };
        format!("{}{mark}\n", self.text)
    }
}

/// A log that another process has not removed.
#[derive(Debug)]
pub enum Left {
    /// It can be read.
    Log(IntentLog),
    /// It cannot be read: any effect may have been started.
    Unreadable,
}

impl IntentLog {
    /// Returns an empty log for a turn with this history.
    pub(super) fn empty(path: PathBuf, history: Fingerprint) -> Self {
        let state = Mutex::new(LogState {
            all: Vec::new(),
            file: None,
        });
        Self {
            path,
            history,
            state,
        }
    }

    /// Reads the log of another process; `None` if there is none.
    pub(super) fn read(path: PathBuf) -> Option<Left> {
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Reading a pipe would block until something writes to it.
            Ok(data) if data.is_file() => match Self::parse(&path) {
                Some(log) => Some(Left::Log(log)),
                None => Some(Left::Unreadable),
            },
            _ => Some(Left::Unreadable),
        }
    }

    fn parse(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        // An incomplete line was being written when the process died, so its effect was not
        // executed.
        let mut lines = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let log = Self::empty(path.into(), Fingerprint::parse(lines.next()?)?);
        log.lock().all = lines.map(Name::parse).collect();
        Some(log)
    }

    /// Returns whether a history continues this turn.
    pub fn is_continued_by(&self, messages: &[Message]) -> bool {
        self.history.is_continued_by(messages)
    }

    /// Returns the names of the started effects that the checkpoint on disk does not include, in
    /// order.
    pub fn unsaved(&self) -> Vec<String> {
        self.select(|name| !name.saved)
    }

    /// Returns the names of those that it includes.
    pub fn saved(&self) -> Vec<String> {
        self.select(|name| name.saved)
    }

    fn select(&self, which: impl Fn(&Name) -> bool) -> Vec<String> {
        let names = self.lock();
        let selected = names.all.iter().filter(|name| which(name));
        selected.map(|name| name.text.clone()).collect()
    }

    /// Records an effect that is about to be executed.
    pub fn add(&self, name: &str) -> io::Result<()> {
        let mut names = self.lock();
        let name = Name {
            text: name.to_owned(),
            saved: false,
        };
        let line = name.line();
        names.all.push(name);
        let Some(file) = &mut names.file else {
            return self.write(&mut names);
        };
        let added = file.write_all(line.as_bytes());
        if added.is_err() {
            // The file may end in an incomplete line, to which nothing may be appended.
            names.file = None;
        }
        added
    }

    /// Marks effects that the checkpoint on disk now includes, each name once.
    pub fn mark_saved(&self, these: &[String]) -> io::Result<()> {
        let mut names = self.lock();
        let mut changed = false;
        for text in these {
            let mut unsaved = names.all.iter_mut().filter(|name| !name.saved);
            if let Some(name) = unsaved.find(|name| name.text == *text) {
                (name.saved, changed) = (true, true);
            }
        }
        if changed {
            self.write(&mut names)?;
        }
        Ok(())
    }

    /// Records the effects of a log whose turn this one continues under another history.
    pub fn adopt(&self, other: &Self) {
        let adopted = other.lock().all.clone();
        let mut names = self.lock();
        names.all.splice(..0, adopted);
        if let Err(error) = self.write(&mut names) {
            tracing::debug!(%error, "the log of started effects could not be continued");
        }
    }

    /// Replaces the whole file through a temporary one, so that an incomplete write loses nothing.
    fn write(&self, state: &mut LogState) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut file = File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        let history = serde_json::to_string(&self.history)?;
        let lines: String = state.all.iter().map(Name::line).collect();
        let text = format!("{history}\n{lines}");
        file.write_all(text.as_bytes())?;
        if self.path.is_dir() {
            remove(&self.path); // a log that could not be read
        }
        fs::rename(&temporary, &self.path)?;
        state.file = Some(file);
        Ok(())
    }

    /// Removes the log, because the turn has ended.
    pub fn delete(&self) {
        *self.lock() = LogState {
            all: Vec::new(),
            file: None,
        };
        remove(&self.path);
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a log, whatever it is.
pub(super) fn remove(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    let removed = if is_folder {
        fs::remove_dir(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, "cannot remove the log of started effects");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Answer, MessageKind};

    fn answer(is_complete: bool) -> Message {
        Message::new(MessageKind::Assistant(Answer {
            parts: Vec::new(),
            is_complete,
        }))
    }

    fn read(path: &Path) -> Option<IntentLog> {
        match IntentLog::read(path.into()) {
            Some(Left::Log(log)) => Some(log),
            Some(Left::Unreadable) => panic!("it cannot be read"),
            None => None,
        }
    }

    #[test]
    fn another_process_reads_the_log_and_continues_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        assert!(read(&path).is_none());
        let first = IntentLog::empty(path.clone(), Fingerprint::of("S", &[Message::user("x")]));
        first.add("a").unwrap();
        first.add("b").unwrap();
        let second = read(&path).unwrap();
        assert_eq!(second.unsaved(), ["a", "b"]);
        second.add("c").unwrap();
        second.add("d").unwrap();
        // A name that was written only partly.
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}half")).unwrap();
        let third = read(&path).unwrap();
        assert_eq!(third.unsaved(), ["a", "b", "c", "d"]);
        third.delete();
        assert!(read(&path).is_none() && third.unsaved().is_empty());
    }

    #[test]
    fn a_log_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        for damaged in [&b""[..], b"no history\na\n", b"\xff\n"] {
            fs::write(&path, damaged).unwrap();
            let left = IntentLog::read(path.clone());
            assert!(matches!(left, Some(Left::Unreadable)), "{left:?}");
            remove(&path);
        }
        fs::create_dir(&path).unwrap();
        let left = IntentLog::read(path.clone());
        assert!(matches!(left, Some(Left::Unreadable)), "{left:?}");
        remove(&path);
        assert!(read(&path).is_none());
    }

    #[test]
    fn a_failed_write_damages_no_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let log = IntentLog::empty(path.clone(), Fingerprint::of("S", &[Message::user("x")]));
        log.add("a").unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        // The disk was full in the middle of a line.
        fs::write(&path, format!("{whole}hal")).unwrap();
        log.lock().file = Some(File::open(&path).unwrap());
        log.add("half").unwrap_err();
        log.add("b").unwrap();
        log.add("c").unwrap();
        assert_eq!(read(&path).unwrap().unsaved(), ["a", "half", "b", "c"]);
    }

    #[test]
    fn effects_in_the_checkpoint_on_disk_are_kept_and_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let log = IntentLog::empty(path.clone(), Fingerprint::of("S", &[Message::user("x")]));
        for name in ["a", "b", "a"] {
            log.add(name).unwrap();
        }
        log.mark_saved(&["a".into(), "x".into()]).unwrap();
        log.add("c").unwrap();
        let both = || {
            let log = read(&path).unwrap();
            (log.unsaved(), log.saved())
        };
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(both(), (names(&["b", "a", "c"]), names(&["a"])));
        log.mark_saved(&names(&["a", "b", "c"])).unwrap();
        assert_eq!(both(), (names(&[]), names(&["a", "b", "a", "c"])));
        log.add("d").unwrap();
        assert_eq!(both().0, ["d"]);
    }

    #[test]
    fn a_turn_continues_until_it_has_a_complete_answer() {
        let before = [Message::user("x")];
        let log = IntentLog::empty(PathBuf::new(), Fingerprint::of("S", &before));
        let after = |more: &[Message]| log.is_continued_by(&[&before, more].concat());
        assert!(after(&[]));
        assert!(after(&[answer(false), Message::user("x")]));
        assert!(after(&[answer(false), Message::tool_result("c", "t", "")]));
        assert!(!after(&[answer(true), Message::user("x")]));
        assert!(!log.is_continued_by(&[answer(false)]));
    }
}
