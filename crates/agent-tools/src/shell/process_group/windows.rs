//! Job objects. A process cannot leave its job, so ending the job ends all descendants.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::{Child, Command};
use tokio::sync::OwnedSemaphorePermit;
use win32job::Job;

use super::LOOK;
use crate::shell::reaper::{ChildReaper, new_job};

/// How to end processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Politely. Windows has no such signal for programs without a window: they are killed.
    Terminate,
    /// At once.
    Kill,
}

impl Signal {
    pub(crate) const TERM: Self = Self::Terminate;
    pub(crate) const KILL: Self = Self::Kill;
}

/// Does nothing: no safe call changes the priority of another process.
pub(crate) fn lower_priority(_child: &Child) {}

/// Starts a command in a job of its own.
///
/// The shell enters the job right after it starts. What it could start in between would still be
/// in the job of this process, and end with it.
pub(crate) fn spawn(
    command: &mut Command,
    reaper: &ChildReaper,
) -> io::Result<(Child, ProcessGroup)> {
    reaper.ready();
    let job = new_job()?;
    let mut child = command.kill_on_drop(true).spawn()?;
    let assigned = child
        .raw_handle()
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        .and_then(|handle| {
            let assigned = job.assign_process(handle as isize);
            assigned.map_err(io::Error::other)
        });
    // A command that has ended already is in no job, and needs none.
    if let Err(error) = assigned
        && child.try_wait()?.is_none()
    {
        return Err(error);
    }
    let job = Arc::new(CommandJob(Mutex::new(Some(job))));
    reaper.enter(&job)?;
    Ok((child, ProcessGroup { job, place: None }))
}

/// The job of one command; `None` after it was ended.
#[derive(Debug)]
pub(crate) struct CommandJob(Mutex<Option<Job>>);

impl CommandJob {
    /// Ends every process of the job, because it closes the last handle.
    pub(crate) fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn is_alive(&self) -> bool {
        let job = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that there are more processes than the answer has room for.
        job.as_ref().is_some_and(|job| {
            job.query_process_id_list()
                .map_or(true, |all| !all.is_empty())
        })
    }
}

/// The processes of one command. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    job: Arc<CommandJob>,
    /// Its permit among the commands executed at once.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl ProcessGroup {
    /// Ends every process of the group.
    pub(crate) fn signal(&self, _signal: Signal) {
        self.job.end();
    }

    /// Waits until no process of the group is left.
    pub(crate) async fn gone(self) {
        while self.is_alive() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns whether a process of the group is left.
    pub(crate) fn is_alive(&self) -> bool {
        self.job.is_alive()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.job.end();
    }
}
