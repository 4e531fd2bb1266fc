//! Ends our commands if this process dies first: a second process on Unix, a job object on Windows.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::collections::BTreeSet;
use std::io;

#[cfg(unix)]
pub use unix::{ChildReaper, hold};
#[cfg(windows)]
pub(crate) use windows::new_job;
#[cfg(windows)]
pub use windows::{ChildReaper, hold};

/// The command-line argument that runs this program as the reaper.
pub const ARGUMENT: &str = "reaper";
/// How often to scan for processes that left their group, and to remove a folder. Once is not
/// enough because a process that was found may have started another since.
const ROUNDS: usize = 5;

fn remove_all(folders: &BTreeSet<String>) {
    for folder in folders {
        // Retry because a process may still be writing files there.
        let gone = (0..ROUNDS).any(|_| match std::fs::remove_dir_all(folder) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        });
        if !gone {
            tracing::warn!("a folder in the temporary folder could not be removed");
        }
    }
}
