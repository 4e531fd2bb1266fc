//! What the user's settings say about turns.

use std::time::Duration;

use super::show::Surface;
use crate::diag::parse;
use crate::diag::settings::{self, Warning};
use crate::replay;
use crate::run::{Patience, RETRIES};
use crate::tools::bridge::diagnostics::Diagnostics;
use crate::tools::bridge::snapshot::{Filter, HostTool, Overlapping, Snapshot};
use crate::tools::native;
use crate::tools::settings::sources::Choice;

/// How turns are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether the host's tools are offered.
    pub bridge: Bridging,
    /// What becomes of tools Cursor has of its own.
    pub overlapping: Overlapping,
    /// Who executes Cursor's own tools.
    pub native: native::policy::Policy,
    /// Which of the user's Cursor settings count.
    pub cursor: Choice,
    /// How long a call waits for the host.
    pub call_deadline: Duration,
    /// How long a run waits for the host to come back.
    pub park: Duration,
    /// How many runs may wait so at once.
    pub most_parked: usize,
    /// How long a run may live without work.
    pub patience: Patience,
    /// How often it is started over for that.
    pub idle_retries: u32,
    /// Who is told what the bridge does.
    pub diagnostics: Diagnostics,
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
            cursor: Choice::default(),
            call_deadline: Duration::from_secs(3600),
            park: PARK,
            most_parked: MOST_PARKED,
            patience: Patience::default(),
            idle_retries: RETRIES,
            diagnostics: Diagnostics::Off,
        }
    }
}

impl Policy {
    /// The same for a turn of words alone: nothing is executed, by whomever.
    pub fn words_only(self) -> Self {
        Self {
            bridge: Bridging::Off,
            native: native::policy::Policy {
                mode: native::policy::Mode::Off,
                ..self.native
            },
            cursor: Choice::nothing(),
            ..self
        }
    }

    /// The host's tools that a run is offered. Those that only show recorded results are not
    /// for Cursor.
    pub fn offered(&self, tools: &[HostTool], surface: &Surface) -> Snapshot {
        if self.bridge == Bridging::Off {
            return Snapshot::default();
        }
        let cards: &[String] = match surface {
            Surface::Cards(tools) => tools,
            Surface::Text => &[],
        };
        let only_shown = |tool: &&String| tool.as_str() == replay::ACTIVITY;
        let filter = Filter {
            overlapping: self.overlapping,
            replay: cards.iter().filter(only_shown).cloned().collect(),
        };
        Snapshot::of(tools, &filter)
    }

    /// Reads the settings; what is not understood gives a warning and the default.
    pub fn from_env(env: &impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let (native, mut warnings) = native::policy::Policy::from_env(env);
        let (cursor, more) = Choice::from_env(env);
        warnings.extend(more);
        let mut switch = |name: &str, default: bool| {
            let text = env(name).filter(|text| !text.trim().is_empty());
            let value = parse::switch(text.as_deref());
            if value.is_none() {
                warnings.extend(settings::not_understood(name, text.as_deref()));
            }
            value.unwrap_or(default)
        };
        let bridge = match switch("PI_CURSOR_PI_TOOL_BRIDGE", true) {
            true => Bridging::On,
            false => Bridging::Off,
        };
        let overlapping = match switch("PI_CURSOR_EXPOSE_BUILTIN_TOOLS", false) {
            true => Overlapping::Offered,
            false => Overlapping::Hidden,
        };
        let file =
            env("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE").filter(|file| !file.trim().is_empty());
        let diagnostics = match (switch("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", false), file) {
            (false, _) => Diagnostics::Off,
            (true, None) => Diagnostics::Stderr,
            (true, Some(file)) => Diagnostics::StderrAnd(file.into()),
        };
        for name in [
            "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
            "PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS",
            "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS",
            "PI_CURSOR_ACTIVE_BRIDGE_TTL_MS",
        ] {
            let text = env(name).filter(|text| !text.trim().is_empty());
            let off = name.ends_with("TTL_MS") && text.as_deref().map(str::trim) == Some("0");
            if !off && parse::positive(text.as_deref()).is_none() {
                warnings.extend(settings::not_understood(name, text.as_deref()));
            }
        }
        let park = env("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS");
        let park = match park.as_deref().map(str::trim) {
            Some("0") => LONGEST_PARK,
            text => parse::positive(text).map_or(PARK, |ms| {
                Duration::from_millis(ms.clamp(SHORTEST_PARK_MS, LONGEST_PARK_MS) as u64)
            }),
        };
        let default = Patience::default();
        let policy = Self {
            bridge,
            overlapping,
            native,
            cursor,
            call_deadline: parse::bridge_call_timeout(env),
            park,
            most_parked: read(
                env,
                "PI_CURSOR_MAX_PARKED_RUNS",
                parse::runs,
                MOST_PARKED,
                &mut warnings,
            ),
            patience: Patience {
                first: read(
                    env,
                    "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS",
                    parse::patience,
                    default.first,
                    &mut warnings,
                ),
                resumed: read(
                    env,
                    "PI_CURSOR_RESUME_IDLE_TIMEOUT_MS",
                    parse::patience,
                    default.resumed,
                    &mut warnings,
                ),
            },
            idle_retries: read(
                env,
                "PI_CURSOR_STREAM_IDLE_MAX_RETRIES",
                parse::retries,
                RETRIES,
                &mut warnings,
            ),
            diagnostics,
        };
        (policy, warnings)
    }
}

