//! `models/list`, `prefs/*`, and what a turn's choice of a model comes to.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::*;
use crate::account::{ApiKey, KeyError, find_key};
use crate::catalog::{
    Choice, Decided, Finder, Found, Level, Listing, MAX_OUTPUT, Policy, Prefs, Profile, Reason,
    Rows, Selection, Source, Speed, Wanted, Windows, Wishes, decide, learn, save_speed, select,
};
use crate::diag::place;
use crate::diag::settings::Warning;
use crate::doors::catalogue::access;
use crate::run::{Backend, Model};
use crate::turn::usage::Limits;

/// The window of a model nobody says anything about.
const DEFAULT_WINDOW: u32 = 128_000;
/// How long a host that prints waits for a list to be renewed: nobody would tell it later. One
/// that a person looks at is shown the old list and told when there is a new one.
const RENEWAL: Duration = Duration::from_millis(500);

/// The models a host can choose from.
pub(super) struct Models {
    home: Option<PathBuf>,
    state: Option<PathBuf>,
    finder: Finder,
    /// Settings that were not understood.
    pub(super) warnings: Vec<Warning>,
    profile: Mutex<Profile>,
    /// What a list nobody asked to refresh may be.
    unasked: Mutex<Wanted>,
    /// The rows the host has.
    given: Mutex<Vec<ModelRow>>,
}

/// How new a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Newness {
    /// Cursor's answer, now.
    Live,
    /// What is cached will do.
    Cached,
    /// What turns go by.
    Known,
}

