//! `openat` and its siblings.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags};
#[cfg(target_os = "linux")]
use rustix::fs::{ResolveFlags, openat2};
use rustix::io::Errno;

/// An opened directory.
#[derive(Debug)]
pub(crate) struct OpenFolder(OwnedFd);

impl OpenFolder {
    /// Opens the directory at a path whose last component is no link.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let opened = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty());
        Ok(Self(opened?))
    }

    /// Opens a directory in this one.
    pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        let opened = rustix::fs::openat(&self.0, name, DIRECTORY, Mode::empty());
        Ok(Self(opened.map_err(swapped)?))
    }

    /// Creates a directory in this one, unless there is one.
    pub(crate) fn create_folder(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file for reading. Does not block if it is a pipe.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open(name, OFlags::RDONLY)
            .map_err(|error| swapped(error).into())
    }

    /// Opens a file for writing, without changing it. `None` if there is none.
    pub(crate) fn write(&self, name: &OsStr) -> io::Result<Option<File>> {
        match self.open(name, OFlags::WRONLY) {
            Ok(old) => Ok(Some(old)),
            Err(Errno::NOENT) => Ok(None),
            // A pipe without a reader.
            Err(Errno::NXIO) => Err(Errno::INVAL.into()),
            Err(error) => Err(swapped(error).into()),
        }
    }

    fn open(&self, name: &OsStr, access: OFlags) -> Result<File, Errno> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(File::from)
    }

    /// Creates a file that must not exist.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        Ok(rustix::fs::openat(&self.0, name, flags, mode)?.into())
    }

    /// Renames a file, and replaces the one that has the name.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file or a link.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Returns whether a name is that of a regular file or of a link.
    pub(crate) fn is_file_or_link(&self, name: &OsStr) -> io::Result<bool> {
        let about = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(about.st_mode);
        Ok(matches!(kind, FileType::RegularFile | FileType::Symlink))
    }
}

/// Opens directories only, and follows no links.
#[cfg(target_os = "linux")]
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a path without any access to what is there.
#[cfg(target_os = "linux")]
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Logs an error that means that a link was swapped in after the path was checked.
fn swapped(error: Errno) -> Errno {
    if matches!(error, Errno::LOOP | Errno::NOTDIR) {
        tracing::warn!("refused a link that took the place of something else");
    }
    error
}

/// Returns a path that exists with all links resolved.
#[cfg(target_os = "linux")]
pub(crate) fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    use std::path::Component;
    // Most paths contain no link, which the system finds out at once.
    let is_plain =
        path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    if is_plain
        && openat2(
            CWD,
            path,
            PATH_ONLY,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        )
        .is_ok()
    {
        return Ok(path.components().collect());
    }
    path.canonicalize()
}

/// Returns a path that exists with all links resolved.
#[cfg(not(target_os = "linux"))]
pub(crate) fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Opens a file for reading at a path that contains no link. Does not block if it is a pipe. Fails
/// if a part of the path is a link; `None` if the system cannot open a path that way.
#[cfg(target_os = "linux")]
pub(crate) fn read_unlinked(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(file) => Ok(Some(file.into())),
        // An older system, or a sandbox that does not know the call.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Ok(None),
        Err(error) => Err(swapped(error).into()),
    }
}

/// Returns `None`, because the system cannot open a path that way.
#[cfg(not(target_os = "linux"))]
pub(crate) fn read_unlinked(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Opens a file for reading. Follows links, and does not block on a pipe.
pub(crate) fn open_unblocked(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into())
}

/// Returns the resolved path of an opened file.
#[cfg(target_os = "linux")]
pub(crate) fn opened_path(file: &File, path: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    let shown = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(shown).or_else(|_| path.canonicalize())
}

/// Returns what the path resolves to now; the caller compares the files.
#[cfg(not(target_os = "linux"))]
pub(crate) fn opened_path(_file: &File, path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Allocates space for a file that grows, so that a full disk is reported before the file changes.
/// Does nothing where the file system cannot allocate in advance.
pub(crate) fn reserve_space(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives a new file the permissions of an old one if both have the same owner and group; returns
/// whether they have.
pub(crate) fn take_permissions(new: &File, old: &File) -> io::Result<bool> {
    let (was, is) = (old.metadata()?, new.metadata()?);
    if (was.uid(), was.gid()) != (is.uid(), is.gid()) {
        return Ok(false);
    }
    new.set_permissions(was.permissions())?;
    Ok(true)
}
