//! `.cursorignore`: files the user keeps from the model.

use std::path::{Path, PathBuf};

use ignore::gitignore::GitignoreBuilder;

/// The name of the files that say what is kept back.
pub(super) const FILE: &str = ".cursorignore";

/// Whether a path is to be kept from the model. `real` has no links in it; `root` neither.
///
/// The files are read anew each time: they are small, and a rule the user has just written
/// must count.
pub(in crate::tools) fn is_ignored(root: &Path, real: &Path) -> bool {
    let Ok(inside) = real.strip_prefix(root) else {
        return false;
    };
    let mut folder: PathBuf = root.to_owned();
    let mut verdict = false;
    let mut parts = inside.components().peekable();
    loop {
        let file = folder.join(FILE);
        if file.is_file() {
            let mut builder = GitignoreBuilder::new(&folder);
            // A bad line is skipped; the others count.
            let _ = builder.add(&file);
            if let Ok(rules) = builder.build() {
                let found = rules.matched_path_or_any_parents(real, real.is_dir());
                if found.is_ignore() {
                    verdict = true;
                } else if found.is_whitelist() {
                    verdict = false;
                }
            }
        }
        match parts.next() {
            Some(part) if parts.peek().is_some() => folder.push(part),
            _ => return verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn rules_of_every_folder_above_count_and_the_nearest_wins() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join(FILE), "*.key\nprivate/\n").unwrap();
        fs::write(root.join("a").join(FILE), "!shown.key\nb/\n").unwrap();
        for (path, expected) in [
            ("x.key", true),
            ("a/x.key", true),
            ("a/shown.key", false),
            ("a/b/c.txt", true),
            ("private/deep/c.txt", true),
            ("a/c.txt", false),
        ] {
            assert_eq!(is_ignored(&root, &root.join(path)), expected, "{path}");
        }
        assert!(!is_ignored(&root, Path::new("/elsewhere/x.key")));
    }

    #[test]
    fn a_new_rule_counts_at_once() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let secret = root.join("secret.env");
        fs::write(&secret, "x").unwrap();
        assert!(!is_ignored(&root, &secret));
        fs::write(root.join(FILE), "secret.env").unwrap();
        assert!(is_ignored(&root, &secret));
    }
}