/// What a turn's choice comes to.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) model: Model,
    pub(super) limits: Limits,
    /// The row to learn the window of.
    pub(super) row: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Models {
    /// Reads the settings; nothing is opened yet.
    pub(super) fn new(home: Option<&Path>) -> Self {
        let env = |name: &str| std::env::var(name).ok();
        let state = place::state_dir(&env, home);
        let (policy, warnings) = Policy::from_env(&env, state.as_deref());
        Self {
            finder: Finder::new(policy),
            home: home.map(Path::to_owned),
            warnings,
            state,
            profile: Mutex::default(),
            unasked: Mutex::new(Wanted::CacheFirst),
            given: Mutex::default(),
        }
    }

    /// The host said which thinking levels it knows, and what it is for.
    pub(super) fn host_knows(&self, levels: &[String], mode: HostMode) {
        *lock(&self.profile) = Profile::of(levels);
        *lock(&self.unasked) = match mode {
            HostMode::Print => Wanted::Renewed(RENEWAL),
            HostMode::Interactive | HostMode::Json | HostMode::Rpc => Wanted::CacheFirst,
        };
    }

    /// Cursor's models for a key. `backend` is asked for only if there is one.
    pub(super) async fn listing(
        &self,
        given_key: Option<&str>,
        newness: Newness,
        backend: impl FnOnce() -> Result<Backend, String>,
    ) -> Listing {
        let key = match self.key(given_key) {
            Ok(key) => key,
            Err(error @ KeyError::Missing) => {
                let env = |name: &str| std::env::var(name).ok();
                let home = self.home.as_deref();
                return self.finder.without_key(&env, home, &error.to_string());
            }
            Err(error) => return Listing::bundled(Reason::DiscoveryFailed, &error.to_string()),
        };
        let access = match backend() {
            Ok(backend) => access(&backend, key),
            Err(problem) => return Listing::bundled(Reason::DiscoveryFailed, &problem),
        };
        match newness {
            Newness::Live => self.finder.list(&access, Wanted::Live).await,
            Newness::Cached => {
                let unasked = *lock(&self.unasked);
                self.finder.list(&access, unasked).await
            }
            Newness::Known => self.finder.current(&access).await,
        }
    }

    /// The key a host gives, else the one there is.
    fn key(&self, given: Option<&str>) -> Result<ApiKey, KeyError> {
        let env = |name: &str| std::env::var(name).ok();
        find_key(given, &env, self.home.as_deref()).map(|(key, _)| key)
    }

    /// The rows of a list, for the host to register.
    pub(super) fn told(&self, mut listing: Listing) -> ModelsListResult {
        let rows = self.rows(&mut listing);
        let result = ModelsListResult::of(listing, &rows);
        lock(&self.given).clone_from(&result.models);
        result
    }

    /// The rows, if the host has others.
    pub(super) fn news(&self, rows: &Rows) -> Option<Vec<ModelRow>> {
        let rows: Vec<ModelRow> = rows.iter().map(ModelRow::from).collect();
        let mut given = lock(&self.given);
        (*given != rows).then(|| {
            given.clone_from(&rows);
            rows
        })
    }

    /// The rows of a list, which is told what is wrong with them.
    pub(super) fn rows(&self, listing: &mut Listing) -> Rows {
        let (windows, problem) = Windows::load(self.state.as_deref());
        let problem = problem.map(|problem| problem.to_string());
        listing.warnings.extend(problem);
        Rows::build(&listing.items, *lock(&self.profile), &windows)
    }

    /// The speed of a model.
    pub(super) fn decide(&self, found: &Found<'_>, wishes: &Wishes) -> Option<Decided> {
        let prefs = Prefs::load(self.state.as_deref()).unwrap_or_else(|error| {
            tracing::warn!("preferences are not used: {error}");
            Prefs::default()
        });
        decide(found, wishes, &prefs)
    }

    /// What to send to Cursor for a host's choice. An id nobody knows is an error if the list
    /// is Cursor's own; the bundled one may be too old to say.
    pub(super) async fn resolve(
        &self,
        choice: ModelChoice,
        wishes: &Wishes,
        backend: &Backend,
        given_key: Option<&str>,
    ) -> Result<Resolved, String> {
        // A host that names parameters has chosen already.
        if !choice.parameters.is_empty() {
            let model = Model {
                id: choice.id.clone(),
                parameters: choice.parameters.clone().into_iter().collect(),
                ..Model::default()
            };
            return Ok(resolved(model, &choice, None));
        }
        let key = self.key(given_key).map_err(|error| error.to_string())?;
        let mut listing = self.finder.current(&access(backend, key)).await;
        let rows = self.rows(&mut listing);
        let found = match rows.find(&choice.id) {
            Ok(found) => found,
            Err(_) if listing.source == Source::Bundled => {
                return Ok(resolved(model(Selection::plain(&choice.id)), &choice, None));
            }
            Err(unknown) => return Err(unknown.to_string()),
        };
        // Also Cursor's default is named: a variant need not say it.
        let speed = self.decide(&found, wishes).map(|decided| decided.speed);
        let level = Level::parse(choice.thinking.as_deref().unwrap_or(Level::Off.name()));
        let mut model = model(select(found.row, level, speed));
        // Cursor's own client puts the model's id in the place of an alias.
        model.id = found.row.base().to_owned();
        Ok(Resolved {
            // A context the row names is not to be learned: checkpoints may tell of a budget
            // below it.
            row: found.row.context.is_none().then(|| found.row.id.clone()),
            ..resolved(model, &choice, Some(found.row.window))
        })
    }

    /// A run that went well told how large its model's window is.
    pub(super) fn learn(&self, row: &str, window: u32) {
        if let Some(state) = &self.state
            && let Err(error) = learn(state, row, window)
        {
            tracing::debug!(%error, "the window is not remembered");
        }
    }

    /// The preferences there are.
    pub(super) fn prefs(&self) -> Result<PrefsResult, String> {
        let prefs = Prefs::load(self.state.as_deref());
        prefs.map(saved).map_err(|error| error.to_string())
    }

    /// Keeps a preference.
    pub(super) fn set_pref(&self, params: &PrefsSetParams) -> Result<PrefsResult, String> {
        let Some(state) = &self.state else {
            return Err(format!(
                "there is no folder to keep it in; set {}",
                place::STATE_DIR
            ));
        };
        let speed = params.fast.map(Speed::from_switch);
        let prefs = save_speed(state, &params.base, speed);
        prefs.map(saved).map_err(|error| error.to_string())
    }
}

fn saved(prefs: Prefs) -> PrefsResult {
    let speeds = prefs.speeds().iter();
    PrefsResult {
        fast: speeds
            .map(|(base, speed)| (base.clone(), speed.is_fast()))
            .collect(),
    }
}

fn model(selection: Selection) -> Model {
    let parameters = selection.parameters.into_iter();
    Model {
        id: selection.id,
        parameters: parameters.map(|Choice { id, value }| (id, value)).collect(),
        max_mode: selection.max_mode,
    }
}

/// The host's own numbers win over the catalogue's.
fn resolved(model: Model, choice: &ModelChoice, window: Option<u32>) -> Resolved {
    let window = choice.context_window.or(window).unwrap_or(DEFAULT_WINDOW);
    Resolved {
        model,
        limits: Limits {
            window: window.into(),
            max_output: choice.max_tokens.unwrap_or(MAX_OUTPUT).into(),
        },
        row: None,
    }
}
