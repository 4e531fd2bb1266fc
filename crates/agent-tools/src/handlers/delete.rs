//! Deleting a file. Directories are refused, and deleting a link does not touch its target.

use std::io;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::io_errors;
use super::text_file::{self, FileKind};
use crate::errno::Errno;
use crate::workspace::path_guard::{ApprovedPath, MissingFolders, PathDenied, PathGuard};
use cursor_proto::agent::v1::*;

/// The most text of a deleted file that the result contains, in UTF-16 units.
const MAX_UNITS: usize = 2 * text_file::MAX_UNITS;

/// Executes one delete request.
pub(super) fn delete(guard: &PathGuard, args: &DeleteArgs) -> DeleteResult {
    let path = guard.absolute(&args.path);
    let shown = path.to_string_lossy().into_owned();
    let result = match guard.delete(&path) {
        Ok(cleared) => {
            attempt(guard, &cleared, &path).unwrap_or_else(|error| failed(&path, &error))
        }
        Err(PathDenied::Missing) => {
            delete_result::Result::FileNotFound(DeleteFileNotFound { path: shown })
        }
        Err(refusal @ (PathDenied::Outside(_) | PathDenied::Process(_))) => {
            delete_result::Result::Rejected(DeleteRejected {
                path: shown,
                reason: refusal.to_string(),
            })
        }
        Err(refusal) => delete_result::Result::PermissionDenied(DeletePermissionDenied {
            path: shown,
            client_visible_error: refusal.to_string(),
            is_readonly: false,
        }),
    };
    DeleteResult {
        result: Some(result),
    }
}

fn attempt(
    guard: &PathGuard,
    cleared: &ApprovedPath,
    path: &Path,
) -> io::Result<delete_result::Result> {
    let shown = path.to_string_lossy().into_owned();
    let about = path.metadata()?;
    if !about.is_file() {
        let actual_type = if about.is_dir() { "directory" } else { "other" };
        return Ok(delete_result::Result::NotFile(DeleteNotFile {
            path: shown,
            actual_type: actual_type.into(),
        }));
    }
    let prev_content = content(guard, path).unwrap_or_default();
    let (folder, name) = cleared.folder(MissingFolders::Fail)?;
    // Checked again through the open directory, because the path may have been swapped since.
    if !folder.is_file_or_link(&name)? {
        return Err(Errno::INVAL.into());
    }
    folder.remove(&name)?;
    Ok(delete_result::Result::Success(DeleteSuccess {
        path: shown.clone(),
        deleted_file: shown,
        file_size: i64::try_from(about.len()).unwrap_or(i64::MAX),
        prev_content,
    }))
}

/// Returns the text of the file, which the result contains so that the model can restore it.
fn content(guard: &PathGuard, path: &Path) -> Option<String> {
    let mut file = guard.read(path).ok()?.open().ok()?;
    let FileKind::Text(guess) = text_file::kind(&text_file::sample(&mut file).ok()?) else {
        return None;
    };
    let abort = CancellationToken::new();
    let scan = text_file::scan(&mut file, guess, &abort).ok()?;
    let all = text_file::lines(&mut file, &scan, 0, scan.lines, MAX_UNITS, &abort);
    Some(all.ok()?.text)
}

fn failed(path: &Path, error: &io::Error) -> delete_result::Result {
    let shown = path.to_string_lossy().into_owned();
    if io_errors::is(error, Errno::NOENT) {
        delete_result::Result::FileNotFound(DeleteFileNotFound { path: shown })
    } else if io_errors::is_denied(error) || io_errors::is(error, Errno::ROFS) {
        delete_result::Result::PermissionDenied(DeletePermissionDenied {
            path: shown,
            client_visible_error: "Permission denied".into(),
            is_readonly: false,
        })
    } else if io_errors::is(error, Errno::BUSY) {
        delete_result::Result::FileBusy(DeleteFileBusy { path: shown })
    } else {
        delete_result::Result::Error(DeleteError {
            path: shown,
            error: io_errors::sentence(error, "unlink", path),
        })
    }
}
