//! The workspace: which paths may be read and changed, ignore files, repositories.

pub(crate) mod cursorignore;
pub(crate) mod git;
pub(crate) mod open_folder;
pub(crate) mod opened_files;
pub mod path_guard;
pub(crate) mod paths;
pub mod protected_paths;
pub mod repository_cache;
pub mod secret_paths;
pub(crate) mod walk;
