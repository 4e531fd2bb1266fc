//! Cursor's grep over ripgrep's engine.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::io_errors;
use super::search::{
    self, FileMatches, HARD_LINES, OutputLine, Query, SearchError, SearchOrder, SearchOutput,
};
use crate::workspace::path_guard::{PathDenied, PathGuard};
use cursor_proto::agent::v1::*;

/// The most lines and files in one result.
const SHOWN: usize = 2000;

/// Why a search has no result.
#[derive(Debug, thiserror::Error)]
enum GrepFailure {
    #[error(transparent)]
    Search(#[from] SearchError),
    #[error("Unknown output mode: {0}")]
    Mode(String),
    #[error("rg: error parsing flag --sort: choice '{0}' is unrecognized\n")]
    Sort(String),
    #[error("Path does not exist: {0}")]
    Missing(String),
    #[error("Path '{0}' is filtered out by .cursorignore")]
    Ignored(String),
    #[error(
        "Path '{0}' could not be verified while resolving symlinks. This can happen when \
         access is denied or the path contains a symlink loop."
    )]
    Unclear(String),
    #[error("rg: {0}: Permission denied (os error 13)\n")]
    Denied(String),
    #[error(
        "rg: error parsing flag {0}: value is not a valid number: invalid digit found in string\n"
    )]
    Context(&'static str),
    #[error("{0}")]
    Refused(String),
    #[error("{0} is neither a file nor a folder")]
    Special(String),
}

/// Executes one search request.
pub(super) fn grep(guard: &PathGuard, args: &GrepArgs, abort: &CancellationToken) -> GrepResult {
    let result = match attempt(guard, args, abort) {
        Ok(success) => grep_result::Result::Success(success),
        Err(failure) => grep_result::Result::Error(GrepError {
            error: failure.to_string(),
        }),
    };
    GrepResult {
        result: Some(result),
    }
}

fn attempt(
    guard: &PathGuard,
    args: &GrepArgs,
    abort: &CancellationToken,
) -> Result<GrepSuccess, GrepFailure> {
    let root = guard.workspace();
    // A path outside the workspace is ignored, so that the search stays in the workspace.
    let given = args.path.as_deref().filter(|path| !path.is_empty());
    let inside = given
        .map(|path| (path, guard.absolute(path)))
        .filter(|(_, target)| target.starts_with(root));
    if let Some((path, target)) = &inside {
        match guard.read(target) {
            Ok(_) => {}
            Err(PathDenied::Missing) => {
                return Err(GrepFailure::Missing(target.to_string_lossy().into_owned()));
            }
            Err(PathDenied::Ignored) => return Err(GrepFailure::Ignored((*path).into())),
            Err(refusal @ (PathDenied::Secret(_) | PathDenied::Process(_))) => {
                return Err(GrepFailure::Refused(refusal.to_string()));
            }
            Err(_) => return Err(GrepFailure::Unclear((*path).into())),
        }
        if !target.is_file() && !target.is_dir() {
            return Err(GrepFailure::Special((*path).into()));
        }
        if io_errors::readable(target).is_err_and(|error| io_errors::is_denied(&error)) {
            let inside = target.strip_prefix(root).unwrap_or(target);
            return Err(GrepFailure::Denied(inside.display().to_string()));
        }
    }
    let query = query(args)?;
    let target = inside.as_ref().map_or(root, |(_, target)| target.as_path());
    let prefix = if target == root { "./" } else { "" };
    let name = |path: &Path| {
        let inside = path.strip_prefix(root).unwrap_or(path);
        format!("{prefix}{}", inside.display())
    };
    let mut answer = GrepOutput::new(&query);
    search::search(guard, target, &query, abort, |found| {
        answer.take(name(&found.path), found)
    })?;
    Ok(GrepSuccess {
        pattern: args.pattern.clone(),
        path: inside.map(|(path, _)| path.to_owned()).unwrap_or_default(),
        output_mode: mode(args).to_owned(),
        workspace_results: vec![grep_success::WorkspaceResultsEntry {
            key: root.to_string_lossy().into_owned(),
            value: Some(answer.finish()),
        }],
        active_editor_result: None,
    })
}

fn mode(args: &GrepArgs) -> &str {
    args.output_mode.as_deref().unwrap_or("content")
}

