//! Resolves the paths of a request. Pure: the file system is not accessed.

use std::path::{Component, Path, PathBuf};

/// Resolves a path of the model: relative to the workspace, with `~` and `file://` expanded, and
/// with `.` and `..` removed lexically.
pub(crate) fn resolve_path(path: &str, workspace: &Path, home: Option<&Path>) -> PathBuf {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let joined = match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => workspace.join(path),
    };
    plain(&joined)
}

/// Returns whether a path names a stream of a file, which Windows opens under many names:
/// `mcp.json::$DATA` is `mcp.json`.
pub(crate) fn names_stream(path: &Path) -> bool {
    let is_stream = |part: Component<'_>| matches!(part, Component::Normal(name) if name.as_encoded_bytes().contains(&b':'));
    cfg!(windows) && path.components().any(is_stream)
}

/// Returns the root of the disk that an absolute path is on.
pub(crate) fn disk_root(path: &Path) -> PathBuf {
    path.ancestors().last().unwrap_or(path).to_owned()
}

/// Returns a path with `.` and `..` removed lexically.
pub(crate) fn plain(path: &Path) -> PathBuf {
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
