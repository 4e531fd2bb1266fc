//! From a row, a thinking level and a speed to what Cursor is sent.

use super::item::Choice;
use super::rows::Row;
use super::thinking::{Controls, Level};

/// Whether a model answers faster for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Speed {
    Normal,
    Fast,
}

impl Speed {
    /// The speed a switch stands for.
    pub fn from_switch(on: bool) -> Self {
        if on { Self::Fast } else { Self::Normal }
    }

    /// Whether the switch is on.
    pub fn is_fast(self) -> bool {
        self == Self::Fast
    }
}

/// What Cursor is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The model's id or alias.
    pub id: String,
    /// Its parameters.
    pub parameters: Vec<Choice>,
    /// Whether that is Max Mode.
    pub max_mode: bool,
}

impl Selection {
    /// An id nothing is known about, as it is.
    pub fn plain(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            parameters: Vec::new(),
            max_mode: false,
        }
    }
}

/// What Cursor is sent for a row. A level the row does not have, or no speed, leaves the
/// default; a level of `None` is one we have never heard of.
pub fn select(row: &Row, level: Option<Level>, speed: Option<Speed>) -> Selection {
    let mut parameters = row.defaults.clone();
    if let Some(level) = level {
        think(&mut parameters, row, level);
    }
    if let (Some(speed), Some(parameter)) = (speed, row.item.parameter("fast")) {
        let value = if speed.is_fast() { "true" } else { "false" };
        let value = parameter.spelling(value).unwrap_or(value);
        set(&mut parameters, "fast", value);
    }
    Selection {
        id: row.selection.clone(),
        parameters,
        max_mode: row.item.is_max_mode(row.context.as_deref()),
    }
}

fn think(parameters: &mut Vec<Choice>, row: &Row, level: Level) {
    let mapped = row.levels.as_ref().and_then(|levels| levels.get(&level));
    let Some(Some(value)) = mapped else {
        return;
    };
    let controls = Controls::of(&row.item);
    match (level, controls.thinking, controls.effort) {
        (Level::Off, Some(_), _) if value.eq_ignore_ascii_case("false") => {
            set(parameters, "thinking", value);
            // An effort would ask for thinking again.
            parameters.retain(|choice| choice.id != "effort");
        }
        (Level::Off, ..) => set(parameters, "reasoning", value),
        (_, thinking, Some(_)) => {
            if let Some(thinking) = thinking {
                let on = thinking.spelling("true").unwrap_or("true");
                set(parameters, "thinking", on);
            }
            set(parameters, "effort", value);
        }
        (..) if controls.reasoning.is_some() => set(parameters, "reasoning", value),
        (..) => set(parameters, "thinking", value),
    }
}

/// Replaces a parameter's value where it stands, or adds it.
pub(super) fn set(parameters: &mut Vec<Choice>, id: &str, value: &str) {
    match parameters.iter_mut().find(|choice| choice.id == id) {
        Some(choice) => choice.value = value.to_owned(),
        None => parameters.push(Choice {
            id: id.to_owned(),
            value: value.to_owned(),
        }),
    }
}
