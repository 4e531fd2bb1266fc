//! Small private files: written atomically, readable by their owner only.
//!
//! A file that another user owns or can change is not used, because it could be a key of theirs,
//! a token they know, a link to one of our files, or a pipe that blocks. On Unix owner and mode
//! decide, on Windows the user's profile folder, whose access list closes it to other users.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::state_dir::STATE_DIR;
#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

pub use platform::{
    close_to_others, folder_builder, is_mine, is_open_to_all, never_follow, owner_only,
};

/// At most this much of a file is read; no file of ours is larger.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Why a private file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The operating system reported an error.
    #[error("cannot {doing} {}: {cause}", path.display())]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// Another user could have created it, or could read it.
    #[error(
        "{} is not used: {exposure}; {}, or set {STATE_DIR} to a private folder",
        path.display(),
        platform::REMEDY
    )]
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        exposure: Exposure,
    },
    /// The content of a file, which the user may have edited, is invalid.
    #[error("{} is damaged ({problem}); correct or remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Why a file or folder is not private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exposure {
    /// Another user owns it.
    #[error("it belongs to another user (uid {0})")]
    Owner(u32),
    /// Other users can write to it.
    #[error("other users can write to it")]
    Writable,
    /// Other users can read it, so it must not hold a secret.
    #[error("other users can read it")]
    Readable,
    /// It is outside the user's profile folder, so nothing closes it to other users.
    #[error("it is outside your profile folder")]
    OutsideProfile,
    /// It is a link, a pipe, or another unexpected kind of file.
    #[error("it is not a plain file or folder")]
    Kind,
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// All users: the file holds no secret.
    All,
    OwnerOnly,
}

fn exposed(path: &Path, exposure: Exposure) -> PrivateFileError {
    PrivateFileError::Exposed {
        path: path.to_owned(),
        exposure,
    }
}

/// Returns an error for a folder that another user owns or can change. A missing folder is fine.
pub fn check_folder(folder: &Path) -> Result<(), PrivateFileError> {
    let missing = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
    let link = match folder.symlink_metadata() {
        Err(error) if missing(&error) => return Ok(()),
        about => about.map_err(failed("look at", folder))?,
    };
    // The user may link to a folder elsewhere, but the link must belong to the user or to root.
    if link.is_symlink()
        && let Some(exposure) = platform::link_exposure(&link)
    {
        return Err(exposed(folder, exposure));
    }
    let about = match folder.metadata() {
        Err(error) if missing(&error) => return Ok(()),
        about => about.map_err(failed("look at", folder))?,
    };
    if !about.is_dir() {
        return Err(exposed(folder, Exposure::Kind));
    }
    unexposed(folder, &about, Readers::All)
}

fn unexposed(path: &Path, about: &Metadata, readers: Readers) -> Result<(), PrivateFileError> {
    platform::exposure(path, about, readers).map_or(Ok(()), |exposure| Err(exposed(path, exposure)))
}

/// Returns an error for an open file that is not regular, not ours, writable by others, or open to
/// more readers.
fn check_open(file: &File, path: &Path, readers: Readers) -> Result<(), PrivateFileError> {
    let about = file.metadata().map_err(failed("look at", path))?;
    if !about.is_file() {
        return Err(exposed(path, Exposure::Kind));
    }
    unexposed(path, &about, readers)
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> PrivateFileError {
    let path = path.to_owned();
    move |cause| PrivateFileError::Io { doing, path, cause }
}

/// Replaces a file's content atomically: a reader sees the old or the new content, also after a
/// power cut.
pub fn write(path: &Path, content: &[u8]) -> Result<(), PrivateFileError> {
    let folder = create_folder(path)?;
    let temporary = path.with_extension(format!("{}.new", uuid::Uuid::new_v4()));
    let written = (|| {
        let mut options = OpenOptions::new();
        owner_only(options.write(true).create_new(true));
        let mut file = options.open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        platform::sync_folder(folder)
    })();
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&temporary);
        failed("write", path)(cause)
    })
}

/// Makes the latest rename of a file durable.
pub fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), platform::sync_folder)
}

/// Locks a file against other processes that change it with this function. Waits for the lock,
/// which is released when the returned value is dropped.
pub fn lock(path: &Path) -> Result<File, PrivateFileError> {
    let (file, path) = open_lock(path)?;
    file.lock().map_err(failed("lock", &path))?;
    Ok(file)
}

/// Like [`lock`], but returns `None` at once if another process has the lock.
pub fn try_lock(path: &Path) -> Result<Option<File>, PrivateFileError> {
    let (file, path) = open_lock(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
    }
}

fn open_lock(path: &Path) -> Result<(File, PathBuf), PrivateFileError> {
    create_folder(path)?;
    let lock = path.with_extension("lock");
    let mut options = OpenOptions::new();
    owner_only(options.write(true).create(true).truncate(false));
    let open = never_follow(&mut options).open(&lock);
    let file = open.map_err(opening(&lock, "lock"))?;
    check_open(&file, &lock, Readers::All)?;
    Ok((file, lock))
}

/// Returns a file's text; `None` if the file does not exist.
pub fn read(path: &Path) -> Result<Option<String>, PrivateFileError> {
    read_by(path, Readers::All)
}

/// Like [`read`], but returns an error if other users can access the file.
pub fn read_secret(path: &Path) -> Result<Option<String>, PrivateFileError> {
    read_by(path, Readers::OwnerOnly)
}

fn read_by(path: &Path, readers: Readers) -> Result<Option<String>, PrivateFileError> {
    check_folder(parent(path))?;
    let opened = never_follow(OpenOptions::new().read(true)).open(path);
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(opening(path, "read"))?,
    };
    check_open(&file, path, readers)?;
    let mut text = String::new();
    let read = file.take(MOST_BYTES).read_to_string(&mut text);
    read.map_err(failed("read", path))?;
    Ok(Some(text))
}

/// Converts an error of `open`: a link or pipe becomes [`Exposure::Kind`].
fn opening(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> PrivateFileError {
    let path = path.to_owned();
    move |error| {
        if platform::is_unexpected_kind(&error) {
            exposed(&path, Exposure::Kind)
        } else {
            failed(doing, &path)(error)
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Creates and checks the folder of a file, and returns it.
fn create_folder(path: &Path) -> Result<&Path, PrivateFileError> {
    let folder = parent(path);
    folder_builder()
        .recursive(true)
        .create(folder)
        .map_err(failed("create", folder))?;
    check_folder(folder)?;
    Ok(folder)
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
