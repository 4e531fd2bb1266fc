//! What the paths of a request mean. Pure: nothing is looked up.

use std::path::{Component, Path, PathBuf};

/// What a path of the model means: relative to the workspace, `~` and `file://` known, `.` and
/// `..` taken away by their names.
pub(super) fn meant(path: &str, workspace: &Path, home: Option<&Path>) -> PathBuf {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let joined = match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => workspace.join(path),
    };
    plain(&joined)
}

/// A path without `.` and `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}
