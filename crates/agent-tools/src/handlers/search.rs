//! Searching files with ripgrep's engine, in its order and with its rules of what to skip.
//!
//! All candidates are listed and sorted first; then they are searched in batches on all cores,
//! and results are passed on in order. This module does not know Cursor's messages.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use grep_printer::{StandardBuilder, SummaryBuilder, SummaryKind};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::WalkState;
use ignore::overrides::OverrideBuilder;
use ignore::types::TypesBuilder;
use tokio_util::sync::CancellationToken;

use crate::workspace::open_folder::open_unblocked;
use crate::workspace::path_guard::PathGuard;
use crate::workspace::{cursorignore, walk};
use output_budget::{BudgetState, FileOutput, SharedBudget};

mod output_budget;

pub(in crate::handlers) use output_budget::OutputLine;

/// Lines of output after which a search stops.
pub(super) const HARD_LINES: usize = 10_000;
/// The most memory for the results of one batch, independent of the number of cores; the first
/// file of a batch may exceed it.
const ROOM: usize = 32 * 1024 * 1024;
/// The most memory for a search across lines.
const MAX_HEAP: usize = 256 * 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(25);

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SearchError {
    /// The pattern is invalid.
    #[error("rg: {0}\n")]
    Pattern(grep_regex::Error),
    /// A glob or file type is invalid.
    #[error("rg: {0}\n")]
    Filter(ignore::Error),
    /// It took too long.
    #[error("Timed out after {}s", TIMEOUT.as_secs())]
    OutOfTime,
    /// The request was cancelled.
    #[error("{}", crate::prompts::tools::SEARCH_CANCELLED)]
    Cancelled,
}

/// What is reported for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchOutput {
    /// Its matching lines.
    Content,
    /// That it matches.
    Files,
    /// How often it matches.
    Count,
}

/// The order of files in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchOrder {
    /// By time of the last change.
    Modified,
    /// By time of the last access.
    Accessed,
    /// By time of creation.
    Created,
    /// By path.
    Path,
}

/// One search.
#[derive(Debug, Clone)]
pub(super) struct Query {
    pub(super) pattern: String,
    pub(super) ignore_case: bool,
    /// Whether a match may span several lines; a dot then also matches line feeds.
    pub(super) multiline: bool,
    pub(super) output: SearchOutput,
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) glob: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) order: SearchOrder,
    pub(super) ascending: bool,
    /// Whether links are followed if their target is inside the workspace or the searched
    /// directory, because a link to the root of the disk would make a search endless.
    pub(super) follow_links_inside: bool,
}

/// What was found in one file.
#[derive(Debug)]
pub(super) struct FileMatches {
    /// The file.
    pub(super) path: PathBuf,
    /// Lines, for [`SearchOutput::Content`], with `--` between separate parts and notices of binary
    /// files.
    pub(super) lines: Vec<OutputLine>,
    /// The number of matches, for [`SearchOutput::Count`].
    pub(super) count: u64,
}

struct Candidate {
    path: PathBuf,
    time: SystemTime,
    explicit: bool,
}

/// When a search stops early.
struct StopCondition<'a> {
    deadline: Instant,
    abort: &'a CancellationToken,
}

impl StopCondition<'_> {
    fn check(&self) -> Result<(), SearchError> {
        if self.abort.is_cancelled() {
            Err(SearchError::Cancelled)
        } else if Instant::now() > self.deadline {
            Err(SearchError::OutOfTime)
        } else {
            Ok(())
        }
    }
}

/// Searches below a path; globs are relative to the workspace. Passes results to `take`, in order,
/// until it returns `false`. Files that the guard refuses are skipped.
pub(super) fn search(
    guard: &PathGuard,
    target: &Path,
    query: &Query,
    abort: &CancellationToken,
    take: impl FnMut(FileMatches) -> bool,
) -> Result<(), SearchError> {
    let stop = StopCondition {
        deadline: Instant::now() + TIMEOUT,
        abort,
    };
    let matcher = matcher(query)?;
    let mut candidates = candidates(guard, target, query, &stop)?;
    candidates.sort_by(|a, b| {
        let order = match query.order {
            SearchOrder::Path => a.path.cmp(&b.path),
            _ => a.time.cmp(&b.time),
        };
        let order = if query.ascending {
            order
        } else {
            order.reverse()
        };
        order.then_with(|| a.path.cmp(&b.path))
    });
    let pool = WorkerPool {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        room: ROOM,
        query,
        matcher,
        guard,
    };
    pool.search(&candidates, &stop, take)
}

