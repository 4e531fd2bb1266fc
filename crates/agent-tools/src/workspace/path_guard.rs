//! The path guard: decides which paths may be read, written and deleted.
//!
//! Reading is allowed wherever the user may read, except our own and the host's credentials,
//! files named by `.cursorignore`, `/proc/<pid>`, and everything that is not a regular file.
//! Writing and deleting are allowed inside the workspace only, unless the user allowed more,
//! and never where other programs look for commands to run.
//!
//! A decision is made on a path with all links resolved. That path is then opened without following
//! links, in one call where the system can and directory by directory elsewhere, so a link swapped
//! in after the decision is not followed.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::cursorignore::{self, IgnoreRules};
use super::open_folder::{OpenFolder, read_unlinked, resolve_links};
use super::paths::{disk_root, names_stream, resolve_path};
use super::protected_paths::{ProtectedPathRules, ProtectedPaths, SETTING};
use super::secret_paths::{SecretFiles, SecretPaths};
use crate::errno::Errno;
use crate::handlers::io_errors;
use crate::policy::ToolPolicy;
use crate::prompts::refusals;

/// Why access to a path is refused.
#[derive(Debug, thiserror::Error)]
pub enum PathDenied {
    /// The path does not exist.
    #[error("the path does not exist")]
    Missing,
    /// `.cursorignore` excludes it.
    #[error("Blocked by cursor ignore")]
    Ignored,
    /// It is a `.cursorignore` file, which the model must not change because it hides files from
    /// it.
    #[error("Blocked by permissions configuration")]
    Rules,
    /// It is a settings file that names commands to run, such as hooks or MCP servers.
    #[error("{}", refusals::settings_file(.0))]
    Settings(PathBuf),
    /// Other programs execute what is written there.
    #[error("{}", refusals::protected(path, rule, SETTING))]
    Protected {
        /// The path.
        path: PathBuf,
        /// The pattern that protects it.
        rule: String,
    },
    /// It contains credentials.
    #[error("{}", refusals::secret(.0))]
    Secret(PathBuf),
    /// The path cannot be resolved: a loop of links, a file used as a directory, no permission.
    #[error("Write blocked: cannot verify {}", where_it_leads(path, error))]
    Unclear {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A link whose target does not exist, so it cannot be known where a write would go.
    #[error("{}", refusals::dangling_link(.0))]
    Dangling(PathBuf),
    /// The path is outside the workspace.
    #[error("{}", refusals::outside(.0))]
    Outside(PathBuf),
    /// The path is inside `/proc/<pid>`.
    #[error("{}", refusals::process(.0))]
    Process(PathBuf),
}

/// A path that may be accessed, with all links resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedPath {
    /// The path with all links resolved.
    pub real: PathBuf,
    /// The directory that opening starts from; `real` is inside it.
    base: PathBuf,
}

/// The guard of one workspace.
#[derive(Debug, Clone)]
pub struct PathGuard {
    workspace: PathBuf,
    real: PathBuf,
    home: Option<PathBuf>,
    allow_outside_writes: bool,
    protection: ProtectedPathRules,
    secrets: SecretFiles,
}

impl PathGuard {
    /// Creates the guard of a workspace with the default protected and secret paths. A workspace
    /// that does not exist contains no paths.
    pub fn new(workspace: &Path, home: Option<PathBuf>, allow_outside_writes: bool) -> Self {
        let protected = ProtectedPaths::default();
        Self::with(
            workspace,
            home,
            allow_outside_writes,
            &protected,
            &SecretPaths::default(),
        )
    }

    /// Creates the guard of a workspace with the user's settings.
    pub fn by_policy(workspace: &Path, home: Option<PathBuf>, policy: &ToolPolicy) -> Self {
        Self::with(
            workspace,
            home,
            policy.allow_outside_writes,
            &policy.protected_paths,
            &policy.secret_paths,
        )
    }

