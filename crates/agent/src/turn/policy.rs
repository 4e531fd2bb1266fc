//! User settings that affect turns.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::activity_display::Surface;
use crate::run::{IdleLimits, RETRIES};
use agent_tools::bridge::call_log::CallLogTarget;
use agent_tools::bridge::question;
use agent_tools::bridge::tool_set::{BuiltinTools, HostTool, OfferedTools, ToolFilter};
use agent_tools::cursor_config::sources::SourceFilter;
use agent_tools::policy::{ExecutedBy, ToolPolicy};
use agent_tools::tool_cards;

/// User settings that affect turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether the host's tools are offered.
    pub offers_tools: bool,
    /// Whether the model may ask the user questions, through a tool of the host. If not, it gets the
    /// answer that no user is available.
    pub asks_questions: bool,
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
    pub patience: IdleLimits,
    /// How often an idle run is restarted.
    pub idle_retries: u32,
    /// Where diagnostics of the bridge are sent.
    pub diagnostics: CallLogTarget,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The user's shell (`SHELL`).
    pub shell: Option<PathBuf>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            offers_tools: true,
            asks_questions: true,
            overlapping: BuiltinTools::Hidden,
            native: ToolPolicy::default(),
            cursor: SourceFilter::default(),
            call_deadline: Duration::from_secs(3600),
            park: PARK,
            most_parked: MOST_PARKED,
            patience: IdleLimits::default(),
            idle_retries: RETRIES,
            diagnostics: CallLogTarget::Off,
            home: None,
            shell: None,
        }
    }
}

impl Policy {
    /// Returns the policy of a turn without tools: nothing is executed.
    pub fn words_only(self) -> Self {
        Self {
            offers_tools: false,
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
            offers_tools: true,
            overlapping: BuiltinTools::Offered,
            cursor: SourceFilter::nothing(),
            ..self
        }
    }

    /// Returns the host tools that are offered to a run, without those that only show recorded
    /// results.
    pub fn offered(&self, tools: &[HostTool], surface: &Surface) -> OfferedTools {
        if !self.offers_tools {
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
        let wanted = |tool: &&HostTool| self.asks_questions || tool.name != question::TOOL;
        OfferedTools::of(tools.iter().filter(wanted), &filter)
    }
}

const PARK: Duration = Duration::from_secs(3600);
/// A parked run takes some tens of kilobytes and one stream.
const MOST_PARKED: usize = 512;
/// About 25 days, effectively unlimited.
pub const LONGEST_PARK: Duration = Duration::from_millis(2_147_483_647);
