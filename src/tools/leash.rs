//! A second process that ends our commands when we no longer can.
//!
//! Commands are process groups of their own, so a sidecar that is killed would leave them
//! running. The leash is this same program in a process and a group of its own, started before
//! the first command: it is told every group over a pipe, and the pipe's end tells it that we
//! are gone. Folders that must not outlive us are told the same way.
//!
//! A group is told right after its start, and can be left. Who was started in the very instant
//! we were killed, or has left its group, is found by the [`mark`] it bears, where the system
//! shows such marks.

mod mark;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process_group, wait,
};

use self::mark::Mark;

/// The argument that makes this program a leash.
pub const ARGUMENT: &str = "leash";
/// How often we look for who left its group: who is found may have started another in the meantime.
const ROUNDS: usize = 5;
/// How long orphaned commands may take to end when they are asked to.
const GRACE: Duration = Duration::from_secs(1);
/// How long we wait for what we killed, so that nobody else has to.
const REAP: Duration = Duration::from_millis(500);
/// How often we look.
const LOOK: Duration = Duration::from_millis(2);

/// Our end of it, shared by all who start commands. The default is none: commands end with
/// their owners only.
#[derive(Debug, Clone, Default)]
pub struct Leash(Option<Arc<Mutex<Held>>>);

#[derive(Debug)]
struct Held {
    stage: Stage,
    groups: BTreeSet<i32>,
    folders: BTreeSet<String>,
    mark: Mark,
    holder: Option<Child>,
    complaint: Complaint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Commands are leashed.
    Used,
    /// We are about to end: nothing may be started any more.
    Over,
}

/// Whether somebody was told that there is no second process: once is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complaint {
    None,
    Made,
}

impl Leash {
    /// A leash for this program's commands. Costs nothing until the first one.
    pub fn new() -> Self {
        Self(Some(Arc::new(Mutex::new(Held {
            stage: Stage::Used,
            groups: BTreeSet::new(),
            folders: BTreeSet::new(),
            mark: Mark::random(),
            holder: None,
            complaint: Complaint::None,
        }))))
    }

    fn held(&self) -> Option<MutexGuard<'_, Held>> {
        let held = self.0.as_ref()?;
        Some(held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the second process, if it is not there.
    pub(super) fn ready(&self) {
        if let Some(mut held) = self.held() {
            held.ready();
        }
    }

    /// Has a group ended when we are gone. Fails when we are about to go ourselves.
    pub(super) fn enter(&self, group: Pid) -> io::Result<()> {
        let Some(mut held) = self.held() else {
            return Ok(());
        };
        if held.stage == Stage::Over {
            return Err(io::Error::other("the sidecar is ending"));
        }
        held.groups.insert(group.as_raw_nonzero().get());
        if held.tell("enter", group.as_raw_nonzero()).is_err() {
            // A new one is told all groups.
            held.drop_holder();
            held.ready();
        }
        Ok(())
    }

    /// Forgets a group that is gone: its number may soon be another's.
    pub(super) fn leave(&self, group: Pid) {
        let Some(mut held) = self.held() else {
            return;
        };
        let id = group.as_raw_nonzero();
        if held.groups.remove(&id.get()) && held.tell("leave", id).is_err() {
            held.drop_holder();
        }
    }

    /// Has a folder removed when we are gone. Fails when we are about to go ourselves.
    pub(super) fn keep(&self, folder: &Path) -> io::Result<()> {
        let (Some(mut held), Some(name)) = (self.held(), nameable(folder)) else {
            return Ok(());
        };
        if held.stage == Stage::Over {
            return Err(io::Error::other("the sidecar is ending"));
        }
        if held.tell("keep", name).is_err() {
            held.drop_holder();
        }
        held.folders.insert(name.to_owned());
        Ok(())
    }

    /// Forgets a folder that is gone.
    pub(super) fn forget(&self, folder: &Path) {
        let (Some(mut held), Some(name)) = (self.held(), nameable(folder)) else {
            return;
        };
        if held.folders.remove(name) && held.tell("forget", name).is_err() {
            held.drop_holder();
        }
    }

    /// Ends all commands and waits a moment for them, so that no dead process of ours is left
    /// to whoever comes after us. Folders go last. Nothing can be started afterwards.
    pub fn end_all(&self) {
        let Some(mut held) = self.held() else {
            return;
        };
        held.stage = Stage::Over;
        for group in std::mem::take(&mut held.groups) {
            if let Some(group) = Pid::from_raw(group) {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = held.tell("leave", group.as_raw_nonzero());
            }
        }
        let folders = std::mem::take(&mut held.folders);
        let mark = held.holder.is_some().then_some(held.mark);
        // It must not take us for one of those we left behind.
        mark::take_off();
        // Its input ends: so does it.
        drop(held.holder.as_mut().and_then(|child| child.stdin.take()));
        drop(held);
        let started = Instant::now();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) if started.elapsed() < REAP => std::thread::sleep(LOOK),
                Ok(None) | Err(_) => break,
            }
        }
        if let Some(mark) = mark {
            end_marked(mark);
        }
        remove_all(&folders);
    }
}