    fn with(
        workspace: &Path,
        home: Option<PathBuf>,
        allow_outside_writes: bool,
        protected: &ProtectedPaths,
        secret: &SecretPaths,
    ) -> Self {
        let workspace = std::path::absolute(workspace).unwrap_or_else(|_| workspace.to_owned());
        let real = workspace
            .canonicalize()
            .unwrap_or_else(|_| workspace.clone());
        let real_home = home
            .as_ref()
            .map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        Self {
            protection: protected.for_workspace(&real, real_home.as_deref()),
            secrets: secret.for_workspace(&real, real_home.as_deref()),
            workspace,
            real,
            home,
            allow_outside_writes,
        }
    }

    /// Returns the workspace as an absolute path; it may contain links.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Returns the workspace with all links resolved.
    pub fn real_workspace(&self) -> &Path {
        &self.real
    }

    /// Returns the absolute path of a path that the model sent.
    pub fn absolute(&self, path: &str) -> PathBuf {
        resolve_path(path, &self.workspace, self.home.as_deref())
    }

    /// Checks that a path may be read, and returns its resolved path.
    pub fn read(&self, path: &Path) -> Result<ApprovedPath, PathDenied> {
        no_stream(path)?;
        let real = resolve_links(path).map_err(|error| {
            if io_errors::is(&error, Errno::NOENT) {
                PathDenied::Missing
            } else {
                unclear(path, error)
            }
        })?;
        if is_process(&real) {
            tracing::warn!(tool = "read", "refused a path inside a process");
            return Err(PathDenied::Process(path.to_owned()));
        }
        if self.secrets.contain(&real) {
            return Err(secret(path));
        }
        if self.is_ignored(&real) {
            tracing::warn!(tool = "read", "refused a path the user keeps back");
            return Err(PathDenied::Ignored);
        }
        Ok(ApprovedPath {
            base: disk_root(&real),
            real,
        })
    }

    fn is_ignored(&self, real: &Path) -> bool {
        IgnoreRules::default().ignore(real)
    }

    /// Returns whether a resolved path is hidden from the model.
    pub fn is_hidden(&self, real: &Path) -> bool {
        self.is_ignored(real) || self.secrets.contain(real)
    }

    /// Returns the paths with credentials, for a walk that checks many files.
    pub(crate) fn secrets(&self) -> &SecretFiles {
        &self.secrets
    }

    /// Refuses to let the host read credentials. Other refusals are left to the host, as are links
    /// on a disk that we cannot see.
    pub(crate) fn host_read(&self, path: &Path) -> Result<(), PathDenied> {
        let real = path.canonicalize();
        if self.secrets.contain(path) || real.is_ok_and(|real| self.secrets.contain(&real)) {
            Err(secret(path))
        } else {
            Ok(())
        }
    }

    /// Refuses to let the host change paths that are protected here.
    pub(crate) fn host_change(&self, path: &Path) -> Result<(), PathDenied> {
        self.host_read(path)?;
        self.unprotected(path)?;
        // Deleting a link removes the link itself, whose directory may be reached through another
        // link.
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Ok(parent) = parent.canonicalize()
        {
            self.unprotected(&parent.join(name))?;
        }
        match resolve(path) {
            Ok(real) => self.unprotected(&real),
            Err(_) => Ok(()),
        }
    }

    /// Checks that a path may be written, and returns its resolved path. The file and its
    /// directories may be missing.
    pub fn write(&self, path: &Path) -> Result<ApprovedPath, PathDenied> {
        self.unprotected(path)?;
        let real = resolve(path)?;
        self.unlisted(&real)?;
        self.clear_change(path, real)
    }

