//! Room for open files. A run that waits for the host takes the lock of its session and, over
//! HTTP/1.1, a connection of its own; many systems allow 1024 of both to begin with.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for as many runs as may wait.
const ENOUGH: u64 = 16 * 1024;

/// Asks for as many as are needed or allowed. With less the sidecar works as far as it goes.
pub(super) fn make_room() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if current.is_none_or(|now| now >= wanted) {
        return;
    }
    let limit = Rlimit {
        current: Some(wanted),
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}
