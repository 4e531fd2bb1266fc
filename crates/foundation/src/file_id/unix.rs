//! Device and inode.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::FileId;

impl FileId {
    /// Returns the id of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// Returns the id of the file at a path, whose metadata the caller has read.
    pub fn at(_path: &Path, about: &Metadata) -> io::Result<Self> {
        Ok(Self::from(about))
    }
}

impl From<&Metadata> for FileId {
    fn from(about: &Metadata) -> Self {
        Self {
            volume: about.dev(),
            index: about.ino(),
        }
    }
}

/// Returns how many names an open file has.
pub fn link_count(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.nlink())
}
