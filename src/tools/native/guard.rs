//! The path guard: what may be read, and where may be written.
//!
//! Reading is allowed wherever the user may read, less credentials of ours and of the host,
//! what `.cursorignore` keeps back, the insides of processes, and whatever is no plain file.
//! Writing and deleting happen inside the workspace only, unless the user allowed more, and
//! not where other programs look for commands.
//!
//! A verdict is given on a path without links, and what is opened is that path, folder by
//! folder, following no link: one that is swapped in after the verdict is not followed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::policy::{Leave, Policy};
use super::protected::{ProtectedPaths, Protection, SETTING};
use super::secret_paths::{SecretPaths, Secrets};
use super::{errno, ignored};
use crate::tools::paths::meant;

/// Why a path is not touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nothing is there.
    #[error("nothing is there")]
    Missing,
    /// `.cursorignore` names it.
    #[error("Blocked by cursor ignore")]
    Ignored,
    /// It says what is kept from the model, which is not for the model to say.
    #[error("Blocked by permissions configuration")]
    Rules,
    /// It says what is run and what may not be.
    #[error("{0} says which commands run here and what hooks guard; only the user changes it")]
    Settings(PathBuf),
    /// Other programs run what is written there.
    #[error(
        "{} is protected (rule {rule}): other programs run what it says, so only the user \
         changes it, or allows it with {SETTING}",
        path.display()
    )]
    Protected {
        /// The path.
        path: PathBuf,
        /// The pattern that protects it.
        rule: String,
    },
    /// Credentials are there.
    #[error("{0} is where cursor-sidecar or pi keeps credentials, which no tool touches")]
    Secret(PathBuf),
    /// What it leads to cannot be told: loops, files used as folders, closed folders.
    #[error("Write blocked: cannot verify {}", where_it_leads(path, error))]
    Unclear {
        /// The path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A link to nothing: where a write would end up is anybody's guess.
    #[error("Write blocked: {0} is a dangling symlink; what it would create cannot be verified")]
    Dangling(PathBuf),
    /// It is outside the workspace.
    #[error(
        "{0} is outside the workspace; cursor-sidecar writes and deletes inside it only \
         (the user can allow more with PI_CURSOR_ALLOW_OUTSIDE_WRITES=1)"
    )]
    Outside(PathBuf),
    /// The insides of a process.
    #[error("{0} shows the insides of a process, which are not read")]
    Process(PathBuf),
}

/// A path that may be touched: no link in it, and what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// The path with all links resolved.
    pub real: PathBuf,
    /// The folder the walk starts from; `real` is inside it.
    base: PathBuf,
}

/// The guard of one workspace.
#[derive(Debug, Clone)]
pub struct Guard {
    workspace: PathBuf,
    real: PathBuf,
    home: Option<PathBuf>,
    outside_writes: Leave,
    protection: Protection,
    secrets: Secrets,
}

impl Guard {
    /// Guards a workspace with the usual protection. One that does not exist contains nothing.
    pub fn new(workspace: &Path, home: Option<PathBuf>, outside_writes: Leave) -> Self {
        let protected = ProtectedPaths::default();
        Self::with(
            workspace,
            home,
            outside_writes,
            &protected,
            &SecretPaths::default(),
        )
    }

    /// Guards a workspace as the user's settings say it.
    pub fn by_policy(workspace: &Path, home: Option<PathBuf>, policy: &Policy) -> Self {
        Self::with(
            workspace,
            home,
            policy.outside_writes,
            &policy.protected_paths,
            &policy.secret_paths,
        )
    }

