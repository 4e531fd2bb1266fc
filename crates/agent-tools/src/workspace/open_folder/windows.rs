//! Handle-relative opens through `cap-std`, which asks the kernel for a name in an open directory
//! and refuses links and junctions.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::errno::Errno;

/// An opened directory.
#[derive(Debug)]
pub(crate) struct OpenFolder(Dir);

impl OpenFolder {
    /// Opens the directory at a resolved path.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let folder = Dir::open_ambient_dir(path, ambient_authority())?;
        // The path was resolved before; a link that took its place since leads elsewhere.
        if path.canonicalize()? != path {
            tracing::warn!("refused a link that took the place of something else");
            return Err(Errno::LOOP.into());
        }
        Ok(Self(folder))
    }

    /// Opens a directory in this one.
    pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(self.0.open_dir_nofollow(name)?))
    }

    /// Creates a directory in this one, unless there is one.
    pub(crate) fn create_folder(&self, name: &OsStr) -> io::Result<()> {
        match self.0.create_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open(name, OpenOptions::new().read(true))
    }

    /// Opens a file for writing, without changing it. `None` if there is none.
    pub(crate) fn write(&self, name: &OsStr) -> io::Result<Option<File>> {
        match self.open(name, OpenOptions::new().write(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Creates a file that must not exist.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open(name, OpenOptions::new().write(true).create_new(true))
    }

    fn open(&self, name: &OsStr, options: &mut OpenOptions) -> io::Result<File> {
        let options = options.follow(FollowSymlinks::No);
        Ok(self.0.open_with(name, options)?.into_std())
    }

    /// Renames a file, and replaces the one that has the name.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.0.rename(from, &self.0, to)
    }

    /// Removes a file or a link.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.0.remove_file_or_symlink(name)
    }

    /// Returns whether a name is that of a regular file or of a link.
    pub(crate) fn is_file_or_link(&self, name: &OsStr) -> io::Result<bool> {
        let about = self.0.symlink_metadata(name)?;
        Ok(about.is_file() || about.is_symlink())
    }
}

/// Returns a path that exists with all links resolved.
pub(crate) fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Returns `None`, because the system cannot open a path that way.
pub(crate) fn read_unlinked(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Opens a file for reading. Files on disk do not block.
pub(crate) fn open_unblocked(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Returns what the path resolves to now; the caller compares the files.
pub(crate) fn opened_path(_file: &File, path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Does nothing: a file that is overwritten in place here may be lost on a full disk.
pub(crate) fn reserve_space(_file: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// Does nothing and returns true: a new file has the access list of its folder.
pub(crate) fn take_permissions(_new: &File, _old: &File) -> io::Result<bool> {
    Ok(true)
}
