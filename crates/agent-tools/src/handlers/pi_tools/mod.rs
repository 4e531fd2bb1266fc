//! The plain-text family of requests (`pi_*`): the same operations with text results.

pub(super) mod bash;
pub(super) mod edit;
pub(super) mod grep;

use std::io::{self, Read as _};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::{io_errors, ls, sort_names, write};
use crate::prompts::tools;
use crate::shell::output_tail::{MAX_BYTES, MAX_LINES};
use crate::workspace::path_guard::{PathDenied, PathGuard};
use crate::workspace::{cursorignore, walk};
use cursor_proto::agent::v1::*;

/// The most bytes of a file that is read completely.
const MAX_FILE: u64 = 64 * 1024 * 1024;
const ENTRIES: usize = 500;

/// A failure as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct PiToolError(pub(crate) String);

impl PiToolError {
    fn io(error: &io::Error, call: &str, path: &Path) -> Self {
        Self(io_errors::sentence(error, call, path))
    }
}

/// Checks that a path may be read, with the error messages of these requests.
fn cleared(
    guard: &PathGuard,
    path: &Path,
    verb: &str,
) -> Result<crate::workspace::path_guard::ApprovedPath, PiToolError> {
    guard.read(path).map_err(|refusal| match refusal {
        PathDenied::Missing => PiToolError::io(&crate::errno::Errno::NOENT.into(), "stat", path),
        PathDenied::Ignored => {
            PiToolError(format!("{verb} blocked: Path is blocked by cursorignore"))
        }
        PathDenied::Unclear { .. } => PiToolError(format!(
            "{verb} blocked: {verb} blocked: cannot verify path `{}` while resolving symlinks. \
             This can happen when access is denied or the path contains a symlink loop.",
            path.display()
        )),
        other => PiToolError(format!("{verb} blocked: {other}")),
    })
}

/// Returns the bytes of a file.
pub(super) fn whole(guard: &PathGuard, path: &Path) -> Result<Vec<u8>, PiToolError> {
    let cleared = cleared(guard, path, "Read")?;
    if cleared.real.is_dir() {
        return Err(PiToolError(format!(
            "Path is a directory: {}",
            path.display()
        )));
    }
    let file = cleared
        .open()
        .map_err(|error| PiToolError::io(&error, "open", path))?;
    let size = file.metadata().map(|about| about.len()).unwrap_or(0);
    if size > MAX_FILE {
        return Err(PiToolError(tools::file_too_large(size, MAX_FILE)));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE)
        .read_to_end(&mut bytes)
        .map_err(|error| PiToolError::io(&error, "read", path))?;
    Ok(bytes)
}

/// Converts a count to the type the messages use.
pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the beginning of a text that fits, and what was left out.
pub(super) fn head(text: &str) -> (&str, Option<PiTruncation>) {
    let total = text.split('\n').count();
    let (mut end, mut lines) = (0, 0);
    let mut by = "lines";
    for line in text.split('\n') {
        let next = end + line.len() + usize::from(lines > 0);
        if lines == MAX_LINES {
            break;
        }
        if next > MAX_BYTES {
            by = "bytes";
            break;
        }
        (end, lines) = (next, lines + 1);
    }
    if lines == total {
        return (text, None);
    }
    let truncation = PiTruncation {
        truncated: true,
        truncated_by: by.into(),
        total_lines: number(total),
        output_lines: number(lines),
        output_bytes: number(end),
        max_lines: Some(number(MAX_LINES)),
        max_bytes: Some(number(MAX_BYTES)),
        first_line_exceeds_limit: lines == 0,
        last_line_partial: false,
    };
    (&text[..end], Some(truncation))
}

/// Reads lines of a file.
pub(super) fn read(
    guard: &PathGuard,
    args: &PiReadExecArgs,
) -> Result<PiReadExecSuccess, PiToolError> {
    let path = guard.absolute(named(&args.path));
    let bytes = whole(guard, &path)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    let offset = usize::try_from(args.offset.unwrap_or(1))
        .unwrap_or(1)
        .max(1);
    if offset > lines.len() {
        return Err(PiToolError(format!(
            "Offset {offset} is beyond end of file ({} lines total)",
            lines.len()
        )));
    }
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    let end = limit.map_or(lines.len(), |limit| (offset - 1 + limit).min(lines.len()));
    let wanted = lines[offset - 1..end].join("\n");
    let (shown, truncation) = head(&wanted);
    let mut output = shown.to_owned();
    match &truncation {
        Some(cut) if cut.first_line_exceeds_limit => {
            let size = lines[offset - 1].len().div_ceil(1024);
            output = format!(
                "[Line {offset} is {size}KB, exceeds {}KB limit. Use bash: sed -n '{offset}p' {} \
                 | head -c {MAX_BYTES}]",
                MAX_BYTES / 1024,
                args.path
            );
        }
        Some(cut) => {
            let last = offset - 1 + cut.output_lines as usize;
            let limit = match cut.truncated_by.as_str() {
                "bytes" => format!(" ({}KB limit)", MAX_BYTES / 1024),
                _ => String::new(),
            };
            output.push_str(&format!(
                "\n\n[Showing lines {offset}-{last} of {}{limit}. Use offset={} to continue.]",
                lines.len(),
                last + 1
            ));
        }
        None if end < lines.len() => output.push_str(&format!(
            "\n\n[{} more lines in file. Use offset={} to continue.]",
            lines.len() - end,
            end + 1
        )),
        None => {}
    }
    Ok(PiReadExecSuccess { output, truncation })
}

