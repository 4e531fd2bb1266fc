//! A job object that contains this process and everything it starts. The system ends the whole job
//! when its last handle is closed, which is when this process ends, however it ends.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use win32job::{ExtendedLimitInfo, Job};

use super::remove_all;
use crate::shell::process_group::CommandJob;

/// A handle to the job, shared by everything that starts commands. The default has no job:
/// commands then end only with their owners.
#[derive(Debug, Clone, Default)]
pub struct ChildReaper(Option<Arc<Mutex<JobState>>>);

#[derive(Debug, Default)]
struct JobState {
    /// Whether the sidecar is shutting down: no new command may start.
    shutting_down: bool,
    commands: Vec<Weak<CommandJob>>,
    folders: BTreeSet<String>,
    own: Option<Job>,
    /// Whether a failure to create the job was already logged; it is logged once.
    failure_logged: bool,
}

/// Creates a job whose processes are killed when its last handle is closed.
pub(crate) fn new_job() -> io::Result<Job> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    Job::create_with_limit_info(&limits).map_err(io::Error::other)
}

impl ChildReaper {
    /// Creates a reaper for this program's commands. The job is created with the first command.
    pub fn new() -> Self {
        Self(Some(Arc::default()))
    }

    fn held(&self) -> Option<MutexGuard<'_, JobState>> {
        let held = self.0.as_ref()?;
        Some(held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts this process into a job unless it is in one of ours.
    pub(crate) fn ready(&self) {
        let Some(mut held) = self.held() else {
            return;
        };
        if held.shutting_down || held.own.is_some() {
            return;
        }
        let joined = new_job().and_then(|job| {
            job.assign_current_process().map_err(io::Error::other)?;
            Ok(job)
        });
        match joined {
            Ok(job) => held.own = Some(job),
            Err(_) if held.failure_logged => {}
            Err(error) => {
                held.failure_logged = true;
                tracing::warn!(error = %error.kind(), "commands may outlive a killed sidecar");
            }
        }
    }

    /// Registers the job of a command. Fails if the sidecar is shutting down.
    pub(crate) fn enter(&self, job: &Arc<CommandJob>) -> io::Result<()> {
        let Some(mut held) = self.held() else {
            return Ok(());
        };
        if held.shutting_down {
            return Err(io::Error::other("the sidecar is ending"));
        }
        held.commands.retain(|job| job.strong_count() > 0);
        held.commands.push(Arc::downgrade(job));
        Ok(())
    }

    /// Registers a folder to be removed at shutdown. One that is left by a killed process is
    /// removed by a later session. Fails if the sidecar is shutting down.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<()> {
        let (Some(mut held), Some(name)) = (self.held(), folder.to_str()) else {
            return Ok(());
        };
        if held.shutting_down {
            return Err(io::Error::other("the sidecar is ending"));
        }
        held.folders.insert(name.to_owned());
        Ok(())
    }

    /// Unregisters a folder that was removed.
    pub(crate) fn forget(&self, folder: &Path) {
        if let (Some(mut held), Some(name)) = (self.held(), folder.to_str()) {
            held.folders.remove(name);
        }
    }

    /// Kills all commands and removes the folders. Nothing can be started afterwards.
    pub fn end_all(&self) {
        let Some(mut held) = self.held() else {
            return;
        };
        held.shutting_down = true;
        let commands = std::mem::take(&mut held.commands);
        let folders = std::mem::take(&mut held.folders);
        drop(held);
        for job in commands.iter().filter_map(Weak::upgrade) {
            job.end();
        }
        remove_all(&folders);
    }
}

/// Does nothing: only Unix needs a reaper process, because Windows ends a job itself.
pub fn hold() {}