/// A setting, or its default and a warning where it is not understood.
fn read<T>(
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    default: T,
    warnings: &mut Vec<Warning>,
) -> T {
    let Some(text) = env(name).filter(|text| !text.trim().is_empty()) else {
        return default;
    };
    parse(&text).unwrap_or_else(|| {
        warnings.extend(settings::not_understood(name, Some(&text)));
        default
    })
}

const PARK: Duration = Duration::from_secs(3600);
/// A waiting run takes some tens of kilobytes and a stream.
const MOST_PARKED: usize = 512;
const SHORTEST_PARK_MS: f64 = 1_000.0;
const LONGEST_PARK_MS: f64 = 2_147_483_647.0;
/// As good as for ever.
const LONGEST_PARK: Duration = Duration::from_millis(LONGEST_PARK_MS as u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Policy, Vec<String>) {
        let env = |name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let (policy, warnings) = Policy::from_env(&env);
        (policy, warnings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(read(&[]), (Policy::default(), Vec::new()));
    }

    #[test]
    fn what_is_set_counts_and_what_is_not_understood_is_told() {
        let (policy, warnings) = read(&[
            ("PI_CURSOR_PI_TOOL_BRIDGE", "0"),
            ("PI_CURSOR_EXPOSE_BUILTIN_TOOLS", "yes"),
            ("PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS", "120"),
            ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "5000"),
            ("PI_CURSOR_MAX_PARKED_RUNS", "99999"),
            ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "0"),
            ("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS", "5"),
            ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "12"),
            ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1"),
            ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE", "bridge.jsonl"),
        ]);
        assert_eq!(warnings, [""; 0]);
        let expected = Policy {
            bridge: Bridging::Off,
            overlapping: Overlapping::Offered,
            native: native::policy::Policy::default(),
            cursor: Choice {
                tool_timeout: Duration::from_secs(120),
                ..Choice::default()
            },
            call_deadline: Duration::from_secs(120),
            park: Duration::from_secs(5),
            most_parked: 4096,
            patience: Patience {
                first: None,
                resumed: Some(Duration::from_secs(1)),
            },
            idle_retries: 10,
            diagnostics: Diagnostics::StderrAnd("bridge.jsonl".into()),
        };
        assert_eq!(policy, expected);
        let (policy, warnings) = read(&[
            ("PI_CURSOR_PI_TOOL_BRIDGE", "perhaps"),
            ("PI_CURSOR_MCP_TOOL_TIMEOUT_MS", "long"),
            ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "0"),
            ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "-1"),
        ]);
        assert_eq!((policy.bridge, policy.park), (Bridging::On, LONGEST_PARK));
        assert_eq!(policy.idle_retries, RETRIES);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }
}
