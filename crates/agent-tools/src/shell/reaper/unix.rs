//! A second process that kills our commands if this process dies first.
//!
//! Commands run in their own process groups, so they would keep running if the sidecar were
//! killed. The reaper is this same program in a separate process and group, started before the
//! first command or temporary folder. It receives every group id over a pipe and treats end of
//! file on that pipe as our death. Temporary folders that must be removed with us are registered
//! the same way.
//!
//! A group is registered right after it starts, and a process can leave its group. Processes that
//! were started just before we were killed, or that left their group, are found by the [`mark`]
//! they inherited, on systems that expose it.

mod process_tag;

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

use super::{ARGUMENT, ROUNDS, remove_all};
use process_tag::ProcessTag;

/// How long orphaned commands may take to exit after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait for killed processes, so that they are reaped here.
const REAP: Duration = Duration::from_millis(500);
/// The polling interval.
const LOOK: Duration = Duration::from_millis(2);

/// A handle to the reaper process, shared by everything that starts commands. The default has no
/// reaper: commands then end only with their owners.
#[derive(Debug, Clone, Default)]
pub struct ChildReaper(Option<Arc<Mutex<ReaperState>>>);

#[derive(Debug)]
struct ReaperState {
    /// Whether the sidecar is shutting down: no new command may start.
    shutting_down: bool,
    groups: BTreeSet<i32>,
    folders: BTreeSet<String>,
    mark: ProcessTag,
    holder: Option<Child>,
    /// Whether the missing reaper process was already logged; it is logged once.
    failure_logged: bool,
}

impl ChildReaper {
    /// Creates a reaper for this program's commands. The process starts with the first command or
    /// folder.
    pub fn new() -> Self {
        Self(Some(Arc::new(Mutex::new(ReaperState {
            shutting_down: false,
            groups: BTreeSet::new(),
            folders: BTreeSet::new(),
            mark: ProcessTag::random(),
            holder: None,
            failure_logged: false,
        }))))
    }

    fn held(&self) -> Option<MutexGuard<'_, ReaperState>> {
        let held = self.0.as_ref()?;
        Some(held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the reaper process if it is not running.
    pub(crate) fn ready(&self) {
        if let Some(mut held) = self.held() {
            held.ready();
        }
    }

    /// Registers a group to be killed if we die. Fails if the sidecar is shutting down.
    pub(crate) fn enter(&self, group: Pid) -> io::Result<()> {
        let Some(mut held) = self.held() else {
            return Ok(());
        };
        if held.shutting_down {
            return Err(io::Error::other("the sidecar is ending"));
        }
        held.groups.insert(group.as_raw_nonzero().get());
        if held.send("enter", group.as_raw_nonzero()).is_err() {
            // A new reaper process receives all groups on start.
            held.drop_holder();
            held.ready();
        }
        Ok(())
    }

    /// Unregisters a group that has ended, because the system may reuse its id.
    pub(crate) fn leave(&self, group: Pid) {
        let Some(mut held) = self.held() else {
            return;
        };
        let id = group.as_raw_nonzero();
        if held.groups.remove(&id.get()) && held.send("leave", id).is_err() {
            held.drop_holder();
        }
    }

    /// Registers a folder to be removed if we die, and starts the reaper process, because the
    /// folder may exist long before the first command. Fails if the sidecar is shutting down.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<()> {
        let (Some(mut held), Some(name)) = (self.held(), as_line(folder)) else {
            return Ok(());
        };
        if held.shutting_down {
            return Err(io::Error::other("the sidecar is ending"));
        }
        if held.send("keep", name).is_err() {
            held.drop_holder();
        }
        held.folders.insert(name.to_owned());
        // A new reaper process receives all folders on start.
        held.ready();
        Ok(())
    }

    /// Unregisters a folder that was removed.
    pub(crate) fn forget(&self, folder: &Path) {
        let (Some(mut held), Some(name)) = (self.held(), as_line(folder)) else {
            return;
        };
        if held.folders.remove(name) && held.send("forget", name).is_err() {
            held.drop_holder();
        }
    }

