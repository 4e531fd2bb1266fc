//! `models/list`, `prefs/*`, and what a turn's choice of a model comes to.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::*;
use crate::account::{ApiKey, KeyError, find_key};
use crate::catalog::{
    Decided, Found, Level, Listing, Prefs, Profile, Reason, Rows, Speed, Wanted, Wishes, save_speed,
};
use crate::diag::place;
use crate::doors::catalogue::{Catalogue, Chosen, Resolved, access, resolved};
use crate::run::{Backend, Model};

/// How long a host that prints waits for a list to be renewed: nobody would tell it later. One
/// that a person looks at is shown the old list and told when there is a new one.
const RENEWAL: Duration = Duration::from_millis(500);

/// The models a host can choose from.
pub(super) struct Models {
    home: Option<PathBuf>,
    catalogue: Catalogue,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Models {
    /// Reads the settings; nothing is opened yet.
    pub(super) fn new(home: Option<&Path>) -> Self {
        let env = |name: &str| std::env::var(name).ok();
        Self {
            catalogue: Catalogue::new(&env, home),
            home: home.map(Path::to_owned),
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
                return self
                    .catalogue
                    .finder
                    .without_key(&env, home, &error.to_string());
            }
            Err(error) => return Listing::bundled(Reason::DiscoveryFailed, &error.to_string()),
        };
        let access = match backend() {
            Ok(backend) => access(&backend, key),
            Err(problem) => return Listing::bundled(Reason::DiscoveryFailed, &problem),
        };
        match newness {
            Newness::Live => self.catalogue.finder.list(&access, Wanted::Live).await,
            Newness::Cached => {
                let unasked = *lock(&self.unasked);
                self.catalogue.finder.list(&access, unasked).await
            }
            Newness::Known => self.catalogue.finder.current(&access).await,
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
        self.catalogue.rows(listing, *lock(&self.profile))
    }

    /// The speed of a model.
    pub(super) fn decide(&self, found: &Found<'_>, wishes: &Wishes) -> Option<Decided> {
        self.catalogue.decide(found, wishes)
    }

    /// What to send to Cursor for a host's choice.
    pub(super) async fn resolve(
        &self,
        choice: ModelChoice,
        wishes: &Wishes,
        backend: &Backend,
        given_key: Option<&str>,
    ) -> Result<Resolved, String> {
        let chosen = Chosen {
            id: &choice.id,
            level: Level::parse(choice.thinking.as_deref().unwrap_or(Level::Off.name())),
            window: choice.context_window,
            max_output: choice.max_tokens,
        };
        // A host that names parameters has chosen already.
        if !choice.parameters.is_empty() {
            let model = Model {
                id: choice.id.clone(),
                parameters: choice.parameters.clone().into_iter().collect(),
                ..Model::default()
            };
            return Ok(resolved(model, &chosen, None));
        }
        let key = self.key(given_key).map_err(|error| error.to_string())?;
        let profile = *lock(&self.profile);
        let access = access(backend, key);
        let found = self.catalogue.resolve(&chosen, wishes, profile, &access);
        found.await.map_err(|unknown| unknown.to_string())
    }

    /// A run that went well told how large its model's window is.
    pub(super) fn learn(&self, row: &str, window: u32) {
        self.catalogue.learn(row, window);
    }

    /// The preferences there are.
    pub(super) fn prefs(&self) -> Result<PrefsResult, String> {
        let prefs = Prefs::load(self.catalogue.state.as_deref());
        prefs.map(saved).map_err(|error| error.to_string())
    }

    /// Keeps a preference.
    pub(super) fn set_pref(&self, params: &PrefsSetParams) -> Result<PrefsResult, String> {
        let Some(state) = &self.catalogue.state else {
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
