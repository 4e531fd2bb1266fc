//! Reading a file: text by lines; images, PDF documents and videos whole.

use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::io_errors;
use super::text_file::{self, FileBytes, FileKind};
use crate::errno::Errno;
use crate::prompts::tools;
use crate::workspace::path_guard::{PathDenied, PathGuard};
use cursor_proto::agent::v1::*;

/// Maximum size, in bytes, of an image, document or video; a larger one is refused.
const MAX_DATA: u64 = 24 * 1024 * 1024;
const VIDEOS: [&str; 8] = ["mp4", "webm", "mov", "avi", "mkv", "wmv", "flv", "m4v"];

/// Executes one read request.
pub(super) fn read(guard: &PathGuard, args: &ReadArgs, abort: &CancellationToken) -> ReadResult {
    let path = guard.absolute(&args.path);
    let result = attempt(guard, &path, args, abort);
    ReadResult {
        result: Some(result.unwrap_or_else(|error| failed(&path, &error))),
    }
}

fn attempt(
    guard: &PathGuard,
    path: &Path,
    args: &ReadArgs,
    abort: &CancellationToken,
) -> io::Result<read_result::Result> {
    let shown = path.to_string_lossy().into_owned();
    let cleared = match guard.read(path) {
        Ok(cleared) => cleared,
        Err(refusal) => return Ok(refused(shown, refusal)),
    };
    let about = cleared.real.symlink_metadata()?;
    if about.is_dir() {
        return Ok(invalid(shown, "Path is a directory, not a file"));
    }
    if !about.is_file() {
        return Ok(invalid(shown, "Path is neither a file nor a directory"));
    }
    let (file, about) = cleared.open_with_metadata()?;
    let size = about.len();
    let mut file = FileBytes::of(file, size)?;
    let sample = text_file::sample(&mut file)?;
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    match text_file::kind(&sample) {
        _ if ending == "pdf" => whole(shown, file, size),
        FileKind::Picture => whole(shown, file, size),
        FileKind::Binary if VIDEOS.contains(&ending.as_str()) => whole(shown, file, size),
        FileKind::Binary if ending.is_empty() => Ok(invalid(
            shown,
            "Binary files without an extension are not supported by the read executor",
        )),
        FileKind::Binary => Ok(invalid(
            shown,
            &format!("Binary files of type .{ending} are not supported by the read executor"),
        )),
        FileKind::Text(encoding) => {
            let scan = text_file::scan(&mut file, encoding, abort)?;
            let window = window(args, scan.lines).filter(|_| !scan.empty);
            let (first, end) = window.unwrap_or((0, scan.lines));
            let excerpt =
                text_file::lines(&mut file, &scan, first, end, text_file::MAX_UNITS, abort)?;
            Ok(read_result::Result::Success(ReadSuccess {
                path: shown,
                output: Some(read_success::Output::Content(excerpt.text)),
                total_lines: i32::try_from(scan.lines).unwrap_or(i32::MAX),
                file_size: i64::try_from(size).unwrap_or(i64::MAX),
                truncated: excerpt.truncated,
                range_applied: window.is_some(),
                ..ReadSuccess::default()
            }))
        }
    }
}

/// Returns the requested lines, counted from 0 and without the end; `None` if none are requested, or
/// if they begin after the last line.
fn window(args: &ReadArgs, lines: usize) -> Option<(usize, usize)> {
    if args.offset.is_none() && args.limit.is_none() {
        return None;
    }
    let offset = args.offset.unwrap_or(1);
    let distance = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let (first, most) = if offset < 0 {
        (lines.saturating_sub(distance), distance)
    } else {
        (distance.saturating_sub(1), lines)
    };
    let most = args
        .limit
        .map_or(most, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    (first < lines).then(|| (first, first.saturating_add(most).min(lines)))
}

fn whole(path: String, mut file: FileBytes, size: u64) -> io::Result<read_result::Result> {
    if size > MAX_DATA {
        let reason = tools::file_too_large(size, MAX_DATA);
        return Ok(invalid(path, &reason));
    }
    file.rewind()?;
    let mut data = Vec::new();
    file.take(MAX_DATA).read_to_end(&mut data)?;
    Ok(read_result::Result::Success(ReadSuccess {
        path,
        output: Some(read_success::Output::Data(data.into())),
        file_size: i64::try_from(size).unwrap_or(i64::MAX),
        ..ReadSuccess::default()
    }))
}

fn invalid(path: String, reason: &str) -> read_result::Result {
    read_result::Result::InvalidFile(ReadInvalidFile {
        path,
        reason: reason.into(),
    })
}

fn refused(path: String, refusal: PathDenied) -> read_result::Result {
    match refusal {
        PathDenied::Missing => read_result::Result::FileNotFound(ReadFileNotFound { path }),
        PathDenied::Process(_) | PathDenied::Outside(_) | PathDenied::Secret(_) => {
            let reason = refusal.to_string();
            read_result::Result::Rejected(ReadRejected { path, reason })
        }
        PathDenied::Ignored
        | PathDenied::Rules
        | PathDenied::Settings(_)
        | PathDenied::Protected { .. }
        | PathDenied::Unclear { .. }
        | PathDenied::Dangling(_) => {
            read_result::Result::PermissionDenied(ReadPermissionDenied { path })
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> read_result::Result {
    let shown = path.to_string_lossy().into_owned();
    if io_errors::is(error, Errno::NOENT) {
        read_result::Result::FileNotFound(ReadFileNotFound { path: shown })
    } else if io_errors::is_denied(error) {
        read_result::Result::PermissionDenied(ReadPermissionDenied { path: shown })
    } else if error.kind() == io::ErrorKind::Interrupted {
        read_result::Result::Error(ReadError {
            path: shown,
            error: tools::READ_CANCELLED.into(),
        })
    } else {
        read_result::Result::Error(ReadError {
            path: shown,
            error: io_errors::sentence(error, "open", path),
        })
    }
}
