//! A second process that ends our commands when we no longer can.
//!
//! Commands are process groups of their own, so a sidecar that is killed would leave them
//! running. The leash is this same program in a process and a group of its own, started before
//! the first command: it is told every group over a pipe, and the pipe's end tells it that we
//! are gone. A group is told right after its start: a command that is started in the very
//! instant we are killed gets away.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, wait,
};

/// The argument that makes this program a leash.
pub const ARGUMENT: &str = "leash";
/// How long orphaned commands may take to end when they are asked to.
const GRACE: Duration = Duration::from_secs(1);
/// How long we wait for what we killed, so that nobody else has to.
const REAP: Duration = Duration::from_millis(300);
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
        if held.tell("enter", group).is_err() {
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
        if held.groups.remove(&group.as_raw_nonzero().get()) && held.tell("leave", group).is_err() {
            held.drop_holder();
        }
    }

    /// Ends all commands and waits a moment for them, so that no dead process of ours is left
    /// to whoever comes after us. Nothing can be started afterwards.
    pub fn end_all(&self) {
        let Some(mut held) = self.held() else {
            return;
        };
        held.stage = Stage::Over;
        for group in std::mem::take(&mut held.groups) {
            if let Some(group) = Pid::from_raw(group) {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = held.tell("leave", group);
            }
        }
        // Its input ends: so does it.
        drop(held.holder.as_mut().and_then(|child| child.stdin.take()));
        drop(held);
        let started = Instant::now();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) if started.elapsed() < REAP => std::thread::sleep(LOOK),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

impl Held {
    fn ready(&mut self) {
        let alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if self.stage == Stage::Over || self.holder.as_mut().is_some_and(alive) {
            return;
        }
        match start(&self.groups) {
            Ok(holder) => self.holder = Some(holder),
            Err(error) => {
                self.holder = None;
                if std::mem::replace(&mut self.complaint, Complaint::Made) == Complaint::None {
                    tracing::warn!(error = %error.kind(), "commands may outlive a killed sidecar");
                }
            }
        }
    }

    /// Tells the leash something; without one there is nobody to tell.
    fn tell(&mut self, word: &str, group: Pid) -> io::Result<()> {
        let stdin = self.holder.as_mut().and_then(|child| child.stdin.as_mut());
        let line = format!("{word} {}\n", group.as_raw_nonzero());
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

/// Starts a leash that knows these groups.
fn start(groups: &BTreeSet<i32>) -> io::Result<Child> {
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
        let lines: String = groups.iter().map(|id| format!("enter {id}\n")).collect();
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

/// The life of a leash: hears of groups until nobody tells, then ends those that are left.
pub fn hold() {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        heed(&mut groups, &line);
    }
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

/// Takes one line to heart.
fn heed(groups: &mut BTreeSet<i32>, line: &str) {
    let Some((word, id)) = line.split_once(' ') else {
        return;
    };
    match (word, id.parse()) {
        // 1 would mean everybody.
        ("enter", Ok(id @ 2..)) => groups.insert(id),
        ("leave", Ok(id)) => groups.remove(&id),
        _ => false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_and_go_and_nobody_else_is_meant() {
        let mut groups = BTreeSet::new();
        for line in [
            "enter 12", "enter 13", "leave 12", "enter 1", "enter 0", "enter -5", "enter x",
            "enter", "", "kill 14",
        ] {
            heed(&mut groups, line);
        }
        assert_eq!(groups, BTreeSet::from([13]));
    }
}
