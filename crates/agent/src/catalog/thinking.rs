//! A host's thinking levels and Cursor's `reasoning`, `effort` and `thinking` parameters.

use std::collections::BTreeMap;

use super::model::{CatalogModel, Parameter};

/// A thinking level of a host, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ThinkingLevel {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

const LEVELS: [ThinkingLevel; 7] = [
    ThinkingLevel::Off,
    ThinkingLevel::Minimal,
    ThinkingLevel::Low,
    ThinkingLevel::Medium,
    ThinkingLevel::High,
    ThinkingLevel::Xhigh,
    ThinkingLevel::Max,
];

impl ThinkingLevel {
    /// Parses a level name; returns `None` for levels that Cursor does not have.
    pub fn parse(name: &str) -> Option<Self> {
        LEVELS.into_iter().find(|level| level.name() == name)
    }

    /// The name of the level.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// Which levels a host supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LevelRange {
    /// Up to `xhigh`, which is then also used for Cursor's `max`.
    #[default]
    UpToXhigh,
    /// Up to `max`.
    UpToMax,
}

impl LevelRange {
    /// Returns the range of a host with these levels.
    pub fn from_names(levels: &[String]) -> Self {
        if levels
            .iter()
            .any(|level| level == ThinkingLevel::Max.name())
        {
            Self::UpToMax
        } else {
            Self::UpToXhigh
        }
    }
}

/// Cursor's parameter value for each level; `None` for a level the model does not support.
pub type LevelMap = BTreeMap<ThinkingLevel, Option<String>>;

/// The parameters of a model that control thinking.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThinkingParameters<'i> {
    pub(super) reasoning: Option<&'i Parameter>,
    pub(super) effort: Option<&'i Parameter>,
    pub(super) thinking: Option<&'i Parameter>,
}

impl<'i> ThinkingParameters<'i> {
    pub(super) fn of(model: &'i CatalogModel) -> Self {
        Self {
            reasoning: model.parameter("reasoning"),
            effort: model.parameter("effort"),
            thinking: model.parameter("thinking"),
        }
    }

    /// Returns the value for `off`. `effort` is not considered, because its `none` does not turn
    /// thinking off.
    fn off(&self) -> Option<&'i str> {
        let reasoning = |value| self.reasoning?.spelling(value);
        reasoning("none")
            .or_else(|| reasoning("off"))
            .or_else(|| self.thinking?.spelling("false"))
    }
}

/// Returns the level map of a model; `None` if its thinking cannot be controlled.
pub fn level_map(model: &CatalogModel, range: LevelRange) -> Option<LevelMap> {
    let controls = ThinkingParameters::of(model);
    let valued = controls.effort.or(controls.reasoning);
    let parameter = valued.or(controls.thinking)?;
    // A parameter that only switches thinking on or off: `high` is on, other levels do not exist.
    let switch = match valued {
        None => parameter.spelling("false").and(parameter.spelling("true")),
        Some(_) => None,
    };
    let value = |level: ThinkingLevel| match (level, switch, range) {
        (ThinkingLevel::Off, ..) => controls.off(),
        (ThinkingLevel::High, Some(on), _) => Some(on),
        (_, Some(_), _) => None,
        (ThinkingLevel::Xhigh, None, LevelRange::UpToXhigh) => parameter
            .spelling("xhigh")
            .or_else(|| parameter.spelling("max"))
            .or_else(|| parameter.spelling("extra-high")),
        (ThinkingLevel::Xhigh, None, LevelRange::UpToMax) => parameter
            .spelling("xhigh")
            .or_else(|| parameter.spelling("extra-high")),
        (level, None, _) => parameter.spelling(level.name()),
    };
    let map = LEVELS
        .into_iter()
        .filter(|level| *level != ThinkingLevel::Max || range == LevelRange::UpToMax)
        .map(|level| (level, value(level).map(str::to_owned)));
    Some(map.collect())
}