    fn with(
        workspace: &Path,
        home: Option<PathBuf>,
        outside_writes: Leave,
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
            outside_writes,
        }
    }

    /// The workspace as it is called.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The workspace without links.
    pub fn real_workspace(&self) -> &Path {
        &self.real
    }

    /// What a path of the model means.
    pub fn absolute(&self, path: &str) -> PathBuf {
        meant(path, &self.workspace, self.home.as_deref())
    }

    /// Whether a path may be read, and which file that is.
    pub fn read(&self, path: &Path) -> Result<Cleared, Refusal> {
        let real = path.canonicalize().map_err(|error| {
            if errno::is(&error, Errno::NOENT) {
                Refusal::Missing
            } else {
                unclear(path, error)
            }
        })?;
        if is_process(&real) {
            tracing::warn!(tool = "read", "refused a path inside a process");
            return Err(Refusal::Process(path.to_owned()));
        }
        if self.secrets.contain(&real) {
            return Err(secret(path));
        }
        if self.is_ignored(&real) {
            tracing::warn!(tool = "read", "refused a path the user keeps back");
            return Err(Refusal::Ignored);
        }
        Ok(Cleared {
            real,
            base: PathBuf::from("/"),
        })
    }

    /// Whether what was opened by a path may be read, however the path has changed since.
    pub(super) fn may_show(&self, file: &File, path: &Path) -> bool {
        let judged = || -> io::Result<bool> {
            let real = opened_path(file, path)?;
            let (opened, named) = (file.metadata()?, real.symlink_metadata()?);
            let is_same = (opened.dev(), opened.ino()) == (named.dev(), named.ino());
            Ok(is_same && self.read(&real).is_ok_and(|cleared| cleared.real == real))
        };
        judged().unwrap_or(false)
    }

    fn is_ignored(&self, real: &Path) -> bool {
        ignored::Rules::default().ignore(real)
    }

    /// Whether a real path is kept from the model.
    pub fn is_hidden(&self, real: &Path) -> bool {
        self.is_ignored(real) || self.secrets.contain(real)
    }

    /// Credentials as they lie now, for a walk that asks often.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Refuses to have the host read credentials. What the host itself refuses is its own
    /// business, and so are links on a disk we may not see.
    pub(in crate::tools) fn host_read(&self, path: &Path) -> Result<(), Refusal> {
        let real = path.canonicalize();
        if self.secrets.contain(path) || real.is_ok_and(|real| self.secrets.contain(&real)) {
            Err(secret(path))
        } else {
            Ok(())
        }
    }

    /// Refuses to have the host change what is protected here.
    pub(in crate::tools) fn host_change(&self, path: &Path) -> Result<(), Refusal> {
        self.host_read(path)?;
        self.unprotected(path)?;
        // A link is deleted itself, and its folder may be reached through another.
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

    /// Whether a path may be written, and which file that is. Folders and the file itself may
    /// be missing.
    pub fn write(&self, path: &Path) -> Result<Cleared, Refusal> {
        self.unprotected(path)?;
        let real = resolve(path)?;
        self.unlisted(&real)?;
        self.clear_change(path, real)
    }

    /// Whether a path may be deleted. A link is deleted itself, not what it leads to.
    pub fn delete(&self, path: &Path) -> Result<Cleared, Refusal> {
        self.unprotected(path)?;
        // What cannot be read cannot be told to the model either.
        match path.canonicalize() {
            Ok(real) => self.unlisted(&real)?,
            Err(error) if errno::is(&error, Errno::NOENT) => {
                return match path.symlink_metadata() {
                    Ok(_) => Err(Refusal::Dangling(path.to_owned())),
                    Err(_) => Err(Refusal::Missing),
                };
            }
            Err(error) => return Err(unclear(path, error)),
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Refusal::Outside(path.to_owned()));
        };
        let parent = parent
            .canonicalize()
            .map_err(|error| unclear(path, error))?;
        self.clear_change(path, parent.join(name))
    }

    /// Whether the user's files have nothing against a change.
    fn unlisted(&self, real: &Path) -> Result<(), Refusal> {
        self.unprotected(real)?;
        if self.is_ignored(real) {
            tracing::warn!("refused a change of a path the user keeps back");
            return Err(Refusal::Ignored);
        }
        Ok(())
    }

    /// Refuses to change what says what is kept back, what is run, and credentials.
    fn unprotected(&self, path: &Path) -> Result<(), Refusal> {
        if ignored::is_rules(path) {
            tracing::warn!("refused a change of what is kept back");
            return Err(Refusal::Rules);
        }
        let called = |path: Option<&Path>, name: &str| {
            let own = path.and_then(Path::file_name);
            own.is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        let named = SETTINGS.iter().any(|name| called(Some(path), name));
        // Their folder may be a link to another.
        let homes = std::iter::once(&self.real).chain(&self.home);
        let mut files = homes.flat_map(|home| SETTINGS.map(|name| home.join(FOLDER).join(name)));
        if named && called(path.parent(), FOLDER)
            || files.any(|file| resolve(&file).is_ok_and(|file| file == *path))
        {
            tracing::warn!("refused a change of settings that name commands");
            return Err(Refusal::Settings(path.to_owned()));
        }
        if self.secrets.contain(path) {
            return Err(secret(path));
        }
        if let Some(rule) = self.protection.rule(path) {
            tracing::warn!("refused a change of a protected path");
            let path = path.to_owned();
            return Err(Refusal::Protected { path, rule });
        }
        Ok(())
    }

    fn clear_change(&self, path: &Path, real: PathBuf) -> Result<Cleared, Refusal> {
        // The folder of a link that is deleted may have been reached through another.
        self.unprotected(&real)?;
        if self.is_ignored(&real) {
            return Err(Refusal::Ignored);
        }
        let base = if real.starts_with(&self.real) {
            self.real.clone()
        } else if self.outside_writes == Leave::Allowed && !is_process(&real) {
            PathBuf::from("/")
        } else {
            tracing::warn!("refused a change outside the workspace");
            return Err(Refusal::Outside(path.to_owned()));
        };
        Ok(Cleared { real, base })
    }
}