    /// Checks that a path may be deleted, and returns its resolved path. Of a link this is the link
    /// itself, not its target.
    pub fn delete(&self, path: &Path) -> Result<ApprovedPath, PathDenied> {
        self.unprotected(path)?;
        // The target is checked too, because the result contains the text of the deleted file.
        match path.canonicalize() {
            Ok(real) => self.unlisted(&real)?,
            Err(error) if io_errors::is(&error, Errno::NOENT) => {
                return match path.symlink_metadata() {
                    Ok(_) => Err(PathDenied::Dangling(path.to_owned())),
                    Err(_) => Err(PathDenied::Missing),
                };
            }
            Err(error) => return Err(unclear(path, error)),
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(PathDenied::Outside(path.to_owned()));
        };
        let parent = parent
            .canonicalize()
            .map_err(|error| unclear(path, error))?;
        self.clear_change(path, parent.join(name))
    }

    /// Checks that a resolved path is neither protected nor excluded by `.cursorignore`.
    fn unlisted(&self, real: &Path) -> Result<(), PathDenied> {
        self.unprotected(real)?;
        if self.is_ignored(real) {
            tracing::warn!("refused a change of a path the user keeps back");
            return Err(PathDenied::Ignored);
        }
        Ok(())
    }

    /// Refuses to change `.cursorignore` files, settings that name commands, credentials and
    /// protected paths.
    fn unprotected(&self, path: &Path) -> Result<(), PathDenied> {
        no_stream(path)?;
        if cursorignore::is_rules(path) {
            tracing::warn!("refused a change of what is kept back");
            return Err(PathDenied::Rules);
        }
        let called = |path: Option<&Path>, name: &str| {
            let own = path.and_then(Path::file_name);
            own.is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        let named = SETTINGS.iter().any(|name| called(Some(path), name));
        // The settings directory may be a link to another directory.
        let homes = std::iter::once(&self.real).chain(&self.home);
        let mut files = homes.flat_map(|home| SETTINGS.map(|name| home.join(FOLDER).join(name)));
        let plugins = self
            .home
            .as_ref()
            .map(|home| home.join(FOLDER).join(PLUGINS));
        let plugins = plugins.and_then(|folder| resolve(&folder).ok());
        if named && called(path.parent(), FOLDER)
            || files.any(|file| resolve(&file).is_ok_and(|file| file == *path))
            || plugins.is_some_and(|folder| lies_in(path, &folder))
        {
            tracing::warn!("refused a change of settings that name commands");
            return Err(PathDenied::Settings(path.to_owned()));
        }
        if self.secrets.contain(path) {
            return Err(secret(path));
        }
        if let Some(rule) = self.protection.rule(path) {
            tracing::warn!("refused a change of a protected path");
            let path = path.to_owned();
            return Err(PathDenied::Protected { path, rule });
        }
        Ok(())
    }

    fn clear_change(&self, path: &Path, real: PathBuf) -> Result<ApprovedPath, PathDenied> {
        // The directory of a deleted link may have been reached through another link.
        self.unprotected(&real)?;
        if self.is_ignored(&real) {
            return Err(PathDenied::Ignored);
        }
        let base = if real.starts_with(&self.real) {
            self.real.clone()
        } else if self.allow_outside_writes && !is_process(&real) {
            disk_root(&real)
        } else {
            tracing::warn!("refused a change outside the workspace");
            return Err(PathDenied::Outside(path.to_owned()));
        };
        Ok(ApprovedPath { real, base })
    }
}

/// The directory of Cursor's settings, and the files in it that name commands: hooks and MCP
/// servers.
const FOLDER: &str = ".cursor";
const SETTINGS: [&str; 2] = ["hooks.json", "mcp.json"];
/// The folder in it of the user's plugins, whose files name commands or are run by them.
const PLUGINS: &str = "plugins";

/// Returns whether a path is a folder or lies in it, on a file system that may ignore case.
fn lies_in(path: &Path, folder: &Path) -> bool {
    let mut parts = path.components();
    folder.components().all(|wanted| {
        let part = parts.next().map(Component::as_os_str);
        part.is_some_and(|part| part.eq_ignore_ascii_case(wanted.as_os_str()))
    })
}

fn secret(path: &Path) -> PathDenied {
    tracing::warn!("refused a path with credentials");
    PathDenied::Secret(path.to_owned())
}

/// Returns the message for a path that cannot be resolved.
fn where_it_leads(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    if io_errors::is_denied(error) {
        format!("`{path}` -- permission denied resolving symlinks (EACCES).")
    } else {
        format!("where {path} leads: {error}")
    }
}

/// Refuses a path that names a stream of a file, because rules go by the names of files.
pub(super) fn no_stream(path: &Path) -> Result<(), PathDenied> {
    if names_stream(path) {
        tracing::warn!("refused a stream of a file");
        return Err(unclear(path, Errno::INVAL.into()));
    }
    Ok(())
}

fn unclear(path: &Path, error: io::Error) -> PathDenied {
    PathDenied::Unclear {
        path: path.to_owned(),
        error,
    }
}

/// Returns whether a path is `/proc/self`, `/proc/123` or below, which show environments, memory
/// and open files.
pub(super) fn is_process(real: &Path) -> bool {
    let mut parts = real.components().skip(1);
    let first = parts.next().map(Component::as_os_str);
    let second = parts.next().and_then(|part| part.as_os_str().to_str());
    first.is_some_and(|name| name == "proc")
        && second.is_some_and(|name| {
            name == "self" || name == "thread-self" || name.bytes().all(|b| b.is_ascii_digit())
        })
}

/// Returns the path with all links resolved; its last components may be missing.
fn resolve(path: &Path) -> Result<PathBuf, PathDenied> {
    let mut missing: Vec<OsString> = Vec::new();
    let mut there = path;
    loop {
        match there.canonicalize() {
            Ok(mut real) => {
                if !missing.is_empty() && !real.is_dir() {
                    let error = io::Error::from(Errno::NOTDIR);
                    return Err(unclear(path, error));
                }
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(error) if io_errors::is(&error, Errno::NOENT) => {
                if there.symlink_metadata().is_ok() {
                    return Err(PathDenied::Dangling(path.to_owned()));
                }
                let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                    return Err(unclear(path, error));
                };
                missing.push(name.to_owned());
                there = parent;
            }
            Err(error) => return Err(unclear(path, error)),
        }
    }
}

/// Whether missing parent directories are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFolders {
    /// They must exist.
    Fail,
    /// They are created.
    Create,
}