fn matcher(query: &Query) -> Result<RegexMatcher, SearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).case_insensitive(query.ignore_case);
    if query.multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder
            .line_terminator(Some(b'\n'))
            .dot_matches_new_line(false);
    }
    builder
        .build_many(&[&query.pattern])
        .map_err(SearchError::Pattern)
}

/// Returns the files to search.
fn candidates(
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
    types.add_defaults();
    if let Some(kind) = &query.kind {
        types.select(kind);
    }
    let real = target.canonicalize().unwrap_or_else(|_| target.to_owned());
    let roots = [guard.real_workspace().to_owned(), real];
    let mut walk = walk::walk(target, &cursorignore::FILES, move |entry| {
        entry.depth() == 0 || !entry.path_is_symlink() || leads_inside(entry.path(), &roots)
    });
    walk.follow_links(query.follow_links_inside)
        .overrides(overrides.build().map_err(SearchError::Filter)?)
        .types(types.build().map_err(SearchError::Filter)?);
    let found = Mutex::new(Vec::new());
    walk.build_parallel().run(|| {
        Box::new(|entry| {
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
                let about = entry.metadata().ok();
                let time = about.and_then(|about| match query.order {
                    SearchOrder::Modified => about.modified().ok(),
                    SearchOrder::Accessed => about.accessed().ok(),
                    SearchOrder::Created => about.created().ok(),
                    SearchOrder::Path => None,
                });
                if let Ok(mut found) = found.lock() {
                    found.push(Candidate {
                        path: entry.into_path(),
                        time: time.unwrap_or(SystemTime::UNIX_EPOCH),
                        explicit,
                    });
                }
            }
            WalkState::Continue
        })
    });
    stop.check()?;
    Ok(found.into_inner().unwrap_or_default())
}

/// Returns whether the target of a link is inside one of these directories, whose links must be
/// resolved.
fn leads_inside(link: &Path, roots: &[PathBuf]) -> bool {
    let real = link.canonicalize();
    real.is_ok_and(|real| roots.iter().any(|root| real.starts_with(root)))
}

/// The outcome of searching one file.
#[derive(Debug)]
enum FileOutcome {
    Nothing,
    Found(FileMatches),
    /// The memory limit of the batch was reached; the file is searched in a later batch.
    Later,
}

/// Searches files on several threads, a batch at a time.
struct WorkerPool<'a> {
    threads: usize,
    /// The most memory for the results of a batch.
    room: usize,
    query: &'a Query,
    matcher: RegexMatcher,
    guard: &'a PathGuard,
}

impl WorkerPool<'_> {
    /// Passes results to `take`, in the order of the files, until it returns `false`.
    fn search(
        &self,
        candidates: &[Candidate],
        stop: &StopCondition<'_>,
        mut take: impl FnMut(FileMatches) -> bool,
    ) -> Result<(), SearchError> {
        let mut rest = candidates;
        while !rest.is_empty() {
            stop.check()?;
            let batch = &rest[..rest.len().min(self.threads * 32)];
            let searched = self.batch(batch, stop);
            stop.check()?;
            for searched in searched {
                let enough = match searched {
                    FileOutcome::Nothing => false,
                    FileOutcome::Found(found) => !take(found),
                    FileOutcome::Later => break,
                };
                if enough {
                    return Ok(());
                }
                rest = &rest[1..];
            }
        }
        Ok(())
    }

    /// Returns the outcome for each file of a batch. The first file is never deferred.
    fn batch(&self, batch: &[Candidate], stop: &StopCondition<'_>) -> Vec<FileOutcome> {
        let later = |_| Mutex::new(FileOutcome::Later);
        let results: Vec<Mutex<FileOutcome>> = batch.iter().map(later).collect();
        let held = SharedBudget::new(self.room);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker = Worker::new(self.query, self.matcher.clone(), self.guard);
            while !held.is_full() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(candidate) = batch.get(at) else {
                    break;
                };
                if stop.check().is_err() {
                    break;
                }
                // A file that cannot be read has no matches.
                let searched = worker.file(candidate, stop, FileOutput::new(&held, at > 0));
                if let Some(Ok(mut slot)) = results.get(at).map(Mutex::lock) {
                    *slot = searched.unwrap_or(FileOutcome::Nothing);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(batch.len()) {
                scope.spawn(work);
            }
            work();
        });
        let found = |slot: Mutex<FileOutcome>| slot.into_inner().unwrap_or(FileOutcome::Nothing);
        results.into_iter().map(found).collect()
    }
}

