//! The user's profile folder: its access list closes it, and everything created in it, to other
//! users. A file elsewhere is not used, because nothing here can say who may read it.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Exposure, Readers};

/// What the user can do about an exposed file.
pub(super) const REMEDY: &str = "it has to be a plain file or folder below your profile folder";

/// `FILE_FLAG_OPEN_REPARSE_POINT`: open a link itself, which then is no plain file.
const OPEN_REPARSE_POINT: u32 = 0x0020_0000;

/// Returns how a file or folder is exposed to other users; `None` if it is in the profile folder.
pub(super) fn exposure(path: &Path, _about: &Metadata, _readers: Readers) -> Option<Exposure> {
    (!is_in_profile(path)).then_some(Exposure::OutsideProfile)
}

fn is_in_profile(path: &Path) -> bool {
    static PROFILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let profile = PROFILE.get_or_init(|| std::env::home_dir()?.canonicalize().ok());
    let real = path.canonicalize();
    profile
        .as_ref()
        .is_some_and(|profile| real.is_ok_and(|real| real.starts_with(profile)))
}

/// Returns `None`, because where a link leads is what is checked.
pub(super) fn link_exposure(_about: &Metadata) -> Option<Exposure> {
    None
}

/// Returns true, because others cannot create files in the profile folder.
pub fn is_mine(_about: &Metadata) -> bool {
    true
}

/// Returns whether a folder is outside the profile folder, where any user may be able to write.
pub fn is_open_to_all(folder: &Path) -> bool {
    !is_in_profile(folder)
}

/// Creates files with the access list of their folder.
pub fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Opens no links.
pub fn never_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(OPEN_REPARSE_POINT)
}

/// Returns a builder of folders with the access list of their parent.
pub fn folder_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Does nothing: the folder's access list holds for the file.
pub fn close_to_others(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the file system's journal has the rename.
pub(super) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns false: a link is opened itself, and is then refused by its kind.
pub(super) fn is_unexpected_kind(_error: &io::Error) -> bool {
    false
}