impl ApprovedPath {
    /// Returns the file's directory, opened, and its name. Operations through the handle stay in
    /// that directory even if the path changes afterwards.
    pub(crate) fn folder(&self, folders: MissingFolders) -> io::Result<(OpenFolder, OsString)> {
        let name = self.real.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let inside = self
            .real
            .parent()
            .and_then(|parent| parent.strip_prefix(&self.base).ok())
            .ok_or(Errno::ISDIR)?;
        let mut folder = OpenFolder::at(&self.base)?;
        for part in inside.components() {
            let part = part.as_os_str();
            folder = match folder.folder(part) {
                Err(error)
                    if folders == MissingFolders::Create && io_errors::is(&error, Errno::NOENT) =>
                {
                    folder.create_folder(part)?;
                    folder.folder(part)?
                }
                opened => opened?,
            };
        }
        Ok((folder, name))
    }

    /// Opens the file for reading. Fails if it is not a regular file, because opening a pipe could
    /// block and opening a device could have effects.
    pub fn open(&self) -> io::Result<File> {
        Ok(self.open_with_metadata()?.0)
    }

    /// Opens the file for reading, as [`open`](Self::open) does, and returns its metadata too.
    pub(crate) fn open_with_metadata(&self) -> io::Result<(File, Metadata)> {
        let file = match read_unlinked(&self.real)? {
            Some(file) => file,
            None => {
                let (folder, name) = self.folder(MissingFolders::Fail)?;
                folder.read(&name)?
            }
        };
        let about = file.metadata()?;
        if !about.is_file() {
            tracing::warn!("refused what is no plain file");
            return Err(io::Error::from(Errno::INVAL));
        }
        Ok((file, about))
    }
}

#[cfg(test)]
mod tests;
