//! An opened directory. Operations on a name in it stay in that directory even if its path changes
//! afterwards, and follow no link.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{
    OpenFolder, open_unblocked, opened_path, read_unlinked, reserve_space, resolve_links,
    take_permissions,
};
#[cfg(windows)]
pub(crate) use windows::{
    OpenFolder, open_unblocked, opened_path, read_unlinked, reserve_space, resolve_links,
    take_permissions,
};
