//! The sources of Cursor settings, and which projects are trusted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// The user's own plugins of Cursor.
    Plugins,
}

/// All sources by the names that the setting uses.
pub const SOURCES: [(&str, ConfigSource); 5] = [
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
    NoProject,
    /// Every project.
    EveryProject,
    /// Projects in these folders.
    Folders(Vec<PathBuf>),
}

impl ProjectTrust {
    /// Whether a workspace is trusted.
    pub fn covers(&self, workspace: &Path) -> bool {
        match self {
            Self::NoProject => false,
            Self::EveryProject => true,
            Self::Folders(folders) => folders.iter().any(|folder| {
                let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                let workspace = workspace.canonicalize();
                workspace.is_ok_and(|workspace| workspace.starts_with(folder))
            }),
        }
    }
}

/// The user's choices about Cursor settings.
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
            sources: SOURCES.iter().map(|(_, source)| *source).collect(),
            trust: ProjectTrust::NoProject,
            connect_timeout: Duration::from_secs(10),
            tool_timeout: Duration::from_secs(3600),
        }
    }
}

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
}
