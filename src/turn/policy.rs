//! What the user's settings say about turns.

use std::time::Duration;

use crate::diag::settings::Warning;
use crate::tools::bridge::snapshot::Overlapping;
use crate::tools::native;

/// How turns are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether the host's tools are offered.
    pub bridge: Bridging,
    /// What becomes of tools Cursor has of its own.
    pub overlapping: Overlapping,
    /// Who executes Cursor's own tools.
    pub native: native::policy::Policy,
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
            native: native::policy::Policy::default(),
            call_deadline: Duration::from_secs(3600),
            park: Duration::from_secs(3600),
        }
    }
}

impl Policy {
    /// Reads the settings; what is not understood becomes a warning.
    pub fn from_env(env: &impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let (native, warnings) = native::policy::Policy::from_env(env);
        let policy = Self {
            native,
            ..Self::default()
        };
        (policy, warnings)
    }
}
