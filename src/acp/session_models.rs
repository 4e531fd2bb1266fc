//! The models and modes a client can choose for a session.

use agent_client_protocol::v1::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode,
    SessionModeState,
};

use super::AcpState;
use crate::model_resolver::catalog_client;
use agent::catalog::LevelRange;

/// The id of the option that selects the model.
pub(super) const MODEL: &str = "model";
/// The model with which Cursor chooses one itself.
const AUTOMATIC: &str = "default";
/// Thinking levels a model id may end with.
pub(super) const LEVELS: LevelRange = LevelRange::UpToXhigh;

const AGENT: &str = "agent";
const PLAN: &str = "plan";

/// The mode of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionModeChoice {
    #[default]
    Agent,
    Plan,
}

impl SessionModeChoice {
    /// Returns the mode with this id.
    pub(super) fn find(id: &str) -> Option<Self> {
        match id {
            AGENT => Some(Self::Agent),
            PLAN => Some(Self::Plan),
            _ => None,
        }
    }

    /// Returns the modes, and which one is chosen.
    pub(super) fn state(self) -> SessionModeState {
        let current = match self {
            Self::Agent => AGENT,
            Self::Plan => PLAN,
        };
        let modes = vec![
            SessionMode::new(AGENT, "Agent")
                .description("Reads, writes and runs commands".to_owned()),
            SessionMode::new(PLAN, "Plan").description("Plans and changes nothing".to_owned()),
        ];
        SessionModeState::new(current, modes)
    }
}

/// A model that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectableModel {
    pub(super) id: String,
    name: String,
}

/// Returns the models of the account; none if they are not known.
pub(super) async fn load(state: &AcpState) -> Vec<SelectableModel> {
    let Ok((key, backend)) = state.backends.get(None, &state.config.client) else {
        return Vec::new();
    };
    let client = catalog_client(&backend, key);
    let mut list = state.models.catalog.current(&client).await;
    let models = state.models.host_models(&mut list, LEVELS);
    let choices = models.iter().map(|model| SelectableModel {
        id: model.id.clone(),
        name: model.name.clone(),
    });
    choices.collect()
}

/// Returns the model of a session that has not chosen one: Cursor's own choice if the account has
/// it, else the first of the list.
pub(super) fn default_model(models: &[SelectableModel]) -> &str {
    let automatic = models.iter().find(|model| model.id == AUTOMATIC);
    let model = automatic.or(models.first());
    model.map_or(AUTOMATIC, |model| &model.id)
}

/// Returns the options of a session.
pub(super) fn options(
    models: &[SelectableModel],
    chosen: Option<&str>,
) -> Vec<SessionConfigOption> {
    let chosen = chosen.unwrap_or(default_model(models));
    let mut rows: Vec<SessionConfigSelectOption> = models
        .iter()
        .map(|model| SessionConfigSelectOption::new(model.id.clone(), model.name.clone()))
        .collect();
    if !models.iter().any(|model| model.id == chosen) {
        rows.insert(
            0,
            SessionConfigSelectOption::new(chosen.to_owned(), chosen.to_owned()),
        );
    }
    vec![
        SessionConfigOption::select(MODEL, "Model", chosen.to_owned(), rows)
            .category(SessionConfigOptionCategory::Model),
    ]
}
