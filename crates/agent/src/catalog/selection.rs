//! Converts a host model, a thinking level and a speed to what is sent to Cursor.

use super::host_models::HostModel;
use super::model::ParameterChoice;
use super::thinking::{ThinkingLevel, ThinkingParameters};

/// Normal speed, or fast mode at a higher price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Speed {
    Normal,
    Fast,
}

impl Speed {
    /// Returns the speed for the state of a fast-mode switch.
    pub fn from_switch(on: bool) -> Self {
        if on { Self::Fast } else { Self::Normal }
    }

    /// Whether this is fast mode.
    pub fn is_fast(self) -> bool {
        self == Self::Fast
    }
}

/// The model selection that is sent to Cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSelection {
    /// The id or alias of the model.
    pub id: String,
    /// The parameters.
    pub parameters: Vec<ParameterChoice>,
    /// Whether to use Max Mode.
    pub max_mode: bool,
}

impl ModelSelection {
    /// Selects an unknown model by its id alone.
    pub fn without_parameters(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            parameters: Vec::new(),
            max_mode: false,
        }
    }
}

/// Returns the selection for a host model. A level the model does not support, an unknown level
/// (`None`) and a missing speed leave the default.
pub fn select(
    model: &HostModel,
    level: Option<ThinkingLevel>,
    speed: Option<Speed>,
) -> ModelSelection {
    let mut parameters = model.defaults.clone();
    if let Some(level) = level {
        apply_thinking_level(&mut parameters, model, level);
    }
    if let (Some(speed), Some(parameter)) = (speed, model.base.parameter("fast")) {
        let value = if speed.is_fast() && model.can_be_fast() {
            "true"
        } else {
            "false"
        };
        let value = parameter.spelling(value).unwrap_or(value);
        set_parameter(&mut parameters, "fast", value);
    }
    ModelSelection {
        id: model.cursor_id.clone(),
        parameters,
        max_mode: model.base.is_max_mode(model.context.as_deref()),
    }
}

fn apply_thinking_level(
    parameters: &mut Vec<ParameterChoice>,
    model: &HostModel,
    level: ThinkingLevel,
) {
    let mapped = model.levels.as_ref().and_then(|levels| levels.get(&level));
    let Some(Some(value)) = mapped else {
        return;
    };
    let controls = ThinkingParameters::of(&model.base);
    match (level, controls.thinking, controls.effort) {
        (ThinkingLevel::Off, Some(_), _) if value.eq_ignore_ascii_case("false") => {
            set_parameter(parameters, "thinking", value);
            // An effort would enable thinking again.
            parameters.retain(|choice| choice.id != "effort");
        }
        (ThinkingLevel::Off, ..) => set_parameter(parameters, "reasoning", value),
        (_, thinking, Some(_)) => {
            if let Some(thinking) = thinking {
                let on = thinking.spelling("true").unwrap_or("true");
                set_parameter(parameters, "thinking", on);
            }
            set_parameter(parameters, "effort", value);
        }
        (..) if controls.reasoning.is_some() => set_parameter(parameters, "reasoning", value),
        (..) => set_parameter(parameters, "thinking", value),
    }
}

/// Replaces the value of a parameter in place, or appends the parameter.
pub(super) fn set_parameter(parameters: &mut Vec<ParameterChoice>, id: &str, value: &str) {
    match parameters.iter_mut().find(|choice| choice.id == id) {
        Some(choice) => choice.value = value.to_owned(),
        None => parameters.push(ParameterChoice {
            id: id.to_owned(),
            value: value.to_owned(),
        }),
    }
}
