//! Write-ahead log of the effects that an unfinished turn has started.
//!
//! An effect is recorded before it is executed, and the log is removed when the turn ends well.
//! After `kill -9`, the next process therefore knows what must not be executed a second time
//! without asking. The file has one line with the fingerprint of the turn's history, then one line
//! per effect. It is not synced: it survives the process, not the machine.

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
    all: Vec<String>,
    file: Option<File>,
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

    /// Reads the log of another process; `None` if there is none or it is invalid.
    pub(super) fn read(path: PathBuf) -> Option<Self> {
        let is_file = fs::metadata(&path).is_ok_and(|data| data.is_file());
        let text = is_file.then(|| fs::read_to_string(&path).ok()).flatten()?;
        // An incomplete line was being written when the process died, so its effect was not
        // executed.
        let mut lines = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let log = Self::empty(path, Fingerprint::parse(lines.next()?)?);
        log.lock().all = lines.map(str::to_owned).collect();
        Some(log)
    }

    /// Returns whether a history continues this turn.
    pub fn is_continued_by(&self, messages: &[Message]) -> bool {
        self.history.is_continued_by(messages)
    }

    /// Returns the names of the started effects, in order.
    pub fn effects(&self) -> Vec<String> {
        self.lock().all.clone()
    }

    /// Records an effect that is about to be executed.
    pub fn add(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.all.push(name.to_owned());
        let Some(file) = &mut state.file else {
            return self.write(&mut state);
        };
        let added = file.write_all(format!("{name}\n").as_bytes());
        if added.is_err() {
            // The file may end in an incomplete line, to which nothing may be appended.
            state.file = None;
        }
        added
    }

    /// Removes effects that the state on disk now includes, each name once.
    pub fn remove_committed(&self, these: &[String]) -> io::Result<()> {
        let mut state = self.lock();
        let before = state.all.len();
        for name in these {
            if let Some(at) = state.all.iter().position(|started| started == name) {
                state.all.remove(at);
            }
        }
        match state.all.len() {
            same if same == before => Ok(()),
            0 => {
                state.file = None;
                remove(&self.path)
            }
            _ => self.write(&mut state),
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
        let text = format!("{history}\n{}\n", state.all.join("\n"));
        file.write_all(text.as_bytes())?;
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
        if let Err(error) = remove(&self.path) {
            tracing::debug!(%error, "cannot remove the log of started effects");
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
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

    #[test]
    fn another_process_reads_the_log_and_continues_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        assert!(IntentLog::read(path.clone()).is_none());
        let first = IntentLog::empty(path.clone(), Fingerprint::of("S", &[Message::user("x")]));
        first.add("a").unwrap();
        first.add("b").unwrap();
        let second = IntentLog::read(path.clone()).unwrap();
        assert_eq!(second.effects(), ["a", "b"]);
        second.add("c").unwrap();
        second.add("d").unwrap();
        // A name that was written only partly.
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}half")).unwrap();
        let third = IntentLog::read(path.clone()).unwrap();
        assert_eq!(third.effects(), ["a", "b", "c", "d"]);
        third.delete();
        assert!(IntentLog::read(path.clone()).is_none() && third.effects().is_empty());
        fs::write(&path, "no history\na\n").unwrap();
        assert!(IntentLog::read(path).is_none());
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
        let read = IntentLog::read(path).unwrap();
        assert_eq!(read.effects(), ["a", "half", "b", "c"]);
    }

    #[test]
    fn effects_in_the_state_on_disk_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let log = IntentLog::empty(path.clone(), Fingerprint::of("S", &[Message::user("x")]));
        for name in ["a", "b", "a"] {
            log.add(name).unwrap();
        }
        log.remove_committed(&["a".into(), "x".into()]).unwrap();
        log.add("c").unwrap();
        let read = || IntentLog::read(path.clone()).map(|log| log.effects());
        assert_eq!(read().unwrap(), ["b", "a", "c"]);
        log.remove_committed(&["a".into(), "b".into(), "c".into()])
            .unwrap();
        assert!(read().is_none());
        log.add("d").unwrap();
        assert_eq!(read().unwrap(), ["d"]);
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
