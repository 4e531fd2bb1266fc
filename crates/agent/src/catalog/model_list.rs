//! A list of models, its source, and why it is not fresh.

use std::sync::Arc;
use std::time::SystemTime;

use super::bundled::bundled;
use super::model::CatalogModel;

/// A list of models with its source.
#[derive(Debug, Clone)]
pub struct ModelList {
    /// The models.
    pub models: Arc<Vec<CatalogModel>>,
    /// Where the models come from.
    pub source: ListSource,
    /// When they were fetched; `None` for the bundled list.
    pub fetched_at: Option<SystemTime>,
    /// Why they come neither from Cursor nor from a fresh cache.
    pub reason: Option<FallbackReason>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// The source of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListSource {
    /// Just fetched from Cursor.
    Live,
    /// Fetched from Cursor earlier.
    Cache,
    /// Bundled with this program.
    Bundled,
}

/// Why a fallback list is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackReason {
    /// There is no API key.
    MissingApiKey,
    /// The fetch failed.
    DiscoveryFailed,
    /// Cursor returned no models.
    EmptyModelList,
    /// The fetch failed; an older list is used.
    CachedAfterError,
}

impl FallbackReason {
    /// The machine-readable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissingApiKey => "missing-api-key",
            Self::DiscoveryFailed => "discovery-failed",
            Self::EmptyModelList => "empty-model-list",
            Self::CachedAfterError => "cached-after-error",
        }
    }
}

/// Models fetched from Cursor, and when.
#[derive(Debug, Clone)]
pub(super) struct FetchedModels {
    pub(super) models: Arc<Vec<CatalogModel>>,
    pub(super) at: SystemTime,
}

impl ModelList {
    /// Creates a list of fetched models.
    pub(super) fn from_fetch(
        fetched: FetchedModels,
        source: ListSource,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            models: fetched.models,
            source,
            fetched_at: Some(fetched.at),
            reason: None,
            warnings,
        }
    }

    /// Creates the bundled list, with the reason for using it.
    pub fn bundled(reason: FallbackReason, problem: &str) -> Self {
        Self {
            models: Arc::new(bundled().models.clone()),
            source: ListSource::Bundled,
            fetched_at: None,
            reason: Some(reason),
            warnings: vec![unavailable(problem, "the bundled list")],
        }
    }

    /// Creates a list of models fetched earlier, with the reason for using them.
    pub(super) fn stale(
        fetched: FetchedModels,
        problem: &str,
        reason: FallbackReason,
        shown: &str,
    ) -> Self {
        Self {
            reason: Some(reason),
            ..Self::from_fetch(
                fetched,
                ListSource::Cache,
                vec![unavailable(problem, shown)],
            )
        }
    }

    /// Returns the fetched models, unless this is the bundled list.
    pub(super) fn fetched_models(&self) -> Option<FetchedModels> {
        Some(FetchedModels {
            models: Arc::clone(&self.models),
            at: self.fetched_at?,
        })
    }
}

fn unavailable(problem: &str, shown: &str) -> String {
    format!("Cursor's model list is not available ({problem}); showing {shown}")
}
