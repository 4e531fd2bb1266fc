//! The given values of settings, and their parsing with a warning for each invalid one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::file::FileValues;
use super::parse;
use super::settings::{self, SETTINGS, Setting, SettingScope};
use super::warning::{SettingProblem, Warning};

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// Where the value of a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    /// It is not set.
    Default,
    /// The environment.
    Environment,
    /// `config.toml`.
    File,
}

/// The given values of all settings. Of secrets, it is only known whether they are set.
#[derive(Clone, Default)]
pub struct Values {
    environment: BTreeMap<&'static str, String>,
    file: FileValues,
}

/// Without values, because a proxy's address may contain a password.
impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.environment.keys().chain(self.file.keys());
        f.debug_set().entries(names).finish()
    }
}

impl Values {
    pub(super) fn new(environment: &Environment, file: FileValues) -> Self {
        let given = |setting: &Setting| {
            let text = environment.get(setting.name)?;
            let text = match setting.scope {
                SettingScope::Secret if !text.is_empty() => "(set)",
                _ => text,
            };
            (!text.trim().is_empty()).then(|| (setting.name, text.to_owned()))
        };
        Self {
            environment: SETTINGS.iter().filter_map(given).collect(),
            file,
        }
    }

    /// Returns the given value of a setting and its source.
    fn given(&self, name: &str) -> Option<(&str, ValueSource)> {
        if let Some(text) = self.environment.get(name) {
            return Some((text, ValueSource::Environment));
        }
        // The environment takes precedence, also if it uses another unit than the file.
        let other = settings::find(name).and_then(Setting::in_other_unit);
        if other.is_some_and(|other| self.environment.contains_key(other.name)) {
            return None;
        }
        let value = self.file.get(name)?;
        (!value.text.trim().is_empty()).then_some((value.text.as_str(), ValueSource::File))
    }

    /// Returns the given value of a setting; `None` if it is absent or blank.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.given(name).map(|(text, _)| text)
    }

    /// Returns where the value of a setting comes from.
    pub fn source(&self, name: &str) -> ValueSource {
        self.given(name)
            .map_or(ValueSource::Default, |(_, source)| source)
    }
}

impl From<&Environment> for Values {
    fn from(environment: &Environment) -> Self {
        Self::new(environment, FileValues::default())
    }
}

/// Parses values, and collects a warning for each that is invalid.
pub(super) struct SettingReader<'v> {
    pub(super) values: &'v Values,
    pub(super) warnings: Vec<Warning>,
}

impl SettingReader<'_> {
    /// Returns the given value as text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.values.get(name).map(str::to_owned)
    }

    /// Returns the given value as a path.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.values.get(name).map(PathBuf::from)
    }

    /// Returns whether a switch is on: its default if it is not set or invalid.
    pub(super) fn switch(&mut self, name: &str) -> bool {
        let default = settings::find(name).and_then(|setting| parse::switch(Some(setting.default)));
        self.optional_switch(name).or(default).unwrap_or_default()
    }

    /// Returns whether a switch is on; `None` if it is not set or invalid.
    pub(super) fn optional_switch(&mut self, name: &str) -> Option<bool> {
        let text = self.text(name)?;
        let value = parse::switch(Some(&text));
        if value.is_none() {
            self.invalid(name, &text);
        }
        value
    }

    /// Returns whether a switch is on; `None` also for `auto`.
    pub(super) fn switch_or_auto(&mut self, name: &str) -> Option<bool> {
        let is_auto = self.values.get(name)?.trim() == "auto";
        if is_auto {
            return None;
        }
        self.optional_switch(name)
    }

    /// Returns the value that `choices` maps the text to; `None` if it is not set or invalid.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let value = parse::named(choices, &text);
        if value.is_none() {
            self.invalid(name, &text);
        }
        value
    }

    /// Returns a number within its bounds; `None` if it is not set or not a number.
    pub(super) fn number(&mut self, name: &str) -> Option<u64> {
        let text = self.text(name)?;
        let number = settings::find(name)?.number?.read(&text);
        if number.is_none() {
            self.invalid(name, &text);
        }
        number
    }

    /// Warns that the default is used instead of an invalid value.
    pub(super) fn invalid(&mut self, name: &str, value: &str) {
        self.warn(name, |setting| SettingProblem::Value {
            name: setting.name,
            value: value.to_owned(),
            expected: setting.values,
            default: setting.default,
        });
    }

    /// Warns that an invalid item of a list is left out.
    pub(super) fn invalid_item(&mut self, name: &str, item: &str) {
        self.warn(name, |setting| SettingProblem::Item {
            name: setting.name,
            value: item.to_owned(),
            expected: setting.values,
        });
    }

    /// Warns that something is forbidden because of an invalid value.
    pub(super) fn restrict(&mut self, name: &str, value: &str, instead: &'static str) {
        self.warn(name, |setting| SettingProblem::Restriction {
            name: setting.name,
            value: value.to_owned(),
            expected: setting.values,
            instead,
        });
    }

    fn warn(&mut self, name: &str, problem: impl FnOnce(&Setting) -> SettingProblem) {
        let Some(setting) = settings::find(name) else {
            return;
        };
        let in_file = self.values.source(name) == ValueSource::File;
        let value = self.values.file.get(name).filter(|_| in_file);
        self.warnings.push(Warning {
            location: value.map(|value| value.location.clone()),
            problem: problem(setting),
        });
    }
}
