//! A host's thinking levels and Cursor's `reasoning`, `effort` and `thinking` parameters.

use std::collections::BTreeMap;

use super::item::{Item, Parameter};

/// A thinking level of a host, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Level {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

const LEVELS: [Level; 7] = [
    Level::Off,
    Level::Minimal,
    Level::Low,
    Level::Medium,
    Level::High,
    Level::Xhigh,
    Level::Max,
];

impl Level {
    /// The level of a name; hosts may have others, which mean nothing to Cursor.
    pub fn parse(name: &str) -> Option<Self> {
        LEVELS.into_iter().find(|level| level.name() == name)
    }

    /// The host's name for it.
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

/// Which levels a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Up to `xhigh`, which then has to stand for Cursor's `max` too.
    #[default]
    UpToXhigh,
    /// Up to `max`.
    UpToMax,
}

impl Profile {
    /// The profile of a host that knows these levels.
    pub fn of(levels: &[String]) -> Self {
        if levels.iter().any(|level| level == Level::Max.name()) {
            Self::UpToMax
        } else {
            Self::UpToXhigh
        }
    }
}

/// What each level is to Cursor; `None` for a level the model does not have.
pub type LevelMap = BTreeMap<Level, Option<String>>;

/// The parameters that have to do with thinking.
#[derive(Debug, Clone, Copy)]
pub(super) struct Controls<'i> {
    pub(super) reasoning: Option<&'i Parameter>,
    pub(super) effort: Option<&'i Parameter>,
    pub(super) thinking: Option<&'i Parameter>,
}

impl<'i> Controls<'i> {
    pub(super) fn of(item: &'i Item) -> Self {
        Self {
            reasoning: item.parameter("reasoning"),
            effort: item.parameter("effort"),
            thinking: item.parameter("thinking"),
        }
    }

    /// The value for `off`. An effort of `none` would still be an effort.
    fn off(&self) -> Option<&'i str> {
        let reasoning = |value| self.reasoning?.spelling(value);
        reasoning("none")
            .or_else(|| reasoning("off"))
            .or_else(|| self.thinking?.spelling("false"))
    }
}

/// The map of a model; `None` for a model whose thinking nobody can control.
pub fn level_map(item: &Item, profile: Profile) -> Option<LevelMap> {
    let controls = Controls::of(item);
    let valued = controls.effort.or(controls.reasoning);
    let parameter = valued.or(controls.thinking)?;
    // A parameter that only says whether to think: high is thinking, the rest is not there.
    let switch = match valued {
        None => parameter.spelling("false").and(parameter.spelling("true")),
        Some(_) => None,
    };
    let value = |level: Level| match (level, switch, profile) {
        (Level::Off, ..) => controls.off(),
        (Level::High, Some(on), _) => Some(on),
        (_, Some(_), _) => None,
        (Level::Xhigh, None, Profile::UpToXhigh) => parameter
            .spelling("xhigh")
            .or_else(|| parameter.spelling("max"))
            .or_else(|| parameter.spelling("extra-high")),
        (Level::Xhigh, None, Profile::UpToMax) => parameter
            .spelling("xhigh")
            .or_else(|| parameter.spelling("extra-high")),
        (level, None, _) => parameter.spelling(level.name()),
    };
    let map = LEVELS
        .into_iter()
        .filter(|level| *level != Level::Max || profile == Profile::UpToMax)
        .map(|level| (level, value(level).map(str::to_owned)));
    Some(map.collect())
}
