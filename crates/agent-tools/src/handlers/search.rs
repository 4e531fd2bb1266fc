//! Searching files with ripgrep's engine, in its order and with its rules of what to skip.
//!
//! All candidates are listed and sorted first; then they are searched in batches on all cores,
//! and results are passed on in order. This module does not know Cursor's messages.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use grep_printer::{Standard, StandardBuilder, Summary, SummaryBuilder, SummaryKind};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use termcolor::NoColor;
use tokio_util::sync::CancellationToken;

use crate::workspace::open_folder::open_unblocked;
use crate::workspace::opened_files::OpenedFiles;
use crate::workspace::path_guard::PathGuard;
use candidates::{Candidate, candidates};
use file_reader::FileReader;
use output_budget::{BudgetState, FileOutput, SharedBudget};

mod candidates;
mod file_reader;
mod output_budget;

pub(in crate::handlers) use output_budget::OutputLine;

/// Lines of output after which a search stops.
pub(super) const HARD_LINES: usize = 10_000;
/// The most memory for the results of one batch, independent of the number of cores; the first
/// file of a batch may exceed it.
const ROOM: usize = 32 * 1024 * 1024;
/// The files of the first batch for each thread, and those of the largest.
const FIRST_BATCH: usize = 32;
const LAST_BATCH: usize = 4096;
/// How many bytes are read at once.
const READ_BUFFER: usize = 64 * 1024;
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
        let held = SharedBudget::new(self.room);
        let mut workers = self.workers(&held, candidates.len());
        let mut rest = candidates;
        // The batches grow, because each costs a start of the threads, and the last may be in vain.
        let mut size = self.threads * FIRST_BATCH;
        while !rest.is_empty() {
            stop.check()?;
            let batch = &rest[..rest.len().min(size)];
            let searched = batch_outcomes(&mut workers, &held, batch, stop);
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
            size = (2 * size).min(self.threads * LAST_BATCH);
        }
        Ok(())
    }

    fn workers<'a>(&'a self, held: &'a SharedBudget, most: usize) -> Vec<Worker<'a>> {
        let threads = self.threads.min(most).max(1);
        let worker = || Worker::new(self.query, self.matcher.clone(), self.guard, held);
        std::iter::repeat_with(worker).take(threads).collect()
    }
}

/// Returns the outcome for each file of a batch. The first file is never deferred.
fn batch_outcomes(
    workers: &mut [Worker<'_>],
    held: &SharedBudget,
    batch: &[Candidate],
    stop: &StopCondition<'_>,
) -> Vec<FileOutcome> {
    held.reset();
    let later = |_| Mutex::new(FileOutcome::Later);
    let results: Vec<Mutex<FileOutcome>> = batch.iter().map(later).collect();
    let next = AtomicUsize::new(0);
    let work = |worker: &mut Worker<'_>| {
        while !held.is_full() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = batch.get(at) else {
                break;
            };
            if stop.check().is_err() {
                break;
            }
            // A file that cannot be read has no matches.
            let searched = worker.file(candidate, stop, at > 0);
            if let Some(Ok(mut slot)) = results.get(at).map(Mutex::lock) {
                *slot = searched.unwrap_or(FileOutcome::Nothing);
            }
        }
    };
    std::thread::scope(|scope| {
        if let Some((here, others)) = workers.split_first_mut() {
            for worker in others.iter_mut().take(batch.len().saturating_sub(1)) {
                scope.spawn(|| work(worker));
            }
            work(here);
        }
    });
    let found = |slot: Mutex<FileOutcome>| slot.into_inner().unwrap_or(FileOutcome::Nothing);
    results.into_iter().map(found).collect()
}

/// Searches one file after the other.
struct Worker<'a> {
    query: &'a Query,
    matcher: RegexMatcher,
    walked: Searcher,
    explicit: Searcher,
    lines: Standard<NoColor<FileOutput<'a>>>,
    summary: Summary<NoColor<Vec<u8>>>,
    buffer: Vec<u8>,
    opened: OpenedFiles,
}

impl<'a> Worker<'a> {
    fn new(
        query: &'a Query,
        matcher: RegexMatcher,
        guard: &PathGuard,
        held: &'a SharedBudget,
    ) -> Self {
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
        let lines = StandardBuilder::new()
            .path(true)
            .path_terminator(Some(0))
            .max_columns(Some(1000))
            .max_columns_preview(true)
            .build_no_color(FileOutput::new(held));
        // As ripgrep: counts lines, unless a match may span several.
        let across = walked.multi_line_with_matcher(&matcher);
        let kind = match (query.output, across) {
            (SearchOutput::Count, true) => SummaryKind::CountMatches,
            _ => SummaryKind::Count,
        };
        let summary = SummaryBuilder::new()
            .kind(kind)
            .path(false)
            .exclude_zero(true)
            .build_no_color(Vec::new());
        Self {
            query,
            matcher,
            walked,
            explicit,
            lines,
            summary,
            buffer: vec![0; READ_BUFFER],
            opened: OpenedFiles::new(guard),
        }
    }

    /// Searches a file unless the guard refuses it. The opened file is checked, because a link may
    /// have replaced it since it was listed.
    fn file(
        &mut self,
        candidate: &Candidate,
        stop: &StopCondition<'_>,
        is_deferrable: bool,
    ) -> io::Result<FileOutcome> {
        // The file may have been replaced by a pipe, which must not block.
        let file = open_unblocked(&candidate.path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Ok(FileOutcome::Nothing);
        }
        let searched = self.search(&file, about.len(), candidate, stop, is_deferrable)?;
        Ok(match searched {
            FileOutcome::Found(_) if !self.opened.may_show(&file, &about, &candidate.path) => {
                FileOutcome::Nothing
            }
            searched => searched,
        })
    }

    fn search(
        &mut self,
        file: &File,
        size: u64,
        candidate: &Candidate,
        stop: &StopCondition<'_>,
        is_deferrable: bool,
    ) -> io::Result<FileOutcome> {
        let reader = FileReader::new(file, size, stop, &mut self.buffer);
        let searcher = if candidate.explicit {
            &mut self.explicit
        } else {
            &mut self.walked
        };
        // A placeholder, which `output_budget` strips from the printer's output.
        let path = Path::new("f");
        let mut found = FileMatches {
            path: PathBuf::new(),
            lines: Vec::new(),
            count: 0,
        };
        match self.query.output {
            SearchOutput::Content => {
                self.lines.get_mut().get_mut().start(is_deferrable);
                let sink = self.lines.sink_with_path(&self.matcher, path);
                let done = searcher.search_reader(&self.matcher, reader, sink);
                let (lines, room) = self.lines.get_mut().get_mut().finish();
                match room {
                    BudgetState::Left => done?,
                    BudgetState::Full => {}
                    BudgetState::Dropped => return Ok(FileOutcome::Later),
                }
                found.lines = lines;
            }
            SearchOutput::Files | SearchOutput::Count => {
                let sink = self.summary.sink_with_path(&self.matcher, path);
                let done = searcher.search_reader(&self.matcher, reader, sink);
                let output = std::mem::take(self.summary.get_mut().get_mut());
                done?;
                let text = String::from_utf8_lossy(&output);
                found.count = text.trim().parse().unwrap_or(0);
            }
        }
        if found.lines.is_empty() && found.count == 0 {
            return Ok(FileOutcome::Nothing);
        }
        candidate.path.clone_into(&mut found.path);
        Ok(FileOutcome::Found(found))
    }
}

#[cfg(test)]
mod tests;
