//! Volume and file index, which only an open file has.

use std::fs::{File, Metadata};
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;

use winapi_util::file::information;

use super::FileId;

/// `FILE_FLAG_BACKUP_SEMANTICS`, without which folders cannot be opened.
const BACKUP_SEMANTICS: u32 = 0x0200_0000;

impl FileId {
    /// Returns the id of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        let about = information(file)?;
        Ok(Self {
            volume: about.volume_serial_number(),
            index: about.file_index(),
        })
    }

    /// Returns the id of the file at a path. The metadata does not contain it.
    pub fn at(path: &Path, _about: &Metadata) -> io::Result<Self> {
        // No access is needed to ask for it.
        let mut options = File::options();
        options.access_mode(0).custom_flags(BACKUP_SEMANTICS);
        Self::of(&options.open(path)?)
    }
}

/// Returns how many names an open file has.
pub fn link_count(file: &File) -> io::Result<u64> {
    Ok(information(file)?.number_of_links())
}
