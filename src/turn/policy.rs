//! What the user's settings say about turns.

use std::time::Duration;

use crate::tools::bridge::snapshot::Overlapping;

/// How turns are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether the host's tools are offered.
    pub bridge: Bridging,
    /// What becomes of tools Cursor has of its own.
    pub overlapping: Overlapping,
    /// How long a call waits for the host.
    pub call_deadline: Duration,
    /// How long a run waits for the host to come back.
    pub park: Duration,
}

/// Whether the host's tools are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bridging {
    /// They are.
    On,
    /// They are not.
    Off,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            bridge: Bridging::On,
            overlapping: Overlapping::Hidden,
            call_deadline: Duration::from_secs(3600),
            park: Duration::from_secs(3600),
        }
    }
}
