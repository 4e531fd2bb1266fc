//! Small private files: written atomically, readable by their owner only.
//!
//! A file that another user owns or can change is not used, because it could be a key of theirs,
//! a token they know, a link to one of our files, or a pipe that blocks.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::state_dir::STATE_DIR;

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
        "{} is not used: {exposure}; it has to belong to you and be closed to others \
         (chmod go-rwx), or set {STATE_DIR} to a private folder",
        path.display()
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
    /// It is a link, a pipe, or another unexpected kind of file.
    #[error("it is not a plain file or folder")]
    Kind,
}

/// Returns how a file or folder is exposed to other users; `None` if it is private enough.
/// `closed` are the permission bits that must not be set, besides the write bits.
fn exposure(about: &Metadata, closed: u32) -> Option<Exposure> {
    if about.uid() != geteuid().as_raw() {
        Some(Exposure::Owner(about.uid()))
    } else if about.mode() & 0o022 != 0 {
        Some(Exposure::Writable)
    } else if about.mode() & closed != 0 {
        Some(Exposure::Readable)
    } else {
        None
    }
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
    let owner = link.uid();
    if link.is_symlink() && owner != geteuid().as_raw() && owner != 0 {
        return Err(exposed(folder, Exposure::Owner(owner)));
    }
    let about = match folder.metadata() {
        Err(error) if missing(&error) => return Ok(()),
        about => about.map_err(failed("look at", folder))?,
    };
    if !about.is_dir() {
        return Err(exposed(folder, Exposure::Kind));
    }
    exposure(&about, 0).map_or(Ok(()), |exposure| Err(exposed(folder, exposure)))
}

/// Returns flags for `open` that do not follow links and do not block on pipes.
pub fn safe_open_flags() -> i32 {
    // Every flag fits, because `open` takes them as an int.
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32
}

/// Returns an error for an open file that is not regular, not ours, writable by others, or has
/// one of the `closed` permission bits.
fn check_open(file: &File, path: &Path, closed: u32) -> Result<(), PrivateFileError> {
    let about = file.metadata().map_err(failed("look at", path))?;
    if !about.is_file() {
        return Err(exposed(path, Exposure::Kind));
    }
    exposure(&about, closed).map_or(Ok(()), |exposure| Err(exposed(path, exposure)))
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
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The rename is durable only after the folder is synced; errors are ignored, because some
        // file systems do not support it.
        File::open(folder)?.sync_all().or(Ok(()))
    })();
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&temporary);
        failed("write", path)(cause)
    })
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
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(safe_open_flags())
        .open(&lock);
    let file = open.map_err(opening(&lock, "lock"))?;
    check_open(&file, &lock, 0)?;
    Ok((file, lock))
}

/// Returns a file's text; `None` if the file does not exist.
pub fn read(path: &Path) -> Result<Option<String>, PrivateFileError> {
    read_closed(path, 0)
}

/// Like [`read`], but returns an error if other users can access the file.
pub fn read_secret(path: &Path) -> Result<Option<String>, PrivateFileError> {
    read_closed(path, 0o077)
}

fn read_closed(path: &Path, closed: u32) -> Result<Option<String>, PrivateFileError> {
    check_folder(parent(path))?;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(safe_open_flags())
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(opening(path, "read"))?,
    };
    check_open(&file, path, closed)?;
    let mut text = String::new();
    let read = file.take(MOST_BYTES).read_to_string(&mut text);
    read.map_err(failed("read", path))?;
    Ok(Some(text))
}

