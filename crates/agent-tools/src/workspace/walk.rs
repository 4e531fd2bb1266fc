//! Walking directories by the rules of their ignore files, if those are regular files.
//!
//! A walk reads every ignore file completely, and a repository may contain a link to `/dev/zero`
//! with such a name. Ignore files are therefore checked before a directory is entered: below the
//! root, a directory with an unsafe one is skipped; if one is at the root or above it, ignore
//! files of that name are not used at all.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

use crate::errno::Errno;
use crate::handlers::io_errors;

/// The most bytes of one ignore file.
const MAX_BYTES: u64 = 1024 * 1024;
/// The ignore files that the walk reads by itself.
const OWN: [&str; 2] = [".ignore", ".gitignore"];

/// The state of an ignore file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IgnoreFileStatus {
    /// It does not exist.
    Missing,
    /// It can be read.
    Plain,
    /// Reading it could block forever or exhaust the memory.
    Unsafe,
}

fn status(path: &Path) -> io::Result<IgnoreFileStatus> {
    let about = path.symlink_metadata().and_then(|about| {
        // Only links need a second lookup; most directories have no such file at all.
        if !about.is_symlink() {
            return Ok(Some(about));
        }
        let real = path.canonicalize()?;
        // Files there can be endless although their metadata says regular and empty.
        if real.starts_with("/proc") || real.starts_with("/sys") {
            Ok(None)
        } else {
            real.metadata().map(Some)
        }
    });
    match about {
        Ok(Some(about)) if about.is_dir() => Ok(IgnoreFileStatus::Missing),
        Ok(Some(about)) if about.is_file() && about.len() <= MAX_BYTES => {
            Ok(IgnoreFileStatus::Plain)
        }
        Ok(_) => Ok(IgnoreFileStatus::Unsafe),
        Err(error)
            if io_errors::is(&error, Errno::NOENT) || io_errors::is(&error, Errno::NOTDIR) =>
        {
            Ok(IgnoreFileStatus::Missing)
        }
        Err(error) => Err(error),
    }
}

