//! Process groups and signals.

use std::io;

use rustix::process::Pid;
pub(crate) use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::sync::OwnedSemaphorePermit;

use super::LOOK;
use crate::shell::reaper::ChildReaper;

/// The nice value of programs that work in the background.
const BACKGROUND: i32 = 10;

/// Gives a program little processor time while other programs need it.
pub(crate) fn lower_priority(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    // An error means that the program has ended.
    let _ = (id.and_then(Pid::from_raw))
        .map(|id| rustix::process::setpriority_process(Some(id), BACKGROUND));
}

/// Starts a command in a process group of its own that does not outlive this process.
pub(crate) fn spawn(
    command: &mut Command,
    reaper: &ChildReaper,
) -> io::Result<(Child, ProcessGroup)> {
    reaper.ready();
    let child = command.process_group(0).spawn()?;
    let group = ProcessGroup::of(&child, reaper)?;
    Ok((child, group))
}

/// A process group. Dropping it kills every process in it.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    id: Pid,
    reaper: ChildReaper,
    /// Its permit among the commands executed at once.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl ProcessGroup {
    /// Returns the process group that `child` leads, registered with the reaper.
    fn of(child: &Child, reaper: &ChildReaper) -> io::Result<Self> {
        let number = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = number.and_then(Pid::from_raw);
        let group = Self {
            id: pid.ok_or(io::ErrorKind::NotFound)?,
            reaper: reaper.clone(),
            place: None,
        };
        reaper.enter(group.id)?;
        Ok(group)
    }

    /// Sends a signal to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that the group no longer exists.
        let _ = rustix::process::kill_process_group(self.id, signal);
    }

    /// Waits until no process of the group is left. The group is held until then, because its id
    /// may be reused afterwards.
    pub(crate) async fn gone(self) {
        while self.is_alive() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns whether a process of the group is left.
    pub(crate) fn is_alive(&self) -> bool {
        rustix::process::test_kill_process_group(self.id).is_ok()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.reaper.leave(self.id);
    }
}
