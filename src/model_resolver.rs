//! Resolves a model that a host selected to what is sent to Cursor, for all front ends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Config;
use agent::catalog::{
    CatalogClient, CatalogCredential, CatalogModel, ContextWindows, HostModels, LevelRange,
    ListSource, MAX_OUTPUT, ModelCatalog, ModelList, ModelLookup, ModelSelection, ParameterChoice,
    Prefs, ResolvedSpeed, SpeedPreferences, ThinkingLevel, UnknownModel, learn, resolve_speed,
    select,
};
use agent::run::{Backend, Model};
use agent::turn::usage::Limits;
use cursor_client::account::Credential;

/// Assumed if neither the host nor the catalog knows the context window.
const DEFAULT_WINDOW: u32 = 128_000;

/// Cursor's id for its own choice of a model. A list of models need not contain it.
pub(super) const AUTO: &str = "default";
/// The name under which Cursor lists it.
const AUTO_ALIAS: &str = "auto";

/// Creates a client for the models of a backend.
pub(super) fn catalog_client(backend: &Backend, credential: Credential) -> CatalogClient {
    CatalogClient {
        http: backend.http.clone(),
        endpoints: backend.endpoints.clone(),
        identity: backend.identity.clone(),
        credential: match credential {
            Credential::Key(key) => CatalogCredential::Key {
                key,
                account: backend.account.clone(),
            },
            Credential::Login(_) => CatalogCredential::Login {
                account: backend.account.clone(),
                name: credential.fingerprint(),
            },
        },
    }
}

/// Resolves models by the catalog, the preferences and the learned context windows.
pub(super) struct ModelResolver {
    pub(super) catalog: ModelCatalog,
    pub(super) state: Option<PathBuf>,
    /// What [`Self::host_models`] returned last, because every turn asks for it.
    built: Mutex<Option<BuiltModels>>,
}

/// Host models and what they were built from.
struct BuiltModels {
    catalog: Arc<Vec<CatalogModel>>,
    levels: LevelRange,
    windows: ContextWindows,
    models: HostModels,
}

/// A model that a host selected by its id.
#[derive(Debug, Default)]
pub(super) struct ModelRequest<'a> {
    pub(super) id: &'a str,
    /// The thinking level; the model's default if absent.
    pub(super) level: Option<ThinkingLevel>,
    /// Limits set by the host, which take precedence over the catalog's.
    pub(super) context_window: Option<u32>,
    pub(super) max_output: Option<u32>,
}

/// A resolved model with its limits.
#[derive(Debug)]
pub(super) struct ResolvedModel {
    pub(super) model: Model,
    pub(super) limits: Limits,
    /// The host model whose context window may be learned from the run.
    pub(super) model_id: Option<String>,
}

impl ModelResolver {
    /// Creates a resolver; does no I/O.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            catalog: ModelCatalog::new(config.model_cache.clone()),
            state: config.state_dir.clone(),
            built: Mutex::default(),
        }
    }

    /// Builds the host models of a list. Problems are added to the warnings of the list.
    pub(super) fn host_models(&self, list: &mut ModelList, levels: LevelRange) -> HostModels {
        let (windows, problem) = ContextWindows::load(self.state.as_deref());
        let problem = problem.map(|problem| problem.to_string());
        list.warnings.extend(problem);
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*built
            && Arc::ptr_eq(&built.catalog, &list.models)
            && (built.levels, &built.windows) == (levels, &windows)
        {
            return built.models.clone();
        }
        let models = HostModels::build(&list.models, levels, &windows);
        *built = Some(BuiltModels {
            catalog: Arc::clone(&list.models),
            levels,
            windows,
            models: models.clone(),
        });
        models
    }

    /// Returns the speed to use for a model.
    pub(super) fn resolve_speed(
        &self,
        lookup: &ModelLookup<'_>,
        preferences: &SpeedPreferences,
    ) -> Option<ResolvedSpeed> {
        let prefs = Prefs::load(self.state.as_deref()).unwrap_or_else(|error| {
            tracing::warn!("ignoring the preferences: {error}");
            Prefs::default()
        });
        resolve_speed(lookup, preferences, &prefs)
    }

    /// Returns the list of models and what the host sees of it.
    pub(super) async fn current(
        &self,
        levels: LevelRange,
        client: &CatalogClient,
    ) -> (ModelList, HostModels) {
        let mut list = self.catalog.current(client).await;
        let host_models = self.host_models(&mut list, levels);
        (list, host_models)
    }

    /// Resolves a host's request. An unknown id is an error only if the list comes from Cursor;
    /// otherwise it is passed on, because the bundled list may be outdated.
    pub(super) async fn resolve(
        &self,
        request: &ModelRequest<'_>,
        preferences: &SpeedPreferences,
        levels: LevelRange,
        client: &CatalogClient,
    ) -> Result<ResolvedModel, UnknownModel> {
        let (list, host_models) = self.current(levels, client).await;
        self.resolve_in(&list, &host_models, request, preferences)
    }

    /// Resolves a host's request in a list of models, as [`Self::resolve`] does.
    pub(super) fn resolve_in(
        &self,
        list: &ModelList,
        host_models: &HostModels,
        request: &ModelRequest<'_>,
        preferences: &SpeedPreferences,
    ) -> Result<ResolvedModel, UnknownModel> {
        let lookup = match host_models.find(request.id) {
            Ok(lookup) => lookup,
            Err(_) if [AUTO, AUTO_ALIAS].contains(&request.id) => {
                return Ok(without_list(AUTO, request));
            }
            Err(_) if list.source == ListSource::Bundled => {
                return Ok(without_list(request.id, request));
            }
            Err(unknown) => return Err(unknown),
        };
        // The default speed is sent too, because a variant need not contain it.
        let speed = self
            .resolve_speed(&lookup, preferences)
            .map(|resolved| resolved.speed);
        let mut model = to_run_model(select(lookup.model, request.level, speed));
        // Like Cursor's own client, send the base id instead of an alias.
        model.id = lookup.model.base_id().to_owned();
        Ok(ResolvedModel {
            // A context size in the id is not learned, because checkpoints may report a smaller
            // budget.
            model_id: lookup
                .model
                .context
                .is_none()
                .then(|| lookup.model.id.clone()),
            ..with_limits(model, request, Some(lookup.model.context_window))
        })
    }

    /// Stores the context window that a successful run reported.
    pub(super) fn learn(&self, model_id: &str, window: u32) {
        if let Some(state) = &self.state
            && let Err(error) = learn(state, model_id, window)
        {
            tracing::debug!(%error, "cannot save the context window");
        }
    }
}

/// Returns a model that the list does not describe.
fn without_list(id: &str, request: &ModelRequest<'_>) -> ResolvedModel {
    let model = to_run_model(ModelSelection::without_parameters(id));
    with_limits(model, request, None)
}

fn to_run_model(selection: ModelSelection) -> Model {
    let parameters = selection.parameters.into_iter();
    Model {
        id: selection.id,
        parameters: parameters
            .map(|ParameterChoice { id, value }| (id, value))
            .collect(),
        max_mode: selection.max_mode,
    }
}

/// Adds the limits; those of the host take precedence over the catalog's.
pub(super) fn with_limits(
    model: Model,
    request: &ModelRequest<'_>,
    context_window: Option<u32>,
) -> ResolvedModel {
    let context_window = request
        .context_window
        .or(context_window)
        .unwrap_or(DEFAULT_WINDOW);
    ResolvedModel {
        model,
        limits: Limits {
            window: context_window.into(),
            max_output: request.max_output.unwrap_or(MAX_OUTPUT).into(),
        },
        model_id: None,
    }
}
