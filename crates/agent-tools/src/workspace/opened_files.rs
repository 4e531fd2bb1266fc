//! Checks files that are already open, for requests that read many.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::cursorignore::IgnoreRules;
use super::open_folder::opened_path;
use super::path_guard::{PathGuard, is_process, no_stream};
use super::secret_paths::SecretFile;
use foundation::file_id::FileId;

/// Checks opened files by the rules for reading, for one request. What it finds in a directory
/// holds until the end of the request.
#[derive(Debug)]
pub(crate) struct OpenedFiles {
    secrets: Vec<SecretFile>,
    rules: IgnoreRules,
    /// Whether a directory is secret or inside a secret one.
    folders: HashMap<PathBuf, bool>,
}

impl OpenedFiles {
    /// Starts the checks of one request.
    pub(crate) fn new(guard: &PathGuard) -> Self {
        Self {
            secrets: guard.secrets().found(),
            rules: IgnoreRules::default(),
            folders: HashMap::new(),
        }
    }

    /// Returns whether an opened file may be read. It checks the file itself, because the path may
    /// have changed since it was opened.
    pub(crate) fn may_show(&mut self, file: &File, about: &Metadata, path: &Path) -> bool {
        let mut judged = || -> io::Result<bool> {
            let real = opened_path(file, path)?;
            // The system's path of an unlinked file names another file or none.
            let is_same = FileId::of(file)? == FileId::at(&real, &real.symlink_metadata()?)?;
            let is_secret = self
                .secrets
                .iter()
                .any(|secret| secret.is(&real, || Some(about.clone())));
            Ok(is_same
                && no_stream(&real).is_ok()
                && !is_process(&real)
                && !is_secret
                && !real
                    .parent()
                    .is_some_and(|folder| self.is_in_secret(folder))
                && !self.rules.ignore(&real))
        };
        judged().unwrap_or(false)
    }

    fn is_in_secret(&mut self, folder: &Path) -> bool {
        if let Some(known) = self.folders.get(folder) {
            return *known;
        }
        let about = || folder.metadata().ok();
        let is_secret = self.secrets.iter().any(|secret| secret.is(folder, about))
            || folder
                .parent()
                .is_some_and(|above| self.is_in_secret(above));
        self.folders.insert(folder.to_owned(), is_secret);
        is_secret
    }
}
