//! The tree below a directory, up to a size limit.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use super::{io_errors, sort_names};
use crate::errno::Errno;
use crate::workspace::path_guard::{PathDenied, PathGuard};
use crate::workspace::{cursorignore, walk};
use cursor_proto::agent::v1::*;

/// The most characters of names in one result; files that do not fit are counted.
const BUDGET: usize = 2500;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Executes one list request.
pub(super) fn ls(guard: &PathGuard, args: &LsArgs, abort: &CancellationToken) -> LsResult {
    let path = guard.absolute(&args.path);
    let shown = path.to_string_lossy().into_owned();
    let error = |error: String| {
        let path = shown.clone();
        ls_result::Result::Error(LsError { path, error })
    };
    let result = match folder(guard, &path) {
        Ok(()) => match exclusions(&path, &args.ignore) {
            Ok(exclusions) => {
                let patience = args
                    .timeout_ms
                    .map_or(TIMEOUT, |ms| Duration::from_millis(ms.into()));
                let (root, is_complete) = tree(guard, &path, exclusions, patience, abort);
                let directory_tree_root = Some(root);
                if is_complete {
                    ls_result::Result::Success(LsSuccess {
                        directory_tree_root,
                    })
                } else {
                    ls_result::Result::Timeout(LsTimeout {
                        directory_tree_root,
                    })
                }
            }
            Err(problem) => error(problem.to_string()),
        },
        Err(LsFailure::Refused(reason)) => ls_result::Result::Rejected(LsRejected {
            path: shown.clone(),
            reason,
        }),
        Err(LsFailure::Message(text)) => error(text),
    };
    LsResult {
        result: Some(result),
    }
}

enum LsFailure {
    Refused(String),
    Message(String),
}

/// Checks that a path is a directory that may be listed.
fn folder(guard: &PathGuard, path: &Path) -> Result<(), LsFailure> {
    match guard.read(path) {
        Err(refusal @ (PathDenied::Process(_) | PathDenied::Secret(_))) => {
            return Err(LsFailure::Refused(refusal.to_string()));
        }
        Err(PathDenied::Missing) => {
            return Err(LsFailure::Message(format!(
                "Path does not exist: {}",
                path.display()
            )));
        }
        // A hidden directory looks empty, because the walk skips its files.
        Err(_) | Ok(_) => {}
    }
    match path.metadata() {
        Ok(about) if about.is_dir() => io_errors::readable(path)
            .map_err(|error| LsFailure::Message(io_errors::sentence(&error, "scandir", path))),
        Ok(_) => Err(LsFailure::Message(format!(
            "Path is not a directory: {}",
            path.display()
        ))),
        Err(error) if io_errors::is(&error, Errno::NOENT) => Err(LsFailure::Message(format!(
            "Path does not exist: {}",
            path.display()
        ))),
        Err(error) => Err(LsFailure::Message(io_errors::sentence(
            &error, "stat", path,
        ))),
    }
}

fn exclusions(root: &Path, patterns: &[String]) -> Result<Override, ignore::Error> {
    let mut builder = OverrideBuilder::new(root);
    for pattern in patterns {
        builder.add(&format!("!{pattern}"))?;
    }
    builder.build()
}

/// How many files with each ending there are.
type EndingCounts = BTreeMap<String, i32>;

#[derive(Default)]
struct ListedFolder {
    folders: Vec<PathBuf>,
    files: Vec<String>,
    /// The files that are not shown.
    unshown: EndingCounts,
}

/// Returns the files below a directory, and whether all were visited in time.
fn tree(
    guard: &PathGuard,
    root: &Path,
    exclusions: Override,
    patience: Duration,
    abort: &CancellationToken,
) -> (LsDirectoryTreeNode, bool) {
    let deadline = Instant::now() + patience;
    let is_over = || abort.is_cancelled() || Instant::now() > deadline;
    // No link is followed below the root, so only the root's own links have to be resolved.
    let real_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let mut walk = visible_files(guard, root, &real_root);
    walk.overrides(exclusions)
        .sort_by_file_name(|a, b| sort_names::names(&a.to_string_lossy(), &b.to_string_lossy()));
    let mut listing = Listing::new(root);
    let mut rules = cursorignore::IgnoreRules::default();
    let mut is_complete = true;
    for entry in walk.build() {
        if is_over() {
            is_complete = false;
            break;
        }
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        if rules.ignore(&real_root.join(below(root, entry.path()))) {
            continue;
        }
        if !listing.show(entry.path()) {
            // The rest is only counted, in any order.
            let counts;
            (counts, is_complete) = count(&walk, root, &real_root, &is_over);
            listing.add_unshown(counts);
            break;
        }
    }
    (listing.node(root.to_owned()).0, is_complete)
}

