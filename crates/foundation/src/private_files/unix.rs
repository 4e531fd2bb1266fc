//! Owners and modes.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Exposure, Readers};

/// What the user can do about an exposed file.
pub(super) const REMEDY: &str = "it has to belong to you and be closed to others (chmod go-rwx)";

/// Returns how a file or folder is exposed to other users; `None` if it is private enough.
pub(super) fn exposure(_path: &Path, about: &Metadata, readers: Readers) -> Option<Exposure> {
    let closed = match readers {
        Readers::All => 0,
        Readers::OwnerOnly => 0o077,
    };
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

/// Returns how a link is exposed; `None` if it belongs to the user or to root.
pub(super) fn link_exposure(about: &Metadata) -> Option<Exposure> {
    let owner = about.uid();
    (owner != geteuid().as_raw() && owner != 0).then_some(Exposure::Owner(owner))
}

/// Returns whether a file or folder belongs to this user.
pub fn is_mine(about: &Metadata) -> bool {
    about.uid() == geteuid().as_raw()
}

/// Returns whether any user can write to a folder.
pub fn is_open_to_all(folder: &Path) -> bool {
    !folder.metadata().is_ok_and(|it| it.mode() & 0o002 == 0)
}

/// Creates files that only their owner can access.
pub fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Opens no links, and does not block on pipes.
pub fn never_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    // Every flag fits, because `open` takes them as an int.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
}

/// Returns a builder of folders that only their owner can access.
pub fn folder_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Makes an open file accessible to its owner only.
pub fn close_to_others(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o600))
}

/// Makes a rename in a folder durable. Errors of the sync are ignored, because some file systems
/// do not support it.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all().or(Ok(()))
}

/// Returns whether an error of [`never_follow`] means a link, or a pipe without a reader.
pub(super) fn is_unexpected_kind(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::LOOP | Errno::NXIO))
}
