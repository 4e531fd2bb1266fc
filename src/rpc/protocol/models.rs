//! `models/*` and `prefs/*`: the models a host registers, and preferences for them.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use agent::catalog::{
    FallbackReason, HostModel, LevelMap, ListSource, MAX_OUTPUT, ModelList, Speed, ThinkingLevel,
};

/// `models/list`: the models to register. A fresh cache answers without a request to Cursor.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelsListParams {
    /// Ask Cursor even if the cache is fresh.
    #[serde(default)]
    pub refresh: bool,
    /// The Cursor API key, if the host has one; else `CURSOR_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

impl std::fmt::Debug for ModelsListParams {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelsListParams")
            .field("refresh", &self.refresh)
            .finish_non_exhaustive()
    }
}

/// The answer to `models/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct ModelsListResult {
    /// Where the models come from.
    pub source: ModelsSource,
    /// Why they are not the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ModelsReason>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The models, in display order.
    pub models: Vec<ModelRow>,
}

impl ModelsListResult {
    /// Converts a list and its rows.
    pub fn of(listing: ModelList, rows: &[HostModel]) -> Self {
        Self {
            source: listing.source.into(),
            reason: listing.reason.map(ModelsReason::from),
            models: rows.iter().map(ModelRow::from).collect(),
            warnings: listing.warnings,
        }
    }
}

/// Where models come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum ModelsSource {
    /// Cursor's current answer.
    Live,
    /// An earlier answer of Cursor.
    Cache,
    /// The list bundled with the sidecar.
    Bundled,
}

impl From<ListSource> for ModelsSource {
    fn from(source: ListSource) -> Self {
        match source {
            ListSource::Live => Self::Live,
            ListSource::Cache => Self::Cache,
            ListSource::Bundled => Self::Bundled,
        }
    }
}

/// Why models are not the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "kebab-case")]
pub enum ModelsReason {
    /// There is no API key.
    MissingApiKey,
    /// The request to Cursor failed.
    DiscoveryFailed,
    /// Cursor returned an empty list.
    EmptyModelList,
    /// The request to Cursor failed; these are from an earlier answer.
    CachedAfterError,
}

impl From<FallbackReason> for ModelsReason {
    fn from(reason: FallbackReason) -> Self {
        match reason {
            FallbackReason::MissingApiKey => Self::MissingApiKey,
            FallbackReason::DiscoveryFailed => Self::DiscoveryFailed,
            FallbackReason::EmptyModelList => Self::EmptyModelList,
            FallbackReason::CachedAfterError => Self::CachedAfterError,
        }
    }
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct ModelRow {
    /// Its id: `base`, or `base@context`.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// Whether the host's thinking levels apply to it.
    pub reasoning: bool,
    /// Cursor's values for the thinking levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub thinking_level_map: Option<ThinkingLevelMap>,
    /// The kinds of input it accepts.
    pub input: Vec<ModelInput>,
    /// Its cost: always 0, because Cursor does not report it.
    pub cost: ModelCost,
    /// The size of its context in tokens.
    pub context_window: u32,
    /// The most tokens it may write.
    pub max_tokens: u32,
    /// Cursor's id of the model, for `prefs/set`.
    pub base: String,
    /// Whether it has a fast mode.
    pub supports_fast: bool,
    /// Whether it is fast by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_fast: Option<bool>,
}

/// Cursor's value for each thinking level; null for a level the model does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[allow(missing_docs)]
pub struct ThinkingLevelMap {
    pub off: Option<String>,
    pub minimal: Option<String>,
    pub low: Option<String>,
    pub medium: Option<String>,
    pub high: Option<String>,
    pub xhigh: Option<String>,
    /// Only for hosts that support the level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub max: Option<Option<String>>,
}

/// A kind of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ModelInput {
    Text,
    Image,
}

/// Prices per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct ModelCost {
    pub input: u32,
    pub output: u32,
    pub cache_read: u32,
    pub cache_write: u32,
}

impl From<&LevelMap> for ThinkingLevelMap {
    fn from(levels: &LevelMap) -> Self {
        let of = |level| levels.get(&level).cloned().flatten();
        Self {
            off: of(ThinkingLevel::Off),
            minimal: of(ThinkingLevel::Minimal),
            low: of(ThinkingLevel::Low),
            medium: of(ThinkingLevel::Medium),
            high: of(ThinkingLevel::High),
            xhigh: of(ThinkingLevel::Xhigh),
            max: levels.get(&ThinkingLevel::Max).cloned(),
        }
    }
}

impl From<&HostModel> for ModelRow {
    fn from(row: &HostModel) -> Self {
        Self {
            id: row.id.clone(),
            name: row.name.clone(),
            reasoning: row.levels.is_some(),
            thinking_level_map: row.levels.as_ref().map(ThinkingLevelMap::from),
            input: if row.accepts_images() {
                vec![ModelInput::Text, ModelInput::Image]
            } else {
                vec![ModelInput::Text]
            },
            cost: ModelCost::default(),
            context_window: row.context_window,
            max_tokens: MAX_OUTPUT,
            base: row.base_id().to_owned(),
            supports_fast: row.speed().is_some(),
            default_fast: row.speed().map(Speed::is_fast),
        }
    }
}

/// `prefs/get`: no parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefsGetParams {}

/// `prefs/set`: stores a preference for all future sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefsSetParams {
    /// The `base` of the model.
    pub base: String,
    /// Whether it is fast from now on; null or absent removes the preference.
    #[serde(default)]
    pub fast: Option<bool>,
}

/// All stored preferences: the answer to `prefs/get` and `prefs/set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct PrefsResult {
    /// Whether models are fast, by `base`.
    pub fast: BTreeMap<String, bool>,
}