/// Where settings lie, and which of them name commands: hooks, and MCP servers.
const FOLDER: &str = ".cursor";
const SETTINGS: [&str; 2] = ["hooks.json", "mcp.json"];

fn secret(path: &Path) -> Refusal {
    tracing::warn!("refused a path with credentials");
    Refusal::Secret(path.to_owned())
}

/// The path of what was opened, without links.
#[cfg(target_os = "linux")]
fn opened_path(file: &File, path: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    let shown = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(shown).or_else(|_| path.canonicalize())
}

/// The path that leads there now; what it leads to has to be compared.
#[cfg(not(target_os = "linux"))]
fn opened_path(_file: &File, path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// What is said of a path nobody can follow.
fn where_it_leads(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    if errno::is_denied(error) {
        format!("`{path}` -- permission denied resolving symlinks (EACCES).")
    } else {
        format!("where {path} leads: {error}")
    }
}

fn unclear(path: &Path, error: io::Error) -> Refusal {
    Refusal::Unclear {
        path: path.to_owned(),
        error,
    }
}

/// `/proc/self`, `/proc/123` and below: environments, memory, open files.
fn is_process(real: &Path) -> bool {
    let mut parts = real.components().skip(1);
    let first = parts.next().map(Component::as_os_str);
    let second = parts.next().and_then(|part| part.as_os_str().to_str());
    first.is_some_and(|name| name == "proc")
        && second.is_some_and(|name| {
            name == "self" || name == "thread-self" || name.bytes().all(|b| b.is_ascii_digit())
        })
}

/// The path with all links resolved, though its end may be missing.
fn resolve(path: &Path) -> Result<PathBuf, Refusal> {
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
            Err(error) if errno::is(&error, Errno::NOENT) => {
                if there.symlink_metadata().is_ok() {
                    return Err(Refusal::Dangling(path.to_owned()));
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

/// Whether folders on the way are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folders {
    /// They must be there.
    Present,
    /// They are made.
    Made,
}

impl Cleared {
    /// The file's name and the folder it is in, held open: whatever happens to the path, what
    /// is done through this handle is done in that folder.
    pub fn folder(&self, folders: Folders) -> io::Result<(OwnedFd, OsString)> {
        let name = self.real.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let inside = self
            .real
            .parent()
            .and_then(|parent| parent.strip_prefix(&self.base).ok())
            .ok_or(Errno::ISDIR)?;
        let mut folder = rustix::fs::openat(CWD, &self.base, DIRECTORY, Mode::empty())?;
        for part in inside.components() {
            let part = part.as_os_str();
            let opened = rustix::fs::openat(&folder, part, DIRECTORY, Mode::empty());
            folder = match opened {
                Err(Errno::NOENT) if folders == Folders::Made => {
                    match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    rustix::fs::openat(&folder, part, DIRECTORY, Mode::empty())?
                }
                other => other.map_err(swapped)?,
            };
        }
        Ok((folder, name))
    }

    /// Opens the file for reading: a plain file and nothing that would wait or act.
    pub fn open(&self) -> io::Result<File> {
        let (folder, name) = self.folder(Folders::Present)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&folder, name, flags, Mode::empty());
        let file = File::from(opened.map_err(swapped)?);
        if !file.metadata()?.is_file() {
            tracing::warn!("refused what is no plain file");
            return Err(io::Error::from(Errno::INVAL));
        }
        Ok(file)
    }
}

/// Notes a link where there was none when the path was judged.
pub(super) fn swapped(error: Errno) -> Errno {
    if matches!(error, Errno::LOOP | Errno::NOTDIR) {
        tracing::warn!("refused a link that took the place of something else");
    }
    error
}

/// Links are not followed, and what is no folder is not entered.
#[cfg(target_os = "linux")]
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests;
