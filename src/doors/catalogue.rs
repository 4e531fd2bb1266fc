//! What the doors share about the catalogue: the list there is, and what a choice comes to.

use std::path::{Path, PathBuf};

use crate::account::ApiKey;
use crate::catalog::{
    Access, Choice, Credential, Decided, Finder, Found, Level, Listing, MAX_OUTPUT, Policy, Prefs,
    Profile, Rows, Selection, Source, UnknownModel, Windows, Wishes, decide, learn, select,
};
use crate::diag::place;
use crate::run::{Backend, Model};
use crate::turn::usage::Limits;

/// The window of a model nobody says anything about.
const DEFAULT_WINDOW: u32 = 128_000;

/// Who asks a backend for its models.
pub(super) fn access(backend: &Backend, key: ApiKey) -> Access {
    Access {
        http: backend.http.clone(),
        endpoints: backend.endpoints.clone(),
        identity: backend.identity.clone(),
        credential: Credential::Key {
            key,
            account: backend.account.clone(),
        },
    }
}

/// Cursor's models, as far as a door needs them.
pub(super) struct Catalogue {
    pub(super) finder: Finder,
    pub(super) state: Option<PathBuf>,
}

/// A model as a host chose it by its name.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    pub(super) id: &'a str,
    /// How much it thinks; the model's default if absent.
    pub(super) level: Option<Level>,
    /// The host's own numbers, which win over the catalogue's.
    pub(super) window: Option<u32>,
    pub(super) max_output: Option<u32>,
}

/// What a turn's choice comes to.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) model: Model,
    pub(super) limits: Limits,
    /// The row to learn the window of.
    pub(super) row: Option<String>,
}

impl Catalogue {
    /// Reads the settings; nothing is opened yet.
    pub(super) fn new(env: &impl Fn(&str) -> Option<String>, home: Option<&Path>) -> Self {
        let state = place::state_dir(env, home);
        let (policy, _) = Policy::from_env(env, state.as_deref());
        Self {
            finder: Finder::new(policy),
            state,
        }
    }

    /// The rows of a list, which is told what is wrong with them.
    pub(super) fn rows(&self, listing: &mut Listing, profile: Profile) -> Rows {
        let (windows, problem) = Windows::load(self.state.as_deref());
        let problem = problem.map(|problem| problem.to_string());
        listing.warnings.extend(problem);
        Rows::build(&listing.items, profile, &windows)
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
        chosen: &Chosen<'_>,
        wishes: &Wishes,
        profile: Profile,
        access: &Access,
    ) -> Result<Resolved, UnknownModel> {
        let mut listing = self.finder.current(access).await;
        let rows = self.rows(&mut listing, profile);
        let found = match rows.find(chosen.id) {
            Ok(found) => found,
            Err(_) if listing.source == Source::Bundled => {
                return Ok(resolved(model(Selection::plain(chosen.id)), chosen, None));
            }
            Err(unknown) => return Err(unknown),
        };
        // Also Cursor's default is named: a variant need not say it.
        let speed = self.decide(&found, wishes).map(|decided| decided.speed);
        let mut model = model(select(found.row, chosen.level, speed));
        // Cursor's own client puts the model's id in the place of an alias.
        model.id = found.row.base().to_owned();
        Ok(Resolved {
            // A context the row names is not to be learned: checkpoints may tell of a budget
            // below it.
            row: found.row.context.is_none().then(|| found.row.id.clone()),
            ..resolved(model, chosen, Some(found.row.window))
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
pub(super) fn resolved(model: Model, chosen: &Chosen<'_>, window: Option<u32>) -> Resolved {
    let window = chosen.window.or(window).unwrap_or(DEFAULT_WINDOW);
    Resolved {
        model,
        limits: Limits {
            window: window.into(),
            max_output: chosen.max_output.unwrap_or(MAX_OUTPUT).into(),
        },
        row: None,
    }
}
