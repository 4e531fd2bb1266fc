//! The files that a search looks into.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use ignore::overrides::OverrideBuilder;
use ignore::types::TypesBuilder;
use ignore::{DirEntry, WalkState};

use super::{Query, SearchError, SearchOrder, StopCondition};
use crate::workspace::path_guard::PathGuard;
use crate::workspace::{cursorignore, walk};

/// A file to search.
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    pub(super) time: SystemTime,
    /// Whether the request names it.
    pub(super) explicit: bool,
}

/// Returns the files to search.
pub(super) fn candidates(
    guard: &PathGuard,
    target: &Path,
    query: &Query,
    stop: &StopCondition<'_>,
) -> Result<Vec<Candidate>, SearchError> {
    let mut overrides = OverrideBuilder::new(guard.workspace());
    if let Some(glob) = &query.glob {
        overrides
            .case_insensitive(true)
            .and_then(|overrides| overrides.add(glob))
            .map_err(SearchError::Filter)?;
    }
    let mut types = TypesBuilder::new();
    if let Some(kind) = &query.kind {
        types.add_defaults().select(kind);
    }
    let real = target.canonicalize().unwrap_or_else(|_| target.to_owned());
    let roots = [guard.real_workspace().to_owned(), real];
    let mut walk = walk::walk(target, &cursorignore::FILES, move |entry| {
        entry.depth() == 0 || !entry.path_is_symlink() || leads_inside(entry.path(), &roots)
    });
    walk.follow_links(query.follow_links_inside)
        .overrides(overrides.build().map_err(SearchError::Filter)?)
        .types(types.build().map_err(SearchError::Filter)?);
    let all = Mutex::new(Vec::new());
    walk.build_parallel().run(|| {
        let mut found = FoundCandidates {
            candidates: Vec::new(),
            all: &all,
        };
        Box::new(move |entry| {
            if stop.check().is_err() {
                return WalkState::Quit;
            }
            // Directories that cannot be entered and dangling links are skipped.
            let Ok(entry) = entry else {
                return WalkState::Continue;
            };
            let explicit = entry.depth() == 0;
            let file = entry.file_type().is_some_and(|kind| kind.is_file())
                || (explicit && entry.path().is_file());
            if file {
                found.candidates.push(Candidate {
                    time: time(&entry, query.order).unwrap_or(SystemTime::UNIX_EPOCH),
                    path: entry.into_path(),
                    explicit,
                });
            }
            WalkState::Continue
        })
    });
    stop.check()?;
    Ok(all.into_inner().unwrap_or_default())
}

/// The candidates that one thread found. They are moved to the shared list when this is dropped.
struct FoundCandidates<'a> {
    candidates: Vec<Candidate>,
    all: &'a Mutex<Vec<Candidate>>,
}

impl Drop for FoundCandidates<'_> {
    fn drop(&mut self) {
        if let Ok(mut all) = self.all.lock() {
            all.append(&mut self.candidates);
        }
    }
}

/// Returns the time by which a file is sorted.
fn time(entry: &DirEntry, order: SearchOrder) -> Option<SystemTime> {
    let about = || entry.metadata().ok();
    match order {
        SearchOrder::Modified => about()?.modified().ok(),
        SearchOrder::Accessed => about()?.accessed().ok(),
        SearchOrder::Created => about()?.created().ok(),
        SearchOrder::Path => None,
    }
}

/// Returns whether the target of a link is inside one of these directories, which must be canonical
/// paths.
fn leads_inside(link: &Path, roots: &[PathBuf]) -> bool {
    let real = link.canonicalize();
    real.is_ok_and(|real| roots.iter().any(|root| real.starts_with(root)))
}
