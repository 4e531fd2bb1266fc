//! Walking folders by the rules of their ignore files, where those are files.
//!
//! A walk reads ignore files whole, whatever they are, and a repository may bring a link to
//! `/dev/zero` by such a name. So they are looked at before a folder is entered: below the
//! root a folder with an odd one is left out, at the root and above it that kind of file does
//! not count.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use rustix::io::Errno;

use super::errno;

/// What one file of rules may hold.
const MOST_BYTES: u64 = 1024 * 1024;
/// Read by the walk itself, besides what it is told to.
const OWN: [&str; 2] = [".ignore", ".gitignore"];

/// What a file of rules is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// There is none.
    Missing,
    /// It can be read.
    Plain,
    /// Reading it could last forever, or fill the memory.
    Odd,
}

fn standing(path: &Path) -> io::Result<Standing> {
    let about = path.symlink_metadata().and_then(|about| {
        // Only links are looked at twice: most folders have no such file at all.
        if !about.is_symlink() {
            return Ok(Some(about));
        }
        let real = path.canonicalize()?;
        // Files there can be endless and still call themselves plain and empty.
        if real.starts_with("/proc") || real.starts_with("/sys") {
            Ok(None)
        } else {
            real.metadata().map(Some)
        }
    });
    match about {
        Ok(Some(about)) if about.is_dir() => Ok(Standing::Missing),
        Ok(Some(about)) if about.is_file() && about.len() <= MOST_BYTES => Ok(Standing::Plain),
        Ok(_) => Ok(Standing::Odd),
        Err(error) if errno::is(&error, Errno::NOENT) || errno::is(&error, Errno::NOTDIR) => {
            Ok(Standing::Missing)
        }
        Err(error) => Err(error),
    }
}

/// The text of a file of rules; `None` if there is no such file.
pub(super) fn rules(path: &Path) -> io::Result<Option<String>> {
    match standing(path)? {
        Standing::Missing => Ok(None),
        Standing::Odd => Err(Errno::INVAL.into()),
        Standing::Plain => {
            let mut bytes = Vec::new();
            File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
    }
}

/// Whether a walk must not read a file. What cannot be looked at it cannot read either.
fn is_odd(path: &Path) -> bool {
    matches!(standing(path), Ok(Standing::Odd))
}

/// Whether what git keeps for a folder leads a walk to something odd.
fn is_odd_git(folder: &Path) -> bool {
    let git = folder.join(".git");
    let exclude = |git: &Path| is_odd(&git.join("info/exclude"));
    match git.metadata() {
        Err(_) => false,
        Ok(about) if !about.is_file() => exclude(&git),
        // A worktree or a submodule: it says where git's own folder is.
        Ok(_) => {
            if is_odd(&git) {
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
            is_odd(&common) || first_line(&common).is_some_and(|line| exclude(&kept(line)))
        }
    }
}

fn first_line(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?.take(MOST_BYTES);
    BufReader::new(file).lines().next()?.ok()
}

/// Everything below a folder, hidden files too, less what ignore files name: git's, `.ignore`
/// and those with the given names. What is not to be entered is left out.
pub(in crate::tools) fn walk(
    root: &Path,
    names: &[&'static str],
    enter: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let counts = |name: &&str| !real.ancestors().any(|above| is_odd(&above.join(name)));
    let [own, git] = OWN.map(|name| counts(&name));
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false)
        .ignore(own)
        .git_ignore(git)
        .git_exclude(!real.ancestors().any(is_odd_git));
    for name in names.iter().filter(|name| counts(name)) {
        walk.add_custom_ignore_filename(name);
    }
    let all = [names, &OWN].concat();
    walk.filter_entry(move |entry| {
        if !enter(entry) {
            return false;
        }
        let path = entry.path();
        let odd = entry.file_type().is_some_and(|kind| kind.is_dir())
            && (all.iter().any(|name| is_odd(&path.join(name))) || is_odd_git(path));
        if odd {
            tracing::warn!("left out a folder whose ignore file cannot be read");
        }
        !odd
    });
    walk
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A pipe nobody writes to: who opens it waits forever.
    fn pipe(path: &Path) {
        use rustix::fs::{CWD, FileType, Mode};
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn files_of_rules_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("plain"), "x").unwrap();
        fs::create_dir(at("folder")).unwrap();
        pipe(&at("pipe"));
        let long = fs::File::create(at("long")).unwrap();
        long.set_len(MOST_BYTES + 1).unwrap();
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
            ("plain", Standing::Plain),
            ("to-plain", Standing::Plain),
            ("folder", Standing::Missing),
            ("nothing", Standing::Missing),
            ("to-nothing", Standing::Missing),
            ("plain/inside", Standing::Missing),
            ("pipe", Standing::Odd),
            ("to-pipe", Standing::Odd),
            ("to-zero", Standing::Odd),
            ("long", Standing::Odd),
        ] {
            assert_eq!(standing(&at(name)).unwrap(), expected, "{name}");
        }
        if cfg!(target_os = "linux") {
            assert_eq!(standing(&at("to-proc")).unwrap(), Standing::Odd);
        }
        assert!(standing(&at("round")).is_err());
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
    fn rules_count_and_folders_with_odd_ones_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for name in [".ignore", ".gitignore", ".rgignore"] {
            for place in ["fine", "odd"] {
                let place = root.join(format!("{place}{name}"));
                fs::create_dir_all(&place).unwrap();
                fs::write(place.join("a"), "").unwrap();
                fs::write(place.join("b"), "").unwrap();
            }
            fs::write(root.join(format!("fine{name}/{name}")), "b\n").unwrap();
            pipe(&root.join(format!("odd{name}/{name}")));
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
    fn odd_rules_of_the_root_or_above_do_not_count() {
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
    fn what_git_keeps_is_looked_at_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join(".git/info")).unwrap();
        fs::write(root.join("a"), "").unwrap();
        pipe(&root.join(".git/info/exclude"));
        assert_eq!(names(&root), ["a"]);
        // A worktree that says it is kept elsewhere.
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
