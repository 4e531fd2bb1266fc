//! Small private files: written whole or not at all, readable by their owner only.
//!
//! What another user owns or may change is not used, because it could be anything: a key of
//! theirs, a token they know, a link to a file of ours, a pipe that never ends.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::place::STATE_DIR;

/// No file of ours is larger.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system said no.
    #[error("cannot {doing} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Others could have put it there, or could read it.
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
    /// A file a person may have edited is not what it should be.
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
    /// It is not ours.
    #[error("it belongs to another user (uid {0})")]
    Owner(u32),
    /// Others may change it.
    #[error("other users can write to it")]
    Writable,
    /// Others may read it, which no secret survives.
    #[error("other users can read it")]
    Readable,
    /// It is a link, a pipe, or something else than it should be.
    #[error("it is not a plain file or folder")]
    Kind,
}

/// What others can do to a file or folder of ours; `None` if it is private enough.
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

fn exposed(path: &Path, exposure: Exposure) -> StoreError {
    StoreError::Exposed {
        path: path.to_owned(),
        exposure,
    }
}

/// Refuses a folder that others own or may change. One that does not exist is fine.
pub fn check_folder(folder: &Path) -> Result<(), StoreError> {
    let missing = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
    let link = match folder.symlink_metadata() {
        Err(error) if missing(&error) => return Ok(()),
        about => about.map_err(failed("look at", folder))?,
    };
    // The user may keep it elsewhere; whose link it is says who chose the place.
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

/// Flags that follow no link and wait for no pipe.
pub(super) fn careful() -> i32 {
    // Every flag fits: the system takes them as an int.
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32
}

/// Refuses an open file that is no plain one of ours, or open to others in these ways.
fn check_open(file: &File, path: &Path, closed: u32) -> Result<(), StoreError> {
    let about = file.metadata().map_err(failed("look at", path))?;
    if !about.is_file() {
        return Err(exposed(path, Exposure::Kind));
    }
    exposure(&about, closed).map_or(Ok(()), |exposure| Err(exposed(path, exposure)))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |cause| StoreError::Io { doing, path, cause }
}

/// Replaces a file's content: a reader sees the old or the new one, also after a power cut.
pub fn write(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let folder = folder(path)?;
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
        // The name is safe only once its folder is; some file systems cannot say.
        File::open(folder)?.sync_all().or(Ok(()))
    })();
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&temporary);
        failed("write", path)(cause)
    })
}

/// Holds others off who read, change and write the same file. Ends with the value.
pub fn lock(path: &Path) -> Result<File, StoreError> {
    folder(path)?;
    let lock = path.with_extension("lock");
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(careful())
        .open(&lock);
    let file = open.map_err(opening(&lock, "lock"))?;
    check_open(&file, &lock, 0)?;
    file.lock().map_err(failed("lock", &lock))?;
    Ok(file)
}

/// A file's text; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<String>, StoreError> {
    read_closed(path, 0)
}

/// The same of a file that nobody else may read.
pub fn read_secret(path: &Path) -> Result<Option<String>, StoreError> {
    read_closed(path, 0o077)
}

fn read_closed(path: &Path, closed: u32) -> Result<Option<String>, StoreError> {
    check_folder(parent(path))?;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(careful())
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

/// Names a link as that, which is not opened.
fn opening(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // The first for links, the second for a pipe that nobody reads.
        Some(Errno::LOOP | Errno::NXIO) => exposed(&path, Exposure::Kind),
        _ => failed(doing, &path)(error),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

fn folder(path: &Path) -> Result<&Path, StoreError> {
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
    fn files_are_private_and_leave_nothing_behind() {
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

    fn exposure_of<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Exposure {
        match result {
            Err(StoreError::Exposed { exposure, .. }) => exposure,
            other => panic!("{other:?}"),
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_could_have_put_there_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("state");
        let path = folder.join("file");
        write(&path, b"x").unwrap();
        // Others may read a file that is no secret.
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

    /// Only root can give files away.
    #[test]
    fn what_belongs_to_somebody_else_is_not_used() {
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
        // Nor is a place that another user chose.
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        assert!(check_folder(&link).is_ok());
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(rustix::fs::CWD, &link, other, None, flags).unwrap();
        assert_eq!(exposure_of(check_folder(&link)), Exposure::Owner(5555));
    }

    #[test]
    fn what_cannot_be_written_is_told_with_its_name() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write(&file.join("below"), b"x").unwrap_err().to_string();
        assert!(error.starts_with("cannot create "), "{error}");
        // A folder in the place of the file: the old one stays, no temporary is left.
        let folder = root.path().join("folder");
        std::fs::create_dir_all(folder.join("x")).unwrap();
        assert!(write(&folder, b"x").is_err());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
    }
}
