//! An opened directory. Operations on a name in it stay in that directory even if its path changes
//! afterwards, and follow no link.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{OpenFolder, open_unblocked, opened_path, reserve_space, take_permissions};
#[cfg(windows)]
pub(crate) use windows::{
    OpenFolder, open_unblocked, opened_path, reserve_space, take_permissions,
};
