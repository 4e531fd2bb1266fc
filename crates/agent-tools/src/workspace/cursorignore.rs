//! `.cursorignore`: files the user hides from the model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::walk;

/// The name of the files with the rules.
pub(crate) const FILE: &str = ".cursorignore";
/// The ignore files a walk applies in addition to git's.
pub(crate) const FILES: [&str; 2] = [".rgignore", FILE];

/// The rules of all directories, each read once. Made for one request, so that a rule the user
/// has just written applies to the next.
#[derive(Debug, Default)]
pub(crate) struct IgnoreRules {
    folders: HashMap<PathBuf, DirectoryRules>,
}

#[derive(Debug)]
enum DirectoryRules {
    None,
    Rules(Gitignore),
    /// It has rules that cannot be read, so everything below it is hidden.
    Unreadable,
}

impl IgnoreRules {
    /// Returns whether a path is hidden from the model. Its links must be resolved.
    ///
    /// The rules of all directories above it apply, up to the root of the disk. A rule in one file
    /// cannot be negated by another file.
    pub(crate) fn ignore(&mut self, real: &Path) -> bool {
        real.ancestors().skip(1).any(|above| {
            match self.of(above) {
                DirectoryRules::None => false,
                // `is_dir` is called only where rules exist, because a walk asks for every file.
                DirectoryRules::Rules(rules) => is_named(rules, above, real, real.is_dir()),
                DirectoryRules::Unreadable => true,
            }
        })
    }

    /// Returns whether a directory or one above it has rules. If not, nothing directly in it is
    /// hidden. Its links must be resolved.
    pub(crate) fn apply_in(&mut self, folder: &Path) -> bool {
        folder
            .ancestors()
            .any(|above| !matches!(self.of(above), DirectoryRules::None))
    }

    fn of(&mut self, folder: &Path) -> &DirectoryRules {
        if !self.folders.contains_key(folder) {
            self.folders.insert(folder.to_owned(), read(folder));
        }
        self.folders.get(folder).unwrap_or(&DirectoryRules::None)
    }
}

fn read(folder: &Path) -> DirectoryRules {
    let text = match walk::rules(&folder.join(FILE)) {
        Ok(Some(text)) => text,
        Ok(None) => return DirectoryRules::None,
        Err(_) => {
            tracing::warn!("hid a directory: its {FILE} cannot be read");
            return DirectoryRules::Unreadable;
        }
    };
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A bad line is skipped; the others apply.
        let _ = builder.add_line(None, line);
    }
    builder
        .build()
        .map_or(DirectoryRules::Unreadable, DirectoryRules::Rules)
}

/// Returns whether rules name a path or a directory above it. As in git, a file in an excluded
/// directory cannot be included again.
fn is_named(rules: &Gitignore, above: &Path, real: &Path, folder: bool) -> bool {
    let inside = |path: &&Path| *path != above;
    let mut folders = real.ancestors().skip(1).take_while(inside);
    folders.any(|path| rules.matched(path, true).is_ignore())
        || rules.matched(real, folder).is_ignore()
}

/// Returns whether a path inside `root` is hidden from the model. Both must have their links
/// resolved.
pub(crate) fn is_ignored(root: &Path, real: &Path) -> bool {
    real.starts_with(root) && IgnoreRules::default().ignore(real)
}

/// Returns whether a path is a `.cursorignore` file.
pub(crate) fn is_rules(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.eq_ignore_ascii_case(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn rules_of_every_directory_above_apply_and_none_negates_anothers() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let root = home.join("ws");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("private")).unwrap();
        fs::write(home.join(FILE), "*.sec\n").unwrap();
        fs::write(root.join(FILE), "*.key\nprivate/\n!private/p\n!up.sec\n").unwrap();
        fs::write(root.join("a").join(FILE), "!shown.key\nb/\n*.x\n!y.x\n").unwrap();
        for (path, expected) in [
            ("x.key", true),
            ("a/x.key", true),
            ("a/shown.key", true),
            ("a/b/c.txt", true),
            ("private/deep/c.txt", true),
            ("private/p", true),
            ("a/c.txt", false),
            ("a/z.x", true),
            ("a/y.x", false),
            ("up.sec", true),
            ("../beside.sec", true),
            ("../beside.key", false),
        ] {
            let path = match path.strip_prefix("../") {
                Some(outside) => home.join(outside),
                None => root.join(path),
            };
            let shown = path.display();
            assert_eq!(IgnoreRules::default().ignore(&path), expected, "{shown}");
        }
        assert!(!is_ignored(&root, &home.join("beside.sec")));
    }

    #[test]
    fn a_new_rule_applies_at_once() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let secret = root.join("secret.env");
        fs::write(&secret, "x").unwrap();
        assert!(!is_ignored(&root, &secret));
        fs::write(root.join(FILE), "secret.env").unwrap();
        assert!(is_ignored(&root, &secret));
    }

    #[test]
    fn rules_that_cannot_be_read_hide_everything_below() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let (inside, beside) = (root.join("sub/a"), root.join("b"));
        fs::create_dir(root.join("sub")).unwrap();
        for path in [&inside, &beside] {
            fs::write(path, "x").unwrap();
        }
        let file = root.join("sub").join(FILE);
        for target in ["/dev/zero", FILE] {
            std::os::unix::fs::symlink(target, &file).unwrap();
            assert!(is_ignored(&root, &inside), "{target}");
            assert!(!is_ignored(&root, &beside), "{target}");
            fs::remove_file(&file).unwrap();
        }
        fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
        assert!(is_ignored(&root, &inside));
    }

    #[test]
    fn a_line_in_another_encoding_does_not_end_the_rules() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::write(root.join(FILE), b"\xef\xbb\xbffirst\n# caf\xe9\nlast\n").unwrap();
        for (name, expected) in [("first", true), ("last", true), ("other", false)] {
            assert_eq!(is_ignored(&root, &root.join(name)), expected, "{name}");
        }
    }
}
