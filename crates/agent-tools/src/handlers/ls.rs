//! The tree below a directory, up to a size limit.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ignore::overrides::{Override, OverrideBuilder};
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

#[derive(Default)]
struct ListedFolder {
    folders: Vec<PathBuf>,
    files: Vec<String>,
    counts: BTreeMap<String, i32>,
    unshown: i32,
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
    let mut folders: HashMap<PathBuf, ListedFolder> = HashMap::new();
    folders.insert(root.to_owned(), ListedFolder::default());
    let mut used = root.to_string_lossy().encode_utf16().count();
    let mut is_complete = true;
    let mut rules = cursorignore::IgnoreRules::default();
    // No link is followed below the root, so only the root's own links have to be resolved.
    let real_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let secrets = guard.secrets().found();
    let inside = real_root.clone();
    let walked = root.to_owned();
    let mut walk = walk::walk(root, &cursorignore::FILES, move |entry| {
        let path = entry.path();
        let real = inside.join(path.strip_prefix(&walked).unwrap_or(path));
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let about = || entry.metadata().ok().filter(|_| is_folder);
        !secrets.iter().any(|secret| secret.is(&real, about))
    });
    walk.overrides(exclusions)
        .sort_by_file_name(|a, b| sort_names::names(&a.to_string_lossy(), &b.to_string_lossy()));
    for entry in walk.build() {
        if abort.is_cancelled() || Instant::now() > deadline {
            is_complete = false;
            break;
        }
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let inside = entry.path().strip_prefix(root).unwrap_or(entry.path());
        if rules.ignore(&real_root.join(inside)) {
            continue;
        }
        place(&mut folders, root, entry.path(), &mut used);
    }
    (node(&mut folders, root.to_owned()), is_complete)
}

/// Adds a file to its directory, or to the counts of all directories above it.
fn place(folders: &mut HashMap<PathBuf, ListedFolder>, root: &Path, file: &Path, used: &mut usize) {
    let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else {
        return;
    };
    // The directories between the file and the root, each added to its parent once.
    let above: Vec<&Path> = parent
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .collect();
    for folder in above.iter().rev() {
        if folders.contains_key(*folder) {
            continue;
        }
        folders.insert((*folder).to_owned(), ListedFolder::default());
        if let Some(holder) = folder.parent().and_then(|holder| folders.get_mut(holder)) {
            holder.folders.push((*folder).to_owned());
        }
    }
    let name = name.to_string_lossy().into_owned();
    let length = name.encode_utf16().count();
    if *used + length <= BUDGET {
        *used += length;
        if let Some(folder) = folders.get_mut(parent) {
            folder.files.push(name);
        }
        return;
    }
    // Once a name does not fit, no later one is shown either.
    *used = BUDGET;
    let ending = file
        .extension()
        .map(|ending| format!(".{}", ending.to_string_lossy()))
        .unwrap_or_default();
    for folder in above {
        if let Some(folder) = folders.get_mut(folder) {
            *folder.counts.entry(ending.clone()).or_default() += 1;
            folder.unshown += 1;
        }
    }
}

fn node(folders: &mut HashMap<PathBuf, ListedFolder>, path: PathBuf) -> LsDirectoryTreeNode {
    let mut folder = folders.remove(&path).unwrap_or_default();
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    folder
        .folders
        .sort_by(|a, b| sort_names::names(&name(a), &name(b)));
    folder.files.sort_by(|a, b| sort_names::names(a, b));
    LsDirectoryTreeNode {
        abs_path: path.to_string_lossy().into_owned(),
        children_dirs: folder
            .folders
            .into_iter()
            .map(|child| node(folders, child))
            .collect(),
        children_files: folder
            .files
            .into_iter()
            .map(|name| ls_directory_tree_node::File {
                name,
                terminal_metadata: None,
            })
            .collect(),
        children_were_processed: folder.unshown == 0,
        full_subtree_extension_counts: folder
            .counts
            .into_iter()
            .map(
                |(key, value)| ls_directory_tree_node::FullSubtreeExtensionCountsEntry {
                    key,
                    value,
                },
            )
            .collect(),
        num_files: folder.unshown,
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
