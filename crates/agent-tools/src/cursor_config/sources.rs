//! The sources of Cursor settings, and which projects are trusted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foundation::parse;
use foundation::settings::{self, Warning};

/// A source of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The workspace and the folders above it.
    Project,
    /// The user's home.
    User,
    /// The team's dashboard. Nothing is loaded, because it is not stored in files.
    Team,
    /// The machine's administrator.
    Mdm,
    /// Installed plugins. They are not read.
    Plugins,
}

const NAMES: [(&str, ConfigSource); 5] = [
    ("project", ConfigSource::Project),
    ("user", ConfigSource::User),
    ("team", ConfigSource::Team),
    ("mdm", ConfigSource::Mdm),
    ("plugins", ConfigSource::Plugins),
];

/// The projects whose commands (MCP servers and hooks) may be run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProjectTrust {
    /// No project.
    #[default]
    Nobody,
    /// Every project.
    Everybody,
    /// Projects in these folders.
    Folders(Vec<PathBuf>),
}

impl ProjectTrust {
    /// Whether a workspace is trusted.
    pub fn covers(&self, workspace: &Path) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::Folders(folders) => folders.iter().any(|folder| {
                let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                let workspace = workspace.canonicalize();
                workspace.is_ok_and(|workspace| workspace.starts_with(folder))
            }),
        }
    }
}

/// The choices about Cursor settings in the user's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFilter {
    /// The sources that are loaded.
    pub sources: BTreeSet<ConfigSource>,
    /// The projects whose commands may be run.
    pub trust: ProjectTrust,
    /// The timeout for connecting to a server.
    pub connect_timeout: Duration,
    /// The timeout for a call of a server's tool.
    pub tool_timeout: Duration,
}

impl Default for SourceFilter {
    fn default() -> Self {
        Self {
            sources: NAMES.iter().map(|(_, source)| *source).collect(),
            trust: ProjectTrust::Nobody,
            connect_timeout: parse::connect_timeout(&|_: &str| None),
            tool_timeout: parse::tool_timeout(&|_: &str| None),
        }
    }
}

const SOURCES: &str = "PI_CURSOR_SETTING_SOURCES";
const TRUST: &str = "PI_CURSOR_TRUST_PROJECT";

impl SourceFilter {
    /// Returns a choice that loads nothing.
    pub fn nothing() -> Self {
        Self {
            sources: BTreeSet::new(),
            ..Self::default()
        }
    }

    /// Whether a source is loaded.
    pub fn has(&self, source: ConfigSource) -> bool {
        self.sources.contains(&source)
    }

    /// Reads the choices from the environment; an unknown source is skipped with a warning.
    pub fn from_env(env: &impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let mut choice = Self {
            connect_timeout: parse::connect_timeout(env),
            tool_timeout: parse::tool_timeout(env),
            ..Self::nothing()
        };
        for word in parse::setting_sources(env(SOURCES).as_deref()).unwrap_or_default() {
            let wanted = word.to_ascii_lowercase();
            match NAMES.iter().find(|(name, _)| *name == wanted) {
                Some((_, source)) => drop(choice.sources.insert(*source)),
                None if wanted == "all" => choice.sources = Self::default().sources,
                None => warnings.extend(settings::part_not_understood(SOURCES, &word)),
            }
        }
        let text = env(TRUST).filter(|text| !text.trim().is_empty());
        choice.trust = match (parse::switch(text.as_deref()), text) {
            (Some(true), _) => ProjectTrust::Everybody,
            (Some(false), _) | (None, None) => ProjectTrust::Nobody,
            (None, Some(text)) => {
                let (folders, others): (Vec<_>, Vec<_>) =
                    std::env::split_paths(&text).partition(|folder| folder.is_absolute());
                let others = others.iter().map(|folder| folder.to_string_lossy());
                warnings.extend(
                    others.filter_map(|folder| settings::part_not_understood(TRUST, &folder)),
                );
                ProjectTrust::Folders(folders)
            }
        };
        for name in parse::CONNECT_TIMEOUT {
            settings::number(env, name, &mut warnings);
        }
        (choice, warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (SourceFilter, usize) {
        let (choice, warnings) = SourceFilter::from_env(&|name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        (choice, warnings.len())
    }

    #[test]
    fn everything_is_loaded_and_no_project_trusted_unless_told() {
        assert_eq!(read(&[]), (SourceFilter::default(), 0));
        assert_eq!(read(&[(SOURCES, "none")]).0, SourceFilter::nothing());
        assert_eq!(
            read(&[(SOURCES, "all,project")]),
            (SourceFilter::default(), 0)
        );
        assert!(!SourceFilter::default().trust.covers(Path::new("/")));
    }

    #[test]
    fn sources_are_named_and_unknown_ones_told() {
        let (choice, warnings) = read(&[(SOURCES, "Project, mdm,no")]);
        assert_eq!(warnings, 1);
        assert!(choice.has(ConfigSource::Project) && choice.has(ConfigSource::Mdm));
        assert!(!choice.has(ConfigSource::User) && !choice.has(ConfigSource::Plugins));
    }

    #[test]
    fn trust_is_a_switch_or_folders() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let listed = folder.path().to_str().unwrap();
        let (choice, warnings) = read(&[(TRUST, listed)]);
        assert_eq!(warnings, 0);
        assert!(choice.trust.covers(&inside));
        assert!(!choice.trust.covers(&std::env::temp_dir()));
        assert_eq!(read(&[(TRUST, "on")]).0.trust, ProjectTrust::Everybody);
        assert_eq!(read(&[(TRUST, "0")]).0.trust, ProjectTrust::Nobody);
        assert_eq!(read(&[(TRUST, "perhaps")]).1, 1);
    }
}
