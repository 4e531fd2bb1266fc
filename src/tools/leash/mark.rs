//! A mark by which all that descends from us is found, wherever it went.
//!
//! Groups, sessions and environments can be left with one word of a shell. Limits stay: they
//! pass to every child, and nobody touches the time a real-time process may run on end. Its
//! usual value means for ever; ours is a random number of a hundred thousand years.

use std::io;

use rustix::process::{Pid, getpid};
#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uuid::Uuid;

/// How a limit is named where the system shows it.
const LIMIT: &str = "Max realtime timeout";

/// One sidecar's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// One that nobody has.
    pub(super) fn random() -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        Self(1 << 62 | (high ^ low) >> 2)
    }

    /// As [`Self::name`] told it.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mark: Option<u64> = name.parse().ok();
        mark.filter(|mark| mark >> 62 == 1).map(Self)
    }

    /// To be told another process.
    pub(super) fn name(self) -> String {
        self.0.to_string()
    }

    /// Marks us, and with us all we start from now on.
    #[cfg(target_os = "linux")]
    pub(super) fn wear(self) -> io::Result<()> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Rttime);
        let current = Some(self.0);
        Ok(setrlimit(Resource::Rttime, Rlimit { current, maximum })?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn wear(self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// All others that bear it.
    pub(super) fn bearers(self) -> Vec<Pid> {
        // Only Linux shows limits as files; elsewhere there is nothing to list.
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter_map(|process| {
                let id = process.file_name().to_str()?.parse().ok()?;
                let limits = std::fs::read_to_string(process.path().join("limits")).ok()?;
                let found = worn(&limits)? == self;
                found.then(|| Pid::from_raw(id))?
            })
            .filter(|process| *process != getpid())
            .collect()
    }
}

/// Takes any mark off us.
#[cfg(target_os = "linux")]
pub(super) fn take_off() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Rttime);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Rttime, limit) {
        tracing::debug!(%error, "we keep our mark");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn take_off() {}

/// The mark in a list of limits.
fn worn(limits: &str) -> Option<Mark> {
    let line = limits.lines().find_map(|line| line.strip_prefix(LIMIT))?;
    Mark::parse(line.split_whitespace().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_told_and_read_back() {
        let mark = Mark::random();
        assert_eq!(Mark::parse(&mark.name()), Some(mark));
        assert_ne!(mark, Mark::random());
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max cpu time              unlimited            unlimited            seconds\n\
             Max realtime timeout      {}  unlimited            us\n",
            mark.name()
        );
        assert_eq!(worn(&limits), Some(mark));
    }

    #[test]
    fn usual_limits_are_no_marks() {
        for usual in ["unlimited", "0", "200000", "18446744073709551615", ""] {
            assert_eq!(worn(&format!("Max realtime timeout {usual}\n")), None);
        }
        assert_eq!(worn("Max cpu time 1 1 seconds\n"), None);
    }
}
