//! Paths that no native tool reads or changes, because this program and pi keep credentials there.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use foundation::file_id::FileId;
use foundation::state_dir;

use super::open_folder::resolve_links;

const AUTH: &str = "auth.json";
/// The secret entries of a state directory that contains more than our state.
const STATE: [&str; 5] = [
    "login.json",
    "gateway-token",
    "conversations",
    "debug",
    "trust",
];

/// Where the configuration says that credentials and settings are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretPaths {
    /// The state directory.
    pub state: Option<PathBuf>,
    /// pi's own directory, as `PI_CODING_AGENT_DIR` names it.
    pub agent: Option<String>,
    /// The file with our settings, because a change to it can allow every tool.
    pub config: Option<PathBuf>,
}

impl SecretPaths {
    /// Returns the paths on this machine. The default locations are included even if the
    /// configuration names others, because they may contain earlier credentials.
    pub(crate) fn for_workspace(&self, workspace: &Path, home: Option<&Path>) -> SecretFiles {
        let mut paths: Vec<PathBuf> = self.config.iter().cloned().collect();
        let usual = home.map(state_dir::default_in);
        let usual = usual.filter(|usual| self.state.as_ref() != Some(usual));
        for state in self.state.iter().chain(&usual) {
            let real = state.canonicalize().unwrap_or_else(|_| state.clone());
            let is_shared = workspace.starts_with(&real)
                || home.is_some_and(|home| home.starts_with(state) || home.starts_with(&real));
            if is_shared {
                paths.extend(STATE.map(|name| state.join(name)));
            } else {
                paths.push(state.clone());
            }
        }
        let agent =
            self.agent
                .as_deref()
                .and_then(|folder| match (folder.strip_prefix("~/"), home) {
                    (Some(rest), Some(home)) => Some(home.join(rest)),
                    _ => std::path::absolute(folder).ok(),
                });
        let usual = home.map(|home| home.join(".pi/agent"));
        let agents = agent.into_iter().chain(usual);
        paths.extend(agents.map(|folder| folder.join(AUTH)));
        SecretFiles(paths)
    }
}

/// The secret paths of one workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecretFiles(Vec<PathBuf>);

impl SecretFiles {
    /// Returns whether a path is one of them or inside one, by name or by inode.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        let found = self.found();
        let is_named = |path: &Path| found.iter().any(|secret| secret.is_named(path));
        let is_there = |path: &Path| {
            let here = id(path, path.metadata().ok());
            here.is_some() && found.iter().any(|secret| secret.id == here)
        };
        path.ancestors().any(is_named)
            || found.iter().any(|secret| secret.id.is_some()) && path.ancestors().any(is_there)
    }

    /// Returns the paths with their current inodes, for a walk that checks many files.
    pub(crate) fn found(&self) -> Vec<SecretFile> {
        self.0.iter().map(|path| SecretFile::at(path)).collect()
    }
}

/// One secret path, with its resolved path and inode.
#[derive(Debug, Clone)]
pub(crate) struct SecretFile {
    path: PathBuf,
    real: PathBuf,
    id: Option<FileId>,
}

impl SecretFile {
    fn at(path: &Path) -> Self {
        let about = path.metadata().ok();
        // A path without metadata cannot be resolved either.
        let real = about.as_ref().and_then(|_| resolve_links(path).ok());
        Self {
            real: real.unwrap_or_else(|| path.to_owned()),
            id: id(path, about),
            path: path.to_owned(),
        }
    }

    /// Returns whether a name is the last part of one of its paths.
    pub(crate) fn has_name(&self, name: &OsStr) -> bool {
        self.path.file_name() == Some(name) || self.real.file_name() == Some(name)
    }

    /// Returns whether a path is this one, also if it is spelled in another case, reached through
    /// another mount, or a hard link.
    pub(crate) fn is(&self, path: &Path, about: impl FnOnce() -> Option<Metadata>) -> bool {
        self.is_named(path) || self.id.is_some() && id(path, about()) == self.id
    }

    fn is_named(&self, path: &Path) -> bool {
        path == self.path || path == self.real
    }
}

fn id(path: &Path, about: Option<Metadata>) -> Option<FileId> {
    FileId::at(path, &about?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_state_folder_and_pis_credentials_are_secret() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let home = root.join("home");
        for folder in [
            "home/.local/state/cursor-sidecar",
            "home/.pi/agent",
            "state",
            "agent",
            "ws",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("state/login.json"), "{}").unwrap();
        fs::write(root.join("agent/auth.json"), "{}").unwrap();
        symlink(root.join("state"), root.join("ws/link")).unwrap();
        let paths = SecretPaths {
            state: Some(root.join("state")),
            agent: Some(root.join("agent").display().to_string()),
            config: Some(root.join("ws/config.toml")),
        };
        let secrets = paths.for_workspace(&root.join("ws"), Some(&home));
        for (path, expected) in [
            ("state", true),
            ("state/login.json", true),
            ("state/conversations/x/journal", true),
            ("ws/link/login.json", true),
            ("home/.local/state/cursor-sidecar/gateway-token", true),
            ("home/.pi/agent/auth.json", true),
            ("agent/auth.json", true),
            ("ws/config.toml", true),
            ("agent/settings.json", false),
            ("home/.pi/agent/settings.json", false),
            ("home/.local/state", false),
            ("statement", false),
            ("ws/a", false),
        ] {
            assert_eq!(secrets.contain(&root.join(path)), expected, "{path}");
        }
    }

    /// If the whole directory were secret, nothing in the workspace could be read.
    #[test]
    fn only_our_files_are_secret_in_a_state_directory_that_contains_the_workspace() {
        let home = Path::new("/no/home");
        let paths = SecretPaths {
            state: Some(home.to_owned()),
            ..SecretPaths::default()
        };
        let secrets = paths.for_workspace(Path::new("/no/home/ws"), Some(home));
        assert!(secrets.contain(Path::new("/no/home/login.json")));
        assert!(secrets.contain(Path::new("/no/home/conversations/x/journal")));
        assert!(!secrets.contain(Path::new("/no/home/ws/a")));
        assert!(!secrets.contain(Path::new("/no/home/a")));
    }
}
