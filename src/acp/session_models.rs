//! The models and modes a client can choose for a session.

use agent_client_protocol::v1::schema::{
    SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption,
    SessionConfigSelectOptions, SessionId, SessionMode, SessionModeState,
};
use agent_client_protocol::{JsonRpcRequest, JsonRpcResponse};
use serde::{Deserialize, Serialize};

use super::AcpState;
use super::session_task::SessionChoices;
use crate::model_resolver::catalog_client;
use agent::catalog::{HostModel, LevelRange, ThinkingLevel};

/// The id of the option that selects the model.
const MODEL: &str = "model";
/// The id of the option that selects how much the model thinks.
const THINKING: &str = "thinking";
/// The value with which Cursor chooses how much a model thinks.
const MODELS_OWN: &str = "default";
/// The model with which Cursor chooses one itself.
const AUTOMATIC: &str = "default";
/// Thinking levels a model id may end with.
pub(super) const LEVELS: LevelRange = LevelRange::UpToXhigh;

const AGENT: &str = "agent";
const PLAN: &str = "plan";

/// The mode of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

/// `session/set_model`: how clients selected a model before the protocol had options. It has left the
/// protocol, so the official crate does not know it; clients of that time still send it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_model", response = SetModelResponse)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModelRequest {
    pub(super) session_id: SessionId,
    pub(super) model_id: String,
}

/// The response to [`SetModelRequest`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcResponse)]
pub(super) struct SetModelResponse {}

/// A model that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectableModel {
    pub(super) id: String,
    name: String,
    /// How much it can think; empty if that cannot be chosen.
    levels: Vec<ThinkingLevel>,
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
        levels: supported_levels(model),
    });
    choices.collect()
}

fn supported_levels(model: &HostModel) -> Vec<ThinkingLevel> {
    let levels = model.levels.iter().flatten();
    let levels = levels.filter_map(|(level, value)| value.is_some().then_some(*level));
    levels.collect()
}

/// Returns the model of a session that has not chosen one: Cursor's own choice if the account has
/// it, else the first of the list.
pub(super) fn default_model(models: &[SelectableModel]) -> &str {
    let automatic = models.iter().find(|model| model.id == AUTOMATIC);
    let model = automatic.or(models.first());
    model.map_or(AUTOMATIC, |model| &model.id)
}

/// Returns the thinking level to request of a model; `None` for its own.
pub(super) fn level(models: &[SelectableModel], choices: &SessionChoices) -> Option<ThinkingLevel> {
    let id = choices.model.as_deref();
    let id = id.unwrap_or_else(|| default_model(models));
    let model = models.iter().find(|model| model.id == id)?;
    let level = ThinkingLevel::parse(choices.level.as_deref()?)?;
    model.levels.contains(&level).then_some(level)
}

/// Changes the model; the error names what is wrong.
pub(super) fn choose_model(
    models: &[SelectableModel],
    choices: &mut SessionChoices,
    id: &str,
) -> Result<(), String> {
    let chosen = choose(models, choices, MODEL, id);
    chosen.map_err(|_| format!("modelId: there is no model {id:?}"))
}

/// Changes the choice that an option stands for; the error names what is wrong.
pub(super) fn choose(
    models: &[SelectableModel],
    choices: &mut SessionChoices,
    option: &str,
    value: &str,
) -> Result<(), String> {
    let options = options(models, choices);
    let Some(option) = options.iter().find(|known| &*known.id.0 == option) else {
        let known: Vec<&str> = options.iter().map(|known| &*known.id.0).collect();
        let known = known.join(", ");
        return Err(format!(
            "configId: there is no option {option:?}, only {known}"
        ));
    };
    // A list of models that is not known cannot refuse one.
    let can_be_any = &*option.id.0 == MODEL && models.is_empty();
    if !can_be_any && !has_value(option, value) {
        let name = &*option.id.0;
        return Err(format!("value: the option {name:?} has no value {value:?}"));
    }
    let choice = Some(value.to_owned());
    if &*option.id.0 == MODEL {
        choices.model = choice;
    } else {
        choices.level = choice.filter(|level| level != MODELS_OWN);
    }
    Ok(())
}

fn has_value(option: &SessionConfigOption, value: &str) -> bool {
    let SessionConfigKind::Select(select) = &option.kind else {
        return false;
    };
    let SessionConfigSelectOptions::Ungrouped(rows) = &select.options else {
        return false;
    };
    rows.iter().any(|row| &*row.value.0 == value)
}

/// Returns the options of a session.
pub(super) fn options(
    models: &[SelectableModel],
    choices: &SessionChoices,
) -> Vec<SessionConfigOption> {
    let chosen = choices.model.as_deref();
    let chosen = chosen.unwrap_or_else(|| default_model(models));
    let mut rows: Vec<SessionConfigSelectOption> = models
        .iter()
        .map(|model| SessionConfigSelectOption::new(model.id.clone(), model.name.clone()))
        .collect();
    let model = models.iter().find(|model| model.id == chosen);
    if model.is_none() {
        rows.insert(
            0,
            SessionConfigSelectOption::new(chosen.to_owned(), chosen.to_owned()),
        );
    }
    let mut options = vec![
        SessionConfigOption::select(MODEL, "Model", chosen.to_owned(), rows)
            .category(SessionConfigOptionCategory::Model),
    ];
    let levels = model.map_or(&[][..], |model| &model.levels);
    if !levels.is_empty() {
        let own = SessionConfigSelectOption::new(MODELS_OWN, "The model's own");
        let names = levels.iter().map(|level| level.name());
        let rows = names.map(|name| SessionConfigSelectOption::new(name, name));
        let rows: Vec<_> = std::iter::once(own).chain(rows).collect();
        let current = level(models, choices).map_or(MODELS_OWN, ThinkingLevel::name);
        options.push(
            SessionConfigOption::select(THINKING, "Thinking", current, rows)
                .category(SessionConfigOptionCategory::ThoughtLevel),
        );
    }
    options
}