/// Writes a file.
pub(super) fn write_file(guard: &PathGuard, args: &PiWriteExecArgs) -> Result<String, PiToolError> {
    put(guard, &args.path, &args.content)?;
    Ok(format!(
        "Successfully wrote {} bytes to {}",
        args.content.encode_utf16().count(),
        args.path
    ))
}

/// Writes a text with the checks of every other write.
pub(super) fn put(guard: &PathGuard, path: &str, text: &str) -> Result<(), PiToolError> {
    let args = WriteArgs {
        path: named(path).into(),
        file_text: text.into(),
        ..WriteArgs::default()
    };
    save(guard, &args)
}

/// Writes a file and returns a failure as text.
pub(super) fn save(guard: &PathGuard, args: &WriteArgs) -> Result<(), PiToolError> {
    match write::write(guard, args).result {
        Some(write_result::Result::Success(_)) => Ok(()),
        Some(write_result::Result::Rejected(no)) => Err(PiToolError(no.reason)),
        Some(write_result::Result::PermissionDenied(no)) => Err(PiToolError(no.error)),
        Some(write_result::Result::Error(no)) => Err(PiToolError(no.error)),
        Some(write_result::Result::NoSpace(_)) | None => {
            Err(PiToolError("ENOSPC: no space left on device".into()))
        }
    }
}

/// Lists a directory.
pub(super) fn list(guard: &PathGuard, args: &PiLsExecArgs) -> Result<PiLsExecSuccess, PiToolError> {
    let path = guard.absolute(named(args.path.as_deref().unwrap_or_default()));
    let cleared = cleared(guard, &path, "List")?;
    if !cleared.real.is_dir() {
        return Err(PiToolError(format!("Not a directory: {}", path.display())));
    }
    let names =
        ls::names(guard, &path).map_err(|error| PiToolError::io(&error, "scandir", &path))?;
    if names.is_empty() {
        return Ok(PiLsExecSuccess {
            output: "(empty directory)".into(),
            ..PiLsExecSuccess::default()
        });
    }
    let limit = limit(args.limit, ENTRIES);
    let mut output = names[..names.len().min(limit)].join("\n");
    let reached = names.len() > limit;
    let truncation = fit(&mut output);
    if reached {
        output.push_str(&format!(
            "\n\n[{limit} entries limit reached. Use limit={} for more]",
            limit * 2
        ));
    }
    Ok(PiLsExecSuccess {
        output,
        truncation,
        entry_limit_reached: reached.then_some(number(limit)),
    })
}

/// Returns the limit of the request, at least one, or the default.
pub(super) fn limit(given: Option<i32>, usual: usize) -> usize {
    given.map_or(usual, |limit| usize::try_from(limit).unwrap_or(0).max(1))
}

/// Returns a path without the `@` that users put before a file name.
pub(super) fn named(path: &str) -> &str {
    path.strip_prefix('@').unwrap_or(path)
}

/// Truncates a list to what one result may contain.
pub(super) fn fit(output: &mut String) -> Option<PiTruncation> {
    let (shown, truncation) = head(output);
    let length = shown.len();
    output.truncate(length);
    truncation
}

/// Finds files by a glob on their names, or on their paths if it has a slash.
pub(super) fn find(
    guard: &PathGuard,
    args: &PiFindExecArgs,
    abort: &CancellationToken,
) -> Result<PiFindExecSuccess, PiToolError> {
    let root = guard.absolute(named(args.path.as_deref().unwrap_or_default()));
    cleared(guard, &root, "Find")?;
    if root.is_dir() {
        io_errors::readable(&root).map_err(|error| PiToolError::io(&error, "scandir", &root))?;
    }
    let glob = globset::GlobBuilder::new(&args.pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| PiToolError(error.to_string()))?
        .compile_matcher();
    let by_path = args.pattern.contains('/');
    let limit = limit(args.limit, 1000);
    let mut found = Vec::new();
    let mut walk = walk::walk(&root, &cursorignore::FILES, |entry| {
        entry.depth() == 0 || entry.file_name() != ".git"
    });
    walk.sort_by_file_name(|a, b| sort_names::names(&a.to_string_lossy(), &b.to_string_lossy()));
    for entry in walk.build().flatten() {
        if abort.is_cancelled() {
            return Err(PiToolError(tools::SEARCH_CANCELLED.into()));
        }
        let Ok(inside) = entry.path().strip_prefix(&root) else {
            continue;
        };
        let matches = if by_path {
            glob.is_match(inside)
        } else {
            glob.is_match(entry.file_name())
        };
        if !matches || inside.as_os_str().is_empty() || guard.read(entry.path()).is_err() {
            continue;
        }
        let slash = entry.file_type().is_some_and(|kind| kind.is_dir());
        found.push(format!(
            "{}{}",
            inside.display(),
            if slash { "/" } else { "" }
        ));
        if found.len() == limit {
            break;
        }
    }
    if found.is_empty() {
        return Ok(PiFindExecSuccess {
            output: "No files found matching pattern".into(),
            ..PiFindExecSuccess::default()
        });
    }
    let reached = found.len() == limit;
    let mut output = found.join("\n");
    let truncation = fit(&mut output);
    if reached {
        output.push_str(&format!(
            "\n\n[{limit} results limit reached. Use limit={} for more, or refine pattern]",
            limit * 2
        ));
    }
    Ok(PiFindExecSuccess {
        output,
        truncation,
        result_limit_reached: reached.then_some(number(limit)),
    })
}