struct Worker<'a> {
    guard: &'a PathGuard,
    query: &'a Query,
    matcher: RegexMatcher,
    walked: Searcher,
    explicit: Searcher,
}

impl<'a> Worker<'a> {
    fn new(query: &'a Query, matcher: RegexMatcher, guard: &'a PathGuard) -> Self {
        let mut builder = SearcherBuilder::new();
        builder
            .line_number(query.output == SearchOutput::Content)
            .multi_line(query.multiline)
            .before_context(query.before)
            .after_context(query.after)
            .heap_limit(Some(MAX_HEAP));
        match query.output {
            SearchOutput::Content => builder.max_matches(Some(HARD_LINES as u64)),
            SearchOutput::Files => builder.max_matches(Some(1)),
            SearchOutput::Count => &mut builder,
        };
        // A file that was named explicitly is searched even if it is binary, as ripgrep does.
        let walked = builder.binary_detection(BinaryDetection::quit(0)).build();
        let explicit = builder
            .binary_detection(BinaryDetection::convert(0))
            .build();
        Self {
            guard,
            query,
            matcher,
            walked,
            explicit,
        }
    }

    /// Searches a file unless the guard refuses it. The opened file is checked, because a link may
    /// have replaced it since it was listed.
    fn file(
        &mut self,
        candidate: &Candidate,
        stop: &StopCondition<'_>,
        printed: FileOutput<'_>,
    ) -> io::Result<FileOutcome> {
        // The file may have been replaced by a pipe, which must not block.
        let file = open_unblocked(&candidate.path)?;
        if !file.metadata()?.is_file() {
            return Ok(FileOutcome::Nothing);
        }
        let searched = self.search(&file, candidate, stop, printed)?;
        Ok(match searched {
            FileOutcome::Found(_) if !self.guard.may_show(&file, &candidate.path) => {
                FileOutcome::Nothing
            }
            searched => searched,
        })
    }

    fn search(
        &mut self,
        file: &File,
        candidate: &Candidate,
        stop: &StopCondition<'_>,
        printed: FileOutput<'_>,
    ) -> io::Result<FileOutcome> {
        let reader = Abortable { file, stop };
        let searcher = if candidate.explicit {
            &mut self.explicit
        } else {
            &mut self.walked
        };
        // A placeholder, which `printed` strips from the printer's output.
        let path = Path::new("f");
        let mut found = FileMatches {
            path: candidate.path.clone(),
            lines: Vec::new(),
            count: 0,
        };
        match self.query.output {
            SearchOutput::Content => {
                let mut printer = StandardBuilder::new()
                    .path(true)
                    .path_terminator(Some(0))
                    .max_columns(Some(1000))
                    .max_columns_preview(true)
                    .build_no_color(printed);
                let sink = printer.sink_with_path(&self.matcher, path);
                let done = searcher.search_reader(&self.matcher, reader, sink);
                let (lines, room) = printer.into_inner().into_inner().end();
                match room {
                    BudgetState::Left => done?,
                    BudgetState::Full => {}
                    BudgetState::Dropped => return Ok(FileOutcome::Later),
                }
                found.lines = lines;
                Ok(if found.lines.is_empty() {
                    FileOutcome::Nothing
                } else {
                    FileOutcome::Found(found)
                })
            }
            SearchOutput::Files | SearchOutput::Count => {
                // As ripgrep: counts lines, unless a match may span several.
                let across = searcher.multi_line_with_matcher(&self.matcher);
                let kind = match (self.query.output, across) {
                    (SearchOutput::Count, true) => SummaryKind::CountMatches,
                    _ => SummaryKind::Count,
                };
                let mut printer = SummaryBuilder::new()
                    .kind(kind)
                    .path(false)
                    .exclude_zero(true)
                    .build_no_color(Vec::new());
                let sink = printer.sink_with_path(&self.matcher, path);
                searcher.search_reader(&self.matcher, reader, sink)?;
                let output = printer.into_inner().into_inner();
                let text = String::from_utf8_lossy(&output);
                found.count = text.trim().parse().unwrap_or(0);
                Ok(match found.count {
                    0 => FileOutcome::Nothing,
                    _ => FileOutcome::Found(found),
                })
            }
        }
    }
}

/// A file whose reads fail once the search has to stop.
struct Abortable<'a> {
    file: &'a File,
    stop: &'a StopCondition<'a>,
}

impl Read for Abortable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check().map_err(io::Error::other)?;
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests;
