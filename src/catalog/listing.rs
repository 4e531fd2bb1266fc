//! A list of models, where it comes from and why it is not newer.

use std::sync::Arc;
use std::time::SystemTime;

use super::item::Item;
use super::snapshot::bundled;

/// A list of models and where it comes from.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The models.
    pub items: Arc<Vec<Item>>,
    /// Where they come from.
    pub source: Source,
    /// When Cursor gave them; never, for the bundled ones.
    pub fetched: Option<SystemTime>,
    /// Why they do not come from Cursor or a fresh cache.
    pub reason: Option<Reason>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Where a list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From Cursor, now.
    Live,
    /// From Cursor, earlier.
    Cache,
    /// From us.
    Bundled,
}

/// Why a list is not as new as it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nobody to ask as.
    MissingApiKey,
    /// Cursor could not be asked.
    DiscoveryFailed,
    /// Cursor knows no models.
    EmptyModelList,
    /// Cursor could not be asked; there is an old answer.
    CachedAfterError,
}

impl Reason {
    /// The word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissingApiKey => "missing-api-key",
            Self::DiscoveryFailed => "discovery-failed",
            Self::EmptyModelList => "empty-model-list",
            Self::CachedAfterError => "cached-after-error",
        }
    }
}

/// An answer of Cursor's.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) items: Arc<Vec<Item>>,
    pub(super) at: SystemTime,
}

impl Listing {
    /// An answer, as it is.
    pub(super) fn of(answered: Answered, source: Source, warnings: Vec<String>) -> Self {
        Self {
            items: answered.items,
            source,
            fetched: Some(answered.at),
            reason: None,
            warnings,
        }
    }

    /// The bundled list, and why it has to do.
    pub fn bundled(reason: Reason, problem: &str) -> Self {
        Self {
            items: Arc::new(bundled().items.clone()),
            source: Source::Bundled,
            fetched: None,
            reason: Some(reason),
            warnings: vec![unavailable(problem, "the bundled one")],
        }
    }

    /// An older answer, and why it has to do.
    pub(super) fn older(answered: Answered, problem: &str, reason: Reason, shown: &str) -> Self {
        Self {
            reason: Some(reason),
            ..Self::of(answered, Source::Cache, vec![unavailable(problem, shown)])
        }
    }

    /// The answer it is, unless it is ours.
    pub(super) fn answered(&self) -> Option<Answered> {
        Some(Answered {
            items: Arc::clone(&self.items),
            at: self.fetched?,
        })
    }
}

fn unavailable(problem: &str, shown: &str) -> String {
    format!("Cursor's list of models is not available ({problem}); showing {shown}")
}
