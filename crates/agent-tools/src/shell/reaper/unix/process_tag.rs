//! A tag that every descendant process inherits and can be found by.
//!
//! A process can leave its group, session or environment, but it inherits resource limits. We set
//! `RLIMIT_RTTIME`, which is normally unlimited and which programs do not change, to a random and
//! effectively infinite value, and later find descendants by that value in `/proc/<pid>/limits`.

use std::io;

use rustix::process::{Pid, getpid};
#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uuid::Uuid;

/// The name of the limit in `/proc/<pid>/limits`.
const LIMIT: &str = "Max realtime timeout";

/// The tag of one sidecar process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessTag(u64);

impl ProcessTag {
    /// Creates a random mark.
    pub(super) fn random() -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        Self(1 << 62 | (high ^ low) >> 2)
    }

    /// Parses what [`Self::name`] returns.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mark: Option<u64> = name.parse().ok();
        mark.filter(|mark| mark >> 62 == 1).map(Self)
    }

    /// Returns the mark as text, to be sent to another process.
    pub(super) fn name(self) -> String {
        self.0.to_string()
    }

    /// Marks this process and every process it starts from now on.
    #[cfg(target_os = "linux")]
    pub(super) fn apply(self) -> io::Result<()> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Rttime);
        let current = Some(self.0);
        Ok(setrlimit(Resource::Rttime, Rlimit { current, maximum })?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn apply(self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns all other processes that carry this mark.
    pub(super) fn tagged_processes(self) -> Vec<Pid> {
        // Only Linux has `/proc/<pid>/limits`; elsewhere the list is empty.
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter_map(|process| {
                let id = process.file_name().to_str()?.parse().ok()?;
                let limits = std::fs::read_to_string(process.path().join("limits")).ok()?;
                let found = mark_in(&limits)? == self;
                found.then(|| Pid::from_raw(id))?
            })
            .filter(|process| *process != getpid())
            .collect()
    }
}

/// Removes the mark from this process.
#[cfg(target_os = "linux")]
pub(super) fn clear() {
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
pub(super) fn clear() {}

/// Returns the mark in the text of a `limits` file.
fn mark_in(limits: &str) -> Option<ProcessTag> {
    let line = limits.lines().find_map(|line| line.strip_prefix(LIMIT))?;
    ProcessTag::parse(line.split_whitespace().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_formatting_and_parsing() {
        let mark = ProcessTag::random();
        assert_eq!(ProcessTag::parse(&mark.name()), Some(mark));
        assert_ne!(mark, ProcessTag::random());
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max cpu time              unlimited            unlimited            seconds\n\
             Max realtime timeout      {}  unlimited            us\n",
            mark.name()
        );
        assert_eq!(mark_in(&limits), Some(mark));
    }

    #[test]
    fn ordinary_limits_are_not_marks() {
        for usual in ["unlimited", "0", "200000", "18446744073709551615", ""] {
            assert_eq!(mark_in(&format!("Max realtime timeout {usual}\n")), None);
        }
        assert_eq!(mark_in("Max cpu time 1 1 seconds\n"), None);
    }
}