/// Converts an error of `open`: a link or pipe becomes [`Exposure::Kind`].
fn opening(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> PrivateFileError {
    let path = path.to_owned();
    move |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // LOOP is the error for links, NXIO the one for a pipe without a reader.
        Some(Errno::LOOP | Errno::NXIO) => exposed(&path, Exposure::Kind),
        _ => failed(doing, &path)(error),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Creates and checks the folder of a file, and returns it.
fn create_folder(path: &Path) -> Result<&Path, PrivateFileError> {
    let folder = parent(path);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(failed("create", folder))?;
    check_folder(folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_private_and_no_temporary_files_remain() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/er/file.json");
        for content in ["one", "two"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&root.path().join("deep")), 0o700);
        let names = std::fs::read_dir(root.path().join("deep/er")).unwrap();
        assert_eq!(names.count(), 1);
        assert_eq!(read(&root.path().join("none")).unwrap(), None);
    }

    fn exposure_of<T: std::fmt::Debug>(result: Result<T, PrivateFileError>) -> Exposure {
        match result {
            Err(PrivateFileError::Exposed { exposure, .. }) => exposure,
            other => panic!("{other:?}"),
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn files_that_others_could_have_created_are_not_used() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("state");
        let path = folder.join("file");
        write(&path, b"x").unwrap();
        // Others may read a file that holds no secret.
        set_mode(&path, 0o644);
        assert_eq!(read(&path).unwrap().as_deref(), Some("x"));
        assert_eq!(exposure_of(read_secret(&path)), Exposure::Readable);
        set_mode(&path, 0o620);
        assert_eq!(exposure_of(read(&path)), Exposure::Writable);
        set_mode(&path, 0o600);
        // A folder that others may list is fine, one they may write to is not.
        set_mode(&folder, 0o755);
        assert!(read_secret(&path).is_ok());
        set_mode(&folder, 0o1777);
        assert_eq!(exposure_of(read_secret(&path)), Exposure::Writable);
        assert_eq!(exposure_of(write(&path, b"y")), Exposure::Writable);
        assert_eq!(exposure_of(lock(&path)), Exposure::Writable);
        set_mode(&folder, 0o700);
        let error = check_folder(&path).unwrap_err().to_string();
        assert!(error.contains("PI_CURSOR_STATE_DIR"), "{error}");
    }

    #[test]
    fn links_and_pipes_are_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::write(at("mine"), "mine").unwrap();
        std::os::unix::fs::symlink("mine", at("link")).unwrap();
        std::os::unix::fs::symlink("mine", at("other.lock")).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), pipe, mode, 0).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("piped.lock"), pipe, mode, 0).unwrap();
        assert_eq!(exposure_of(read(&at("link"))), Exposure::Kind);
        assert_eq!(exposure_of(read(&at("pipe"))), Exposure::Kind);
        assert_eq!(exposure_of(lock(&at("other.json"))), Exposure::Kind);
        assert_eq!(exposure_of(lock(&at("piped.json"))), Exposure::Kind);
        assert_eq!(std::fs::read_to_string(at("mine")).unwrap(), "mine");
    }

    /// Only root can change the owner of a file.
    #[test]
    fn files_of_another_user_are_not_used() {
        if !geteuid().is_root() {
            return assert_eq!(
                exposure_of(check_folder(Path::new("/"))),
                Exposure::Owner(0),
                "the root of the disk is not ours"
            );
        }
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state/login.json");
        write(&path, b"x").unwrap();
        let other = Some(rustix::process::Uid::from_raw(5555));
        rustix::fs::chown(&path, other, None).unwrap();
        assert_eq!(exposure_of(read(&path)), Exposure::Owner(5555));
        std::fs::remove_file(&path).unwrap();
        let folder = path.parent().unwrap();
        rustix::fs::chown(folder, other, None).unwrap();
        assert_eq!(exposure_of(read(&path)), Exposure::Owner(5555));
        assert_eq!(exposure_of(write(&path, b"y")), Exposure::Owner(5555));
        assert!(!path.exists());
        // A link of another user is not followed either.
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        assert!(check_folder(&link).is_ok());
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(rustix::fs::CWD, &link, other, None, flags).unwrap();
        assert_eq!(exposure_of(check_folder(&link)), Exposure::Owner(5555));
    }

    #[test]
    fn a_write_error_names_the_path() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write(&file.join("below"), b"x").unwrap_err().to_string();
        assert!(error.starts_with("cannot create "), "{error}");
        // A folder in place of the file is kept, and no temporary file remains.
        let folder = root.path().join("folder");
        std::fs::create_dir_all(folder.join("x")).unwrap();
        assert!(write(&folder, b"x").is_err());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
    }
}
