//! What a file holds now, where Cursor read it and did not say what it read.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use ignore::gitignore::GitignoreBuilder;

use super::paths;

/// Stands above such a preview: it is not what Cursor saw.
pub(super) const NOTICE: &str =
    "[local file preview at transcript time; Cursor read result content was unavailable]";

/// By such files the user keeps others from the model.
const IGNORE_FILE: &str = ".cursorignore";
const MOST_RULES: u64 = 1024 * 1024;

/// The beginning of a text file that really is inside the workspace, that the user does not
/// keep back and whose name does not speak of secrets; nothing otherwise.
pub(super) fn preview(path: &str, root: &Path, chars: usize) -> Option<String> {
    let told = root.join(path);
    let root = std::fs::canonicalize(root).ok()?;
    let real = std::fs::canonicalize(&told).ok()?;
    let names = [told.to_str()?, real.to_str()?];
    if !real.starts_with(&root) || names.into_iter().any(paths::sensitive) || kept_back(&real) {
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

/// Whether the rules of a folder above name a file, or a folder it is in. Rules that cannot be
/// read name everything below them.
fn kept_back(real: &Path) -> bool {
    real.ancestors().skip(1).any(|folder| {
        let file = folder.join(IGNORE_FILE);
        let readable = match std::fs::metadata(&file) {
            Ok(about) => about.is_file() && about.len() <= MOST_RULES,
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(_) => false,
        };
        let text = readable
            .then(|| std::fs::read_to_string(&file).ok())
            .flatten();
        let Some(text) = text else { return true };
        let mut rules = GitignoreBuilder::new(folder);
        for line in text.trim_start_matches('\u{feff}').lines() {
            // A bad line is skipped; the others count.
            let _ = rules.add_line(None, line);
        }
        let Ok(rules) = rules.build() else {
            return true;
        };
        let mut below = real.ancestors().take_while(|path| *path != folder);
        below.any(|path| rules.matched(path, path != real).is_ignore())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_the_user_keeps_back_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("kept/deep")).unwrap();
        for name in ["open.txt", "notes.hid", "kept/deep/a.txt"] {
            fs::write(root.join(name), "x").unwrap();
        }
        let shown = |name: &str| preview(name, root, 100).is_some();
        assert!(shown("open.txt") && shown("notes.hid") && shown("kept/deep/a.txt"));
        fs::write(root.join(IGNORE_FILE), "*.hid\nkept/\n").unwrap();
        assert!(shown("open.txt") && !shown("notes.hid") && !shown("kept/deep/a.txt"));
        fs::write(root.join(IGNORE_FILE), [0xff]).unwrap();
        assert!(!shown("open.txt"), "who knows what it says");
    }
}