/// Returns a walk of everything but credentials and what ignore files exclude.
fn visible_files(guard: &PathGuard, root: &Path, real_root: &Path) -> WalkBuilder {
    let secrets = guard.secrets().found();
    let (root_path, real_root) = (root.to_owned(), real_root.to_owned());
    walk::walk(root, &cursorignore::FILES, move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let mut secrets = secrets
            .iter()
            .filter(|secret| is_folder || secret.has_name(entry.file_name()))
            .peekable();
        if secrets.peek().is_none() {
            return true;
        }
        let real = real_root.join(below(&root_path, entry.path()));
        let about = if is_folder {
            entry.metadata().ok()
        } else {
            None
        };
        !secrets.any(|secret| secret.is(&real, || about.clone()))
    })
}

fn below<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

/// Counts the files of each directory on all cores. Returns whether all were visited in time.
fn count(
    walk: &WalkBuilder,
    root: &Path,
    real_root: &Path,
    is_over: &(impl Fn() -> bool + Sync),
) -> (HashMap<PathBuf, EndingCounts>, bool) {
    let all = Mutex::new(HashMap::new());
    let is_complete = AtomicBool::new(true);
    walk.build_parallel().run(|| {
        let mut counter = FileCounter {
            real_root,
            root,
            rules: cursorignore::IgnoreRules::default(),
            folder: PathBuf::new(),
            is_ruled: false,
            counts: HashMap::new(),
            without_ending: 0,
            all: &all,
        };
        let is_complete = &is_complete;
        Box::new(move |entry| {
            if is_over() {
                is_complete.store(false, Ordering::Relaxed);
                return WalkState::Quit;
            }
            if let Ok(entry) = entry
                && entry.file_type().is_some_and(|kind| kind.is_file())
            {
                counter.add(entry.path());
            }
            WalkState::Continue
        })
    });
    (
        all.into_inner().unwrap_or_default(),
        is_complete.into_inner(),
    )
}

/// Counts the files that one thread visits, most of them directory by directory.
struct FileCounter<'a> {
    root: &'a Path,
    real_root: &'a Path,
    rules: cursorignore::IgnoreRules,
    folder: PathBuf,
    /// Whether `.cursorignore` files may name files in the directory.
    is_ruled: bool,
    counts: HashMap<OsString, i32>,
    without_ending: i32,
    all: &'a Mutex<HashMap<PathBuf, EndingCounts>>,
}

impl FileCounter<'_> {
    fn add(&mut self, file: &Path) {
        let Some(folder) = file.parent() else { return };
        if folder != self.folder {
            self.finish_folder();
            self.is_ruled = self
                .rules
                .apply_in(&self.real_root.join(below(self.root, folder)));
            folder.clone_into(&mut self.folder);
        }
        let mut is_hidden = || {
            let real = self.real_root.join(below(self.root, file));
            self.rules.ignore(&real)
        };
        if self.is_ruled && is_hidden() {
            return;
        }
        match file.extension() {
            None => self.without_ending += 1,
            Some(ending) => match self.counts.get_mut(ending) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(ending.to_owned(), 1)),
            },
        }
    }

    /// Adds the counts of the current directory to those of all threads.
    fn finish_folder(&mut self) {
        let without = std::mem::take(&mut self.without_ending);
        let without = (without > 0).then(|| (String::new(), without));
        let counts = self.counts.drain();
        let counts = counts.map(|(ending, count)| (shown_ending(Some(&ending)), count));
        let mut counts = counts.chain(without).peekable();
        if counts.peek().is_none() {
            return;
        }
        if let Ok(mut all) = self.all.lock() {
            let folder = all.entry(self.folder.clone()).or_default();
            for (ending, count) in counts {
                *folder.entry(ending).or_default() += count;
            }
        }
    }
}