    /// Kills all commands, waits briefly to reap them, then removes the folders. Nothing can be
    /// started afterwards.
    pub fn end_all(&self) {
        let Some(mut held) = self.held() else {
            return;
        };
        held.shutting_down = true;
        for group in std::mem::take(&mut held.groups) {
            if let Some(group) = Pid::from_raw(group) {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = held.send("leave", group.as_raw_nonzero());
            }
        }
        let folders = std::mem::take(&mut held.folders);
        let mark = held.holder.is_some().then_some(held.mark);
        // Otherwise the reaper would kill us as one of our own descendants.
        process_tag::clear();
        // The reaper exits at the end of its input.
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

/// Kills all processes that carry the mark.
fn end_marked(mark: ProcessTag) {
    for _ in 0..ROUNDS {
        let found = mark.tagged_processes();
        if found.is_empty() {
            return;
        }
        for process in found {
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the folder's name if it can be sent as one line.
fn as_line(folder: &Path) -> Option<&str> {
    folder.to_str().filter(|name| !name.contains('\n'))
}

impl ReaperState {
    fn ready(&mut self) {
        let alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if self.shutting_down || self.holder.as_mut().is_some_and(alive) {
            return;
        }
        match start(self) {
            Ok(holder) => {
                self.holder = Some(holder);
                if let Err(error) = self.mark.apply() {
                    tracing::debug!(%error, "commands that leave their group may outlive us");
                }
            }
            Err(error) => {
                self.holder = None;
                if !std::mem::replace(&mut self.failure_logged, true) {
                    tracing::warn!(error = %error.kind(), "commands may outlive a killed sidecar");
                }
            }
        }
    }

    /// Sends a line to the reaper process. Does nothing if there is none.
    fn send(&mut self, word: &str, what: impl Display) -> io::Result<()> {
        let stdin = self.holder.as_mut().and_then(|child| child.stdin.as_mut());
        let line = format!("{word} {what}\n");
        stdin.map_or(Ok(()), |stdin| stdin.write_all(line.as_bytes()))
    }

    /// Kills a reaper process that does not read its input. It must not resume later and kill
    /// groups whose ids were reused.
    fn drop_holder(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Starts a reaper process and sends it the mark and all registered groups and folders.
fn start(held: &ReaperState) -> io::Result<Child> {
    let mut child = Command::new(own_program()?)
        .arg0("cursor-reaper")
        .arg(ARGUMENT)
        // It inherits none of our secrets, folders or pipes.
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let registered = child.stdin.as_mut().map_or(Ok(()), |stdin| {
        // Do not block on a stopped reaper: fail and start a new one.
        fcntl_setfl(&*stdin, OFlags::NONBLOCK)?;
        let groups = held.groups.iter().map(|id| format!("enter {id}\n"));
        let folders = held.folders.iter().map(|name| format!("keep {name}\n"));
        let mark = std::iter::once(format!("mark {}\n", held.mark.name()));
        let lines: String = mark.chain(groups).chain(folders).collect();
        stdin.write_all(lines.as_bytes())
    });
    match registered {
        Ok(()) => Ok(child),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Returns the path of this program, valid on Linux even if the file was replaced since it
/// started.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    }
}

/// Runs the reaper process: reads registrations until end of input, then kills the groups and
/// marked processes that are left and removes the folders.
pub fn hold() {
    process_tag::clear();
    let mut registered = TrackedResources::default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        registered.apply(&line);
    }
    end(registered.groups);
    if let Some(mark) = registered.mark {
        end_marked(mark);
    }
    remove_all(&registered.folders);
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

/// What is currently registered with the reaper process.
#[derive(Debug, Default)]
struct TrackedResources {
    groups: BTreeSet<i32>,
    folders: BTreeSet<String>,
    mark: Option<ProcessTag>,
}

impl TrackedResources {
    /// Applies one line of input. Unknown or malformed lines are ignored.
    fn apply(&mut self, line: &str) {
        let Some((word, what)) = line.split_once(' ') else {
            return;
        };
        match (word, what.parse()) {
            // A group id of 1 would signal every process.
            ("enter", Ok(id @ 2..)) => self.groups.insert(id),
            ("leave", Ok(id)) => self.groups.remove(&id),
            ("keep", _) => self.folders.insert(what.to_owned()),
            ("forget", _) => self.folders.remove(what),
            ("mark", _) => {
                self.mark = ProcessTag::parse(what);
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
    fn only_valid_group_ids_and_folders_are_registered() {
        let mut registered = TrackedResources::default();
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
            registered.apply(line);
        }
        assert_eq!(registered.groups, BTreeSet::from([13]));
        assert_eq!(registered.folders, BTreeSet::from(["/c".to_owned()]));
    }
}
