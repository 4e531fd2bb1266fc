//! The limit of a process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for the largest number of parked runs.
const WANTED_LIMIT: u64 = 16 * 1024;

/// Raises the limit as far as needed or allowed. With a lower one the sidecar works until it is
/// reached.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED_LIMIT, |most| most.min(WANTED_LIMIT));
    if current.is_none_or(|now| now >= wanted) {
        return;
    }
    let limit = Rlimit {
        current: Some(wanted),
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files could not be raised");
    }
}