impl Drop for FileCounter<'_> {
    fn drop(&mut self) {
        self.finish_folder();
    }
}

/// Returns the ending of a name as it is shown, with its dot.
fn shown_ending(ending: Option<&OsStr>) -> String {
    ending
        .map(|ending| format!(".{}", ending.to_string_lossy()))
        .unwrap_or_default()
}

/// The result under construction.
struct Listing<'a> {
    root: &'a Path,
    folders: HashMap<PathBuf, ListedFolder>,
    /// The characters of the names so far.
    used: usize,
}

impl<'a> Listing<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            folders: HashMap::from([(root.to_owned(), ListedFolder::default())]),
            used: root.to_string_lossy().encode_utf16().count(),
        }
    }

    /// Adds the name of a file to its directory. Returns `false` if it does not fit; no later one
    /// is shown either.
    fn show(&mut self, file: &Path) -> bool {
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else {
            return true;
        };
        let name = name.to_string_lossy().into_owned();
        self.used += name.encode_utf16().count();
        if self.used > BUDGET {
            return false;
        }
        self.folder(parent).files.push(name);
        true
    }

    /// Adds the counts of all files, of which the shown ones are subtracted.
    fn add_unshown(&mut self, counts: HashMap<PathBuf, EndingCounts>) {
        for (path, mut counts) in counts {
            let folder = self.folder(&path);
            for name in &folder.files {
                let ending = shown_ending(Path::new(name).extension());
                if let Some(count) = counts.get_mut(&ending) {
                    *count -= 1;
                }
            }
            counts.retain(|_, count| *count > 0);
            folder.unshown = counts;
        }
    }

    /// Returns a directory, which is added to the one above it if it is new.
    fn folder(&mut self, path: &Path) -> &mut ListedFolder {
        if !self.folders.contains_key(path)
            && let Some(above) = path.parent().filter(|above| above.starts_with(self.root))
        {
            self.folder(above).folders.push(path.to_owned());
        }
        self.folders.entry(path.to_owned()).or_default()
    }

    /// Returns a directory with everything below it, and what is not shown there.
    fn node(&mut self, path: PathBuf) -> (LsDirectoryTreeNode, EndingCounts) {
        let mut folder = self.folders.remove(&path).unwrap_or_default();
        let name = |path: &PathBuf| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        folder
            .folders
            .sort_by(|a, b| sort_names::names(&name(a), &name(b)));
        folder.files.sort_by(|a, b| sort_names::names(a, b));
        let mut unshown = folder.unshown;
        let mut children_dirs = Vec::with_capacity(folder.folders.len());
        for child in folder.folders {
            let (child, below) = self.node(child);
            children_dirs.push(child);
            for (ending, count) in below {
                *unshown.entry(ending).or_default() += count;
            }
        }
        let node = LsDirectoryTreeNode {
            abs_path: path.to_string_lossy().into_owned(),
            children_dirs,
            children_files: folder
                .files
                .into_iter()
                .map(|name| ls_directory_tree_node::File {
                    name,
                    terminal_metadata: None,
                })
                .collect(),
            children_were_processed: unshown.is_empty(),
            full_subtree_extension_counts: unshown
                .iter()
                .map(
                    |(key, value)| ls_directory_tree_node::FullSubtreeExtensionCountsEntry {
                        key: key.clone(),
                        value: *value,
                    },
                )
                .collect(),
            num_files: unshown.values().sum(),
        };
        (node, unshown)
    }
}

/// Returns the sorted names in one directory for the plain listing, directories with a slash at
/// the end.
pub(super) fn names(guard: &PathGuard, path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let secrets = guard.secrets().found();
    let mut rules = cursorignore::IgnoreRules::default();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Ok(real) = entry.path().canonicalize() else {
            continue;
        };
        let is_secret = secrets
            .iter()
            .any(|secret| secret.is(&real, || real.metadata().ok()));
        if is_secret || rules.ignore(&real) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        names.push(if real.is_dir() {
            format!("{name}/")
        } else {
            name
        });
    }
    names.sort_by(|a, b| sort_names::names(a.trim_end_matches('/'), b.trim_end_matches('/')));
    Ok(names)
}

#[cfg(test)]
mod tests;