/// Ends all processes with a mark.
fn end_marked(mark: Mark) {
    for _ in 0..ROUNDS {
        let found = mark.bearers();
        if found.is_empty() {
            return;
        }
        for process in found {
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
}

/// A folder's name as a line can carry it.
fn nameable(folder: &Path) -> Option<&str> {
    folder.to_str().filter(|name| !name.contains('\n'))
}

fn remove_all(folders: &BTreeSet<String>) {
    for folder in folders {
        // Somebody may just write a file there.
        let gone = (0..ROUNDS).any(|_| match std::fs::remove_dir_all(folder) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        });
        if !gone {
            tracing::warn!("a folder in the temporary folder could not be removed");
        }
    }
}

impl Held {
    fn ready(&mut self) {
        let alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if self.stage == Stage::Over || self.holder.as_mut().is_some_and(alive) {
            return;
        }
        match start(self) {
            Ok(holder) => {
                self.holder = Some(holder);
                if let Err(error) = self.mark.wear() {
                    tracing::debug!(%error, "commands that leave their group may outlive us");
                }
            }
            Err(error) => {
                self.holder = None;
                if std::mem::replace(&mut self.complaint, Complaint::Made) == Complaint::None {
                    tracing::warn!(error = %error.kind(), "commands may outlive a killed sidecar");
                }
            }
        }
    }

    /// Tells the leash something; without one there is nobody to tell.
    fn tell(&mut self, word: &str, what: impl Display) -> io::Result<()> {
        let stdin = self.holder.as_mut().and_then(|child| child.stdin.as_mut());
        let line = format!("{word} {what}\n");
        stdin.map_or(Ok(()), |stdin| stdin.write_all(line.as_bytes()))
    }

    /// Lets go of a leash that does not listen. It must not come back to life and end groups
    /// whose numbers are others' by then.
    fn drop_holder(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Starts a leash that knows all there is to know.
fn start(held: &Held) -> io::Result<Child> {
    let mut child = Command::new(own_program()?)
        .arg0("cursor-leash")
        .arg(ARGUMENT)
        // It needs nothing of ours, and holds nothing: no secret, no folder, no pipe.
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let told = child.stdin.as_mut().map_or(Ok(()), |stdin| {
        // Rather a new leash than a wait for one that was stopped.
        fcntl_setfl(&*stdin, OFlags::NONBLOCK)?;
        let groups = held.groups.iter().map(|id| format!("enter {id}\n"));
        let folders = held.folders.iter().map(|name| format!("keep {name}\n"));
        let mark = std::iter::once(format!("mark {}\n", held.mark.name()));
        let lines: String = mark.chain(groups).chain(folders).collect();
        stdin.write_all(lines.as_bytes())
    });
    match told {
        Ok(()) => Ok(child),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// This program, even if its file was replaced since it was started.
fn own_program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok("/proc/self/exe".into()),
        false => std::env::current_exe(),
    }
}

/// The life of a leash: hears of groups until nobody tells, then ends those that are left,
/// and removes the folders.
pub fn hold() {
    mark::take_off();
    let mut told = Told::default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        told.heed(&line);
    }
    end(told.groups);
    if let Some(mark) = told.mark {
        end_marked(mark);
    }
    remove_all(&told.folders);
}

fn end(mut groups: BTreeSet<i32>) {
    let signal_all = |groups: &BTreeSet<i32>, signal| {
        for group in groups.iter().copied().filter_map(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    };
    let is_alive =
        |id: &i32| Pid::from_raw(*id).is_some_and(|group| test_kill_process_group(group).is_ok());
    signal_all(&groups, Signal::TERM);
    let started = Instant::now();
    loop {
        groups.retain(is_alive);
        if groups.is_empty() {
            return;
        }
        if started.elapsed() >= GRACE {
            return signal_all(&groups, Signal::KILL);
        }
        std::thread::sleep(LOOK * 5);
    }
}

/// What a leash knows.
#[derive(Debug, Default)]
struct Told {
    groups: BTreeSet<i32>,
    folders: BTreeSet<String>,
    mark: Option<Mark>,
}

impl Told {
    /// Takes one line to heart.
    fn heed(&mut self, line: &str) {
        let Some((word, what)) = line.split_once(' ') else {
            return;
        };
        match (word, what.parse()) {
            // 1 would mean everybody.
            ("enter", Ok(id @ 2..)) => self.groups.insert(id),
            ("leave", Ok(id)) => self.groups.remove(&id),
            ("keep", _) => self.folders.insert(what.to_owned()),
            ("forget", _) => self.folders.remove(what),
            ("mark", _) => {
                self.mark = Mark::parse(what);
                true
            }
            _ => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_and_go_and_nobody_else_is_meant() {
        let mut told = Told::default();
        for line in [
            "enter 12",
            "enter 13",
            "leave 12",
            "enter 1",
            "enter 0",
            "enter -5",
            "enter x",
            "enter",
            "",
            "kill 14",
            "keep /a b",
            "keep /c",
            "forget /a b",
        ] {
            told.heed(line);
        }
        assert_eq!(told.groups, BTreeSet::from([13]));
        assert_eq!(told.folders, BTreeSet::from(["/c".to_owned()]));
    }
}
