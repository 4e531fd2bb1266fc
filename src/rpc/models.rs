//! `models/list`, `prefs/*`, and the model of a turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::{NO_KEY, for_host};
use super::protocol::*;
use crate::config::Config;
use crate::model_resolver::{
    ModelRequest, ModelResolver, ResolvedModel, catalog_client, with_limits,
};
use agent::catalog::{
    FallbackReason, FetchMode, HostModels, LevelRange, ModelList, ModelLookup, Prefs,
    ResolvedSpeed, Speed, SpeedPreferences, ThinkingLevel, save_speed,
};
use agent::run::{Backend, Model};
use cursor_client::account::{Credential, KeyError, find_credential};
use foundation::state_dir::STATE_DIR;

/// How long a host in print mode waits for a stale list to be refreshed, because it cannot be
/// updated later. An interactive host shows the stale list and receives the new one afterwards.
const REFRESH_WAIT: Duration = Duration::from_millis(500);

/// The models that a host can select.
pub(super) struct ModelService {
    config: Arc<Config>,
    resolver: ModelResolver,
    levels: Mutex<LevelRange>,
    /// How to load a list whose refresh was not requested.
    default_mode: Mutex<FetchMode>,
    /// The models that were last sent to the host.
    sent: Mutex<Vec<ModelRow>>,
}

/// How fresh a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListFreshness {
    /// Fetched from Cursor now.
    Live,
    /// A cached list is sufficient.
    Cached,
    /// The list that turns use.
    Current,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelService {
    /// Creates a service without models; does no I/O.
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            resolver: ModelResolver::new(&config),
            config,
            levels: Mutex::default(),
            default_mode: Mutex::new(FetchMode::CacheFirst),
            sent: Mutex::default(),
        }
    }

    /// Sets the thinking levels and the mode of the host.
    pub(super) fn set_host(&self, levels: &[String], mode: HostMode) {
        *lock(&self.levels) = LevelRange::from_names(levels);
        *lock(&self.default_mode) = match mode {
            HostMode::Print => FetchMode::WaitForRefresh(REFRESH_WAIT),
            HostMode::Interactive | HostMode::Json | HostMode::Rpc => FetchMode::CacheFirst,
        };
    }

    /// Returns the models for a key. `backend` is called only if there is a key.
    pub(super) async fn list(
        &self,
        given_key: Option<&str>,
        freshness: ListFreshness,
        backend: impl FnOnce() -> Result<Backend, String>,
    ) -> ModelList {
        let credential = match self.credential(given_key) {
            Ok(credential) => credential,
            Err(KeyError::Missing) => {
                let endpoints = &self.config.client.endpoints;
                let catalog = &self.resolver.catalog;
                return catalog.without_key(endpoints, NO_KEY);
            }
            Err(error) => {
                return ModelList::bundled(FallbackReason::DiscoveryFailed, &error.to_string());
            }
        };
        let client = match backend() {
            Ok(backend) => catalog_client(&backend, credential),
            Err(problem) => return ModelList::bundled(FallbackReason::DiscoveryFailed, &problem),
        };
        match freshness {
            ListFreshness::Live => self.resolver.catalog.list(&client, FetchMode::Live).await,
            ListFreshness::Cached => {
                let default_mode = *lock(&self.default_mode);
                self.resolver.catalog.list(&client, default_mode).await
            }
            ListFreshness::Current => self.resolver.catalog.current(&client).await,
        }
    }

    /// Returns the credential of the host, else the user's own.
    fn credential(&self, given: Option<&str>) -> Result<Credential, KeyError> {
        find_credential(given, &self.config.client).map(|(credential, _)| credential)
    }

    /// Converts a list to the result of `models/list` and records what the host has been sent.
    pub(super) fn to_result(&self, mut list: ModelList) -> ModelsListResult {
        let host_models = self.host_models(&mut list);
        let result = ModelsListResult::of(list, &host_models);
        lock(&self.sent).clone_from(&result.models);
        result
    }

    /// Returns the models if they differ from those last sent to the host.
    pub(super) fn changed_models(&self, host_models: &HostModels) -> Option<Vec<ModelRow>> {
        let rows: Vec<ModelRow> = host_models.iter().map(ModelRow::from).collect();
        let mut sent = lock(&self.sent);
        (*sent != rows).then(|| {
            sent.clone_from(&rows);
            rows
        })
    }

    /// Builds the host models of a list. Problems are added to the warnings of the list.
    pub(super) fn host_models(&self, list: &mut ModelList) -> HostModels {
        self.resolver.host_models(list, *lock(&self.levels))
    }

    /// Returns the speed to use for a model.
    pub(super) fn resolve_speed(
        &self,
        lookup: &ModelLookup<'_>,
        preferences: &SpeedPreferences,
    ) -> Option<ResolvedSpeed> {
        self.resolver.resolve_speed(lookup, preferences)
    }

    /// Resolves the model of a turn.
    pub(super) async fn resolve(
        &self,
        choice: ModelChoice,
        preferences: &SpeedPreferences,
        backend: &Backend,
        given_key: Option<&str>,
    ) -> Result<ResolvedModel, String> {
        let request = ModelRequest {
            id: &choice.id,
            level: ThinkingLevel::parse(
                choice
                    .thinking
                    .as_deref()
                    .unwrap_or(ThinkingLevel::Off.name()),
            ),
            context_window: choice.context_window,
            max_output: choice.max_tokens,
        };
        // Parameters set by the host are sent unchanged.
        if !choice.parameters.is_empty() {
            let model = Model {
                id: choice.id.clone(),
                parameters: choice.parameters.clone().into_iter().collect(),
                ..Model::default()
            };
            return Ok(with_limits(model, &request, None));
        }
        let credential = self
            .credential(given_key)
            .map_err(|error| for_host(&error.into()))?;
        let levels = *lock(&self.levels);
        let client = catalog_client(backend, credential);
        let resolved = self
            .resolver
            .resolve(&request, preferences, levels, &client);
        resolved
            .await
            .map_err(|unknown| format!("{unknown} with /cursor-refresh-models"))
    }

    /// Stores the context window that a successful run reported.
    pub(super) fn learn(&self, model_id: &str, window: u32) {
        self.resolver.learn(model_id, window);
    }

    /// Returns the preferences.
    pub(super) fn prefs(&self) -> Result<PrefsResult, String> {
        let prefs = Prefs::load(self.resolver.state.as_deref());
        prefs.map(prefs_result).map_err(|error| error.to_string())
    }

    /// Saves a preference.
    pub(super) fn set_speed(&self, params: &PrefsSetParams) -> Result<PrefsResult, String> {
        let Some(state) = &self.resolver.state else {
            return Err(format!("there is no state directory; set {STATE_DIR}"));
        };
        let speed = params.fast.map(Speed::from_switch);
        let prefs = save_speed(state, &params.base, speed);
        prefs.map(prefs_result).map_err(|error| error.to_string())
    }
}

fn prefs_result(prefs: Prefs) -> PrefsResult {
    let speeds = prefs.speeds().iter();
    PrefsResult {
        fast: speeds
            .map(|(base, speed)| (base.clone(), speed.is_fast()))
            .collect(),
    }
}
