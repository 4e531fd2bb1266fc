//! Files that are replaced atomically and that only their owner can read.

use std::io;
use std::path::Path;

use atomic_write_file::{AtomicWriteFile, OpenOptions};

/// Opens a file whose content replaces the old one when it is committed.
pub(super) fn open(path: &Path) -> io::Result<AtomicWriteFile> {
    let mut options = AtomicWriteFile::options();
    close_to_others(&mut options);
    options.open(path)
}

#[cfg(unix)]
fn close_to_others(options: &mut OpenOptions) {
    use atomic_write_file::unix::OpenOptionsExt as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600).preserve_mode(false);
}

/// Does nothing: the folder's access list holds for the file.
#[cfg(windows)]
fn close_to_others(_options: &mut OpenOptions) {}
