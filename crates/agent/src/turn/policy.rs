//! User settings that affect turns.

use std::collections::BTreeMap;
use std::time::Duration;

use super::show::Surface;
use crate::run::{Patience, RETRIES};
use agent_tools::bridge::call_log::CallLogTarget;
use agent_tools::bridge::question;
use agent_tools::bridge::tool_set::{BuiltinTools, HostTool, OfferedTools, ToolFilter};
use agent_tools::cursor_config::sources::SourceFilter;
use agent_tools::policy::{ExecutedBy, ToolPolicy};
use agent_tools::tool_cards;
use foundation::parse;
use foundation::settings::{self, Warning};

/// User settings that affect turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether the host's tools are offered.
    pub bridge: Bridging,
    /// Whether the model may ask the user questions.
    pub questions: Questions,
    /// Whether host tools that duplicate native ones are offered.
    pub overlapping: BuiltinTools,
    /// Who executes Cursor's own tools.
    pub native: ToolPolicy,
    /// Which of the user's Cursor settings apply.
    pub cursor: SourceFilter,
    /// How long a call waits for the host's result.
    pub call_deadline: Duration,
    /// How long a run stays parked.
    pub park: Duration,
    /// How many runs may be parked at once.
    pub most_parked: usize,
    /// How long a run may stay idle.
    pub patience: Patience,
    /// How often an idle run is restarted.
    pub idle_retries: u32,
    /// Where diagnostics of the bridge are sent.
    pub diagnostics: CallLogTarget,
}

/// Whether the host's tools are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bridging {
    /// Offered.
    On,
    /// Not offered.
    Off,
}

/// Whether the model may ask the user questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Questions {
    /// Through a tool of the host.
    Asked,
    /// Never: the model gets the answer that no user is available.
    Never,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            bridge: Bridging::On,
            questions: Questions::Asked,
            overlapping: BuiltinTools::Hidden,
            native: ToolPolicy::default(),
            cursor: SourceFilter::default(),
            call_deadline: Duration::from_secs(3600),
            park: PARK,
            most_parked: MOST_PARKED,
            patience: Patience::default(),
            idle_retries: RETRIES,
            diagnostics: CallLogTarget::Off,
        }
    }
}

impl Policy {
    /// Returns the policy of a turn without tools: nothing is executed.
    pub fn words_only(self) -> Self {
        Self {
            bridge: Bridging::Off,
            native: ToolPolicy {
                mode: Some(ExecutedBy::Off),
                overrides: BTreeMap::new(),
                ..self.native
            },
            cursor: SourceFilter::nothing(),
            ..self
        }
    }

    /// Returns the policy for a host of which only the tools are known: it executes them, and this
    /// process executes nothing. All of them are offered, because they may differ from Cursor's.
    pub fn hands_off(self) -> Self {
        Self {
            native: self.native.without_local(),
            bridge: Bridging::On,
            overlapping: BuiltinTools::Offered,
            cursor: SourceFilter::nothing(),
            ..self
        }
    }

    /// Returns the host tools that are offered to a run, without those that only show recorded
    /// results.
    pub fn offered(&self, tools: &[HostTool], surface: &Surface) -> OfferedTools {
        if self.bridge == Bridging::Off {
            return OfferedTools::default();
        }
        let cards: &[String] = match surface {
            Surface::Cards(tools) => tools,
            Surface::Text => &[],
        };
        let only_shown = |tool: &&String| tool.as_str() == tool_cards::ACTIVITY_TOOL;
        let filter = ToolFilter {
            overlapping: self.overlapping,
            replay: cards.iter().filter(only_shown).cloned().collect(),
        };
        let wanted =
            |tool: &&HostTool| self.questions == Questions::Asked || tool.name != question::TOOL;
        OfferedTools::of(tools.iter().filter(wanted), &filter)
    }

    /// Reads the settings. An invalid value produces a warning and the default.
    pub fn from_env(env: &impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let (native, mut warnings) = ToolPolicy::from_env(env);
        let (cursor, more) = SourceFilter::from_env(env);
        warnings.extend(more);
        let mut switch = |name: &str, default: bool| {
            let text = env(name).filter(|text| !text.trim().is_empty());
            let value = parse::switch(text.as_deref());
            if value.is_none() {
                warnings.extend(settings::not_understood(name, text.as_deref()));
            }
            value.unwrap_or(default)
        };
        let bridge = if switch("PI_CURSOR_PI_TOOL_BRIDGE", true) {
            Bridging::On
        } else {
            Bridging::Off
        };
        let questions = if switch("PI_CURSOR_ASK_QUESTION", true) {
            Questions::Asked
        } else {
            Questions::Never
        };
        let overlapping = if switch("PI_CURSOR_EXPOSE_BUILTIN_TOOLS", false) {
            BuiltinTools::Offered
        } else {
            BuiltinTools::Hidden
        };
        let file =
            env("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE").filter(|file| !file.trim().is_empty());
        let diagnostics = match (switch("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", false), file) {
            (false, _) => CallLogTarget::Off,
            (true, None) => CallLogTarget::Stderr,
            (true, Some(file)) => CallLogTarget::StderrAnd(file.into()),
        };
        let mut number = |name: &str| settings::number(env, name, &mut warnings);
        for name in parse::TOOL_TIMEOUT.iter().chain([&parse::CALL_TIMEOUT]) {
            number(name);
        }
        let park = number("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS").map_or(PARK, |ms| match ms {
            0 => LONGEST_PARK,
            ms => Duration::from_millis(ms),
        });
        // 0 means unlimited.
        let patience = |given: Option<u64>, default| match given {
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms)),
            None => default,
        };
        let default = Patience::default();
        let policy = Self {
            bridge,
            questions,
            overlapping,
            native,
            cursor,
            call_deadline: parse::bridge_call_timeout(env),
            park,
            most_parked: number("PI_CURSOR_MAX_PARKED_RUNS")
                .and_then(|runs| usize::try_from(runs).ok())
                .unwrap_or(MOST_PARKED),
            patience: Patience {
                first: patience(number("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS"), default.first),
                resumed: patience(number("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS"), default.resumed),
            },
            idle_retries: number("PI_CURSOR_STREAM_IDLE_MAX_RETRIES")
                .and_then(|retries| u32::try_from(retries).ok())
                .unwrap_or(RETRIES),
            diagnostics,
        };
        (policy, warnings)
    }
}

const PARK: Duration = Duration::from_secs(3600);
/// A parked run takes some tens of kilobytes and one stream.
const MOST_PARKED: usize = 512;
/// About 25 days, effectively unlimited.
const LONGEST_PARK: Duration = Duration::from_millis(2_147_483_647);

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
    fn without_settings_the_policy_is_the_default() {
        assert_eq!(read(&[]), (Policy::default(), Vec::new()));
    }

    #[test]
    fn settings_are_used_and_invalid_ones_are_reported() {
        let (policy, warnings) = read(&[
            ("PI_CURSOR_PI_TOOL_BRIDGE", "0"),
            ("PI_CURSOR_ASK_QUESTION", "off"),
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
            questions: Questions::Never,
            overlapping: BuiltinTools::Offered,
            native: ToolPolicy::default(),
            cursor: SourceFilter {
                tool_timeout: Duration::from_secs(120),
                ..SourceFilter::default()
            },
            call_deadline: Duration::from_secs(120),
            park: Duration::from_secs(5),
            most_parked: 4096,
            patience: Patience {
                first: None,
                resumed: Some(Duration::from_secs(1)),
            },
            idle_retries: 10,
            diagnostics: CallLogTarget::StderrAnd("bridge.jsonl".into()),
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
