//! What a file holds now, where Cursor read it and did not say what it read.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::paths;

/// Stands above such a preview: it is not what Cursor saw.
pub(super) const NOTICE: &str =
    "[local file preview at transcript time; Cursor read result content was unavailable]";

/// The beginning of a text file that really is inside the workspace and whose name does not
/// speak of secrets; nothing otherwise.
pub(super) fn preview(path: &str, root: &Path, chars: usize) -> Option<String> {
    let told = root.join(path);
    let root = std::fs::canonicalize(root).ok()?;
    let real = std::fs::canonicalize(&told).ok()?;
    let names = [told.to_str()?, real.to_str()?];
    if !real.starts_with(&root) || names.into_iter().any(paths::sensitive) {
        return None;
    }
    // Looked at before it is opened: opening a pipe would wait for its other end.
    if !std::fs::metadata(&real).ok()?.is_file() {
        return None;
    }
    let most = u64::try_from((chars * 4).max(8192)).ok()?;
    let mut bytes = Vec::new();
    File::open(&real)
        .ok()?
        .take(most)
        .read_to_end(&mut bytes)
        .ok()?;
    if bytes.contains(&0) {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
