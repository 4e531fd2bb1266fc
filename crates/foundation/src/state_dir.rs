//! The state directory. Which one is used is decided by the configuration of the binary.

use std::path::{Path, PathBuf};

/// The setting that names the state directory, for messages.
pub const STATE_DIR: &str = "PI_CURSOR_STATE_DIR";

/// The name of the directory below the platform's directory for state.
pub const NAME: &str = "cursor-sidecar";

/// Returns the default state directory of a home directory.
pub fn default_in(home: &Path) -> PathBuf {
    home.join(".local").join("state").join(NAME)
}