/// Returns the text of an ignore file, or `None` if it does not exist.
pub(crate) fn rules(path: &Path) -> io::Result<Option<String>> {
    match status(path)? {
        IgnoreFileStatus::Missing => Ok(None),
        IgnoreFileStatus::Unsafe => Err(Errno::INVAL.into()),
        IgnoreFileStatus::Plain => {
            let mut bytes = Vec::new();
            File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
    }
}

/// Returns whether a walk must not read an ignore file. One whose metadata cannot be read is
/// harmless, because the walk cannot read it either.
fn is_unsafe(path: &Path) -> bool {
    matches!(status(path), Ok(IgnoreFileStatus::Unsafe))
}

/// Returns whether the git files of a directory make a walk read an unsafe file.
fn is_git_unsafe(folder: &Path) -> bool {
    let git = folder.join(".git");
    let exclude = |git: &Path| is_unsafe(&git.join("info/exclude"));
    match git.metadata() {
        Err(_) => false,
        Ok(about) if !about.is_file() => exclude(&git),
        // A worktree or a submodule: the file names the git directory.
        Ok(_) => {
            if is_unsafe(&git) {
                return true;
            }
            let Some(folder) =
                first_line(&git).and_then(|line| line.strip_prefix("gitdir: ").map(PathBuf::from))
            else {
                return false;
            };
            let common = folder.join("commondir");
            let kept = |line: String| {
                if line.starts_with('.') {
                    folder.join(line)
                } else {
                    PathBuf::from(line)
                }
            };
            is_unsafe(&common) || first_line(&common).is_some_and(|line| exclude(&kept(line)))
        }
    }
}

fn first_line(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?.take(MAX_BYTES);
    BufReader::new(file).lines().next()?.ok()
}

/// Returns a walk of everything below a directory, hidden files included, except what ignore
/// files exclude (git's, `.ignore` and those with the given names) and what `enter` rejects.
pub(crate) fn walk(
    root: &Path,
    names: &[&'static str],
    enter: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let counts = |name: &&str| !real.ancestors().any(|above| is_unsafe(&above.join(name)));
    let [own, git] = OWN.map(|name| counts(&name));
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false)
        .ignore(own)
        .git_ignore(git)
        .git_exclude(!real.ancestors().any(is_git_unsafe));
    for name in names.iter().filter(|name| counts(name)) {
        walk.add_custom_ignore_filename(name);
    }
    let all = [names, &OWN].concat();
    walk.filter_entry(move |entry| {
        if !enter(entry) {
            return false;
        }
        let path = entry.path();
        let unsafe_rules = entry.file_type().is_some_and(|kind| kind.is_dir())
            && (all.iter().any(|name| is_unsafe(&path.join(name))) || is_git_unsafe(path));
        if unsafe_rules {
            tracing::warn!("skipped a directory whose ignore file is unsafe to read");
        }
        !unsafe_rules
    });
    walk
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Creates a pipe without a writer, which blocks every reader.
    fn pipe(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn ignore_files_are_classified() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("plain"), "x").unwrap();
        fs::create_dir(at("folder")).unwrap();
        pipe(&at("pipe"));
        let long = fs::File::create(at("long")).unwrap();
        long.set_len(MAX_BYTES + 1).unwrap();
        for (name, target) in [
            ("to-plain", "plain"),
            ("to-nothing", "nothing"),
            ("to-pipe", "pipe"),
            ("to-zero", "/dev/zero"),
            ("to-proc", "/proc/version"),
            ("round", "round"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        for (name, expected) in [
            ("plain", IgnoreFileStatus::Plain),
            ("to-plain", IgnoreFileStatus::Plain),
            ("folder", IgnoreFileStatus::Missing),
            ("nothing", IgnoreFileStatus::Missing),
            ("to-nothing", IgnoreFileStatus::Missing),
            ("plain/inside", IgnoreFileStatus::Missing),
            ("pipe", IgnoreFileStatus::Unsafe),
            ("to-pipe", IgnoreFileStatus::Unsafe),
            ("to-zero", IgnoreFileStatus::Unsafe),
            ("long", IgnoreFileStatus::Unsafe),
        ] {
            assert_eq!(status(&at(name)).unwrap(), expected, "{name}");
        }
        if cfg!(target_os = "linux") {
            assert_eq!(status(&at("to-proc")).unwrap(), IgnoreFileStatus::Unsafe);
        }
        assert!(status(&at("round")).is_err());
    }

    fn names(root: &Path) -> Vec<String> {
        let walk = walk(root, &[".rgignore"], |_| true).build();
        let mut names: Vec<String> = walk
            .filter_map(|entry| {
                let entry = entry.unwrap();
                let file = entry.file_type()?.is_file();
                let inside = entry.path().strip_prefix(root).unwrap();
                file.then(|| inside.display().to_string())
            })
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn rules_apply_and_directories_with_unsafe_ignore_files_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for name in [".ignore", ".gitignore", ".rgignore"] {
            for place in ["fine", "unsafe_rules"] {
                let place = root.join(format!("{place}{name}"));
                fs::create_dir_all(&place).unwrap();
                fs::write(place.join("a"), "").unwrap();
                fs::write(place.join("b"), "").unwrap();
            }
            fs::write(root.join(format!("fine{name}/{name}")), "b\n").unwrap();
            pipe(&root.join(format!("unsafe_rules{name}/{name}")));
        }
        fs::create_dir(root.join(".git")).unwrap();
        let mut found = names(&root);
        found.retain(|name| !name.ends_with("ignore"));
        assert_eq!(
            found,
            ["fine.gitignore/a", "fine.ignore/a", "fine.rgignore/a"]
        );
    }

    #[test]
    fn unsafe_ignore_files_of_the_root_or_above_are_not_used() {
        for name in [".ignore", ".gitignore", ".rgignore"] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("root");
            fs::create_dir(&root).unwrap();
            fs::write(root.join("a"), "").unwrap();
            pipe(&folder.path().join(name));
            assert_eq!(names(&root), ["a"], "{name} above");
            pipe(&root.join(name));
            assert_eq!(names(&root), ["a"], "{name}");
        }
    }

    #[test]
    fn git_directories_are_checked_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join(".git/info")).unwrap();
        fs::write(root.join("a"), "").unwrap();
        pipe(&root.join(".git/info/exclude"));
        assert_eq!(names(&root), ["a"]);
        // A worktree whose git directory is elsewhere.
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("common/info")).unwrap();
        fs::create_dir(root.join("tree")).unwrap();
        fs::write(root.join("tree/b"), "").unwrap();
        let git = format!("gitdir: {}\n", elsewhere.display());
        fs::write(root.join("tree/.git"), git).unwrap();
        fs::write(elsewhere.join("commondir"), "./common\n").unwrap();
        let exclude = elsewhere.join("common/info/exclude");
        fs::write(&exclude, "c\n").unwrap();
        assert_eq!(names(&root), ["a", "tree/.git", "tree/b"]);
        fs::remove_file(&exclude).unwrap();
        pipe(&exclude);
        assert_eq!(names(&root), ["a"]);
        fs::remove_file(elsewhere.join("commondir")).unwrap();
        pipe(&elsewhere.join("commondir"));
        assert_eq!(names(&root), ["a"]);
    }
}
