//! A preview of the current content of a file that Cursor read without reporting its content.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use ignore::gitignore::GitignoreBuilder;

use super::paths;

/// Precedes a preview, because it may differ from what Cursor read.
pub(super) const NOTICE: &str =
    "[local file preview at transcript time; Cursor read result content was unavailable]";

/// Lists files that the user hides from the model.
const IGNORE_FILE: &str = ".cursorignore";
const MAX_RULES: u64 = 1024 * 1024;

/// Returns the beginning of a text file, if its real path is inside the workspace, it is not
/// ignored and its name does not suggest secrets.
pub(super) fn preview(path: &str, root: &Path, chars: usize) -> Option<String> {
    let requested = root.join(path);
    let root = std::fs::canonicalize(root).ok()?;
    let real = std::fs::canonicalize(&requested).ok()?;
    let names = [requested.to_str()?, real.to_str()?];
    if !real.starts_with(&root) || names.into_iter().any(paths::is_sensitive) || is_ignored(&real) {
        return None;
    }
    // Checked before opening, because opening a pipe would block.
    if !std::fs::metadata(&real).ok()?.is_file() {
        return None;
    }
    let max_bytes = u64::try_from((chars * 4).max(8192)).ok()?;
    let mut bytes = Vec::new();
    File::open(&real)
        .ok()?
        .take(max_bytes)
        .read_to_end(&mut bytes)
        .ok()?;
    if bytes.contains(&0) {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether an ignore file in a parent directory matches the file or one of its directories. An
/// ignore file that cannot be read matches everything below it.
fn is_ignored(real: &Path) -> bool {
    real.ancestors().skip(1).any(|dir| {
        let file = dir.join(IGNORE_FILE);
        let readable = match std::fs::metadata(&file) {
            Ok(about) => about.is_file() && about.len() <= MAX_RULES,
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(_) => false,
        };
        let text = readable
            .then(|| std::fs::read_to_string(&file).ok())
            .flatten();
        let Some(text) = text else { return true };
        let mut rules = GitignoreBuilder::new(dir);
        for line in text.trim_start_matches('\u{feff}').lines() {
            // Invalid lines are skipped.
            let _ = rules.add_line(None, line);
        }
        let Ok(rules) = rules.build() else {
            return true;
        };
        let mut below = real.ancestors().take_while(|path| *path != dir);
        below.any(|path| rules.matched(path, path != real).is_ignore())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn ignored_files_are_not_previewed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("kept/deep")).unwrap();
        for name in ["open.txt", "notes.hid", "kept/deep/a.txt"] {
            fs::write(root.join(name), "x").unwrap();
        }
        let shown = |name: &str| preview(name, root, 100).is_some();
        assert!(shown("open.txt") && shown("notes.hid") && shown("kept/deep/a.txt"));
        fs::write(root.join(IGNORE_FILE), "*.hid\nkept/\n").unwrap();
        assert!(shown("open.txt") && !shown("notes.hid") && !shown("kept/deep/a.txt"));
        fs::write(root.join(IGNORE_FILE), [0xff]).unwrap();
        assert!(
            !shown("open.txt"),
            "an unreadable ignore file matches everything"
        );
    }
}
