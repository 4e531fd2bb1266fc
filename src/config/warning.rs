//! Warnings about settings: each mistake is reported once, with the value that is used instead.

use std::fmt;
use std::path::PathBuf;

/// A mistake in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where it is, if it is in `config.toml`.
    pub location: Option<FileLocation>,
    /// What is wrong.
    pub problem: SettingProblem,
}

/// A line of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLocation {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// What is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingProblem {
    /// An invalid value; the default is used instead.
    #[error("{name}: {value:?} is not one of {expected}; using {default}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The given value.
        value: String,
        /// The values it accepts.
        expected: &'static str,
        /// The default, which is used instead.
        default: &'static str,
    },
    /// An invalid value of a setting that forbids something.
    #[error("{name}: {value:?} is not one of {expected}; until it is, {instead}")]
    Restriction {
        /// The setting.
        name: &'static str,
        /// The given value.
        value: String,
        /// The values it accepts.
        expected: &'static str,
        /// What is forbidden until the value is valid.
        instead: &'static str,
    },
    /// An invalid item of a list.
    #[error("{name}: {value:?} is not one of {expected}; it is left out")]
    Item {
        /// The setting.
        name: &'static str,
        /// The item.
        value: String,
        /// The values it accepts.
        expected: &'static str,
    },
    /// A `PI_CURSOR_` variable that is not a setting.
    #[error("{name} is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them{}", hint(.nearest))]
    UnknownName {
        /// The name.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// A key of the file that is not a setting.
    #[error("{key:?} is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them{}", hint(.nearest))]
    UnknownKey {
        /// The key.
        key: String,
        /// The most similar key.
        nearest: Option<String>,
    },
    /// A secret in the file.
    #[error(
        "{key:?} is a secret and is not read from this file; set {name} in the environment, and remove it here"
    )]
    SecretInFile {
        /// The key.
        key: String,
        /// The setting.
        name: &'static str,
    },
    /// A setting in the file that can only be set in the environment.
    #[error("{key:?} is not read from this file; set {name} in the environment")]
    EnvironmentOnly {
        /// The key.
        key: String,
        /// The setting.
        name: &'static str,
    },
    /// A value in the file that cannot be the value of a setting.
    #[error(
        "{key:?} must be a string, number, boolean or array of them, not {kind}; it is ignored"
    )]
    Type {
        /// The key.
        key: String,
        /// The type it has.
        kind: &'static str,
    },
    /// The file is not TOML.
    #[error("the file is not TOML and is ignored: {0}")]
    Syntax(String),
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {problem}; it is ignored", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        problem: String,
    },
}

fn hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        self.problem.fmt(f)
    }
}

impl From<SettingProblem> for Warning {
    fn from(problem: SettingProblem) -> Self {
        Self {
            location: None,
            problem,
        }
    }
}