fn query(args: &GrepArgs) -> Result<Query, GrepFailure> {
    let (before, after) = match (args.context_before, args.context_after) {
        (None, None) => (args.context, args.context),
        given => given,
    };
    let output = match mode(args) {
        "content" => SearchOutput::Content,
        "files_with_matches" => SearchOutput::Files,
        "count" => SearchOutput::Count,
        other => return Err(GrepFailure::Mode(other.into())),
    };
    let order = match args.sort.as_deref() {
        None | Some("modified" | "none") => SearchOrder::Modified,
        Some("accessed") => SearchOrder::Accessed,
        Some("created") => SearchOrder::Created,
        Some("path") => SearchOrder::Path,
        Some(other) => return Err(GrepFailure::Sort(other.into())),
    };
    let context = |count: Option<i32>, flag| match output {
        SearchOutput::Content => {
            usize::try_from(count.unwrap_or(0)).map_err(|_| GrepFailure::Context(flag))
        }
        SearchOutput::Files | SearchOutput::Count => Ok(0),
    };
    Ok(Query {
        pattern: args.pattern.clone(),
        ignore_case: args.case_insensitive == Some(true),
        multiline: args.multiline == Some(true),
        output,
        before: context(before, "--before-context")?,
        after: context(after, "--after-context")?,
        glob: args.glob.clone().filter(|glob| !glob.is_empty()),
        kind: args.r#type.clone().filter(|kind| !kind.is_empty()),
        order,
        ascending: args.sort_ascending == Some(true),
        follow_links_inside: true,
    })
}

/// The result under construction.
struct GrepOutput {
    output: SearchOutput,
    /// Whether a separator line is between the parts.
    apart: bool,
    matches: Vec<GrepFileMatch>,
    counts: Vec<GrepFileCount>,
    lines: usize,
    matched: usize,
    shown: usize,
    files: usize,
    total: u64,
}

impl GrepOutput {
    fn new(query: &Query) -> Self {
        Self {
            output: query.output,
            apart: query.before + query.after > 0,
            matches: Vec::new(),
            counts: Vec::new(),
            lines: 0,
            matched: 0,
            shown: 0,
            files: 0,
            total: 0,
        }
    }

    /// Adds the matches of one file. Returns whether more are accepted.
    fn take(&mut self, file: String, found: FileMatches) -> bool {
        match self.output {
            SearchOutput::Content => return self.content(file, found.lines),
            SearchOutput::Files | SearchOutput::Count => {
                self.files += 1;
                self.total += found.count;
                if self.counts.len() < SHOWN {
                    let count = i32::try_from(found.count).unwrap_or(i32::MAX);
                    self.counts.push(GrepFileCount { file, count });
                }
            }
        }
        self.files < HARD_LINES
    }

    fn content(&mut self, file: String, lines: Vec<OutputLine>) -> bool {
        if self.apart && self.lines > 0 {
            self.lines += 1;
        }
        let mut matches = Vec::new();
        for line in lines {
            if self.lines >= HARD_LINES {
                break;
            }
            self.lines += 1;
            let OutputLine::Text {
                number,
                content,
                context,
            } = line
            else {
                continue;
            };
            self.matched += usize::from(!context);
            if self.shown < SHOWN {
                self.shown += 1;
                matches.push(GrepContentMatch {
                    line_number: i32::try_from(number).unwrap_or(i32::MAX),
                    content,
                    content_truncated: false,
                    is_context_line: context,
                });
            }
        }
        if !matches.is_empty() {
            self.matches.push(GrepFileMatch { file, matches });
        }
        self.lines < HARD_LINES
    }

    fn finish(self) -> GrepUnionResult {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let result = match self.output {
            SearchOutput::Content => grep_union_result::Result::Content(GrepContentResult {
                matches: self.matches,
                total_lines: number(self.lines),
                total_matched_lines: number(self.matched),
                client_truncated: self.shown >= SHOWN,
                ripgrep_truncated: self.lines >= HARD_LINES,
                ..GrepContentResult::default()
            }),
            SearchOutput::Files => grep_union_result::Result::Files(GrepFilesResult {
                files: self.counts.into_iter().map(|count| count.file).collect(),
                total_files: number(self.files),
                client_truncated: self.files > SHOWN,
                ripgrep_truncated: self.files >= HARD_LINES,
                ..GrepFilesResult::default()
            }),
            SearchOutput::Count => grep_union_result::Result::Count(GrepCountResult {
                counts: self.counts,
                total_files: number(self.files),
                total_matches: i32::try_from(self.total).unwrap_or(i32::MAX),
                client_truncated: self.files > SHOWN,
                ripgrep_truncated: self.files >= HARD_LINES,
                ..GrepCountResult::default()
            }),
        };
        GrepUnionResult {
            result: Some(result),
        }
    }
}
